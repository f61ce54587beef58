//! The binary as the template deploys it: its environment, permissions, queue and logs.

#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on fails")]
#![allow(clippy::disallowed_methods, reason = "the tests wait for deliveries")]

use lambda_lock_local::authorize::Role;
use lambda_lock_local::deployed::{
    MARK, answered, assert_counted, assert_does_not_start, assert_tells_nothing, first_answer_lost, template,
};
use lambda_lock_local::gateway::Conduct;
use lambda_lock_local::{ExpandedQueue, Expansion, PaymentGateway, Queue, Sample};
use lambda_lock_testkit::soon;
use serde_json::{Value, json};
use std::path::Path;

const NAME: &str = "order-queue";

async fn deploy(template: &Expansion) -> Sample {
    Sample::deploy(template, &[Path::new(env!("CARGO_BIN_EXE_order-queue"))]).await.unwrap()
}

/// The queue of the template, but with times that are short enough for a test. On a busy machine a batch may take a second,
/// and must not be delivered again meanwhile.
fn impatient(template: &Expansion) -> ExpandedQueue {
    ExpandedQueue { visibility_timeout_seconds: 4.0, ..template.queue_of(NAME).unwrap().clone() }
}

fn deliver(template: &Expansion, sample: &Sample) -> Queue {
    let role = &template.function(NAME).unwrap().allows;
    Queue::start(&sample.lambda, impatient(template), role, 2).unwrap()
}

async fn until_empty(queue: &Queue) {
    soon("the queue is empty", queue.until_empty()).await;
}

fn order(id: &str) -> Value {
    json!({ "orderId": id, "amount": 1250, "currency": "EUR" })
}

fn batch(bodies: &[String]) -> Value {
    let record = |(place, body): (usize, &String)| json!({ "messageId": place.to_string(), "body": body });
    json!({ "Records": bodies.iter().enumerate().map(record).collect::<Vec<_>>() })
}

#[tokio::test]
async fn a_batch_whose_first_answer_is_lost_is_charged_with_exactly_what_the_template_allows() {
    let Some(template) = template() else { return };
    let allows = template.allows(NAME);

    let sample = deploy(&template).await;
    sample.proxy.decide(first_answer_lost());
    let queue = deliver(&template, &sample);
    queue.send(order("o-1").to_string());
    until_empty(&queue).await;
    assert_eq!((queue.dead_letters().len(), queue.deliveries().messages), (0, 1));
    let used: Role = sample.proxy.used(NAME).union(&Queue::needs(&impatient(&template))).cloned().collect();
    assert_eq!(&used, allows, "used and allowed actions differ");
}

#[tokio::test]
async fn without_any_one_of_its_permissions_no_order_is_charged() {
    let Some(template) = template() else { return };
    let allows = template.allows(NAME);
    assert_eq!(allows.len(), 6, "{allows:?}");
    for missing in allows {
        let less = template.without(NAME, missing);
        let sample = deploy(&less).await;
        let role = &less.function(NAME).unwrap().allows;
        if missing.action.starts_with("sqs:") {
            let refused = Queue::start(&sample.lambda, impatient(&less), role, 1).unwrap_err().to_string();
            assert!(refused.contains(&missing.to_string()), "{refused}");
            continue;
        }
        sample.proxy.decide(first_answer_lost());
        let answer = sample.ask(NAME, &batch(&[order("o-1").to_string()])).await.unwrap();
        assert_eq!(answer, json!({ "batchItemFailures": [{ "itemIdentifier": "0" }] }), "without {missing}");
    }
}

#[tokio::test]
async fn the_visibility_timeout_is_six_times_the_functions_and_failures_are_reported() {
    let Some(template) = template() else { return };
    let (queue, function) = (template.queue_of(NAME).unwrap(), template.function(NAME).unwrap());
    assert!(queue.visibility_timeout_seconds >= 6.0 * function.timeout_seconds as f64, "{queue:?}");
    assert!(queue.reports_batch_item_failures && queue.max_receive_count >= 5, "{queue:?}");
}

#[tokio::test]
async fn failed_messages_are_delivered_again_until_they_are_charged_or_dead_letters() {
    let Some(template) = template() else { return };
    let gateway = PaymentGateway::start().await.unwrap();
    let template = template.with(NAME, &[("PAYMENT_GATEWAY_URL", gateway.url())]);
    let sample = deploy(&template).await;
    let asked = std::sync::atomic::AtomicU32::new(0);
    gateway.decide(move |id| {
        match (id, asked.fetch_add(u32::from(id == "o-3"), std::sync::atomic::Ordering::SeqCst)) {
            ("o-3", 0..2) => Conduct::Refuses(402),
            _ => Conduct::Answers,
        }
    });
    let queue = deliver(&template, &sample);
    for number in 0..20 {
        queue.send(order(&format!("o-{number}")).to_string());
    }
    queue.send("no order");
    until_empty(&queue).await;
    assert_eq!(queue.dead_letters(), ["no order"]);
    assert_eq!(gateway.ledger().iter().filter(|entry| entry.executed).count(), 20);
    // o-3 was delivered three times, and the malformed message five times, which is the limit.
    assert_eq!(queue.deliveries().messages, 19 + 3 + 5);
}

#[tokio::test]
async fn a_message_that_crashes_the_process_delays_its_batch_by_one_delivery() {
    let Some(template) = template() else { return };
    let gateway = PaymentGateway::start().await.unwrap();
    let environment =
        [("PAYMENT_GATEWAY_URL", gateway.url()), ("LOCK_MAX_CLOCK_SKEW_MS", "200"), ("ALLOW_SIMULATE", "true")];
    let mut template = template.with(NAME, &environment);
    // Makes the lease short enough for a test.
    template.functions.get_mut(NAME).unwrap().timeout_seconds = 2;
    template.queues[0].max_receive_count = 2;
    let sample = deploy(&template).await;
    let role = &template.function(NAME).unwrap().allows;
    let settings = ExpandedQueue { visibility_timeout_seconds: 4.0, batch_size: 3, ..template.queues[0].clone() };
    let queue = Queue::start(&sample.lambda, settings, role, 1).unwrap();
    queue.send(order("o-0").to_string());
    queue.send(order("o-1").to_string());
    let mut poison = order("o-2");
    poison["simulate"] = json!({ "crashAt": "charge" });
    queue.send(poison.to_string());
    // o-1 shares the first batch with the message that crashes. Both are delivered again, and then o-1
    // is charged.
    until_empty(&queue).await;
    assert!(queue.deliveries().failed_batches >= 1);
    let dead = queue.dead_letters();
    assert!(dead.iter().any(|body| body.contains("crashAt")), "{dead:?}");
}

#[tokio::test]
async fn a_wrong_variable_stops_the_start_with_a_sentence_that_names_it() {
    let Some(template) = template() else { return };
    for (name, value, says) in [
        ("ORDERS_TABLE", "", "ORDERS_TABLE is not set"),
        ("PAYMENT_GATEWAY_URL", "pay.example.com", "PAYMENT_GATEWAY_URL is "),
    ] {
        let sample = deploy(&template.with(NAME, &[(name, value)])).await;
        let stopped = sample.lambda.invoke(NAME, "{}").await.unwrap();
        assert_does_not_start(&stopped, says);
    }
}

#[tokio::test]
async fn neither_payloads_nor_credentials_are_logged_whatever_the_log_level() {
    let Some(template) = template() else { return };
    let sample = deploy(&template.loud(NAME)).await;
    let wrong = json!({ "orderId": "o-2", "amount": 1, "currency": "EUR", "note": MARK });
    let event = batch(&[order("o-1").to_string(), wrong.to_string(), format!("{MARK} {{")]);
    let ran = sample.lambda.invoke(NAME, &event.to_string()).await.unwrap();
    let logs = ran.logs.clone();
    assert_eq!(answered(ran).unwrap()["batchItemFailures"].as_array().unwrap().len(), 2);
    assert!(
        logs.contains("note is no field") && logs.contains("InvalidRequest"),
        "the reason of a failed message is missing in the log: {logs}"
    );
    assert_tells_nothing(&logs);
    assert_counted(&logs);
}
