//! Promises that the definitions show without an execution.

use crate::paths::MAX_INPUT;
use lambda_lock_asl::MAY_STILL_RUN;
use lambda_lock_local::lambda::workspace;
use lambda_lock_local::states::Definition;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// What a task may take from an answer: so little that it always fits beside the rest, or else the task fails with
/// an error that its own Catch sees.
const KEPT_OF_AN_ANSWER: [&str; 6] = [
    // lock-task answers with at most 128 KB.
    "$states.result.Payload.lock",
    "$number($states.result.Payload.value)",
    // The outcomes of items, which are small each.
    "$count($states.result[outcome = 'done'])",
    "[$states.result[outcome = 'failed']]",
    "$count($states.result[$ = #])",
    "$max([$count($states.input.items), $count($states.result)]) - $count($states.result[$ = #])",
];

/// What may be evaluated where nothing catches an error any more: it has a value whatever happened. `#` stands for a
/// name or a number.
const ALWAYS_HAS_A_VALUE: [&str; 20] = [
    "#",
    "$#",
    "$lock.#",
    "$failure.#",
    "$states.input",
    "$states.input.#",
    "$states.input.#.#",
    "$states.context.Map.Item.#",
    "$states.errorOutput.Error",
    "$substring($states.errorOutput.Error, 0, #)",
    "$exists($states.errorOutput.Cause) ? $substring($states.errorOutput.Cause, 0, #) : ''",
    "$max([0, $ceil(($lock.leaseEndsAt + # - $millis()) / 1000)])",
    "$count($failed) > 0",
    "$substring('items ' & $join([$failed.$string(index)], ', ') & ' failed: ' & $string($failed), 0, #)",
    "$count($states.result[outcome = 'done'])",
    "[$states.result[outcome = 'failed']]",
    "$count($states.result[$ = #])",
    "$max([$count($states.input.items), $count($states.result)]) - $count($states.result[$ = #])",
    "$failed > 0",
    "$failed & ' items failed; the child executions of the Map Run say which, and why'",
];

/// The error of an answer that is too large. States.ALL does not match it.
const TOO_LARGE: &str = "States.DataLimitExceeded";

/// The definition of a state machine without lock-task, see docs/without-a-function.md.
const WITHOUT_LOCK_TASK: &str = "without-lock-task/exclusive-work";

/// How many bytes a payload may have: https://docs.aws.amazon.com/step-functions/latest/dg/service-quotas.html
const PAYLOAD: usize = 256 * 1024;
/// How many items fan-out allows.
const ITEMS: usize = 300;
/// An input or an item that a state with an expression of 60,000 characters allows. A character has at most four bytes. The
/// six of an escape are counted as six characters, in a Cause too, which is the JSON text of an answer.
const INPUT: usize = 4 * MAX_INPUT;
// An error of lock-task, a number, and a key or another name.
const REPORT: usize = 8 * 1024;
const NUMBER: usize = 20;
const NAME: usize = 2_048;

/// The most bytes that an expression hands on, by its form.
const LARGEST: [(&str, usize); 28] = [
    ("$states.context.Execution.Input", INPUT),
    ("$states.input.item", INPUT),
    ("$states.input", INPUT + REPORT),
    // An answer of lock-task.
    ("$lock", 128 * 1024),
    ("$states.result.Payload.lock", 128 * 1024),
    ("$number($states.result.Payload.value)", NUMBER),
    // DynamoDB refuses a larger key before anything is held.
    ("$states.input.key", NAME),
    // `Lock` has got an answer to this key.
    ("$states.context.Execution.Input.key", NAME),
    ("$states.input.item.key", NAME),
    ("$states.context.Task.Token", NAME),
    (
        "$merge([$lock, {'version': $states.result.Attributes.#.S, 'leaseEndsAt': $number($states.result.Attributes.#.N)}])",
        4 * NAME,
    ),
    // What an update wrote.
    ("$states.result.Attributes.#.S", NAME),
    ("$number($states.result.Attributes.#.N)", NUMBER),
    ("$substring($states.errorOutput.Error, 0, 80)", 4 * 80),
    ("$exists($states.errorOutput.Cause) ? $substring($states.errorOutput.Cause, 0, 80) : ''", 4 * 80),
    ("$lock.#", NAME),
    ("$value", NUMBER),
    ("$value + 1", NUMBER),
    ("#", NUMBER),
    // Both are cut to 80 characters.
    ("$failure.#", 4 * 80),
    ("$states.context.Execution.Id", NAME),
    ("$states.context.Execution.Id & '/' & $states.context.Map.Item.Index", NAME),
    ("$states.context.Execution.Id & '/' & $states.context.Execution.RedriveCount", NAME),
    (
        "$states.context.Execution.Id & '/' & $states.context.Execution.RedriveCount & '/' & $states.context.Map.Item.Index",
        NAME,
    ),
    ("$states.context.StateMachine.Name", NAME),
    ("$states.context.Map.Item.Index", NUMBER),
    ("$states.errorOutput.Error", NAME),
    ("$exists($states.errorOutput.Cause) ? $substring($states.errorOutput.Cause, 0, 2000) : ''", 4 * 2_000),
];

/// The same, by what an expression contains.
const MAX_WITH: [(&str, usize); 11] = [
    // The fencing token, or a sentence.
    ("$error('redriven without its place", NAME),
    // The key or the input of a step, which is checked there.
    ("> 60000 ? $error(", INPUT),
    // The parts of a report. That of a full semaphore has at most 20 places.
    (".observation", REPORT),
    ("retryAfterSeconds", NUMBER),
    ("looks", NUMBER),
    ("$floor(", NUMBER),
    // The values of a request to DynamoDB: at most an owner, an execution, and two versions.
    ("':rvn': {'S': ", 4 * NAME),
    // Texts that stand in the expression.
    ("$look.released ? 'record", 0),
    ("$look.ours ? 'SET", 0),
    // A part of the lock of a state machine without lock-task, and an error.
    ("$length($states.result.Attributes.fencingToken.N) < 16 ?", NUMBER),
    ("'The lock ' & $lock.key & ", NAME),
];

/// The states of a state machine, or of the items of one.
struct Group {
    name: String,
    start: String,
    states: BTreeMap<String, Value>,
    /// The variables that are assigned before the first state.
    assigned: BTreeSet<String>,
}

/// Where a state leads to, with what it hands on and assigns on this way.
struct Way<'a> {
    to: &'a str,
    rule: &'a Value,
    /// Whether an error of an expression on this way is caught by the state itself.
    caught: bool,
}

fn groups() -> Vec<Group> {
    let mut groups = Vec::new();
    for name in machines() {
        collect(&name, Definition::read(&name).unwrap().document(), BTreeSet::new(), &mut groups);
    }
    assert!(groups.len() > machines().len(), "the items of a Map are a group of their own");
    groups
}

fn machines() -> Vec<String> {
    let names = std::fs::read_dir(workspace().join("deploy/statemachines")).unwrap();
    let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter_map(|name| name.strip_suffix(".asl.json").map(str::to_owned)).collect()
}

fn collect(name: &str, machine: &Value, assigned: BTreeSet<String>, groups: &mut Vec<Group>) {
    let states = machine["States"].as_object().unwrap().clone().into_iter().collect();
    let start = machine["StartAt"].as_str().unwrap().to_owned();
    let group = Group { name: name.to_owned(), start, states, assigned };
    let entered = group.assigned_at_entry();
    for (map, state) in group.states.iter().filter(|(_, state)| state["Type"] == "Map") {
        let distributed = state["ItemProcessor"]["ProcessorConfig"]["Mode"] == "DISTRIBUTED";
        let outside = if distributed { BTreeSet::new() } else { entered[map].clone() };
        collect(&format!("{name}, an item"), &state["ItemProcessor"], outside, groups);
    }
    groups.push(group);
}

impl Group {
    fn is_of_items(&self) -> bool {
        self.name.ends_with("an item")
    }

    fn tasks(&self) -> impl Iterator<Item = (&String, &Value)> {
        self.states.iter().filter(|(_, state)| state["Type"] == "Task")
    }

    fn ways<'a>(&self, state: &'a Value) -> Vec<Way<'a>> {
        let rules = ["Choices", "Catch"].map(|list| state[list].as_array().into_iter().flatten());
        let caught = state["Catch"].is_array();
        let own = [&state["Next"], &state["Default"]].into_iter().filter_map(Value::as_str);
        let own = own.map(|to| Way { to, rule: state, caught });
        let rules = rules.into_iter().flatten();
        own.chain(rules.map(|rule| Way { to: rule["Next"].as_str().unwrap(), rule, caught: false })).collect()
    }

    /// Returns the variables that every way to a state has assigned.
    fn assigned_at_entry(&self) -> BTreeMap<String, BTreeSet<String>> {
        let mut entered = BTreeMap::from([(self.start.clone(), self.assigned.clone())]);
        let mut waiting = vec![self.start.as_str()];
        while let Some(name) = waiting.pop() {
            for way in self.ways(&self.states[name]) {
                let own = way.rule["Assign"].as_object().into_iter().flatten().map(|(name, _)| name.clone());
                let after: BTreeSet<_> = entered[name].iter().cloned().chain(own).collect();
                let known = entered.get(way.to).map(|known| known.intersection(&after).cloned().collect());
                let now = known.unwrap_or(after);
                if entered.get(way.to) != Some(&now) {
                    entered.insert(way.to.to_owned(), now);
                    waiting.push(self.states.get_key_value(way.to).unwrap().0);
                }
            }
        }
        entered
    }
}

/// Returns the action of lock-task that a task requests.
fn action(state: &Value) -> Option<&str> {
    state["Arguments"]["Payload"]["action"].as_str()
}

/// Returns the tasks that run the work of the user.
fn is_work(state: &Value) -> bool {
    state["Type"] == "Task" && action(state).is_none()
}

fn names(errors: &Value) -> Vec<&str> {
    errors.as_array().unwrap().iter().map(|name| name.as_str().unwrap()).collect()
}

/// Returns the catchers of a state, as their names and their next states.
fn catchers(state: &Value) -> Vec<(Vec<&str>, &str)> {
    let catchers = state["Catch"].as_array().into_iter().flatten();
    catchers.map(|catcher| (names(&catcher["ErrorEquals"]), catcher["Next"].as_str().unwrap())).collect()
}

/// Returns the expressions in a value, without their braces.
fn expressions(value: &Value) -> Vec<&str> {
    match value {
        Value::String(text) => text.strip_prefix("{% ").and_then(|text| text.strip_suffix(" %}")).into_iter().collect(),
        Value::Array(values) => values.iter().flat_map(expressions).collect(),
        Value::Object(fields) => fields.values().flat_map(expressions).collect(),
        _ => Vec::new(),
    }
}

/// Returns the pauses between the attempts of a retrier, without jitter, in seconds.
fn pauses(retrier: &Value) -> f64 {
    let number = |name: &str| retrier[name].as_f64().unwrap();
    let pause = |attempt| number("IntervalSeconds") * number("BackoffRate").powi(attempt);
    (0..attempts(retrier)).map(|attempt| pause(attempt).min(number("MaxDelaySeconds"))).sum()
}

fn attempts(retrier: &Value) -> i32 {
    i32::try_from(retrier["MaxAttempts"].as_i64().unwrap()).unwrap()
}

/// Whether an expression has one of these forms.
fn has_form(expression: &str, forms: &[&str]) -> bool {
    forms.iter().any(|form| {
        let (mut rest, mut first) = (expression, true);
        for part in form.split('#') {
            if !first {
                rest = rest.trim_start_matches(|c: char| c.is_ascii_alphanumeric());
            }
            let Some(after) = rest.strip_prefix(part) else { return false };
            (rest, first) = (after, false);
        }
        rest.is_empty()
    })
}

/// Returns the names that follow this text in an expression, but not those of functions.
fn names_after<'a>(expression: &'a str, text: &'a str) -> impl Iterator<Item = &'a str> {
    expression.split(text).skip(1).filter_map(|rest| {
        let end = rest.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(rest.len());
        (end > 0 && !rest[end..].starts_with('(')).then(|| &rest[..end])
    })
}

#[test]
fn a_failure_under_a_lock_leads_to_its_release_or_to_the_end_of_its_lease() {
    let mut steps = 0;
    for group in groups() {
        for (name, state) in
            group.tasks().filter(|(_, state)| !matches!(action(state), Some("acquire" | "wait" | "release")))
        {
            let here = format!("{}: {name}", group.name);
            let releases = |next: &str| action(&group.states[next]) == Some("release");
            let catchers = catchers(state);
            let (last, rest) = catchers.split_last().unwrap();
            assert!(last.0 == ["States.ALL"] && releases(last.1), "{here}");
            assert!(rest[0].0 == ["LockLost"] && releases(rest[0].1), "{here}");
            if is_work(state) {
                // Nobody else may get the lock while the step may still run. After an answer that is too large it has
                // ended.
                let too_large = (vec![TOO_LARGE], last.1);
                assert_eq!(rest[1..], [(MAY_STILL_RUN.to_vec(), "LeftToItsLease"), too_large], "{here}");
                assert_eq!(group.states["LeftToItsLease"]["Type"], "Wait", "{here}");
                steps += 1;
            }
        }
    }
    assert!(steps > 4, "{steps}");
}

#[test]
fn lock_task_is_repeated_after_every_error_of_lambda_and_the_work_only_if_it_has_not_begun() {
    for group in groups() {
        for (name, state) in group.tasks().filter(|(_, state)| action(state) != Some("wait")) {
            let here = format!("{}: {name}", group.name);
            let [retrier] = &state["Retry"].as_array().unwrap()[..] else { panic!("{here}: one retrier") };
            let retried = names(&retrier["ErrorEquals"]);
            if is_work(state) {
                assert_eq!(retried, ["Lambda.TooManyRequestsException"], "{here}");
            } else if name == "Unlock" {
                // What follows is a success, after which nobody else releases the lock.
                assert_eq!(retried, ["States.ALL"], "{here}");
            } else {
                let unknown = ["LockUnknown", "Lambda.TooManyRequestsException", "Runtime.ExitError"];
                // These tasks send no heartbeats.
                let may_still_run = MAY_STILL_RUN.into_iter().filter(|name| *name != "States.HeartbeatTimeout");
                let expected: BTreeSet<_> = may_still_run.chain(unknown).collect();
                assert_eq!(BTreeSet::from_iter(retried), expected, "{here}");
            }
            assert!(state["TimeoutSeconds"].as_u64() > Some(30), "{here}: no shorter than its function's timeout");
        }
    }
}

/// A timeout proves that its seconds have passed, and to be woken proves nothing.
#[test]
fn whoever_sleeps_in_line_looks_again_and_counts_only_the_seconds_of_a_timeout() {
    let mut sleeping = 0;
    for group in groups() {
        for (name, state) in group.tasks().filter(|(_, state)| action(state) == Some("wait")) {
            let here = format!("{}: {name}", group.name);
            assert_eq!(state["Retry"], Value::Null, "{here}: the next attempt is a look");
            // An item has the report of its lock in a field of its own.
            let (held, output) = match &state["Output"]["held"] {
                Value::Null => ("", &state["Output"]),
                output => ("held.", output),
            };
            assert_eq!(state["TimeoutSeconds"], format!("{{% $states.input.{held}retryAfterSeconds %}}"), "{here}");
            let expected = [(vec!["States.Timeout"], "Lock"), (vec!["States.ALL"], "WaitForHolder")];
            assert_eq!(catchers(state), expected, "{here}");
            assert_eq!((&state["Next"], &output["retryAfterSeconds"]), (&"Lock".into(), &0.into()), "{here}");
            assert_eq!(group.states["Lock"]["Arguments"]["Payload"]["inLine"], true, "{here}");
            // What is handed on of the time is what has passed.
            assert_eq!(group.states["WaitForHolder"]["Seconds"], state["TimeoutSeconds"], "{here}");
            for catcher in state["Catch"].as_array().unwrap() {
                let output = if held.is_empty() { &catcher["Output"] } else { &catcher["Output"]["held"] };
                assert_eq!(output["retryAfterSeconds"], state["TimeoutSeconds"], "{here}");
            }
            let (payload, lock) = (&state["Arguments"]["Payload"], &group.states["Lock"]["Arguments"]["Payload"]);
            assert_eq!(payload["waitedSeconds"], 0, "{here}");
            // Without its place nobody would wake it, and without its name its wake item would be left behind.
            assert_eq!(payload["observation"], format!("{{% $states.input.{held}observation %}}"), "{here}");
            assert_eq!(payload["execution"], lock["execution"], "{here}");
            // The manual promises a look this often where nobody wakes.
            assert_eq!(lock["maxRetryAfterSeconds"], 60, "{here}");
            sleeping += 1;
        }
    }
    assert!(sleeping > 2);
}

#[test]
fn a_lease_lasts_for_all_attempts_of_a_step_and_unlock_is_tried_for_as_long() {
    let (mut steps, mut unlocks) = (0, 0);
    for group in groups() {
        let seconds = |state: &Value| state["TimeoutSeconds"].as_f64().unwrap();
        let renewing = group.tasks().filter(|(_, state)| matches!(action(state), Some("acquire" | "renew")));
        let renewing: Vec<_> = renewing.map(|(_, state)| state).collect();
        let leases = renewing.iter().map(|state| state["Arguments"]["Payload"]["leaseSeconds"].as_f64().unwrap());
        let lease = leases.fold(f64::INFINITY, f64::min);
        for (name, state) in group.tasks() {
            let here = format!("{}: {name}", group.name);
            if is_work(state) {
                // The lease begins when the request is applied, so the answer to it counts as well.
                let answer = renewing.iter().map(|state| seconds(state)).fold(0.0, f64::max);
                let tries = f64::from(attempts(&state["Retry"][0]) + 1);
                let longest = answer + tries * seconds(state) + pauses(&state["Retry"][0]);
                // Step Functions does not say how long it takes from one attempt or state to the next.
                let between_states = 5.0;
                assert!(lease >= longest + between_states, "{here}: a lease of {lease} s, and a step of {longest} s");
                steps += 1;
            }
            if action(state) == Some("release") {
                assert!(state["Retry"][0].get("JitterStrategy").is_none(), "{here}: jitter makes pauses shorter");
                let pauses = pauses(&state["Retry"][0]);
                assert!(pauses >= lease, "{here}: {pauses} s for a lease of {lease} s");
                unlocks += 1;
            }
        }
    }
    assert!(steps > 4 && unlocks > 7, "{steps} {unlocks}");
}

#[test]
fn owners_tell_redrives_and_items_apart_and_the_row_names_the_execution() {
    let mut acquires = 0;
    for group in groups() {
        for (_, state) in group.tasks().filter(|(_, state)| action(state) == Some("acquire")) {
            let payload = &state["Arguments"]["Payload"];
            let owner = payload["owner"].as_str().unwrap();
            let attempt = "$states.context.Execution.Id & '/' & $states.context.Execution.RedriveCount";
            assert!(owner.contains(attempt), "{}: {owner}", group.name);
            // An item of a distributed Map is an execution of its own.
            let shared = group.is_of_items() && group.name.starts_with("fan-out,");
            assert_eq!(owner.contains("$states.context.Map.Item.Index"), shared, "{}: {owner}", group.name);
            assert_eq!(payload["execution"], "{% $states.context.Execution.Id %}");
            acquires += 1;
        }
    }
    assert!(acquires >= 3, "{acquires}");
}

#[test]
fn a_retried_request_has_reclaim() {
    for group in groups() {
        for (name, state) in group.tasks().filter(|(_, state)| matches!(action(state), Some("acquire" | "release"))) {
            // The retry follows a lost response. If the lock is held by then, this task holds it.
            assert_eq!(state["Arguments"]["Payload"]["reclaim"], true, "{}: {name}", group.name);
        }
    }
}

#[test]
fn every_machine_uses_jsonata_has_a_timeout_and_runs_in_every_partition() {
    for machine in machines() {
        let definition = Definition::read(&machine).unwrap();
        assert_eq!(definition.document()["QueryLanguage"], "JSONata", "{machine}");
        assert!(definition.document()["TimeoutSeconds"].is_number(), "{machine}");
        assert!(!definition.document().to_string().contains("${"), "{machine}: a placeholder that is not replaced");
        let path = workspace().join("deploy/statemachines").join(&machine).with_extension("asl.json");
        assert!(!std::fs::read_to_string(path).unwrap().contains("arn:aws"), "{machine}: an ARN of one partition");
    }
}

#[test]
fn no_definition_relies_on_a_catch_of_what_nothing_catches() {
    for group in groups() {
        for (name, state) in &group.states {
            let here = format!("{}: {name}", group.name);
            for (list, never) in [("Catch", &["States.Runtime"][..]), ("Retry", &["States.Runtime", TOO_LARGE])] {
                for rule in state[list].as_array().into_iter().flatten() {
                    let names = names(&rule["ErrorEquals"]);
                    assert!(!names.iter().any(|name| never.contains(name)), "{here}: {list} of {names:?}");
                }
            }
            // Paths that lead nowhere are States.Runtime. Expressions without a value are not.
            for field in state.as_object().unwrap().keys() {
                let of_paths = ["Parameters", "ResultSelector", "Result", "Iterator"].contains(&field.as_str());
                assert!(!of_paths && !field.ends_with("Path"), "{here}: {field} is of JSONPath");
            }
            assert!(!state.to_string().contains(".$\":"), "{here}: a field of JSONPath");
            assert!(state["Type"] != "Choice" || state["Default"].is_string(), "{here}: a Choice without Default");
        }
    }
}

#[test]
fn little_enough_is_kept_of_every_answer_and_of_every_error() {
    for group in groups() {
        for (name, state) in &group.states {
            let here = format!("{}: {name}", group.name);
            if ["Task", "Map"].iter().any(|kind| state["Type"] == *kind) {
                assert!(state.get("Output").is_some(), "{here}: without Output the whole answer is kept");
            }
            for field in ["Assign", "Output"] {
                for expression in expressions(&state[field]).iter().filter(|it| it.contains("$states.result")) {
                    assert!(has_form(expression, &KEPT_OF_AN_ANSWER), "{here}: {expression}");
                }
            }
        }
    }
}

/// Returns the most bytes that a payload has. For a Map, its own result is counted by the caller.
fn largest(payload: &Value, here: &str) -> usize {
    if payload == "{% $states.input %}" {
        // Whoever handed it to this state was checked, or it is the input of the execution.
        return PAYLOAD;
    }
    let of_expressions = expressions(payload).into_iter().map(|expression| {
        let by_form = LARGEST.iter().find(|(form, _)| has_form(expression, &[form]));
        let found = by_form.or_else(|| MAX_WITH.iter().find(|(part, _)| expression.contains(part)));
        found.unwrap_or_else(|| panic!("{here}: how much does {expression} hand on?")).1
    });
    // The text has the expressions themselves too, which makes it longer than what is sent.
    payload.to_string().len() + of_expressions.sum::<usize>()
}

#[test]
fn no_state_sends_keeps_or_hands_on_more_than_a_payload() {
    let (mut of_items, mut groups) = (0, groups());
    collect(WITHOUT_LOCK_TASK, Definition::read(WITHOUT_LOCK_TASK).unwrap().document(), BTreeSet::new(), &mut groups);
    for group in groups {
        for (name, state) in group.states.iter().filter(|(_, state)| state["Type"] != "Map") {
            let here = format!("{}: {name}", group.name);
            let rules = ["Catch", "Choices"].map(|list| state[list].as_array().into_iter().flatten());
            let of_rules = rules.into_iter().flatten().flat_map(|rule| [&rule["Assign"], &rule["Output"]]);
            let own = [&state["Arguments"], &state["Output"], &state["Assign"]];
            for payload in own.into_iter().chain(of_rules) {
                // Before the lock is held, a row of somebody else may be as large as it wants.
                if payload.get("look").is_some() && name == "Look" {
                    continue;
                }
                let bytes = largest(payload, &here);
                assert!(bytes <= PAYLOAD, "{here}: {bytes} bytes, of {payload}");
            }
            for error in state["Catch"].as_array().into_iter().flatten().filter(|_| group.is_of_items()) {
                let text = error["Assign"].to_string();
                assert_eq!(text.matches("$substring(").count(), text.matches(", 0, 80)").count(), "{here}: {text}");
            }
            if group.name == "fan-out, an item" && state["End"] == true {
                let bytes = ITEMS * largest(&state["Output"], &here);
                assert!(bytes <= PAYLOAD, "{here}: {bytes} bytes of all items");
                of_items += 1;
            }
        }
    }
    assert_eq!(of_items, 2);
    let check = Definition::read("fan-out").unwrap().document()["States"]["Check"].to_string();
    assert!(check.contains(&format!("$count($states.input.items) <= {ITEMS} ")));
}

#[test]
fn where_nothing_catches_an_error_every_expression_has_a_value() {
    for group in groups() {
        for (name, state) in &group.states {
            let here = format!("{}: {name}", group.name);
            let catches = state["Type"] == "Task" || state["Type"] == "Map";
            let of_ways = group.ways(state).into_iter().filter(|way| !way.caught).map(|way| way.rule);
            let mut uncaught: Vec<_> = of_ways.flat_map(|rule| [&rule["Assign"], &rule["Output"]]).collect();
            if !catches {
                uncaught.extend(["Seconds", "Error", "Cause", "Output", "Choices"].map(|field| &state[field]));
            }
            // Nothing is lost by an error before there is a lock, and in an answer of lock-task whose form is known.
            let before_the_lock = *name == group.start;
            for expression in uncaught.into_iter().flat_map(expressions).filter(|_| !before_the_lock) {
                assert!(has_form(expression, &ALWAYS_HAS_A_VALUE), "{here}: {expression}");
            }
        }
    }
}

#[test]
fn a_variable_that_is_used_was_assigned_on_every_way() {
    let mut uses = 0;
    for group in groups() {
        let entered = group.assigned_at_entry();
        for (name, state) in &group.states {
            for expression in expressions(&without_items(state)) {
                for used in names_after(expression, "$").filter(|used| *used != "states") {
                    let group = &group.name;
                    assert!(entered[name].contains(used), "{group}: {name} uses ${used}, which is not always assigned");
                    uses += 1;
                }
            }
        }
    }
    assert!(uses > 20, "{uses}");
}

#[test]
fn a_field_of_the_input_that_is_used_is_handed_on_by_every_state_before() {
    for group in groups() {
        for (name, state) in group.states.iter().filter(|(name, _)| **name != group.start) {
            for used in expressions(&without_items(state)).iter().flat_map(|it| names_after(it, "$states.input.")) {
                for (before, other) in &group.states {
                    for way in group.ways(other).into_iter().filter(|way| way.to == name) {
                        let output = &way.rule["Output"];
                        // A Choice hands its input on, and the first state the input of the execution or the item.
                        let whole = *output == "{% $states.input %}" || other["Type"] == "Choice" && output.is_null();
                        let handed = output.get(used).is_some() || whole && *before == group.start;
                        assert!(handed, "{}: {name} uses {used}, which {before} does not hand on", group.name);
                    }
                }
            }
        }
    }
}

fn without_items(state: &Value) -> Value {
    let mut state = state.clone();
    state.as_object_mut().unwrap().remove("ItemProcessor");
    state
}
