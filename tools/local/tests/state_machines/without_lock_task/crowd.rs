//! Twenty holders of three keys while requests get lost and executions are stopped: state machines without lock-task that
//! poll in both ways, state machines with lock-task, and callers of the crate. The counters are exact.

use super::{document, machine, options, scene, slow};
use crate::grants::{Grants, SLACK};
use crate::scene::{LEASE, PATIENCE, SKEW, Scene, definition};
use lambda_lock::Budget;
use lambda_lock_local::authorize::{Call, Fate};
use lambda_lock_local::states::{Definition, Execution};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::env;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

const KEYS: [&str; 3] = ["a", "b", "c"];
const HOLDERS: usize = 20;
/// Who holds the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Holder {
    StateMachine,
    LockTask,
    Crate,
}

/// Half of the holders are state machines without lock-task, the others share the rest.
const HOLDER: [Holder; 4] = [Holder::StateMachine, Holder::LockTask, Holder::StateMachine, Holder::Crate];

struct Run {
    number: usize,
    random: Mutex<fastrand::Rng>,
}

impl Run {
    fn millis(&self, from: u64, to: u64) -> Duration {
        Duration::from_millis(self.random.lock().unwrap().u64(from..to))
    }

    fn one_in(&self, n: u32) -> bool {
        self.random.lock().unwrap().u32(0..n) == 0
    }

    fn key(&self, index: usize) -> String {
        format!("{}-{}", KEYS[index % KEYS.len()], self.number)
    }
}

#[tokio::test]
async fn a_mixed_crowd_counts_exactly_and_leaves_no_lock_behind() {
    let Some(scene) = scene().await.map(Arc::new) else { return };
    let runs = env::var("LAMBDA_LOCK_CROWDS").ok().map(|runs| runs.parse().unwrap());
    let runs = runs.unwrap_or(1);
    for number in 0..runs {
        let seed = env::var("LAMBDA_LOCK_SEED").map_or_else(|_| fastrand::u64(..), |seed| seed.parse().unwrap());
        // Printed when the test fails, or with --nocapture.
        println!("run {} of {runs}, LAMBDA_LOCK_SEED={seed}", number + 1);
        let run = Arc::new(Run { number, random: Mutex::new(fastrand::Rng::with_seed(seed)) });
        let began = Instant::now();
        crowd(&scene, &run).await;
        println!("  took {:.1?}", began.elapsed());
    }
}

async fn crowd(scene: &Arc<Scene>, run: &Arc<Run>) {
    misbehave(scene, run);
    let mut holders = JoinSet::new();
    for index in 0..HOLDERS {
        let (scene, run) = (Arc::clone(scene), Arc::clone(run));
        holders.spawn(async move {
            tokio::time::sleep(run.millis(0, 1500)).await;
            match HOLDER[index % HOLDER.len()] {
                Holder::Crate => of_the_crate(&scene, &run, index).await,
                holder => execution(&scene, &run, index, holder).await,
            }
        });
    }
    let succeeded: BTreeSet<_> = holders.join_all().await.into_iter().flatten().collect();
    scene.sample.proxy.decide(|_| Fate::Answered);
    let mut counted = BTreeSet::new();
    for index in 0..KEYS.len() {
        let (value, writers) = scene.counter(&run.key(index)).await;
        assert_eq!(value, writers.len() as u64, "{}: {writers:?}", run.key(index));
        counted.extend(writers);
    }
    assert!(counted.is_superset(&succeeded), "{:?} succeeded and have not counted", succeeded.difference(&counted));
    println!("  {} of {HOLDERS} succeeded, {} counted", succeeded.len(), counted.len());
    assert!(succeeded.len() >= HOLDERS / 2, "too few succeeded to prove anything");
    let too_early = Grants::read(scene).await.too_early_but_for(are_of_one_execution);
    assert!(too_early.is_empty(), "{too_early:#?}");
    let came = Instant::now();
    for index in 0..KEYS.len() {
        let locks = scene.locks();
        let budget = Budget::lasting(LEASE + SKEW + SLACK).reserve(Duration::ZERO);
        let lock = locks.acquire(run.key(index)).lease(Duration::from_secs(1)).within(&budget).await.unwrap();
        lock.release().await.unwrap();
    }
    assert!(came.elapsed() < LEASE + SKEW + SLACK, "{:?}", came.elapsed());
}

/// An execution sees that a claim without a response was granted to it, and is stopped before it takes exactly that version. It
/// takes it when it is redriven, under its next name: it has done nothing under that grant.
fn are_of_one_execution(before: &str, next: &str) -> bool {
    let execution = |owner: &str| owner.rsplit_once('/').map(|(execution, _redrives)| execution.to_owned());
    execution(before).is_some_and(|before| execution(next) == Some(before))
}

/// Loses requests and responses of state machines and of lock-task, delays them, and sends some twice.
fn misbehave(scene: &Scene, run: &Run) {
    let random = Mutex::new(fastrand::Rng::with_seed(run.random.lock().unwrap().u64(..)));
    scene.sample.proxy.decide(move |call: &Call| match random.lock().unwrap().u32(0..60) {
        _ if call.caller == "sample-work" => Fate::Answered,
        0..3 => Fate::AnswerLost,
        3..5 => Fate::RequestLost,
        5 => Fate::AnsweredAfter(Duration::from_millis(400)),
        6..8 => Fate::AppliedAgain(Duration::from_millis(200)),
        _ => Fate::Answered,
    });
}

/// An execution from its start to its end. Some are stopped, some of these are redriven. Returns its name if it
/// succeeded.
async fn execution(scene: &Scene, run: &Run, index: usize, holder: Holder) -> Option<String> {
    let definition = match holder {
        Holder::LockTask => definition("exclusive-work"),
        _ => machine(),
    };
    let input = slow(&run.key(index), run.millis(20, 250));
    let execution = scene.engine.execute(&format!("run-{}-{index}", run.number), &definition, &input).await.unwrap();
    let execution = if run.one_in(4) { stopped(scene, run, execution).await } else { execution };
    let end = scene.engine.until_end(&execution, PATIENCE).await.unwrap();
    if end.status != "SUCCEEDED" {
        println!("  {index} {holder:?}: {} {:?}", end.status, end.error);
    }
    (end.status == "SUCCEEDED").then_some(execution.arn)
}

/// Stops an execution at any time. Half of the time lock-cleaner hears of it, and half of the time it is redriven.
async fn stopped(scene: &Scene, run: &Run, execution: Execution) -> Execution {
    tokio::time::sleep(run.millis(200, 3000)).await;
    scene.engine.stop(&execution).await.unwrap();
    let end = scene.engine.until_end(&execution, PATIENCE).await.unwrap();
    if end.status != "ABORTED" {
        return execution;
    }
    if run.one_in(2) {
        // It may fail, as any other request. Lambda would repeat it.
        let _ = scene.sample.ask("lock-cleaner", &execution.status_change("ABORTED")).await;
    }
    if run.one_in(2) {
        return execution;
    }
    tokio::time::sleep(run.millis(0, 800)).await;
    scene.engine.redrive(&execution).await.unwrap()
}

/// A caller of the crate.
async fn of_the_crate(scene: &Scene, run: &Run, index: usize) -> Option<String> {
    let (key, name) = (run.key(index), format!("crate-{}-{index}", run.number));
    let budget = Budget::lasting(PATIENCE).reserve(Duration::ZERO);
    let lock = scene.locks().acquire(&key).lease(LEASE).within(&budget).await.unwrap();
    let add = json!({ "step": "add", "counter": key, "fencingToken": lock.fencing_token(), "writer": name });
    let added = scene.sample.ask("sample-work", &add).await;
    lock.release().await.unwrap();
    added.is_ok().then_some(name)
}

/// The sample without a fence, so that only the lock keeps its executions apart.
fn unfenced() -> Value {
    let mut document = document(&options());
    for step in ["FirstStep", "SecondStep"] {
        document["States"][step]["Arguments"]["Payload"]["fencingToken"] = json!(1);
    }
    document
}

/// A condition that holds for every row.
const ALWAYS: &str = "attribute_exists(ownerName) OR attribute_not_exists(ownerName)";

/// The same with conditions that hold for every row. They name an attribute that the role may name.
fn always_holding(mut document: Value) -> Value {
    for state in document["States"].as_object_mut().unwrap().values_mut() {
        if let Some(Value::String(condition)) = state["Arguments"].get_mut("ConditionExpression") {
            *condition = match condition.strip_prefix("{%").and_then(|rest| rest.strip_suffix("%}")) {
                Some(expression) => format!("{{% ({expression}) & ' OR {ALWAYS}' %}}"),
                None => format!("{condition} OR {ALWAYS}"),
            };
        }
    }
    document
}

/// Runs some executions on one key at once. Returns the counter, and how many have counted.
async fn counted(scene: &Scene, name: &str, document: Value) -> (u64, usize) {
    let mut executions = Vec::new();
    let machine = Definition::new(document).renamed(name);
    for index in 0..5 {
        let input = slow(name, Duration::from_millis(300));
        executions.push(scene.engine.execute(&format!("{name}-{index}"), &machine, &input).await.unwrap());
    }
    for execution in &executions {
        scene.engine.until_end(execution, PATIENCE).await.unwrap();
    }
    let (value, writers) = scene.counter(name).await;
    (value, writers.len())
}

#[tokio::test]
async fn with_conditions_that_always_hold_the_same_executions_lose_updates() {
    let Some(scene) = scene().await else { return };
    assert_eq!(counted(&scene, "right", unfenced()).await, (5, 5));
    assert!(Grants::read(&scene).await.too_early().is_empty());

    let (value, writers) = counted(&scene, "wrong", always_holding(unfenced())).await;
    assert!(value < writers as u64, "{value} counted by {writers}: this test would not notice a lost update");
    assert!(!Grants::read(&scene).await.too_early().is_empty(), "the crowds would not notice two holders");
}
