//! Idempotent work that failed for good, and that an operator allows again.

use crate::LEASE;
use lambda_lock::once::{Attempt, Once, OnceState, ResetOutcome, Started};
use lambda_lock::{ErrorKind, LockClient};
use lambda_lock_testkit::{Fault, Table, case, millis};

async fn attempt(once: Once<'_>) -> Attempt {
    let Started::Attempt(attempt) = once.start::<u32>().await.unwrap() else { panic!("it has an outcome") };
    attempt
}

/// Work that has failed for good. Returns the token of the attempt.
async fn failed(locks: &LockClient) -> u64 {
    let attempt = attempt(locks.once("w").payload(&7).lease(LEASE)).await;
    let token = attempt.fencing_token();
    attempt.fail(&"no such customer").await.unwrap();
    token
}

#[tokio::test(start_paused = true)]
async fn work_that_failed_for_good_is_done_again_after_a_reset() {
    let table = Table::new();
    let process = table.process();
    let locks = process.locks("me");
    let token = failed(&locks).await;
    process.take_sent();

    assert_eq!(locks.operator().reset("w", "the customer was created, ticket 4711").await.unwrap(), ResetOutcome::Open);

    assert_eq!(process.take_operations(), ["GetItem", "UpdateItem"]);
    let status = locks.once("w").status().await.unwrap().unwrap();
    assert_eq!((status.state, status.attempts), (OnceState::Open, 1));
    assert_eq!(status.reset_reason.as_deref(), Some("the customer was created, ticket 4711"));
    for name in ["onceState", "outcome", "outcomeAt"] {
        assert_eq!(table.attribute("once/w", name), None, "nothing of the failure stays");
    }
    let mismatch = locks.once("w").payload(&8).lease(LEASE).start::<u32>().await.unwrap_err();
    assert_eq!(mismatch.kind(), ErrorKind::PayloadMismatch, "the payload stays");
    process.take_sent();
    let next = attempt(locks.once("w").payload(&7).lease(LEASE)).await;
    assert_eq!(process.take_operations(), ["UpdateItem"], "the work is free as after a release");
    assert!(next.fencing_token() > token);
    next.complete(&1_u32).await.unwrap();
    let again = locks.once("w").lease(LEASE).start::<u32>().await.unwrap();
    assert!(matches!(again, Started::Replayed(1)));
}

#[tokio::test(start_paused = true)]
async fn a_late_copy_of_its_start_does_not_begin_what_an_operator_has_reset_whose_clock_is_behind() {
    let table = Table::new();
    let (worker, operator) = (table.process(), table.process());
    failed(&worker.locks("me")).await;
    let sent = worker.take_sent();
    operator.clock.jump_wall(-400);
    operator.locks("operator").operator().reset("w", "the customer was created").await.unwrap();
    assert!(!table.replay(&sent[0]));
    assert!(table.is_released("once/w"));
}

#[tokio::test(start_paused = true)]
async fn a_late_copy_of_a_reset_or_of_the_failed_attempt_changes_nothing() {
    let table = Table::new();
    let (worker, operator) = (table.process(), table.process());
    let (workers, client) = (worker.locks("worker"), operator.locks("operator"));
    failed(&workers).await;
    let of_attempt = worker.take_sent();
    client.operator().reset("w", "again").await.unwrap();
    let of_reset = operator.take_sent();
    let late = || of_attempt.iter().chain(&of_reset[1..]);
    for sent in late() {
        assert!(!table.replay(sent), "while it is open: {sent:?}");
    }
    let next = attempt(client.once("w").payload(&7).lease(LEASE)).await;
    for sent in late() {
        assert!(!table.replay(sent), "while the next attempt works: {sent:?}");
    }
    next.fail(&"again").await.unwrap();
    for sent in late() {
        assert!(!table.replay(sent), "after the next attempt failed: {sent:?}");
    }
}

/// Another operator was faster, and the next attempt has begun, or has ended.
#[tokio::test(start_paused = true)]
async fn a_reset_that_comes_too_late_says_so_and_changes_nothing() {
    for fails_again in [false, true] {
        let _case = case(format!("fails again: {fails_again}"));
        let table = Table::new();
        let (slow, workers) = (table.process(), table.process().locks("worker"));
        failed(&workers).await;
        // Its look shows the failure. Its write comes later.
        slow.next([Fault::None, Fault::Slow(millis(800))]);
        let meanwhile = async {
            tokio::time::sleep(millis(300)).await;
            assert_eq!(workers.operator().reset("w", "first").await.unwrap(), ResetOutcome::Open);
            let next = attempt(workers.once("w").payload(&7).lease(LEASE)).await;
            if fails_again {
                next.fail(&"again").await.unwrap();
            }
            table.row("once/w")
        };
        let client = slow.locks("operator");
        let (reset, row) = tokio::join!(client.operator().reset("w", "second"), meanwhile);
        assert_eq!(reset.unwrap(), ResetOutcome::NotFailed);
        assert_eq!(table.row("once/w"), row);
    }
}

#[tokio::test(start_paused = true)]
async fn a_reset_needs_a_reason_and_a_key() {
    let table = Table::new();
    let locks = table.process().locks("me");
    for (key, reason) in [("w", ""), ("w", "r".repeat(2049).as_str()), ("", "again")] {
        assert_eq!(locks.operator().reset(key, reason).await.unwrap_err().kind(), ErrorKind::InvalidRequest);
    }
}
