//! State machines that hold their locks with DynamoDB alone: the states that `lambda-lock asl` writes, under the role of
//! the template, next to `lock-task` and callers of the crate.

mod clocks;
mod crowd;
mod ends;
mod frozen;
mod lost;
mod peers;
mod places;
mod together;

use crate::scene::{LEASE, PATIENCE, SKEW, Scene, binaries};
use aws_sdk_dynamodb::types::AttributeValue;
use lambda_lock_asl::{Options, policy, sample};
use lambda_lock_local::authorize::{Call, Condition, Fate};
use lambda_lock_local::states::{Definition, Engine, Execution, Router};
use lambda_lock_local::{Expansion, Sample, client};
use serde_json::{Value, json};
use std::path::PathBuf;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

const MACHINE: &str = "ExclusiveWorkWithoutLockTask";
/// The access key id of the engine at the proxy in front of DynamoDB.
const ENGINE: &str = "engine";
/// The states of an execution that finds the lock free.
const FREE: [&str; 5] = ["Lock", "FirstStep", "Renew", "SecondStep", "Unlock"];

/// Returns the template with this state machine, or `None` if the tools for it are missing.
fn template() -> Option<Expansion> {
    static TEMPLATE: OnceLock<Option<Expansion>> = OnceLock::new();
    TEMPLATE.get_or_init(|| Expansion::expand_with(&["SampleWithoutLockTask=true"]).unwrap()).clone()
}

/// Starts everything, with the state machine's own role and a history of the lock table. If the tools are not installed, prints a line on stderr and
/// returns `None`.
pub(crate) async fn scene() -> Option<Scene> {
    let template = template()?;
    let role = template.state_machines[MACHINE].clone();
    let template = template
        .with_history("LockTable")
        .with("lock-task", &[("LOCK_MAX_CLOCK_SKEW_MS", "300")])
        .with("sample-work", &[("ALLOW_SIMULATE", "true")])
        .with("lock-cleaner", &[("CLEANUP_SECOND_LOOK_SECONDS", "1")]);
    let paths: Vec<_> = binaries().await.iter().map(PathBuf::as_path).collect();
    let sample = Sample::deploy(&template, &paths).await.unwrap();
    sample.proxy.allow(ENGINE, role);
    let router = Router::start(&sample.lambda).await.unwrap();
    let engine = Engine::start_with_dynamodb(router.endpoint(), sample.proxy.endpoint()).await.unwrap()?;
    sample.proxy.forward_states_to(engine.endpoint()).unwrap();
    Some(Scene { sample, router, engine })
}

/// The options of all tests: a short lease, and short pauses.
fn options() -> Options {
    Options {
        table: "LockTable".to_owned(),
        ttl_attribute: Some("expiresAt".to_owned()),
        lease: LEASE,
        max_clock_skew: SKEW,
        poll_seconds: 1,
        ..Options::default()
    }
}

/// The sample with these options.
fn document(options: &Options) -> Value {
    let text = sample(options, "test").unwrap().to_string();
    serde_json::from_str(&text.replace("${WorkArn}", "sample-work")).unwrap()
}

pub(crate) fn machine() -> Definition {
    Definition::new(document(&options()))
}

/// Input of an execution whose steps take this long.
fn slow(key: &str, step: Duration) -> Value {
    json!({ "key": key, "simulate": { "stepMillis": step.as_millis() as u64 } })
}

/// Executes the sample to its end. Returns the execution, and its error if it failed.
async fn run(scene: &Scene, name: &str, key: &str) -> (Execution, Option<String>) {
    let execution = scene.engine.execute(name, &machine(), &json!({ "key": key })).await.unwrap();
    let end = scene.engine.until_end(&execution, PATIENCE).await.unwrap();
    let error = end.error.filter(|_| end.status != "SUCCEEDED");
    assert!(end.status == "SUCCEEDED" || error.is_some(), "{}", end.status);
    (execution, error)
}

async fn states(scene: &Scene, execution: &Execution) -> Vec<String> {
    scene.engine.states(execution).await.unwrap()
}

/// Writes a row as another client does.
async fn put(scene: &Scene, key: &str, row: &Value) {
    let put = client(scene.sample.dynamodb.endpoint()).put_item().table_name("LockTable");
    let put = row.as_object().unwrap().iter().fold(put, |put, (name, value)| {
        let value = match (value["S"].as_str(), value["N"].as_str()) {
            (Some(text), _) => AttributeValue::S(text.to_owned()),
            (_, Some(number)) => AttributeValue::N(number.to_owned()),
            _ => panic!("neither S nor N: {value}"),
        };
        put.item(name, value)
    });
    put.item("key", AttributeValue::S(key.to_owned())).send().await.unwrap();
}

/// Loses the response to the nth write of the state machines, from 1.
fn nth_write_lost(nth: u32) -> impl Fn(&Call) -> Fate + Send + Sync {
    let writes = AtomicU32::new(0);
    move |call| {
        let is_write = call.caller == ENGINE && call.needs[0].action == "dynamodb:UpdateItem";
        if is_write && writes.fetch_add(1, Ordering::SeqCst) + 1 == nth { Fate::AnswerLost } else { Fate::Answered }
    }
}

#[tokio::test]
async fn a_free_lock_takes_three_transitions_and_three_requests() {
    let Some(scene) = scene().await else { return };
    let noted = scene.note_requests();
    let (execution, error) = run(&scene, "free", "k").await;
    assert_eq!(error, None);
    assert_eq!(states(&scene, &execution).await, FREE);
    let of_engine = |request: &&String| request.starts_with(ENGINE);
    assert_eq!(noted.lock().unwrap().iter().filter(of_engine).collect::<Vec<_>>(), ["engine UpdateItem"; 3]);
    let lock = scene.lock("k").await;
    assert_eq!((lock.released, lock.workflow), (true, None));
    assert_eq!(scene.counter("k").await, (1, [execution.arn].into()));

    let (_, error) = run(&scene, "again", "k").await;
    assert_eq!(error, None);
    assert!(scene.lock("k").await.fencing_token > lock.fencing_token);
}

#[tokio::test]
async fn a_holder_that_is_dead_by_the_wall_clock_costs_no_look() {
    let Some(scene) = scene().await else { return };
    let dead = scene.locks().acquire("k").lease(Duration::from_millis(50)).try_once().await.unwrap().granted().unwrap();
    tokio::time::sleep(Duration::from_millis(50) + SKEW + Duration::from_millis(20)).await;
    let (execution, error) = run(&scene, "next", "k").await;
    assert_eq!(error, None);
    assert_eq!(states(&scene, &execution).await, FREE);
    assert!(scene.lock("k").await.fencing_token > Some(dead.fencing_token()));
}

#[tokio::test]
async fn the_role_of_the_template_is_used_in_full_and_its_keys_are_enforced() {
    let Some(scene) = scene().await else { return };
    let held = scene.locks().acquire("orders/1").lease(PATIENCE).try_once().await.unwrap().granted().unwrap();
    let execution = scene.engine.execute("waits", &machine(), &json!({ "key": "orders/1" })).await.unwrap();
    scene.until_in(&execution, "WaitForHolder").await;
    held.release().await.unwrap();
    assert_eq!(scene.engine.until_end(&execution, PATIENCE).await.unwrap().status, "SUCCEEDED");
    assert_eq!(scene.sample.proxy.used(ENGINE), template().unwrap().state_machines[MACHINE]);

    let confined = Expansion::expand_with(&["SampleWithoutLockTask=true", "LockKeyPrefix=orders/"]).unwrap().unwrap();
    scene.sample.proxy.allow(ENGINE, confined.state_machines[MACHINE].clone());
    let mut impatient = document(&options());
    impatient["States"]["Lock"]["Retry"] = json!([]);
    let impatient = Definition::new(impatient);
    for (name, key, expected) in
        [("own", "orders/2", None), ("other", "bills/1", Some("DynamoDB.AccessDeniedException"))]
    {
        let execution = scene.engine.execute(name, &impatient, &json!({ "key": key })).await.unwrap();
        let end = scene.engine.until_end(&execution, PATIENCE).await.unwrap();
        assert_eq!(end.error.as_deref(), expected, "{key}");
    }
}

/// The role of the template is what the command prints, and allows the attributes of a lock record alone.
#[tokio::test]
async fn the_role_of_the_template_is_the_printed_policy_and_its_attributes_are_enforced() {
    let Some(scene) = scene().await else { return };
    let ours = Options { ttl_attribute: Some("expiresAt".to_owned()), ..options() };
    let printed = serde_json::to_value(policy(&ours, &["*".to_owned()]).unwrap()).unwrap();
    let printed: Condition = serde_json::from_value(printed["Statement"][0]["Condition"].clone()).unwrap();
    for grant in &template().unwrap().state_machines[MACHINE] {
        assert_eq!(grant.condition.as_ref(), Some(&printed), "{grant}");
    }

    let denied = Some("DynamoDB.AccessDeniedException");
    for (name, state, field, change, expected) in [
        ("writes-data", "Lock", "UpdateExpression", ("SET ", "SET balance = :one, "), denied),
        ("removes-data", "Lock", "UpdateExpression", (" REMOVE ", " REMOVE balance, "), denied),
        (
            "asks-for-data",
            "Lock",
            "ConditionExpression",
            ("attribute_not_exists(#pk)", "attribute_exists(balance)"),
            denied,
        ),
        ("returns-all", "Lock", "ReturnValues", ("UPDATED_NEW", "ALL_NEW"), denied),
        ("reads-data", "Look", "ProjectionExpression", ("workflow", "workflow, balance"), denied),
        ("reads-all", "Look", "ProjectionExpression", ("", ""), denied),
        ("nothing", "Lock", "ReturnValues", ("UPDATED_NEW", "UPDATED_NEW"), None),
    ] {
        let mut document = document(&options());
        document["StartAt"] = json!(state);
        document["States"][state]["Retry"] = json!([]);
        let arguments = document["States"][state]["Arguments"].as_object_mut().unwrap();
        let text = arguments[field].as_str().unwrap().replacen(change.0, change.1, 1);
        match name {
            "reads-all" => drop(arguments.remove(field)),
            _ => arguments[field] = json!(text),
        }
        let machine = Definition::new(document);
        let execution = scene.engine.execute(name, &machine, &json!({ "key": name })).await.unwrap();
        let end = scene.engine.until_end(&execution, PATIENCE).await.unwrap();
        assert_eq!(end.error.as_deref(), expected, "{name}: {end:?}");
    }
}
