//! Final refusals are reported at once, unless an attempt before them may have been applied.

use crate::LEASE;
use lambda_lock::{CommitOutcome, ErrorKind, LockClient};
use lambda_lock_testkit::{Fault, Table, acquired, case, counted, secs};
use std::error::Error as StdError;
use std::time::Duration;
use tokio::time::Instant;

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

        let error = locks.acquire("k").lease(LEASE).try_once().await.unwrap_err();
        let expected = if code.starts_with("Item") { 2 } else { 1 };
        assert_eq!(error.kind(), kind, "{error}");
        assert_eq!(process.take_sent().len(), expected);

        let mut lock = acquired(&locks, LEASE).await;
        process.take_sent();
        process.next([Fault::error(code), Fault::error(code), Fault::error(code)]);

        assert_eq!(lock.checkpoint().await.unwrap_err().kind(), kind);
        assert_eq!(locks.operator().peek("k").await.unwrap_err().kind(), kind);
        assert_eq!(lock.release().await.unwrap_err().kind(), kind);
        assert_eq!(process.take_sent().len(), 3);
    }
}

/// A page to log in, a proxy, or a server that is no DynamoDB may respond with anything.
#[tokio::test(start_paused = true)]
async fn a_response_without_dynamodbs_request_id_neither_grants_nor_refuses_nor_shows_anything() {
    const REFUSED: &str = r#"{"__type":"com.amazonaws.dynamodb.v20120810#ConditionalCheckFailedException"}"#;
    const DENIED: &str = r#"{"__type":"com.amazon.coral.service#AccessDeniedException","message":"not from here"}"#;
    const MISSING: &str = r#"{"__type":"com.amazonaws.dynamodb.v20120810#ResourceNotFoundException"}"#;
    const CANCELLED: &str = r#"{"__type":"com.amazonaws.dynamodb.v20120810#TransactionCanceledException",
        "CancellationReasons":[{"Code":"ConditionalCheckFailed"}]}"#;
    for (status, body) in [
        (200, ""),
        (200, "{}"),
        (200, r#"{"Responses":{}}"#),
        (200, r#"{"Attributes":{}}"#),
        (400, REFUSED),
        (400, DENIED),
        (400, MISSING),
        (400, CANCELLED),
        (302, ""),
        (403, "<html>log in</html>"),
    ] {
        let _case = case(format!("{status} {body}"));
        let table = Table::new();
        let process = table.process();
        let locks = process.locks("me");
        let budget = process.budget(secs(60));
        let (mut held, to_release) = (acquired(&locks, LEASE).await, locks.acquire("r").within(&budget).await.unwrap());
        let both = locks.acquire_all(["a", "b"]).within(&budget).await.unwrap();
        let forge = || {
            process.clear();
            process.next(vec![Fault::Forged(status, body); 60]);
        };

        let mut errors = Vec::new();
        forge();
        errors.push(locks.acquire("free").lease(LEASE).try_once().await.unwrap_err());
        forge();
        errors.push(locks.operator().peek("k").await.unwrap_err());
        forge();
        errors.push(locks.operator().list().next().await.unwrap_err());
        forge();
        errors.push(locks.operator().check_table().await.unwrap_err());
        forge();
        errors.push(locks.acquire_all(["c", "d"]).lease(LEASE).try_once().await.unwrap_err());
        forge();
        errors.push(held.commit([counted("c")]).await.unwrap_err());
        forge();
        errors.push(held.checkpoint().await.unwrap_err());
        forge();
        errors.push(to_release.release().await.unwrap_err());
        forge();
        errors.push(both.release().await.unwrap_err());

        for error in errors {
            assert!(error.is_unknown(), "{error}");
            let mut cause: &dyn StdError = &error;
            while let Some(next) = cause.source() {
                cause = next;
            }
            assert!(cause.to_string().contains("x-amzn-RequestId"), "{error:?}");
        }
        assert!(!table.is_released("r"));
    }
}

#[tokio::test(start_paused = true)]
async fn the_text_of_an_error_does_not_repeat_that_of_its_source() {
    for code in ["AccessDeniedException", "ResourceNotFoundException", "ThrottlingException", "InternalServerError"] {
        let _case = case(code);
        let process = Table::new().process();
        process.next(vec![Fault::error(code); 40]);

        let error = process.locks("me").operator().peek("k").await.unwrap_err();

        let source = std::error::Error::source(&error).unwrap();
        assert!(!error.to_string().contains(&source.to_string()), "{error}: {source}");
    }
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
        assert_eq!(lock.resolve_commit().await.unwrap(), CommitOutcome::Applied);

        process.next(faults());
        let released = lock.release().await.unwrap_err();
        process.clear();
        process.next(faults());
        let acquired = locks.acquire("k").lease(LEASE).try_once().await.unwrap_err();

        for (call, error) in [("renew", renewed), ("commit", committed), ("release", released), ("acquire", acquired)] {
            assert!(error.is_unknown(), "{call}: {error}");
            assert!(format!("{:?}", StdError::source(&error)).contains(code), "{call}: the cause is told: {error:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_refusal_without_a_row_that_no_read_explains_is_paced_and_ends_with_the_callers_time() {
    let table = Table::new();
    let process = table.process();
    for _ in 0..10_000 {
        process.next([Fault::error("ConditionalCheckFailedException"), Fault::None]);
    }
    let started = Instant::now();

    let error = process.locks("me").acquire("k").lease(LEASE).try_once().await.unwrap_err();

    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
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

        let error = locks.acquire("k").lease(LEASE).try_once().await.unwrap_err();

        assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
        assert!(error.to_string().contains(names), "{error}");
        assert_eq!(started.elapsed(), Duration::ZERO, "{error}");
        assert!(process.take_sent().is_empty());
    }
}
