//! Tests of the authorising proxy in front of the embedded DynamoDB, with the SDK and the lock.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that cannot go on fails")]
#![allow(clippy::disallowed_methods, reason = "the tests read the clock")]

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::config::retry::RetryConfig;
use aws_sdk_dynamodb::config::timeout::TimeoutConfig;
use aws_sdk_dynamodb::config::{Credentials, Region};
use aws_sdk_dynamodb::error::ProvideErrorMetadata;
use aws_sdk_dynamodb::primitives::{DateTime, DateTimeFormat};
use aws_sdk_dynamodb::types::{AttributeValue, Put, TransactWriteItem, Update};
use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::routing::post;
use http_body_util::{BodyExt, Full};
use hyper::Request;
use hyper::body::Bytes;
use hyper_util::client::legacy::Client as HttpClient;
use hyper_util::rt::TokioExecutor;
use lambda_lock::once::Started;
use lambda_lock::{Budget, Error, ErrorKind, Lock, LockClient};
use lambda_lock_local::authorize::{AuthorizingProxy, Fate, Grant, Role, task_token};
use lambda_lock_local::{LocalDynamoDb, client, config};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};
use tokio::net::TcpListener;

fn on(table: &str, action: &str) -> Grant {
    Grant::new(format!("dynamodb:{action}"), format!("arn:aws:dynamodb:eu-central-1:123456789012:table/{table}"))
}

/// Starts the embedded server with a lock table, and a proxy in front of it that knows one caller.
async fn proxy(allows: &[Grant]) -> (LocalDynamoDb, AuthorizingProxy) {
    let dynamodb = LocalDynamoDb::in_memory().await.unwrap();
    LockClient::builder(client(dynamodb.endpoint()), "locks").build().unwrap().operator().create_table().await.unwrap();
    let roles = BTreeMap::from([("a-function".to_owned(), allows.iter().cloned().collect::<Role>())]);
    let proxy = AuthorizingProxy::start(dynamodb.endpoint(), roles).await.unwrap();
    (dynamodb, proxy)
}

fn through(proxy: &AuthorizingProxy, caller: &str) -> Client {
    let credentials = Credentials::new(caller, "secret", None, None, "test");
    let config = config(proxy.endpoint()).region(Region::new("eu-central-1")).credentials_provider(credentials);
    Client::from_conf(config.build())
}

fn locks(proxy: &AuthorizingProxy) -> LockClient {
    LockClient::builder(through(proxy, "a-function"), "locks").build().unwrap()
}

#[tokio::test]
async fn a_permitted_request_works_and_is_recorded() {
    let (_dynamodb, proxy) = proxy(&[on("locks", "UpdateItem"), on("locks", "GetItem")]).await;
    let locks = locks(&proxy);
    assert!(proxy.used("a-function").is_empty());
    let lock = locks.acquire("k").lease(Duration::from_secs(9)).try_once().await.unwrap().granted().unwrap();
    lock.release().await.unwrap();
    assert_eq!(proxy.used("a-function"), Role::from([on("locks", "UpdateItem")]));
    locks.operator().peek("k").await.unwrap();
    assert_eq!(proxy.used("a-function"), Role::from([on("locks", "UpdateItem"), on("locks", "GetItem")]));
    assert!(proxy.used("another").is_empty());
}

#[tokio::test]
async fn a_request_that_is_not_permitted_is_denied_by_name_and_not_applied() {
    let (dynamodb, proxy) = proxy(&[on("locks", "GetItem"), on("orders", "UpdateItem")]).await;
    let error = locks(&proxy).acquire("k").lease(Duration::from_secs(9)).try_once().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
    let said = format!("{error}");
    let expected = "assumed-role/a-function/a-function is not authorized to perform: dynamodb:UpdateItem on resource: \
                    arn:aws:dynamodb:eu-central-1:123456789012:table/locks";
    let detail = through(&proxy, "a-function").update_item().table_name("locks").send().await.unwrap_err();
    assert_eq!(detail.code(), Some("AccessDeniedException"));
    assert!(detail.message().unwrap().contains(expected), "{detail:?}; the lock said {said}");
    assert!(proxy.used("a-function").is_empty());
    let items = client(dynamodb.endpoint()).scan().table_name("locks").send().await.unwrap();
    assert_eq!(items.count, 0);
}

#[tokio::test]
async fn a_transaction_is_denied_when_one_item_is() {
    let (_dynamodb, proxy) = proxy(&[on("locks", "UpdateItem")]).await;
    let update = Update::builder()
        .table_name("locks")
        .key("key", AttributeValue::S("k".into()))
        .update_expression("SET a = :a")
        .expression_attribute_values(":a", AttributeValue::S("a".into()))
        .build()
        .unwrap();
    let put = Put::builder().table_name("locks").item("key", AttributeValue::S("l".into())).build().unwrap();
    let client = through(&proxy, "a-function");
    let both = client
        .transact_write_items()
        .transact_items(TransactWriteItem::builder().update(update.clone()).build())
        .transact_items(TransactWriteItem::builder().put(put).build());
    let error = both.send().await.unwrap_err();
    assert_eq!(error.code(), Some("AccessDeniedException"));
    assert!(error.message().unwrap().contains("dynamodb:PutItem"), "{error:?}");
    let one = client.transact_write_items().transact_items(TransactWriteItem::builder().update(update).build());
    one.send().await.unwrap();
}

#[tokio::test]
async fn a_caller_without_a_role_is_not_recognised() {
    let (_dynamodb, proxy) = proxy(&[on("locks", "GetItem")]).await;
    let get = through(&proxy, "a-stranger").get_item().table_name("locks").key("key", AttributeValue::S("k".into()));
    assert_eq!(get.send().await.unwrap_err().code(), Some("UnrecognizedClientException"));
}

#[tokio::test]
async fn an_answer_can_be_late_or_lost_or_never_come() {
    let (_dynamodb, proxy) = proxy(&[on("locks", "UpdateItem"), on("locks", "GetItem")]).await;
    let locks = LockClient::builder(through(&proxy, "a-function"), "locks");
    let locks = locks.request_timeout(Duration::from_millis(400)).build().unwrap();
    let lease = Duration::from_secs(9);

    let calls = AtomicU32::new(0);
    proxy.decide(move |_| if calls.fetch_add(1, Ordering::SeqCst) == 0 { Fate::AnswerLost } else { Fate::Answered });
    locks.acquire("lost").lease(lease).try_once().await.unwrap().granted().unwrap().release().await.unwrap();

    let delay = Duration::from_millis(100);
    proxy.decide(move |_| Fate::AnsweredAfter(delay));
    let started = Instant::now();
    locks.acquire("late").lease(lease).try_once().await.unwrap().granted().unwrap().release().await.unwrap();
    assert!(started.elapsed() >= 2 * delay, "{:?}", started.elapsed());

    proxy.decide(|_| Fate::Swallowed);
    let error = locks.acquire("swallowed").lease(lease).try_once().await.unwrap_err();
    assert!(error.is_unknown(), "{error}");
    proxy.decide(|_| Fate::Answered);
    assert!(locks.operator().peek("swallowed").await.unwrap().is_none());
}

#[tokio::test]
async fn a_request_can_be_lost_or_applied_after_its_caller_has_given_up() {
    let (dynamodb, proxy) = proxy(&[on("locks", "UpdateItem"), on("locks", "GetItem")]).await;
    let once = RetryConfig::disabled();
    let update = async |key: &str| {
        let update = through(&proxy, "a-function").update_item().table_name("locks");
        let update = update.key("key", AttributeValue::S(key.to_owned())).customize();
        let timeout = TimeoutConfig::builder().operation_timeout(Duration::from_millis(100)).build();
        let patience = aws_sdk_dynamodb::Config::builder().timeout_config(timeout).retry_config(once.clone());
        update.config_override(patience).send().await.is_ok()
    };
    let is_there = async |key: &str| {
        let get = client(dynamodb.endpoint()).get_item().table_name("locks");
        get.key("key", AttributeValue::S(key.to_owned())).send().await.unwrap().item.is_some()
    };
    proxy.decide(|_| Fate::RequestLost);
    assert!(!update("lost").await);
    proxy.decide(|_| Fate::AppliedLate(Duration::from_millis(300)));
    assert!(!update("late").await);
    assert_eq!((is_there("lost").await, is_there("late").await), (false, false));
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!((is_there("lost").await, is_there("late").await), (false, true));
}

const LEASE: Duration = Duration::from_secs(20);

/// The role of docs/tenants.md in a session with this tag, with the actions that not every caller needs.
fn role_of(tenant: &str) -> Role {
    let page = include_str!("../../../docs/tenants.md");
    let (_, policy) = page.split_once("```json\n").unwrap();
    let (policy, _) = policy.split_once("\n```").unwrap();
    let policy = policy.replace("REGION", "eu-central-1").replace("ACCOUNT", "123456789012");
    let mut statement: Value = serde_json::from_str(&policy.replace("${aws:PrincipalTag/tenant}", tenant)).unwrap();
    // The tag is there: it was put in above.
    let tag = statement["Condition"]["Null"].as_object_mut().unwrap().remove("aws:PrincipalTag/tenant");
    assert_eq!(tag, Some(json!("false")));
    statement["Action"].as_array_mut().unwrap().extend(
        ["ConditionCheckItem", "DeleteItem", "Query", "Scan"].map(|action| json!(format!("dynamodb:{action}"))),
    );
    let grant = |action: &Value| {
        let grant = json!({"action": action, "resource": statement["Resource"], "condition": statement["Condition"]});
        serde_json::from_value(grant).unwrap()
    };
    statement["Action"].as_array().unwrap().iter().map(grant).collect()
}

/// The lock table and a proxy in front of it, whose caller is in a session of this tenant.
async fn session_of(tenant: &str) -> (LocalDynamoDb, AuthorizingProxy) {
    let (dynamodb, proxy) = proxy(&[]).await;
    proxy.allow("a-function", role_of(tenant));
    (dynamodb, proxy)
}

async fn held(locks: &LockClient, key: &str) -> Lock {
    locks.acquire(key).lease(LEASE).workflow("arn:1").try_once().await.unwrap().granted().unwrap()
}

async fn rows(dynamodb: &LocalDynamoDb) -> Vec<String> {
    let scanned = client(dynamodb.endpoint()).scan().table_name("locks").send().await.unwrap();
    let mut rows: Vec<_> = scanned.items().iter().map(|item| format!("{:?}", BTreeMap::from_iter(item))).collect();
    rows.sort();
    rows
}

fn put(key: &str) -> TransactWriteItem {
    let update = Update::builder()
        .table_name("locks")
        .key("key", AttributeValue::S(key.to_owned()))
        .update_expression("SET a = :a")
        .expression_attribute_values(":a", AttributeValue::S("a".into()));
    TransactWriteItem::builder().update(update.build().unwrap()).build()
}

#[tokio::test]
async fn a_client_of_one_tenant_is_refused_at_every_operation_on_another_s_row() {
    let (dynamodb, proxy) = session_of("red").await;
    let red = locks(&proxy).prefixed("red/").unwrap();
    let mut lock = held(&red, "k").await;
    let saved = held(&red, "saved").await.save();
    let [released, committed] = [held(&red, "a").await, held(&red, "c").await];
    let Started::Attempt(attempt) = red.once("work").lease(LEASE).start::<u8>().await.unwrap() else { panic!() };
    let before = rows(&dynamodb).await;
    let budget = Budget::lasting(Duration::from_secs(5));

    proxy.allow("a-function", role_of("blue"));
    let refused: Vec<(&str, Result<(), Error>)> = vec![
        ("acquire", red.acquire("k").within(&budget).await.map(drop)),
        ("acquire of what is free", red.acquire("free").within(&budget).await.map(drop)),
        ("try_acquire", red.acquire("k").lease(LEASE).try_once().await.map(drop)),
        ("with_lock", red.with_lock("free", &budget, async |_| Ok(())).await),
        ("resume", red.resume(saved.clone()).await.map(drop)),
        ("reclaim", red.reclaim(saved.clone()).lease(LEASE).await.map(drop)),
        ("release of a saved lock", red.release(saved.clone()).await.map(drop)),
        ("release_workflow", red.release_workflow("k", "arn:1").await.map(drop)),
        ("peek", red.operator().peek("k").await.map(drop)),
        ("once", red.once("other work").lease(LEASE).start::<u8>().await.map(drop)),
        ("status", red.once("work").status().await.map(drop)),
        ("complete", attempt.complete(&1).await),
        ("checkpoint", lock.checkpoint().await),
        ("commit", lock.commit([put("blue/order")]).await),
        ("commit_and_release", committed.commit_and_release([put("blue/order")]).await),
        ("release", released.release().await.map(drop)),
    ];

    for (operation, refused) in refused {
        let error = refused.expect_err(operation);
        assert_eq!(error.kind(), ErrorKind::Denied, "{operation}: {error}");
    }
    let fenced = through(&proxy, "a-function").transact_write_items().transact_items(put("blue/order"));
    let fenced = fenced.transact_items(red.condition_check(&saved).unwrap()).send().await.unwrap_err();
    assert_eq!(fenced.code(), Some("AccessDeniedException"), "condition_check");
    assert_eq!(rows(&dynamodb).await, before, "nothing was written");
    let _ = lock.save();
}

#[tokio::test]
async fn a_client_of_a_tenant_can_do_everything_on_its_own_rows_and_commits_nothing_to_another_s() {
    let (dynamodb, proxy) = session_of("blue").await;
    let blue = locks(&proxy).prefixed("blue/").unwrap();

    let mut lock = held(&blue, "k").await;
    lock.commit([put("blue/order")]).await.unwrap();
    let before = rows(&dynamodb).await;
    let refused = lock.commit([put("blue/order"), put("red/order")]).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Denied, "{refused}");
    assert_eq!(rows(&dynamodb).await, before);
    lock.checkpoint().await.unwrap();
    lock.release().await.unwrap();
    let outcome = blue.once("work").lease(LEASE).run(async |_| Ok::<_, Error>(7)).await.unwrap();
    assert_eq!(outcome.into_result(), 7);
    assert!(blue.operator().peek("k").await.unwrap().unwrap().released);

    let used = proxy.used("a-function");
    assert!(used.is_subset(&role_of("blue")), "with the condition under which it was allowed: {used:?}");
}

#[tokio::test]
async fn a_request_without_a_partition_key_is_refused_under_a_condition_on_it() {
    let (_dynamodb, proxy) = session_of("blue").await;
    let client = through(&proxy, "a-function");

    let scan = client.scan().table_name("locks").send().await.unwrap_err();
    assert_eq!(scan.code(), Some("AccessDeniedException"));

    // What its keys are is not read here, so that nobody takes it for allowed.
    let query = client.query().table_name("locks").key_condition_expression("#k = :k");
    let query = query.expression_attribute_names("#k", "key");
    let query = query.expression_attribute_values(":k", AttributeValue::S("blue/k".into())).send().await.unwrap_err();
    assert_eq!(query.code(), Some("ValidationException"));
}

#[tokio::test]
async fn the_partition_key_is_that_of_the_table_and_the_sort_key_does_not_count() {
    let (dynamodb, proxy) = proxy(&[]).await;
    let builder = |client| LockClient::builder(client, "pairs").key_attribute("pk").sort_key_attribute("sk");
    builder(client(dynamodb.endpoint())).build().unwrap().operator().create_table().await.unwrap();
    let pairs = |grant: Grant| Grant { resource: grant.resource.replace("/locks", "/pairs"), ..grant };
    proxy.allow("a-function", role_of("blue").into_iter().map(pairs).collect());
    let locks = builder(through(&proxy, "a-function")).build().unwrap();

    let refused = locks.acquire(("red/k", "blue/k")).lease(LEASE).try_once().await.map(drop).unwrap_err();
    let granted = locks.acquire(("blue/k", "red/k")).lease(LEASE).try_once().await.unwrap().granted().unwrap();

    assert_eq!(refused.kind(), ErrorKind::Denied, "{refused}");
    granted.release().await.unwrap();
}

#[tokio::test]
async fn a_condition_on_the_partition_key_is_about_the_item_of_a_put_and_the_key_of_a_delete() {
    let (_dynamodb, proxy) = proxy(&[]).await;
    let condition = json!({
        "ForAllValues:StringLike": { "dynamodb:LeadingKeys": "wake/*" }, "Null": { "dynamodb:LeadingKeys": "false" },
    });
    let condition = Some(serde_json::from_value(condition).unwrap());
    let grants = ["PutItem", "DeleteItem"].map(|action| Grant { condition: condition.clone(), ..on("locks", action) });
    proxy.allow("a-function", Role::from(grants.clone()));
    let seen = Arc::new(Mutex::new(Vec::new()));
    let sees = Arc::clone(&seen);
    proxy.decide(move |call| {
        sees.lock().unwrap().extend(call.needs[0].keys("key").map(str::to_owned));
        Fate::Answered
    });
    let client = through(&proxy, "a-function");
    let key = |text: &str| AttributeValue::S(text.to_owned());

    for (text, permitted) in [("wake/k", true), ("k", false)] {
        let put = client.put_item().table_name("locks").item("key", key(text)).send().await;
        let delete = client.delete_item().table_name("locks").key("key", key(text)).send().await;
        let denied = [
            put.err().map(|error| error.code().map(str::to_owned)),
            delete.err().map(|error| error.code().map(str::to_owned)),
        ];
        let expected = if permitted { None } else { Some(Some("AccessDeniedException".to_owned())) };
        assert_eq!(denied, [expected.clone(), expected], "{text}");
    }

    assert_eq!(proxy.used("a-function"), Role::from(grants));
    assert_eq!(*seen.lock().unwrap(), ["wake/k", "wake/k"]);
}

/// What a Step Functions has got.
type Got = Arc<Mutex<Vec<Value>>>;

/// A Step Functions that takes everything.
async fn states() -> (String, Got) {
    let got = Got::default();
    let take = async |State(got): State<Got>, headers: HeaderMap, body: Bytes| {
        assert_eq!(headers["x-amz-target"], "AWSStepFunctions.SendTaskSuccess");
        got.lock().unwrap().push(serde_json::from_slice(&body).unwrap());
        "{}"
    };
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    let routes = Router::new().route("/", post(take)).with_state(Arc::clone(&got));
    tokio::spawn(async move { axum::serve(listener, routes).await });
    (endpoint, got)
}

/// Sends SendTaskSuccess with this token, and returns the status and the body, or nothing if there is no response.
async fn succeed(proxy: &AuthorizingProxy, token: &str) -> Option<(StatusCode, String)> {
    let now = DateTime::from(SystemTime::now()).fmt(DateTimeFormat::DateTime).unwrap();
    let date = format!("{}Z", now[..19].replace(['-', ':'], ""));
    let scope = "a-function/20260701/eu-central-1/states/aws4_request";
    let request = Request::post(proxy.endpoint())
        .header("content-type", "application/x-amz-json-1.0")
        .header("x-amz-target", "AWSStepFunctions.SendTaskSuccess")
        .header("x-amz-date", date)
        .header("authorization", format!("AWS4-HMAC-SHA256 Credential={scope}, SignedHeaders=host, Signature=00"))
        .body(Full::new(Bytes::from(json!({ "taskToken": token, "output": "{}" }).to_string())))
        .unwrap();
    let response = HttpClient::builder(TokioExecutor::new()).build_http().request(request).await.ok()?;
    let (head, body) = response.into_parts();
    Some((head.status, String::from_utf8(body.collect().await.unwrap().to_bytes().to_vec()).unwrap()))
}

fn on_machine(name: &str) -> Grant {
    let resource = format!("arn:aws:states:eu-central-1:123456789012:stateMachine:{name}");
    Grant::new("states:SendTaskSuccess", resource)
}

#[tokio::test]
async fn an_answer_to_a_task_is_permitted_on_the_state_machines_of_the_role_only() {
    let (endpoint, got) = states().await;
    for (granted, permitted) in
        [("work", true), ("*", true), ("wor*", true), ("wor", false), ("other", false), ("work-2", false)]
    {
        let (_dynamodb, proxy) = proxy(&[on("locks", "GetItem"), on_machine(granted)]).await;
        proxy.forward_states_to(&endpoint).unwrap();
        let token = task_token("work");

        let (status, body) = succeed(&proxy, &token).await.unwrap();

        let got = got.lock().unwrap().split_off(0);
        if permitted {
            assert_eq!((status, &*body), (StatusCode::OK, "{}"), "{granted}");
            assert_eq!(got, [json!({ "taskToken": token, "output": "{}" })], "{granted}");
            assert_eq!(proxy.used("a-function"), Role::from([on_machine(granted)]));
        } else {
            let said = "a-function is not authorized to perform: states:SendTaskSuccess on resource: \
                        arn:aws:states:eu-central-1:123456789012:stateMachine:work because";
            assert!(body.contains("AccessDeniedException") && body.contains(said), "{granted}: {body}");
            assert_eq!((status, got), (StatusCode::BAD_REQUEST, vec![]), "{granted}");
            assert!(proxy.used("a-function").is_empty());
        }
    }
}

#[tokio::test]
async fn an_answer_to_a_task_can_be_lost_before_and_after_step_functions_has_it() {
    let (endpoint, got) = states().await;
    let (_dynamodb, proxy) = proxy(&[on_machine("*")]).await;
    proxy.forward_states_to(&endpoint).unwrap();
    for (fate, arrives) in [(Fate::RequestLost, 0), (Fate::AnswerLost, 1)] {
        proxy.decide(move |call| if call.needs[0].action == "states:SendTaskSuccess" { fate } else { Fate::Answered });

        let answer = succeed(&proxy, &task_token("work")).await;

        assert_eq!((answer, got.lock().unwrap().split_off(0).len()), (None, arrives), "{fate:?}");
    }
}

#[tokio::test]
async fn an_answer_to_a_task_needs_a_token_and_a_step_functions() {
    let (endpoint, got) = states().await;
    let (_dynamodb, proxy) = proxy(&[on_machine("*")]).await;

    let (status, body) = succeed(&proxy, &task_token("work")).await.unwrap();
    assert!(status == StatusCode::BAD_REQUEST && body.contains("where Step Functions is"), "{body}");

    proxy.forward_states_to(&endpoint).unwrap();
    let (status, body) = succeed(&proxy, "no token").await.unwrap();
    assert!(status == StatusCode::BAD_REQUEST && body.contains("InvalidToken"), "{body}");
    assert!(got.lock().unwrap().is_empty());
}
