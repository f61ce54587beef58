//! Metrics: one line in CloudWatch's embedded metric format for each invocation that used a lock.
//!
//! The crate reports each operation as an event. A layer adds them up for the invocation in which they occur.

use crate::environment::{ConfigError, Environment, flag, optional, required};
use metrique_writer::unit::AsMilliseconds;
use metrique_writer::{Entry, format::Format as _};
use metrique_writer_format_emf::Emf;
use std::cell::RefCell;
use std::fmt;
use std::time::SystemTime;
use tracing::field::{Field, Visit};
use tracing::{Event, Metadata, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;

/// The target of the crate's events.
const OPERATIONS: &str = "lambda_lock::operation";

/// The most bytes of a key's first part that become a dimension.
const LONGEST_PREFIX: usize = 64;

tokio::task_local! {
    static COUNTED: RefCell<Counted>;
}

/// Where metrics go, and how they are divided.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Metrics {
    namespace: String,
    function: String,
    by_prefix: bool,
}

/// What the operations of one invocation did. A number that is zero is left out, because a metric that never has a
/// value costs nothing.
#[derive(Debug, Default, PartialEq, Entry)]
#[entry(rename_all = "PascalCase")]
struct Counted {
    acquisitions: Option<u64>,
    refusals: Option<u64>,
    takeovers: Option<u64>,
    waits: Option<u64>,
    waited: Option<AsMilliseconds<u64>>,
    lost: Option<u64>,
    unknown: Option<u64>,
    cut_short: Option<u64>,
    /// The oldest of the leases that were released.
    lease_age: Option<AsMilliseconds<u64>>,
    /// Of the last response.
    clock_offset: Option<AsMilliseconds<f64>>,
    requests: Option<u64>,
    #[entry(ignore)]
    prefix: Option<Prefix>,
}

/// The first part of the keys of an invocation.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Prefix {
    One(String),
    Several,
}

#[derive(Entry)]
#[entry(rename_all = "PascalCase")]
struct Line<'l> {
    #[entry(timestamp)]
    at: SystemTime,
    function_name: &'l str,
    key_prefix: Option<&'l str>,
    #[entry(flatten)]
    counted: &'l Counted,
}

impl Metrics {
    /// Reads the settings. `None` where no metrics are written.
    pub(crate) fn read(environment: &Environment<'_>) -> Result<Option<Self>, ConfigError> {
        let Some(namespace) = optional(environment, "METRICS_NAMESPACE")? else { return Ok(None) };
        let is_valid = |b: u8| b.is_ascii_alphanumeric() || b"_./#:-".contains(&b);
        if namespace.len() > 255 || namespace.starts_with("AWS/") || !namespace.bytes().all(is_valid) {
            return Err(ConfigError::new(format!(
                "METRICS_NAMESPACE is {namespace:?}: give up to 255 of A-Z a-z 0-9 _ . / # : -, which do not begin with AWS/"
            )));
        }
        let function = required(environment, "AWS_LAMBDA_FUNCTION_NAME", "the function's name, as Lambda does")?;
        let by_prefix = flag(environment, "METRICS_BY_PREFIX")?.unwrap_or(false);
        Ok(Some(Self { namespace, function, by_prefix }))
    }

    /// Counts what the invocation does, and returns its line together with its result.
    pub(crate) async fn of<T>(&self, invocation: impl Future<Output = T>) -> (T, Option<Vec<u8>>) {
        let counting = COUNTED.scope(RefCell::default(), async {
            let done = invocation.await;
            (done, COUNTED.with(RefCell::take))
        });
        let (done, counted) = counting.await;
        (done, self.line(&counted, SystemTime::now()))
    }

    fn line(&self, counted: &Counted, at: SystemTime) -> Option<Vec<u8>> {
        if *counted == Counted::default() {
            return None;
        }
        let mut dimensions = vec![vec!["FunctionName".to_owned()]];
        let key_prefix = self.by_prefix.then(|| counted.prefix.as_ref().map_or("none", Prefix::text));
        if self.by_prefix {
            dimensions.push(vec!["FunctionName".to_owned(), "KeyPrefix".to_owned()]);
        }
        let line = Line { at, function_name: &self.function, key_prefix, counted };
        let mut written = Vec::new();
        match Emf::all_validations(self.namespace.clone(), dimensions).format(&line, &mut written) {
            Ok(()) => Some(written),
            Err(error) => {
                tracing::warn!(%error, "the metrics of this invocation cannot be written");
                None
            }
        }
    }
}

impl Counted {
    fn add(&mut self, operation: &Operation) {
        let Operation { name, key, outcome, requests, waited_ms, takeover, lease_age_ms, clock_offset_ms } = operation;
        let acquires = matches!(name.as_str(), "acquire" | "once");
        match outcome.as_str() {
            "granted" => one_more(&mut self.acquisitions),
            "held" | "Held" if acquires => one_more(&mut self.refusals),
            "Lost" => one_more(&mut self.lost),
            "Unknown" => one_more(&mut self.unknown),
            "CutShort" => one_more(&mut self.cut_short),
            _ => {}
        }
        if *takeover {
            one_more(&mut self.takeovers);
        }
        if acquires && *waited_ms > 0 {
            one_more(&mut self.waits);
            self.waited = Some((millis(self.waited) + waited_ms).into());
        }
        if let Some(age) = lease_age_ms {
            self.lease_age = Some(millis(self.lease_age).max(*age).into());
        }
        if let Some(offset) = clock_offset_ms {
            self.clock_offset = Some((*offset as f64).into());
        }
        if *requests > 0 {
            self.requests = Some(self.requests.unwrap_or(0) + requests);
        }
        let prefix = Prefix::of(key);
        self.prefix = Some(match self.prefix.take() {
            Some(earlier) if earlier != prefix => Prefix::Several,
            _ => prefix,
        });
    }
}

impl Prefix {
    /// A key without a slash has none, because its first part would be the whole key.
    fn of(key: &str) -> Self {
        // A key with a sort key is written `(key, sort key)`.
        let first = key.trim_start_matches('(').split_once('/').map_or("none", |(first, _)| first);
        let is_valid =
            !first.is_empty() && first.len() <= LONGEST_PREFIX && first.bytes().all(|b| b.is_ascii_graphic());
        Self::One(if is_valid { first } else { "other" }.to_owned())
    }

    fn text(&self) -> &str {
        match self {
            Self::One(text) => text,
            Self::Several => "several",
        }
    }
}

fn one_more(count: &mut Option<u64>) {
    *count = Some(count.unwrap_or(0) + 1);
}

fn millis(value: Option<AsMilliseconds<u64>>) -> u64 {
    value.map_or(0, |value| *value)
}

/// One event of the crate.
#[derive(Default)]
struct Operation {
    name: String,
    key: String,
    outcome: String,
    requests: u64,
    waited_ms: u64,
    takeover: bool,
    lease_age_ms: Option<u64>,
    clock_offset_ms: Option<i64>,
}

impl Visit for Operation {
    fn record_str(&mut self, field: &Field, value: &str) {
        match field.name() {
            "operation" => value.clone_into(&mut self.name),
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

    fn record_i64(&mut self, field: &Field, value: i64) {
        if field.name() == "clock_offset_ms" {
            self.clock_offset_ms = Some(value);
        }
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        if field.name() == "takeover" {
            self.takeover = value;
        }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if field.name() == "key" {
            self.key = format!("{value:?}");
        }
    }
}

/// Adds the crate's events to the invocation in which they occur.
pub(crate) struct Counting;

impl<S: Subscriber> Layer<S> for Counting {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        // Outside of an invocation, or without metrics, nothing is counted.
        let _ = COUNTED.try_with(|counted| {
            let mut operation = Operation::default();
            event.record(&mut operation);
            counted.borrow_mut().add(&operation);
        });
    }
}

/// Whether this is an event that [`Counting`] counts.
pub(crate) fn is_counted(event: &Metadata<'_>) -> bool {
    event.is_event() && event.target() == OPERATIONS
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};
    use std::time::{Duration, UNIX_EPOCH};

    fn metrics(by_prefix: bool) -> Metrics {
        Metrics { namespace: "Locks".to_owned(), function: "lock-task".to_owned(), by_prefix }
    }

    fn operation(name: &str, key: &str, outcome: &str) -> Operation {
        let [name, key, outcome] = [name, key, outcome].map(str::to_owned);
        Operation { name, key, outcome, requests: 1, ..Operation::default() }
    }

    fn line(by_prefix: bool, operations: &[Operation]) -> Option<Value> {
        let mut counted = Counted::default();
        operations.iter().for_each(|operation| counted.add(operation));
        let line = metrics(by_prefix).line(&counted, UNIX_EPOCH + Duration::from_millis(1_760_000_000_123))?;
        assert_eq!(line.iter().filter(|byte| **byte == b'\n').count(), 1);
        Some(serde_json::from_slice(&line).unwrap())
    }

    fn counts(operations: &[Operation]) -> Value {
        let mut line = line(false, operations).unwrap();
        let line = line.as_object_mut().unwrap();
        line.retain(|name, _| !["_aws", "FunctionName"].contains(&name.as_str()));
        json!(line)
    }

    #[test]
    fn a_line_names_its_metrics_units_and_dimensions() {
        let acquired = Operation { waited_ms: 250, ..operation("acquire", "orders/7", "granted") };
        let metrics = json!([
            { "Name": "Acquisitions" }, { "Name": "Waits" }, { "Name": "Waited", "Unit": "Milliseconds" },
            { "Name": "Requests" },
        ]);
        let dimensions = json!([["FunctionName"], ["FunctionName", "KeyPrefix"]]);
        let described = json!([{ "Namespace": "Locks", "Dimensions": dimensions, "Metrics": metrics }]);
        assert_eq!(
            line(true, &[acquired]).unwrap(),
            json!({
                "_aws": { "CloudWatchMetrics": described, "Timestamp": 1_760_000_000_123_u64 },
                "FunctionName": "lock-task", "KeyPrefix": "orders",
                "Acquisitions": 1, "Waits": 1, "Waited": 250, "Requests": 1,
            })
        );
    }

    #[test]
    fn each_outcome_is_counted_under_its_name() {
        for (name, outcome, metric) in [
            ("acquire", "granted", "Acquisitions"),
            ("once", "granted", "Acquisitions"),
            ("acquire", "held", "Refusals"),
            ("acquire", "Held", "Refusals"),
            ("renew", "Lost", "Lost"),
            ("commit", "Lost", "Lost"),
            ("acquire", "Unknown", "Unknown"),
            ("release", "Unknown", "Unknown"),
            ("work", "CutShort", "CutShort"),
        ] {
            assert_eq!(
                counts(&[operation(name, "a", outcome)]),
                json!({ metric: 1, "Requests": 1 }),
                "{name} {outcome}"
            );
        }
        for (name, outcome) in [("release", "Released"), ("renew", "renewed"), ("once", "replayed"), ("peek", "found")]
        {
            assert_eq!(counts(&[operation(name, "a", outcome)]), json!({ "Requests": 1 }), "{name} {outcome}");
        }
    }

    #[test]
    fn operations_of_one_invocation_are_added_up() {
        let waiting = |waited_ms| Operation { waited_ms, requests: 3, ..operation("acquire", "a", "granted") };
        let released = |age| Operation { lease_age_ms: Some(age), ..operation("release", "a", "Released") };
        let off = |offset| Operation { clock_offset_ms: Some(offset), ..operation("renew", "a", "renewed") };
        let took = Operation { takeover: true, ..operation("acquire", "a", "granted") };

        assert_eq!(
            counts(&[waiting(20), waiting(30), released(900), released(700), off(12), off(-40), took]),
            json!({
                "Acquisitions": 3, "Waits": 2, "Waited": 50, "Takeovers": 1, "LeaseAge": 900, "ClockOffset": -40,
                "Requests": 11,
            })
        );
    }

    #[test]
    fn an_invocation_that_used_no_lock_has_no_line() {
        assert_eq!(line(true, &[]), None);
    }

    #[test]
    fn a_dimension_is_the_first_part_of_the_key_and_never_a_whole_key() {
        let long = format!("{}/7", "k".repeat(LONGEST_PREFIX + 1));
        for (keys, prefix) in [
            (&["orders/7"][..], "orders"),
            (&["(orders/7, invoice-1)"], "orders"),
            (&["orders/7", "orders/8"], "orders"),
            (&["orders/7", "jobs/8"], "several"),
            (&["orders/7", "customer-8"], "several"),
            (&["customer-7"], "none"),
            (&["/7"], "other"),
            (&["Füße/7"], "other"),
            (&["two words/7"], "other"),
            (&[&long], "other"),
        ] {
            let operations: Vec<_> = keys.iter().map(|key| operation("acquire", key, "granted")).collect();
            assert_eq!(line(true, &operations).unwrap()["KeyPrefix"], prefix, "{keys:?}");
            assert_eq!(line(false, &operations).unwrap().get("KeyPrefix"), None);
        }
    }

    #[test]
    fn settings_are_checked_at_the_start() {
        let read = |namespace: &str, function: Option<&str>| {
            Metrics::read(&|name| {
                Ok(match name {
                    "METRICS_NAMESPACE" => Some(namespace.to_owned()),
                    "AWS_LAMBDA_FUNCTION_NAME" => function.map(str::to_owned),
                    _ => None,
                })
            })
        };
        assert_eq!(read("", None), Ok(None));
        assert_eq!(read("Locks", Some("lock-task")), Ok(Some(metrics(false))));
        let long = "n".repeat(256);
        for (namespace, function, variable) in [
            ("AWS/Lambda", Some("f"), "METRICS_NAMESPACE"),
            ("two words", Some("f"), "METRICS_NAMESPACE"),
            (long.as_str(), Some("f"), "METRICS_NAMESPACE"),
            ("Locks", None, "AWS_LAMBDA_FUNCTION_NAME"),
        ] {
            let error = read(namespace, function).unwrap_err().to_string();
            assert!(error.starts_with(variable), "{error}");
        }
    }
}
