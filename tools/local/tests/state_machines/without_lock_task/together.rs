//! Several holders of one key: executions, items of a Map, `lock-task`, and callers of the crate.

use super::{document, machine, options, scene, states};
use crate::scene::{LEASE, PATIENCE};
use lambda_lock::SavedLock;
use lambda_lock_asl::{OWNER, Options};
use lambda_lock_local::states::Definition;
use serde_json::json;

#[tokio::test]
async fn the_second_of_two_executions_waits_for_the_first() {
    let Some(scene) = scene().await else { return };
    let (mut held, input) = (scene.hold_step("read"), json!({ "key": "k" }));
    let first = scene.engine.execute("first", &machine(), &input).await.unwrap();
    held.until(1).await;
    let second = scene.engine.execute("second", &machine(), &input).await.unwrap();
    scene.until_in(&second, "WaitForHolder").await;
    drop(held);
    for execution in [&first, &second] {
        assert_eq!(scene.engine.until_end(execution, PATIENCE).await.unwrap().status, "SUCCEEDED");
    }
    assert_eq!(scene.counter("k").await, (2, [first.arn, second.arn.clone()].into()));
    let entered = states(&scene, &second).await;
    let until_granted: Vec<_> = entered.iter().take_while(|state| *state != "FirstStep").collect();
    let looks = until_granted.iter().filter(|state| **state == "WaitForHolder").count();
    // What a look costs: three transitions.
    assert_eq!(until_granted.len(), 3 * looks + 1 + 3, "{until_granted:?}");
}

#[tokio::test]
async fn items_of_an_inline_map_each_hold_their_own_lock() {
    let Some(scene) = scene().await else { return };
    let of_item = Options {
        key: "$states.input.item.key".to_owned(),
        owner: format!("{OWNER} & '/' & $states.input.index"),
        ..options()
    };
    let mut item = document(&of_item);
    for step in ["FirstStep", "SecondStep"] {
        let payload = &mut item["States"][step]["Arguments"]["Payload"];
        payload["writer"] = json!("{% $states.context.Execution.Id & '/' & $states.input.index %}");
    }
    let machine = Definition::new(json!({
        "QueryLanguage": "JSONata", "StartAt": "EachItem",
        "States": { "EachItem": {
            "Type": "Map", "Items": "{% $states.input.items %}", "End": true,
            "ItemSelector": {
                "item": "{% $states.context.Map.Item.Value %}", "index": "{% $states.context.Map.Item.Index %}",
            },
            "ItemProcessor": {
                "ProcessorConfig": { "Mode": "INLINE" }, "StartAt": "Lock", "States": item["States"],
            },
        } },
    }));
    let items: Vec<_> = (0..6).map(|index| json!({ "key": format!("m{}", index % 3) })).collect();
    let execution = scene.engine.execute("map", &machine, &json!({ "items": items })).await.unwrap();
    let end = scene.engine.until_end(&execution, PATIENCE).await.unwrap();
    assert_eq!(end.status, "SUCCEEDED", "{end:?}");
    for key in 0..3 {
        let writers = [key, key + 3].map(|index| format!("{}/{index}", execution.arn));
        assert_eq!(scene.counter(&format!("m{key}")).await, (2, writers.into()));
        assert!(scene.lock(&format!("m{key}")).await.released);
    }
}

#[tokio::test]
async fn lock_task_and_the_crate_go_on_with_a_lock_that_a_state_machine_acquired() {
    let Some(scene) = scene().await else { return };
    let mut only_acquires = document(&options());
    only_acquires["States"]["FirstStep"] = json!({ "Type": "Pass", "Output": "{% $lock %}", "End": true });
    for name in ["by-lock-task", "by-the-crate"] {
        let machine = Definition::new(only_acquires.clone());
        let execution = scene.engine.execute(name, &machine, &json!({ "key": name })).await.unwrap();
        let lock = scene.engine.until_end(&execution, PATIENCE).await.unwrap().output;
        let token = lock["fencingToken"].as_u64();
        assert_eq!(token, scene.lock(name).await.fencing_token);
        if name == "by-lock-task" {
            let renew = json!({ "action": "renew", "lock": lock, "leaseSeconds": LEASE.as_secs() });
            let renewed = scene.sample.ask("lock-task", &renew).await.unwrap()["lock"].clone();
            assert_eq!(renewed["fencingToken"].as_u64(), token);
            let release = json!({ "action": "release", "lock": renewed });
            assert_eq!(scene.sample.ask("lock-task", &release).await.unwrap(), json!({ "released": true }));
        } else {
            let saved: SavedLock = serde_json::from_value(lock).unwrap();
            let resumed = scene.locks().resume(saved).lease(LEASE).await.unwrap();
            assert_eq!(Some(resumed.fencing_token()), token);
            resumed.release().await.unwrap();
        }
        assert!(scene.lock(name).await.released);
    }
}

/// A work function goes on with the lock, and hands it back.
#[tokio::test]
async fn a_state_machine_goes_on_with_a_lock_that_lock_task_acquired() {
    let Some(scene) = scene().await else { return };
    let mut mixed = document(&options());
    mixed["StartAt"] = json!("AcquireByFunction");
    mixed["States"]["AcquireByFunction"] = json!({
        "Type": "Task", "Resource": "arn:aws:states:::lambda:invoke", "Next": "FirstStep",
        "Arguments": { "FunctionName": "lock-task", "Payload": {
            "action": "acquire", "key": "{% $states.input.key %}", "leaseSeconds": LEASE.as_secs(),
            "owner": format!("{{% {OWNER} %}}"), "execution": "{% $states.context.Execution.Id %}",
        } },
        "Assign": { "lock": "{% $states.result.Payload.lock %}" }, "Output": "{% $states.input %}",
    });
    let machine = Definition::new(mixed);
    let execution = scene.engine.execute("mixed", &machine, &json!({ "key": "k" })).await.unwrap();
    let end = scene.engine.until_end(&execution, PATIENCE).await.unwrap();
    assert_eq!(end.status, "SUCCEEDED", "{end:?}");
    let entered = states(&scene, &execution).await;
    assert_eq!(entered, ["AcquireByFunction", "FirstStep", "Renew", "SecondStep", "Unlock"]);
    assert!(scene.lock("k").await.released);
}
