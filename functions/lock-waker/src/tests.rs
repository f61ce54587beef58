//! Who is woken by which changes of the lock table, tested on an embedded DynamoDB and on task tokens. The images are those of
//! rows that the crate has written.

use crate::change::Reader;
use crate::handler::{Deps, handler};
use aws_sdk_dynamodb::types::AttributeValue;
use lambda_lock::{Budget, Lock, LockClient, LockKey, Observation, Sleeper, Tried};
use lambda_lock_functions::test_support::{DynamoDb, TABLE, assert_failure, event};
use lambda_lock_functions::{ConfigError, Failure, Waker};
use lambda_lock_local::TaskTokens;
use lambda_lock_testkit::takes;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::time::{Duration, Instant};

const EXECUTION: &str = "arn:aws:states:eu-central-1:123456789012:execution:orders:7";
const LEASE: Duration = Duration::from_secs(300);

/// A lock table, Step Functions, and the function.
struct Scene {
    server: DynamoDb,
    locks: LockClient,
    tokens: TaskTokens,
    sleepers: Waker,
    deps: Deps,
    sort_key: Option<&'static str>,
}

fn deps(server: &DynamoDb, environment: &[(&str, &str)]) -> Result<Deps, ConfigError> {
    Deps::new(&server.config(environment)?, &|name| Ok(value(environment, name)))
}

fn value(environment: &[(&str, &str)], name: &str) -> Option<String> {
    environment.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
}

impl Scene {
    async fn new() -> Self {
        Self::with(&[], None).await
    }

    async fn with(environment: &[(&str, &str)], sort_key: Option<&'static str>) -> Self {
        let (server, tokens) = (DynamoDb::with_table(environment).await, TaskTokens::start().await.unwrap());
        let environment = [environment, &[("AWS_ENDPOINT_URL_SFN", tokens.endpoint())]].concat();
        let config = server.config(&environment).unwrap();
        let sleepers = Waker::new(&config, &|name| Ok(value(&environment, name))).unwrap();
        let (locks, deps) = (server.locks(&environment), deps(&server, &environment).unwrap());
        Self { server, locks, tokens, sleepers, deps, sort_key }
    }

    async fn held(&self, key: impl Into<LockKey>) -> Lock {
        self.locks.acquire(key).lease(LEASE).try_once().await.unwrap().granted().unwrap()
    }

    /// An execution asks for the lock, is refused, and sleeps with this task token.
    async fn sleeps(&self, key: impl Into<LockKey>, task_token: &str) -> Observation {
        let key = key.into();
        let refused = self.locks.acquire(key.clone()).lease(LEASE).between_calls().try_once().await.unwrap();
        let observation = refused.refused().unwrap().observation.clone();
        self.sleeps_again(key, &observation, task_token).await;
        observation
    }

    async fn sleeps_again(&self, key: impl Into<LockKey>, observation: &Observation, task_token: &str) {
        let item = Waker::item_key(&key.into(), observation.ticket().unwrap()).unwrap();
        self.sleepers.sleep(&item, task_token, Some(EXECUTION)).await.unwrap();
    }

    /// It asks again in its turn.
    async fn asks_again(&self, key: impl Into<LockKey>, observation: Observation) -> Tried<Lock> {
        self.locks.acquire(key).lease(LEASE).between_calls().observation(observation).try_once().await.unwrap()
    }

    async fn row(&self, key: impl Into<LockKey>) -> HashMap<String, AttributeValue> {
        let key = key.into();
        let text = |text: &str| AttributeValue::S(text.to_owned());
        let get = self.server.client().get_item().table_name(TABLE).key("key", text(key.key()));
        let sort_key = self.sort_key.zip(key.sort_key());
        let get = sort_key.into_iter().fold(get, |get, (name, value)| get.key(name, text(value)));
        get.consistent_read(true).send().await.unwrap().item.unwrap()
    }

    /// The record that the stream has of the last change of this row.
    async fn change(&self, key: impl Into<LockKey>) -> Value {
        let row = self.row(key).await;
        let names = ["key"].into_iter().chain(self.sort_key);
        record(names.map(|name| (name.to_owned(), json_of(&row[name]))).collect(), Some(image(&row)))
    }

    /// Releases the lock without waking anybody, as a program does that uses the crate. Returns the change.
    async fn releases(&self, lock: Lock) -> Value {
        let key = lock.key().clone();
        lock.release().await.unwrap();
        self.change(key).await
    }

    /// Gives a batch to the function. Returns for how many locks somebody was to be woken.
    async fn batch(&self, records: &[&Value]) -> u64 {
        let answer = handler(event(&json!({ "Records": records }), 30.0), &self.deps).await;
        answer.unwrap()["locks"].as_u64().unwrap()
    }

    async fn has_item(&self, key: &str) -> bool {
        self.server.row(key).await.is_some()
    }
}

/// A record in the form that AWS documents.
fn record(keys: Value, image: Option<Value>) -> Value {
    let event: Value = serde_json::from_str(include_str!("../tests/events/stream.json")).unwrap();
    let mut record = event["Records"][0].clone();
    let change = record["dynamodb"].as_object_mut().unwrap();
    change.insert("Keys".to_owned(), keys);
    change.remove("NewImage");
    change.extend(image.map(|image| ("NewImage".to_owned(), image)));
    record
}

fn image(row: &HashMap<String, AttributeValue>) -> Value {
    row.iter().map(|(name, value)| (name.clone(), json_of(value))).collect()
}

fn json_of(value: &AttributeValue) -> Value {
    match value {
        AttributeValue::S(text) => json!({ "S": text }),
        AttributeValue::N(number) => json!({ "N": number }),
        AttributeValue::B(_) => json!({ "B": "cGF5bG9hZA==" }),
        AttributeValue::Ns(numbers) => json!({ "NS": numbers }),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn whoever_is_next_is_woken_when_a_program_that_wakes_nobody_releases_the_lock() {
    let scene = Scene::new().await;
    let lock = scene.held("a").await;
    let mut observations = Vec::new();
    for n in 1..=3 {
        observations.push(scene.sleeps("a", &format!("token {n}")).await);
    }
    let mut change = scene.releases(lock).await;
    for (n, observation) in (1..=3).zip(observations) {
        assert_eq!(scene.batch(&[&change]).await, 1);
        assert_eq!(scene.tokens.take_woken(), [format!("token {n}")], "only the next one");
        let lock = scene.asks_again("a", observation).await.granted().unwrap();
        change = scene.releases(lock).await;
    }
    assert_eq!(scene.batch(&[&change]).await, 0, "nobody sleeps any more");
}

/// Additional attributes and a payload make no difference, and a row is read as the documented event has it.
#[tokio::test]
async fn the_event_in_the_documented_form_and_rows_with_all_that_a_row_can_have_are_read() {
    let scene = Scene::with(&[("LOCK_TTL_ATTRIBUTE", "expiresAt")], None).await;
    let acquire =
        scene.locks.acquire("a").lease(LEASE).data("payload").attribute("step", 7).workflow(EXECUTION).try_once();
    let lock = acquire.await.unwrap().granted().unwrap();
    scene.sleeps("a", "mine").await;
    let change = scene.releases(lock).await;
    assert!(["data", "step", "expiresAt"].iter().all(|name| change["dynamodb"]["NewImage"].get(name).is_some()));
    assert_eq!(scene.batch(&[&change]).await, 1);
    assert_eq!(scene.tokens.take_woken(), ["mine"]);

    let documented: Value = serde_json::from_str(include_str!("../tests/events/stream.json")).unwrap();
    let held = scene.held("customer-7").await;
    scene.sleeps("customer-7", "documented").await;
    assert_eq!(handler(event(&documented, 30.0), &scene.deps).await.unwrap(), json!({ "locks": 1 }));
    assert_eq!(scene.tokens.take_woken(), ["documented"]);
    drop(held.save());
}

#[tokio::test]
async fn a_batch_that_comes_twice_or_in_another_order_wakes_each_only_once() {
    let scene = Scene::new().await;
    let lock = scene.held("a").await;
    let first = scene.sleeps("a", "first").await;
    scene.sleeps("a", "second").await;
    let earlier = scene.releases(lock).await;

    assert_eq!(scene.batch(&[&earlier, &earlier]).await, 2);
    assert_eq!(scene.batch(&[&earlier]).await, 1);
    assert_eq!(scene.tokens.take_woken(), ["first"]);
    assert!(scene.has_item("wake/a/2").await, "it is not the second one's turn");

    let lock = scene.asks_again("a", first).await.granted().unwrap();
    let later = scene.releases(lock).await;
    scene.batch(&[&later, &earlier]).await;
    scene.batch(&[&earlier, &later]).await;
    assert_eq!(scene.tokens.take_woken(), ["second"]);
}

/// Another caller was granted the lock before the stream was read.
#[tokio::test]
async fn who_is_woken_too_early_sleeps_again_and_is_woken_by_the_later_release() {
    let scene = Scene::new().await;
    let lock = scene.held("a").await;
    let observation = scene.sleeps("a", "early").await;
    let earlier = scene.releases(lock).await;
    let passing = scene.locks.acquire("a").lease(LEASE).out_of_turn().try_once().await.unwrap().granted().unwrap();

    scene.batch(&[&earlier]).await;
    assert_eq!(scene.tokens.take_woken(), ["early"]);
    let refused = scene.asks_again("a", observation).await;
    let observation = refused.refused().unwrap().observation.clone();
    assert_eq!(observation.ticket(), Some(1), "it keeps its place");
    scene.sleeps_again("a", &observation, "again").await;

    let later = scene.releases(passing).await;
    scene.batch(&[&earlier, &later]).await;
    assert_eq!(scene.tokens.take_woken(), ["again"]);
    assert!(scene.asks_again("a", observation).await.granted().is_some());
}

/// A Java or Go client keeps attributes that it does not know, or not. What they say of the line means nothing.
#[tokio::test]
async fn the_row_of_another_client_wakes_nobody() {
    let scene = Scene::new().await;
    let lock = scene.held("a").await;
    scene.sleeps("a", "mine").await;
    scene.releases(lock).await;
    let version = AttributeValue::S("5f3a1c0e-7a44-4d0f-9d7e-3f8e8b1f9c55".to_owned());
    scene.server.set(TABLE, ("key", "a"), ("recordVersionNumber", version)).await;

    assert_eq!(scene.batch(&[&scene.change("a").await]).await, 0);
    assert_eq!(scene.tokens.take_woken(), [""; 0]);
    assert!(scene.has_item("wake/a/1").await);
}

#[tokio::test]
async fn what_shows_no_free_lock_with_a_sleeper_wakes_nobody() {
    let scene = Scene::new().await;
    let lock = scene.held("a").await;
    scene.sleeps("a", "mine").await;
    let held = scene.change("a").await;
    let item = scene.change("wake/a/1").await;
    let without_line = scene.held("b").await;
    let without_line = scene.releases(without_line).await;
    let released = scene.releases(lock).await;
    let of = |key: &str, image: &Value| record(json!({ "key": { "S": key } }), Some(image.clone()));
    let row = &released["dynamodb"]["NewImage"];
    let deleted = record(json!({ "key": { "S": "a" } }), None);

    let batch = [&held, &item, &without_line, &deleted, &of("wake/a", row), &of("once/a", row)];
    assert_eq!(scene.batch(&batch).await, 0);
    assert_eq!(scene.tokens.take_woken(), [""; 0]);
    assert_eq!(scene.batch(&[&released]).await, 1, "the row itself does");
}

#[tokio::test]
async fn nobody_is_woken_for_a_frozen_lock_before_its_thaw() {
    let scene = Scene::new().await;
    let lock = scene.held("a").await;
    scene.sleeps("a", "mine").await;
    scene.locks.operator().freeze("a", "a deployment").await.unwrap();
    let frozen = scene.releases(lock).await;
    assert_eq!(scene.batch(&[&frozen]).await, 0);

    scene.locks.operator().thaw("a").await.unwrap();
    assert_eq!(scene.batch(&[&scene.change("a").await]).await, 1);
    assert_eq!(scene.tokens.take_woken(), ["mine"]);
}

/// What cannot be read, and what the failure says.
fn malformed(good: &Value) -> Vec<(Value, &'static str)> {
    let with = |path: &str, value: Value| {
        let mut record = good.clone();
        *record.pointer_mut(path).unwrap() = value;
        record
    };
    vec![
        (json!(7), "no key of the lock table (key)"),
        (json!({}), "no key of the lock table (key)"),
        (with("/dynamodb/Keys", json!({ "id": { "S": "a" } })), "no key of the lock table (key)"),
        (with("/dynamodb/Keys/key", json!({ "N": "7" })), "no key of the lock table (key)"),
        (with("/dynamodb/NewImage", json!([])), "no JSON of DynamoDB"),
        (with("/dynamodb/NewImage/ownerName", json!("me")), "no JSON of DynamoDB"),
        (with("/dynamodb/NewImage/ownerName", json!({})), "no JSON of DynamoDB"),
        (with("/dynamodb/NewImage/lastTicket", json!({ "N": 7 })), "no JSON of DynamoDB"),
        (with("/dynamodb/NewImage/lastTicket", json!({ "S": "7" })), "lastTicket"),
        (with("/dynamodb/NewImage/lastTicket", json!({ "N": "-1" })), "lastTicket"),
        (with("/dynamodb/NewImage/leaseDuration", json!({ "L": [] })), "leaseDuration"),
    ]
}

#[tokio::test]
async fn a_record_that_cannot_be_read_does_not_keep_the_others_from_being_read() {
    let scene = Scene::new().await;
    let lock = scene.held("a").await;
    scene.sleeps("a", "mine").await;
    let good = scene.releases(lock).await;
    let malformed = malformed(&good);
    let reader = Reader::new(&scene.server.config(&[]).unwrap(), String::new());
    for (record, says) in &malformed {
        assert_failure(reader.next(record), "InvalidRecord", says);
    }
    let batch: Vec<_> = malformed.iter().map(|(record, _)| record).chain([&good]).chain([&Value::Null]).collect();
    assert_eq!(scene.batch(&batch).await, 1);
    assert_eq!(scene.tokens.take_woken(), ["mine"]);
}

/// Another stack has the other prefix, and the role allows no other wake items.
#[tokio::test]
async fn with_a_prefix_of_its_own_locks_of_others_are_left_alone() {
    let scene = Scene::with(&[("LOCK_KEY_PREFIX", "orders/")], None).await;
    let mut changes = Vec::new();
    for key in ["orders/a", "billing/a", "orders", "a"] {
        let lock = scene.held(key).await;
        scene.sleeps(key, key).await;
        changes.push(scene.releases(lock).await);
    }
    assert_eq!(scene.batch(&changes.iter().collect::<Vec<_>>()).await, 1);
    assert_eq!(scene.tokens.take_woken(), ["orders/a"]);
    assert!(scene.has_item("wake/billing/a/1").await);
}

#[tokio::test]
async fn a_prefix_that_cannot_be_used_stops_the_start_by_its_name() {
    let server = DynamoDb::empty().await;
    for value in ["orders", "once/"] {
        let error = deps(&server, &[("LOCK_KEY_PREFIX", value)]).err().unwrap().to_string();
        assert!(error.starts_with("LOCK_KEY_PREFIX "), "{error}");
    }
    assert!(deps(&server, &[("LOCK_KEY_PREFIX", "")]).is_ok());
}

#[tokio::test]
async fn a_table_with_a_sort_key_works_too() {
    let scene = Scene::with(&[("LOCK_SORT_KEY_ATTRIBUTE", "sk")], Some("sk")).await;
    for part in ["invoice-1", "invoice-2"] {
        let lock = scene.held(("customer-7", part)).await;
        scene.sleeps(("customer-7", part), part).await;
        let change = scene.releases(lock).await;
        assert_eq!(scene.batch(&[&change]).await, 1);
        assert_eq!(scene.tokens.take_woken(), [part]);
        let mut without = change;
        without["dynamodb"]["Keys"].as_object_mut().unwrap().remove("sk");
        assert_eq!(scene.batch(&[&without]).await, 0, "that is no key of this table");
    }
}

#[tokio::test]
async fn all_locks_of_a_large_batch_are_looked_after() {
    let scene = Scene::new().await;
    let mut changes = Vec::new();
    let keys: Vec<_> = (10..40).map(|n| format!("lock-{n}")).collect();
    for key in &keys {
        let lock = scene.held(key.as_str()).await;
        scene.sleeps(key.as_str(), key).await;
        changes.push(scene.releases(lock).await);
    }
    assert_eq!(scene.batch(&changes.iter().collect::<Vec<_>>()).await, 30);
    let mut woken = scene.tokens.take_woken();
    woken.sort();
    assert_eq!(woken, keys);
}

/// Who was not woken looks when its state times out, so nothing is to be gained by the same batch again.
#[tokio::test]
async fn a_batch_succeeds_although_nobody_can_be_woken() {
    for code in ["AccessDeniedException", "ThrottlingException"] {
        let scene = Scene::new().await;
        let lock = scene.held("a").await;
        scene.sleeps("a", "mine").await;
        scene.tokens.refuse(code);
        let change = scene.releases(lock).await;
        assert_eq!(scene.batch(&[&change]).await, 1, "{code}");
    }
    let scene = Scene::new().await;
    let lock = scene.held("a").await;
    scene.sleeps("a", "mine").await;
    let change = scene.releases(lock).await;
    scene.server.drop_table(TABLE).await;
    assert_eq!(scene.batch(&[&change]).await, 1, "without the table");
}

#[tokio::test]
#[expect(clippy::disallowed_methods, reason = "how long it takes is the promise")]
async fn a_dynamodb_that_does_not_respond_does_not_hold_up_the_batch_beyond_the_deadline() {
    takes(Duration::from_millis(300)..Duration::from_millis(1000), async || {
        let scene = Scene::new().await;
        let lock = scene.held("a").await;
        scene.sleeps("a", "mine").await;
        let change = scene.releases(lock).await;
        // Nobody accepts its connections.
        let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let endpoint = format!("http://{}", silent.local_addr().unwrap());
        let deps = deps(&scene.server, &[("AWS_ENDPOINT_URL_DYNAMODB", &endpoint)]).unwrap();
        let started = Instant::now();
        let answer = handler(event(&json!({ "Records": [change, Value::Null] }), 1.5), &deps).await;
        assert_eq!(answer.unwrap(), json!({ "locks": 1 }));
        started.elapsed()
    })
    .await;
}

#[tokio::test]
async fn what_is_no_event_of_a_stream_is_refused() {
    let server = DynamoDb::empty().await;
    let deps = deps(&server, &[]).unwrap();
    let ask = async |payload: Value| -> Result<Value, Failure> { handler(event(&payload, 30.0), &deps).await };
    for payload in [json!({}), json!({ "Records": {} }), json!({ "Records": null })] {
        assert_failure(ask(payload).await, "InvalidRequest", "Records is malformed");
    }
    assert_failure(ask(json!([])).await, "InvalidRequest", "the event is no JSON object");
    assert_eq!(ask(json!({ "Records": [] })).await.unwrap(), json!({ "locks": 0 }));
}

/// The release of the crate and the change in the stream name the same ticket: the first one that was not given up.
#[tokio::test]
async fn the_stream_tells_the_same_as_the_release() {
    let scene = Scene::new().await;
    let reader = Reader::new(&scene.server.config(&[]).unwrap(), String::new());
    let lock = scene.held("a").await;
    let gives_up = Budget::lasting(Duration::from_millis(1_100)).reserve(Duration::ZERO);
    assert!(scene.locks.acquire("a").within(&gives_up).in_turn().await.unwrap_err().is_held());
    for n in 1..=2 {
        scene.sleeps("a", &format!("token {n}")).await;
    }
    let (_, told) = lock.release().with_sleeper().await.unwrap();
    let Sleeper { key, ticket, last, .. } = told.unwrap();
    assert_eq!(ticket..=last, 2..=3);
    let change = scene.change("a").await;
    let next = reader.next(&change).unwrap().unwrap();
    assert_eq!((next.lock, next.tickets), (key, ticket..=last));
    assert_eq!(scene.batch(&[&change]).await, 1);
    assert_eq!(scene.tokens.take_woken(), ["token 1"]);
}

#[tokio::test]
async fn behind_an_execution_that_has_ended_and_a_caller_that_has_given_up_the_next_one_is_woken() {
    let scene = Scene::new().await;
    let lock = scene.held("a").await;
    scene.sleeps("a", "ended").await;
    let gives_up = Budget::lasting(Duration::from_millis(1_100)).reserve(Duration::ZERO);
    assert!(scene.locks.acquire("a").within(&gives_up).in_turn().await.unwrap_err().is_held());
    scene.sleeps("a", "next").await;
    scene.tokens.close("ended");
    let change = scene.releases(lock).await;
    assert_eq!(scene.batch(&[&change]).await, 1);
    assert_eq!(scene.tokens.take_woken(), ["next"]);
}
