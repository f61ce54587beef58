//! The promises to the owner of a queue, tested on an embedded DynamoDB with a local payment
//! gateway.

use crate::{handler, run};
use charge_order::{Charged, Deps, Receipt};
use lambda_lock::Budget;
use lambda_lock_functions::Failure;
use lambda_lock_functions::test_support::{DynamoDb, assert_failure, event, pause, variables};
use lambda_lock_local::PaymentGateway;
use lambda_lock_local::gateway::Conduct;
use lambda_lock_testkit::takes;
use serde_json::{Value, json};
use std::cell::{Cell, RefCell};
use std::time::{Duration, Instant};

struct Function {
    gateway: PaymentGateway,
    deps: Deps,
}

impl Function {
    async fn start() -> Self {
        let server = DynamoDb::start().await;
        server.create_table("orders", "orderId").await;
        let gateway = PaymentGateway::start().await.unwrap();
        let environment =
            [("ORDERS_TABLE", "orders"), ("PAYMENT_GATEWAY_URL", gateway.url()), ("ALLOW_SIMULATE", "true")];
        let deps = Deps::new(&server.config(&[]).unwrap(), &variables(&environment)).unwrap();
        Self { gateway, deps }
    }

    /// Returns the messages that SQS must deliver again.
    async fn failed(&self, bodies: &[Value], seconds: f64) -> Vec<String> {
        reported(handler(event(&batch(bodies), seconds), &self.deps).await)
    }
}

/// Returns a batch as SQS delivers it. The id of a message is its position.
fn batch(bodies: &[Value]) -> Value {
    let record = |(place, body): (usize, &Value)| {
        let body = body.as_str().map_or_else(|| body.to_string(), str::to_owned);
        json!({ "messageId": place.to_string(), "body": body, "eventSource": "aws:sqs", "md5OfBody": "…" })
    };
    json!({ "Records": bodies.iter().enumerate().map(record).collect::<Vec<_>>() })
}

fn order(id: &str) -> Value {
    json!({ "orderId": id, "amount": 1250, "currency": "EUR" })
}

fn simulating(id: &str, simulate: Value) -> Value {
    let mut order = order(id);
    order["simulate"] = simulate;
    order
}

fn orders(count: usize) -> Vec<Value> {
    (0..count).map(|number| order(&format!("o-{number}"))).collect()
}

fn reported(answer: Result<Value, Failure>) -> Vec<String> {
    let answer = answer.unwrap();
    assert_eq!(answer.as_object().unwrap().len(), 1, "{answer}");
    let failures = answer["batchItemFailures"].as_array().unwrap().iter();
    let mut failed: Vec<_> = failures
        .map(|failure| {
            assert_eq!(failure.as_object().unwrap().len(), 1, "{failure}");
            failure["itemIdentifier"].as_str().unwrap().to_owned()
        })
        .collect();
    failed.sort();
    failed
}

fn charged() -> Result<Charged, Failure> {
    let receipt = Receipt { order_id: "o".to_owned(), charge_id: "c".to_owned(), fencing_token: 1 };
    Ok(Charged { receipt, replayed: false })
}

#[tokio::test]
async fn a_batch_is_charged_and_no_message_is_reported() {
    let function = Function::start().await;
    assert_eq!(function.failed(&orders(10), 30.0).await, Vec::<String>::new());
    assert_eq!(function.failed(&orders(10), 30.0).await, Vec::<String>::new(), "replayed messages are done too");
    let ledger = function.gateway.ledger();
    assert_eq!(ledger.iter().filter(|entry| entry.executed).count(), 10);
    assert_eq!(ledger.len(), 10, "the gateway got no second request");
}

#[tokio::test]
async fn only_failed_messages_are_reported() {
    let function = Function::start().await;
    function.failed(&[order("o-used")], 30.0).await;
    let bodies = [
        order("o-0"),
        simulating("o-1", json!({ "failAt": "charge" })),
        json!("no JSON {"),
        order("o-3"),
        json!({ "orderId": "o-4" }),
        simulating("o-5", json!({ "stepMillis": 50 })),
        // The message before it works on the same order.
        order("o-5"),
        json!({ "orderId": "o-used", "amount": 1, "currency": "EUR" }),
    ];
    assert_eq!(function.failed(&bodies, 30.0).await, ["1", "2", "4", "6", "7"]);
    // On the next delivery the order that was held is replayed, and the one that failed is charged.
    assert_eq!(function.failed(&[order("o-1"), order("o-5")], 30.0).await, Vec::<String>::new());
}

#[tokio::test]
async fn an_empty_batch_is_done_and_an_invalid_batch_is_refused() {
    let function = Function::start().await;
    assert_eq!(function.failed(&[], 30.0).await, Vec::<String>::new());
    for wrong in [json!({}), order("o-1"), json!({ "Records": [{ "body": "{}" }] }), json!([])] {
        let refused = handler(event(&wrong, 30.0), &function.deps).await;
        assert_failure(refused, "InvalidRequest", "Records is missing or malformed");
    }
}

#[tokio::test]
async fn no_more_than_five_orders_are_under_way_at_a_time() {
    let (now, most) = (Cell::new(0), Cell::new(0));
    let work = async |_, _| {
        now.set(now.get() + 1);
        most.set(most.get().max(now.get()));
        pause(Duration::from_millis(20)).await;
        now.set(now.get() - 1);
        charged()
    };
    assert_eq!(reported(run(event(&batch(&orders(12)), 30.0), work).await), Vec::<String>::new());
    assert_eq!(most.get(), 5);
}

#[tokio::test]
async fn the_time_is_shared_out_and_every_order_has_a_deadline_of_its_own() {
    let shares = RefCell::new(Vec::new());
    let work = async |_, budget: Budget| {
        shares.borrow_mut().push(budget.remaining().unwrap());
        charged()
    };
    run(event(&batch(&orders(10)), 20.5), work).await.unwrap();
    let shares = shares.into_inner();
    let about = |share: Duration, seconds: u64| share.abs_diff(Duration::from_secs(seconds)) < Duration::from_secs(1);
    // There are two rounds. The first one may take half of the time. It takes none, so the second
    // one has all of it.
    assert!(shares[..5].iter().all(|share| about(*share, 10)), "{shares:?}");
    assert!(shares[5..].iter().all(|share| about(*share, 20)), "{shares:?}");
}

#[tokio::test]
async fn a_message_that_hangs_is_reported_and_the_others_are_done() {
    takes(Duration::ZERO..Duration::from_millis(2500), async || {
        let started = Instant::now();
        let work = async |request: charge_order::Request, _| {
            if request.order.order_id == "o-1" {
                std::future::pending::<()>().await;
            }
            charged()
        };
        assert_eq!(reported(run(event(&batch(&orders(7)), 2.5), work).await), ["1"]);
        started.elapsed()
    })
    .await;
}

#[tokio::test]
async fn a_gateway_that_is_silent_for_one_order_delays_no_other_order() {
    takes(Duration::ZERO..Duration::from_millis(4000), async || {
        let function = Function::start().await;
        function.gateway.decide(|id| if id == "o-1" { Conduct::Silent } else { Conduct::Answers });
        let started = Instant::now();
        assert_eq!(function.failed(&orders(7), 4.0).await, ["1"]);
        let took = started.elapsed();
        assert_eq!(function.gateway.ledger().len(), 6);
        took
    })
    .await;
}

#[tokio::test]
async fn a_message_without_enough_time_is_reported_and_not_begun() {
    let function = Function::start().await;
    assert_eq!(function.failed(&orders(3), 0.9).await, ["0", "1", "2"]);
    assert_eq!(function.gateway.ledger(), []);
}
