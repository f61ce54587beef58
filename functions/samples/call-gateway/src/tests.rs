//! The promises to the callers of a limited gateway, tested on an embedded DynamoDB with a gateway that counts.

use crate::handler::{Deps, handler};
use lambda_lock_functions::test_support::{DynamoDb, TABLE, assert_failure, event};
use lambda_lock_functions::{ConfigError, Failure};
use lambda_lock_local::LimitedGateway;
use lambda_lock_local::limited_gateway::Treatment;
use lambda_lock_testkit::soon_so;
use serde_json::{Value, json};
use std::time::Duration;

/// The function with its table, and a gateway that takes two calls at once.
struct Function {
    server: DynamoDb,
    gateway: LimitedGateway,
    deps: Deps,
}

impl Function {
    async fn start() -> Self {
        Self::with(&[]).await
    }

    async fn with(environment: &[(&str, &str)]) -> Self {
        let server = DynamoDb::with_table(environment).await;
        let gateway = LimitedGateway::start(2).await.unwrap();
        let own = [("GATEWAY_URL", gateway.url()), ("GATEWAY_CONNECTIONS", "2")];
        let deps = deps(&server, &[environment, own.as_slice()].concat()).unwrap();
        Self { server, gateway, deps }
    }

    async fn call(&self, seconds: f64) -> Result<Value, Failure> {
        handler(event(&json!({ "request": { "n": 7 } }), seconds), &self.deps).await
    }

    fn treat(&self, takes: Duration, responds: bool) {
        self.gateway.treat(move |_| Treatment { takes, responds });
    }

    /// How many places are held.
    async fn held(&self) -> usize {
        let locks = self.server.locks(&[]);
        let places = locks.semaphore("gateway", 2).peek().await.unwrap();
        places.into_iter().flatten().filter(|place| !place.released).count()
    }
}

fn deps(server: &DynamoDb, environment: &[(&str, &str)]) -> Result<Deps, ConfigError> {
    let value = |name: &str| environment.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned());
    Deps::new(&server.config(environment)?, &|name| Ok(value(name)))
}

#[tokio::test]
async fn a_call_returns_the_response_and_frees_its_place() {
    let function = Function::start().await;
    let answer = function.call(30.0).await.unwrap();
    assert!(answer["place"].as_u64().unwrap() < 2, "{answer}");
    assert!(answer["fencingToken"].as_u64().unwrap() > 0, "{answer}");
    assert_eq!(answer["response"], json!({ "done": { "n": 7 } }));
    assert_eq!(answer.as_object().unwrap().len(), 3, "{answer}");
    assert_eq!((function.held().await, function.gateway.measured().calls), (0, 1));
}

#[tokio::test]
async fn of_six_calls_at_once_two_are_inside_and_all_are_done() {
    let function = Function::start().await;
    function.treat(Duration::from_millis(50), true);
    let call = || function.call(30.0);
    let (a, b, c, d, e, f) = tokio::join!(call(), call(), call(), call(), call(), call());
    for answer in [a, b, c, d, e, f] {
        answer.unwrap();
    }
    let measured = function.gateway.measured();
    assert_eq!((measured.calls, measured.most, measured.too_many), (6, 2, 0), "{measured:?}");
    assert_eq!(function.held().await, 0);
}

#[tokio::test]
async fn while_all_places_are_held_a_call_is_lock_held_and_names_the_semaphore() {
    let function = Function::start().await;
    let locks = function.server.locks(&[]);
    for _ in 0..2 {
        let taken = locks.semaphore("gateway", 2).try_acquire().lease(Duration::from_secs(60)).await.unwrap();
        // Stays held.
        drop(taken.granted().unwrap().into_lock().save());
    }
    assert_failure(function.call(2.0).await, "LockHeld", "gateway");
    assert_eq!(function.gateway.measured().calls, 0);
}

#[tokio::test]
async fn a_call_without_a_response_leaves_its_place_to_the_lease() {
    let function = Function::start().await;
    function.treat(Duration::ZERO, false);
    assert_failure(function.call(30.0).await, "WorkFailed", "free at the latest when its lease ends, at 20");
    assert_eq!(function.held().await, 1, "the gateway may still be at work");

    function.treat(Duration::from_secs(60), true);
    assert_failure(function.call(2.0).await, "WorkFailed", "the gateway did not respond: no response within 1.");
    assert_eq!(function.held().await, 2);
}

/// A process that stood still may have had one call more inside.
#[tokio::test]
async fn a_response_under_a_place_that_was_lost_says_that_the_place_was_gone() {
    let function = Function::start().await;
    function.treat(Duration::from_millis(500), true);
    let another = async {
        soon_so("the call is inside", async || function.gateway.measured().calls == 1).await;
        for place in ["gateway/0", "gateway/1"] {
            function.server.delete(TABLE, "key", place).await;
        }
    };

    let (answer, ()) = tokio::join!(function.call(30.0), another);

    let answer = answer.unwrap();
    assert_eq!(answer["response"], json!({ "done": { "n": 7 } }));
    assert_eq!((&answer["released"], &answer["reason"]), (&json!(false), &json!("gone")), "{answer}");
}

#[tokio::test]
async fn a_call_that_the_gateway_refuses_frees_its_place() {
    let function = Function::start().await;
    function.gateway.limit(0);
    assert_failure(function.call(30.0).await, "WorkFailed", "free again: the gateway failed with status 503");
    assert_eq!(function.held().await, 0);
}

#[tokio::test]
async fn a_place_with_a_newer_holder_at_the_gateway_is_lock_lost() {
    let function = Function::start().await;
    for place in 0..2 {
        let web = lambda_lock_functions::Web::new("URL", function.gateway.url()).unwrap();
        let headers = [("place", place.to_string()), ("fencing-token", u64::MAX.to_string())];
        web.post("/calls", &headers, "{}".to_owned(), Duration::from_secs(5)).await.unwrap();
    }
    assert_failure(function.call(30.0).await, "LockLost", "its place has a newer holder");
    assert_eq!((function.held().await, function.gateway.measured().stale), (0, 1));
}

#[tokio::test]
async fn without_a_gateway_nobody_is_called() {
    let server = DynamoDb::start().await;
    let deps = deps(&server, &[]).unwrap();
    let answer = handler(event(&json!({ "request": null }), 30.0), &deps).await.unwrap();
    assert_eq!(answer["response"], Value::Null);
    assert!(answer["place"].as_u64().unwrap() < 5, "{answer}");
}

#[tokio::test]
async fn a_malformed_event_and_a_missing_table_are_reported_by_name() {
    let function = Function::start().await;
    for (request, says) in [(json!({}), "request is missing"), (json!({ "request": 1, "r": 2 }), "r is no field")] {
        assert_failure(handler(event(&request, 30.0), &function.deps).await, "InvalidRequest", says);
    }
    assert_failure(function.call(-1.0).await, "LockUnknown", "has 0ns left");
    let server = DynamoDb::empty().await;
    let failed = handler(event(&json!({ "request": 1 }), 30.0), &deps(&server, &[]).unwrap()).await;
    assert_failure(failed, "LockTableError", "cannot be used");
}

#[tokio::test]
async fn a_table_with_a_sort_key_works_too() {
    let function = Function::with(&[("LOCK_SORT_KEY_ATTRIBUTE", "sk")]).await;
    function.call(30.0).await.unwrap();
}

#[tokio::test]
async fn a_wrong_variable_stops_the_start() {
    let server = DynamoDb::empty().await;
    let long = "n".repeat(2045);
    for (name, value, says) in [
        ("GATEWAY_CONNECTIONS", "0", "GATEWAY_CONNECTIONS is \"0\""),
        ("GATEWAY_CONNECTIONS", "1001", "GATEWAY_CONNECTIONS is \"1001\""),
        ("GATEWAY_CONNECTIONS", "five", "GATEWAY_CONNECTIONS is \"five\""),
        ("GATEWAY_URL", "gateway.example.com", "GATEWAY_URL is "),
        ("GATEWAY_NAME", &long, "GATEWAY_NAME is too long"),
    ] {
        let error = deps(&server, &[(name, value)]).err().unwrap().to_string();
        assert!(error.starts_with(says), "{error}");
    }
    assert!(deps(&server, &[("GATEWAY_NAME", &long[1..])]).is_ok());
}
