//! Releases, by the holder and by a cleanup of its workflow.

use crate::Case;
use crate::acquiring::{options, says, with_queueing, with_ticket};
use crate::holding::{holding, own};
use crate::row::{Row, Wrote, saved};
use crate::script::{Says, Script};
use Says::{
    Applied, AppliedTo, AppliedWithoutRow, Denied, Invalid, Is, NoResponse, NoRow, Refused, RefusedWithoutRow,
    Throttled,
};
use lambda_lock_protocol::{
    AcquireOptions, Acquired, DataChange, Holding, Queueing, ReleaseOptions, Schema, Settings, Ttl, Version, acquire,
    release, release_workflow,
};
use std::time::Duration;

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

/// What a grant has seen of the line changes nothing of its release.
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
            "granted where nobody waits any more, and released",
            options(),
            says([AppliedTo(own().line(9, 9)), Applied]),
        ),
        of("granted out of turn, and released", out_of_turn(), says([AppliedTo(own().line(9, 5)), Applied])),
        with(
            "granted while others wait, and a later grant released",
            options(),
            or_later,
            says([AppliedTo(own().line(9, 5)), Refused(Row::held().owner("me")), Applied]),
        ),
        of(
            "granted in turn, and released",
            with_ticket(6),
            says([Is(Row::free().line(9, 5)), AppliedTo(own().line(9, 6)), Applied]),
        ),
    ]
}

pub(crate) fn cases() -> Vec<Case> {
    [releases(), grants_and_releases()].concat()
}
