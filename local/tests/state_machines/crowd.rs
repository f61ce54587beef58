//! Twenty executions over three keys, with everything going wrong at once: the counter is exact, every
//! lock is free in the end, and nobody waits for longer than a lease and one poll.

use crate::scene::{LEASE, PATIENCE, POLL, SKEW, Scene, definition};
use lambda_lock_local::authorize::{Call, Fate};
use lambda_lock_local::states::{Asked, End, Execution};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::env;
use std::sync::Mutex;
use std::time::{Duration, Instant};

const EXECUTIONS: usize = 20;
const KEYS: [&str; 3] = ["a", "b", "c"];
/// What two busy processors may add to a wait.
const SLACK: Duration = Duration::from_millis(2500);

/// What becomes of one execution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Plan {
    Works,
    Fails(&'static str),
    Crashes(&'static str),
    /// Somebody stops it.
    Stopped,
    /// Somebody stops it, and starts it again where it was.
    Redriven,
    /// It may take a second, and its steps take longer.
    TimesOut,
}

/// Every kind of accident happens in every run.
const PLANS: [Plan; EXECUTIONS] = [
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
];

/// One run: its random numbers, and the names of what belongs to it.
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

    fn key(&self, key: &str) -> String {
        format!("{key}-{}", self.number)
    }
}

#[tokio::test]
async fn twenty_executions_over_three_keys_count_exactly_and_leave_no_lock_behind() {
    let Some(scene) = Scene::new().await else { return };
    let runs = env::var("LAMBDA_LOCK_CROWDS").ok().map(|runs| runs.parse().unwrap());
    let runs = runs.unwrap_or(if env::var_os("LAMBDA_LOCK_CI").is_some() { 5 } else { 1 });
    for number in 0..runs {
        let seed = env::var("LAMBDA_LOCK_SEED").map_or_else(|_| fastrand::u64(..), |seed| seed.parse().unwrap());
        let started = Instant::now();
        let run = Run { number, random: Mutex::new(fastrand::Rng::with_seed(seed)) };
        // Shown when the test fails, or with --nocapture.
        println!("run {} of {runs}, LAMBDA_LOCK_SEED={seed}", number + 1);
        crowd(&scene, &run).await;
        println!("  took {:.1?}", started.elapsed());
    }
}

async fn crowd(scene: &Scene, run: &Run) {
    misbehave(scene, run);
    let mut plans = PLANS;
    run.random.lock().unwrap().shuffle(&mut plans);
    let executions = plans.iter().enumerate().map(|(index, plan)| execute(scene, run, index, *plan));
    let everybody = join_all(executions);
    let ended = tokio::select! {
        ended = everybody => ended,
        () = kill_now_and_then(scene, run) => unreachable!("it kills for ever"),
    };
    scene.sample.proxy.decide(|_| Fate::Answered);
    scene.router.lose(|_, _| false);
    for (plan, execution, end) in &ended {
        assert_expected(*plan, execution, end);
    }
    counters_are_exact(scene, run, &ended).await;
    nobody_waited_too_long(&scene.router.take_asked());
    every_lock_is_free(scene, run).await;
}

/// Futures side by side in one task.
async fn join_all<F: Future>(futures: impl Iterator<Item = F>) -> Vec<F::Output> {
    let mut pinned: Vec<_> = futures.map(|future| (Box::pin(future), None)).collect();
    std::future::poll_fn(|context| {
        for (future, output) in &mut pinned {
            if output.is_none()
                && let std::task::Poll::Ready(ready) = future.as_mut().poll(context)
            {
                *output = Some(ready);
            }
        }
        if pinned.iter().all(|(_, output)| output.is_some()) {
            std::task::Poll::Ready(())
        } else {
            std::task::Poll::Pending
        }
    })
    .await;
    pinned.into_iter().filter_map(|(_, output)| output).collect()
}

/// Answers of DynamoDB and of lock-task get lost.
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

/// Functions die, at work or between two works.
async fn kill_now_and_then(scene: &Scene, run: &Run) {
    loop {
        tokio::time::sleep(run.millis(300, 1200)).await;
        let lambda = &scene.sample.lambda;
        let mut environments = lambda.environments("lock-task");
        environments.extend(lambda.environments("sample-work"));
        let chosen = run.random.lock().unwrap().choice(environments);
        if let Some(environment) = chosen {
            // It may be dead already.
            let _ = lambda.kill(environment);
        }
    }
}

/// One execution from its start to its end, and what EventBridge makes of that, half of the time.
async fn execute(scene: &Scene, run: &Run, index: usize, plan: Plan) -> (Plan, Execution, End) {
    tokio::time::sleep(run.millis(0, 1500)).await;
    let mut machine = definition("exclusive-work");
    let mut simulate = json!({ "stepMillis": run.millis(20, 300).as_millis() as u64 });
    match plan {
        Plan::Fails(step) => simulate["failAt"] = json!(step),
        Plan::Crashes(step) => simulate["crashAt"] = json!(step),
        Plan::TimesOut => {
            machine = machine.with_timeout(1);
            simulate["stepMillis"] = json!(700);
        }
        Plan::Works | Plan::Stopped | Plan::Redriven => {}
    }
    let input = json!({ "key": run.key(KEYS[index % KEYS.len()]), "simulate": simulate });
    let name = format!("run-{}-{index}", run.number);
    let mut execution = scene.engine.execute(&name, &machine, &input).await.unwrap();
    if matches!(plan, Plan::Stopped | Plan::Redriven) {
        tokio::time::sleep(run.millis(200, 4000)).await;
        scene.engine.stop(&execution).await.unwrap();
    }
    let mut end = scene.engine.until_end(&execution, PATIENCE).await.unwrap();
    let first_end = (execution.clone(), end.clone());
    let told = async {
        // An event may come late: while its execution is alive again.
        tokio::time::sleep(run.millis(0, 1000)).await;
        tell(scene, run, &first_end).await;
    };
    if plan == Plan::Redriven && end.status == "ABORTED" {
        let again = async {
            tokio::time::sleep(run.millis(0, 800)).await;
            let redriven = scene.engine.redrive(&execution).await.unwrap();
            let end = scene.engine.until_end(&redriven, PATIENCE).await.unwrap();
            (redriven, end)
        };
        let ((), (redriven, redriven_end)) = tokio::join!(told, again);
        (execution, end) = (redriven, redriven_end);
        tell(scene, run, &(execution.clone(), end.clone())).await;
    } else {
        told.await;
    }
    (plan, execution, end)
}

/// Delivery is best effort, and so is ours. A clean-up that fails is asked for again, as Lambda does.
async fn tell(scene: &Scene, run: &Run, (execution, end): &(Execution, End)) {
    if end.status == "SUCCEEDED" || run.one_in(2) {
        return;
    }
    for _ in 0..3 {
        if scene.sample.ask("lock-cleaner", &execution.status_change(&end.status)).await.is_ok() {
            return;
        }
    }
}

/// A function that was killed fails an execution of any plan; no accident makes one end otherwise.
fn assert_expected(plan: Plan, execution: &Execution, end: &End) {
    let error = end.error.as_deref().unwrap_or_default();
    // LockLost: of a redriven one, or of one whose lease ended while lock-task was killed again and again.
    let expected = match (end.status.as_str(), plan) {
        ("SUCCEEDED", Plan::Works | Plan::Stopped | Plan::Redriven) => true,
        ("FAILED", Plan::Fails(_)) => ["WorkFailed", "Runtime.ExitError", "LockLost"].contains(&error),
        ("FAILED", _) => ["Runtime.ExitError", "LockLost"].contains(&error),
        ("ABORTED", Plan::Stopped) | ("TIMED_OUT", Plan::TimesOut) => true,
        _ => false,
    };
    assert!(expected, "{plan:?} {} {end:?}", execution.arn);
}

/// As many as were counted have counted, and everybody who succeeded is among them.
async fn counters_are_exact(scene: &Scene, run: &Run, ended: &[(Plan, Execution, End)]) {
    let mut counted = BTreeSet::new();
    for key in KEYS {
        let (value, writers) = scene.counter(&run.key(key)).await;
        assert_eq!(value, writers.len() as u64, "{key}: {writers:?}");
        counted.extend(writers);
    }
    for (_, execution, end) in ended {
        assert!(end.status != "SUCCEEDED" || counted.contains(&execution.arn), "{} counted", execution.arn);
    }
    let succeeded = ended.iter().filter(|(_, _, end)| end.status == "SUCCEEDED").count();
    println!("  {succeeded} of {EXECUTIONS} succeeded, {} counted", counted.len());
    assert!(succeeded > 0, "a run in which nobody succeeds shows nothing");
}

/// Whoever comes now gets each lock: at once, or when the lease of a dead holder ends that nobody cleaned up.
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

/// One owner's time with a lock.
struct Tenure {
    owner: String,
    granted: Instant,
    /// When it asked for the lock for the first time.
    came: Instant,
    /// The last time that its lease began anew.
    renewed: Instant,
}

/// From when a lock could be had, until the next one who was already there got it: no longer than the lease
/// of the one before, if it died, and one poll.
fn nobody_waited_too_long(asked: &[Asked]) {
    let mut longest = Duration::ZERO;
    for (key, tenures) in tenures(asked) {
        for pair in tenures.windows(2) {
            let waited = pair[1].granted.saturating_duration_since(pair[0].renewed.max(pair[1].came));
            let bound = LEASE + SKEW + POLL + SLACK;
            assert!(waited < bound, "{} waited {waited:?} for {key} behind {}", pair[1].owner, pair[0].owner);
            longest = longest.max(waited);
        }
    }
    println!("  the longest wait behind a holder: {longest:.1?}");
}

/// Who held each lock, in the order of the grants.
fn tenures(asked: &[Asked]) -> BTreeMap<String, Vec<Tenure>> {
    let mut came: BTreeMap<String, Instant> = BTreeMap::new();
    let mut tenures: BTreeMap<String, Vec<Tenure>> = BTreeMap::new();
    let of_lock_task = asked.iter().filter(|asked| asked.function == "lock-task");
    for Asked { request, answer, began, ended, .. } in of_lock_task {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        if request["action"] == "acquire" {
            let first = came.entry(text(&request["owner"])).or_insert(*began);
            *first = (*first).min(*began);
        }
        let (key, owner) = (text(&answer["lock"]["key"]), text(&answer["lock"]["owner"]));
        if key.is_empty() {
            continue;
        }
        let of_key = tenures.entry(key).or_default();
        match of_key.last_mut().filter(|tenure| tenure.owner == owner) {
            Some(tenure) => tenure.renewed = *ended,
            None => {
                let came = came.get(&owner).copied().unwrap_or(*began);
                of_key.push(Tenure { owner, granted: *ended, came, renewed: *ended });
            }
        }
    }
    tenures
}
