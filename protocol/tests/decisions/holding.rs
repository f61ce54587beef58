//! Renewals: what a holder that goes on asks for.

use crate::Case;
use crate::acquiring::says;
use crate::row::{Row, Wrote, saved};
use crate::script::{BEGIN, Says, Script};
use crate::words::state;
use Says::{Applied, AppliedTo, Denied, Is, NoResponse, NoRow, Refused, RefusedWithoutRow, Throttled};
use lambda_lock_protocol::{DataChange, Holding, Instants, PendingCommit, SavedLock, Settings, Version, renew};
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

pub(crate) fn cases() -> Vec<Case> {
    renewals()
}
