//! As on Lambda Managed Instances: several invocations at once in one process, which nobody kills and nobody freezes.

use crate::scene::{LONG, SHORT, answer};
use aws_sdk_dynamodb::types::AttributeValue;
use lambda_lock::{LockClient, operator::PeekedLock};
use lambda_lock_local::lambda::LogLine;
use lambda_lock_local::{CountingProxy, Function, Invocation, Lambda, LocalDynamoDb, Outcome, client};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tokio::sync::broadcast::Receiver;
use tokio::task::JoinHandle;
use uuid::Uuid;

/// The function whose processes go on.
const MANAGED: &str = "managed";
/// An ordinary one, which waits for the lock of the other for up to 15 s.
const NEXT: &str = "next";

/// Both functions, on one lock table, with a ledger of the steps that they do.
struct Stage {
    lambda: Lambda,
    proxy: CountingProxy,
    dynamodb: LocalDynamoDb,
    ledger: PathBuf,
}

impl Stage {
    async fn new(timeout: Duration, concurrency: u32) -> Self {
        let dynamodb = LocalDynamoDb::with_tables(&[("locks", "key"), ("counters", "id")]).await.unwrap();
        let proxy = CountingProxy::start(dynamodb.endpoint()).await.unwrap();
        let ledger = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("ledger-{}", Uuid::new_v4()));
        let environment = [
            ("LOCK_TABLE", "locks"),
            ("LOCK_MAX_CLOCK_SKEW_MS", "200"),
            ("AWS_ENDPOINT_URL_DYNAMODB", proxy.endpoint()),
            ("LEDGER", ledger.to_str().unwrap()),
        ];
        let next = Function {
            name: NEXT.to_owned(),
            binary: env!("CARGO_BIN_EXE_demo-function").into(),
            environment: environment.map(|(name, value)| (name.to_owned(), value.to_owned())).into(),
            timeout: LONG,
            ..Function::default()
        };
        let managed = Function { name: MANAGED.to_owned(), timeout, concurrency, kills: false, ..next.clone() };
        Self { lambda: Lambda::start(vec![managed, next]).await.unwrap(), proxy, dynamodb, ledger }
    }

    async fn invoke(&self, function: &str, payload: Value) -> Invocation {
        self.lambda.invoke(function, &payload.to_string()).await.unwrap()
    }

    /// Invokes the managed function beside the test.
    fn begin(&self, payload: Value) -> JoinHandle<Invocation> {
        self.begin_as(&Uuid::new_v4().to_string(), payload)
    }

    fn begin_as(&self, request_id: &str, payload: Value) -> JoinHandle<Invocation> {
        let (lambda, request_id) = (self.lambda.clone(), request_id.to_owned());
        tokio::spawn(async move { lambda.invoke_as(MANAGED, &request_id, &payload.to_string()).await.unwrap() })
    }

    /// The fencing tokens under which steps of this key were done, in the order of these steps.
    fn tokens(&self, key: &str) -> Vec<u64> {
        let ledger = std::fs::read_to_string(&self.ledger).unwrap();
        let lines = ledger.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        lines.filter(|line| line["key"] == key).map(|line| line["fencingToken"].as_u64().unwrap()).collect()
    }

    async fn row(&self, key: &str) -> PeekedLock {
        let locks = LockClient::builder(self.dynamodb.client(), "locks").build().unwrap();
        locks.operator().peek(key).await.unwrap().unwrap()
    }

    /// `count` and `lastToken` of the counter.
    async fn counter(&self, key: &str) -> (u64, u64) {
        let get = client(self.dynamodb.endpoint()).get_item().table_name("counters");
        let item = get.key("id", AttributeValue::S(key.to_owned())).send().await.unwrap().item.unwrap();
        let number = |name: &str| item[name].as_n().unwrap().parse().unwrap();
        (number("count"), number("lastToken"))
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        // Not there where no step was done.
        let _ = std::fs::remove_file(&self.ledger);
    }
}

/// Waits until a function writes this line.
async fn until(lines: &mut Receiver<LogLine>, this: &str) {
    let written = async { while !lines.recv().await.unwrap().line.contains(this) {} };
    tokio::time::timeout(LONG, written).await.unwrap_or_else(|_| panic!("nobody wrote {this:?}"));
}

const LATE_ANSWER_IS_REFUSED: &str = "invocation timed out or response was stale";

fn steps(millis: u64, count: usize) -> Vec<u64> {
    vec![millis; count]
}

/// A later grant has a larger token.
fn is_one_after_the_other(tokens: &[u64]) -> bool {
    tokens.is_sorted()
}

fn grants(tokens: &[u64]) -> usize {
    tokens.iter().collect::<std::collections::BTreeSet<_>>().len()
}

#[tokio::test]
async fn eight_invocations_in_one_environment_take_the_time_of_one() {
    let stage = Stage::new(LONG, 8).await;
    let environment = stage.invoke(MANAGED, json!({ "key": "cold" })).await.environment;

    let started = Instant::now();
    let work = |n: usize| stage.begin(json!({ "key": format!("k{n}"), "steps": [1000] }));
    let working: Vec<_> = (0..8).map(work).collect();
    for (n, working) in working.into_iter().enumerate() {
        let done = working.await.unwrap();
        assert_eq!((&answer(&done)["key"], done.environment), (&json!(format!("k{n}")), environment));
        assert!(done.logs.contains(&format!("step 0 of k{n}")), "{}", done.logs);
        assert!(!done.cold_start);
    }

    let elapsed = started.elapsed();
    assert!(elapsed < Duration::from_secs(8), "one after the other they take 8 s, and these took {elapsed:?}");
    assert_eq!(stage.lambda.environments(MANAGED), [environment]);
}

#[tokio::test]
async fn no_two_invocations_in_one_environment_hold_one_lock_at_once() {
    let stage = Stage::new(LONG, 8).await;

    let working: Vec<_> = (0..8).map(|_| stage.begin(json!({ "key": "k", "steps": steps(20, 3) }))).collect();
    for working in working {
        answer(&working.await.unwrap());
    }

    let tokens = stage.tokens("k");
    assert_eq!((tokens.len(), grants(&tokens)), (24, 8));
    assert!(is_one_after_the_other(&tokens), "{tokens:?}");
    assert_eq!(stage.lambda.environments(MANAGED).len(), 1);
}

#[tokio::test]
async fn past_its_deadline_work_does_nothing_after_the_next_grant_and_the_environment_answers_again() {
    let stage = Stage::new(SHORT, 2).await;
    let mut lines = stage.lambda.log_lines();
    let nobody_waits_for_it = stage.begin(json!({ "key": "another", "steps": steps(20, 300) }));

    let late = stage.invoke(MANAGED, json!({ "key": "k", "steps": steps(20, 300) })).await;
    let next = stage.invoke(NEXT, json!({ "key": "k", "steps": steps(20, 20) })).await;
    until(&mut lines, LATE_ANSWER_IS_REFUSED).await;
    until(&mut lines, LATE_ANSWER_IS_REFUSED).await;
    let again = stage.invoke(MANAGED, json!({ "key": "again" })).await;

    assert_eq!(late.outcome, Outcome::TimedOut);
    assert!(late.duration < 2 * SHORT, "the caller is told at the deadline: {:?}", late.duration);
    answer(&next);
    let tokens = stage.tokens("k");
    assert_eq!(grants(&tokens), 2);
    assert!(is_one_after_the_other(&tokens), "{tokens:?}");
    assert_eq!(nobody_waits_for_it.await.unwrap().outcome, Outcome::TimedOut);
    assert!(stage.row("another").await.released);
    assert_eq!((again.environment, again.cold_start), (late.environment, false));
    assert_eq!(answer(&again)["key"], "again");
}

#[tokio::test]
async fn work_without_cut_goes_on_beside_the_next_holder_and_its_fenced_writes_are_refused() {
    let stage = Stage::new(SHORT, 1).await;
    let mut lines = stage.lambda.log_lines();

    let work = json!({ "key": "k", "steps": steps(20, 200), "write": true, "withoutCut": true });
    let late = stage.invoke(MANAGED, work).await;
    let next = stage.invoke(NEXT, json!({ "key": "k", "steps": steps(20, 10), "write": true })).await;
    until(&mut lines, "the write of k with the token").await;
    until(&mut lines, LATE_ANSWER_IS_REFUSED).await;

    assert_eq!(late.outcome, Outcome::TimedOut);
    let tokens = stage.tokens("k");
    assert_eq!(grants(&tokens), 2);
    assert!(!is_one_after_the_other(&tokens), "{tokens:?}");
    assert_eq!(stage.counter("k").await, (1, answer(&next)["fencingToken"].as_u64().unwrap()));
}

#[tokio::test]
async fn two_attempts_of_one_request_are_two_owners_and_one_waits_for_the_other() {
    let stage = Stage::new(LONG, 2).await;
    let mut lines = stage.lambda.log_lines();

    let first = stage.begin_as("one-id", json!({ "key": "k", "steps": [600] }));
    until(&mut lines, "step 0 of k").await;
    let second = stage.begin_as("one-id", json!({ "key": "k", "steps": [1, 1] }));
    let (first, second) = (first.await.unwrap(), second.await.unwrap());

    assert_eq!((first.request_id.as_str(), &first.request_id), ("one-id", &second.request_id));
    assert_eq!(first.environment, second.environment);
    let (first, second) = (answer(&first), answer(&second));
    assert_eq!((&first["steps"], &second["steps"]), (&json!(1), &json!(2)), "each caller has its own answer");
    let owners = [&first, &second].map(|answer| answer["owner"].as_str().unwrap());
    assert!(owners.iter().all(|owner| owner.starts_with("managed:$LATEST/one-id/")), "{owners:?}");
    assert_ne!(owners[0], owners[1]);
    let tokens = stage.tokens("k");
    assert_eq!(grants(&tokens), 2);
    assert!(is_one_after_the_other(&tokens), "{tokens:?}");
}

#[tokio::test]
async fn the_late_answer_of_one_attempt_is_not_that_of_the_next() {
    let stage = Stage::new(SHORT, 2).await;
    let mut lines = stage.lambda.log_lines();

    let late = stage.begin_as("one-id", json!({ "key": "late", "steps": [2500] })).await.unwrap();
    let next = stage.begin_as("one-id", json!({ "key": "next", "steps": [50] })).await.unwrap();
    until(&mut lines, LATE_ANSWER_IS_REFUSED).await;

    assert_eq!(late.outcome, Outcome::TimedOut);
    assert_eq!(answer(&next)["key"], "next");
}

#[tokio::test]
async fn a_deadline_in_the_past_is_unknown_without_any_request() {
    let stage = Stage::new(Duration::ZERO, 2).await;
    let mut lines = stage.lambda.log_lines();

    // Its caller may be told that time is up before it has answered, or after that.
    stage.invoke(MANAGED, json!({ "key": "k" })).await;
    until(&mut lines, "LockUnknown").await;

    assert_eq!(stage.proxy.take().total(), 0);
}

#[tokio::test]
async fn work_that_was_frozen_beyond_its_lease_is_not_polled_after_the_thaw() {
    let stage = Stage::new(LONG, 2).await;
    let mut lines = stage.lambda.log_lines();
    let working = stage.begin(json!({ "key": "k", "steps": steps(700, 9), "leaseMillis": 1000 }));
    until(&mut lines, "step 0 of k").await;

    let environment = stage.lambda.environments(MANAGED)[0];
    stage.lambda.freeze(environment).unwrap();
    let next = stage.invoke(NEXT, json!({ "key": "k", "steps": [10] })).await;
    stage.lambda.thaw(environment).unwrap();
    let frozen = working.await.unwrap();

    answer(&next);
    let Outcome::Error { error_type, message } = &frozen.outcome else { panic!("{frozen:?}") };
    assert_eq!(error_type, "WorkFailed");
    assert!(message.contains("ended while the work ran, so the work was stopped"), "{message}");
    let tokens = stage.tokens("k");
    assert_eq!(grants(&tokens), 2);
    assert!(is_one_after_the_other(&tokens), "{tokens:?}");
}

#[tokio::test]
async fn work_that_renews_its_lease_goes_on_after_the_end_of_the_first_one() {
    let stage = Stage::new(LONG, 2).await;

    let work = json!({ "key": "k", "steps": steps(400, 4), "checkpoint": true, "leaseMillis": 1000 });
    let done = stage.invoke(MANAGED, work).await;

    assert_eq!(answer(&done)["steps"], 4);
}

#[tokio::test]
async fn a_process_that_ends_fails_all_that_is_under_way_in_it() {
    let stage = Stage::new(LONG, 3).await;
    let mut lines = stage.lambda.log_lines();
    let working = ["a", "b"].map(|key| stage.begin(json!({ "key": key, "steps": [60_000] })));
    until(&mut lines, "step 0 of").await;
    until(&mut lines, "step 0 of").await;

    let crashed = stage.invoke(MANAGED, json!({ "key": "c", "steps": [1], "crashAt": 0 })).await;
    let next = stage.invoke(MANAGED, json!({ "key": "d" })).await;

    let exited = Outcome::Exited("exit status 70".to_owned());
    assert_eq!(crashed.outcome, exited);
    for working in working {
        assert_eq!(working.await.unwrap().outcome, exited);
    }
    answer(&next);
    assert_eq!((next.environment, next.cold_start), (crashed.environment, true));
}

#[tokio::test]
async fn what_an_environment_has_no_room_for_goes_to_another_one() {
    let stage = Stage::new(LONG, 2).await;
    let mut lines = stage.lambda.log_lines();
    let _working = ["a", "b"].map(|key| stage.begin(json!({ "key": key, "steps": [60_000] })));
    until(&mut lines, "step 0 of").await;
    until(&mut lines, "step 0 of").await;
    assert_eq!(stage.lambda.environments(MANAGED).len(), 1);

    let third = stage.invoke(MANAGED, json!({ "key": "c" })).await;
    let fourth = stage.invoke(MANAGED, json!({ "key": "d" })).await;

    assert_eq!(stage.lambda.environments(MANAGED).last(), Some(&third.environment));
    assert_eq!((third.cold_start, fourth.cold_start), (true, false));
    assert_eq!(third.environment, fourth.environment);
}

#[tokio::test]
async fn a_process_for_several_invocations_is_told_how_many() {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/lambda/says-its-environment");
    let function =
        Function { name: "env".to_owned(), binary: script, concurrency: 8, timeout: LONG, ..Function::default() };

    let said = Lambda::start(vec![function]).await.unwrap().invoke("env", "{}").await.unwrap();

    for line in ["AWS_LAMBDA_MAX_CONCURRENCY=8", "AWS_LAMBDA_INITIALIZATION_TYPE=lambda-managed-instances"] {
        assert!(said.logs.lines().any(|said| said == line), "{line} in\n{}", said.logs);
    }
}

#[tokio::test]
async fn a_function_without_room_for_any_invocation_is_refused_at_the_start() {
    let function = Function {
        name: "none".to_owned(),
        binary: env!("CARGO_BIN_EXE_demo-function").into(),
        concurrency: 0,
        ..Function::default()
    };

    let refused = Lambda::start(vec![function]).await.unwrap_err().to_string();

    assert_eq!(refused, r#"the concurrency of "none" must be at least 1; got 0"#);
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_process_is_not_stopped_between_two_invocations() {
    for concurrency in [1, 2] {
        let stage = Stage::new(LONG, concurrency).await;

        let done = stage.invoke(MANAGED, json!({ "key": "k" })).await;
        tokio::time::sleep(Duration::from_millis(300)).await;

        let process = stage.lambda.process(done.environment).unwrap();
        assert_ne!(crate::freezing::state(process).as_deref(), Some("T"), "concurrency {concurrency}");
    }
}
