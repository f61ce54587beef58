//! What a lock costs: `docs/cost.md` has what the history of the engine and the proxy in front of DynamoDB count.

use crate::scene::{PATIENCE, Scene, definition, where_it_waits};
use crate::without_lock_task;
use lambda_lock::Lock;
use lambda_lock_local::lambda::workspace;
use lambda_lock_local::states::{Definition, Instead};
use serde_json::{Value, json};

/// The history begins with an event of the start and ends with one of the end, which belong to every execution.
const START_AND_END: usize = 2;

/// US dollars per million, in us-east-1: transitions, invocations, write units, read units. `docs/cost.md` has the
/// sources.
const PRICES: [f64; 4] = [25.0, 0.2, 0.625, 0.125];

/// Executes every path of a state machine, and asserts that the page has its row. `places` is 0 where the lock is no place.
async fn the_page_has(scene: &Scene, machine: &Definition, of: &str, places: usize, paths: &[(&str, usize)]) {
    scene.router.instead(|_, request| {
        let is_killed = request["counter"].as_str().is_some_and(|key| key.contains("timed out"));
        is_killed.then_some(Instead::Failure("Sandbox.Timedout"))
    });
    let page = std::fs::read_to_string(workspace().join("docs/cost.md")).unwrap();
    let mut rows = Vec::new();
    for (path, looks) in paths {
        let key = format!("{path}{of}");
        let keys = if places == 0 { vec![key.clone()] } else { (0..places).map(|n| format!("{key}/{n}")).collect() };
        let is_woken = path.contains("woken");
        let mut others = Vec::new();
        for key in keys.iter().filter(|_| !is_woken) {
            others.extend(scene.locks().acquire(&**key).lease(PATIENCE).try_once().await.unwrap().granted());
        }
        let of_lock_task = if is_woken { Some(held_through_lock_task(scene, &key).await) } else { None };
        if *looks == 0 {
            release(std::mem::take(&mut others)).await;
        }
        let mut input = json!({ "key": key });
        if path.contains("failed") {
            input["simulate"]["failAt"] = json!(if places == 0 { "read" } else { "add" });
        }
        let noted = scene.note_requests();
        scene.router.take_asked();

        let name = key.replace([' ', ',', '`'], "-");
        let execution = scene.engine.execute(&name, machine, &input).await.unwrap();
        if *looks > 0 {
            scene.until(async || scene.looks(&execution).await == *looks).await;
            // The last look of `wait` would see a release before it, and end the wait without an event of its answer.
            if where_it_waits(machine) == "WaitForTurn" {
                scene.until(async || scene.sleeps(&execution).await).await;
            }
            release(others).await;
        }
        let is_released_by_lock_task = of_lock_task.is_some();
        if let Some(lock) = of_lock_task {
            // A release before the last look of `wait` would be seen by it, and one request more.
            scene.until(async || scene.sleeps(&execution).await).await;
            scene.sample.ask("lock-task", &json!({ "action": "release", "lock": lock })).await.unwrap();
        }
        scene.engine.until_end(&execution, PATIENCE).await.unwrap();

        let states = scene.engine.states(&execution).await.unwrap();
        let events = scene.engine.history(&execution).await.unwrap().len() - START_AND_END;
        let invocations = scene.router.take_asked().iter().filter(|asked| asked.function == "lock-task").count();
        let noted = noted.lock().unwrap().clone();
        let is_of_lock = |request: &&String| !request.starts_with("sample-work") && !request.contains("states:");
        let (writes, reads): (Vec<_>, Vec<_>) = noted
            .iter()
            .filter(is_of_lock)
            .partition(|request| ["UpdateItem", "PutItem", "DeleteItem"].iter().any(|write| request.ends_with(write)));
        // A wake item is in the index, too.
        let of_index = writes.iter().filter(|request| !request.ends_with("UpdateItem")).count();
        // The release of the holder is not the cost of whoever waits.
        let writes = writes.len() + of_index - usize::from(is_released_by_lock_task);
        // The index has a row for as long as the lock is held.
        let mut is_released = true;
        for key in &keys {
            is_released &= scene.lock(key).await.released;
        }
        // A look at places reads all of these few.
        let read_units = |request: &&String| if request.ends_with("BatchGetItem") { places } else { 1 };
        let reads: usize = reads.iter().map(read_units).sum();
        let writes = writes + if is_released { 2 } else { 1 };
        let own = states.iter().filter(|state| !state.ends_with("Step") && *state != "Work").count();
        let counted = [own, invocations, writes, reads];
        let dollars: f64 = counted.iter().zip(PRICES).map(|(count, price)| *count as f64 * price).sum();
        // Half a cent is rounded up.
        let dollars = (dollars * 100.0 + 0.000_001).round() / 100.0;
        let all = states.len();
        rows.push(format!("| {path}{of} | {all} | {events} | {invocations} | {writes} | {reads} | {dollars:.2} |"));
    }
    let missing: Vec<_> = rows.iter().filter(|row| !page.contains(*row)).collect();
    assert!(missing.is_empty(), "docs/cost.md has not these rows:\n{missing:#?}\nof\n{}", rows.join("\n"));
}

/// A lock that lock-task releases, so that whoever waits is woken.
async fn held_through_lock_task(scene: &Scene, key: &str) -> Value {
    let acquire = json!({ "action": "acquire", "key": key, "owner": "holder", "leaseSeconds": 60 });
    scene.sample.ask("lock-task", &acquire).await.unwrap()["lock"].clone()
}

async fn release(locks: Vec<Lock>) {
    for lock in locks {
        lock.release().await.unwrap();
    }
}

const PATHS: [(&str, usize); 5] =
    [("free", 0), ("held, one look", 1), ("held, two looks", 2), ("the step failed", 0), ("the step timed out", 0)];

#[tokio::test]
async fn the_page_about_cost_has_what_lock_task_costs() {
    let Some(scene) = Scene::new().await else { return };
    // It is woken before its time is over.
    let woken = Definition::read("exclusive-work").unwrap();
    the_page_has(&scene, &woken, "", 0, &[("held, woken", 1)]).await;
    // A state that times out before lock-task has answered has one event less. On a busy machine that may take seconds.
    let unwoken = definition("exclusive-work").with_longest_wait(5);
    the_page_has(&scene, &unwoken, "", 0, &PATHS).await;
}

#[tokio::test]
async fn the_page_about_cost_has_what_one_of_five_places_costs() {
    let Some(scene) = Scene::new().await else { return };
    the_page_has(&scene, &definition("at-most-n"), ", `at-most-n`", 5, &PATHS).await;
}

#[tokio::test]
async fn the_page_about_cost_has_what_a_lock_without_a_function_costs() {
    let Some(scene) = without_lock_task::scene().await else { return };
    the_page_has(&scene, &without_lock_task::machine(), "", 0, &PATHS).await;
}
