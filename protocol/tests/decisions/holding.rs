//! What a holder asks for: to renew, and to release.

use crate::Case;
use crate::acquiring::{options, says, with_queueing, with_ticket};
use crate::row::{Row, Wrote, saved};
use crate::script::{BEGIN, Says, Script};
use crate::words::state;
use Says::{
    Applied, AppliedTo, AppliedWithoutRow, Denied, Invalid, Is, NoResponse, NoRow, Refused, RefusedWithoutRow,
    Throttled,
};
use lambda_lock_protocol::{
    AcquireOptions, Acquired, DataChange, Holding, Instants, PendingCommit, Queueing, ReleaseOptions, SavedLock,
    Schema, Settings, Ttl, Version, acquire, release, release_workflow, renew,
};
use std::time::Duration;

/// A lock that was saved five seconds ago, with a lease of 20 s that ends in ten.
pub(crate) fn holding() -> Holding {
    let (lease, version) = (Duration::from_secs(20), saved(0).text());
    let lock = SavedLock::from_parts("k".into(), "me".to_owned(), version, 7, lease, BEGIN + 10_000, None);
    let now = Instants { monotonic: Duration::ZERO, wall: Duration::from_millis(BEGIN) };
    lock.holding(now, &Settings::default()).unwrap()
}

/// A row of this grant.
pub(crate) fn own(later: u64) -> Row {
    Row::by(Wrote::Saved(later)).owner("me")
}

fn renewals() -> Vec<Case> {
    let of = |name, mut holding: Holding, script: Script| {
        let settings = Settings::default();
        script.run(
            name,
            async |port| {
                let renewed = renew(port, &settings, &mut holding, &DataChange::Keep).await;
                (renewed, holding)
            },
            |(renewed, holding), attempts| {
                let state = state(&holding, attempts);
                match renewed {
                    Ok(()) => format!("renewed: {state}"),
                    Err(failure) => format!("{failure:?}: {state}"),
                }
            },
        )
    };
    let committed = |stamp| Holding { pending: Some(PendingCommit::Sent(stamp)), ..holding() };
    let newer = || Holding { newest: Version { stamp: saved(9_000).stamp, ..saved(0) }, ..holding() };
    let work = || Holding { keep: Some(Duration::from_secs(60)), ..holding() };
    vec![
        of("a renewal", holding(), says([Applied])),
        of("a renewal for a longer lease", holding(), says([Applied]).asks_for_a_lease_of(60)),
        of("a renewal never shortens a lease", holding(), says([Applied]).asks_for_a_lease_of(5)),
        of("a renewal to the latest end", holding(), says([Applied]).renews_until(15_000)),
        of("a renewal never shortens a lease to the latest end", holding(), says([Applied]).renews_until(5_000)),
        of("a renewal of a holder that has written a later stamp", newer(), says([Applied])),
        of("a renewal whose clock writes later times", holding(), says([Applied]).writes_later()),
        of("a renewal of idempotent work", work(), says([Applied])),
        of(
            "a renewal that is refused by the outcome of its work",
            work(),
            says([Refused(own(0).work(60_000).settled("done"))]),
        ),
        of(
            "a renewal that is refused by a longer lease of a copy",
            holding(),
            says([Refused(own(90).text("leaseDuration", "40000").number("leaseEndsAt", BEGIN + 35_000)), Applied]),
        ),
        of(
            "a renewal that is refused by a later end of a copy",
            holding(),
            says([Refused(own(90).number("leaseEndsAt", BEGIN + 50_000)), Applied]),
        ),
        of(
            "a renewal that is refused by an earlier end of a copy, and then no response",
            holding(),
            says([Refused(own(90).number("leaseEndsAt", BEGIN + 5_000)), NoResponse]).time(8),
        ),
        of("a renewal that is refused by an older version of a copy", newer(), says([Refused(own(90)), Applied])),
        of("a renewal by a clock that is behind a copy's stamp", holding(), says([Refused(own(9_000)), Applied])),
        of(
            "a renewal by a clock that is behind a copy's stamp, and then no response",
            holding(),
            says([Refused(own(9_000)), NoResponse]).time(8),
        ),
        of(
            "a renewal of a row with the TTL attribute of other clients",
            holding(),
            says([Refused(own(90).text("ttlAttribute", "purgeAt"))]),
        ),
        of(
            "a renewal of another's row, with the TTL attribute of other clients",
            holding(),
            says([Refused(Row::held().text("ttlAttribute", "purgeAt"))]),
        ),
        of(
            "a renewal that is refused again and again",
            holding(),
            says([Refused(own(90)), Refused(own(91)), Refused(own(92)), Applied]),
        ),
        of(
            "a renewal that is refused until the time is over",
            holding(),
            says([Refused(own(90)), Refused(own(91))]).time(20),
        ),
        of(
            "a renewal whose row cannot be read after no response",
            holding(),
            says([NoResponse, RefusedWithoutRow, Denied]),
        ),
        of("a renewal without a response", holding(), says([NoResponse, Applied])),
        of("a renewal without responses until the time is over", holding(), says([NoResponse, NoResponse]).time(20)),
        of("a renewal that is throttled until the time is over", holding(), says([Throttled]).time(20)),
        of(
            "a renewal that is throttled until the time is over, after no response",
            holding(),
            says([NoResponse, Throttled]).time(30),
        ),
        of("a renewal that is refused by a copy of this holder", holding(), says([Refused(own(90)), Applied])),
        of("a renewal that is refused by another grant", holding(), says([Refused(Row::held())])),
        of("a renewal that is refused by a released row", holding(), says([Refused(own(0).released())])),
        of("a renewal that is refused by another token", holding(), says([Refused(own(0).token(8))])),
        of("a renewal whose row is gone", holding(), says([RefusedWithoutRow, NoRow])),
        of(
            "a renewal that is refused without a row, which is ours",
            holding(),
            says([RefusedWithoutRow, Is(own(90)), Applied]),
        ),
        of("a renewal without a response, and then another grant", holding(), says([NoResponse, Refused(Row::held())])),
        of(
            "a renewal without a response, and then a row that is no lock record",
            holding(),
            says([NoResponse, Refused(own(0).text("leaseDuration", "soon"))]),
        ),
        of(
            "a renewal of a row that is no lock record",
            holding(),
            says([Refused(own(0).text("leaseDuration", "soon"))]),
        ),
        of("a renewal that is denied", holding(), says([Denied])),
        of("a renewal that is denied after no response", holding(), says([NoResponse, Denied])),
        of("a renewal by a clock that is far behind", holding(), says([Applied, Applied]).runs_behind(9_000)),
        of(
            "a renewal by a clock that is far behind, and then no response",
            holding(),
            says([Applied, NoResponse]).time(8).runs_behind(9_000),
        ),
        of(
            "a renewal by a clock that is far behind, and then denied",
            holding(),
            says([Applied, Denied]).runs_behind(9_000),
        ),
        of("a renewal by a clock that is behind as clocks may be", holding(), says([Applied]).runs_behind(1_900)),
        of("a renewal that replaces a commit", committed(saved(0).stamp), says([AppliedTo(own(0))])),
        of(
            "a renewal that replaces the version before a commit",
            committed(saved(50).stamp),
            says([AppliedTo(own(0))]),
        ),
        of("a renewal that replaces a version after a commit", committed(saved(0).stamp), says([AppliedTo(own(50))])),
        of("a renewal whose response does not show what it replaces", committed(saved(0).stamp), says([Applied])),
        of(
            "a renewal without a response, after a commit",
            committed(saved(0).stamp),
            says([NoResponse, AppliedTo(own(0))]),
        ),
    ]
}

fn releases() -> Vec<Case> {
    let in_table = |name, settings: Settings, holding: Holding, options: ReleaseOptions, script: Script| {
        script.run(name, async |port| release(port, &settings, &holding, options).await, |end, _| format!("{end:?}"))
    };
    let ttl = || Ttl { attribute: "purgeAt".to_owned(), retention: Duration::from_secs(60) };
    let with_ttl = || Settings { schema: Schema { ttl: Some(ttl()), ..Schema::default() }, ..Settings::default() };
    let released = |name, holding, options, script| in_table(name, Settings::default(), holding, options, script);
    let with = |name, options, script| released(name, holding(), options, script);
    let of_holding = |name, holding, script| released(name, holding, ReleaseOptions::default(), script);
    let of = |name, script| with(name, ReleaseOptions::default(), script);
    let deletes = || ReleaseOptions { delete_row: true, ..ReleaseOptions::default() };
    let or_later = || ReleaseOptions { or_later_grant_of_owner: true, ..ReleaseOptions::default() };
    let payload = || ReleaseOptions { data: DataChange::Set(vec![1]), ..ReleaseOptions::default() };
    let wakes = || ReleaseOptions { tells_sleeper: true, ..ReleaseOptions::default() };
    let in_line = |row: Row| row.line(4, 1).number("lastSleeper", 3);
    let broken = || Row::free().text("brokenVersion", &Row::free().version(&[]));
    let newer = |later| Holding { newest: Version { stamp: saved(later).stamp, ..saved(0) }, ..holding() };
    let of_workflow = |name, script: Script| {
        let settings = Settings::default();
        let released = async |port: &mut Script| {
            let is_spared = |owner: &str| owner == "spared";
            release_workflow(port, &settings, &"k".into(), "arn:1", is_spared, ReleaseOptions::default()).await
        };
        script.run(name, released, |end, _| format!("{end:?}"))
    };
    let of_arn = || Row::held().text("workflow", "arn:1");
    vec![
        of("a release", says([Applied])),
        of("a release whose clock writes later times", says([Applied]).writes_later()),
        of_holding(
            "a release of idempotent work",
            Holding { keep: Some(Duration::from_secs(60)), ..holding() },
            says([Applied]),
        ),
        of_holding("a release by a clock that is behind the newest stamp", newer(9_000), says([Applied])),
        of_holding(
            "a release by a clock that is behind the newest stamp, which is not on the row",
            newer(9_000),
            says([Refused(own(90)), Applied]),
        ),
        of("a release that is refused again and again", says([Refused(own(90)), Refused(own(91)), Applied])),
        of_holding("a release goes no further than what was seen", newer(50), says([Applied])),
        of("a release by a clock that is behind a copy's stamp", says([Refused(own(9_000)), Applied])),
        with("a release that wakes", wakes(), says([AppliedTo(in_line(own(0).released()))])),
        with(
            "a release that wakes nobody",
            wakes(),
            says([AppliedTo(own(0).released().line(4, 4).number("lastSleeper", 3))]),
        ),
        with(
            "a release that wakes nobody, because those who slept have been served",
            wakes(),
            says([AppliedTo(own(0).released().line(9, 3).number("lastSleeper", 3))]),
        ),
        with("a release whose response shows no row", wakes(), says([AppliedWithoutRow])),
        of("a release that was not to wake", says([AppliedTo(in_line(own(0).released()))])),
        of("a release that is refused by another grant", says([Refused(Row::held())])),
        of("a release without a response", says([NoResponse, Applied])),
        of("a release without a response, and then another grant", says([NoResponse, Refused(Row::held())])),
        of("a release without a response until the time is over", says([NoResponse, NoResponse]).time(20)),
        of("a release that is refused by a copy of this holder", says([Refused(own(90)), Applied])),
        of(
            "a release of a lock that was broken",
            says([Refused(own(0).released().text("brokenVersion", &saved(0).text()))]),
        ),
        of(
            "a release of a lock that was broken, after no response",
            says([NoResponse, Refused(own(0).released().text("brokenVersion", &saved(0).text()))]),
        ),
        of(
            "a release of a lock that was broken before the last renewal",
            says([Refused(own(90).text("brokenVersion", &saved(0).text())), Applied]),
        ),
        of("a release that is refused by another token", says([Refused(own(0).token(8))])),
        of(
            "a release that is refused by the outcome of its work",
            says([Refused(own(0).work(60_000).settled("done"))]),
        ),
        of(
            "a release without a response, and then the outcome of its work",
            says([NoResponse, Refused(own(0).work(60_000).settled("done"))]),
        ),
        of("a release without a response, and the row is gone", says([NoResponse, RefusedWithoutRow, NoRow])),
        of("a release that is refused without a row, which is ours", says([RefusedWithoutRow, Is(own(90)), Applied])),
        of("a release whose row cannot be read after no response", says([NoResponse, RefusedWithoutRow, Denied])),
        of("a release that is denied", says([Denied])),
        of("a release that is denied after no response", says([NoResponse, Denied])),
        of("a release that is invalid", says([Invalid])),
        of(
            "a release of a row with the TTL attribute of other clients",
            says([Refused(own(90).text("ttlAttribute", "purgeAt")), Applied]),
        ),
        in_table(
            "a release by a client with a TTL attribute, of a row that has another one",
            with_ttl(),
            holding(),
            ReleaseOptions::default(),
            says([Refused(own(90).text("ttlAttribute", "other"))]),
        ),
        in_table(
            "a release by a client with a TTL attribute",
            with_ttl(),
            holding(),
            ReleaseOptions::default(),
            says([Refused(own(90).text("ttlAttribute", "purgeAt")), Applied]),
        ),
        of("a release whose row is gone", says([RefusedWithoutRow, NoRow])),
        of("a release that is throttled", says([Throttled, Applied])),
        of("a release that is throttled until the time is over", says([Throttled]).time(20)),
        of(
            "a release that is throttled until the time is over, after no response",
            says([NoResponse, Throttled]).time(30),
        ),
        of("a release of a row that is no lock record", says([Refused(own(0).text("leaseDuration", "soon"))])),
        of(
            "a release without a response, of a row that is no lock record",
            says([NoResponse, Refused(own(0).text("leaseDuration", "soon"))]),
        ),
        with("a release whose payload is too large", payload(), says([Invalid, Applied])),
        with("a release whose payload is too large when the time is over", payload(), says([Invalid]).time(5)),
        with("a release whose payload is too large, and then lost", payload(), says([Invalid, Refused(Row::held())])),
        with("a release whose payload is too large, and then invalid", payload(), says([Invalid, Invalid])),
        with("a release with a payload that is denied", payload(), says([Denied])),
        with("a release that deletes", deletes(), says([Applied])),
        with("a release that deletes, and there is no row", deletes(), says([RefusedWithoutRow, NoRow])),
        with(
            "a release that deletes, without a response, and there is no row",
            deletes(),
            says([NoResponse, RefusedWithoutRow, NoRow]),
        ),
        with("a release that deletes, without a response", deletes(), says([NoResponse, Applied])),
        with(
            "a release that deletes, and is refused by a copy of this holder",
            deletes(),
            says([Refused(own(90)), Applied]),
        ),
        with("a release that deletes a frozen row", deletes(), says([Refused(own(0).frozen()), Applied])),
        with(
            "a release also of a later grant of the owner",
            or_later(),
            says([Refused(Row::held().owner("me")), Applied]),
        ),
        with(
            "a release also of a later grant of the owner, who has released it",
            or_later(),
            says([Refused(Row::free().owner("me"))]),
        ),
        with(
            "a release also of a later grant of the owner, which was broken",
            or_later(),
            says([Refused(broken().owner("me"))]),
        ),
        with(
            "a release also of a later grant of the owner, whose holder is a peer",
            or_later(),
            says([Refused(Row::by(Wrote::Peer).owner("me"))]),
        ),
        with(
            "a release also of a later grant, which wakes",
            ReleaseOptions { tells_sleeper: true, ..or_later() },
            says([Refused(in_line(Row::free().owner("me")))]),
        ),
        of("a release of no later grant of the owner", says([Refused(Row::held().owner("me"))])),
        with("a release also of a later grant, which is another's", or_later(), says([Refused(Row::held())])),
        of_workflow("a release of a workflow", says([Is(of_arn()), Applied])),
        of_workflow(
            "a release of a workflow by a clock that is behind its holder's",
            says([Is(Row::by(Wrote::Saved(9_000)).text("workflow", "arn:1")), Applied]),
        ),
        of_workflow("a release of a workflow whose row is gone", says([NoRow])),
        of_workflow("a release of a workflow that has released", says([Is(of_arn().released())])),
        of_workflow("a release of another workflow", says([Is(Row::held().text("workflow", "arn:12"))])),
        of_workflow(
            "a release of a workflow under a peer's version",
            says([Is(Row::by(Wrote::Peer).text("workflow", "arn:1"))]),
        ),
        of_workflow(
            "a release of a workflow without a response, and then another grant",
            says([Is(of_arn()), NoResponse, Refused(Row::by(Wrote::Theirs(50)).released())]),
        ),
        of_workflow("a release of a workflow that holds nothing", says([Is(Row::held())])),
        of_workflow("a release of a workflow whose owner is spared", says([Is(of_arn().owner("spared"))])),
        of_workflow(
            "a release of a workflow without a response, which was applied",
            says([Is(of_arn()), NoResponse, Refused(of_arn().released())]),
        ),
        of_workflow(
            "a release of a workflow that is throttled, and another has released",
            says([Is(of_arn()), Throttled, Refused(of_arn().released())]),
        ),
        of_workflow(
            "a release of a workflow that another has released",
            says([Is(of_arn()), Refused(of_arn().released())]),
        ),
        of_workflow(
            "a release of a workflow whose look has no response, and that another has released",
            says([NoResponse, Is(of_arn()), Refused(of_arn().released())]),
        ),
        of_workflow(
            "a release of a workflow that has renewed meanwhile",
            says([Is(of_arn()), Refused(Row::by(Wrote::Theirs(5_000)).text("workflow", "arn:1")), Applied]),
        ),
        of_workflow("a release of a workflow whose row cannot be read", says([Denied])),
    ]
}

/// A holder that was granted the lock while others waited tells them for how long it had the lock.
fn grants_and_releases() -> Vec<Case> {
    let with = |name, options: AcquireOptions, releases: ReleaseOptions, script: Script| {
        let settings = Settings::default();
        let both = async |port: &mut Script| {
            let Ok(Acquired::Granted { holding, .. }) = acquire(port, &settings, options).await else {
                panic!("{name}: not granted")
            };
            release(port, &settings, &holding, releases).await
        };
        script.run(name, both, |end, _| format!("{end:?}"))
    };
    let of = |name, options, script| with(name, options, ReleaseOptions::default(), script);
    let or_later = ReleaseOptions { or_later_grant_of_owner: true, ..ReleaseOptions::default() };
    let own = || Row::by(Wrote::Attempt(1)).owner("me");
    let out_of_turn = || with_queueing(Queueing::Ignored);
    vec![
        of("granted where nobody ever waited, and released", options(), says([AppliedTo(own()), Applied])),
        of(
            "granted where others seem to wait no more, and released",
            options(),
            says([AppliedTo(own().line(9, 5).regular()), Applied]),
        ),
        of(
            "granted where nobody waits any more, and released",
            options(),
            says([AppliedTo(own().line(9, 9).regular()), Applied]),
        ),
        of("granted out of turn, and released", out_of_turn(), says([AppliedTo(own().line(9, 5).regular()), Applied])),
        with(
            "granted while others wait, and a later grant released",
            options(),
            or_later,
            says([AppliedTo(own().line(9, 5)), Refused(Row::held().owner("me")), Applied]),
        ),
        of("granted in turn, and released", with_ticket(6), says([AppliedTo(own().line(9, 6).regular()), Applied])),
    ]
}

pub(crate) fn cases() -> Vec<Case> {
    [renewals(), releases(), grants_and_releases()].concat()
}
