//! Every way through the state machines: whatever the work, Lambda or the input does, the lock is free afterwards, or
//! left to its lease by an execution that failed.

use crate::scene::{LEASE, PATIENCE, POLL, Scene, definition};
use lambda_lock_local::states::{Before, Definition, Instead};
use serde_json::{Value, json};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant, SystemTime};

const LARGE: usize = 300_000;
/// How many characters an input may have.
pub(crate) const MAX_INPUT: usize = 60_000;

/// The engine's `$string` writes this character as twelve, and JSONata as one. So the limit is twelve times as large.
pub(crate) fn counting_no_escapes(machine: Definition) -> Definition {
    machine.replacing(&format!("> {MAX_INPUT} ?"), &format!("> {} ?", 12 * MAX_INPUT))
}

impl Scene {
    /// Sets what the work does, by the name of its counter.
    pub(crate) fn work(&self, does: impl Fn(&str) -> Option<Instead> + Send + Sync + 'static) {
        self.router.instead(move |function, request| {
            let of_work = function == "sample-work";
            of_work.then(|| does(request["counter"].as_str().unwrap_or_default())).flatten()
        });
    }

    async fn is_released(&self, key: &str) -> bool {
        self.lock(key).await.released
    }
}

#[tokio::test]
async fn an_answer_without_the_expected_field_fails_the_step_and_releases_the_lock() {
    let Some(scene) = Scene::new().await else { return };
    for (name, answer) in [
        ("nothing", json!(null)),
        ("garbage", json!("garbage")),
        ("number", json!(7)),
        ("array", json!([])),
        ("text", json!({ "value": "x".repeat(200_000) })),
        ("other", json!({ "other": "x".repeat(200_000) })),
    ] {
        scene.work(move |_| Some(Instead::Answer(answer.clone())));

        let (execution, end) = scene.run(name, "exclusive-work", json!({ "key": name })).await;

        assert_eq!(end.error.as_deref(), Some("States.QueryEvaluationError"), "{name}: {end:?}");
        let states = scene.engine.states(&execution).await.unwrap();
        assert_eq!(states, ["Lock", "FirstStep", "UnlockAfterFailure", "Failed"], "{name}");
        assert!(scene.is_released(name).await, "{name}");

        // An item does not use the answer.
        let items = json!({ "items": [{ "key": name }] });
        let (_, end) = scene.run(&format!("{name}-items"), "fan-out", items).await;
        assert_eq!(end.output, json!({ "done": 1 }), "{name}: {end:?}");
        assert!(scene.is_released(name).await, "{name}");
    }
}

#[tokio::test]
async fn an_answer_that_is_too_large_fails_the_step_and_releases_the_lock() {
    let Some(scene) = Scene::new().await else { return };
    scene.work(|_| Some(Instead::Answer(json!({ "value": "x".repeat(LARGE) }))));
    for (machine, input, key, error) in [
        ("exclusive-work", json!({ "key": "one" }), "one", "States.DataLimitExceeded"),
        ("skip-if-running", json!({}), "workflow/skip-if-running", "States.DataLimitExceeded"),
        ("at-most-n", json!({ "key": "places" }), "places/0", "States.DataLimitExceeded"),
        ("fan-out", json!({ "items": [{ "key": "item" }] }), "item", "ItemsFailed"),
        ("fan-out-many", json!({ "items": [{ "key": "child" }] }), "child", "ItemsFailed"),
    ] {
        let definition = definition(machine).with_permits(1);
        let execution = scene.engine.execute(machine, &definition, &input).await.unwrap();
        let end = scene.engine.until_end(&execution, PATIENCE).await.unwrap();

        assert_eq!((&*end.status, end.error.as_deref()), ("FAILED", Some(error)), "{machine}");
        assert!(scene.is_released(key).await, "{machine}");
    }
}

/// Here nothing names the error of an answer that is too large, which stands for every error that no Catch sees.
#[tokio::test]
async fn an_error_that_nothing_can_catch_leaves_the_lock_to_the_clean_up() {
    let Some(scene) = Scene::new().await else { return };
    scene.work(|_| Some(Instead::Answer(json!({ "value": "x".repeat(LARGE) }))));
    for (machine, input) in [
        ("exclusive-work", json!({ "key": "exclusive-work" })),
        ("skip-if-running", json!({})),
        ("at-most-n", json!({ "key": "at-most-n" })),
        ("fan-out", json!({ "items": [{ "key": "fan-out" }] })),
    ] {
        let execution = scene.engine.execute(machine, &catching_no_large_answer(machine), &input).await.unwrap();
        let end = scene.engine.until_end(&execution, PATIENCE).await.unwrap();

        assert_eq!((&*end.status, end.error.as_deref()), ("FAILED", Some("States.DataLimitExceeded")), "{machine}");
        assert_eq!(scene.clean_up(&execution, "FAILED").await, 1, "{machine}");
    }
}

/// A state machine without any Catch that names the error of an answer that is too large.
pub(crate) fn catching_no_large_answer(machine: &str) -> Definition {
    definition(machine).replacing("States.DataLimitExceeded", "Nothing")
}

#[tokio::test]
async fn an_input_as_large_as_the_first_state_allows_passes_every_state() {
    let Some(scene) = Scene::new().await else { return };
    // A character of four bytes, so these are 240 KB. The rest is for the key and what else stands in the input.
    let much = "\u{1f512}".repeat(MAX_INPUT - 100);
    for (machine, input) in [
        ("exclusive-work", json!({ "key": "one", "much": much })),
        ("skip-if-running", json!({ "much": much })),
        ("at-most-n", json!({ "key": "places", "much": much })),
        ("fan-out", json!({ "items": [{ "key": "item", "much": much }] })),
        ("fan-out-many", json!({ "items": [{ "key": "child", "much": much }] })),
    ] {
        let execution = scene.engine.execute(machine, &counting_no_escapes(definition(machine)), &input).await.unwrap();
        let end = scene.engine.until_end(&execution, PATIENCE).await.unwrap();

        assert_eq!(end.status, "SUCCEEDED", "{machine}: {end:?}");
    }
}

#[tokio::test]
async fn a_step_that_may_still_run_keeps_its_lock_until_the_lease_ends() {
    let Some(scene) = Scene::new().await else { return };
    scene.work(|counter| match counter {
        "killed" => Some(Instead::Failure("Sandbox.Timedout")),
        "silent" => Some(Instead::Refusal("ServiceException")),
        "client" => Some(Instead::Lost("ClientExecutionTimeoutException")),
        _ => None,
    });
    // Until the end of the test.
    let _held = scene.router.hold(Before::Request, |_, request| request["counter"] == "slow");
    let mut running = Vec::new();
    for (name, error) in [
        ("slow", "States.Timeout"),
        ("killed", "Sandbox.Timedout"),
        ("silent", "Lambda.ServiceException"),
        ("client", "Lambda.ClientExecutionTimeoutException"),
    ] {
        let machine = definition("exclusive-work");
        let machine = if name == "slow" { machine.with_task_timeout("FirstStep", 1) } else { machine };
        running.push((name, error, scene.engine.execute(name, &machine, &json!({ "key": name })).await.unwrap()));
    }

    for (name, error, execution) in running {
        let end = scene.engine.until_end(&execution, PATIENCE).await.unwrap();

        let lock = scene.lock(name).await;
        assert_eq!((&*end.status, end.error.as_deref()), ("FAILED", Some(error)), "{name}: {end:?}");
        assert_eq!(scene.engine.states(&execution).await.unwrap(), ["Lock", "FirstStep", "LeftToItsLease", "Failed"]);
        assert!(!lock.released, "{name}: nobody may release it");
        let end = lock.lease_ends_at.unwrap() + Duration::from_secs(2);
        assert!(end <= SystemTime::now(), "{name}: others may take the lock over only after the lease and the skew");
    }
}

#[tokio::test]
async fn throttled_work_is_repeated_and_then_given_up_with_its_lock() {
    let Some(scene) = Scene::new().await else { return };
    let refused = AtomicU32::new(0);
    scene.work(move |counter| {
        let always = counter == "always" || refused.fetch_add(1, Ordering::SeqCst) < 2;
        always.then_some(Instead::Refusal("TooManyRequestsException"))
    });
    let machine = definition("exclusive-work").with_pauses(0.1);
    let once = scene.engine.execute("once", &machine, &json!({ "key": "once" })).await.unwrap();
    let once = scene.engine.until_end(&once, PATIENCE).await.unwrap();
    let always = scene.engine.execute("always", &machine, &json!({ "key": "always" })).await.unwrap();
    let end = scene.engine.until_end(&always, PATIENCE).await.unwrap();

    assert_eq!(once.output, json!({ "value": 1 }), "{once:?}");
    assert_eq!(end.error.as_deref(), Some("Lambda.TooManyRequestsException"), "{end:?}");
    assert!(scene.is_released("once").await && scene.is_released("always").await);
}

#[tokio::test]
async fn lock_task_may_be_throttled_be_silent_or_crash_in_every_action() {
    let Some(scene) = Scene::new().await else { return };
    for (name, instead) in [
        ("throttled", Instead::Refusal("TooManyRequestsException")),
        ("client", Instead::Lost("ClientExecutionTimeoutException")),
        ("crashed", Instead::Failure("Runtime.ExitError")),
        ("killed", Instead::Failure("Sandbox.Timedout")),
    ] {
        let failed: [AtomicU32; 3] = Default::default();
        scene.router.instead(move |function, request| {
            let action = ["acquire", "renew", "release"].iter().position(|action| request["action"] == *action);
            let first = |action: usize| failed[action].fetch_add(1, Ordering::SeqCst) == 0;
            (function == "lock-task" && action.is_some_and(first)).then(|| instead.clone())
        });
        let machine = definition("exclusive-work").with_pauses(0.1);

        let execution = scene.engine.execute(name, &machine, &json!({ "key": name })).await.unwrap();
        let end = scene.engine.until_end(&execution, PATIENCE).await.unwrap();

        assert_eq!(end.output, json!({ "value": 1 }), "{name}: {end:?}");
        assert!(scene.is_released(name).await, "{name}");
        assert_eq!(scene.counter(name).await.0, 1, "{name}");
    }
}

#[tokio::test]
async fn an_unlock_that_fails_is_tried_for_as_long_as_the_lease() {
    let Some(scene) = Scene::new().await else { return };
    let of_key = |request: &Value, key: &str| request["action"] == "release" && request["lock"]["key"] == key;
    scene.router.instead(move |_, request| {
        if of_key(request, "throttled") {
            return Some(Instead::Refusal("TooManyRequestsException"));
        }
        // Such as credentials that have just expired.
        of_key(request, "denied").then_some(Instead::Failure("LockTableError"))
    });
    // 13 pauses, as long as the lease of the test.
    let machine = definition("exclusive-work").with_pauses(LEASE.as_secs_f64() / 13.0);
    for key in ["throttled", "denied"] {
        let execution = scene.engine.execute(key, &machine, &json!({ "key": key })).await.unwrap();
        let end = scene.engine.until_end(&execution, PATIENCE).await.unwrap();

        assert_eq!((&*end.status, &end.output), ("SUCCEEDED", &json!({ "value": 1 })), "{key}: {end:?}");
        assert_eq!(scene.engine.states(&execution).await.unwrap().last().unwrap(), "NotUnlocked", "{key}");
        let lock = scene.lock(key).await;
        assert!(lock.lease_ends_at.unwrap() <= SystemTime::now(), "{key}: no lock is left behind by a success");
    }
}

#[tokio::test]
async fn an_input_that_cannot_be_worked_on_is_refused_before_anything_begins() {
    let Some(scene) = Scene::new().await else { return };
    let too_many: Vec<_> = (0..301).map(|n| json!({ "key": n.to_string() })).collect();
    let of_items = [
        json!(null),
        json!([]),
        json!("text"),
        json!({ "items": { "key": "a" } }),
        json!({ "items": [{}] }),
        json!({ "items": [{ "key": "" }] }),
        json!({ "items": [null] }),
        json!({ "items": [7, { "key": "a" }] }),
        json!({ "items": [{ "key": "a" }, { "key": 7 }] }),
        json!({ "items": too_many }),
    ];
    for (number, input) in of_items.into_iter().enumerate() {
        let (execution, end) = scene.run(&format!("items-{number}"), "fan-out", input.clone()).await;

        assert_eq!(end.error.as_deref(), Some("InvalidInput"), "{input}: {end:?}");
        assert_eq!(scene.engine.states(&execution).await.unwrap(), ["Check", "InvalidInput"], "{input}");
    }
    assert!(scene.router.take_asked().is_empty());
    for (number, (input, error)) in [
        (json!(null), "InvalidRequest"),
        (json!(true), "InvalidRequest"),
        (json!(7), "InvalidRequest"),
        (json!("text"), "InvalidRequest"),
        (json!([]), "InvalidRequest"),
        (json!({}), "InvalidRequest"),
        (json!({ "key": null }), "InvalidRequest"),
        (json!({ "key": true }), "InvalidRequest"),
        (json!({ "key": {} }), "InvalidRequest"),
        (json!({ "key": ["a", "b"] }), "InvalidRequest"),
        (json!({ "key": "" }), "InvalidRequest"),
        (json!([{ "key": "a" }, { "key": "b" }]), "InvalidRequest"),
        (json!({ "observation": {}, "key": 7 }), "InvalidRequest"),
        (json!({ "key": "k", "much": "x".repeat(60_000) }), "States.QueryEvaluationError"),
    ]
    .into_iter()
    .enumerate()
    {
        let (execution, end) = scene.run(&format!("key-{number}"), "exclusive-work", input).await;

        assert_eq!(end.error.as_deref(), Some(error), "{number}: {end:?}");
        assert_eq!(scene.engine.states(&execution).await.unwrap(), ["Lock"]);
    }
    for (number, input) in
        [json!(null), json!(false), json!({}), json!([]), json!([1]), json!("text"), json!(7)].into_iter().enumerate()
    {
        let (_, end) = scene.run(&format!("any-{number}"), "skip-if-running", input.clone()).await;
        assert_eq!(end.output, json!({ "value": 1 }), "{input}: {end:?}");
    }
}

#[tokio::test]
async fn an_item_that_leaves_no_room_for_the_states_fails_alone_and_before_it_has_a_lock() {
    let Some(scene) = Scene::new().await else { return };
    for machine in ["fan-out", "fan-out-many"] {
        let [large, small] = [format!("{machine}-large"), format!("{machine}-small")];
        // With its key, it is almost as large as an input may be.
        let items = json!({ "items": [{ "key": large, "much": "x".repeat(261_900) }, { "key": small }] });

        let (execution, end) = scene.run(machine, machine, items).await;

        assert_eq!(end.error.as_deref(), Some("ItemsFailed"), "{machine}: {end:?}");
        assert!(scene.locks().operator().peek(&*large).await.unwrap().is_none(), "{machine}: its work cannot begin");
        assert!(scene.is_released(&small).await, "{machine}");
        assert_eq!(scene.clean_up(&execution, "FAILED").await, 0, "{machine}");
    }
}

#[tokio::test]
async fn the_history_of_fan_out_has_what_its_check_counts() {
    let Some(scene) = Scene::new().await else { return };
    let events = async |name: &str, count: usize| {
        let items: Vec<_> = (0..count).map(|n| json!({ "key": format!("{name}-{n}") })).collect();
        let (execution, end) = scene.run(name, "fan-out", json!({ "items": items })).await;
        assert_eq!(end.output, json!({ "done": count }), "{end:?}");
        scene.engine.history(&execution).await.unwrap().len()
    };

    let (none, four) = (events("none", 0).await, events("four", 4).await);
    // The first attempts of one action or step each.
    let refused = [AtomicU32::new(0), AtomicU32::new(0), AtomicU32::new(0)];
    scene.router.instead(move |_, request| {
        let which = ["acquire", "release", "add"]
            .iter()
            .position(|name| [&request["action"], &request["step"]].contains(&&json!(name)))?;
        (refused[which].fetch_add(1, Ordering::SeqCst) == 0).then_some(Instead::Refusal("TooManyRequestsException"))
    });
    let retried = events("retried", 4).await;

    assert_eq!(four - none, 4 * 17);
    assert_eq!(retried - four, 3 * 3);
}

/// fan-out whose two items may look two times each: (54 - 2) / 13 / 2.
fn with_two_looks() -> Definition {
    definition("fan-out").replacing("(24000 - 26 *", "(54 - 1 *")
}

#[tokio::test]
async fn an_item_that_has_looked_as_often_as_the_history_allows_fails_alone() {
    let Some(scene) = Scene::new().await else { return };
    let other = scene.locks().acquire("held").lease(PATIENCE).try_once().await.unwrap().granted().unwrap();
    let items = json!({ "items": [{ "key": "held" }, { "key": "free" }] });
    let started = Instant::now();

    let execution = scene.engine.execute("many", &with_two_looks(), &items).await.unwrap();
    let end = scene.engine.until_end(&execution, PATIENCE).await.unwrap();

    assert_eq!(end.error.as_deref(), Some("ItemsFailed"), "{end:?}");
    assert!(end.cause.unwrap().contains("has looked 2 times"));
    assert!(started.elapsed() >= 2 * POLL && scene.is_released("free").await && !scene.is_released("held").await);
    other.release().await.unwrap();
}

#[tokio::test]
async fn the_retries_of_a_look_count_for_what_they_take_of_the_history() {
    let Some(scene) = Scene::new().await else { return };
    let other = scene.locks().acquire("held").lease(PATIENCE).try_once().await.unwrap().granted().unwrap();
    let refused = AtomicU32::new(0);
    scene.router.instead(move |function, request| {
        let is_early = || refused.fetch_add(1, Ordering::SeqCst) < 3;
        let is_refused = function == "lock-task" && request["key"] == "held" && is_early();
        is_refused.then_some(Instead::Refusal("TooManyRequestsException"))
    });
    let items = json!({ "items": [{ "key": "held" }, { "key": "free" }] });
    let machine = with_two_looks().with_pauses(0.1);

    let execution = scene.engine.execute("many", &machine, &items).await.unwrap();
    let end = scene.engine.until_end(&execution, PATIENCE).await.unwrap();

    // Three retries of 3 events count for one look of 13.
    assert!(end.cause.as_ref().is_some_and(|cause| cause.contains("has looked 2 times")), "{end:?}");
    assert_eq!(scene.looks(&execution).await, 1);
    other.release().await.unwrap();
}
