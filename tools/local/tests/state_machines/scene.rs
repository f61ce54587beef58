//! The deployed sample, an engine that executes its state machines, and access to their locks and
//! counters.

use lambda_lock::{LockClient, operator::PeekedLock};
use lambda_lock_local::authorize::{Call, Fate};
use lambda_lock_local::lambda::build;
use lambda_lock_local::states::{Asked, Before, Definition, End, Engine, Execution, Held, Router};
use lambda_lock_local::{Sample, client, deployed};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::OnceCell;

/// The lease of every lock.
pub(crate) const LEASE: Duration = Duration::from_secs(4);
/// The largest clock skew that the functions assume.
pub(crate) const SKEW: Duration = Duration::from_millis(300);
/// The longest pause of a waiting state machine between two looks.
pub(crate) const POLL: Duration = Duration::from_secs(1);
/// How long an execution may take. It is longer than every test.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

const FUNCTIONS: [&str; 3] = ["lock-task", "lock-cleaner", "sample-work"];

pub(crate) struct Scene {
    pub(crate) sample: Sample,
    pub(crate) router: Router,
    pub(crate) engine: Engine,
}

pub(crate) async fn binaries() -> &'static [PathBuf] {
    static BUILT: OnceCell<Vec<PathBuf>> = OnceCell::const_new();
    let built = async {
        let built = build(&FUNCTIONS.map(str::to_owned)).await.unwrap();
        FUNCTIONS.iter().map(|name| built[*name].clone()).collect()
    };
    BUILT.get_or_init(|| built).await
}

impl Scene {
    /// Starts everything. If the tools are not installed, prints a line on stderr and returns `None`.
    pub(crate) async fn new() -> Option<Self> {
        Self::with(&[]).await
    }

    /// Starts everything with these variables for lock-task.
    pub(crate) async fn with(lock_task: &[(&str, &str)]) -> Option<Self> {
        let template = deployed::template()?
            .with_history("LockTable")
            .with("lock-task", &[("LOCK_MAX_CLOCK_SKEW_MS", "300")])
            .with("lock-task", lock_task)
            .with("sample-work", &[("ALLOW_SIMULATE", "true")])
            .with("lock-cleaner", &[("CLEANUP_SECOND_LOOK_SECONDS", "1")]);
        let paths: Vec<_> = binaries().await.iter().map(PathBuf::as_path).collect();
        let sample = Sample::deploy(&template, &paths).await.unwrap();
        let router = Router::start(&sample.lambda).await.unwrap();
        let engine = Engine::start(router.endpoint()).await.unwrap()?;
        sample.proxy.forward_states_to(engine.endpoint()).unwrap();
        Some(Self { sample, router, engine })
    }

    /// Executes a state machine to its end.
    pub(crate) async fn run(&self, name: &str, machine: &str, input: Value) -> (Execution, End) {
        let execution = self.engine.execute(name, &definition(machine), &input).await.unwrap();
        let end = self.engine.until_end(&execution, PATIENCE).await.unwrap();
        (execution, end)
    }

    /// Sends the event of an ended execution to lock-cleaner, and returns how many locks it released.
    pub(crate) async fn clean_up(&self, execution: &Execution, status: &str) -> u64 {
        let answer = self.sample.ask("lock-cleaner", &execution.status_change(status)).await.unwrap();
        answer["released"].as_u64().unwrap()
    }

    /// Returns a lock client that does not use the proxy.
    pub(crate) fn locks(&self) -> LockClient {
        let dynamodb = client(self.sample.dynamodb.endpoint());
        LockClient::builder(dynamodb, "LockTable").max_clock_skew(SKEW).build().unwrap()
    }

    pub(crate) async fn lock(&self, key: &str) -> PeekedLock {
        self.locks().operator().peek(key).await.unwrap().unwrap()
    }

    /// Waits until this lock is held.
    pub(crate) async fn until_held(&self, key: &str) -> PeekedLock {
        self.until(async || self.locks().operator().peek(key).await.unwrap().is_some_and(|lock| !lock.released)).await;
        self.lock(key).await
    }

    /// Waits until this is true.
    pub(crate) async fn until(&self, is: impl AsyncFn() -> bool) {
        let becomes_true = async {
            while !is().await {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(PATIENCE, becomes_true).await.unwrap();
    }

    /// Waits until this is the last state that an execution has entered.
    pub(crate) async fn until_in(&self, execution: &Execution, state: &str) {
        let last = async || self.engine.states(execution).await.unwrap().pop();
        self.until(async || last().await.as_deref() == Some(state)).await;
    }

    /// Returns how often an execution has found the lock held, and waited.
    pub(crate) async fn looks(&self, execution: &Execution) -> usize {
        let states = self.engine.states(execution).await.unwrap();
        states.iter().filter(|state| ["WaitForHolder", "WaitForTurn"].contains(&&***state)).count()
    }

    /// Whether an execution waits for its task token, and lock-task has let it sleep.
    pub(crate) async fn sleeps(&self, execution: &Execution) -> bool {
        let events = self.engine.history(execution).await.unwrap();
        events.last().is_some_and(|event| event["type"] == "TaskSubmitted")
    }

    /// Returns the keys of the wake items of those who wait for this lock.
    pub(crate) async fn wake_items(&self, key: &str) -> Vec<String> {
        let dynamodb = client(self.sample.dynamodb.endpoint());
        let items = dynamodb.scan().table_name("LockTable").consistent_read(true).send().await.unwrap().items.unwrap();
        let keys = items.iter().map(|item| item["key"].as_s().unwrap().clone());
        keys.filter(|item| item.starts_with(&format!("wake/{key}/"))).collect()
    }

    /// Starts a process of lock-task, so that the next call finds one.
    pub(crate) async fn warm_up(&self) {
        let invalid = self.sample.ask("lock-task", &json!({})).await;
        assert_eq!(invalid.unwrap_err().0, "InvalidRequest");
    }

    /// Holds back the requests of this step of the work, until the returned value is dropped.
    pub(crate) fn hold_step(&self, step: &'static str) -> Held {
        self.router.hold(Before::Request, move |_, request| request["step"] == step)
    }

    /// Starts an execution on the key `k` and stops it in this state. The function that it has invoked goes on.
    pub(crate) async fn stopped_in(&self, name: &str, machine: &Definition, state: &str) -> Execution {
        let step = match state {
            "FirstStep" => Some("read"),
            "SecondStep" => Some("write"),
            _ => None,
        };
        let mut held = step.map(|step| self.hold_step(step));
        let execution = self.engine.execute(name, machine, &json!({ "key": "k" })).await.unwrap();
        match &mut held {
            Some(held) => held.until(1).await,
            None => self.until_in(&execution, state).await,
        }
        self.engine.stop(&execution).await.unwrap();
        assert_eq!(self.engine.end(&execution).await.unwrap().unwrap().status, "ABORTED");
        execution
    }

    /// Returns a counter of sample-work, and the callers that counted.
    pub(crate) async fn counter(&self, name: &str) -> (u64, BTreeSet<String>) {
        let dynamodb = client(self.sample.dynamodb.endpoint());
        let key = aws_sdk_dynamodb::types::AttributeValue::S(name.to_owned());
        let row = dynamodb.get_item().table_name("WorkTable").key("counter", key).consistent_read(true);
        let row = row.send().await.unwrap().item.unwrap_or_default();
        let value = row.get("value").map_or(0, |value| value.as_n().unwrap().parse().unwrap());
        let writers = row.get("writers").map(|writers| writers.as_ss().unwrap().iter().cloned().collect());
        (value, writers.unwrap_or_default())
    }

    /// Records the requests of each function to DynamoDB from now on, such as `lock-task UpdateItem`.
    pub(crate) fn note_requests(&self) -> Arc<Mutex<Vec<String>>> {
        let noted = Arc::new(Mutex::new(Vec::new()));
        let notes = Arc::clone(&noted);
        self.sample.proxy.decide(move |call: &Call| {
            let what = format!("{} {}", call.caller, call.needs[0].action.replace("dynamodb:", ""));
            notes.lock().unwrap().push(what);
            Fate::Answered
        });
        noted
    }
}

/// Returns the state in which an execution waits for its turn, or for the holder.
pub(crate) fn where_it_waits(machine: &Definition) -> &'static str {
    if machine.document()["States"]["WaitForTurn"].is_object() { "WaitForTurn" } else { "WaitForHolder" }
}

/// Returns a state machine of the repository, with short leases.
pub(crate) fn definition(machine: &str) -> Definition {
    Definition::read(machine).unwrap().with_lease(LEASE.as_secs_f64())
}

/// Returns the actions of lock-task that a state machine requested.
pub(crate) fn actions(asked: &[Asked]) -> Vec<&str> {
    let of_lock_task = asked.iter().filter(|asked| asked.function == "lock-task");
    of_lock_task.map(|asked| asked.request["action"].as_str().unwrap()).collect()
}
