//! The part of the demo with orders. Each one is charged exactly once, by a function that crashes
//! and from a queue.

use super::screen::{Screen, Seconds};
use super::stage::{PATIENCE, Stage, answer, hurried, invoke, until_done};
use anyhow::Context;
use lambda_lock_local::gateway::Conduct;
use lambda_lock_local::{ExpandedQueue, Lambda, Outcome, PaymentGateway, Queue};
use serde_json::{Value, json};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

pub(crate) const CHARGE_ORDER: &str = "charge-order";
pub(crate) const ORDER_QUEUE: &str = "order-queue";
/// Short, so that the end of the crashed function's lease can be watched.
const TIMEOUT: Duration = Duration::from_millis(2500);
const ORDERS: usize = 12;

/// How an order was charged once although its first attempt crashed.
#[derive(Debug)]
pub(crate) struct Crash {
    /// How many requests the gateway got, and how many charges it made.
    pub(crate) asked: usize,
    pub(crate) charged: usize,
    pub(crate) crashed: bool,
    /// Whether all calls returned the same charge, and the third one returned the stored result.
    pub(crate) is_replayed: bool,
}

/// The result of delivering the messages of a queue.
#[derive(Debug)]
pub(crate) struct Delivered {
    pub(crate) sent: usize,
    pub(crate) charged: usize,
    pub(crate) messages: u64,
    pub(crate) batches: u64,
    pub(crate) dead_letters: usize,
}

/// The functions, and a payment gateway that records all requests.
pub(crate) struct Act<'a> {
    screen: &'a Screen,
    lambda: Lambda,
    gateway: PaymentGateway,
}

impl<'a> Act<'a> {
    /// Starts this part.
    pub(crate) async fn begin(stage: &Stage<'a>) -> anyhow::Result<Self> {
        let gateway = PaymentGateway::start().await?;
        let own = [("PAYMENT_GATEWAY_URL", gateway.url())];
        let functions = stage.of_template(&[CHARGE_ORDER, ORDER_QUEUE])?.into_iter();
        let functions = functions.map(|function| hurried(function, TIMEOUT, &own)).collect();
        let title = "Orders, a payment gateway, and a queue: each order is charged exactly once";
        Ok(Self { screen: stage.screen, lambda: stage.begin(title, functions).await?, gateway })
    }

    /// charge-order crashes after the gateway has charged and before anything is recorded.
    pub(crate) async fn a_function_crashes_after_the_charge(&self) -> anyhow::Result<Crash> {
        let mut crashing = order(0);
        crashing["simulate"] = json!({ "crashAt": "record" });
        let crashed = invoke(&self.lambda, CHARGE_ORDER, &crashing).await?;
        let charge = self.gateway.ledger().first().context("nobody was charged")?.charge_id.clone();
        let crashed = matches!(crashed.outcome, Outcome::Exited(_));
        self.screen.said(CHARGE_ORDER, "crashes after the gateway has charged, before the charge is recorded");

        let started = Instant::now();
        let second = answer(&until_done(&self.lambda, CHARGE_ORDER, &order(0)).await?)?;
        let after = Seconds(started.elapsed());
        self.screen.said(
            CHARGE_ORDER,
            format_args!("took over {after} later, sent the same key to the gateway, recorded the charge"),
        );
        let third = answer(&invoke(&self.lambda, CHARGE_ORDER, &order(0)).await?)?;
        self.screen.said(CHARGE_ORDER, format_args!("called once more: replayed is {}", third["replayed"]));
        let same = |answer: &Value| answer["chargeId"] == charge;
        let is_replayed = same(&second) && same(&third) && second["replayed"] == false && third["replayed"] == true;
        Ok(Crash { asked: self.gateway.ledger().len(), charged: self.charged(), crashed, is_replayed })
    }

    /// Delivers a queue with an order whose card is refused at first, and with a message that is
    /// not an order.
    pub(crate) async fn a_queue_is_delivered(&self) -> anyhow::Result<Delivered> {
        let before = self.charged();
        let refused = AtomicBool::new(false);
        self.gateway.decide(move |id| match id == "order-3" && !refused.swap(true, Ordering::SeqCst) {
            true => Conduct::Refuses(402),
            false => Conduct::Answers,
        });
        let settings = queue();
        let queue = Queue::start(&self.lambda, settings.clone(), &Queue::needs(&settings), 2)?;
        for number in 1..=ORDERS {
            queue.send(order(number).to_string());
        }
        queue.send("no order");
        tokio::time::timeout(PATIENCE, queue.until_empty())
            .await
            .with_context(|| format!("the queue is not empty after {PATIENCE:?}"))?;
        let (deliveries, dead_letters) = (queue.deliveries(), queue.dead_letters().len());
        let (messages, batches) = (deliveries.messages, deliveries.batches);
        self.screen.said(ORDER_QUEUE, format_args!("{messages} deliveries in {batches} batches, {dead_letters} dead"));
        Ok(Delivered { sent: ORDERS, charged: self.charged() - before, messages, batches, dead_letters })
    }

    fn charged(&self) -> usize {
        self.gateway.ledger().iter().filter(|entry| entry.executed).count()
    }
}

fn order(number: usize) -> Value {
    json!({ "orderId": format!("order-{number}"), "amount": 1250, "currency": "EUR" })
}

/// The template's queue, with shorter times.
fn queue() -> ExpandedQueue {
    ExpandedQueue {
        arn: "arn:aws:sqs:eu-central-1:123456789012:OrderMessages".to_owned(),
        function: ORDER_QUEUE.to_owned(),
        visibility_timeout_seconds: 0.5,
        max_receive_count: 3,
        batch_size: 10,
        reports_batch_item_failures: true,
    }
}
