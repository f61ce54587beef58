//! Temporary refusals are retried within the time of the call.

use crate::LEASE;
use lambda_lock::{Error, ErrorKind, ReleaseOutcome};
use lambda_lock_testkit::{Fault, ROUND_TRIP, Table, acquired, case, secs};
use std::error::Error as StdError;
use tokio::time::Instant;

#[tokio::test(start_paused = true)]
async fn throttling_is_waited_out_within_the_callers_time() {
    for code in [
        "ProvisionedThroughputExceededException",
        "ThrottlingException",
        "RequestLimitExceeded",
        "ReplicatedWriteConflictException",
    ] {
        let _case = case(code);
        let table = Table::new();
        let process = table.process();
        process.next(vec![Fault::error(code); 4]);

        let mut lock = acquired(&process.locks("me"), LEASE).await;
        assert_eq!(process.take_sent().len(), 5);

        process.next(vec![Fault::error(code); 3]);
        lock.checkpoint().await.unwrap();
        process.next(vec![Fault::error(code); 3]);

        assert_eq!(lock.release().await.unwrap(), ReleaseOutcome::Released);
    }
}

#[tokio::test(start_paused = true)]
async fn throttling_that_outlasts_the_callers_time_is_unavailable_and_nothing_was_applied() {
    let table = Table::new();
    let process = table.process();
    process.next(vec![Fault::throttled(); 200]);
    let started = Instant::now();

    let error = process.locks("me").acquire("k").lease(LEASE).try_once().await.unwrap_err();

    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(started.elapsed() >= secs(3) && started.elapsed() < secs(4), "{:?}", started.elapsed());
    assert!(StdError::source(&error).is_some(), "the SDK's own error is kept");
    assert_eq!(table.row("k"), None);
}

/// Returns the error of an acquire whose requests have this answer.
async fn refused(body: String, in_a_set: bool) -> Error {
    let process = Table::new().process();
    process.next(vec![Fault::Says(400, Box::leak(body.into_boxed_str())); 200]);
    let locks = process.locks("me");
    if in_a_set {
        locks.acquire_all(["k", "l"]).lease(LEASE).try_once().await.unwrap_err()
    } else {
        locks.acquire("k").lease(LEASE).try_once().await.unwrap_err()
    }
}

#[tokio::test(start_paused = true)]
async fn the_text_of_throttling_says_which_limit_of_which_table_or_index_was_exceeded() {
    let by_limit = |code: &str| {
        // As the models of AWS spell it.
        let field = if code == "ThrottlingException" { "throttlingReasons" } else { "ThrottlingReasons" };
        format!(
            r#"{{"__type":"com.amazonaws.dynamodb.v20120810#{code}","message":"scripted","{field}":[
                {{"reason":"TableWriteKeyRangeThroughputExceeded","resource":"arn:aws:dynamodb:eu-west-1:1:table/t"}},
                {{"reason":"IndexWriteProvisionedThroughputExceeded","resource":"arn:aws:dynamodb:eu-west-1:1:table/t/index/i"}}
            ]}}"#
        )
    };
    for code in ["ProvisionedThroughputExceededException", "ThrottlingException", "RequestLimitExceeded"] {
        for in_a_set in [false, true] {
            let _case = case(format!("{code}, in a set: {in_a_set}"));
            let error = refused(by_limit(code), in_a_set).await;
            assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
            for said in
                ["TableWriteKeyRangeThroughputExceeded of arn:aws:dynamodb:eu-west-1:1:table/t,", "table/t/index/i"]
            {
                assert!(error.to_string().contains(said), "{error}");
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn the_text_of_a_cancelled_transaction_says_whether_it_was_throttled_or_met_another_one() {
    for (reason, said) in [
        (
            r#"{"Code":"ThrottlingError","Message":"too much for one or more global secondary indexes"}"#,
            "secondary indexes",
        ),
        (r#"{"Code":"TransactionConflict"}"#, "TransactionConflict"),
    ] {
        let body = format!(
            r#"{{"__type":"com.amazonaws.dynamodb.v20120810#TransactionCanceledException","message":"scripted",
                "CancellationReasons":[{{"Code":"None"}},{reason}]}}"#
        );
        let error = refused(body, true).await;
        assert!(error.kind() == ErrorKind::Unavailable && error.to_string().contains(said), "{error}");
    }
}

#[tokio::test(start_paused = true)]
async fn no_pause_after_a_fault_lasts_beyond_the_callers_time() {
    // Pauses are random, so the test makes several calls.
    for number in 0..8 {
        let _case = case(number);
        let table = Table::new();
        let process = table.process();
        let locks = process.locks("me");
        process.next(vec![Fault::throttled(); 200]);
        let started = Instant::now();

        assert_eq!(locks.operator().peek("k").await.unwrap_err().kind(), ErrorKind::Unavailable);

        // The call waits for a request in flight.
        let elapsed = started.elapsed();
        assert!(elapsed >= secs(3) && elapsed <= secs(3) + ROUND_TRIP, "{elapsed:?}");
    }
}
