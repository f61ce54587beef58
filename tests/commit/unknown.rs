//! A commit of unknown outcome: `settle_commit` finds out whether it was applied, and nothing is applied
//! twice.

use crate::{LEASE, applied, counted, lock_within, table};
use lambda_lock::{Clock, CommitOutcome, Instants, Lock, SavedLock, SharedClock, Sleep};
use lambda_lock_testkit::{Fault, ManualClock, Process, Sent, acquired, case, millis, secs, until};
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// Sends a commit that is applied or not. The caller gets no response.
async fn commit_unheard(lock: &mut Lock, process: &Process, applies: bool) {
    process.next(vec![if applies { Fault::NeverAnswers } else { Fault::BlackHole }; 200]);
    assert!(lock.commit([counted("o-1")]).await.unwrap_err().is_unknown());
}

fn outcome(applies: bool) -> CommitOutcome {
    if applies { CommitOutcome::Applied } else { CommitOutcome::NotApplied }
}

#[tokio::test(start_paused = true)]
async fn a_commit_of_unknown_outcome_is_settled_by_the_next_renewal() {
    let all_unheard = || std::iter::repeat_n(Fault::NeverAnswers, 3);
    let none_arrived = || std::iter::repeat_n(Fault::BlackHole, 3);
    for (faults, outcome, count) in [
        (all_unheard().collect::<Vec<_>>(), CommitOutcome::Applied, 1),
        (none_arrived().collect(), CommitOutcome::NotApplied, 0),
    ] {
        for checkpoint_first in [false, true] {
            let _case = case(format!("{outcome:?}, checkpoint first: {checkpoint_first}"));
            let table = table();
            let process = table.process();
            let mut lock = acquired(&process.locks("me"), LEASE).await;
            process.next(faults.clone());

            let error = lock.commit([counted("o-1")]).await.unwrap_err();
            assert!(error.is_unknown() && error.to_string().contains("settle_commit"), "{error}");

            process.take_sent();
            let again = lock.commit([counted("o-1")]).await.unwrap_err();
            assert!(again.is_invalid_request(), "not while it may be applied twice: {again}");

            if checkpoint_first {
                lock.checkpoint().await.unwrap();
                let again = lock.commit([counted("o-1")]).await.unwrap_err();
                assert!(again.is_invalid_request(), "not before the caller knows: {again}");
            }
            assert_eq!(lock.settle_commit().await.unwrap(), outcome);
            assert_eq!(process.take_operations(), ["UpdateItem"]);
            assert_eq!(applied(&table, "o-1"), count);
            assert!(lock.settle_commit().await.is_err(), "nothing is left to settle");

            lock.commit([counted("o-2")]).await.unwrap();
            lock.release().await.unwrap();
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_commit_that_was_settled_as_not_applied_never_will_be() {
    let table = table();
    let process = table.process();
    let mut lock = acquired(&process.locks("me"), LEASE).await;
    process.next([Fault::ArrivesLate(secs(10)), Fault::BlackHole, Fault::BlackHole]);

    assert!(lock.commit([counted("o-1")]).await.unwrap_err().is_unknown());
    assert_eq!(lock.settle_commit().await.unwrap(), CommitOutcome::NotApplied);

    sleep(secs(12)).await;
    assert_eq!(applied(&table, "o-1"), 0);
    lock.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_commit_that_the_row_no_longer_shows_is_indeterminate() {
    let table = table();
    let process = table.process();
    let mut lock = acquired(&process.locks("me"), LEASE).await;
    process.next(std::iter::repeat_n(Fault::NeverAnswers, 3));

    assert!(lock.commit([counted("o-1")]).await.unwrap_err().is_unknown());

    // A copy of the lock renews it, so the row no longer has the commit's version.
    let copy = table.process().locks("me").resume(lock.to_saved()).await.unwrap();
    assert_eq!(lock.settle_commit().await.unwrap(), CommitOutcome::Indeterminate);
    let _ = copy.save();
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
    assert_eq!(lock.settle_commit().await.unwrap(), CommitOutcome::Applied);
    lock.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_transaction_is_not_repeated_for_longer_than_dynamodb_recognises_its_token() {
    let table = table();
    let process = table.process();
    let lock = acquired(&process.locks("me"), LEASE).await;
    let mut lock = lock_within(&process, lock, &process.budget(secs(900))).await;
    process.take_sent();
    process.next(std::iter::repeat_n(Fault::BlackHole, 10_000));
    let began = Instant::now();

    assert!(lock.commit([counted("o-1")]).await.unwrap_err().is_unknown());
    assert!(began.elapsed() < secs(9 * 60), "{:?}", began.elapsed());
    assert!(began.elapsed() > secs(7 * 60), "and not given up early: {:?}", began.elapsed());
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

mod a_lock_written_down_with_a_commit_of_unknown_outcome_is_not_committed_twice {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn when_it_was_applied() {
        check(true).await;
    }

    #[tokio::test(start_paused = true)]
    async fn when_it_was_not() {
        check(false).await;
    }

    async fn check(applies: bool) {
        let table = table();
        let (one, two) = (table.process(), table.process());
        let mut lock = acquired(&one.locks("one"), LEASE).await;
        commit_unheard(&mut lock, &one, applies).await;
        let json = serde_json::to_string(&lock.save()).unwrap();
        let token: SavedLock = serde_json::from_str(&json).unwrap();
        let mut lock = two.locks("two").resume(token).await.unwrap();

        let error = lock.commit([counted("o-1")]).await.unwrap_err();
        assert!(error.is_invalid_request(), "not before the first one is settled: {error}");

        assert_eq!(lock.settle_commit().await.unwrap(), outcome(applies));
        assert_eq!(applied(&table, "o-1"), u32::from(applies));
        lock.release().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_commit_that_was_settled_elsewhere_by_a_clock_that_is_behind_is_not_applied_later() {
    let table = table();
    let (one, two) = (table.process(), table.process());
    let mut lock = acquired(&one.locks("one"), LEASE).await;
    one.next([Fault::ArrivesLate(secs(10)), Fault::BlackHole, Fault::BlackHole]);
    assert!(lock.commit([counted("o-1")]).await.unwrap_err().is_unknown());
    two.set_date_offset(None);
    two.clock.jump_wall(-60_000);

    let mut lock = two.locks("two").resume(lock.save()).await.unwrap();

    assert_eq!(lock.settle_commit().await.unwrap(), CommitOutcome::NotApplied);
    sleep(secs(12)).await;
    assert_eq!(applied(&table, "o-1"), 0, "the written lock knows the stamp of its commit");
    lock.release().await.unwrap();
}

mod a_reclaimed_lock_still_tells_what_became_of_the_commit_before {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn when_it_was_applied() {
        check(true).await;
    }

    #[tokio::test(start_paused = true)]
    async fn when_it_was_not() {
        check(false).await;
    }

    async fn check(applies: bool) {
        let table = table();
        let (one, two) = (table.process(), table.process());
        let mut lock = acquired(&one.locks("one"), LEASE).await;
        commit_unheard(&mut lock, &one, applies).await;

        let mut lock = two.locks("two").reclaim(lock.save()).lease(LEASE).await.unwrap();
        assert!(lock.commit([counted("o-1")]).await.is_err(), "not before the first one is settled");

        assert_eq!(lock.settle_commit().await.unwrap(), outcome(applies));

        lock.commit([counted("o-2")]).await.unwrap();
        lock.release().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_refusal_after_the_token_is_forgotten_does_not_prove_that_nothing_was_applied() {
    const REASONS: &str = r#"{"__type":"com.amazonaws.dynamodb.v20120810#TransactionCanceledException","message":"x",
        "CancellationReasons":[{"Code":"None"},{"Code":"ConditionalCheckFailed","Item":{"key":{"S":"k"},
        "ownerName":{"S":"another"},"leaseDuration":{"S":"20000"},"fencingToken":{"N":"1900000000000"},
        "recordVersionNumber":{"S":"ll1-00000000000040008000000000000000-01a3185c50000123456789abcdef"}}}]}"#;
    let table = table();
    let process = table.process();
    let mut lock = acquired(&process.locks("me"), LEASE).await;
    process.set_latency(millis(50));
    process.next([Fault::AnswerLost, Fault::Says(400, REASONS)]);
    // The process is frozen while it repeats the request, for longer than DynamoDB recognises the token.
    process.take_sent();
    let freeze = async {
        until("the repetition is sent", || process.sent().len() == 2).await;
        process.clock.jump_wall(660_000);
    };

    let (committed, ()) = tokio::join!(lock.commit([counted("o-1")]).into_future(), freeze);

    assert!(committed.as_ref().unwrap_err().is_unknown(), "{committed:?}");
    assert_eq!(lock.settle_commit().await.unwrap(), CommitOutcome::Indeterminate);
    assert_eq!(applied(&table, "o-1"), 1);
    lock.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_commit_that_can_never_be_settled_is_an_outcome_and_a_missing_response_is_an_error() {
    let table = table();
    let process = table.process();
    let mut lock = acquired(&process.locks("me"), LEASE).await;
    process.next(vec![Fault::NeverAnswers; 3]);

    assert!(lock.commit([counted("o-1")]).await.unwrap_err().is_unknown());
    process.clear();
    // There is no response again. The caller may retry as often as needed.
    for _ in 0..3 {
        process.next(vec![Fault::BlackHole; 10]);
        assert!(lock.settle_commit().await.unwrap_err().is_unknown());
        process.clear();
    }

    let copy = table.process().locks("me").resume(lock.to_saved()).await.unwrap();
    assert_eq!(lock.settle_commit().await.unwrap(), CommitOutcome::Indeterminate);
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
            let clock = SharedClock::new(OneByte { clock, index, byte });
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
