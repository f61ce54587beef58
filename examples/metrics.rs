//! Counts what locks do with OpenTelemetry. Copy `Counting` into your function.
//!
//! The crate reports each operation at its end as one event of `tracing`. The layer below turns the events into
//! instruments of a meter. A function gives the meter an exporter of its own, such as OTLP, and flushes it before its
//! invocation ends.
//!
//! Run it with `cargo run --example metrics`. It needs no AWS account.

#![allow(clippy::print_stdout, reason = "an example shows what it does")]

use lambda_lock::{Budget, Error, LockClient};
use lambda_lock_local::LocalDynamoDb;
use opentelemetry::KeyValue;
use opentelemetry::metrics::{Counter, Histogram, Meter, MeterProvider as _};
use opentelemetry_sdk::metrics::data::{AggregatedMetrics, MetricData};
use opentelemetry_sdk::metrics::{InMemoryMetricExporter, SdkMeterProvider};
use std::fmt::Debug;
use std::time::Duration;
use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::{Context, SubscriberExt};

/// Counts the operations of the crate. Keys are no attributes, because there may be many.
struct Counting {
    operations: Counter<u64>,
    requests: Counter<u64>,
    takeovers: Counter<u64>,
    waited: Histogram<u64>,
    lease_age: Histogram<u64>,
}

impl Counting {
    fn new(meter: &Meter) -> Self {
        Self {
            operations: meter.u64_counter("lambda_lock.operations").build(),
            requests: meter.u64_counter("lambda_lock.requests").build(),
            takeovers: meter.u64_counter("lambda_lock.takeovers").build(),
            waited: meter.u64_histogram("lambda_lock.waited").with_unit("ms").build(),
            lease_age: meter.u64_histogram("lambda_lock.lease_age").with_unit("ms").build(),
        }
    }
}

impl<S: Subscriber> Layer<S> for Counting {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut ended = Ended::default();
        event.record(&mut ended);
        let operation = KeyValue::new("operation", ended.operation);
        self.requests.add(ended.requests, std::slice::from_ref(&operation));
        self.waited.record(ended.waited_ms, std::slice::from_ref(&operation));
        if ended.takeover {
            self.takeovers.add(1, &[]);
        }
        if let Some(age) = ended.lease_age_ms {
            self.lease_age.record(age, &[]);
        }
        self.operations.add(1, &[operation, KeyValue::new("outcome", ended.outcome)]);
    }
}

/// The fields of an event that are counted.
#[derive(Default)]
struct Ended {
    operation: String,
    outcome: String,
    requests: u64,
    waited_ms: u64,
    takeover: bool,
    lease_age_ms: Option<u64>,
}

impl Visit for Ended {
    fn record_str(&mut self, field: &Field, value: &str) {
        match field.name() {
            "operation" => value.clone_into(&mut self.operation),
            "outcome" => value.clone_into(&mut self.outcome),
            _ => {}
        }
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        match field.name() {
            "requests" => self.requests = value,
            "waited_ms" => self.waited_ms = value,
            "lease_age_ms" => self.lease_age_ms = Some(value),
            _ => {}
        }
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.takeover |= field.name() == "takeover" && value;
    }

    fn record_debug(&mut self, _: &Field, _: &dyn Debug) {}
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let exporter = InMemoryMetricExporter::default(); // yours sends them away
    let provider = SdkMeterProvider::builder().with_periodic_exporter(exporter.clone()).build();
    let counting = Counting::new(&provider.meter("my-function"));
    let of_the_crate = Targets::new().with_target("lambda_lock::operation", tracing::Level::DEBUG);
    tracing::subscriber::set_global_default(tracing_subscriber::registry().with(counting.with_filter(of_the_crate)))?;

    let local = LocalDynamoDb::with_tables(&[("locks", "key")]).await?; // name and partition key of each table
    let locks = LockClient::builder(local.client(), "locks").build()?;
    let budget = Budget::lasting(Duration::from_secs(10));
    for _ in 0..3 {
        let done: Result<(), Error> = locks.with_lock("customer-7", &budget, async |_| Ok(())).await;
        done?;
    }

    provider.force_flush()?; // before the invocation ends, because Lambda freezes the process after it
    let mut granted = 0;
    for exported in exporter.get_finished_metrics()? {
        for metric in exported.scope_metrics().flat_map(|scope| scope.metrics()) {
            let AggregatedMetrics::U64(MetricData::Sum(sum)) = metric.data() else { continue };
            for point in sum.data_points() {
                let attributes: Vec<_> = point.attributes().map(|a| format!("{}={}", a.key, a.value)).collect();
                println!("{} {} = {}", metric.name(), attributes.join(" "), point.value());
                if attributes.iter().any(|attribute| attribute == "outcome=granted") {
                    granted += point.value();
                }
            }
        }
    }
    assert_eq!(granted, 3, "an acquire was not counted");
    Ok(())
}
