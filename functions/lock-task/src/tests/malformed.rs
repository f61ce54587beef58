use super::{Function, acquire, with};
use crate::handler::handler;
use lambda_lock_functions::test_support::{assert_failure, event};
use serde_json::{Value, json};

/// Asserts that the request is refused by the name of this field, and that nothing was written.
async fn refused(function: &Function, request: Value, field: &str) {
    let result = function.call(request.clone()).await;
    let message = result.as_ref().err().map(|failure| failure.message().into_owned());
    assert_failure(result, "InvalidRequest", field);
    assert!(message.unwrap().starts_with(field), "{field}: {request}");
}

fn without(mut request: Value, field: &str) -> Value {
    request.as_object_mut().unwrap().remove(field).unwrap();
    request
}

#[tokio::test]
async fn a_missing_field_is_named() {
    let function = Function::start().await;
    let lock = function.lock("me").await;
    for field in ["action", "key", "owner", "leaseSeconds"] {
        refused(&function, without(acquire("me"), field), field).await;
    }
    let renew = json!({ "action": "renew", "lock": lock, "leaseSeconds": 300 });
    for field in ["lock", "leaseSeconds"] {
        refused(&function, without(renew.clone(), field), field).await;
    }
    refused(&function, json!({ "action": "release" }), "lock").await;
    for field in ["key", "owner", "version", "fencingToken", "leaseSeconds", "leaseEndsAt"] {
        let part = without(lock.clone(), field);
        refused(&function, with(renew.clone(), json!({ "lock": part })), &format!("lock.{field}")).await;
        refused(&function, json!({ "action": "release", "lock": part }), &format!("lock.{field}")).await;
    }
}

#[tokio::test]
async fn a_malformed_field_of_an_acquire_is_named() {
    let function = Function::start().await;
    let (long, observation) = ("x".repeat(2049), json!({ "version": "v", "leaseMillis": 1, "unchangedForMillis": 0 }));
    for (field, value) in [
        ("action", json!("steal")),
        ("action", json!(7)),
        ("key", json!("")),
        ("key", json!(long)),
        ("key", json!(7)),
        ("key", json!(null)),
        ("owner", json!("")),
        ("owner", json!(long)),
        ("owner", json!({})),
        ("leaseSeconds", json!(0)),
        ("leaseSeconds", json!(-1)),
        ("leaseSeconds", json!("300")),
        ("leaseSeconds", json!(null)),
        ("leaseSeconds", json!(1e300)),
        ("leaseSeconds", json!(31_622_401)),
        ("waitSeconds", json!(-0.5)),
        ("waitSeconds", json!("1")),
        ("waitSeconds", json!(1e300)),
        ("whenHeld", json!("ignore")),
        ("whenHeld", json!(true)),
        ("maxRetryAfterSeconds", json!(10)),
        ("data", json!({ "page": 7 })),
        ("attributes", json!("job=nightly")),
        ("attributes", json!(null)),
        ("attributes", json!({ "job": null })),
        ("attributes", json!({ "job": ["nightly"] })),
        ("attributes", json!({ "job": "x".repeat(4 * 1024) })),
        ("execution", json!("")),
        ("execution", json!(long)),
        ("execution", json!(7)),
        ("reclaim", json!("true")),
        ("reclaim", json!(1)),
        ("reclaim", json!(null)),
        ("sortKey", json!("invoice-12")),
        ("waitedSeconds", json!(3)),
        ("observation", observation.clone()),
        ("colour", json!("blue")),
        ("lock", json!({})),
    ] {
        refused(&function, with(acquire("me"), json!({ field: value })), field).await;
    }
    for (observation, waited, field) in [
        (json!("seen"), json!(1), "observation"),
        (json!({}), json!(1), "observation"),
        (with(observation.clone(), json!({ "more": 1 })), json!(1), "observation"),
        (observation.clone(), json!(-1), "waitedSeconds"),
        (observation.clone(), json!(1e300), "waitedSeconds"),
        (observation.clone(), json!("1"), "waitedSeconds"),
        (observation, json!(null), "waitedSeconds"),
        (json!(null), json!("1"), "waitedSeconds"),
    ] {
        let both = json!({ "observation": observation, "waitedSeconds": waited });
        refused(&function, with(acquire("me"), both), field).await;
    }
    for (attributes, text) in [
        (json!({ "ownerName": "me" }), "cannot be called \"ownerName\""),
        (json!({ "key": 1 }), "cannot be called \"key\""),
        (json!({ "a,b": 1 }), "without a comma"),
        (json!({ "n": 1e300 }), "not a number that DynamoDB stores"),
    ] {
        let result = function.call(with(acquire("me"), json!({ "attributes": attributes }))).await;
        assert_failure(result, "InvalidRequest", text);
    }
    for longest in [json!(0), json!(0.9), json!(-1), json!("10"), json!(null)] {
        let report = json!({ "whenHeld": "report", "maxRetryAfterSeconds": longest });
        refused(&function, with(acquire("me"), report), "maxRetryAfterSeconds").await;
    }
    assert_eq!(function.server.row("customer-7").await, None, "no request was sent");
}

#[tokio::test]
async fn a_malformed_field_of_a_lock_is_named() {
    let function = Function::start().await;
    let lock = function.lock("me").await;
    for (field, value) in [
        ("key", json!("")),
        ("owner", json!(7)),
        ("version", json!("b2c6a6e2")),
        ("version", json!(1)),
        ("fencingToken", json!(-1)),
        ("fencingToken", json!("1")),
        ("leaseSeconds", json!(0)),
        ("leaseSeconds", json!(1e300)),
        ("leaseEndsAt", json!(1.5)),
        ("workflow", json!("arn")),
        ("data", json!([])),
        ("sortKey", json!("invoice-12")),
        ("colour", json!("blue")),
    ] {
        let lock = with(lock.clone(), json!({ field: value }));
        refused(&function, json!({ "action": "release", "lock": lock }), &format!("lock.{field}")).await;
        let renew = json!({ "action": "renew", "lock": lock, "leaseSeconds": 300 });
        refused(&function, renew, &format!("lock.{field}")).await;
    }
    assert!(!function.is_free().await);
}

#[tokio::test]
async fn fields_of_another_action_are_refused() {
    let function = Function::start().await;
    let lock = function.lock("me").await;
    let release = json!({ "action": "release", "lock": lock, "leaseSeconds": 300 });
    refused(&function, release, "leaseSeconds").await;
    refused(&function, json!({ "action": "release", "lock": lock, "reclaim": "yes" }), "reclaim").await;
    let renew = json!({ "action": "renew", "lock": lock, "leaseSeconds": 300, "reclaim": true });
    refused(&function, renew, "reclaim").await;
    let renew = json!({ "action": "renew", "lock": lock, "leaseSeconds": 300, "key": "customer-7" });
    refused(&function, renew, "key").await;
    refused(&function, json!({ "action": "release", "lock": "customer-7" }), "lock").await;
}

#[tokio::test]
async fn an_event_that_is_not_an_object_is_an_invalid_request() {
    let function = Function::start().await;
    for event in [json!([]), json!(null), json!("acquire"), json!(7)] {
        assert_failure(function.call(event).await, "InvalidRequest", "the event is no JSON object");
    }
}

#[tokio::test]
async fn a_sort_key_is_required_and_repeated_exactly_where_the_table_has_one() {
    let function = Function::with(&[("LOCK_SORT_KEY_ATTRIBUTE", "sk")]).await;
    refused(&function, acquire("me"), "sortKey").await;
    refused(&function, with(acquire("me"), json!({ "sortKey": "" })), "sortKey").await;
    refused(&function, with(acquire("me"), json!({ "sortKey": "s".repeat(1025) })), "sortKey").await;
    let lock = function.answer(with(acquire("me"), json!({ "sortKey": "invoice-12" }))).await["lock"].clone();
    assert_eq!(lock["sortKey"], "invoice-12");
    let part = without(lock.clone(), "sortKey");
    refused(&function, json!({ "action": "release", "lock": part }), "lock.sortKey").await;
    let renewed = function.answer(json!({ "action": "renew", "lock": lock, "leaseSeconds": 300 })).await;
    assert_eq!(renewed["lock"]["sortKey"], "invoice-12");
    assert_eq!(
        function.answer(json!({ "action": "release", "lock": renewed["lock"] })).await,
        json!({ "released": true })
    );
}

#[tokio::test]
async fn a_key_that_no_lock_has_is_refused_by_the_name_of_its_field() {
    let function = Function::start().await;
    let seen = json!({ "observation": null, "waitedSeconds": 0, "taskToken": "t" });
    let wait = with(json!({ "action": "wait", "key": "customer-7" }), seen);
    for key in ["once/order", "wake/customer-7/1"] {
        refused(&function, with(acquire("me"), json!({ "key": key })), "key").await;
        refused(&function, with(acquire("me"), json!({ "key": key, "permits": 2 })), "key").await;
        refused(&function, without(with(acquire("me"), json!({ "keys": ["a", key] })), "key"), "keys").await;
        refused(&function, with(wait.clone(), json!({ "key": key })), "key").await;
    }
}

/// With the reserved characters of a template in it, all customers would share one lock.
#[tokio::test]
async fn a_template_that_was_not_resolved_is_refused() {
    let function = Function::start().await;
    let wait = json!({
        "action": "wait", "key": "customer-7", "observation": null, "waitedSeconds": 0, "taskToken": "t",
    });
    for template in [
        "{% $customer %}",
        "customer-{% $customer %}",
        "$.customer",
        "$$.Execution.Id",
        "$['customer']",
        "States.Format('customer-{}', $.customer)",
        "customer-${CUSTOMER}",
    ] {
        for field in ["key", "owner", "execution"] {
            refused(&function, with(acquire("me"), json!({ field: template })), field).await;
        }
        for field in ["key", "taskToken", "execution"] {
            refused(&function, with(wait.clone(), json!({ field: template })), field).await;
        }
        refused(&function, without(with(acquire("me"), json!({ "keys": ["a", template] })), "key"), "keys").await;
    }
    for text in ["price in $", "$customer", "${", "{customer}", "a%}", "customer.$.7"] {
        function.answer(with(acquire("me"), json!({ "key": text }))).await;
    }
}

#[tokio::test]
async fn what_the_crate_refuses_begins_with_the_field_too() {
    let function = Function::start().await;
    for attributes in [json!({ "ownerName": "me" }), json!({ "a,b": 1 }), json!({ "n": 1e300 })] {
        refused(&function, with(acquire("me"), json!({ "attributes": attributes })), "attributes").await;
    }
    let many: serde_json::Map<String, Value> = (0..21).map(|n| (format!("a{n}"), json!(n))).collect();
    refused(&function, with(acquire("me"), json!({ "attributes": many })), "attributes").await;
    refused(&function, without(with(acquire("me"), json!({ "keys": ["a", "a"] })), "key"), "keys").await;
    let long = with(acquire("me"), json!({ "key": "k".repeat(2048), "permits": 2 }));
    refused(&function, long, "key").await;
    let set = function.answer(without(with(acquire("me"), json!({ "keys": ["a", "b"] })), "key")).await["lock"].clone();
    let mut of_two = set.clone();
    of_two["locks"][1]["owner"] = json!("another");
    refused(&function, json!({ "action": "renew", "lock": of_two, "leaseSeconds": 60 }), "lock.locks").await;
}

#[tokio::test]
async fn an_invocation_whose_time_is_over_is_not_granted_a_lock() {
    let function = Function::start().await;
    let set = without(with(acquire("me"), json!({ "keys": ["customer-7", "b"] })), "key");
    for (request, seconds) in [(acquire("me"), -1.0), (acquire("me"), 0.3), (set, -1.0)] {
        let late = handler(event(&request, seconds), &function.deps).await;
        assert_failure(late, "LockUnknown", "no time left");
    }
    assert_eq!(function.server.row("customer-7").await, None);
}
