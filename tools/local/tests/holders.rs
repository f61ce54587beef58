//! Real processes that die or freeze while they hold the lock, and the holders that follow them.

#![cfg(unix)]
#![allow(clippy::disallowed_methods, reason = "the tests wait for processes")]
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stderr, reason = "a test that cannot go on fails")]

use aws_sdk_dynamodb::types::{
    AttributeDefinition, AttributeValue, BillingMode, KeySchemaElement, KeyType, ScalarAttributeType,
};
use lambda_lock::{LockClient, operator::PeekedLock};
use lambda_lock_local::{Function, Invocation, Lambda, LocalDynamoDb, Outcome, client};
use lambda_lock_testkit::soon;
use serde_json::{Value, json};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tokio::task::JoinHandle;

/// The defaults of a budget's grace, of clock drift and of clock skew.
const GRACE: Duration = Duration::from_secs(1);
const DRIFT: f64 = 0.05;
const SKEW: Duration = Duration::from_secs(2);
/// The time of a request, and what a busy machine adds to a process, a poll and a request.
const MACHINE: Duration = Duration::from_secs(2);

/// Two functions with one lock table: `holder` and `next`. Half of the time of `next` is long enough to wait
/// for the lock.
struct Stage {
    dynamodb: LocalDynamoDb,
    lambda: Lambda,
    locks: LockClient,
}

impl Stage {
    async fn new(holder_timeout: Duration, skew: Duration) -> Self {
        let dynamodb = LocalDynamoDb::in_memory().await.unwrap();
        let locks = LockClient::builder(client(dynamodb.endpoint()), "locks").build().unwrap();
        locks.operator().create_table().await.unwrap();
        create_counters(dynamodb.endpoint()).await;
        let function = |name: &str, timeout| Function {
            name: name.to_owned(),
            binary: env!("CARGO_BIN_EXE_demo-function").into(),
            environment: [
                ("LOCK_TABLE", "locks".to_owned()),
                ("AWS_ENDPOINT_URL_DYNAMODB", dynamodb.endpoint().to_owned()),
                ("LOCK_MAX_CLOCK_SKEW_MS", skew.as_millis().to_string()),
            ]
            .map(|(name, value)| (name.to_owned(), value))
            .into(),
            timeout,
            memory_mb: 128,
            ..Function::default()
        };
        let functions = vec![function("holder", holder_timeout), function("next", Duration::from_secs(30))];
        Self { lambda: Lambda::start(functions).await.unwrap(), locks, dynamodb }
    }

    async fn invoke(&self, function: &str, payload: &Value) -> Invocation {
        self.lambda.invoke(function, &payload.to_string()).await.unwrap()
    }

    /// Invokes the holder in the background, and waits until it works. It is not enough to wait for the row:
    /// the response to the acquire may still be in flight, and a process that is frozen then does not hold
    /// the lock yet.
    async fn begin(&self, payload: Value) -> JoinHandle<Invocation> {
        let (lambda, mut lines) = (self.lambda.clone(), self.lambda.log_lines());
        let working = tokio::spawn(async move { lambda.invoke("holder", &payload.to_string()).await.unwrap() });
        let at_work = async { while !lines.recv().await.unwrap().line.contains("step 0 of") {} };
        soon("it is at work", at_work).await;
        working
    }

    async fn row(&self) -> PeekedLock {
        self.locks.operator().peek("k").await.unwrap().unwrap()
    }

    /// Returns `count` and `lastToken` of the counter.
    async fn counter(&self, key: &str) -> (u64, u64) {
        let get = client(self.dynamodb.endpoint()).get_item().table_name("counters");
        let item = get.key("id", AttributeValue::S(key.to_owned())).send().await.unwrap().item.unwrap();
        let number = |name: &str| item[name].as_n().unwrap().parse().unwrap();
        (number("count"), number("lastToken"))
    }
}

async fn create_counters(endpoint: &str) {
    let id = AttributeDefinition::builder().attribute_name("id").attribute_type(ScalarAttributeType::S);
    let hash = KeySchemaElement::builder().attribute_name("id").key_type(KeyType::Hash);
    let create = client(endpoint).create_table().table_name("counters").billing_mode(BillingMode::PayPerRequest);
    let create = create.attribute_definitions(id.build().unwrap()).key_schema(hash.build().unwrap());
    create.send().await.unwrap();
}

fn answer(invocation: &Invocation) -> Value {
    match &invocation.outcome {
        Outcome::Answer(answer) => serde_json::from_str(answer).unwrap(),
        other => panic!("{other:?}\n{}", invocation.logs),
    }
}

fn since_epoch(time: SystemTime) -> Duration {
    time.duration_since(UNIX_EPOCH).unwrap()
}

/// Returns the lease that covers a budget.
fn lease_of(timeout: Duration) -> Duration {
    (timeout + GRACE).mul_f64(1.0 + DRIFT)
}

#[tokio::test]
async fn the_lock_of_a_holder_killed_at_its_deadline_is_taken_over_after_grace_drift_and_skew() {
    // Long enough to notice the difference: a contender that only observes would need a whole lease.
    let timeout = Duration::from_secs(6);
    let stage = Stage::new(timeout, SKEW).await;
    let killed = stage.invoke("holder", &json!({ "key": "k", "steps": [60_000] })).await;
    let gone = Instant::now();
    assert_eq!(killed.outcome, Outcome::TimedOut, "{killed:?}");
    let row = stage.row().await;
    assert!(!row.released, "the lock was released");

    let next = stage.invoke("next", &json!({ "key": "k" })).await;
    // The kill comes after the deadline. That time counts too.
    let after_deadline = gone.elapsed() + killed.duration.saturating_sub(timeout);
    assert!(answer(&next)["fencingToken"].as_u64() > row.fencing_token);
    let bound = GRACE + lease_of(timeout).mul_f64(DRIFT) + SKEW;
    eprintln!("taken over {after_deadline:?} after the deadline; {bound:?} and one request are promised");
    assert!(after_deadline <= bound + MACHINE, "{after_deadline:?}, promised {bound:?}");
    assert!(after_deadline >= GRACE, "{after_deadline:?}: the grace of the dead holder was not over");
}

#[tokio::test]
async fn the_lock_of_a_holder_that_crashed_is_taken_over_after_its_lease() {
    let stage = Stage::new(Duration::from_secs(3), SKEW).await;
    let crashed = stage.invoke("holder", &json!({ "key": "k", "steps": [50, 50, 50], "crashAt": 1 })).await;
    assert_eq!(crashed.outcome, Outcome::Exited("exit status 70".to_owned()), "{crashed:?}");
    assert!(crashed.logs.contains("step 1 of k crashes") && !crashed.logs.contains("step 2"), "{}", crashed.logs);
    let row = stage.row().await;
    assert!(!row.released, "the lock was released");

    let next = stage.invoke("next", &json!({ "key": "k", "write": true })).await;
    let done = since_epoch(SystemTime::now());
    let token = answer(&next)["fencingToken"].as_u64().unwrap();
    assert!(Some(token) > row.fencing_token);
    assert_eq!(stage.counter("k").await, (1, token), "the crashed holder must not have written");
    let ended = since_epoch(row.lease_ends_at.unwrap());
    let after_lease = done.saturating_sub(ended);
    eprintln!("taken over {after_lease:?} after the end of the lease; {SKEW:?} and one request are promised");
    assert!(done >= ended, "the lease was not over");
    assert!(after_lease <= SKEW + MACHINE, "{after_lease:?}");
}

#[tokio::test]
async fn a_holder_frozen_for_longer_than_its_lease_is_lost_at_the_next_checkpoint() {
    let stage = Stage::new(Duration::from_secs(60), Duration::from_millis(200)).await;
    let work = json!({ "key": "k", "steps": [500], "checkpoint": true, "write": true });
    let (old, successor) = stage.frozen_and_succeeded(work).await;
    match old.outcome {
        Outcome::Error { error_type, .. } => assert_eq!(error_type, "LockLost"),
        other => panic!("{other:?}\n{}", old.logs),
    }
    assert_eq!(stage.counter("k").await, (1, successor));
    let row = stage.row().await;
    assert_eq!(row.fencing_token, Some(successor), "the row must have the successor's grant");
}

#[tokio::test]
async fn a_frozen_holder_without_a_checkpoint_is_refused_by_the_resource() {
    let stage = Stage::new(Duration::from_secs(60), Duration::from_millis(200)).await;
    let work = json!({ "key": "k", "steps": [500], "checkpoint": false, "write": true });
    let (old, successor) = stage.frozen_and_succeeded(work).await;
    assert!(old.logs.contains("the write of k with the token"), "{}", old.logs);
    match old.outcome {
        Outcome::Error { error_type, .. } => assert_eq!(error_type, "LockLost"),
        other => panic!("{other:?}\n{}", old.logs),
    }
    assert_eq!(stage.counter("k").await, (1, successor), "the late write was not applied");
}

impl Stage {
    /// Freezes the holder in its first step, lets a successor take over and write, and thaws the holder.
    /// Returns the result of the holder and the successor's token.
    async fn frozen_and_succeeded(&self, mut work: Value) -> (Invocation, u64) {
        work["leaseMillis"] = 1000.into();
        // Otherwise the guard stops the work after the thaw.
        work["withoutCut"] = true.into();
        let working = self.begin(work).await;
        let row = self.row().await;
        let environment = self.lambda.environments("holder")[0];
        self.lambda.freeze(environment).unwrap();
        let next = answer(&self.invoke("next", &json!({ "key": "k", "write": true })).await);
        assert!(since_epoch(SystemTime::now()) > since_epoch(row.lease_ends_at.unwrap()), "the lease was not over");
        assert_eq!(next["written"], true);
        assert!(!working.is_finished());
        self.lambda.thaw(environment).unwrap();
        (working.await.unwrap(), next["fencingToken"].as_u64().unwrap())
    }
}
