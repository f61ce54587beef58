//! Stop and redrive in every state: what the redriven execution does is a table for each state machine, and the lock is
//! free afterwards, or left to its lease by the attempt that was stopped.

use crate::scene::{LEASE, PATIENCE, Scene, definition};
use lambda_lock::Budget;
use lambda_lock_local::states::{Before, Definition, Execution, Held, Instead};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime};
use tokio::sync::Semaphore;
use tokio::task::{JoinSet, LocalSet};

/// How many rows run at a time. Each wakes functions of its own.
const AT_A_TIME: usize = 8;

/// Where an execution is stopped in a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    /// Before its call is carried out. That happens when the redriven execution has ended.
    Request,
    /// After its call was carried out, and before it knows that.
    Response,
    /// While it waits.
    Wait,
    /// It is not stopped. It fails in this state.
    End,
}

/// What a redriven execution does: its states, its error, and the counter afterwards. Of many looks the first is named.
#[derive(Clone, Copy, Debug)]
struct Then(&'static str, Option<&'static str>, u64);

/// A state, where the execution is stopped there, and what it does after a redrive: without lock-cleaner, and after it.
type Row = (&'static str, At, Then, Then);

// The ends of exclusive-work and skip-if-running.
const UNLOCK: Then = Then("Unlock", None, 1);
const FAILING: Then = Then("UnlockAfterFailure Failed", Some("WorkFailed"), 0);
const LEFT: Then = Then("LeftToItsLease Failed", Some("Sandbox.Timedout"), 0);
const FAILED: Then = Then("Failed", Some("WorkFailed"), 0);
/// The end of both machines with items.
const ITEMS_FAILED: Then = Then("Failed", Some("ItemsFailed"), 0);

/// What a step has done is done again. A read and a write of a value may be repeated.
const EXCLUSIVE_WORK: [Row; 15] = {
    use At::{End, Request, Response, Wait};
    const WHOLE: Then = Then("Lock FirstStep Renew SecondStep Unlock", None, 1);
    const FROM_WAIT: Then = Then("WaitForTurn Lock FirstStep Renew SecondStep Unlock", None, 1);
    const FROM_FIRST: Then = Then("FirstStep Renew SecondStep Unlock", None, 1);
    const LOST_IN_FIRST: Then = Then("FirstStep Renew UnlockAfterFailure Failed", Some("LockLost"), 0);
    const FROM_RENEW: Then = Then("Renew SecondStep Unlock", None, 1);
    const LOST: Then = Then("Renew UnlockAfterFailure Failed", Some("LockLost"), 0);
    const FROM_SECOND: Then = Then("SecondStep Unlock", None, 1);
    [
        ("Lock", Request, WHOLE, WHOLE),
        // The lock is that of the attempt that was stopped.
        ("Lock", Response, Then("Lock WaitForTurn Lock FirstStep Renew SecondStep Unlock", None, 1), WHOLE),
        ("WaitForTurn", Request, FROM_WAIT, FROM_WAIT),
        ("WaitForTurn", Wait, FROM_WAIT, FROM_WAIT),
        ("FirstStep", Request, FROM_FIRST, LOST_IN_FIRST),
        ("FirstStep", Response, FROM_FIRST, LOST_IN_FIRST),
        ("Renew", Request, FROM_RENEW, LOST),
        ("Renew", Response, FROM_RENEW, LOST),
        // Without the lock: nobody else has worked meanwhile.
        ("SecondStep", Request, FROM_SECOND, FROM_SECOND),
        ("SecondStep", Response, FROM_SECOND, FROM_SECOND),
        ("Unlock", Request, UNLOCK, UNLOCK),
        ("Unlock", Response, UNLOCK, UNLOCK),
        ("UnlockAfterFailure", Request, FAILING, FAILING),
        ("LeftToItsLease", Wait, LEFT, LEFT),
        ("Failed", End, FAILED, FAILED),
    ]
};

/// Its step adds to a counter, and so counts twice when it is done twice.
const SKIP_IF_RUNNING: [Row; 9] = {
    use At::{End, Request, Response, Wait};
    const WHOLE: Then = Then("Lock Work Unlock", None, 1);
    const AGAIN: Then = Then("Work Unlock", None, 2);
    [
        ("Lock", Request, WHOLE, WHOLE),
        // The lock of the attempt that was stopped looks like that of another execution.
        ("Lock", Response, Then("Lock Skipped", None, 0), WHOLE),
        ("Work", Request, AGAIN, AGAIN),
        ("Work", Response, AGAIN, AGAIN),
        ("Unlock", Request, UNLOCK, UNLOCK),
        ("Unlock", Response, UNLOCK, UNLOCK),
        ("UnlockAfterFailure", Request, FAILING, FAILING),
        ("LeftToItsLease", Wait, LEFT, LEFT),
        ("Failed", End, FAILED, FAILED),
    ]
};

/// Its step refuses to run in a redrive: what it has done is not done again.
const AT_MOST_N: [Row; 10] = {
    use At::{End, Request, Response, Wait};
    const WHOLE: Then = Then("Lock Work Unlock", None, 1);
    const FROM_WAIT: Then = Then("WaitForHolder Lock Work Unlock", None, 1);
    /// The one time is that of the attempt that was stopped.
    const ONCE: Then = Then("Work UnlockAfterFailure Failed", Some("States.QueryEvaluationError"), 1);
    [
        ("Lock", Request, WHOLE, WHOLE),
        // The place is that of the attempt that was stopped.
        ("Lock", Response, Then("Lock WaitForHolder Lock Work Unlock", None, 1), WHOLE),
        ("WaitForHolder", Wait, FROM_WAIT, FROM_WAIT),
        ("Work", Request, ONCE, ONCE),
        ("Work", Response, ONCE, ONCE),
        ("Unlock", Request, UNLOCK, UNLOCK),
        ("Unlock", Response, UNLOCK, UNLOCK),
        ("UnlockAfterFailure", Request, FAILING, FAILING),
        ("LeftToItsLease", Wait, LEFT, LEFT),
        ("Failed", End, FAILED, FAILED),
    ]
};

/// One of two items is stopped. The other one has ended, and is not done again.
const FAN_OUT: [Row; 11] = {
    use At::{End, Request, Response, Wait};
    const WHOLE: Then = Then("EachItem Lock Work Unlock IsAnyFailed Done", None, 1);
    const WAITING: Then = Then("EachItem Lock WaitForTurn Lock Work Unlock IsAnyFailed Done", None, 1);
    const FROM_WAIT: Then = Then("EachItem WaitForTurn Lock Work Unlock IsAnyFailed Done", None, 1);
    const AGAIN: Then = Then("EachItem Work Unlock IsAnyFailed Done", None, 2);
    const UNLOCK: Then = Then("EachItem Unlock IsAnyFailed Done", None, 1);
    const FAILING: Then = Then("EachItem UnlockAfterFailure ItemFailed IsAnyFailed Failed", Some("ItemsFailed"), 0);
    const LEFT: Then = Then("EachItem LeftToItsLease ItemFailed IsAnyFailed Failed", Some("ItemsFailed"), 0);
    const INVALID: Then = Then("InvalidInput", Some("InvalidInput"), 0);
    [
        ("Lock", Request, WHOLE, WHOLE),
        ("Lock", Response, WAITING, WHOLE),
        ("WaitForTurn", Wait, FROM_WAIT, FROM_WAIT),
        ("Work", Request, AGAIN, AGAIN),
        ("Work", Response, AGAIN, AGAIN),
        ("Unlock", Request, UNLOCK, UNLOCK),
        ("Unlock", Response, UNLOCK, UNLOCK),
        ("UnlockAfterFailure", Request, FAILING, FAILING),
        ("LeftToItsLease", Wait, LEFT, LEFT),
        ("Failed", End, ITEMS_FAILED, ITEMS_FAILED),
        ("InvalidInput", End, INVALID, INVALID),
    ]
};

/// The items are child executions, so the history of their parent does not have their states.
const FAN_OUT_MANY: [Row; 9] = {
    use At::{End, Request, Response};
    const DONE: Then = Then("EachItem IsAnyFailed Done", None, 1);
    const TWICE: Then = Then("EachItem IsAnyFailed Done", None, 2);
    const FAILING: Then = Then("EachItem IsAnyFailed Failed", Some("ItemsFailed"), 0);
    [
        ("Lock", Request, DONE, DONE),
        ("Lock", Response, DONE, DONE),
        ("Work", Request, TWICE, TWICE),
        ("Work", Response, TWICE, TWICE),
        ("Unlock", Request, DONE, DONE),
        ("Unlock", Response, DONE, DONE),
        ("UnlockAfterFailure", Request, FAILING, FAILING),
        ("UnlockAfterFailure", Response, FAILING, FAILING),
        ("Failed", End, ITEMS_FAILED, ITEMS_FAILED),
    ]
};

#[tokio::test]
async fn exclusive_work_is_stopped_and_redriven_in_every_state() {
    all("exclusive-work", &EXCLUSIVE_WORK, &["WaitForHolder"]).await;
}

#[tokio::test]
async fn skip_if_running_is_stopped_and_redriven_in_every_state() {
    all("skip-if-running", &SKIP_IF_RUNNING, &[]).await;
}

#[tokio::test]
async fn at_most_n_is_stopped_and_redriven_in_every_state() {
    all("at-most-n", &AT_MOST_N, &[]).await;
}

#[tokio::test]
async fn fan_out_is_stopped_and_redriven_in_every_state() {
    all("fan-out", &FAN_OUT, &["WaitForHolder"]).await;
}

#[tokio::test]
async fn fan_out_many_is_stopped_and_redriven_in_every_state_that_calls_a_function() {
    all("fan-out-many", &FAN_OUT_MANY, &["WaitForTurn", "WaitForHolder", "LeftToItsLease"]).await;
}

async fn all(machine: &'static str, rows: &'static [Row], left_out: &[&str]) {
    let named: BTreeSet<_> = rows.iter().map(|row| row.0).chain(left_out.iter().copied()).collect();
    assert_eq!(named, states_that_take_time(definition(machine).document()), "{machine}");
    let Some(scene) = Scene::new().await.map(Rc::new) else { return };
    scene.router.instead(|_, request| {
        let killed = request["counter"].as_str().is_some_and(|name| name.contains("LeftToItsLease"));
        (killed && !is_of_second_item(request)).then_some(Instead::Failure("Sandbox.Timedout"))
    });
    let places = Rc::new(Semaphore::new(AT_A_TIME));
    let (rows_at_once, mut running) = (LocalSet::new(), JoinSet::new());
    for (row, is_cleaned_up) in rows.iter().flat_map(|row| [(row, false), (row, true)]) {
        let (scene, places) = (Rc::clone(&scene), Rc::clone(&places));
        let row_alone = async move {
            let _place = places.acquire().await.unwrap();
            one(&scene, machine, row, is_cleaned_up).await;
        };
        running.spawn_local_on(row_alone, &rows_at_once);
    }
    rows_at_once.run_until(running.join_all()).await;
}

/// Returns the states of a state machine and of its items in which an execution can be stopped or can fail. The others
/// take no time.
fn states_that_take_time(machine: &Value) -> BTreeSet<&str> {
    let states = machine["States"].as_object().unwrap();
    let takes_time = |state: &Value| ["Task", "Wait", "Fail"].iter().any(|kind| state["Type"] == *kind);
    let own = states.iter().filter(|(_, state)| takes_time(state)).map(|(name, _)| name.as_str());
    let inner = states.values().filter(|state| state["Type"] == "Map");
    own.chain(inner.flat_map(|map| states_that_take_time(&map["ItemProcessor"]))).collect()
}

/// The second item of fan-out has this at the end of its key.
const SECOND: &str = "-second";

/// The key of the only place of at-most-n has this at the end.
const PLACE: &str = "/0";

fn is_of_second_item(request: &Value) -> bool {
    [&request["key"], &request["lock"]["key"], &request["counter"]]
        .iter()
        .any(|key| key.as_str().is_some_and(|key| key.ends_with(SECOND)))
}

/// Returns whether a request is the call of this state, under this key.
fn is_call_of(state: &str, key: &str, request: &Value) -> bool {
    let (field, value) = match state {
        "Lock" => ("action", "acquire"),
        "WaitForTurn" => ("action", "wait"),
        "Renew" => ("action", "renew"),
        "Unlock" | "UnlockAfterFailure" => ("action", "release"),
        "FirstStep" => ("step", "read"),
        "SecondStep" => ("step", "write"),
        _ => ("step", "add"),
    };
    let counter = key.strip_prefix("workflow/").unwrap_or(key);
    // A place is asked for by the name of its semaphore.
    let asked = key.strip_suffix(PLACE).unwrap_or(key);
    let keys = [(&request["key"], asked), (&request["lock"]["key"], key), (&request["counter"], counter)];
    request[field] == value && keys.iter().any(|(found, key)| *found == *key)
}

/// The input of an execution with this name, which begins with that of its state machine.
fn input(name: &str, state: &str, key: &str) -> Value {
    let mut input = json!({ "key": key.strip_suffix(PLACE).unwrap_or(key) });
    if ["UnlockAfterFailure", "Failed"].contains(&state) {
        input["simulate"]["failAt"] = json!(if name.starts_with("exclusive-work") { "read" } else { "add" });
    }
    match state {
        "InvalidInput" => json!({}),
        _ if name.starts_with("fan-out") => json!({ "items": [input, { "key": format!("{key}{SECOND}") }] }),
        _ => input,
    }
}

async fn one(scene: &Scene, machine: &str, (state, at, without, after): &Row, is_cleaned_up: bool) {
    let Then(states, error, count) = if is_cleaned_up { after } else { without };
    let name = format!("{machine}-{state}-{at:?}-{}", if is_cleaned_up { "cleaned-up" } else { "not-cleaned-up" });
    let key = match machine {
        "skip-if-running" => format!("workflow/{name}"),
        "at-most-n" => format!("{name}{PLACE}"),
        _ => name.clone(),
    };
    let counter = if machine == "at-most-n" { &*key } else { &*name };
    // Every execution finds the same place.
    let definition = definition(machine).with_permits(1).renamed(&name);
    let other = match *state {
        "WaitForHolder" | "WaitForTurn" => {
            scene.locks().acquire(&*key).lease(PATIENCE).try_once().await.unwrap().granted()
        }
        _ => None,
    };

    let begun = Instant::now();
    let (execution, held) = started_and_stopped(scene, &definition, &name, (*state, *at), &key).await;
    if let Some(other) = other {
        other.release().await.unwrap();
    }
    if is_cleaned_up {
        clean_up(scene, &execution, &key).await;
    }
    let redriven = scene.engine.redrive(&execution).await.unwrap();
    // On a busy machine the lease of the stopped attempt may be over by then, and nobody has to be waited for.
    let may_be_over = begun.elapsed() > LEASE / 2;
    let end = scene.engine.until_end(&redriven, PATIENCE).await.unwrap();
    let ended = SystemTime::now();
    let is_late = *at == At::Request;
    if is_late {
        let (state, key) = (*state, key.clone());
        let mut done = scene.router.hold(Before::Response, move |_, request| is_call_of(state, &key, request));
        drop(held);
        done.until(1).await;
    }

    assert_eq!((end.error.as_deref(), end.status == "SUCCEEDED"), (*error, error.is_none()), "{name}: {end:?}");
    let found = in_short(&scene.engine.states(&redriven).await.unwrap());
    let without_wait = ["WaitForHolder Lock ", "WaitForTurn Lock "]
        .iter()
        .fold((*states).to_owned(), |states, wait| states.replace(wait, ""));
    assert!(found == *states || may_be_over && found == without_wait, "{name}: {found} and not {states}");
    assert_eq!(scene.counter(counter).await.0, *count, "{name}");
    if *state == "InvalidInput" {
        return;
    }
    let lock = scene.lock(&key).await;
    // An item adds its index, which is 0.
    let is_of_the_stopped_attempt = lock.holder.ends_with(if machine == "fan-out" { "/0/0" } else { "/0" });
    let is_left_to_its_lease = match (*state, at) {
        // The request of the stopped attempt came after everything else.
        ("Lock", At::Request) => true,
        // The execution skipped because of what its stopped attempt had left.
        ("Lock", _) => *states == "Lock Skipped",
        // The execution failed when the lease had ended.
        ("LeftToItsLease", _) => !is_cleaned_up,
        _ => false,
    };
    assert_eq!(lock.released, !is_left_to_its_lease, "{name}: {lock:?}");
    if is_left_to_its_lease {
        let latest = if *state == "Lock" { SystemTime::now() + LEASE } else { ended };
        assert!(is_of_the_stopped_attempt && lock.lease_ends_at.unwrap() <= latest, "{name}: {lock:?}");
    }
    assert_eq!(scene.wake_items(&key).await, [""; 0], "{name}: whoever waited is gone");
    let budget = Budget::lasting(PATIENCE).reserve(Duration::ZERO);
    scene.locks().acquire(&*key).lease(LEASE).within(&budget).await.unwrap().release().await.unwrap();
}

/// Starts an execution and stops it there. With two items, the second one has ended by then. Returns what is still
/// under way.
async fn started_and_stopped(
    scene: &Scene,
    definition: &Definition,
    name: &str,
    (state, at): (&'static str, At),
    key: &str,
) -> (Execution, Option<Held>) {
    let is_first = AtomicBool::new(true);
    let of_state = key.to_owned();
    let before = if at == At::Request { Before::Request } else { Before::Response };
    let is_call =
        move |_: &str, request: &Value| is_call_of(state, &of_state, request) && is_first.swap(false, Ordering::SeqCst);
    let mut held = [At::Request, At::Response].contains(&at).then(|| scene.router.hold(before, is_call));
    let of_lock = key.to_owned();
    let second_first = scene.router.hold(Before::Request, move |_, request| is_call_of("Lock", &of_lock, request));

    let input = input(name, state, key);
    let has_items = input["items"].is_array();
    let execution = scene.engine.execute(name, definition, &input).await.unwrap();
    if has_items {
        scene.until(async || ends_of_items(scene, &execution).await > 0).await;
    }
    drop(second_first);
    match &mut held {
        Some(held) => held.until(1).await,
        None if at == At::Wait => scene.until_in(&execution, state).await,
        None => {
            let end = scene.engine.until_end(&execution, PATIENCE).await.unwrap();
            assert_eq!(end.status, "FAILED", "{name}: {end:?}");
            return (execution, None);
        }
    }
    scene.engine.stop(&execution).await.unwrap();
    assert_eq!(scene.engine.end(&execution).await.unwrap().unwrap().status, "ABORTED", "{name}");
    (execution, held)
}

async fn ends_of_items(scene: &Scene, execution: &Execution) -> usize {
    let history = scene.engine.history(execution).await.unwrap();
    history.iter().filter(|event| event["type"] == "MapIterationSucceeded").count()
}

/// Sends the event of the end to lock-cleaner. An item of a distributed Map is an execution of its own.
async fn clean_up(scene: &Scene, execution: &Execution, key: &str) {
    let end = scene.engine.end(execution).await.unwrap().unwrap();
    let mut event = execution.status_change(&end.status);
    let holder = scene.locks().operator().peek(key).await.unwrap().and_then(|lock| lock.workflow);
    if let Some(holder) = holder {
        event["detail"]["executionArn"] = json!(holder);
    }
    scene.sample.ask("lock-cleaner", &event).await.unwrap();
}

/// Returns the names with spaces between them. Of looks that follow each other only the first is there.
fn in_short(states: &[String]) -> String {
    let mut text = states.join(" ");
    for look in ["WaitForHolder Lock", "WaitForTurn Lock"] {
        let again = format!("{look} {look}");
        while text.contains(&again) {
            text = text.replace(&again, look);
        }
    }
    text
}
