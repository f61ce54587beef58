//! A commit of unknown outcome: `resolve_commit` finds out whether it was applied, and nothing is applied
//! twice.

use crate::{LEASE, applied, counted, lock_within, table};
use lambda_lock::{Clock, CommitOutcome, ErrorKind, Instants, SavedLock, Sleep};
use lambda_lock_testkit::{Fault, ManualClock, Process, Sent, acquired, case, millis, secs};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;
use tokio::time::sleep;

#[tokio::test(start_paused = true)]
async fn a_commit_of_unknown_outcome_is_settled_by_the_next_renewal() {
    for (faults, outcome, count) in [
        (vec![Fault::NeverAnswers; 3], CommitOutcome::Applied, 1),
        (vec![Fault::BlackHole; 3], CommitOutcome::NotApplied, 0),
    ] {
        for checkpoint_first in [false, true] {
            let _case = case(format!("{outcome:?}, checkpoint first: {checkpoint_first}"));
            let table = table();
            let process = table.process();
            let mut lock = acquired(&process.locks("me"), LEASE).await;
            process.next(faults.clone());

            let error = lock.commit([counted("o-1")]).await.unwrap_err();
            assert!(error.is_unknown() && error.to_string().contains("resolve_commit"), "{error}");

            process.take_sent();
            let again = lock.commit([counted("o-1")]).await.unwrap_err();
            assert_eq!(again.kind(), ErrorKind::InvalidRequest, "not while it may be applied twice: {again}");

            if checkpoint_first {
                lock.checkpoint().await.unwrap();
                let again = lock.commit([counted("o-1")]).await.unwrap_err();
                assert_eq!(again.kind(), ErrorKind::InvalidRequest, "not before the caller knows: {again}");
            }
            assert_eq!(lock.resolve_commit().await.unwrap(), outcome);
            assert_eq!(process.take_operations(), ["UpdateItem"]);
            assert_eq!(applied(&table, "o-1"), count);
            assert!(lock.resolve_commit().await.is_err(), "nothing is left to resolve");

            lock.commit([counted("o-2")]).await.unwrap();
            lock.release().await.unwrap();
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_commit_that_was_resolved_as_not_applied_never_will_be() {
    let table = table();
    let process = table.process();
    let mut lock = acquired(&process.locks("me"), LEASE).await;
    process.next([Fault::ArrivesLate(secs(10)), Fault::BlackHole, Fault::BlackHole]);

    assert!(lock.commit([counted("o-1")]).await.unwrap_err().is_unknown());
    assert_eq!(lock.resolve_commit().await.unwrap(), CommitOutcome::NotApplied);

    sleep(secs(12)).await;
    assert_eq!(applied(&table, "o-1"), 0);
    lock.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_commit_that_was_dropped_half_way_is_settled_too() {
    let table = table();
    let process = table.process();
    let mut lock = acquired(&process.locks("me"), LEASE).await;
    process.next([Fault::NeverAnswers]);

    let dropped = tokio::time::timeout(millis(100), lock.commit([counted("o-1")]).into_future()).await;

    assert!(dropped.is_err());
    assert_eq!(lock.resolve_commit().await.unwrap(), CommitOutcome::Applied);
    lock.release().await.unwrap();
}

/// One clock stands still or is set back. By the other clock the token is too old.
mod neither_a_frozen_sandbox_nor_a_clock_set_back_repeats_a_transaction_that_dynamodb_has_forgotten {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn frozen() {
        check(true).await;
    }

    #[tokio::test(start_paused = true)]
    async fn set_back() {
        check(false).await;
    }

    async fn check(frozen: bool) {
        let table = table();
        let process = table.process();
        process.set_date_offset(None);
        let lock = acquired(&process.locks("me"), LEASE).await;
        let mut lock = lock_within(&process, lock, &process.budget(secs(3600))).await;
        process.take_sent();
        process.next(std::iter::repeat_n(Fault::BlackHole, 10_000));
        let clock = process.clock.clone();
        let disturbed = tokio::spawn(async move {
            sleep(secs(100)).await;
            if frozen {
                clock.freeze(secs(1000)).await;
            } else {
                clock.jump_wall(-3_600_000);
            }
        });

        assert!(lock.commit([counted("o-1")]).await.unwrap_err().is_unknown());
        disturbed.abort();

        let sent = process.take_sent();
        let transactions: Vec<&Sent> = sent.iter().filter(|sent| sent.operation == "TransactWriteItems").collect();
        let (first, last) = (transactions[0], transactions[transactions.len() - 1]);
        let repeated_for = last.at - first.at;
        assert!(repeated_for <= secs(8 * 60), "{repeated_for:?}");
        assert!(repeated_for >= secs(7 * 60), "given up early: {repeated_for:?}");
    }
}

/// The lock is resumed or reclaimed elsewhere.
#[tokio::test(start_paused = true)]
async fn a_saved_lock_tells_what_became_of_its_commit_of_unknown_outcome_and_commits_nothing_before() {
    for (faults, outcome, count) in [
        (vec![Fault::NeverAnswers; 3], CommitOutcome::Applied, 1),
        (vec![Fault::BlackHole; 3], CommitOutcome::NotApplied, 0),
    ] {
        for reclaims in [false, true] {
            let _case = case(format!("{outcome:?}, reclaimed: {reclaims}"));
            let table = table();
            let (one, two) = (table.process(), table.process().locks("two"));
            let mut lock = acquired(&one.locks("one"), LEASE).await;
            one.next(faults.clone());
            assert!(lock.commit([counted("o-1")]).await.unwrap_err().is_unknown());
            let json = serde_json::to_string(&lock.save()).unwrap();
            let saved: SavedLock = serde_json::from_str(&json).unwrap();
            let mut lock = if reclaims {
                two.reclaim(saved).lease(LEASE).await.unwrap()
            } else {
                two.resume(saved).await.unwrap()
            };

            let error = lock.commit([counted("o-1")]).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidRequest, "not before the first one is resolved: {error}");

            assert_eq!(lock.resolve_commit().await.unwrap(), outcome);
            assert_eq!(applied(&table, "o-1"), count);
            lock.commit([counted("o-2")]).await.unwrap();
            lock.release().await.unwrap();
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_commit_that_was_resolved_elsewhere_by_a_clock_that_is_behind_is_not_applied_later() {
    let table = table();
    let (one, two) = (table.process(), table.process());
    let mut lock = acquired(&one.locks("one"), LEASE).await;
    one.next([Fault::ArrivesLate(secs(10)), Fault::BlackHole, Fault::BlackHole]);
    assert!(lock.commit([counted("o-1")]).await.unwrap_err().is_unknown());
    two.set_date_offset(None);
    two.clock.jump_wall(-60_000);

    let mut lock = two.locks("two").resume(lock.save()).await.unwrap();

    assert_eq!(lock.resolve_commit().await.unwrap(), CommitOutcome::NotApplied);
    sleep(secs(12)).await;
    assert_eq!(applied(&table, "o-1"), 0, "the written lock knows the stamp of its commit");
    lock.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_commit_that_can_never_be_resolved_is_an_outcome_and_a_missing_response_is_an_error() {
    let table = table();
    let process = table.process();
    let mut lock = acquired(&process.locks("me"), LEASE).await;
    process.next(vec![Fault::NeverAnswers; 3]);

    assert!(lock.commit([counted("o-1")]).await.unwrap_err().is_unknown());
    process.clear();
    // There is no response again. The caller may retry as often as needed.
    for _ in 0..3 {
        process.next(vec![Fault::BlackHole; 10]);
        assert!(lock.resolve_commit().await.unwrap_err().is_unknown());
        process.clear();
    }

    let copy = table.process().locks("me").resume(lock.to_saved()).await.unwrap();
    assert_eq!(lock.resolve_commit().await.unwrap(), CommitOutcome::Indeterminate);
    let _ = copy.save();
    lock.release().await.unwrap();
}

/// Clocks whose random numbers have only this byte of their own: a next one each time, even for one process and odd for
/// the other. The other bytes are the same in all of them.
#[derive(Debug)]
struct OneByte {
    clock: ManualClock,
    index: usize,
    byte: AtomicU8,
}

impl Clock for OneByte {
    fn now(&self) -> Instants {
        self.clock.now()
    }

    fn sleep(&self, duration: Duration) -> Sleep {
        self.clock.sleep(duration)
    }

    fn random(&self) -> [u8; 16] {
        let mut random = [7; 16];
        random[self.index] = self.byte.fetch_add(2, Ordering::Relaxed);
        random
    }
}

#[tokio::test(start_paused = true)]
async fn a_commit_is_not_taken_for_the_renewal_of_a_copy_whose_clock_is_behind_too() {
    for index in 0..8 {
        let _case = case(format!("byte {index}"));
        let table = table();
        let (ahead, one, two) = (table.process(), table.process(), table.process());
        // Both clocks are behind the last write, so both copies write its millisecond and one more.
        ahead.clock.jump_wall(500);
        let locks = |process: &Process, first| {
            let (clock, byte) = (process.clock.clone(), AtomicU8::new(first));
            let clock = Arc::new(OneByte { clock, index, byte });
            process.builder().owner("me").clock(clock).build().unwrap()
        };
        let lock = acquired(&ahead.locks("me"), LEASE).await;
        let mut first = locks(&one, 1).resume(lock.save()).await.unwrap();
        let copy = first.to_saved();
        let second = locks(&two, 2).resume(copy).lease(LEASE * 2).await.unwrap();

        first.commit([counted("o-1")]).await.unwrap();

        assert_eq!(applied(&table, "o-1"), 1);
        drop(second.save());
        first.release().await.unwrap();
    }
}
