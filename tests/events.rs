//! Each operation ends with one event that subscribers can count.
//!
//! This is a separate binary, because an event is lost when a test without a subscriber is the first one that logs it.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a helper of a test may stop it")]

use lambda_lock::Error;
use lambda_lock_testkit::{Fault, Table, granted, millis, secs};
use serde_json::{Map, Value, json};
use std::fmt::Debug;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::time::sleep;
use tracing::Level;
use tracing::field::{Field, Visit};
use tracing::subscriber::DefaultGuard;
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};

const LEASE: Duration = secs(20);

/// The events of ended operations. All have this level.
#[derive(Clone)]
struct Events(Arc<Mutex<Vec<Value>>>, Level);

struct Fields(Map<String, Value>);

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.0.insert(field.name().to_owned(), json!(format!("{value:?}")));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.insert(field.name().to_owned(), json!(value));
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.0.insert(field.name().to_owned(), json!(value));
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.0.insert(field.name().to_owned(), json!(value));
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.0.insert(field.name().to_owned(), json!(value));
    }
}

impl<S: tracing::Subscriber> Layer<S> for Events {
    fn on_event(&self, event: &tracing::Event<'_>, _: Context<'_, S>) {
        if event.metadata().target() == "lambda_lock::operation" {
            assert_eq!(*event.metadata().level(), self.1);
            let mut fields = Fields(Map::new());
            event.record(&mut fields);
            self.0.lock().unwrap().push(Value::Object(fields.0));
        }
    }
}

/// The lines for whoever operates the process.
#[derive(Clone, Default)]
struct Warnings(Arc<Mutex<Vec<Value>>>);

impl<S: tracing::Subscriber> Layer<S> for Warnings {
    fn on_event(&self, event: &tracing::Event<'_>, _: Context<'_, S>) {
        if *event.metadata().level() == Level::WARN {
            let mut fields = Fields(Map::new());
            event.record(&mut fields);
            self.0.lock().unwrap().push(Value::Object(fields.0));
        }
    }
}

impl Events {
    fn collected() -> (Self, DefaultGuard) {
        Self::collected_at(Level::DEBUG)
    }

    fn collected_at(level: Level) -> (Self, DefaultGuard) {
        let events = Self(Arc::default(), level);
        let guard = tracing::subscriber::set_default(tracing_subscriber::registry().with(events.clone()));
        (events, guard)
    }

    /// The events since the last call, without the clock's offset.
    fn take(&self) -> Vec<Value> {
        let mut events = std::mem::take(&mut *self.0.lock().unwrap());
        for event in &mut events {
            event.as_object_mut().unwrap().remove("clock_offset_ms");
        }
        events
    }

    fn only(&self) -> Value {
        let events = self.take();
        let [event] = events.as_slice() else { panic!("{events:?}") };
        event.clone()
    }
}

fn ended(operation: &str, outcome: &str, more: Value) -> Value {
    let mut event = json!({ "operation": operation, "key": "k", "outcome": outcome, "requests": 1, "waited_ms": 0 });
    event.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    event
}

#[tokio::test(start_paused = true)]
async fn each_operation_tells_its_outcome_and_its_requests() {
    let (events, _guard) = Events::collected();
    let table = Table::new();
    let process = table.process();
    let locks = process.locks("me");

    let mut lock = granted(locks.acquire("k").lease(LEASE).try_once()).await;
    assert_eq!(events.only(), ended("acquire", "granted", json!({ "takeover": false })));

    assert!(locks.acquire("k").lease(LEASE).try_once().await.unwrap().granted().is_none());
    assert_eq!(events.only(), ended("acquire", "held", json!({})));

    lock.checkpoint().await.unwrap();
    assert_eq!(events.only(), ended("renew", "renewed", json!({})));

    locks.operator().peek("k").await.unwrap();
    assert_eq!(events.only(), ended("peek", "found", json!({})));
    locks.operator().peek("nobody's").await.unwrap();
    assert_eq!(events.only()["outcome"], "no row");

    sleep(secs(3)).await;
    lock.release().await.unwrap();
    let released = events.only();
    let age = released["lease_age_ms"].as_u64().unwrap();
    // The lease began before the renewal was sent.
    assert!((3_000..3_100).contains(&age), "{age}");
    assert_eq!(released, ended("release", "Released", json!({ "lease_age_ms": age })));
}

#[tokio::test(start_paused = true)]
async fn a_grant_that_replaces_a_holder_who_did_not_release_is_a_takeover() {
    let (events, _guard) = Events::collected();
    let table = Table::new();
    let (one, two) = (table.process(), table.process());
    let _ = granted(one.locks("one").acquire("k").lease(LEASE).try_once()).await.save();
    events.take();

    let lock = two.locks("two").acquire("k").within(&two.budget(secs(60))).await.unwrap();
    let taken = events.only();
    assert_eq!((&taken["outcome"], &taken["takeover"]), (&json!("granted"), &json!(true)));
    assert!(taken["waited_ms"].as_u64().unwrap() > 15_000, "{taken}");
    assert!(taken["requests"].as_u64().unwrap() > 2, "{taken}");

    // The next one finds it released.
    lock.release().await.unwrap();
    events.take();
    let _lock = granted(one.locks("one").acquire("k").lease(LEASE).try_once()).await;
    assert_eq!(events.only()["takeover"], false);
}

#[tokio::test(start_paused = true)]
async fn lost_locks_unknown_outcomes_and_work_that_was_cut_short_are_told() {
    let (events, _guard) = Events::collected();
    let table = Table::new();
    let (one, two) = (table.process(), table.process());

    let mut lock = granted(one.locks("one").acquire("k").lease(LEASE).owner("me").try_once()).await;
    let _other = granted(two.locks("two").acquire("k").lease(LEASE).owner("me").reclaim_own().try_once()).await;
    events.take();
    assert!(lock.checkpoint().await.is_err());
    assert_eq!(events.only(), ended("renew", "Lost", json!({})));

    let lock = granted(one.locks("one").acquire("k-2").lease(LEASE).owner("me").try_once()).await;
    let _other = granted(two.locks("two").acquire("k-2").lease(LEASE).owner("me").reclaim_own().try_once()).await;
    events.take();
    lock.release().await.unwrap();
    let released = events.only();
    assert_eq!((&released["operation"], &released["outcome"]), (&json!("release"), &json!("Lost")));

    one.next(std::iter::repeat_n(Fault::throttled(), 100));
    let failed = one.locks("one").acquire("other").lease(LEASE).within(&one.budget(secs(2))).try_once().await;
    let kind = format!("{:?}", failed.unwrap_err().kind());
    assert_eq!(events.only()["outcome"], kind);
    one.clear();

    let cut: Result<(), Error> = one
        .locks("one")
        .with_lock("work", &one.budget(millis(3_000)), async |_| {
            sleep(secs(600)).await;
            Ok(())
        })
        .await;
    assert_eq!(cut.unwrap_err().kind(), lambda_lock::ErrorKind::CutShort);
    let told = events.take();
    assert!(told.contains(&json!({ "operation": "work", "key": "work", "outcome": "CutShort" })), "{told:?}");
}

#[tokio::test(start_paused = true)]
async fn the_offset_of_the_wall_clock_is_told_with_each_response() {
    let (events, _guard) = Events::collected();
    let table = Table::new();
    let process = table.process();
    for seconds in [0, 40, -40] {
        process.set_date_offset(Some(seconds));
        process.locks("me").operator().peek("k").await.unwrap();
        let told = std::mem::take(&mut *events.0.lock().unwrap());
        let offset = told[0]["clock_offset_ms"].as_i64().unwrap();
        assert!((offset - seconds * 1000).abs() <= 1_000, "{seconds} {told:?}");
    }
    process.set_date_offset(None);
    process.locks("me").operator().peek("k").await.unwrap();
    assert_eq!(events.0.lock().unwrap()[0].get("clock_offset_ms"), None);
}

#[tokio::test(start_paused = true)]
async fn a_client_that_is_told_to_reports_its_operations_at_info() {
    let (events, _guard) = Events::collected_at(Level::INFO);
    let table = Table::new();
    let process = table.process();
    let locks = process.builder().operations_at_info().build().unwrap();
    let operations = || events.take().iter().map(|event| event["operation"].clone()).collect::<Vec<_>>();

    let lock = granted(locks.acquire("k").lease(LEASE).try_once()).await;
    lock.release().await.unwrap();
    locks.prefixed("team/").unwrap().operator().peek("k").await.unwrap();
    assert_eq!(operations(), ["acquire", "release", "peek"]);

    let budget = process.budget(millis(3_000));
    let too_long = async || {
        sleep(secs(600)).await;
        Ok::<_, Error>(())
    };
    locks.with_lock("one", &budget, async |_| too_long().await).await.unwrap_err();
    assert!(operations().contains(&json!("work")));

    let budget = process.budget(millis(3_000));
    locks.acquire_all(["a", "b"]).within(&budget).await.unwrap().run(async |_| too_long().await).await.unwrap_err();
    assert!(operations().contains(&json!("work")));
}

/// The alarm `ClocksApart` of the template counts lines with this field.
#[tokio::test(start_paused = true)]
async fn a_clock_that_is_too_far_from_dynamodb_s_is_one_warning_with_the_offset() {
    let warnings = Warnings::default();
    let _guard = tracing::subscriber::set_default(tracing_subscriber::registry().with(warnings.clone()));
    let table = Table::new();
    let process = table.process();
    let locks = process.locks("me");
    for seconds in [0, 0, 40, 40, 40] {
        process.set_date_offset(Some(seconds));
        locks.operator().peek("k").await.unwrap();
    }

    let told = warnings.0.lock().unwrap();
    let [warning] = told.as_slice() else { panic!("{told:?}") };
    assert!((39_000..41_000).contains(&warning["offset_millis"].as_i64().unwrap()), "{warning}");
}

#[tokio::test(start_paused = true)]
async fn sets_and_places_tell_one_event_for_each_call() {
    let (events, _guard) = Events::collected();
    let table = Table::new();
    let process = table.process();
    let locks = process.locks("me");
    let budget = process.budget(secs(60));

    let set = locks.acquire_all(["a", "b"]).within(&budget).await.unwrap();
    let told = events.only();
    assert_eq!(
        (&told["operation"], &told["key"], &told["outcome"]),
        (&json!("acquire"), &json!("a"), &json!("granted"))
    );
    set.release().await.unwrap();
    let keys: Vec<_> = events.take().into_iter().map(|event| event["key"].clone()).collect();
    assert_eq!(keys, ["a", "b"]);

    let permit = locks.semaphore("p", 2).acquire().within(&budget).await.unwrap();
    assert_eq!(events.only()["key"], "p");
    permit.release().await.unwrap();
}
