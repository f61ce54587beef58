use super::{Function, KEY, order, order_with};
use aws_sdk_dynamodb::types::AttributeValue;
use lambda_lock::Budget;
use lambda_lock_functions::test_support::{assert_failure, epoch_millis};
use lambda_lock_local::gateway::Conduct;
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;
use tokio::sync::Notify;

fn text(text: &str) -> AttributeValue {
    AttributeValue::S(text.to_owned())
}

fn number(number: impl ToString) -> AttributeValue {
    AttributeValue::N(number.to_string())
}

#[tokio::test]
async fn an_order_is_charged_and_its_row_says_so() {
    let function = Function::start().await;
    let answer = function.call(order()).await.unwrap();
    let ledger = function.gateway.ledger();
    assert_eq!(ledger.len(), 1);
    let token = answer["fencingToken"].as_u64().unwrap();
    let expected =
        json!({ "orderId": "o-1", "chargeId": ledger[0].charge_id, "fencingToken": token, "replayed": false });
    assert_eq!(answer, expected);
    let asked = (ledger[0].order_id.as_str(), ledger[0].amount, ledger[0].currency.as_str());
    assert_eq!(asked, ("o-1", 1250, "EUR"));
    let row = function.order("o-1").await.unwrap();
    let expected = [
        ("orderId", text("o-1")),
        ("amount", number(1250)),
        ("currency", text("EUR")),
        ("chargeId", text(&ledger[0].charge_id)),
        ("fencingToken", number(token)),
    ];
    assert_eq!(row, expected.map(|(name, value)| (name.to_owned(), value)).into());
}

#[tokio::test]
async fn a_second_call_returns_the_stored_result_and_charges_nothing() {
    let function = Function::start().await;
    let first = function.call(order()).await.unwrap();
    let second = function.call(order_with(json!({ "simulate": { "failAt": "reserve" } }))).await.unwrap();
    let mut expected = first;
    expected["replayed"] = true.into();
    assert_eq!(second, expected, "`simulate` is no part of the payload");
    assert_eq!(function.charged(), (1, 1));
}

#[tokio::test]
async fn fields_in_another_order_are_the_same_payload() {
    let function = Function::start().await;
    function.call(order()).await.unwrap();
    let turned: Value = serde_json::from_str(r#"{"currency":"EUR","amount":1250.0,"orderId":"o-1"}"#).unwrap();
    assert_eq!(function.call(turned).await.unwrap()["replayed"], true);
}

#[tokio::test]
async fn the_same_id_with_another_payload_is_an_invalid_request() {
    let function = Function::start().await;
    function.call(order()).await.unwrap();
    for other in [json!({ "amount": 1251 }), json!({ "currency": "USD" })] {
        assert_failure(function.call(order_with(other)).await, "InvalidRequest", "orderId belongs to an order");
    }
    assert_eq!(function.charged(), (1, 1));
}

#[tokio::test]
async fn what_reserve_wrote_refuses_another_payload_when_the_record_is_gone() {
    let function = Function::start().await;
    let failed = function.call(order_with(json!({ "simulate": { "failAt": "charge" } }))).await;
    assert_failure(failed, "WorkFailed", "charge failed, as the event asked for");
    let row = function.order("o-1").await.unwrap();
    assert_eq!((row.len(), &row["amount"], &row["currency"]), (3, &number(1250), &text("EUR")));

    function.server.delete("locks", "key", KEY).await;
    let other = function.call(order_with(json!({ "amount": 1251 }))).await;
    assert_failure(other, "InvalidRequest", "orderId belongs to an order");
    assert_eq!(function.charged(), (0, 0));
    function.server.delete("locks", "key", KEY).await;
    assert_eq!(function.call(order()).await.unwrap()["replayed"], false);
}

#[tokio::test]
async fn an_order_that_was_charged_longer_ago_than_results_are_kept_is_not_charged_again() {
    let function = Function::start().await;
    let first = function.call(order()).await.unwrap();
    let long_ago = number(epoch_millis() - 10_000);
    function.server.set("locks", ("key", KEY), ("keptUntilAt", long_ago)).await;
    let again = function.call(order()).await.unwrap();
    let mut expected = first;
    expected["replayed"] = true.into();
    assert_eq!(again, expected);
    assert_eq!(function.charged(), (1, 1));
    // Another payload is still refused.
    function.server.delete("locks", "key", KEY).await;
    let other = function.call(order_with(json!({ "amount": 1251 }))).await;
    assert_failure(other, "InvalidRequest", "orderId belongs to an order");
}

#[tokio::test]
async fn while_the_first_call_works_the_second_one_gets_its_holder() {
    let function = Function::start().await;
    // The gateway fails until the second call has its response.
    let (asked, told) = (Arc::new(Notify::new()), Arc::new(AtomicBool::new(false)));
    let (asks, tells) = (asked.clone(), told.clone());
    function.gateway.decide(move |_| {
        asks.notify_one();
        if tells.load(Ordering::SeqCst) { Conduct::Answers } else { Conduct::Refuses(503) }
    });
    let second = async {
        asked.notified().await;
        let second = function.call(order()).await;
        told.store(true, Ordering::SeqCst);
        second
    };
    let (first, second) = tokio::join!(function.call(order()), second);
    assert_failure(second, "LockHeld", "a-function:$LATEST/8f5a3c1e");
    assert_eq!(first.unwrap()["replayed"], false);
    assert_eq!(function.charged(), (1, 1));
}

#[tokio::test]
async fn an_attempt_that_was_taken_over_records_nothing() {
    let function = Function::start().await;
    // The gateway does not respond to the first request. So the first attempt waits while another one takes over.
    let (asked, requests) = (Arc::new(Notify::new()), AtomicU32::new(0));
    let asks = asked.clone();
    function.gateway.decide(move |_| {
        asks.notify_one();
        if requests.fetch_add(1, Ordering::SeqCst) == 0 { Conduct::Silent } else { Conduct::Answers }
    });
    let overtaken = async {
        asked.notified().await;
        // Sets the end of the lease into the past, so that the second call takes the lock over.
        function.server.set("locks", ("key", KEY), ("leaseEndsAt", number(1))).await;
        function.call(order()).await
    };
    let (first, second) = tokio::join!(function.call(order()), overtaken);
    let second = second.unwrap();
    assert_failure(first, "LockLost", "no longer ours");
    assert_eq!(second["replayed"], false);
    let row = function.order("o-1").await.unwrap();
    assert_eq!(row["fencingToken"], number(&second["fencingToken"]));
    assert_eq!(function.charged(), (2, 1), "the gateway got two requests and charged once");
}

#[tokio::test]
async fn a_table_with_a_sort_key_works_too() {
    let environment = [("LOCK_SORT_KEY_ATTRIBUTE", "sk")];
    let function = Function::with(&environment).await;
    assert_eq!(function.call(order()).await.unwrap()["replayed"], false);
    assert_eq!(function.call(order()).await.unwrap()["replayed"], true);
}

#[tokio::test]
async fn an_order_and_a_lock_of_the_same_name_are_two_locks() {
    let function = Function::start().await;
    let budget = Budget::lasting(Duration::from_secs(30));
    let lock = function.deps.locks.acquire("order/o-1").within(&budget).try_once().await.unwrap().granted().unwrap();
    assert_eq!(function.call(order()).await.unwrap()["replayed"], false);
    lock.release().await.unwrap();
}
