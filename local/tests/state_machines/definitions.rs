//! Promises that the definitions show without an execution.

use lambda_lock_local::lambda::workspace;
use lambda_lock_local::states::Definition;
use serde_json::Value;
use std::collections::BTreeMap;

/// Returns the states of every definition, and those of its items.
fn state_groups() -> Vec<(String, BTreeMap<String, Value>)> {
    let mut groups = Vec::new();
    for entry in std::fs::read_dir(workspace().join("deploy/statemachines")).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let Some(machine) = name.strip_suffix(".asl.json") else { continue };
        collect(machine, Definition::read(machine).unwrap().document(), &mut groups);
    }
    assert_eq!(groups.len(), 4, "three state machines, and the items of one");
    groups
}

fn collect(name: &str, machine: &Value, groups: &mut Vec<(String, BTreeMap<String, Value>)>) {
    let states: BTreeMap<_, _> = machine["States"].as_object().unwrap().clone().into_iter().collect();
    for state in states.values().filter(|state| state["Type"] == "Map") {
        collect(&format!("{name}, an item"), &state["ItemProcessor"], groups);
    }
    groups.push((name.to_owned(), states));
}

/// Returns the action of lock-task that a task requests.
fn action(state: &Value) -> Option<&str> {
    state["Parameters"]["Payload"]["action"].as_str()
}

fn names(errors: &Value) -> Vec<&str> {
    errors.as_array().unwrap().iter().map(|name| name.as_str().unwrap()).collect()
}

#[test]
fn every_failure_under_a_lock_leads_to_its_release() {
    let mut catches = 0;
    for (machine, states) in state_groups() {
        let releases = |next: &Value| action(&states[next.as_str().unwrap()]) == Some("release");
        for (name, state) in &states {
            if state["Type"] != "Task" || matches!(action(state), Some("acquire" | "release")) {
                continue;
            }
            let catchers = state["Catch"].as_array().unwrap_or_else(|| panic!("{machine}: {name} catches nothing"));
            assert_eq!(names(&catchers.last().unwrap()["ErrorEquals"]), ["States.ALL"], "{machine}: {name}");
            assert!(catchers.iter().all(|catcher| releases(&catcher["Next"])), "{machine}: {name}");
            catches += 1;
        }
    }
    assert_eq!(catches, 3 + 1 + 1);
}

#[test]
fn held_lost_and_unknown_are_matched_by_name_and_lambda_s_own_errors_are_retried() {
    for (machine, states) in state_groups() {
        for (name, state) in states.iter().filter(|(_, state)| state["Type"] == "Task") {
            let retried = names(&state["Retry"][0]["ErrorEquals"]);
            let here = format!("{machine}: {name}");
            for lambda in ["ServiceException", "AWSLambdaException", "SdkClientException", "TooManyRequestsException"] {
                assert!(retried.contains(&format!("Lambda.{lambda}").as_str()), "{here}");
            }
            // A retry of lock-task is always safe. Whether a retry of the work is safe, only its owner can
            // decide.
            assert_eq!(retried.contains(&"LockUnknown"), action(state).is_some(), "{here}");
            for definite in ["LockHeld", "LockLost", "InvalidRequest", "States.ALL", "States.TaskFailed"] {
                assert!(!retried.contains(&definite), "{here}");
            }
            let caught: Vec<_> =
                state["Catch"].as_array().into_iter().flatten().flat_map(|it| names(&it["ErrorEquals"])).collect();
            match action(state) {
                Some("acquire") if name == "Lock" => assert!(caught.contains(&"LockHeld"), "{here}"),
                Some("acquire" | "release") => {}
                _ => assert!(caught.contains(&"LockLost"), "{here}"),
            }
            assert!(state["TimeoutSeconds"].as_u64() > Some(30), "{here}: no shorter than its function's timeout");
        }
    }
}

#[test]
fn owners_tell_redrives_and_items_apart_and_the_row_names_the_execution() {
    let mut acquires = 0;
    for (machine, states) in state_groups() {
        for state in states.values().filter(|state| action(state) == Some("acquire")) {
            let payload = &state["Parameters"]["Payload"];
            let owner = payload["owner.$"].as_str().unwrap();
            assert!(owner.contains("$$.Execution.Id, $$.Execution.RedriveCount"), "{machine}: {owner}");
            assert_eq!(owner.contains("$.index"), machine.contains("an item"), "{machine}: {owner}");
            assert_eq!(payload["execution.$"], "$$.Execution.Id");
            acquires += 1;
        }
    }
    assert_eq!(acquires, 2 + 1 + 2);
}

#[test]
fn a_retried_request_has_reclaim() {
    let mut says_so = 0;
    for (machine, states) in state_groups() {
        for (name, state) in states.iter().filter(|(_, state)| matches!(action(state), Some("acquire" | "release"))) {
            // The retry follows a lost response. If the lock is held by then, this task holds it.
            assert_eq!(state["Parameters"]["Payload"]["reclaim"], true, "{machine}: {name}");
            says_so += 1;
        }
    }
    assert_eq!(says_so, (2 + 1 + 2) + (2 + 2 + 2));
}

#[test]
fn every_machine_uses_jsonpath_and_has_a_timeout() {
    for (machine, _) in state_groups().iter().filter(|(machine, _)| !machine.contains("an item")) {
        let definition = Definition::read(machine).unwrap();
        assert!(!definition.document().to_string().contains("QueryLanguage"), "{machine}");
        assert!(definition.document()["TimeoutSeconds"].is_number(), "{machine}");
        assert!(!definition.document().to_string().contains("${"), "{machine}: a placeholder that is not replaced");
    }
}
