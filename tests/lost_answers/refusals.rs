//! Final refusals are reported at once, unless an attempt before them may have been applied.

use crate::LEASE;
use lambda_lock::{CommitOutcome, ErrorKind, LockClient};
use lambda_lock_testkit::{Fault, Process, Table, acquired, case, counted, secs};
use std::error::Error as StdError;
use std::time::Duration;
use tokio::time::Instant;

fn refused() -> Fault {
    Fault::error("ConditionalCheckFailedException")
}

#[tokio::test(start_paused = true)]
async fn errors_of_the_deployment_are_reported_and_not_retried() {
    use ErrorKind::{Denied, InvalidRequest, Table as Missing};
    for (code, kind) in [
        ("AccessDeniedException", Denied),
        ("ExpiredTokenException", Denied),
        ("UnrecognizedClientException", Denied),
        ("ResourceNotFoundException", Missing),
        ("ItemCollectionSizeLimitExceededException", InvalidRequest),
    ] {
        let _case = case(code);
        let table = Table::new();
        let process = table.process();
        let locks = process.locks("me");
        process.next([Fault::error(code)]);

        let error = locks.try_acquire("k").lease(LEASE).await.unwrap_err();
        let expected = if code.starts_with("Item") { 2 } else { 1 };
        assert_eq!(error.kind(), kind, "{error}");
        assert_eq!(process.take_sent().len(), expected);

        let mut lock = acquired(&locks, LEASE).await;
        process.take_sent();
        process.next([Fault::error(code), Fault::error(code), Fault::error(code)]);

        assert_eq!(lock.checkpoint().await.unwrap_err().kind(), kind);
        assert_eq!(locks.peek("k").await.unwrap_err().kind(), kind);
        assert_eq!(lock.release().await.unwrap_err().kind(), kind);
        assert_eq!(process.take_sent().len(), 3);
    }
}

#[tokio::test(start_paused = true)]
async fn the_text_of_an_error_does_not_repeat_that_of_its_source() {
    for code in ["AccessDeniedException", "ResourceNotFoundException", "ThrottlingException", "InternalServerError"] {
        let _case = case(code);
        let process = Table::new().process();
        process.next(vec![Fault::error(code); 40]);

        let error = process.locks("me").peek("k").await.unwrap_err();

        let source = std::error::Error::source(&error).unwrap();
        assert!(!error.to_string().contains(&source.to_string()), "{error}: {source}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_expired_identity_after_an_unknown_attempt_is_still_unknown() {
    let table = Table::new();
    let process: Process = table.process();
    process.next([Fault::NeverAnswers, Fault::error("ExpiredTokenException"), Fault::error("ExpiredTokenException")]);

    let error = process.locks("me").try_acquire("k").lease(LEASE).await.unwrap_err();

    assert!(error.is_unknown(), "{error}");
    assert!(format!("{:?}", StdError::source(&error)).contains("ExpiredToken"), "{error:?}");
}

#[tokio::test(start_paused = true)]
async fn a_failure_of_the_server_is_no_refusal_whatever_code_it_names() {
    for code in ["AccessDeniedException", "ThrottlingException", "ValidationException"] {
        let _case = case(code);
        let table = Table::new();
        let process = table.process();
        let Fault::Says(_, body) = Fault::error(code) else { panic!("a scripted answer") };
        process.next([Fault::AppliedButSays(500, body)]);

        acquired(&process.locks("me"), LEASE).await.release().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_read_without_an_answer_does_not_settle_a_write_without_one() {
    let denied = || vec![Fault::error("ExpiredTokenException"); 10];
    let table = Table::new();
    let process = table.process();
    let mut lock = acquired(&process.locks("me"), LEASE).await;
    // The write is applied without a response, then refused without a row. The read gets no response.
    // Then the credentials expire.
    process.next([Fault::AnswerLost, Fault::error("ConditionalCheckFailedException"), Fault::RequestLost]);
    process.next(denied());

    let error = lock.checkpoint().await.unwrap_err();
    assert!(error.is_unknown(), "{error}");

    process.clear();
    const REASONS: &str = r#"{"__type":"com.amazonaws.dynamodb.v20120810#TransactionCanceledException","message":"x",
        "CancellationReasons":[{"Code":"ConditionalCheckFailed"}]}"#;
    process.next([Fault::AnswerLost, Fault::Says(400, REASONS), Fault::RequestLost]);
    process.next(denied());

    let error = lock.commit([]).await.unwrap_err();
    assert!(error.is_unknown(), "{error}");
    process.clear();
    assert_eq!(lock.settle_commit().await.unwrap(), CommitOutcome::Applied);
    lock.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_rejected_repetition_does_not_hide_that_the_first_attempt_may_have_been_applied() {
    for code in ["ExpiredTokenException", "AccessDeniedException", "ValidationException", "ResourceNotFoundException"] {
        let _case = case(code);
        let table = Table::new();
        let process = table.process();
        let locks = process.locks("me");
        let mut lock = acquired(&locks, LEASE).await;
        let faults = || [Fault::AnswerLost, Fault::error(code)];

        process.next(faults());
        let renewed = lock.checkpoint().await.unwrap_err();
        process.clear();
        process.next(faults());

        let committed = lock.commit([counted("o-1")]).await.unwrap_err();
        process.clear();
        assert_eq!(lock.settle_commit().await.unwrap(), CommitOutcome::Applied);

        process.next(faults());
        let released = lock.release().await.unwrap_err();
        process.clear();
        process.next(faults());
        let acquired = locks.try_acquire("k").lease(LEASE).await.unwrap_err();

        for (call, error) in [("renew", renewed), ("commit", committed), ("release", released), ("acquire", acquired)] {
            assert!(error.is_unknown(), "{call}: {error}");
            assert!(StdError::source(&error).is_some(), "{call}: the cause is told");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_refusal_without_a_row_is_followed_by_a_read_and_not_repeated_for_ever() {
    let table = Table::new();
    let process = table.process();
    process.next(vec![refused(); 100_000]);
    let started = Instant::now();

    let error = process.locks("me").try_acquire("k").lease(LEASE).await.unwrap_err();

    assert!(matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Unknown), "{error}");
    assert!(process.take_sent().len() < 40, "it pauses");
    assert!(started.elapsed() <= secs(4), "{:?}", started.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_refusal_without_a_row_is_no_loss_of_a_lock_that_is_ours() {
    let table = Table::new();
    let process = table.process();
    let mut lock = acquired(&process.locks("me"), LEASE).await;

    process.next([refused()]);
    lock.checkpoint().await.unwrap();
    process.next([refused()]);
    let token = lock.to_saved();
    process.locks("me").resume(token.clone()).await.unwrap().save();
    process.next([refused()]);
    let lock = process.locks("me").reclaim(token).lease(LEASE).await.unwrap();
    process.next([refused()]);

    lock.release().await.unwrap();
    assert!(table.is_released("k"));
}

#[tokio::test(start_paused = true)]
async fn a_read_without_an_answer_does_not_settle_a_release_without_one() {
    let table = Table::new();
    let process = table.process();
    let lock = acquired(&process.locks("me"), LEASE).await;
    // The write is applied without a response, then refused without a row. The read gets no response.
    // Then the credentials expire.
    process.next([Fault::AnswerLost, refused(), Fault::RequestLost]);
    process.next(vec![Fault::error("ExpiredTokenException"); 10]);

    let error = lock.release().await.unwrap_err();

    assert!(error.is_unknown(), "{error}");
    assert!(table.is_released("k"));
}

#[tokio::test(start_paused = true)]
async fn a_commit_whose_read_has_no_answer_does_not_report_that_nothing_was_applied() {
    const REASONS: &str = r#"{"__type":"com.amazonaws.dynamodb.v20120810#TransactionCanceledException","message":"x",
        "CancellationReasons":[{"Code":"ConditionalCheckFailed"}]}"#;
    let table = Table::new();
    let process = table.process();
    let mut lock = acquired(&process.locks("me"), LEASE).await;
    // The write is applied without a response, then refused without a row. The read gets no response.
    process.next([Fault::AnswerLost, Fault::Says(400, REASONS)]);
    process.next(vec![Fault::BlackHole; 10]);

    let error = lock.commit([]).await.unwrap_err();

    assert!(error.is_unknown(), "{error}");
    process.clear();
    assert_eq!(lock.settle_commit().await.unwrap(), CommitOutcome::Applied);
    lock.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_refusal_without_a_row_that_no_read_explains_is_paced_and_ends_with_the_callers_time() {
    let table = Table::new();
    let process = table.process();
    for _ in 0..10_000 {
        process.next([refused(), Fault::None]);
    }
    let started = Instant::now();

    let error = process.locks("me").try_acquire("k").lease(LEASE).await.unwrap_err();

    assert!(error.is_unavailable(), "{error}");
    assert!(process.take_sent().len() < 40, "it pauses");
    assert!(started.elapsed() <= secs(4), "{:?}", started.elapsed());
}

mod missing_credentials_and_a_missing_region_are_denied_at_once_and_by_name {
    use super::*;
    use aws_sdk_dynamodb::Client;
    use aws_sdk_dynamodb::config::{BehaviorVersion, Builder, Config, Credentials, Region};

    #[tokio::test(start_paused = true)]
    async fn missing_credentials() {
        check("no credentials provider", |config| config.region(Region::new("eu-central-1"))).await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_missing_region() {
        let credentials = Credentials::new("AKIDEXAMPLE", "secret", None, None, "test");
        check("egion", |config| config.credentials_provider(credentials)).await;
    }

    async fn check(names: &str, with_what_there_is: impl FnOnce(Builder) -> Builder) {
        let process = Table::new().process();
        let http = process.dynamodb().config().http_client().unwrap();
        let config = Config::builder().behavior_version(BehaviorVersion::latest()).http_client(http);
        let config = with_what_there_is(config).build();
        let locks =
            LockClient::builder(Client::from_conf(config), "locks").clock(process.clock.shared()).build().unwrap();
        let started = Instant::now();

        let error = locks.try_acquire("k").lease(LEASE).await.unwrap_err();

        assert!(error.is_denied(), "{error}");
        assert!(error.to_string().contains(names), "{error}");
        assert_eq!(started.elapsed(), Duration::ZERO, "{error}");
        assert!(process.take_sent().is_empty());
    }
}

/// A response without the requested attributes says nothing about the row.
#[tokio::test(start_paused = true)]
async fn a_response_without_attributes_is_no_invalid_record() {
    let table = Table::new();
    let process = table.process();
    process.next([Fault::AppliedButSays(200, r#"{"Attributes":{}}"#)]);
    let tried = process.locks("me").try_acquire("k").lease(LEASE).await;
    assert!(!matches!(&tried, Err(error) if error.is_invalid_record()), "{tried:?}");
}
