//! DynamoDB is not done with a transaction: a retry five seconds after the first request makes it recover the transaction.

use crate::{LEASE, applied, content, counted, lock_within, table};
use lambda_lock::{CommitOutcome, Lock, Tried};
use lambda_lock_testkit::{Fault, Process, Sent, acquired, case, millis, secs};
use std::time::Duration;
use tokio::time::{Instant, timeout};

fn in_progress() -> Fault {
    Fault::error("TransactionInProgressException")
}

/// Returns a lock whose next transaction is not done for five seconds, for a caller with this budget.
async fn lock_in_limbo(process: &Process, budget: Option<u64>) -> Lock {
    let mut lock = acquired(&process.locks("me"), LEASE).await;
    if let Some(budget) = budget {
        lock = lock_within(process, lock, &process.budget(secs(budget))).await;
    }
    process.take_sent();
    process.next([Fault::Limbo]);
    lock
}

/// The pauses between all but the first two requests. The second one follows the first, which had no response, at once.
fn pauses(sent: &[Sent]) -> Vec<Duration> {
    sent.windows(2).skip(1).map(|pair| pair[1].at - pair[0].at).collect()
}

#[tokio::test(start_paused = true)]
async fn a_transaction_that_dynamodb_recovers_after_five_seconds_is_committed_once() {
    for budget in [None, Some(6), Some(10), Some(30)] {
        for release in [false, true] {
            let _case = case(format!("budget: {budget:?}, release: {release}"));
            let table = table();
            let process = table.process();
            let mut lock = lock_in_limbo(&process, budget).await;

            if release {
                lock.commit_and_release([counted("o-1")]).await.unwrap();
            } else {
                lock.commit([counted("o-1")]).await.unwrap();
                assert!(lock.remaining() > Duration::ZERO);
            }

            assert_eq!(applied(&table, "o-1"), 1);
            let sent = process.take_sent();
            assert!(sent.iter().all(|again| content(again) == content(&sent[0])), "the same transaction again");
            assert!(sent.len() <= 6, "{} requests", sent.len());
            assert!(pauses(&sent).iter().all(|pause| *pause >= millis(500)), "{:?}", pauses(&sent));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_transaction_that_stays_in_progress_is_unknown_after_few_requests_within_the_budget() {
    for (budget, longest, most) in [(None, 12, 8), (Some(4), 4, 5), (Some(30), 30, 20)] {
        let _case = case(format!("budget: {budget:?}"));
        let table = table();
        let process = table.process();
        let mut lock = lock_in_limbo(&process, budget).await;
        process.next(vec![in_progress(); 200]);
        let began = Instant::now();

        let error = lock.commit([counted("o-1")]).await.unwrap_err();

        assert!(error.is_unknown(), "{error}");
        assert!(began.elapsed() <= secs(longest) + millis(300), "{:?}", began.elapsed());
        let sent = process.take_sent();
        assert!(sent.len() <= most, "{} requests", sent.len());
        assert!(pauses(&sent).iter().all(|pause| *pause >= millis(500)), "{:?}", pauses(&sent));
    }
}

#[tokio::test(start_paused = true)]
async fn resolve_commit_waits_until_dynamodb_is_done_with_the_transaction() {
    for budget in [None, Some(30)] {
        let _case = case(format!("budget: {budget:?}"));
        let table = table();
        let process = table.process();
        let mut lock = lock_in_limbo(&process, budget).await;
        timeout(millis(100), lock.commit([counted("o-1")])).await.unwrap_err();

        assert_eq!(lock.resolve_commit().await.unwrap(), CommitOutcome::Applied);
        assert_eq!(applied(&table, "o-1"), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn whatever_request_meets_the_transaction_waits_until_dynamodb_is_done_with_it() {
    for request in ["UpdateItem", "a grant of a set", "a commit"] {
        let _case = case(request);
        let table = table();
        let other =
            table.process().locks("other").acquire("j").lease(LEASE).try_once().await.unwrap().granted().unwrap();
        let mut lock = lock_in_limbo(&table.process(), None).await;
        timeout(millis(100), lock.commit([counted("o-1")])).await.unwrap_err();

        // Each has its response in time, although it has no budget.
        match request {
            "UpdateItem" => {
                lock.release().await.unwrap();
                assert_eq!(applied(&table, "o-1"), 1);
                acquired(&table.process().locks("third"), LEASE).await.release().await.unwrap();
            }
            "a grant of a set" => {
                let set = table.process().locks("third").acquire_all(["k", "l"]).lease(LEASE).try_once().await.unwrap();
                assert!(matches!(set, Tried::Refused(_)), "{set:?}");
            }
            _ => {
                let mut other = other;
                other.commit([counted("o-1")]).await.unwrap();
                assert_eq!(applied(&table, "o-1"), 2);
            }
        }
    }
}
