//! Starts a function: logs, configuration and the runtime. Every `main` uses it.

use crate::config::Config;
use crate::environment::{ConfigError, Environment, optional, process};
use crate::failure::Failure;
use crate::metrics::{self, MetricsService, NAMESPACE};
use crate::restore::restored;
use lambda_runtime::layers::TracingLayer;
use lambda_runtime::tower::layer::layer_fn;
use lambda_runtime::{LambdaEvent, Runtime, service_fn};
use serde::Serialize;
use std::process::ExitCode;
use tracing::level_filters::LevelFilter;
use tracing::subscriber::Interest;
use tracing::{Event, Level, Metadata, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::{Context, SubscriberExt};

/// Runs a function until Lambda stops the process. `deps` makes what all invocations of the process share, from the environment,
/// and `handler` handles one invocation. If the function cannot start, one log line reports why.
pub async fn run<D, A, R, F>(
    deps: impl FnOnce(&Config, &Environment<'_>) -> Result<D, ConfigError>,
    handler: impl Fn(LambdaEvent<A>, &'static D) -> F + Clone + Send + 'static,
) -> ExitCode
where
    D: Sync + 'static,
    A: for<'de> serde::Deserialize<'de> + Send + 'static,
    R: Serialize + Send + 'static,
    F: Future<Output = Result<R, Failure>> + Send + 'static,
{
    start(async |config| {
        // They live as long as the process.
        let deps: &D = Box::leak(Box::new(deps(config, &process)?));
        serve(config, move |event| handler(event, deps)).await
    })
    .await
}

/// Sets up the logs, reads the environment and runs a function that is not served as [`run`] does it. If the function cannot
/// start, one log line reports why.
pub async fn start(run: impl AsyncFnOnce(&Config) -> Result<(), lambda_runtime::Error>) -> ExitCode {
    log_json();
    // A function is built so that a panic ends it at once. Without this its message would be no line of JSON, which no alarm
    // counts.
    std::panic::set_hook(Box::new(|panic| tracing::error!("the function {panic}")));
    let started = async {
        let config = Config::from_env()?;
        run(&config).await
    };
    match started.await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!("the function cannot run: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Handles invocations until Lambda stops the process: one at a time, or as many at the same time as
/// `AWS_LAMBDA_MAX_CONCURRENCY` says. Each failure is one log line, at the level of its error name.
async fn serve<A, R, F>(
    config: &Config,
    handler: impl Fn(LambdaEvent<A>) -> F + Clone + Send + 'static,
) -> Result<(), lambda_runtime::Error>
where
    A: for<'de> serde::Deserialize<'de> + Send + 'static,
    R: Serialize + Send + 'static,
    F: Future<Output = Result<R, Failure>> + Send + 'static,
{
    let metrics = config.metrics.clone();
    let handler = service_fn(move |event| {
        let done = handler(event);
        async move { done.await.inspect_err(|failure| failure.log(None)) }
    });
    let runtime = Runtime::new(handler)
        .layer(TracingLayer::new())
        .layer(layer_fn(|inner| MetricsService { metrics: metrics.clone(), inner }));
    runtime.register_snapstart_resource(restored(config)).run_concurrent().await
}

fn log_json() {
    let level = match std::env::var("AWS_LAMBDA_LOG_LEVEL").as_deref() {
        Ok("ERROR" | "FATAL") => LevelFilter::ERROR,
        Ok("WARN") => LevelFilter::WARN,
        _ => LevelFilter::INFO,
    };
    let counts = optional(&process, NAMESPACE).is_ok_and(|namespace| namespace.is_some());
    // This fails only if the process has a subscriber already, and a function has none.
    let _ = tracing::subscriber::set_global_default(subscriber(level, counts, std::io::stdout));
}

/// Writes one JSON object per line.
fn subscriber<W>(level: LevelFilter, counts: bool, writer: W) -> impl Subscriber + Send + Sync
where
    W: for<'w> MakeWriter<'w> + Send + Sync + 'static,
{
    let lines = tracing_subscriber::fmt::layer().json().flatten_event(true).with_writer(writer);
    tracing_subscriber::registry().with(lines).with(Wanted { level, counts })
}

/// What is logged, and what is counted for the metrics.
struct Wanted {
    /// Never below INFO, whatever Lambda's log level is, because below INFO the runtime and the SDK log payloads.
    level: LevelFilter,
    counts: bool,
}

impl Wanted {
    /// The crate's spans are left out, because the line of each failure names the lock. So are its events of operations.
    fn is_logged(&self, what: &Metadata<'_>) -> bool {
        let is_left_out = what.is_span() && what.target().starts_with("lambda_lock::") || metrics::is_counted(what);
        *what.level() <= self.level && !is_left_out && !is_of_a_handled_failure(what)
    }

    fn is_wanted(&self, what: &Metadata<'_>) -> bool {
        self.is_logged(what) || self.counts && metrics::is_counted(what)
    }
}

impl<S: Subscriber> Layer<S> for Wanted {
    fn register_callsite(&self, what: &'static Metadata<'static>) -> Interest {
        if self.is_wanted(what) { Interest::always() } else { Interest::never() }
    }

    fn enabled(&self, what: &Metadata<'_>, _: Context<'_, S>) -> bool {
        self.is_wanted(what)
    }

    fn event_enabled(&self, event: &Event<'_>, _: Context<'_, S>) -> bool {
        if self.counts && metrics::is_counted(event.metadata()) {
            metrics::count(event);
        }
        self.is_logged(event.metadata())
    }

    /// The most verbose level of them. Without it each place where the runtime or the SDK could log at DEBUG or TRACE is looked
    /// at once, which takes time at the start. The lock client reports at INFO what is counted.
    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(if self.counts { LevelFilter::INFO } else { self.level })
    }
}

/// The runtime logs each error of a handler at ERROR, in debug format. [`serve`] has already logged it at the
/// right level, so the runtime's line is left out. The line of a panic comes from the same module with another
/// field, and is kept.
fn is_of_a_handled_failure(event: &Metadata<'_>) -> bool {
    event.is_event()
        && event.target() == "lambda_runtime::layers::panic"
        && *event.level() == Level::ERROR
        && event.fields().field("error").is_none()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::requests_counted;
    use crate::test_support::variables;
    use lambda_lock::{Budget, LockKey};
    use serde_json::Value;
    use std::io;
    use std::sync::{Arc, Mutex};
    use std::time::Duration;

    /// The log lines that were written.
    #[derive(Clone, Default)]
    struct Written(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Written {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn lines(level: LevelFilter, events: impl FnOnce()) -> Vec<Value> {
        lines_of(level, true, events)
    }

    fn lines_of(level: LevelFilter, counts: bool, events: impl FnOnce()) -> Vec<Value> {
        let written = Written::default();
        let writer = written.clone();
        tracing::subscriber::with_default(subscriber(level, counts, move || writer.clone()), events);
        let text = String::from_utf8(written.0.lock().unwrap().clone()).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    #[test]
    fn each_failure_is_one_line_at_the_level_of_its_name() {
        let key = LockKey::from("customer-7");
        let said = "nobody is to be woken\nfor this";
        for (failure, name, level) in [
            (Failure::held(said), "LockHeld", "INFO"),
            (Failure::lost(said), "LockLost", "WARN"),
            (Failure::unknown(said), "LockUnknown", "WARN"),
            (Failure::work_failed(&said), "WorkFailed", "WARN"),
            (Failure::invalid_request(said), "InvalidRequest", "WARN"),
            (Failure::lock_table(said), "LockTableError", "ERROR"),
            (Failure::invalid_record(said), "InvalidRecord", "ERROR"),
        ] {
            let lines = lines(LevelFilter::INFO, || failure.clone().of_lock(&key).log(Some("m-1")));
            let [line] = lines.as_slice() else { panic!("{lines:?}") };
            assert_eq!((&line["level"], &line["error_type"]), (&level.into(), &name.into()), "{line}");
            assert_eq!((&line["key"], &line["message"]), (&"customer-7".into(), &said.into()), "{line}");
            assert_eq!(line["message_id"], "m-1");
            assert!(!line.to_string().contains("Failure"), "{line}");
        }
        let lines = lines(LevelFilter::INFO, || Failure::invalid_request("key is missing").log(None));
        assert_eq!(
            (lines[0].get("key"), lines[0].get("message_id")),
            (None, None),
            "fields without a value are left out"
        );
    }

    #[test]
    fn a_log_level_of_error_shows_only_what_has_to_be_repaired() {
        let lines = lines(LevelFilter::ERROR, || {
            Failure::held("held").log(None);
            Failure::lock_table("no table").log(None);
        });
        assert_eq!(lines.iter().map(|line| &line["message"]).collect::<Vec<_>>(), ["no table"]);
    }

    #[test]
    fn the_most_verbose_level_is_that_of_what_is_logged_or_counted() {
        for (level, counts, most_verbose) in [
            (LevelFilter::INFO, false, LevelFilter::INFO),
            (LevelFilter::INFO, true, LevelFilter::INFO),
            (LevelFilter::ERROR, false, LevelFilter::ERROR),
            (LevelFilter::ERROR, true, LevelFilter::INFO),
        ] {
            assert_eq!(subscriber(level, counts, io::sink).max_level_hint(), Some(most_verbose), "{level} {counts}");
        }
    }

    #[tokio::test]
    async fn an_operation_is_counted_at_each_log_level_and_is_no_line() {
        for level in [LevelFilter::INFO, LevelFilter::WARN, LevelFilter::ERROR] {
            for (counts, expected) in [(true, 2), (false, 0)] {
                let counted = requests_counted(async {
                    let lines = lines_of(level, counts, || {
                        tracing::info!(target: "lambda_lock::operation", operation = "acquire", requests = 2_u64);
                    });
                    assert!(lines.is_empty(), "{lines:?}");
                });
                assert_eq!(counted.await, expected, "{level} {counts}");
            }
        }
    }

    #[tokio::test]
    async fn what_the_lock_client_does_is_counted() {
        let environment = [
            ("LOCK_TABLE", "locks"),
            ("AWS_REGION", "eu-central-1"),
            ("AWS_ACCESS_KEY_ID", "id"),
            ("AWS_SECRET_ACCESS_KEY", "secret"),
            // Nobody listens there.
            ("AWS_ENDPOINT_URL", "http://127.0.0.1:1"),
        ];
        let locks = Config::read(&variables(&environment)).unwrap().locks().unwrap();
        let _guard = tracing::subscriber::set_default(subscriber(LevelFilter::ERROR, true, io::sink));
        let counted = requests_counted(async {
            let budget = Budget::lasting(Duration::from_millis(100));
            locks.acquire("customer-7").within(&budget).await.unwrap_err();
        });
        assert!(counted.await > 0);
    }

    #[test]
    fn a_line_has_the_span_of_the_invocation_and_none_of_the_crate() {
        let lines = lines(LevelFilter::INFO, || {
            let _invocation = tracing::info_span!("Lambda runtime invoke", requestId = "r-1").entered();
            let _acquire = tracing::info_span!(target: "lambda_lock::lock::acquire", "lock_acquire").entered();
            tracing::warn!("of the crate");
        });
        assert_eq!(lines[0]["span"], serde_json::json!({ "name": "Lambda runtime invoke", "requestId": "r-1" }));
        assert_eq!(lines[0]["spans"].as_array().map(Vec::len), Some(1), "{}", lines[0]);
    }

    /// These are log lines as the runtime writes them. The tests of `local` and of the deployed functions check
    /// its real lines.
    #[test]
    fn a_panic_of_a_handler_is_logged_and_the_debug_format_of_its_failure_is_not() {
        let lines = lines(LevelFilter::INFO, || {
            tracing::error!(target: "lambda_runtime::layers::panic", "Failure {{ … }}");
            tracing::error!(target: "lambda_runtime::layers::panic", error = "index", "user handler panicked");
            tracing::error!(target: "lambda_runtime::layers::api_response", error = "no JSON", "failed");
            tracing::error!("of the function itself");
        });
        let messages: Vec<_> = lines.iter().map(|line| line["message"].as_str().unwrap()).collect();
        assert_eq!(messages, ["user handler panicked", "failed", "of the function itself"]);
    }
}
