//! Idempotent works that are cut: one caller at a time does the work, the result is stored once, and the writes are
//! applied once.

use crate::commits::write;
use crate::world::{Arrival, Fault, Shared, drive, faults};
use crate::{LEASE, OVER, learnt};
use lambda_lock::Error;
use lambda_lock::once::{Attempt, Started};
use lambda_lock_protocol::{OnceRecord, Schema};

/// Starts the work without waiting for another caller that does it.
fn start(shared: &Shared, owner: &str) -> Option<Result<Started<u32>, Error>> {
    let locks = shared.locks(owner);
    drive(shared, locks.once("k").owner(owner).lease(LEASE).without_waiting().start())
}

fn begun(shared: &Shared, owner: &str) -> Attempt {
    match start(shared, owner) {
        Some(Ok(Started::Attempt(attempt))) => attempt,
        other => panic!("{owner}: {other:?}"),
    }
}

fn record(shared: &Shared) -> Option<OnceRecord> {
    Some(OnceRecord::read(shared.row("once/k")?, &Schema::default()).unwrap())
}

fn attempts(shared: &Shared) -> u64 {
    record(shared).map_or(0, |record| record.attempts)
}

fn is_settled(shared: &Shared) -> bool {
    record(shared).is_some_and(|record| record.settled.is_some())
}

/// The state of the work before it was started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Before {
    Nothing,
    GivenBack,
    Crashed,
    Done,
}

impl Before {
    fn prepare(self, shared: &Shared) {
        if self == Before::Nothing {
            return;
        }
        let attempt = begun(shared, "earlier");
        match self {
            Before::Nothing => {}
            Before::GivenBack => drop(drive(shared, attempt.give_back()).unwrap().unwrap()),
            Before::Crashed => shared.world().now += OVER,
            Before::Done => drive(shared, attempt.complete(&0)).unwrap().unwrap(),
        }
    }
}

#[test]
fn a_work_whose_start_is_cut_anywhere_is_done_once_after_its_lease_at_the_latest() {
    for before in [Before::Nothing, Before::GivenBack, Before::Crashed, Before::Done] {
        for fault in faults() {
            let shared = Shared::new();
            before.prepare(&shared);
            let attempts_before = attempts(&shared);
            shared.fails(fault);
            let started = learnt(fault, start(&shared, "me"));
            let what = format!("{before:?}, {fault:?}: {started:?}");
            shared.fails(Fault::default());
            if let Some(Started::Attempt(attempt)) = &started {
                assert_ne!(before, Before::Done, "{what}");
                assert_eq!(attempt.number(), attempts_before + 1, "{what}");
                let other = start(&shared, "other").unwrap();
                let held = matches!(&other, Err(error) if error.is_held());
                assert!(held && !attempt.remaining().is_zero(), "{what}: the next call returned {other:?}");
            }
            shared.arrives(Arrival::AfterRepetition);
            assert!(before == Before::Done || !matches!(started, Some(Started::Replayed(_))), "{what}");
            assert!(attempts(&shared) <= attempts_before + 1, "{what}: counted twice");
            shared.world().now += OVER;
            is_done_at_last(&shared, before == Before::Done, 0, false, &what);
        }
    }
}

#[test]
fn a_result_cut_anywhere_is_stored_once_or_the_work_is_done_again() {
    for with_a_write in [false, true] {
        for fault in faults() {
            let shared = Shared::new();
            let attempt = begun(&shared, "me");
            shared.fails(fault);
            let completed = learnt(fault, drive(&shared, completes(attempt, 1, with_a_write)));
            let what = format!("with a write: {with_a_write}, {fault:?}: {completed:?}");
            let stored = is_settled(&shared);
            assert!(stored || completed.is_none(), "{what}: reported as stored, but not stored");
            assert_eq!(shared.world().written, usize::from(stored && with_a_write), "{what}");
            shared.fails(Fault::default());
            shared.world().now += OVER;
            is_done_at_last(&shared, stored, 1, with_a_write, &what);
        }
    }
}

async fn completes(attempt: Attempt, result: u32, with_a_write: bool) -> Result<(), Error> {
    match with_a_write {
        true => attempt.complete_with(&result, [write()]).await,
        false => attempt.complete(&result).await,
    }
}

/// The next caller gets the stored result, or does the work. After that nothing changes, even if requests arrive late.
fn is_done_at_last(shared: &Shared, stored: bool, result: u32, with_a_write: bool, what: &str) {
    let result = match start(shared, "next") {
        Some(Ok(Started::Replayed(replayed))) => {
            assert!(stored && replayed == result, "{what}: replayed {replayed}");
            replayed
        }
        Some(Ok(Started::Attempt(attempt))) => {
            assert!(!stored, "{what}: started again, although a result is stored");
            shared.arrives(Arrival::UnderAnother);
            assert!(!is_settled(shared), "{what}: a late request settled the work");
            drive(shared, completes(attempt, 2, with_a_write)).unwrap().unwrap();
            2
        }
        other => panic!("{what}: the next call returned {other:?}"),
    };
    shared.arrives(Arrival::AfterAnother);
    let last = start(shared, "last");
    assert!(
        matches!(last, Some(Ok(Started::Replayed(replayed))) if replayed == result),
        "{what}: the last call returned {last:?}"
    );
    assert_eq!(shared.world().written, usize::from(with_a_write), "{what}");
}
