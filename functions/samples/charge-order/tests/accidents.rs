//! The process crashes, is killed or is frozen at each step of the work. Each time the order is charged
//! exactly once, and its result is recorded.

#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on fails")]
#![allow(clippy::disallowed_methods, reason = "the accidents run in the background")]

use lambda_lock_local::authorize::Fate;
use lambda_lock_local::deployed::{answered, assert_error, template};
use lambda_lock_local::gateway::Conduct;
use lambda_lock_local::{Change, Invocation, Outcome, PaymentGateway, Sample, history};
use lambda_lock_testkit::soon;
use serde_json::{Value, json};
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};
use tokio::task::JoinHandle;

const NAME: &str = "charge-order";
const TABLE: &str = "OrdersTable";
/// Short, so that the lease ends soon: (3 s + 1 s of grace) × 1.05.
const TIMEOUT_SECONDS: u64 = 3;
const LEASE: Duration = Duration::from_millis(4200);
const SKEW: Duration = Duration::from_millis(200);

/// The function as the template deploys it, with a payment gateway.
struct Stage {
    sample: Sample,
    gateway: PaymentGateway,
}

impl Stage {
    /// Returns `None` when the template cannot be expanded.
    async fn new() -> Option<Self> {
        let gateway = PaymentGateway::start().await.unwrap();
        let skew = SKEW.as_millis().to_string();
        let environment =
            [("PAYMENT_GATEWAY_URL", gateway.url()), ("LOCK_MAX_CLOCK_SKEW_MS", &skew), ("ALLOW_SIMULATE", "true")];
        let mut template = template()?.with(NAME, &environment).with_history(TABLE);
        template.functions.get_mut(NAME).unwrap().timeout_seconds = TIMEOUT_SECONDS;
        let binary = Path::new(env!("CARGO_BIN_EXE_charge-order"));
        Some(Self { sample: Sample::deploy(&template, &[binary]).await.unwrap(), gateway })
    }

    async fn invoke(&self, order: Value) -> Invocation {
        self.sample.lambda.invoke(NAME, &order.to_string()).await.unwrap()
    }

    /// Invokes the function in the background, and waits until this step has begun.
    async fn until(&self, step: &str) -> JoinHandle<Invocation> {
        let (lambda, mut lines) = (self.sample.lambda.clone(), self.sample.lambda.log_lines());
        let slow = order_with(json!({ "simulate": { "stepMillis": 400 } })).to_string();
        let working = tokio::spawn(async move { lambda.invoke(NAME, &slow).await.unwrap() });
        let begun = format!("{step} begins");
        let at_work = async { while !lines.recv().await.unwrap().line.contains(&begun) {} };
        soon("it is at work", at_work).await;
        working
    }

    /// Returns the only environment of the function.
    fn environment(&self) -> u32 {
        let environments = self.sample.lambda.environments(NAME);
        assert_eq!(environments.len(), 1);
        environments[0]
    }

    /// Retries while another caller holds the order, as a queue does.
    async fn charged(&self) -> Value {
        let started = Instant::now();
        loop {
            let answer = self.sample.ask(NAME, &order()).await;
            match answer {
                Err((error_type, _)) if error_type == "LockHeld" => {}
                answer => return answer.unwrap(),
            }
            assert!(started.elapsed() < Duration::from_secs(120), "the order is still held after two minutes");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    async fn history(&self) -> Vec<Change> {
        history(self.sample.dynamodb.endpoint(), TABLE).await.unwrap()
    }

    /// Asserts that all effects before this step were applied, and no others.
    async fn assert_done_until(&self, step: &str) {
        let history = self.history().await;
        let row = history.last().map(|change| &change.after);
        assert_eq!(row.is_some(), step != "reserve", "{step}: {row:?}");
        assert_eq!(self.gateway.ledger().len(), usize::from(step == "record"), "{step}");
        assert!(row.is_none_or(|row| row["chargeId"].is_null()), "{step}: {row:?}");
    }

    /// Asserts that the order was charged once, and that this response has that charge.
    async fn assert_charged_once_by(&self, answer: &Value) {
        let charged: Vec<_> = self.gateway.ledger().into_iter().filter(|entry| entry.executed).collect();
        assert_eq!(charged.len(), 1);
        assert_eq!(answer["chargeId"], charged[0].charge_id);
        let recorded: Vec<_> =
            self.history().await.into_iter().filter(|change| !change.after["chargeId"].is_null()).collect();
        assert_eq!(recorded.len(), 1, "{recorded:?}");
        let row = &recorded[0].after;
        assert_eq!(row["chargeId"]["S"], answer["chargeId"]);
        assert_eq!(row["fencingToken"]["N"], answer["fencingToken"].to_string());
        // Later calls get the same result.
        let again = self.sample.ask(NAME, &order()).await.unwrap();
        assert_eq!((&again["replayed"], &again["chargeId"]), (&json!(true), &answer["chargeId"]));
        assert_eq!(again["fencingToken"], answer["fencingToken"]);
    }
}

/// Runs the same accident at each step, each time with a new function and new tables.
async fn at_every_step(accident: impl AsyncFn(&str, Stage)) {
    let one = async |step: &str| {
        if let Some(stage) = Stage::new().await {
            accident(step, stage).await;
        }
    };
    tokio::join!(one("reserve"), one("charge"), one("record"));
}

fn order() -> Value {
    json!({ "orderId": "o-1", "amount": 1250, "currency": "EUR" })
}

fn order_with(fields: Value) -> Value {
    let mut order = order();
    order.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    order
}

#[tokio::test]
async fn after_a_crash_at_any_step_the_next_attempt_charges_the_order_once() {
    at_every_step(async |step, stage| {
        let crashed = stage.invoke(order_with(json!({ "simulate": { "crashAt": step } }))).await;
        assert_eq!(crashed.outcome, Outcome::Exited("exit status 70".to_owned()), "{crashed:?}");
        stage.assert_done_until(step).await;
        assert_error(stage.sample.ask(NAME, &order()).await, "LockHeld", "is held by \"charge-order:$LATEST/");
        let answer = stage.charged().await;
        assert_eq!(answer["replayed"], false, "{step}");
        stage.assert_charged_once_by(&answer).await;
    })
    .await;
}

#[tokio::test]
async fn after_a_kill_at_the_deadline_at_any_step_the_next_attempt_charges_the_order_once() {
    at_every_step(async |step, stage| {
        let working = stage.until(step).await;
        stage.sample.lambda.freeze(stage.environment()).unwrap();
        let killed = working.await.unwrap();
        assert_eq!(killed.outcome, Outcome::TimedOut, "{killed:?}");
        stage.assert_done_until(step).await;
        let answer = stage.charged().await;
        assert_eq!(answer["replayed"], false, "{step}");
        stage.assert_charged_once_by(&answer).await;
    })
    .await;
}

#[tokio::test]
async fn after_a_kill_without_warning_at_any_step_the_next_attempt_charges_the_order_once() {
    at_every_step(async |step, stage| {
        let working = stage.until(step).await;
        stage.sample.lambda.kill(stage.environment()).unwrap();
        let killed = working.await.unwrap();
        assert_eq!(killed.outcome, Outcome::Exited("signal: killed".to_owned()), "{killed:?}");
        stage.assert_done_until(step).await;
        let answer = stage.charged().await;
        stage.assert_charged_once_by(&answer).await;
    })
    .await;
}

#[tokio::test]
async fn an_attempt_frozen_at_any_step_for_longer_than_its_lease_is_lost_and_changes_nothing() {
    at_every_step(async |step, stage| {
        let working = stage.until(step).await;
        let environment = stage.environment();
        stage.sample.lambda.stand_still(environment).unwrap();
        stage.assert_done_until(step).await;
        tokio::time::sleep(LEASE + SKEW).await;
        let answer = stage.charged().await;
        assert_eq!(answer["replayed"], false, "{step}");
        assert!(!working.is_finished());
        stage.sample.lambda.thaw(environment).unwrap();
        assert_error(answered(working.await.unwrap()), "LockLost", "");
        stage.assert_charged_once_by(&answer).await;
    })
    .await;
}

#[tokio::test]
async fn an_attempt_frozen_for_a_moment_at_any_step_continues() {
    at_every_step(async |step, stage| {
        let working = stage.until(step).await;
        let environment = stage.environment();
        stage.sample.lambda.freeze(environment).unwrap();
        assert_error(stage.sample.ask(NAME, &order()).await, "LockHeld", "order/o-1");
        stage.sample.lambda.thaw(environment).unwrap();
        let answer = answered(working.await.unwrap()).unwrap();
        assert_eq!(answer["replayed"], false, "{step}");
        stage.assert_charged_once_by(&answer).await;
    })
    .await;
}

#[tokio::test]
async fn an_effect_whose_response_is_lost_at_any_step_is_applied_once() {
    at_every_step(async |step, stage| {
        stage.never_answer(step);
        let unheard = answered(stage.invoke(order()).await).unwrap_err();
        assert_eq!(unheard.0, if step == "charge" { "WorkFailed" } else { "LockUnknown" }, "{unheard:?}");
        stage.sample.proxy.decide(|_| Fate::Answered);
        stage.gateway.decide(|_| Conduct::Answers);
        let answer = stage.charged().await;
        assert_eq!(answer["replayed"], step == "record", "a recorded charge is replayed: {step}");
        stage.assert_charged_once_by(&answer).await;
    })
    .await;
}

impl Stage {
    /// From now on the responses to this step's effect are lost.
    fn never_answer(&self, step: &str) {
        const NEVER: Duration = Duration::from_secs(60);
        let from = match step {
            "charge" => return self.gateway.decide(|_| Conduct::AnswersAfter(NEVER)),
            "reserve" => 0,
            _ => 1,
        };
        let transactions = AtomicU32::new(0);
        self.sample.proxy.decide(move |call| {
            let is_transaction = call.needs.iter().any(|grant| grant.resource.ends_with(TABLE));
            let place = transactions.fetch_add(u32::from(is_transaction), Ordering::SeqCst);
            if is_transaction && place >= from { Fate::AnsweredAfter(NEVER) } else { Fate::Answered }
        });
    }
}

#[tokio::test]
async fn one_of_two_calls_at_once_charges_and_the_other_gets_held() {
    let Some(stage) = Stage::new().await else { return };
    let slow = || order_with(json!({ "simulate": { "stepMillis": 200 } }));
    let (first, second) = tokio::join!(stage.invoke(slow()), stage.invoke(slow()));
    let (mut charged, mut told) = (Vec::new(), Vec::new());
    for answer in [answered(first), answered(second)] {
        match answer {
            Ok(answer) => charged.push(answer),
            Err(refusal) => told.push(refusal),
        }
    }
    assert_eq!((charged.len(), told.len()), (1, 1), "{charged:?} {told:?}");
    assert_eq!(told[0].0, "LockHeld", "{told:?}");
    stage.assert_charged_once_by(&charged[0]).await;
    assert_eq!(stage.gateway.ledger().len(), 1, "the other call sent no request to the gateway");
}

#[tokio::test]
async fn another_payload_is_refused_after_a_crash_too_and_the_first_one_is_charged() {
    let Some(stage) = Stage::new().await else { return };
    stage.invoke(order_with(json!({ "simulate": { "crashAt": "charge" } }))).await;
    tokio::time::sleep(LEASE + SKEW).await;
    let other = stage.sample.ask(NAME, &order_with(json!({ "amount": 1 }))).await;
    assert_error(other, "InvalidRequest", "orderId belongs to an order");
    let answer = stage.charged().await;
    stage.assert_charged_once_by(&answer).await;
    assert_eq!(stage.gateway.ledger()[0].amount, 1250);
}

#[tokio::test]
async fn a_result_that_is_too_large_is_failed_work_and_leaves_the_process_alive() {
    let Some(stage) = Stage::new().await else { return };
    stage.gateway.decide(|_| Conduct::Calls("x".repeat(500_000)));
    let failed = stage.invoke(order()).await;
    assert_error(answered(failed), "WorkFailed", "bytes");
    assert!(stage.history().await.iter().all(|change| change.after["chargeId"].is_null()));
    let other = stage.invoke(order_with(json!({ "orderId": "o-2" }))).await;
    assert!(!other.cold_start, "{other:?}");
    assert_error(stage.sample.ask(NAME, &order()).await, "WorkFailed", "bytes");
}

#[tokio::test]
async fn failed_work_releases_the_attempt_at_once_at_any_step() {
    let Some(stage) = Stage::new().await else { return };
    for step in ["reserve", "charge", "record"] {
        let failed = stage.sample.ask(NAME, &order_with(json!({ "simulate": { "failAt": step } }))).await;
        assert_error(failed, "WorkFailed", &format!("{step} failed"));
    }
    // The next call does not have to wait for a lease.
    let answer = stage.sample.ask(NAME, &order()).await.unwrap();
    stage.assert_charged_once_by(&answer).await;
}
