//! What an operator decides.

use crate::Case;
use crate::acquiring::says;
use crate::row::{Row, Wrote};
use crate::script::{BEGIN, Says, Script};
use Says::{Applied, Denied, Is, NoResponse, NoRow, Refused, RefusedWithoutRow, Throttled};
use lambda_lock_protocol::{
    Grant, Item, Record, Settings, Stamp, Version, break_lock, freeze, peek, peek_all, reset, thaw,
};

fn breaks() -> Vec<Case> {
    let of = |name, seen: String, script: Script| {
        let broken = async |port: &mut Script| break_lock(port, &"k".into(), &seen, "its host is gone").await;
        script.run(name, broken, |end, _| format!("{end:?}"))
    };
    let held = || Row::held().version(&[]);
    let peer = || Row::by(Wrote::Peer).version(&[]);
    // The first random version of a script.
    let anew = || Row::held().text("recordVersionNumber", "ffffffff-01ff-ffff-ffff-ffffffffff01");
    let ahead = || Version { grant: Grant::from_random([2; 16]), stamp: Stamp::after(None, BEGIN + 400, 2) }.text();
    let settled = || held().replacen("ll1-", "lo1-", 1);
    vec![
        of("a break", held(), says([Applied])),
        of("a break by a clock that is behind the holder's", ahead(), says([Applied])),
        of("a break of a peer's lock", peer(), says([Applied])),
        of(
            "a break of a peer's lock without a response, which was applied",
            peer(),
            says([NoResponse, Refused(anew().released())]),
        ),
        of("a break of a peer's lock that the peer released", peer(), says([Refused(Row::by(Wrote::Peer).released())])),
        of("a break of a peer's lock that a peer has acquired", peer(), says([Refused(anew())])),
        of("a break whose clock writes later times", held(), says([Applied]).writes_later()),
        of("a break of work that has its outcome", settled(), says([])),
        of("a break of a lock that was released meanwhile", held(), says([Refused(Row::free())])),
        of("a break of a lock that was renewed meanwhile", held(), says([Refused(Row::by(Wrote::Theirs(9_000)))])),
        of(
            "a break of a lock that was renewed and released meanwhile",
            held(),
            says([Refused(Row::by(Wrote::Theirs(9_000)).released())]),
        ),
        of("a break of a lock whose row is gone", held(), says([RefusedWithoutRow])),
        of("a break without a response", held(), says([NoResponse, Applied])),
        of("a break without a response, and the lock is released", held(), says([NoResponse, Refused(Row::free())])),
        of(
            "a break without a response, and the lock is another's",
            held(),
            says([NoResponse, Refused(Row::by(Wrote::Theirs(9_000)))]),
        ),
        of("a break without a response, and the row is gone", held(), says([NoResponse, RefusedWithoutRow])),
        of("a break without responses", held(), says([NoResponse, NoResponse, NoResponse]).time(50)),
        of("a break that is throttled", held(), says([Throttled, Throttled, Applied])),
        of("a break that is throttled until the time is over", held(), says([Throttled, Throttled]).time(50)),
        of("a break that is denied", held(), says([Denied])),
        of("a break that is denied after no response", held(), says([NoResponse, Denied])),
        of(
            "a break that is throttled until the time is over, after no response",
            held(),
            says([NoResponse, Throttled]).time(30),
        ),
    ]
}

fn freezes() -> Vec<Case> {
    let is_there: fn(Option<&Record>) -> bool = |row| row.is_some();
    let of_freeze = |name, expects_row: bool, script: Script| {
        let settings = Settings::default();
        let frozen = async |port: &mut Script| {
            freeze(port, &settings, &"k".into(), "a deployment", |row| !expects_row || is_there(row)).await
        };
        script.run(name, frozen, |end, _| format!("{end:?}"))
    };
    let thaw_of = |name, is_expected: fn(Option<&Record>) -> bool, script: Script| {
        let settings = Settings::default();
        let thawed = async |port: &mut Script| thaw(port, &settings, &"k".into(), is_expected).await;
        script.run(name, thawed, |end, _| format!("{end:?}"))
    };
    let of_thaw = |name, script| thaw_of(name, is_there, script);
    let changed = |row: Row, at: u64| row.number("freezeChangedAt", at);
    vec![
        of_freeze("a freeze", false, says([Is(Row::held()), Applied])),
        of_freeze("a freeze of a lock without a row", false, says([NoRow, Applied])),
        of_freeze("a freeze whose clock writes later times", false, says([Is(Row::held()), Applied]).writes_later()),
        of_freeze(
            "a freeze of a row with the TTL attribute of other clients",
            false,
            says([Is(Row::held().text("ttlAttribute", "purgeAt"))]),
        ),
        of_freeze("a freeze that is throttled", false, says([Is(Row::held()), Throttled, Applied])),
        of_freeze("a freeze whose look is throttled", false, says([Throttled, Is(Row::held()), Applied])),
        of_freeze(
            "a freeze that is throttled until the time is over, after no response",
            false,
            says([Is(Row::held()), NoResponse, Throttled]).time(30),
        ),
        of_freeze("a freeze that is denied", false, says([Is(Row::held()), Denied])),
        of_freeze("a freeze that is denied after no response", false, says([Is(Row::held()), NoResponse, Denied])),
        of_freeze(
            "a freeze without a response, and then a row that is no lock record",
            false,
            says([Is(Row::held()), NoResponse, RefusedWithoutRow, Is(Row::held().text("leaseDuration", "soon"))]),
        ),
        of_freeze(
            "a freeze without a response, and one at the same time for another reason",
            false,
            says([
                Is(Row::held()),
                NoResponse,
                Refused(changed(Row::held().text("freezeReason", "a fire"), BEGIN + 5)),
                Is(changed(Row::held().text("freezeReason", "a fire"), BEGIN + 5)),
                Applied,
            ]),
        ),
        of_freeze(
            "a freeze that is refused when the time is over, after no response",
            false,
            says([Is(Row::held()), NoResponse, Refused(Row::held()), Is(Row::held()), Applied]).time(15),
        ),
        of_freeze(
            "a freeze of a row that is made meanwhile",
            false,
            says([NoRow, Refused(Row::held()), Is(Row::held()), Applied]),
        ),
        of_freeze(
            "a freeze that only one more could follow",
            false,
            says([Is(changed(Row::held(), u64::MAX - 2)), Applied]),
        ),
        of_freeze(
            "a freeze after one by a clock that was ahead",
            false,
            says([Is(changed(Row::held(), BEGIN + 9_000)), Applied]),
        ),
        of_freeze("a freeze of another row than was expected", true, says([NoRow])),
        of_freeze("a freeze without a response", false, says([Is(Row::held()), NoResponse, Applied])),
        of_freeze(
            "a freeze without a response, which was applied",
            false,
            says([Is(Row::held()), NoResponse, Refused(changed(Row::held().frozen(), BEGIN + 5))]),
        ),
        of_freeze(
            "a freeze of a lock without a row, without a response, which was applied",
            false,
            says([NoRow, NoResponse, Refused(changed(Row::free().frozen(), BEGIN + 5))]),
        ),
        of_freeze(
            "a freeze without a response, and another change",
            false,
            says([
                Is(Row::held()),
                NoResponse,
                Refused(changed(Row::held(), BEGIN + 3)),
                Is(changed(Row::held(), BEGIN + 3)),
                Applied,
            ]),
        ),
        of_freeze(
            "a freeze without a response, and then another row than was expected",
            true,
            says([Is(Row::held()), NoResponse, RefusedWithoutRow, NoRow]),
        ),
        of_freeze(
            "a freeze that is refused until the time is over",
            false,
            says([
                Is(Row::held()),
                Refused(Row::held()),
                Is(Row::held()),
                Refused(Row::held()),
                Is(Row::held()),
                Refused(Row::held()),
            ])
            .time(45),
        ),
        of_freeze(
            "a freeze of a row that is no lock record",
            false,
            says([Is(Row::held().text("leaseDuration", "soon"))]),
        ),
        of_freeze("a freeze of idempotent work", false, says([Is(Row::held().number("keptUntilAt", BEGIN))])),
        of_freeze("a freeze that nothing could follow", false, says([Is(changed(Row::held(), u64::MAX - 1))])),
        of_thaw("a thaw", says([Is(changed(Row::held().frozen(), BEGIN - 9)), Applied])),
        of_thaw("a thaw of a lock that is not frozen", says([Is(Row::held()), Applied])),
        of_thaw("a thaw without a response", says([Is(Row::held().frozen()), NoResponse, Applied])),
        of_thaw("a thaw that nothing could follow", says([Is(changed(Row::held().frozen(), u64::MAX - 1))])),
        of_thaw(
            "a thaw without a response, after which another change came",
            says([
                Is(changed(Row::held().frozen(), BEGIN - 9)),
                NoResponse,
                Refused(changed(Row::held(), BEGIN + 3)),
                Is(changed(Row::held(), BEGIN + 3)),
                Applied,
            ]),
        ),
        thaw_of(
            "a thaw without a response, after which the row is gone",
            |_| true,
            says([Is(changed(Row::held().frozen(), BEGIN - 9)), NoResponse, RefusedWithoutRow, NoRow]),
        ),
        of_thaw(
            "a thaw of a row with the TTL attribute of other clients",
            says([Is(Row::held().frozen().text("ttlAttribute", "purgeAt")), Applied]),
        ),
        of_thaw("a thaw of idempotent work", says([Is(Row::held().number("keptUntilAt", BEGIN))])),
        of_thaw(
            "a thaw that meets another change",
            says([
                Is(Row::held().frozen()),
                Refused(changed(Row::held(), BEGIN + 7)),
                Is(changed(Row::held(), BEGIN + 7)),
                Applied,
            ]),
        ),
        of_thaw(
            "a thaw without a response, and then the row is gone",
            says([Is(Row::held().frozen()), NoResponse, RefusedWithoutRow, NoRow]),
        ),
        of_thaw("a thaw of a lock without a row, where one was expected", says([NoRow])),
        thaw_of("a thaw of a lock without a row", |_| true, says([NoRow])),
        of_thaw(
            "a thaw without a response, which was applied",
            says([Is(changed(Row::held().frozen(), BEGIN - 9)), NoResponse, Refused(changed(Row::held(), BEGIN + 5))]),
        ),
    ]
}

fn resets() -> Vec<Case> {
    let failed = |before: u64| Row::by(Wrote::Theirs(before)).settled("failed");
    // By a clock that was ahead of the operator's.
    let ahead = Row::by(Wrote::Saved(5_400)).settled("failed");
    let of = |name, script: Script| {
        let is_expected = |row: &Item| row.get("leaseEndsAt").is_none();
        let reset = async |port: &mut Script| reset(port, &"k".into(), "the customer was created", is_expected).await;
        script.run(name, reset, |end, _| format!("{end:?}"))
    };
    vec![
        of("a reset", says([Is(failed(9_000)), Applied])),
        of("a reset by a clock that is behind", says([Is(ahead), Applied])),
        of("a reset of work that was done", says([Is(failed(9_000).text("onceState", "done"))])),
        of("a reset of work that is open", says([Is(Row::held())])),
        of("a reset of work that was never requested", says([NoRow])),
        of("a reset of another row than was expected", says([Is(failed(9_000).number("leaseEndsAt", 1))])),
        of(
            "a reset of a row that only says failed",
            says([Is(Row::held().without("leaseEndsAt").text("onceState", "failed"))]),
        ),
        of("a reset of work that was reset meanwhile", says([Is(failed(10_000)), Refused(Row::free())])),
        of(
            "a reset of work whose next attempt has begun",
            says([Is(failed(10_000)), Refused(Row::by(Wrote::Theirs(5)))]),
        ),
        of("a reset that is denied", says([Is(failed(10_000)), Denied])),
        of("a reset whose clock writes later times", says([Is(failed(9_000)), Applied]).writes_later()),
        of("a reset without a response", says([Is(failed(10_000)), NoResponse, Applied])),
        of(
            "a reset without a response, which was applied",
            says([Is(failed(10_000)), NoResponse, Refused(Row::free())]),
        ),
        of(
            "a reset without a response, and the next attempt has begun",
            says([Is(failed(10_000)), NoResponse, Refused(Row::by(Wrote::Theirs(5)))]),
        ),
    ]
}

fn looks() -> Vec<Case> {
    let settings = Settings::default();
    let of = |name, script: Script| {
        let seen = async |port: &mut Script| peek(port, &settings, &"k".into()).await;
        script.run(name, seen, |end, _| match end {
            Ok(record) => format!("{:?}", record.map(|record| record.owner)),
            Err(failure) => format!("{failure:?}"),
        })
    };
    let several = |name, script: Script| {
        let keys = ["a".into(), "b".into()];
        let seen = async |port: &mut Script| peek_all(port, &settings, &keys).await;
        script.run(name, seen, |end, _| format!("{:?}", end.map(|rows| rows.len())))
    };
    vec![
        of("a look", says([Is(Row::held())])),
        of("a look at nothing", says([NoRow])),
        of("a look that is throttled", says([Throttled, Is(Row::held())])),
        of("a look without responses", says([NoResponse, NoResponse]).time(50)),
        of("a look at a row that is no lock record", says([Is(Row::held().text("leaseDuration", "soon"))])),
        of(
            "a look at a row with the TTL attribute of other clients",
            says([Is(Row::held().text("ttlAttribute", "purgeAt"))]),
        ),
        of("a look that is throttled until the time is over", says([Throttled, Throttled]).time(50)),
        of("a look that is denied", says([Denied])),
        several("a look at several", says([NoRow])),
        several(
            "a look at several, of which DynamoDB leaves out one",
            says([Says::Are(vec![Some(Row::held()), None]), Says::Are(vec![Some(Row::free())])]),
        ),
    ]
}

pub(crate) fn cases() -> Vec<Case> {
    [breaks(), freezes(), resets(), looks()].concat()
}
