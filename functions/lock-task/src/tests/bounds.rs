//! Responses and errors are small, however large the request or the row is. Step Functions fails a state
//! whose response has more than 256 KB, and then the lock stays held by a caller that does not know it.

use super::{Function, acquire, with};
use crate::lock::{MAX_ANSWER_BYTES, MAX_DATA_BYTES};
use aws_sdk_dynamodb::types::AttributeValue;
use lambda_lock_functions::Failure;
use lambda_lock_functions::test_support::{assert_failure, pause};
use serde_json::{Value, json};
use std::time::Duration;

/// The most bytes that fit into a DynamoDB item, without the rest of the row.
const HUGE: usize = 380_000;
const MAX_MESSAGE_BYTES: usize = lambda_lock_functions::MAX_MESSAGE_BYTES;
/// The most bytes of a text from a request or a row that an error quotes.
const MAX_QUOTE_BYTES: usize = 64;

fn huge() -> String {
    "x".repeat(HUGE)
}

fn longest_run(text: &str, of: char) -> usize {
    text.split(|c| c != of).map(str::len).max().unwrap_or(0)
}

/// Asserts that a response or an error is small, and that an error quotes little.
#[track_caller]
fn assert_small(what: &str, result: &Result<Value, Failure>) {
    match result {
        Ok(answer) => assert!(answer.to_string().len() <= MAX_ANSWER_BYTES, "{what}: {}", answer.to_string().len()),
        Err(failure) => {
            let message = failure.message();
            assert!(message.len() <= MAX_MESSAGE_BYTES, "{what}: {} bytes", message.len());
            assert!(longest_run(&message, 'x') <= MAX_QUOTE_BYTES, "{what}: {message}");
            assert!(longest_run(&message, 'k') <= MAX_QUOTE_BYTES, "{what}: {message}");
        }
    }
}

/// Returns a held row of ours in which this attribute has this value.
async fn spoilt(attribute: &str, value: AttributeValue) -> (Function, Value) {
    let function = Function::start().await;
    let lock = function.lock("somebody").await;
    function.server.set("locks", ("key", "customer-7"), (attribute, value)).await;
    (function, lock)
}

#[tokio::test]
async fn a_row_with_a_huge_attribute_leaves_neither_a_large_answer_nor_a_large_error() {
    let number = "9".repeat(38);
    for (attribute, value) in [
        ("ownerName", AttributeValue::S(huge())),
        ("leaseDuration", AttributeValue::S(huge())),
        ("leaseDuration", AttributeValue::S(format!("{}ms", "1".repeat(HUGE)))),
        ("recordVersionNumber", AttributeValue::S(huge())),
        ("recordVersionNumber", AttributeValue::S(format!("ll1-{}", huge()))),
        ("isReleased", AttributeValue::S(huge())),
        ("workflow", AttributeValue::S(huge())),
        ("attributeNames", AttributeValue::S(huge())),
        ("data", AttributeValue::B(huge().into_bytes().into())),
        ("data", AttributeValue::B(vec![0xff; HUGE].into())),
        ("data", AttributeValue::S(huge())),
        ("fencingToken", AttributeValue::S(huge())),
        ("fencingToken", AttributeValue::N(number.clone())),
        ("leaseEndsAt", AttributeValue::S(huge())),
        ("leaseEndsAt", AttributeValue::N(number)),
    ] {
        let (function, lock) = spoilt(attribute, value.clone()).await;
        for request in [
            acquire("me"),
            with(acquire("me"), json!({ "whenHeld": "report" })),
            with(acquire("me"), json!({ "whenHeld": "failWithReport" })),
            with(acquire("somebody"), json!({ "reclaim": true })),
            json!({ "action": "renew", "lock": lock, "leaseSeconds": 300 }),
            json!({ "action": "release", "lock": lock }),
            acquire("me"),
        ] {
            let what = format!("{attribute} as {:.9}… asked for {}", format!("{value:?}"), request["action"]);
            assert_small(&what, &function.call(request).await);
        }
    }
}

#[tokio::test]
async fn a_request_with_a_huge_text_in_any_field_gets_a_small_error() {
    let function = Function::start().await;
    let lock = function.lock("somebody").await;
    for field in [
        "action",
        "key",
        "owner",
        "leaseSeconds",
        "waitSeconds",
        "whenHeld",
        "data",
        "attributes",
        "execution",
        "reclaim",
        "maxRetryAfterSeconds",
        "observation",
        "waitedSeconds",
        "sortKey",
        "lock",
    ] {
        assert_small(field, &function.call(with(acquire("me"), json!({ field: huge() }))).await);
    }
    for field in ["key", "owner", "version", "fencingToken", "leaseSeconds", "leaseEndsAt", "data"] {
        let lock = with(lock.clone(), json!({ field: huge() }));
        for action in ["renew", "release"] {
            let request = json!({ "action": action, "lock": lock, "leaseSeconds": 300 });
            assert_small(field, &function.call(request).await);
        }
    }
    let unknown = function.call(with(acquire("me"), json!({ huge(): 1 }))).await;
    assert_small("a field of its own", &unknown);
    assert_failure(unknown, "InvalidRequest", "(64 of 380000 bytes)");
}

#[tokio::test]
async fn the_longest_key_and_owner_are_quoted_in_part() {
    let function = Function::start().await;
    let (key, owner) = ("k".repeat(2048), "x".repeat(2048));
    let request = with(acquire(&owner), json!({ "key": key }));
    let lock = function.answer(request.clone()).await["lock"].clone();
    assert_eq!((&lock["key"], &lock["owner"]), (&json!(key), &json!(owner)), "a response has them in full");
    let held = function.call(with(request.clone(), json!({ "owner": "me" }))).await;
    assert_small("held", &held);
    assert_failure(held, "LockHeld", "(64 of 2048 bytes)");
    assert_small("held by the same name", &function.call(request).await);
    function.answer(json!({ "action": "release", "lock": lock })).await;
    let lost = function.call(json!({ "action": "renew", "lock": lock, "leaseSeconds": 300 })).await;
    assert_small("lost", &lost);
    assert_failure(lost, "LockLost", "stop, and do not write");
}

#[tokio::test]
async fn many_long_keys_and_a_long_owner_leave_no_large_answer_and_no_large_error() {
    let function = Function::start().await;
    let keys = |count: usize, of: &str| {
        (0..count).map(|index| format!("{index:04}{}", of.repeat(2044 / of.len()))).collect::<Vec<_>>()
    };
    let request = |keys: &[String], owner: &str| json!({ "action": "acquire", "keys": keys, "owner": owner, "leaseSeconds": 300 });
    let long = keys(20, "k");
    let lock = function.answer(request(&long, &"x".repeat(2048))).await["lock"].clone();
    assert!(lock.to_string().len() <= MAX_ANSWER_BYTES, "{}", lock.to_string().len());
    for when in ["fail", "report", "failWithReport"] {
        let refused = function.call(with(request(&long, "me"), json!({ "whenHeld": when }))).await;
        assert_small(when, &refused);
    }
    function.answer(json!({ "action": "release", "lock": lock })).await;
    let lost = function.call(json!({ "action": "renew", "lock": lock, "leaseSeconds": 300 })).await;
    assert_small("lost", &lost);
    assert_failure(lost, "LockLost", "stop, and do not write");
    for (count, of, owner) in
        [(25, "k", "x".repeat(2048)), (20, "\u{1}", "me".to_owned()), (12, "j", "\u{1}".repeat(2048))]
    {
        let answer = function.call(request(&keys(count, of), &owner)).await;
        assert_small(of, &answer);
        if let Err(refused) = answer {
            assert_eq!(refused.error_type(), "InvalidRequest", "{}", refused.message());
            assert!(refused.message().contains("in the response"), "{}", refused.message());
            for key in keys(count, of) {
                assert_eq!(function.server.row(&key).await, None, "nothing is held");
            }
        }
    }
}

#[tokio::test]
async fn a_text_is_cut_between_two_characters() {
    let function = Function::start().await;
    let owner = format!("{}{}", "o".repeat(15), "ü".repeat(100));
    function.answer(acquire(&owner)).await;
    let quote = format!("{}…{}", "o".repeat(15), "ü".repeat(24));
    assert_failure(function.call(acquire("me")).await, "LockHeld", &format!("{quote:?} (63 of 215 bytes)"));
}

#[tokio::test]
async fn data_of_more_than_32_kb_is_an_invalid_request() {
    let function = Function::start().await;
    for data in ["x".repeat(MAX_DATA_BYTES + 1), "x".repeat(500_000)] {
        let refused = function.call(with(acquire("me"), json!({ "data": data }))).await;
        assert!(refused.as_ref().unwrap_err().message().starts_with("data "), "{refused:?}");
        assert_failure(refused, "InvalidRequest", "at most 32768");
    }
    assert_eq!(function.server.row("customer-7").await, None, "no request was sent");
    let data = "x".repeat(MAX_DATA_BYTES);
    let answer = function.answer(with(acquire("me"), json!({ "data": data }))).await;
    assert_eq!((&answer["lock"]["data"], answer.get("dataOmitted")), (&json!(data), None));
}

#[tokio::test]
async fn a_larger_payload_on_the_row_is_left_out_and_the_answer_says_so() {
    let small = AttributeValue::B(vec![b'x'; MAX_DATA_BYTES].into());
    let large = AttributeValue::B(vec![b'x'; MAX_DATA_BYTES + 1].into());
    // Each byte becomes a replacement character of three bytes.
    let no_text = AttributeValue::B(vec![0xff; MAX_DATA_BYTES / 2].into());
    // Each byte becomes six bytes in JSON.
    let escaped = AttributeValue::B(vec![1; MAX_DATA_BYTES].into());
    for (data, omitted) in [(small, false), (large, true), (no_text, true), (escaped, true)] {
        let function = Function::start().await;
        let lock = function.lock("somebody").await;
        function.answer(json!({ "action": "release", "lock": lock })).await;
        function.server.set("locks", ("key", "customer-7"), ("data", data.clone())).await;
        let answer = function.answer(acquire("me")).await;
        assert_eq!(answer["acquired"], true);
        assert_eq!(answer.get("dataOmitted"), omitted.then_some(&Value::Bool(true)));
        assert_eq!(answer["lock"].get("data").is_none(), omitted);
        assert!(answer.to_string().len() <= MAX_ANSWER_BYTES);
        assert_eq!(function.server.row("customer-7").await.unwrap()["data"], data, "the row keeps its payload");
        let renewed = function.answer(json!({ "action": "renew", "lock": answer["lock"], "leaseSeconds": 300 })).await;
        assert_eq!(renewed["lock"].get("data"), answer["lock"].get("data"));
    }
}

#[tokio::test]
async fn a_huge_owner_of_another_client_is_cut_in_a_report_and_a_huge_version_is_not_carried() {
    let function = Function::start().await;
    let owner = "o".repeat(100_000);
    let row =
        [("key", "customer-7"), ("ownerName", &*owner), ("leaseDuration", "200"), ("recordVersionNumber", "b2c6")];
    function.server.put(&row).await;
    let ask = with(acquire("me"), json!({ "whenHeld": "report" }));
    let report = function.answer(ask.clone()).await;
    assert_eq!(report["holder"]["owner"], owner[..2048]);
    assert_eq!(report["observation"]["version"], "b2c6");

    let version = "v".repeat(100_000);
    let row =
        [("key", "customer-7"), ("ownerName", "peer"), ("leaseDuration", "200"), ("recordVersionNumber", &*version)];
    function.server.put(&row).await;
    let report = function.answer(ask.clone()).await;
    assert_eq!((&report["observation"], &report["retryAfterSeconds"]), (&Value::Null, &json!(1)));
    // The observation in the response is still usable: a call that waits takes the lock over.
    pause(Duration::from_millis(10)).await;
    let again = json!({ "observation": report["observation"], "waitedSeconds": 1, "waitSeconds": 5 });
    assert_eq!(function.answer(with(ask, again)).await["acquired"], true);
}

#[tokio::test]
async fn a_report_in_an_error_is_whole_whatever_the_row_of_another_client_has() {
    let function = Function::start().await;
    // Six bytes each in JSON.
    let longest = "\u{1}".repeat(2048);
    for (version, carried) in [("b2c6", true), (&*longest, false)] {
        let row = [
            ("key", "customer-7"),
            ("ownerName", &*longest),
            ("leaseDuration", "200"),
            ("recordVersionNumber", version),
        ];
        function.server.put(&row).await;

        let failure = function.call(with(acquire("me"), json!({ "whenHeld": "failWithReport" }))).await.unwrap_err();

        let report: Value = serde_json::from_str(&failure.message()).unwrap();
        assert_eq!(report["observation"].is_object(), carried, "{failure}");
        assert!(report["holder"]["owner"].as_str().unwrap().ends_with("(64 of 2048 bytes)"), "{failure}");
    }
}

#[tokio::test]
async fn large_attributes_of_another_client_are_left_out_of_a_report_which_says_so() {
    let function = Function::start().await;
    let report = with(acquire("me"), json!({ "whenHeld": "report" }));
    for (bytes, omitted) in [(28_000, false), (29_000, true)] {
        let row = [
            ("key", "customer-7"),
            ("ownerName", "peer"),
            ("leaseDuration", "20000"),
            ("recordVersionNumber", "b2c6"),
            ("team", &"t".repeat(bytes)),
        ];
        function.server.put(&row).await;

        let holder = function.answer(report.clone()).await["holder"].clone();

        assert_eq!(holder.get("attributes").is_none(), omitted, "{bytes}");
        assert_eq!(holder.get("attributesOmitted").is_some(), omitted, "{bytes}");
    }
}

#[tokio::test]
async fn a_report_in_a_message_leaves_out_attributes_that_do_not_fit_and_keeps_the_observation() {
    let function = Function::start().await;
    let attributes = json!({ "small": "s", "large": "\u{1}".repeat(4_000) });
    function.answer(with(acquire("somebody"), json!({ "attributes": attributes }))).await;

    let failure = function.call(with(acquire("me"), json!({ "whenHeld": "failWithReport" }))).await.unwrap_err();

    assert!(failure.message().len() <= MAX_MESSAGE_BYTES, "{} bytes", failure.message().len());
    let told: Value = serde_json::from_str(&failure.message()).unwrap();
    assert_eq!((&told["holder"]["attributesOmitted"], told["holder"].get("attributes")), (&true.into(), None));
    assert!(told["observation"].is_object(), "{told}");
}
