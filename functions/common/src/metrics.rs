//! Metrics: one line in CloudWatch's embedded metric format for each invocation that used a lock.
//!
//! The crate reports each operation as an event. They are added up for the invocation in which they occur.

use crate::environment::{ConfigError, Environment, flag, optional, required};
use lambda_lock::LockKey;
use lambda_lock_protocol::once;
use lambda_runtime::{LambdaInvocation, Service};
use metrique_writer_core::format::Format;
use metrique_writer_core::unit::NegativeScale;
use metrique_writer_core::{Entry, EntryWriter, MetricFlags, Observation, Unit, Value, ValueWriter};
use metrique_writer_format_emf::Emf;
use std::cell::RefCell;
use std::fmt;
use std::io::Write;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::SystemTime;
use tracing::field::{Field, Visit};
use tracing::{Event, Metadata};

/// The variable with CloudWatch's namespace. Without it there are no metrics.
pub(crate) const NAMESPACE: &str = "METRICS_NAMESPACE";

/// The target of the crate's events.
const OPERATIONS: &str = "lambda_lock::operation";

/// The most bytes of a key's first part that become a dimension.
const MAX_PREFIX_BYTES: usize = 64;

tokio::task_local! {
    static COUNTED: RefCell<Counted>;
}

/// Where metrics go, and how they are divided.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Metrics {
    namespace: String,
    function: String,
    /// Where metrics are divided by the first part of the keys: what all keys of the function begin with. It divides
    /// nothing.
    own_prefix: Option<String>,
}

/// What the operations of one invocation did.
#[derive(Debug, Default, PartialEq)]
struct Counted {
    acquisitions: i64,
    refusals: i64,
    takeovers: i64,
    waits: i64,
    waited_ms: i64,
    lost: i64,
    unknown: i64,
    cut_short: i64,
    /// Of the oldest lease that was released.
    lease_age_ms: Option<i64>,
    /// Of the last response.
    clock_offset_ms: Option<i64>,
    requests: i64,
    /// The first part of the keys.
    prefix: Option<Prefix>,
    own_prefix: Option<String>,
}

/// The first part of the keys of an invocation.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Prefix {
    One(String),
    Several,
}

impl Metrics {
    /// Reads the settings. `None` where no metrics are written.
    pub(crate) fn read(environment: &Environment<'_>) -> Result<Option<Self>, ConfigError> {
        let Some(namespace) = optional(environment, NAMESPACE)? else { return Ok(None) };
        let is_valid = |b: u8| b.is_ascii_alphanumeric() || b"_./#:-".contains(&b);
        if namespace.len() > 255 || namespace.starts_with("AWS/") || !namespace.bytes().all(is_valid) {
            return Err(ConfigError::new(format!(
                "{NAMESPACE} is {namespace:?}: give up to 255 of A-Z a-z 0-9 _ . / # : -, which do not begin with AWS/"
            )));
        }
        let function = required(environment, "AWS_LAMBDA_FUNCTION_NAME", "the function's name, as Lambda does")?;
        let own_prefix = match flag(environment, "METRICS_BY_PREFIX")? {
            Some(true) => Some(optional(environment, "LOCK_KEY_PREFIX")?.unwrap_or_default()),
            None | Some(false) => None,
        };
        Ok(Some(Self { namespace, function, own_prefix }))
    }

    /// Counts what the invocation does until its response has been sent, and writes its line then.
    async fn of<T>(&self, invocation: impl Future<Output = T>) -> T {
        let counted = Counted { own_prefix: self.own_prefix.clone(), ..Counted::default() };
        let counting = COUNTED.scope(RefCell::new(counted), async {
            let done = invocation.await;
            (done, COUNTED.with(|counted| counted.take()))
        });
        let (done, counted) = counting.await;
        if let Some(line) = self.line(&counted, SystemTime::now()) {
            // One write, so that it is one line. Whether it arrives does not change what the function did.
            let _ = std::io::stdout().lock().write_all(&line);
        }
        done
    }

    /// One line in the [embedded metric
    /// format](https://docs.aws.amazon.com/AmazonCloudWatch/latest/monitoring/CloudWatch_Embedded_Metric_Format_Specification.html).
    fn line(&self, counted: &Counted, at: SystemTime) -> Option<Vec<u8>> {
        counted.values().next()?;
        let function = vec!["FunctionName".to_owned()];
        let by_prefix = self.own_prefix.as_ref().map(|_| ["FunctionName", "KeyPrefix"].map(str::to_owned).to_vec());
        let dimensions = std::iter::once(function).chain(by_prefix).collect();
        let mut line = Vec::with_capacity(1024);
        // Made for each line, because invocations may run at the same time. With debug assertions, as in tests, it refuses a
        // line that breaks the rules of the format.
        let mut format = Emf::builder(self.namespace.clone(), dimensions).build();
        format.format(&Line { metrics: self, counted, at }, &mut line).ok()?;
        Some(line)
    }
}

struct Line<'a> {
    metrics: &'a Metrics,
    counted: &'a Counted,
    at: SystemTime,
}

impl Entry for Line<'_> {
    fn write<'a>(&'a self, line: &mut impl EntryWriter<'a>) {
        line.timestamp(self.at);
        line.value("FunctionName", &self.metrics.function);
        if self.metrics.own_prefix.is_some() {
            line.value("KeyPrefix", self.counted.prefix.as_ref().map_or("none", Prefix::text));
        }
        for (name, metric) in self.counted.values() {
            line.value(name, &metric);
        }
    }
}

struct Metric {
    value: i64,
    unit: Unit,
}

impl Value for Metric {
    fn write(&self, metric: impl ValueWriter) {
        let value = u64::try_from(self.value).map_or(Observation::Floating(self.value as f64), Observation::Unsigned);
        metric.metric([value], self.unit, [], MetricFlags::empty());
    }
}

impl Counted {
    /// The metrics with a value. A count of zero is left out, because a metric that never has a value costs nothing.
    fn values(&self) -> impl Iterator<Item = (&'static str, Metric)> {
        let metric = |name, value: Option<i64>, unit| Some((name, Metric { value: value?, unit }));
        let count = |name, count| metric(name, Some(count).filter(|count| *count > 0), Unit::Count);
        let millis = |name, millis| metric(name, millis, Unit::Second(NegativeScale::Milli));
        let all = [
            count("Acquisitions", self.acquisitions),
            count("Refusals", self.refusals),
            count("Takeovers", self.takeovers),
            count("Waits", self.waits),
            millis("Waited", Some(self.waited_ms).filter(|_| self.waits > 0)),
            count("Lost", self.lost),
            count("Unknown", self.unknown),
            count("CutShort", self.cut_short),
            millis("LeaseAge", self.lease_age_ms),
            millis("ClockOffset", self.clock_offset_ms),
            count("Requests", self.requests),
        ];
        all.into_iter().flatten()
    }

    fn add(&mut self, operation: &Operation) {
        let Operation { name, key, outcome, requests, waited_ms, takeover, lease_age_ms, clock_offset_ms } = operation;
        let acquires = matches!(name.as_str(), "acquire" | "once");
        match outcome.as_str() {
            "granted" => self.acquisitions += 1,
            "held" | "Held" if acquires => self.refusals += 1,
            "Lost" => self.lost += 1,
            "Unknown" => self.unknown += 1,
            "CutShort" => self.cut_short += 1,
            _ => {}
        }
        if *takeover {
            self.takeovers += 1;
        }
        if acquires && *waited_ms > 0 {
            self.waits += 1;
            self.waited_ms += waited_ms;
        }
        self.lease_age_ms = self.lease_age_ms.max(*lease_age_ms);
        self.clock_offset_ms = clock_offset_ms.or(self.clock_offset_ms);
        self.requests += requests;
        if let Some(key) = key {
            self.add_key(key);
        }
    }

    /// Adds a key to those whose first part divides the metrics.
    fn add_key(&mut self, key: &str) {
        let Some(own_prefix) = &self.own_prefix else { return };
        let prefix = Prefix::of(key, own_prefix);
        self.prefix = Some(match self.prefix.take() {
            Some(earlier) if earlier != prefix => Prefix::Several,
            _ => prefix,
        });
    }
}

impl Prefix {
    /// A key without a slash has none, because its first part would be the whole key. The prefix of the function and that
    /// of idempotent work are left out.
    fn of(key: &str, own_prefix: &str) -> Self {
        // A key with a sort key is written `(key, sort key)`.
        let key = key.strip_prefix('(').unwrap_or(key);
        let key = key.strip_prefix(own_prefix).unwrap_or(key);
        let key = key.strip_prefix(once::NAMESPACE).unwrap_or(key);
        let first = key.split_once('/').map_or("none", |(first, _)| first);
        let is_valid =
            !first.is_empty() && first.len() <= MAX_PREFIX_BYTES && first.bytes().all(|b| b.is_ascii_graphic());
        Self::One(if is_valid { first } else { "other" }.to_owned())
    }

    fn text(&self) -> &str {
        match self {
            Self::One(text) => text,
            Self::Several => "several",
        }
    }
}

/// Writes the line of each invocation when its response has been sent, so that the response does not wait for it. Lambda
/// [freezes](https://docs.aws.amazon.com/lambda/latest/dg/lambda-runtime-environment.html) the process only when it asks for the
/// next invocation, and does not freeze it on Managed Instances.
#[derive(Clone)]
pub(crate) struct MetricsService<S> {
    pub(crate) metrics: Option<Arc<Metrics>>,
    pub(crate) inner: S,
}

impl<S> Service<LambdaInvocation> for MetricsService<S>
where
    S: Service<LambdaInvocation, Future: Send + 'static>,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<S::Response, S::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, invocation: LambdaInvocation) -> Self::Future {
        let response = self.inner.call(invocation);
        match self.metrics.clone() {
            None => Box::pin(response),
            Some(metrics) => Box::pin(async move { metrics.of(response).await }),
        }
    }
}

/// One event of the crate.
#[derive(Default)]
struct Operation {
    name: String,
    /// `None` where nobody asks for it.
    key: Option<String>,
    outcome: String,
    requests: i64,
    waited_ms: i64,
    takeover: bool,
    lease_age_ms: Option<i64>,
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
        self.record_i64(field, i64::try_from(value).unwrap_or(i64::MAX));
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        match field.name() {
            "requests" => self.requests = value,
            "waited_ms" => self.waited_ms = value,
            "lease_age_ms" => self.lease_age_ms = Some(value),
            "clock_offset_ms" => self.clock_offset_ms = Some(value),
            _ => {}
        }
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        if field.name() == "takeover" {
            self.takeover = value;
        }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if let ("key", Some(key)) = (field.name(), &mut self.key) {
            *key = format!("{value:?}");
        }
    }
}

/// Whether this is an event that [`count`] counts.
pub(crate) fn is_counted(event: &Metadata<'_>) -> bool {
    event.is_event() && event.target() == OPERATIONS
}

/// How many requests are counted meanwhile.
#[cfg(test)]
pub(crate) async fn requests_counted(meanwhile: impl Future<Output = ()>) -> i64 {
    COUNTED
        .scope(RefCell::default(), async {
            meanwhile.await;
            COUNTED.with(|counted| counted.borrow().requests)
        })
        .await
}

/// Counts the invocation for all of these keys of rows. An event of the crate about several locks has the first key alone.
pub fn count_keys(keys: impl IntoIterator<Item = LockKey>) {
    let _ = COUNTED.try_with(|counted| {
        let mut counted = counted.borrow_mut();
        keys.into_iter().for_each(|key| counted.add_key(&key.to_string()));
    });
}

/// Adds an event of the crate to the invocation in which it occurs. Outside of one, or without metrics, nothing is counted.
pub(crate) fn count(event: &Event<'_>) {
    let _ = COUNTED.try_with(|counted| {
        let mut counted = counted.borrow_mut();
        let key = counted.own_prefix.as_ref().map(|_| String::new());
        let mut operation = Operation { key, ..Operation::default() };
        event.record(&mut operation);
        counted.add(&operation);
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};
    use std::time::{Duration, UNIX_EPOCH};

    fn metrics(by_prefix: bool) -> Metrics {
        let [namespace, function, own_prefix] = ["Locks", "lock-task", "team/"].map(str::to_owned);
        Metrics { namespace, function, own_prefix: by_prefix.then_some(own_prefix) }
    }

    fn operation(name: &str, key: &str, outcome: &str) -> Operation {
        let [name, key, outcome] = [name, key, outcome].map(str::to_owned);
        Operation { name, key: Some(key), outcome, requests: 1, ..Operation::default() }
    }

    fn line(by_prefix: bool, operations: &[Operation]) -> Option<Value> {
        let metrics = metrics(by_prefix);
        let mut counted = Counted { own_prefix: metrics.own_prefix.clone(), ..Counted::default() };
        operations.iter().for_each(|operation| counted.add(operation));
        let line = metrics.line(&counted, UNIX_EPOCH + Duration::from_millis(1_760_000_000_123))?;
        assert_eq!(line.iter().filter(|byte| **byte == b'\n').count(), 1);
        Some(serde_json::from_slice(&line).unwrap())
    }

    fn counts(operations: &[Operation]) -> Value {
        let mut line = line(false, operations).unwrap();
        let line = line.as_object_mut().unwrap();
        line.retain(|name, _| !["_aws", "FunctionName"].contains(&name.as_str()));
        json!(line)
    }

    #[tokio::test]
    async fn the_locks_of_a_set_with_several_first_parts_are_counted_under_none_of_them() {
        for (keys, expected) in [(["team/orders/7", "team/jobs/8"], "several"), (["orders/7", "orders/8"], "orders")] {
            let own_prefix = metrics(true).own_prefix;
            let counted = RefCell::new(Counted { own_prefix, ..Counted::default() });
            let prefix = COUNTED.scope(counted, async {
                COUNTED.with(|counted| counted.borrow_mut().add(&operation("acquire", keys[0], "granted")));
                count_keys(keys.map(LockKey::from));
                COUNTED.with(|counted| counted.borrow().prefix.as_ref().map(|prefix| prefix.text().to_owned()))
            });
            assert_eq!(prefix.await.as_deref(), Some(expected));
        }
    }

    #[test]
    fn a_line_names_its_metrics_units_and_dimensions() {
        let acquired = Operation { waited_ms: 250, ..operation("acquire", "orders/7", "granted") };
        let metrics = json!([
            { "Name": "Acquisitions", "Unit": "Count" }, { "Name": "Waits", "Unit": "Count" },
            { "Name": "Waited", "Unit": "Milliseconds" }, { "Name": "Requests", "Unit": "Count" },
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
        // The pauses of a renewal are no waits for a lock.
        let off =
            |offset| Operation { clock_offset_ms: Some(offset), waited_ms: 700, ..operation("renew", "a", "renewed") };
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
        let long = format!("{}/7", "k".repeat(MAX_PREFIX_BYTES + 1));
        for (keys, prefix) in [
            (&["orders/7"][..], "orders"),
            (&["(orders/7, invoice-1)"], "orders"),
            (&["orders/7", "orders/8"], "orders"),
            (&["orders/7", "once/orders/7"], "orders"),
            (&["team/orders/7", "team/once/orders/7"], "orders"),
            (&["(team/orders/7, invoice-1)"], "orders"),
            (&["team/7"], "none"),
            (&["once/7"], "none"),
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
                    "LOCK_KEY_PREFIX" => Some("team/".to_owned()),
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
