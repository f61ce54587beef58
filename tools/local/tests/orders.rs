//! Tests of what the functions for orders use: a queue, a payment gateway, and the history of a
//! table.

#![cfg(unix)]
#![allow(clippy::disallowed_methods, reason = "the tests wait for deliveries")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use aws_sdk_dynamodb::types::{AttributeValue, StreamSpecification, StreamViewType};
use lambda_lock::LockClient;
use lambda_lock_functions::Web;
use lambda_lock_local::gateway::Conduct;
use lambda_lock_local::{ExpandedQueue, Function, Lambda, LocalDynamoDb, PaymentGateway, Queue, client, history};
use lambda_lock_testkit::soon;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

const VISIBILITY: Duration = Duration::from_millis(400);

fn settings() -> ExpandedQueue {
    ExpandedQueue {
        arn: "arn:aws:sqs:eu-central-1:123456789012:messages".to_owned(),
        function: "demo-function".to_owned(),
        visibility_timeout_seconds: VISIBILITY.as_secs_f64(),
        max_receive_count: 3,
        batch_size: 2,
        reports_batch_item_failures: true,
    }
}

/// A function that cannot read a batch, so it fails for each one.
async fn failing() -> Lambda {
    let function = Function {
        name: "demo-function".to_owned(),
        binary: env!("CARGO_BIN_EXE_demo-function").into(),
        environment: [("LOCK_TABLE", "locks"), ("AWS_ENDPOINT_URL_DYNAMODB", "http://127.0.0.1:1")]
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .into(),
        timeout: Duration::from_secs(5),
        memory_mb: 128,
        ..Function::default()
    };
    Lambda::start(vec![function]).await.unwrap()
}

#[tokio::test]
async fn a_message_is_delivered_again_after_the_visibility_timeout_and_becomes_a_dead_letter_at_the_limit() {
    let lambda = failing().await;
    let started = Instant::now();
    let queue = Queue::start(&lambda, settings(), &Queue::needs(&settings()), 1).unwrap();
    for body in ["a", "b", "c"] {
        queue.send(body);
    }
    assert_eq!(queue.len(), 3);
    soon("the queue is empty", queue.until_empty()).await;
    // Each message was delivered three times, and was invisible after each delivery.
    assert!(started.elapsed() >= 3 * VISIBILITY, "{:?}", started.elapsed());
    let mut dead = queue.dead_letters();
    dead.sort();
    assert_eq!(dead, ["a", "b", "c"]);
    let deliveries = queue.deliveries();
    assert_eq!((deliveries.messages, deliveries.failed_batches), (9, deliveries.batches), "{deliveries:?}");
    assert!(deliveries.batches >= 5, "a batch had more than two messages: {deliveries:?}");
}

#[tokio::test]
async fn a_role_that_may_not_poll_the_queue_is_refused_at_once() {
    let lambda = failing().await;
    for missing in Queue::needs(&settings()) {
        let mut role = Queue::needs(&settings());
        role.remove(&missing);
        let refused = Queue::start(&lambda, settings(), &role, 1).unwrap_err().to_string();
        assert!(refused.contains(&missing.action), "{refused}");
    }
}

async fn charge(gateway: &PaymentGateway, id: &str, key: &str) -> Option<Value> {
    let order = json!({ "orderId": id, "amount": 1250, "currency": "EUR" }).to_string();
    let web = Web::new("URL", gateway.url()).unwrap();
    let headers = [("idempotency-key", key.to_owned())];
    let answered = web.post("/charges", &headers, order, Duration::from_millis(300)).await.ok()?;
    serde_json::from_slice(&answered.body).ok()
}

#[tokio::test]
async fn a_gateway_charges_once_for_a_key_and_its_ledger_has_every_request_that_it_carried_out() {
    let gateway = PaymentGateway::start().await.unwrap();
    let first = charge(&gateway, "o-1", "k-1").await.unwrap();
    gateway.decide(|_| Conduct::AnswerLost);
    assert_eq!(charge(&gateway, "o-1", "k-1").await, None);
    assert_eq!(charge(&gateway, "o-2", "k-2").await, None);
    gateway.decide(|_| Conduct::Silent);
    assert_eq!(charge(&gateway, "o-3", "k-3").await, None);
    gateway.decide(|_| Conduct::Answers);
    assert_eq!(charge(&gateway, "o-1", "k-1").await.unwrap(), first);
    let ledger = gateway.ledger();
    let lines: Vec<_> = ledger.iter().map(|entry| (entry.order_id.as_str(), entry.executed)).collect();
    assert_eq!(lines, [("o-1", true), ("o-1", false), ("o-2", true), ("o-1", false)]);
    assert_eq!(first["chargeId"], ledger[0].charge_id);
}

#[tokio::test]
async fn a_history_has_every_change_of_an_item_with_what_was_before() {
    let dynamodb = LocalDynamoDb::in_memory().await.unwrap();
    let client = client(dynamodb.endpoint());
    LockClient::builder(client.clone(), "locks").build().unwrap().operator().create_table().await.unwrap();
    let stream = StreamSpecification::builder().stream_enabled(true);
    let stream = stream.stream_view_type(StreamViewType::NewAndOldImages).build().unwrap();
    client.update_table().table_name("locks").stream_specification(stream).send().await.unwrap();
    for count in 0..1200 {
        let put = client.put_item().table_name("locks").item("key", AttributeValue::S("k".to_owned()));
        put.item("count", AttributeValue::N(count.to_string())).send().await.unwrap();
    }
    let changes = history(dynamodb.endpoint(), "locks").await.unwrap();
    assert_eq!(changes.len(), 1200, "the history must have more than one page");
    assert!(changes[0].before.is_null());
    for (count, change) in changes.iter().enumerate().skip(1) {
        assert_eq!(change.before["count"]["N"], (count - 1).to_string());
        assert_eq!(change.after["count"]["N"], count.to_string());
    }
}
