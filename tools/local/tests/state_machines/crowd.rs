//! Twenty executions use three keys while everything goes wrong at once. A third of them hold their locks without
//! lock-task. The counter is exact, every lock is free at the end, and no execution waits for longer than a lease, a
//! slot and one look. The other state machines run at the same time, two of them on the same keys.

use crate::grants::{Grants, SLACK};
use crate::scene::{LEASE, PATIENCE, SKEW, Scene, definition};
use crate::tenures::Tenures;
use crate::without_lock_task;
use lambda_lock_local::authorize::{Call, Fate};
use lambda_lock_local::states::{Definition, End, Execution};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::env;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};
use tokio::task::JoinSet;

const KEYS: [&str; 3] = ["a", "b", "c"];

/// What happens to one execution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Plan {
    Works,
    Fails(&'static str),
    Crashes(&'static str),
    /// It is stopped.
    Stopped,
    /// It is stopped, and redriven at the state where it was.
    Redriven,
    /// Its timeout is a second, and its steps take longer.
    TimesOut,
    /// It runs fan-out over all keys.
    FansOut,
    /// It runs skip-if-running.
    Skips,
}

/// The plans of a run, so that every kind of accident happens in each run.
const PLANS: [Plan; 20 + 5] = [
    Plan::Works,
    Plan::Works,
    Plan::Works,
    Plan::Works,
    Plan::Works,
    Plan::Works,
    Plan::Works,
    Plan::Works,
    Plan::Fails("read"),
    Plan::Fails("write"),
    Plan::Crashes("read"),
    Plan::Crashes("write"),
    Plan::Stopped,
    Plan::Stopped,
    Plan::Stopped,
    Plan::Redriven,
    Plan::Redriven,
    Plan::Redriven,
    Plan::TimesOut,
    Plan::TimesOut,
    Plan::FansOut,
    Plan::FansOut,
    Plan::Skips,
    Plan::Skips,
    Plan::Skips,
];

/// One run: its random numbers, and the names that it uses.
struct Run {
    number: usize,
    random: Mutex<fastrand::Rng>,
    /// The executions that lock-cleaner was told about, and when.
    cleaned_up: Mutex<Vec<(String, Instant)>>,
    /// When each attempt of an execution began.
    came: Mutex<BTreeMap<String, SystemTime>>,
}

/// How one execution ended.
struct Ended {
    plan: Plan,
    execution: Execution,
    end: End,
}

impl Ended {
    fn succeeded(&self) -> bool {
        self.end.status == "SUCCEEDED"
    }

    /// Returns the callers that have counted, if it succeeded.
    fn writers(&self) -> Vec<String> {
        let arn = &self.execution.arn;
        match self.plan {
            Plan::FansOut => (0..KEYS.len()).map(|index| format!("{arn}/{index}")).collect(),
            Plan::Skips if self.end.output["value"].is_null() => Vec::new(),
            _ => vec![arn.clone()],
        }
    }
}

impl Run {
    fn millis(&self, from: u64, to: u64) -> Duration {
        Duration::from_millis(self.random.lock().unwrap().u64(from..to))
    }

    fn one_in(&self, n: u32) -> bool {
        self.random.lock().unwrap().u32(0..n) == 0
    }

    fn key(&self, key: &str) -> String {
        format!("{key}-{}", self.number)
    }

    /// Notes that an attempt of an execution begins.
    fn comes(&self, execution: &Execution, attempt: u32) {
        self.came.lock().unwrap().insert(format!("{}/{attempt}", execution.arn), SystemTime::now());
    }
}

#[tokio::test]
async fn twenty_executions_over_three_keys_count_exactly_and_leave_no_lock_behind() {
    let Some(scene) = without_lock_task::scene().await.map(Arc::new) else { return };
    let runs = env::var("LAMBDA_LOCK_CROWDS").ok().map(|runs| runs.parse().unwrap());
    let runs = runs.unwrap_or(1);
    for number in 0..runs {
        let seed = env::var("LAMBDA_LOCK_SEED").map_or_else(|_| fastrand::u64(..), |seed| seed.parse().unwrap());
        let started = Instant::now();
        let random = Mutex::new(fastrand::Rng::with_seed(seed));
        let run = Run { number, random, cleaned_up: Mutex::default(), came: Mutex::default() };
        // Printed when the test fails, or with --nocapture.
        println!("run {} of {runs}, LAMBDA_LOCK_SEED={seed}", number + 1);
        crowd(&scene, &Arc::new(run)).await;
        println!("  took {:.1?}", started.elapsed());
    }
}

async fn crowd(scene: &Arc<Scene>, run: &Arc<Run>) {
    misbehave(scene, run);
    let mut plans = PLANS;
    run.random.lock().unwrap().shuffle(&mut plans[..20]);
    run.random.lock().unwrap().shuffle(&mut plans[20..]);
    let mut executions = JoinSet::new();
    for (index, plan) in plans.into_iter().enumerate() {
        let (scene, run) = (Arc::clone(scene), Arc::clone(run));
        executions.spawn(async move { execute(&scene, &run, index, plan).await });
    }
    let ended = tokio::select! {
        ended = executions.join_all() => ended,
        () = kill_now_and_then(scene, run) => unreachable!("this never ends"),
    };
    scene.sample.proxy.decide(|_| Fate::Answered);
    scene.router.lose(|_, _| false);
    let asked = scene.router.take_asked();
    let grants = Grants::read(scene).await;
    let mut transitions = 0;
    for ended in &ended {
        assert!(
            is_expected(ended),
            "{:?} {:?} {:?}",
            ended.plan,
            ended.end,
            scene.engine.states(&ended.execution).await
        );
        // A redriven execution continues with a lock that was released when it was stopped.
        if ended.end.error.as_deref() == Some("LockLost") && ended.plan != Plan::Redriven {
            assert!(grants.was_overtaken(&ended.execution.arn), "{} lost its lock", ended.execution.arn);
        }
        transitions += scene.engine.states(&ended.execution).await.unwrap().len();
    }
    counters_are_exact(scene, run, &ended).await;
    Tenures::read(&asked).nobody_shared(&run.cleaned_up.lock().unwrap());
    assert!(grants.too_early().is_empty(), "{:#?}", grants.too_early());
    let longest = grants.nobody_waited_too_long(&run.came.lock().unwrap());
    println!("  the longest wait for a holder: {longest:.1?}; {transitions} transitions");
    every_lock_is_free(scene, run).await;
}

/// Loses responses of DynamoDB and of lock-task.
fn misbehave(scene: &Scene, run: &Run) {
    let seed = run.random.lock().unwrap().u64(..);
    let random = Mutex::new(fastrand::Rng::with_seed(seed));
    scene.sample.proxy.decide(move |_: &Call| match random.lock().unwrap().u32(0..40) {
        0 => Fate::AnswerLost,
        1 => Fate::AnsweredAfter(Duration::from_millis(400)),
        _ => Fate::Answered,
    });
    let random = Mutex::new(fastrand::Rng::with_seed(seed.wrapping_add(1)));
    scene.router.lose(move |function, _| function == "lock-task" && random.lock().unwrap().u32(0..20) == 0);
}

/// Kills functions, during an invocation or between two.
async fn kill_now_and_then(scene: &Scene, run: &Run) {
    loop {
        tokio::time::sleep(run.millis(300, 1200)).await;
        let lambda = &scene.sample.lambda;
        let mut environments = lambda.environments("lock-task");
        environments.extend(lambda.environments("sample-work"));
        let chosen = run.random.lock().unwrap().choice(environments);
        if let Some(environment) = chosen {
            // The process may be dead already.
            let _ = lambda.kill(environment);
        }
    }
}

/// Runs one execution from its start to its end. Half of the time lock-cleaner gets its event.
async fn execute(scene: &Scene, run: &Run, index: usize, plan: Plan) -> Ended {
    tokio::time::sleep(run.millis(0, 1500)).await;
    let (machine, input) = machine(run, index, plan);
    let execution = scene.engine.execute(&format!("run-{}-{index}", run.number), &machine, &input).await.unwrap();
    run.comes(&execution, 0);
    if matches!(plan, Plan::Stopped | Plan::Redriven) {
        tokio::time::sleep(run.millis(200, 4000)).await;
        scene.engine.stop(&execution).await.unwrap();
    }
    let end = scene.engine.until_end(&execution, PATIENCE).await.unwrap();
    let first = Ended { plan, execution, end };
    if plan != Plan::Redriven || first.end.status != "ABORTED" {
        tell(scene, run, &first).await;
        return first;
    }
    let again = async {
        tokio::time::sleep(run.millis(0, 800)).await;
        run.comes(&first.execution, 1);
        let execution = scene.engine.redrive(&first.execution).await.unwrap();
        let end = scene.engine.until_end(&execution, PATIENCE).await.unwrap();
        Ended { plan, execution, end }
    };
    // The event of its first end may arrive while it runs again.
    let ((), redriven) = tokio::join!(tell(scene, run, &first), again);
    tell(scene, run, &redriven).await;
    redriven
}

fn machine(run: &Run, index: usize, plan: Plan) -> (Definition, Value) {
    let mut machine = definition(match plan {
        Plan::FansOut => "fan-out",
        Plan::Skips => "skip-if-running",
        _ => "exclusive-work",
    });
    if index.is_multiple_of(3) && !matches!(plan, Plan::FansOut | Plan::Skips) {
        machine = without_lock_task::machine();
    }
    let mut simulate = json!({ "stepMillis": run.millis(20, 300).as_millis() as u64 });
    match plan {
        Plan::Fails(step) => simulate["failAt"] = json!(step),
        Plan::Crashes(step) => simulate["crashAt"] = json!(step),
        Plan::TimesOut => {
            machine = machine.with_timeout(1);
            simulate["stepMillis"] = json!(700);
        }
        Plan::FansOut => {
            let items = KEYS.map(|key| json!({ "key": run.key(key), "simulate": simulate }));
            return (machine, json!({ "items": items }));
        }
        Plan::Skips => machine = machine.renamed(&run.key("skip")),
        Plan::Works | Plan::Stopped | Plan::Redriven => {}
    }
    (machine, json!({ "key": run.key(KEYS[index / 3 % KEYS.len()]), "simulate": simulate }))
}

/// Delivers the event of an end. As with EventBridge, it may be late or missing. A clean-up that fails is
/// retried, as Lambda does.
async fn tell(scene: &Scene, run: &Run, Ended { execution, end, .. }: &Ended) {
    if end.status == "SUCCEEDED" || run.one_in(2) {
        return;
    }
    tokio::time::sleep(run.millis(0, 1000)).await;
    for _ in 0..3 {
        run.cleaned_up.lock().unwrap().push((execution.arn.clone(), Instant::now()));
        if scene.sample.ask("lock-cleaner", &execution.status_change(&end.status)).await.is_ok() {
            return;
        }
    }
}

/// Returns whether this end is possible for the plan. A killed function may fail an execution of any plan. No
/// other accident changes the end.
fn is_expected(Ended { plan, end, .. }: &Ended) -> bool {
    let error = end.error.as_deref().unwrap_or_default();
    match (end.status.as_str(), plan) {
        ("SUCCEEDED", Plan::Works | Plan::Stopped | Plan::Redriven | Plan::FansOut | Plan::Skips) => true,
        ("FAILED", Plan::FansOut) => error == "ItemsFailed",
        ("FAILED", Plan::Fails(_)) => ["WorkFailed", "Runtime.ExitError", "LockLost"].contains(&error),
        ("FAILED", _) => ["Runtime.ExitError", "LockLost"].contains(&error),
        ("ABORTED", Plan::Stopped) | ("TIMED_OUT", Plan::TimesOut) => true,
        _ => false,
    }
}

/// Asserts that each counter equals the number of its writers, and that each successful execution is one of
/// them.
async fn counters_are_exact(scene: &Scene, run: &Run, ended: &[Ended]) {
    let mut counted = BTreeSet::new();
    for key in KEYS.into_iter().chain(["skip"]) {
        let (value, writers) = scene.counter(&run.key(key)).await;
        assert_eq!(value, writers.len() as u64, "{key}: {writers:?}");
        counted.extend(writers);
    }
    let succeeded: Vec<_> = ended.iter().filter(|ended| ended.succeeded()).collect();
    for writer in succeeded.iter().flat_map(|ended| ended.writers()) {
        assert!(counted.contains(&writer), "{writer} succeeded but has not counted");
    }
    println!("  {} of {} succeeded, {} counted", succeeded.len(), ended.len(), counted.len());
    assert!(!succeeded.is_empty(), "no execution succeeded, so the run proves nothing");
}

/// Asserts that a new caller gets each lock: at once, or when the lease of a dead holder ends that was not
/// cleaned up.
async fn every_lock_is_free(scene: &Scene, run: &Run) {
    let came = Instant::now();
    for key in KEYS {
        let locks = scene.locks();
        let budget = lambda_lock::Budget::lasting(LEASE + SKEW + SLACK).reserve(Duration::ZERO);
        let lock = locks.acquire(run.key(key)).lease(Duration::from_secs(1)).within(&budget).await.unwrap();
        lock.release().await.unwrap();
    }
    assert!(came.elapsed() < LEASE + SKEW + SLACK, "{:?}", came.elapsed());
}
