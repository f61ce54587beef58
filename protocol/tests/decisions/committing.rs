//! Commits: what is applied, what never will be, and what stays unknown.

use crate::Case;
use crate::acquiring::says;
use crate::holding::{holding, own};
use crate::row::{Row, Wrote, saved};
use crate::script::{BEGIN, Says, Script};
use crate::words::state;
use Says::{
    Applied, AppliedTo, Cancelled, Denied, InProgress, Invalid, Is, NoResponse, NoRow, Refused, RefusedBy,
    RefusedPartly, RefusedWithoutRow, Throttled,
};
use lambda_lock_protocol::{
    DataChange, Ending, FailedCommit, Holding, Settings, StoredOutcome, Version, commit, renew,
};
use std::time::Duration;

fn ended(end: Result<(), FailedCommit>, holdings: &[Holding], attempts: &[Version]) -> String {
    let states: Vec<String> = holdings.iter().map(|holding| state(holding, attempts)).collect();
    let end = match end {
        Ok(()) => "committed".to_owned(),
        Err(FailedCommit { failure, lost }) if lost.is_empty() => format!("{failure:?}"),
        Err(FailedCommit { failure, lost }) => format!("{failure:?} of {lost:?}"),
    };
    format!("{end}: {}", states.join("; "))
}

fn renewing() -> Ending {
    Ending::Renewed { data: DataChange::Set(vec![1]) }
}

fn releasing() -> Ending {
    Ending::Released { data: DataChange::Keep }
}

pub(crate) fn settling(alone: bool) -> Ending {
    Ending::Settled { outcome: StoredOutcome::Done("{}".to_owned()), alone }
}

/// As [`settling`] alone, where the work failed for good.
pub(crate) fn failing() -> Ending {
    Ending::Settled { outcome: StoredOutcome::Failed("{}".to_owned()), alone: true }
}

pub(crate) fn run(name: &'static str, ending: Ending, mut holdings: Vec<Holding>, script: Script) -> Case {
    let settings = Settings::default();
    let ends = async |port: &mut Script| {
        let mut all: Vec<&mut Holding> = holdings.iter_mut().collect();
        let end = commit(port, &settings, &mut all, ending).await;
        (end, holdings)
    };
    script.run(name, ends, |(end, holdings), attempts| ended(end, &holdings, attempts))
}

fn broken() -> Row {
    own(0).text("leaseDuration", "soon")
}

/// A refusal by the row of the only lock.
pub(crate) fn refused(row: Row) -> Says {
    RefusedBy(vec![(0, row)])
}

fn commits() -> Vec<Case> {
    let of = |name, script| run(name, renewing(), vec![holding()], script);
    // The version that the transaction wrote.
    let ours = || Row::by(Wrote::Attempt(1)).owner("me");
    vec![
        of("a commit", says([Applied])),
        of("a commit whose clock writes later times", says([Applied]).writes_later()),
        of("a commit for a longer lease", says([Applied]).asks_for_a_lease_of(60)),
        of("a commit that is refused by another grant", says([refused(Row::held())])),
        of("a commit that is refused by a released row", says([refused(own(0).released())])),
        of("a commit whose row is gone", says([RefusedWithoutRow, NoRow])),
        of("a commit that is refused without a row, which is ours", says([RefusedWithoutRow, Is(own(90)), Applied])),
        of("a commit that is refused without a row, and nothing can be read", says([RefusedWithoutRow, Denied])),
        of(
            "a commit that is refused without a row until the time is over",
            says([RefusedWithoutRow, Throttled]).time(20),
        ),
        of("a commit that is refused by a copy of this holder", says([refused(own(90)), Applied])),
        of(
            "a commit that is refused by a copy of this holder, and then lost",
            says([refused(own(90)), refused(Row::held())]),
        ),
        of("a commit by a clock that is behind a copy's stamp", says([refused(own(9_000)), Applied])),
        of(
            "a commit that is refused by a longer lease of a copy",
            says([refused(own(90).text("leaseDuration", "40000").number("leaseEndsAt", BEGIN + 35_000)), Applied]),
        ),
        of("a commit of a row that is no lock record", says([refused(broken())])),
        of("a commit without a response", says([NoResponse, Applied])),
        of("a commit without a response, whose version is on the row", says([NoResponse, refused(ours())])),
        of("a commit without a response, and then another grant", says([NoResponse, refused(Row::held())])),
        of("a commit without a response, and then a row that is no lock record", says([NoResponse, refused(broken())])),
        of(
            "a commit without a response, and then a copy of this holder",
            says([NoResponse, refused(own(90)), Applied]),
        ),
        of(
            "a commit without a response, then refused without a row, and nothing can be read",
            says([NoResponse, RefusedWithoutRow, NoResponse, Denied]),
        ),
        of(
            "a commit that is ruled out by a copy of this holder, and then conflicts until the time is over",
            says([NoResponse, refused(own(90)), Throttled]).time(45),
        ),
        of(
            "a commit that is ruled out by a copy of this holder, and then denied",
            says([NoResponse, refused(own(90)), Denied]),
        ),
        of("a commit without a response until the time is over", says([NoResponse, NoResponse]).time(20)),
        of(
            "a commit without a response, which DynamoDB recognises for eight minutes",
            says([NoResponse, NoResponse, Applied]).takes(239_000),
        ),
        of("a commit without a response, which DynamoDB recognises no more", says([NoResponse]).takes(480_000)),
        of(
            "a commit whose token is forgotten, and then another grant",
            says([NoResponse, refused(Row::held())]).takes(240_000),
        ),
        of(
            "a commit whose token is forgotten, and whose row is older",
            says([NoResponse, refused(own(90)), Applied]).takes(240_000),
        ),
        of(
            "a commit whose token is forgotten, and whose row is older and released",
            says([NoResponse, refused(own(90).released())]).takes(240_000),
        ),
        of(
            "a commit whose token is forgotten, and whose version is on the row",
            says([NoResponse, refused(ours())]).takes(240_000),
        ),
        of(
            "a commit whose token is not forgotten yet, and then another grant",
            says([NoResponse, refused(Row::held())]).takes(239_000),
        ),
        of(
            "a commit whose token is forgotten by the wall clock of a frozen process, and then another grant",
            says([NoResponse, refused(Row::held())]).takes(15).jumps(660_000),
        ),
        of("a commit that was refused for now, long ago", says([Throttled, refused(Row::held())]).takes(240_000)),
        of("a commit that conflicts", says([Throttled, Applied])),
        of("a commit that conflicts until the time is over", says([Throttled, Throttled]).time(40)),
        of("a commit that conflicts after no response", says([NoResponse, Throttled]).time(30)),
        of("a commit in progress", says([InProgress, Applied])),
        of("a commit in progress until the time is over", says([InProgress]).time(500)),
        of("a commit that DynamoDB can recover", says([InProgress, InProgress, InProgress, InProgress, Applied])),
        of("a commit that is denied", says([Denied])),
        of("a commit that is denied after no response", says([NoResponse, Denied])),
        of("a commit that is invalid", says([Invalid])),
        of("a commit by a clock that is far behind", says([Applied, Applied]).runs_behind(9_000)),
        of(
            "a commit by a clock that is far behind, and the lock is lost since",
            says([Applied, Refused(Row::held())]).runs_behind(9_000),
        ),
    ]
}

/// The caller's writes are refused.
fn cancelled() -> Vec<Case> {
    let of = |name, script| run(name, renewing(), vec![holding()], script);
    let released = |name, script| run(name, releasing(), vec![holding()], script);
    let ours = || Row::by(Wrote::Attempt(1)).owner("me");
    let of_attempt = |attempt| Row::by(Wrote::Attempt(attempt)).owner("me");
    let after = |replies: &[Says]| says([NoResponse, Cancelled].into_iter().chain(replies.iter().cloned()));
    vec![
        of("a commit that is cancelled", says([Cancelled])),
        of("a commit that is cancelled after a conflict", says([Throttled, Cancelled])),
        of(
            "a commit that is cancelled after a copy of this holder has ruled out an earlier one",
            says([NoResponse, refused(own(90)), Cancelled]),
        ),
        of("a commit that is cancelled after no response", after(&[AppliedTo(own(0))])),
        of("a commit that is cancelled after no response, and was applied", after(&[AppliedTo(ours())])),
        of("a commit that is cancelled after no response, and whose version is on the row", after(&[Refused(ours())])),
        of("a commit that is cancelled after progress", says([InProgress, Cancelled, AppliedTo(own(0))])),
        of("a commit that is cancelled after no response, and the row does not tell", after(&[Applied, Applied])),
        of("a commit that is cancelled twice, and the row does not tell", after(&[Applied, Cancelled])),
        of(
            "a commit that is cancelled after no response, and the row then rules it out",
            after(&[Applied, refused(Row::by(Wrote::Attempt(2)).owner("me"))]),
        ),
        of(
            "a commit that is cancelled after no response, and is lost",
            after(&[Refused(Row::held()), refused(Row::held())]),
        ),
        run(
            "a commit of a renewed lock that is cancelled after no response, is lost, and was applied",
            renewing(),
            vec![renewed()],
            after(&[Refused(Row::held()), Applied]),
        ),
        of(
            "a commit that is cancelled after no response, is lost, and was applied",
            after(&[Refused(Row::held()), Applied]),
        ),
        of(
            "a commit that is cancelled after no response, of a row that is no lock record",
            after(&[Refused(broken()), refused(broken())]),
        ),
        of(
            "a commit that is cancelled after no response, of a row that is no lock record, and cancelled again",
            after(&[Refused(broken()), Cancelled]),
        ),
        of(
            "a commit that is cancelled after no response, and whose renewal has none at first",
            after(&[NoResponse, AppliedTo(of_attempt(2)), refused(of_attempt(3))]),
        ),
        of("a commit that is cancelled after no response, and nothing can be renewed", after(&[Denied])),
        of("a commit that is cancelled after no response, and then no response", after(&[NoResponse]).time(15)),
        released("a commit and release that is cancelled", says([Cancelled])),
        released("a commit and release that is cancelled after no response", after(&[AppliedTo(own(0))])),
        released(
            "a commit and release that is cancelled after no response, and was applied",
            after(&[Refused(own(0).released()), Applied]),
        ),
        released(
            "a commit and release that is cancelled after no response, and stays cancelled",
            after(&[Refused(own(0).released()), Cancelled]),
        ),
        run("a settlement that is cancelled", settling(false), vec![work()], says([Cancelled])),
        run(
            "a settlement that is cancelled after no response",
            settling(false),
            vec![work()],
            after(&[AppliedTo(own(0).work(60_000))]),
        ),
        run(
            "a settlement that is cancelled after no response, and was applied",
            settling(false),
            vec![work()],
            after(&[Refused(Row::by(Wrote::Settled(1)))]),
        ),
    ]
}

fn releases() -> Vec<Case> {
    let of = |name, script| run(name, releasing(), vec![holding()], script);
    vec![
        of("a commit and release", says([Applied])),
        of("a commit and release whose clock writes later times", says([Applied]).writes_later()),
        run(
            "a commit and release by a clock that is behind the newest stamp",
            releasing(),
            vec![newer(9_000)],
            says([Applied]),
        ),
        run("a commit and release of idempotent work", releasing(), vec![kept_for(60)], says([Applied])),
        of(
            "a commit and release without a response, and then the released row",
            says([NoResponse, refused(own(0).released())]),
        ),
        of("a commit and release that is refused by another grant", says([refused(Row::held())])),
        of("a commit and release that is refused by a copy of this holder", says([refused(own(90)), Applied])),
        of("a commit and release without a response", says([NoResponse, Applied])),
        of("a commit and release without a response, and then another grant", says([NoResponse, refused(Row::held())])),
        of("a commit and release whose token is forgotten", says([NoResponse, refused(Row::held())]).takes(240_000)),
        of("a commit and release without a response until the time is over", says([NoResponse]).time(5)),
    ]
}

/// The lock of idempotent work, whose record counts for a minute after its outcome.
pub(crate) fn work() -> Holding {
    kept_for(60)
}

pub(crate) fn kept_for(seconds: u64) -> Holding {
    Holding { keep: Some(Duration::from_secs(seconds)), ..holding() }
}

/// A holder that has sent a version so much later than the one that it has seen.
pub(crate) fn newer(later: u64) -> Holding {
    Holding { newest: Version { stamp: saved(later).stamp, ..holding().newest }, ..holding() }
}

/// A holder that relies on its lease.
fn renewed() -> Holding {
    let mut holding = holding();
    let renewal = async |port: &mut Script| renew(port, &Settings::default(), &mut holding, &DataChange::Keep).await;
    says([Applied]).run("a renewal before", renewal, |end, _| format!("{end:?}"));
    holding
}

/// Of two locks.
fn sets() -> Vec<Case> {
    let two = || [holding(), Holding { key: "l".into(), ..holding() }].to_vec();
    let of = |name, script| run(name, renewing(), two(), script);
    let ours = || Row::by(Wrote::Attempt(2)).owner("me");
    vec![
        of("a commit under two locks", says([Applied])),
        of("a commit under two locks without a response", says([NoResponse, Applied])),
        of("a commit under two locks that conflicts", says([Throttled, Applied])),
        of(
            "a commit under two locks that is refused by a copy of both",
            says([RefusedBy(vec![(0, own(90)), (1, own(91))]), Applied]),
        ),
        of(
            "a commit under two locks without a response, of which one is lost and one is no lock record",
            says([NoResponse, RefusedBy(vec![(0, broken()), (1, Row::held())])]),
        ),
        of("a commit under two locks, of which one is lost", says([RefusedBy(vec![(1, Row::held())])])),
        of(
            "a commit under two locks, which are both lost",
            says([RefusedBy(vec![(0, Row::held()), (1, Row::held())])]),
        ),
        of("a commit under two locks, of which one was renewed and one is gone", says([RefusedPartly(own(90)), NoRow])),
        of(
            "a commit under two locks, of which one is lost and one was renewed",
            says([RefusedBy(vec![(0, own(90)), (1, Row::held())])]),
        ),
        of(
            "a commit under two locks, of which one is lost and one is no lock record",
            says([RefusedBy(vec![(0, broken()), (1, Row::held())])]),
        ),
        of(
            "a commit under two locks, of which one is no lock record and one was renewed",
            says([RefusedBy(vec![(0, broken()), (1, own(90))])]),
        ),
        of(
            "a commit under two locks without a response, of which one shows it",
            says([NoResponse, RefusedBy(vec![(0, own(90)), (1, ours())])]),
        ),
        of(
            "a commit under two locks without a response, of which one is no lock record",
            says([NoResponse, RefusedBy(vec![(0, broken()), (1, own(90))])]),
        ),
        of(
            "a commit under two locks without a response, of which neither is a lock record",
            says([NoResponse, RefusedBy(vec![(0, broken()), (1, broken())])]),
        ),
        of(
            "a commit under two locks whose token is forgotten, of which one is older",
            says([NoResponse, RefusedBy(vec![(0, Row::held()), (1, own(90))])]).takes(240_000),
        ),
        of(
            "a commit under two locks that is cancelled after no response",
            says([NoResponse, Cancelled, AppliedTo(own(0))]),
        ),
        of(
            "a commit under two locks by a clock that is far behind",
            says([Applied, Applied, Applied]).runs_behind(9_000),
        ),
        run("a commit and release of two locks", releasing(), two(), says([Applied])),
    ]
}

pub(crate) fn cases() -> Vec<Case> {
    [commits(), cancelled(), releases(), sets()].concat()
}
