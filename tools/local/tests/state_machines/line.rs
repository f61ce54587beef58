//! Executions that sleep in line: who is next is woken at once, and keeps its place beside callers of the crate, with
//! executions that are stopped and redriven, functions that are killed, and wake-ups that are lost.

use crate::grants::Grants;
use crate::scene::{LEASE, PATIENCE, Scene, definition};
use lambda_lock::{Budget, ErrorKind};
use lambda_lock_local::authorize::{Call, Fate};
use lambda_lock_local::states::{Asked, Definition, Execution};
use lambda_lock_local::{Change, history};
use lambda_lock_protocol::WAKE;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::env;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};
use tokio::task::JoinSet;

const MACHINE: &str = "exclusive-work";
/// How many executions and how many callers of the crate want the same lock.
const EXECUTIONS: usize = 20;
const CALLERS: usize = 10;
/// For each caller ahead a free lock is left to the line for longer than this, and with somebody asleep for the second one at
/// least. Nobody is waited for longer than the third one. Clocks of one machine, and times in whole milliseconds.
const SLOT: Duration = Duration::from_millis(36);
const SLEEPERS_SLOT: Duration = Duration::from_millis(1_425);
const DESERTED: Duration = Duration::from_millis(1_900);
/// The most transitions that a wait may cost, as long as no state times out.
const TRANSITIONS: usize = 8;

#[tokio::test]
async fn those_who_sleep_are_woken_in_their_order_and_a_wait_costs_few_transitions() {
    let Some(scene) = Scene::new().await else { return };
    // As it is in the repository: nobody looks by itself before the last of them has worked.
    let machine = Definition::read(MACHINE).unwrap().renamed(MACHINE);
    let holder = json!({ "action": "acquire", "key": "k", "owner": "holder", "leaseSeconds": 120 });
    let lock = scene.sample.ask("lock-task", &holder).await.unwrap()["lock"].clone();
    let mut executions = Vec::new();
    for n in 0..5 {
        let input = json!({ "key": "k", "simulate": { "stepMillis": 50 } });
        executions.push(scene.engine.execute(&format!("sleeper-{n}"), &machine, &input).await.unwrap());
        scene.until(async || scene.wake_items("k").await.len() == n + 1).await;
    }
    scene.sample.ask("lock-task", &json!({ "action": "release", "lock": lock })).await.unwrap();
    for execution in &executions {
        let end = scene.engine.until_end(execution, PATIENCE).await.unwrap();
        assert_eq!(end.status, "SUCCEEDED", "{end:?}");
        let states = scene.engine.states(execution).await.unwrap();
        let work = ["FirstStep", "Renew", "SecondStep", "Unlock"];
        assert_eq!(states, [&["Lock", "WaitForTurn", "Lock"], &work[..]].concat());
        assert!(states.len() - work.len() <= TRANSITIONS);
    }
    let grants = Grants::read(&scene).await;
    let expected: Vec<_> = executions.iter().map(|execution| format!("{}/0", execution.arn)).collect();
    assert_eq!(grants.owners("k")[1..], expected);
    let handed_over = grants.pauses("k");
    println!("from a release to the next grant: {handed_over:?}");
    assert!(handed_over.iter().all(|pause| *pause < SLEEPERS_SLOT), "nobody is passed: {handed_over:?}");
    assert_eq!(scene.wake_items("k").await, [""; 0]);
}

/// What happens to one execution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Plan {
    Works,
    Stopped,
    Redriven,
}

/// The random numbers of a run.
struct Random(Mutex<fastrand::Rng>);

impl Random {
    fn millis(&self, from: u64, to: u64) -> Duration {
        Duration::from_millis(self.0.lock().unwrap().u64(from..to))
    }

    fn one_in(&self, n: u32) -> bool {
        self.0.lock().unwrap().u32(0..n) == 0
    }
}

#[tokio::test]
async fn twenty_executions_and_ten_callers_are_granted_one_lock_in_their_order() {
    let Some(scene) = Scene::new().await.map(Arc::new) else { return };
    let seed = env::var("LAMBDA_LOCK_SEED").map_or_else(|_| fastrand::u64(..), |seed| seed.parse().unwrap());
    // Printed when the test fails, or with --nocapture.
    println!("LAMBDA_LOCK_SEED={seed}");
    let random = Arc::new(Random(Mutex::new(fastrand::Rng::with_seed(seed))));
    misbehave(&scene, &random);
    let came = Arc::new(Mutex::new(BTreeMap::new()));
    let mut running = JoinSet::new();
    for n in 0..EXECUTIONS {
        let plan = match n % 5 {
            3 => Plan::Stopped,
            4 => Plan::Redriven,
            _ => Plan::Works,
        };
        let (scene, random, came) = (Arc::clone(&scene), Arc::clone(&random), Arc::clone(&came));
        running.spawn(async move { execute(&scene, &random, &came, n, plan).await });
    }
    for n in 0..CALLERS {
        let (scene, random, came) = (Arc::clone(&scene), Arc::clone(&random), Arc::clone(&came));
        running.spawn(async move { call(&scene, &random, &came, n).await });
    }
    let done = tokio::select! {
        done = running.join_all() => done.into_iter().sum::<usize>(),
        () = kill_now_and_then(&scene, &random) => unreachable!("this never ends"),
    };
    scene.sample.proxy.decide(|_| Fate::Answered);
    let asked = scene.router.take_asked();
    let grants = Grants::read(&scene).await;
    let passed = Line::read(&scene, &asked).await.is_in_order();
    let longest = grants.nobody_waited_too_long(&came.lock().unwrap());
    println!(
        "  {done} of {} worked, {passed} grants passed somebody; longest wait for a holder {longest:.1?}",
        EXECUTIONS + CALLERS
    );
    assert!(grants.too_early().is_empty(), "{:#?}", grants.too_early());
    assert!(done >= CALLERS + EXECUTIONS / 2, "{done} have worked, so the run proves little");
    assert_eq!(scene.wake_items("k").await, [""; 0], "all of them have ended");
}

/// Loses requests and responses, more of those that wake somebody.
fn misbehave(scene: &Scene, random: &Arc<Random>) {
    let random = Arc::clone(random);
    scene.sample.proxy.decide(move |call: &Call| {
        let wakes = call.needs.iter().any(|need| need.action.ends_with("SendTaskSuccess"));
        match random.0.lock().unwrap().u32(0..if wakes { 8 } else { 60 }) {
            0 => Fate::AnswerLost,
            1 => Fate::RequestLost,
            _ => Fate::Answered,
        }
    });
}

async fn kill_now_and_then(scene: &Scene, random: &Random) {
    loop {
        tokio::time::sleep(random.millis(500, 2_000)).await;
        let chosen = random.0.lock().unwrap().choice(scene.sample.lambda.environments("lock-task"));
        if let Some(environment) = chosen {
            // The process may be dead already.
            let _ = scene.sample.lambda.kill(environment);
        }
    }
}

/// Runs one execution to its end, and tells lock-cleaner of it. Returns how many works it has done.
async fn execute(
    scene: &Scene,
    random: &Random,
    came: &Mutex<BTreeMap<String, SystemTime>>,
    n: usize,
    plan: Plan,
) -> usize {
    tokio::time::sleep(random.millis(0, 2_000)).await;
    let input = json!({ "key": "k", "simulate": { "stepMillis": 20 } });
    let mut execution = scene.engine.execute(&format!("line-{n}"), &definition(MACHINE), &input).await.unwrap();
    came.lock().unwrap().insert(format!("{}/0", execution.arn), SystemTime::now());
    if plan != Plan::Works {
        tokio::time::sleep(random.millis(0, 3_000)).await;
        scene.engine.stop(&execution).await.unwrap();
    }
    let mut end = scene.engine.until_end(&execution, PATIENCE).await.unwrap();
    if plan == Plan::Redriven && end.status == "ABORTED" {
        // The event of its first end may come while it waits again.
        let cleans_up = random.one_in(2);
        if cleans_up {
            tell(scene, &execution, &end.status).await;
        }
        came.lock().unwrap().insert(format!("{}/1", execution.arn), SystemTime::now());
        execution = scene.engine.redrive(&execution).await.unwrap();
        if !cleans_up {
            tell(scene, &execution, "ABORTED").await;
        }
        end = scene.engine.until_end(&execution, PATIENCE).await.unwrap();
    }
    if end.status != "SUCCEEDED" {
        let is_killed = ["Runtime.ExitError", "LockLost"].contains(&end.error.as_deref().unwrap_or_default());
        assert!(is_killed || end.status == "ABORTED", "{plan:?} {end:?}");
        tell(scene, &execution, &end.status).await;
    }
    usize::from(end.status == "SUCCEEDED")
}

/// Delivers the event of an end. A clean-up that fails is repeated, as Lambda does.
async fn tell(scene: &Scene, execution: &Execution, status: &str) {
    for _ in 0..5 {
        if scene.sample.ask("lock-cleaner", &execution.status_change(status)).await.is_ok() {
            return;
        }
    }
}

/// One work of a caller of the crate, which wakes nobody when it releases the lock.
async fn call(scene: &Scene, random: &Random, came: &Mutex<BTreeMap<String, SystemTime>>, n: usize) -> usize {
    tokio::time::sleep(random.millis(0, 2_000)).await;
    let budget = Budget::lasting(PATIENCE).reserve(Duration::from_secs(1));
    let (locks, owner) = (scene.locks(), format!("caller-{n}"));
    came.lock().unwrap().insert(owner.clone(), SystemTime::now());
    loop {
        match locks.acquire("k").owner(&owner).lease(LEASE).within(&budget).in_turn().await {
            Ok(lock) => {
                tokio::time::sleep(random.millis(20, 150)).await;
                return usize::from(lock.release().await.is_ok());
            }
            Err(error) if error.kind() == ErrorKind::Unknown => {}
            Err(error) => panic!("{error}"),
        }
    }
}

/// The line of the lock, as each change of its row and each report of lock-task show it.
struct Line {
    changes: Vec<Change>,
    /// The tickets of the executions, by their owner's name.
    tickets: BTreeMap<String, Vec<u64>>,
}

impl Line {
    async fn read(scene: &Scene, asked: &[Asked]) -> Self {
        let mut tickets: BTreeMap<String, Vec<u64>> = BTreeMap::new();
        for asked in asked.iter().filter(|asked| asked.request["action"] == "acquire") {
            let carried = asked.request["observation"]["ticket"].as_u64();
            let owner = asked.request["owner"].as_str().unwrap_or_default();
            tickets.entry(owner.to_owned()).or_default().extend(carried);
        }
        let changes = history(scene.sample.dynamodb.endpoint(), "LockTable").await.unwrap();
        let is_of_lock = |change: &Change| {
            let key = [&change.after, &change.before].into_iter().find_map(|row| row["key"]["S"].as_str());
            key.is_some_and(|key| !key.starts_with(WAKE))
        };
        Self { changes: changes.into_iter().filter(is_of_lock).collect(), tickets }
    }

    /// Asserts that each grant was made in turn, or passed others only after it had left the lock to them. Returns how many
    /// passed somebody.
    fn is_in_order(&self) -> usize {
        let mut passed = 0;
        for Change { before, after } in &self.changes {
            let [last, served, sleeper] =
                ["lastTicket", "servedTicket", "lastSleeper"].map(|name| number(before, name).unwrap_or(0));
            let is_grant = before.is_object() && number(before, "fencingToken") != number(after, "fencingToken");
            if !is_grant || last <= served {
                continue;
            }
            let now_served = number(after, "servedTicket").unwrap_or(0);
            assert!((served..=last).contains(&now_served), "{before} became {after}");
            let owner = after["ownerName"]["S"].as_str().unwrap();
            let is_own_again = before["ownerName"]["S"] == owner;
            let own = self.tickets.get(owner).into_iter().flatten();
            // Whoever was passed may come at any release.
            let was_passed =
                now_served == served && (owner.starts_with("caller-") || own.clone().any(|own| *own <= served));
            if now_served == served + 1 || is_own_again || was_passed {
                continue;
            }
            let ahead = u32::try_from((now_served.max(served + 1)) - served - 1).unwrap();
            let least = if sleeper > served { SLEEPERS_SLOT } else { Duration::ZERO };
            let allowed = if now_served == served { DESERTED } else { (SLOT * ahead).max(least).min(DESERTED) };
            let free_for = free_for(before, after);
            assert!(free_for >= allowed, "passed after {free_for:?} instead of {allowed:?}: {before} became {after}");
            passed += 1;
        }
        passed
    }
}

/// For how long the lock was free, or its holder dead, when this grant was made.
fn free_for(before: &Value, after: &Value) -> Duration {
    let lease: u64 = after["leaseDuration"]["S"].as_str().unwrap().parse().unwrap();
    let granted = number(after, "leaseEndsAt").unwrap() - lease;
    Duration::from_millis(granted.saturating_sub(number(before, "leaseEndsAt").unwrap()))
}

fn number(row: &Value, name: &str) -> Option<u64> {
    row[name]["N"].as_str()?.parse().ok()
}
