//! Acquires of several locks together.

use crate::Case;
use crate::acquiring::{held, says};
use crate::row::{Row, Wrote, saved};
use crate::script::{BEGIN, Says, Script};
use crate::words::{at, state};
use Says::{
    Applied, Are, Cancelled, Denied, InProgress, Invalid, NoResponse, NoRow, RefusedBy, RefusedPartly,
    RefusedWithoutRow, Throttled,
};
use lambda_lock_protocol::{AcquireAllOptions, AcquiredAll, PendingCommit, Reclaim, Settings, WantedLock, acquire_all};

/// Several locks together.
pub(crate) fn cases() -> Vec<Case> {
    let wanted = |key: &str, reclaim: Reclaim| WantedLock { key: key.into(), reclaim, observation: None, commit: None };
    let two = || AcquireAllOptions {
        locks: vec![wanted("a", Reclaim::Nobody), wanted("b", Reclaim::Nobody)],
        owner: "me".to_owned(),
        workflow: None,
        keeps_attributes: false,
    };
    let resumed = || AcquireAllOptions {
        locks: vec![wanted("a", Reclaim::Only(saved(0))), wanted("b", Reclaim::Only(saved(0)))],
        ..two()
    };
    let reclaimed =
        || AcquireAllOptions { locks: vec![wanted("a", Reclaim::SameOwner), wanted("b", Reclaim::SameOwner)], ..two() };
    let with_commit = |stamp| {
        let mut options = resumed();
        options.locks[1].commit = Some(PendingCommit::Sent(stamp));
        options
    };
    let saved_later = || {
        let mut options = with_commit(saved(20).stamp);
        options.locks[1].reclaim = Reclaim::Only(saved(20));
        options
    };
    let first_free = || RefusedBy(vec![(0, Row::free())]);
    let almost_dead = |before| Row::held().number("leaseEndsAt", BEGIN - before);
    let of = |name, options, script: Script| {
        let settings = Settings::default();
        script.run(
            name,
            async |port| acquire_all(port, &settings, options).await,
            |end, attempts| match end {
                Ok(AcquiredAll::Granted { holdings, renew_first }) => {
                    let tokens: Vec<String> = holdings.iter().map(|holding| at(holding.token)).collect();
                    let states: Vec<String> = holdings.iter().map(|holding| state(holding, attempts)).collect();
                    let first = if renew_first { ", to renew first" } else { "" };
                    format!("granted{first} with tokens {}: {}", tokens.join(", "), states.join("; "))
                }
                Ok(AcquiredAll::Held(blocked)) => {
                    let by: Vec<String> =
                        blocked.by.iter().map(|(index, seen)| format!("{index}: {}", held(seen))).collect();
                    format!("after {} looks, {}", blocked.looks, by.join("; "))
                }
                Err(failed) => format!("{:?} of {:?}", failed.failure, failed.of),
            },
        )
    };
    let own = || Row::by(Wrote::Attempt(1)).owner("me").token(BEGIN + 1);
    let some = |rows: [Row; 2]| Are(rows.map(Some).to_vec());
    let of_owner = |owner, token| Row::held().owner(owner).token(token);
    let of_first = |row| some([row, Row::free()]);
    vec![
        of("a set that nobody has", two(), says([Applied])),
        of("a set of which one is held", two(), says([RefusedBy(vec![(0, Row::held())])])),
        of("a set whose rows are free", two(), says([RefusedBy(vec![(0, Row::free()), (1, Row::free())]), Applied])),
        of(
            "a set of which a dead and a free one are taken",
            two(),
            says([RefusedBy(vec![(0, Row::held().dead()), (1, Row::free().line(9, 5))]), Applied]),
        ),
        of(
            "a set of which one has a large token",
            two(),
            says([RefusedBy(vec![(0, Row::free().token(BEGIN + 900))]), Applied]),
        ),
        of(
            "a set of which one has a token that nothing can follow",
            two(),
            says([RefusedBy(vec![(1, Row::free().token(u64::MAX - 1))])]),
        ),
        of(
            "a set of which one is of a peer",
            two(),
            says([RefusedBy(vec![(0, Row::by(Wrote::Peer).released())]), Applied]),
        ),
        of("a set whose clock writes later times", two(), says([Applied]).writes_later()),
        of("a set whose wall clock is not trusted", two(), says([Applied]).distrusts_the_wall_clock()),
        of("a set whose attributes stay", AcquireAllOptions { keeps_attributes: true, ..two() }, says([Applied])),
        of(
            "a set that the owner reclaims",
            reclaimed(),
            says([RefusedBy(vec![(0, Row::held().owner("me")), (1, Row::held().owner("me"))]), Applied]),
        ),
        of(
            "a set of which one is reclaimed, and one is another's",
            reclaimed(),
            says([RefusedBy(vec![(0, Row::held().owner("me")), (1, Row::held())])]),
        ),
        of(
            "a set of which both are held",
            two(),
            says([RefusedBy(vec![(0, Row::held()), (1, Row::held().dead().frozen())])]),
        ),
        of("a set of which one is frozen", two(), says([RefusedBy(vec![(1, Row::free().frozen())])])),
        of(
            "a set that waits for the last of its holders",
            two(),
            says([
                RefusedBy(vec![(0, Row::held())]),
                some([Row::free(), Row::held()]),
                some([Row::free(), Row::free()]),
                Applied,
            ])
            .waits(5_000),
        ),
        of(
            "a set that waits until its time is over",
            two(),
            says([RefusedBy(vec![(0, Row::held())]), some([Row::held(), Row::free()])]).waits(30),
        ),
        of(
            "a set that waits until the holders are dead, and takes it without a look",
            two(),
            says([RefusedBy(vec![(0, almost_dead(1_990)), (1, almost_dead(1_980))]), Applied]).waits(5_000),
        ),
        of(
            "a set that waits among many",
            two(),
            says([
                RefusedBy(vec![(0, of_owner("a", 7))]),
                of_first(of_owner("b", 8)),
                of_first(of_owner("c", 9)),
                of_first(of_owner("d", 10)),
                NoRow,
                Applied,
            ])
            .waits(5_000),
        ),
        of(
            "a set that waits, and nothing can be read",
            two(),
            says([RefusedBy(vec![(0, Row::held())]), Denied]).waits(5_000),
        ),
        of(
            "a set that waits for a row that is deleted",
            two(),
            says([RefusedBy(vec![(0, Row::held())]), NoRow, Applied]).waits(5_000),
        ),
        of(
            "a set that waits, and reads are throttled until the time is over",
            two(),
            says([RefusedBy(vec![(0, Row::held())]), Throttled]).waits(5_000).time(50),
        ),
        of(
            "a set for which others were faster three times",
            two(),
            says([
                RefusedBy(vec![(0, Row::free())]),
                RefusedBy(vec![(0, Row::free())]),
                RefusedBy(vec![(0, Row::free())]),
                Applied,
            ]),
        ),
        of(
            "a set that waits, after others were faster",
            two(),
            says([
                first_free(),
                first_free(),
                RefusedBy(vec![(0, Row::held())]),
                some([Row::free(), Row::free()]),
                first_free(),
                Applied,
            ])
            .waits(5_000),
        ),
        of(
            "a set for which others were faster until the time is over",
            two(),
            says([RefusedBy(vec![(0, Row::free())]), RefusedBy(vec![(0, Row::free())])]).time(10),
        ),
        of("a set without a response is sent again as it was", two(), says([NoResponse, Applied])),
        of(
            "a set without a response, which was applied",
            two(),
            says([NoResponse, RefusedBy(vec![(0, own()), (1, own())])]),
        ),
        of(
            "a set without a response, of which one row shows that it was applied",
            two(),
            says([NoResponse, RefusedBy(vec![(1, own())])]),
        ),
        of(
            "a set without a response, which was released since",
            two(),
            says([NoResponse, RefusedBy(vec![(0, own().released())]), Applied, Applied]),
        ),
        of(
            "a set without a response, and then a conflict, and one row shows that it was applied",
            two(),
            says([NoResponse, Throttled, RefusedBy(vec![(0, own())])]),
        ),
        of(
            "a set without a response, and then invalid, which was released since",
            two(),
            says([NoResponse, Invalid, some([own().released(), own()]), Applied, Applied]),
        ),
        of(
            "a set without a response, whose row has another token",
            two(),
            says([NoResponse, RefusedBy(vec![(0, own().token(9))]), Applied, Applied]),
        ),
        of(
            "a set without a response, and then one is held",
            two(),
            says([NoResponse, RefusedBy(vec![(0, Row::held())]), Applied, Applied]),
        ),
        of("a set without a response, and then denied", two(), says([NoResponse, Denied, Applied, Applied])),
        of(
            "a set without a response, whose first release has none either",
            two(),
            says([NoResponse, RefusedBy(vec![(0, Row::held())]), NoResponse, Applied]),
        ),
        of(
            "a set without a response, which is released without one too",
            two(),
            says([NoResponse, NoResponse]).time(5),
        ),
        of(
            "a set without a response, which DynamoDB recognises for eight minutes",
            two(),
            says([NoResponse, NoResponse, Applied]).takes(470_000),
        ),
        of(
            "a set without a response, which DynamoDB recognises no more",
            two(),
            says([NoResponse, Applied]).takes(480_000),
        ),
        of(
            "a set without a response until the time is over",
            two(),
            says([NoResponse, NoResponse, Applied, Applied]).time(20),
        ),
        of("a set in progress", two(), says([InProgress, Applied])),
        of("a set that DynamoDB can recover", two(), says([InProgress, InProgress, InProgress, InProgress, Applied])),
        of(
            "a set that DynamoDB can almost recover",
            two(),
            says([InProgress, InProgress, InProgress, Applied]).takes(600),
        ),
        of(
            "a set that is throttled after progress, and then held",
            two(),
            says([InProgress, Throttled, RefusedBy(vec![(0, Row::held())]), Applied, Applied]),
        ),
        of("a set in progress, and then no response", two(), says([InProgress, NoResponse, Applied])),
        of("a set in progress until the time is over", two(), says([InProgress, Applied, Applied]).time(500)),
        of("a set that is throttled", two(), says([Throttled, Applied])),
        of(
            "a set that is throttled, and granted by a late copy",
            two(),
            says([Throttled, RefusedBy(vec![(0, own())])]),
        ),
        of("a set that is throttled until the time is over", two(), says([Throttled, Throttled]).time(50)),
        of("a set that is denied", two(), says([Denied])),
        of("a set whose transaction says that writes of the caller's were refused", two(), says([Cancelled, Applied])),
        of("a set that is invalid because of a row", two(), says([Invalid, some([own(), own()])])),
        of("a set that is invalid", two(), says([Invalid, NoRow])),
        of("a set whose refusal shows no row", two(), says([RefusedWithoutRow, some([Row::held(), Row::free()])])),
        of(
            "a set whose refusal shows one row of two",
            two(),
            says([RefusedPartly(Row::free()), some([Row::free(), Row::held()])]),
        ),
        of(
            "a set with a row that is no lock record",
            two(),
            says([RefusedBy(vec![(1, Row::held().text("leaseDuration", "soon"))])]),
        ),
        of("a saved set", resumed(), says([Applied])),
        of("a saved set of which one is another's", resumed(), says([RefusedBy(vec![(1, Row::held())])])),
        of(
            "a saved set without a response, of which one row shows the saved grant",
            resumed(),
            says([NoResponse, RefusedBy(vec![(0, Row::by(Wrote::Saved(0)))]), Applied]),
        ),
        of(
            "a saved set of which a row has a token that is ahead of the clock",
            resumed(),
            says([RefusedBy(vec![(1, Row::by(Wrote::Saved(0)).token(BEGIN + 700))]), Applied]),
        ),
        of(
            "a saved set of which a row has a token that cannot be followed",
            resumed(),
            says([RefusedBy(vec![(1, Row::by(Wrote::Saved(0)).token(u64::MAX - 1))])]),
        ),
        of("a saved set whose commit was the last write", with_commit(saved(0).stamp), says([Applied])),
        of("a saved set whose commit was the last write of one lock", saved_later(), says([Applied])),
        of("a saved set whose commit was not applied", with_commit(saved(20).stamp), says([Applied])),
        of(
            "a saved set of which one is gone",
            resumed(),
            says([RefusedWithoutRow, Are(vec![Some(Row::by(Wrote::Saved(0))), None]), NoRow]),
        ),
    ]
}
