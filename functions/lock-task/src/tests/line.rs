//! Executions that wait in line: a ticket, a wake item, and a release that wakes whoever is next.

use super::{Function, acquire, deps, with};
use crate::handler::handler;
use lambda_lock_functions::test_support::{assert_failure, event, pause};
use lambda_lock_local::TaskTokens;
use lambda_lock_local::authorize::{AuthorizingProxy, Call, Fate, Grant, Role};
use lambda_lock_testkit::takes;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

const EXECUTION: &str = "arn:aws:states:eu-central-1:123456789012:execution:orders:7";

/// A function, and Step Functions.
struct Scene {
    function: Function,
    tokens: TaskTokens,
}

impl Scene {
    async fn new() -> Self {
        Self::with(&[]).await
    }

    async fn with(environment: &[(&str, &str)]) -> Self {
        let tokens = TaskTokens::start().await.unwrap();
        let environment = [environment, &[("AWS_ENDPOINT_URL_SFN", tokens.endpoint())]].concat();
        Self { function: Function::with(&environment).await, tokens }
    }

    async fn answer(&self, request: Value) -> Value {
        self.function.answer(request).await
    }

    /// The caller asks, is refused, and sleeps with this task token. Returns the report.
    async fn sleeps(&self, owner: &str, task_token: &str) -> Value {
        let report = self.answer(ask(owner)).await;
        assert_eq!(report["acquired"], false, "{report}");
        assert_eq!(self.answer(wait(&report, task_token)).await, json!({ "waits": true }));
        report
    }

    async fn releases(&self, lock: &Value) {
        assert_eq!(self.answer(json!({ "action": "release", "lock": lock })).await, json!({ "released": true }));
    }

    async fn has_item(&self, ticket: u64) -> bool {
        self.function.server.row(&format!("wake/customer-7/{ticket}")).await.is_some()
    }
}

fn ask(owner: &str) -> Value {
    with(acquire(owner), json!({ "whenHeld": "report", "inLine": true, "observation": null, "execution": EXECUTION }))
}

/// Asks again after this many seconds. A caller that was woken has waited for none that it can prove.
fn again(owner: &str, report: &Value, waited: u64) -> Value {
    with(ask(owner), json!({ "observation": report["observation"], "waitedSeconds": waited }))
}

fn wait(report: &Value, task_token: &str) -> Value {
    json!({
        "action": "wait", "key": "customer-7", "observation": report["observation"], "waitedSeconds": 0,
        "taskToken": task_token, "execution": EXECUTION,
    })
}

#[tokio::test]
async fn those_in_line_are_woken_and_granted_the_lock_in_their_order() {
    let scene = Scene::new().await;
    let mut lock = scene.function.lock("holder").await;
    let mut reports = Vec::new();
    for n in 1..=3 {
        reports.push(scene.sleeps(&format!("caller {n}"), &format!("token {n}")).await);
        assert_eq!(reports[n - 1]["observation"]["ticket"], n);
    }
    for n in 1..=3 {
        scene.releases(&lock).await;
        assert_eq!(scene.tokens.take_woken(), [format!("token {n}")], "only the next one");
        if n < 3 {
            let behind = scene.answer(again("caller 3", &reports[2], 0)).await;
            assert_eq!((&behind["acquired"], &behind["observation"]["ticket"]), (&json!(false), &json!(3)), "{behind}");
        }
        let granted = scene.answer(again(&format!("caller {n}"), &reports[n - 1], 0)).await;
        assert_eq!(granted["acquired"], true, "{granted}");
        lock = granted["lock"].clone();
    }
    scene.releases(&lock).await;
    assert_eq!(scene.tokens.take_woken(), [""; 0], "nobody sleeps any more");
    for ticket in 1..=3 {
        assert!(!scene.has_item(ticket).await);
    }
}

#[tokio::test]
async fn who_finds_the_lock_free_when_it_goes_to_sleep_is_woken_at_once() {
    let scene = Scene::new().await;
    let lock = scene.function.lock("holder").await;
    let report = scene.answer(ask("me")).await;
    scene.releases(&lock).await;
    assert_eq!(scene.tokens.take_woken(), [""; 0], "there was no wake item yet");
    scene.answer(wait(&report, "mine")).await;
    assert_eq!(scene.tokens.take_woken(), ["mine"]);
    assert!(!scene.has_item(1).await);
}

#[tokio::test]
async fn who_is_not_next_sleeps_although_the_lock_is_free() {
    let scene = Scene::new().await;
    let lock = scene.function.lock("holder").await;
    let reports = [scene.answer(ask("first")).await, scene.answer(ask("second")).await];
    scene.releases(&lock).await;
    scene.answer(wait(&reports[1], "second")).await;
    assert_eq!(scene.tokens.take_woken(), [""; 0]);
    scene.answer(wait(&reports[0], "first")).await;
    assert_eq!(scene.tokens.take_woken(), ["first"]);
}

/// The row was deleted, or another client has written it.
#[tokio::test]
async fn a_ticket_that_means_nothing_any_more_looks_when_the_lock_is_free() {
    let scene = Scene::new().await;
    scene.function.lock("holder").await;
    let report = scene.answer(ask("me")).await;
    scene.function.server.delete("locks", "key", "customer-7").await;
    scene.answer(wait(&report, "mine")).await;
    assert_eq!(scene.tokens.take_woken(), ["mine"]);
    assert_eq!(scene.answer(again("me", &report, 0)).await["acquired"], true);
}

#[tokio::test]
async fn if_the_next_execution_has_ended_the_one_behind_it_is_woken() {
    let scene = Scene::new().await;
    let lock = scene.function.lock("holder").await;
    for n in 1..=3 {
        scene.sleeps(&format!("caller {n}"), &format!("token {n}")).await;
    }
    scene.tokens.close("token 1");
    scene.tokens.close("token 2");
    scene.releases(&lock).await;
    assert_eq!(scene.tokens.take_woken(), ["token 3"]);
}

/// The execution was stopped and its wake item deleted, or its first request was repeated and took a second place.
#[tokio::test]
async fn if_nobody_sleeps_with_the_next_ticket_the_one_behind_it_is_woken_and_looks_again_when_it_may_pass() {
    let scene = Scene::new().await;
    let lock = scene.function.lock("holder").await;
    for gone in ["first", "second"] {
        scene.answer(ask(gone)).await;
    }
    let report = scene.sleeps("me", "mine").await;
    scene.releases(&lock).await;
    assert_eq!(scene.tokens.take_woken(), ["mine"]);

    let early = scene.answer(again("me", &report, 0)).await;
    let retry_after = early["retryAfterSeconds"].as_u64().unwrap();
    assert!(early["acquired"] == false && (5..=6).contains(&retry_after), "{early}");
    scene.answer(wait(&early, "mine again")).await;
    assert_eq!(scene.tokens.take_woken(), [""; 0], "it is not its turn yet");
    pause(Duration::from_secs(retry_after)).await;
    assert_eq!(scene.answer(again("me", &early, retry_after)).await["acquired"], true);
}

/// The answer to its first request was lost, so the request was repeated and has given it a second place. Nobody comes for the
/// first one.
#[tokio::test]
async fn who_has_lost_the_answer_to_its_first_request_passes_its_own_first_place_after_its_time() {
    let scene = Scene::new().await;
    let lock = scene.function.lock("holder").await;
    assert_eq!(scene.answer(ask("me")).await["observation"]["ticket"], 1);
    let report = scene.sleeps("me", "mine").await;
    assert_eq!(report["observation"]["ticket"], 2);
    scene.releases(&lock).await;
    assert_eq!(scene.tokens.take_woken(), ["mine"]);

    let early = scene.answer(again("me", &report, 0)).await;
    let retry_after = early["retryAfterSeconds"].as_u64().unwrap();
    assert_eq!((&early["acquired"], &early["observation"]["ticket"]), (&json!(false), &json!(2)), "{early}");
    pause(Duration::from_secs(retry_after)).await;

    assert_eq!(scene.answer(again("me", &early, retry_after)).await["acquired"], true);
}

/// It did not come in its time. Nobody is woken for its ticket any more.
#[tokio::test]
async fn an_execution_that_was_passed_takes_another_place_and_is_woken_for_it() {
    let scene = Scene::new().await;
    let lock = scene.function.lock("holder").await;
    let passed = scene.answer(ask("passed")).await;
    scene.releases(&lock).await;
    // A caller of the crate has passed it, and holds the lock.
    let locks = scene.function.server.locks(&[]);
    let budget = lambda_lock::Budget::lasting(Duration::from_secs(20)).reserve(Duration::from_secs(1));
    let other = locks.acquire("customer-7").within(&budget).lease(Duration::from_secs(300)).in_turn().await.unwrap();

    scene.answer(wait(&passed, "first")).await;
    assert_eq!(scene.tokens.take_woken(), ["first"], "it looks at once");
    // Its state may time out in the same moment, before a waker has found its wake item.
    scene.function.server.put(&[("key", "wake/customer-7/1"), ("taskToken", "first")]).await;
    let report = scene.answer(again("passed", &passed, 60)).await;
    assert_eq!((&report["acquired"], &report["observation"]["ticket"]), (&json!(false), &json!(3)), "{report}");
    assert!(!scene.has_item(1).await);
    scene.answer(wait(&report, "second")).await;
    assert_eq!(scene.tokens.take_woken(), [""; 0]);
    let (_, next) = other.release().with_sleeper().await.unwrap();
    assert_eq!(next.unwrap().ticket, 3);
    assert_eq!(scene.answer(again("passed", &report, 60)).await["acquired"], true);
}

#[tokio::test]
async fn a_lock_with_the_key_of_a_wake_item_is_neither_overwritten_nor_deleted() {
    let scene = Scene::new().await;
    let lock = scene.function.lock("holder").await;
    let report = scene.answer(ask("me")).await;
    let old =
        [("key", "wake/customer-7/1"), ("ownerName", "old"), ("leaseDuration", "1"), ("recordVersionNumber", "b2c6")];
    scene.function.server.put(&old).await;
    assert_failure(scene.function.call(wait(&report, "mine")).await, "LockTableError", "wake item");
    scene.releases(&lock).await;
    assert!(scene.has_item(1).await);
}

#[tokio::test]
async fn a_repeated_release_wakes_again_whoever_was_not_woken() {
    let scene = Scene::new().await;
    let lock = scene.function.lock("holder").await;
    let report = scene.sleeps("me", "mine").await;
    scene.releases(&lock).await;
    scene.releases(&lock).await;
    assert_eq!(scene.tokens.take_woken(), ["mine"], "there is one wake item");
    // It times out in the same moment, and sleeps again.
    scene.answer(wait(&report, "another")).await;
    assert_eq!(scene.tokens.take_woken(), ["another"]);
    // The first waker has died between its two requests.
    scene.function.server.put(&[("key", "wake/customer-7/1"), ("taskToken", "third")]).await;
    scene.releases(&lock).await;
    assert_eq!(scene.tokens.take_woken(), ["third"]);
}

#[tokio::test]
async fn a_lock_is_released_although_nobody_can_be_woken() {
    for code in ["AccessDeniedException", "ThrottlingException", "KmsAccessDeniedException"] {
        let scene = Scene::new().await;
        let lock = scene.function.lock("holder").await;
        let report = scene.sleeps("me", "mine").await;
        scene.tokens.refuse(code);
        scene.releases(&lock).await;
        assert_eq!(scene.answer(again("me", &report, 10)).await["acquired"], true, "{code}: its state has timed out");
    }
}

/// Lambda would end the invocation, and its caller would not know that the lock is free.
#[tokio::test]
async fn a_release_ends_in_time_although_step_functions_does_not_answer() {
    for (left, most) in [(30.0, 4.0), (1.5, 1.2)] {
        takes(Duration::ZERO..Duration::from_secs_f64(most), async || {
            let scene = Scene::new().await;
            let lock = scene.function.lock("holder").await;
            scene.sleeps("me", "mine").await;
            scene.tokens.fall_silent();
            let began = Instant::now();
            let release = event(&json!({ "action": "release", "lock": lock }), left);
            assert_eq!(handler(release, &scene.function.deps).await.unwrap(), json!({ "released": true }));
            began.elapsed()
        })
        .await;
    }
}

#[tokio::test]
async fn whoever_acquires_the_lock_after_its_time_was_over_leaves_no_wake_item() {
    let scene = Scene::new().await;
    let lock = scene.function.lock("holder").await;
    let report = scene.sleeps("me", "mine").await;
    scene.function.server.delete("locks", "key", "wake/customer-7/1").await;
    scene.releases(&lock).await;
    scene.function.server.put(&[("key", "wake/customer-7/1"), ("taskToken", "mine")]).await;
    assert_eq!(scene.answer(again("me", &report, 60)).await["acquired"], true);
    assert!(!scene.has_item(1).await);
}

#[tokio::test]
async fn the_row_has_one_more_attribute_and_the_wake_item_names_the_execution() {
    let scene = Scene::with(&[("LOCK_TTL_ATTRIBUTE", "expiresAt")]).await;
    scene.function.lock("holder").await;
    scene.sleeps("me", "mine").await;
    let number = |row: &std::collections::HashMap<String, _>, name: &str| {
        let value: Option<&aws_sdk_dynamodb::types::AttributeValue> = row.get(name);
        value.and_then(|value| value.as_n().ok()).cloned()
    };
    let row = scene.function.server.row("customer-7").await.unwrap();
    let counters = ["lastTicket", "servedTicket", "lastSleeper"].map(|name| number(&row, name).unwrap());
    assert_eq!(counters, ["1", "0", "1"]);
    let item = scene.function.server.row("wake/customer-7/1").await.unwrap();
    assert_eq!(item["workflow"].as_s().unwrap(), EXECUTION);
    assert!(number(&item, "expiresAt").is_some());
    assert_eq!(item.len(), 4, "{item:?}");
}

#[tokio::test]
async fn without_a_place_in_line_nothing_is_written_and_the_state_times_out() {
    let scene = Scene::new().await;
    let peer =
        [("key", "customer-7"), ("ownerName", "a peer"), ("leaseDuration", "20000"), ("recordVersionNumber", "b2c6")];
    scene.function.server.put(&peer).await;
    let report = scene.answer(ask("me")).await;
    assert_eq!(report["observation"].get("ticket"), None);
    for observation in [&report["observation"], &Value::Null] {
        let wait = with(wait(&report, "mine"), json!({ "observation": observation }));
        assert_eq!(scene.answer(wait).await, json!({ "waits": false }));
    }
}

#[tokio::test]
async fn the_wake_items_of_a_prefix_and_of_a_sort_key_have_keys_of_their_own() {
    let scene = Scene::with(&[("LOCK_KEY_PREFIX", "orders/")]).await;
    let lock = scene.function.lock("holder").await;
    scene.sleeps("me", "mine").await;
    assert!(scene.function.server.row("wake/orders/customer-7/1").await.is_some());
    scene.releases(&lock).await;
    assert_eq!(scene.tokens.take_woken(), ["mine"]);

    let scene = Scene::with(&[("LOCK_SORT_KEY_ATTRIBUTE", "part")]).await;
    let part = json!({ "sortKey": "invoice" });
    let lock = scene.answer(with(acquire("holder"), part.clone())).await["lock"].clone();
    for token in ["mine", "of the one behind"] {
        let report = scene.answer(with(ask(token), part.clone())).await;
        scene.answer(with(wait(&report, token), part.clone())).await;
    }
    scene.releases(&lock).await;
    assert_eq!(scene.tokens.take_woken(), ["mine"]);
}

#[tokio::test]
async fn with_a_key_nobody_makes_up_a_place_in_line() {
    let scene = Scene::with(&[("LOCK_HMAC_KEYS", "0123456789abcdef0123456789abcdef")]).await;
    scene.function.lock("holder").await;
    for owner in ["first", "second"] {
        scene.sleeps(owner, owner).await;
    }
    let mut report = scene.answer(ask("third")).await;
    report["observation"]["ticket"] = json!(1);
    assert_failure(scene.function.call(again("third", &report, 0)).await, "InvalidRequest", "observation");
    assert_failure(scene.function.call(wait(&report, "mine")).await, "InvalidRequest", "observation");
}

#[tokio::test]
async fn a_request_that_cannot_be_is_refused_by_its_field() {
    let scene = Scene::new().await;
    scene.function.lock("holder").await;
    let report = scene.answer(ask("me")).await;
    let long = "k".repeat(2_030);
    for (request, names) in [
        (with(ask("me"), json!({ "permits": 3 })), "inLine is malformed"),
        (with(ask("me"), json!({ "inLine": "yes" })), "inLine is malformed"),
        (with(ask("me"), json!({ "key": long })), "key is malformed: it is too long to wait in line"),
        (with(ask("me"), json!({ "key": "wake/k/1" })), "wake/"),
        (wait(&report, ""), "taskToken is malformed"),
        (wait(&report, &"t".repeat(2_049)), "taskToken is malformed"),
        (with(wait(&report, "t"), json!({ "observation": { "ticket": 1 } })), "observation is malformed"),
        (with(wait(&report, "t"), json!({ "owner": "me" })), "owner"),
    ] {
        assert_failure(scene.function.call(request).await, "InvalidRequest", names);
    }
    let mut several = with(ask("me"), json!({ "keys": ["a", "b"] }));
    several.as_object_mut().unwrap().remove("key");
    assert_failure(scene.function.call(several).await, "InvalidRequest", "inLine is malformed");
}

#[tokio::test]
async fn the_release_of_several_locks_wakes_those_who_wait_for_one_of_them() {
    let scene = Scene::new().await;
    let set =
        json!({ "action": "acquire", "keys": ["customer-6", "customer-7"], "owner": "holder", "leaseSeconds": 300 });
    let lock = scene.answer(set).await["lock"].clone();
    scene.sleeps("me", "mine").await;
    let other = json!({ "key": "customer-6" });
    let report = scene.answer(with(ask("other"), other.clone())).await;
    scene.answer(with(wait(&report, "other's"), other)).await;
    scene.releases(&lock).await;
    let mut woken = scene.tokens.take_woken();
    woken.sort_unstable();
    assert_eq!(woken, ["mine", "other's"]);
}

/// A function behind a proxy that does this to requests for wake items.
async fn behind(scene: &mut Scene, fate: Fate) -> AuthorizingProxy {
    let grant = |action: &str| {
        Grant::new(format!("dynamodb:{action}"), "arn:aws:dynamodb:eu-central-1:123456789012:table/locks")
    };
    let role: Role = ["GetItem", "UpdateItem", "PutItem", "DeleteItem"].map(grant).into();
    let roles = BTreeMap::from([("test".to_owned(), role)]);
    let proxy = AuthorizingProxy::start(scene.function.server.endpoint(), roles).await.unwrap();
    proxy.decide(move |Call { needs, .. }| {
        let is_about_wake_items =
            needs.iter().any(|need| ["PutItem", "DeleteItem"].iter().any(|of| need.action.ends_with(of)));
        if is_about_wake_items { fate } else { Fate::Answered }
    });
    let endpoints =
        [("AWS_ENDPOINT_URL_DYNAMODB", proxy.endpoint()), ("AWS_ENDPOINT_URL_SFN", scene.tokens.endpoint())];
    scene.function.deps = deps(&scene.function.server, &endpoints).unwrap();
    proxy
}

/// Nobody has to repair anything, so it must not look as if.
#[tokio::test]
async fn a_table_that_is_throttled_is_no_error_of_the_deployment() {
    let mut scene = Scene::new().await;
    scene.function.lock("holder").await;
    let report = scene.answer(ask("me")).await;
    let _proxy = behind(&mut scene, Fate::Throttled).await;
    assert_failure(scene.function.call(wait(&report, "mine")).await, "LockUnknown", "retry");
}

/// It looks after a pause instead. With an item it would be woken in place of the one behind it, and never sleep.
#[tokio::test]
async fn who_cannot_look_at_the_lock_does_not_sleep_and_leaves_no_wake_item() {
    let mut scene = Scene::new().await;
    scene.function.lock("holder").await;
    let report = scene.answer(ask("me")).await;
    let proxy = behind(&mut scene, Fate::Answered).await;
    proxy.decide(|Call { needs, .. }| {
        let is_look = needs.iter().any(|need| need.action.ends_with(":GetItem"));
        if is_look { Fate::Throttled } else { Fate::Answered }
    });
    assert_failure(scene.function.call(wait(&report, "mine")).await, "LockUnknown", "");
    assert!(!scene.has_item(1).await);
}

/// Otherwise Lambda could end the invocation, and nobody would know that the lock is granted.
#[tokio::test]
async fn a_grant_is_answered_in_time_although_the_wake_item_cannot_be_deleted() {
    for (left, most) in [(30.0, 2.0), (1.2, 1.2)] {
        takes(Duration::ZERO..Duration::from_secs_f64(most), async || {
            let mut scene = Scene::new().await;
            let lock = scene.function.lock("holder").await;
            let report = scene.sleeps("me", "mine").await;
            scene.tokens.close("mine");
            scene.releases(&lock).await;
            scene.function.server.put(&[("key", "wake/customer-7/1"), ("taskToken", "mine")]).await;
            let _proxy = behind(&mut scene, Fate::Swallowed).await;
            let began = Instant::now();
            let granted = handler(event(&again("me", &report, 60), left), &scene.function.deps).await.unwrap();
            assert_eq!(granted["acquired"], true, "{granted}");
            began.elapsed()
        })
        .await;
    }
}

/// The release comes after the look at the row, and before its response.
#[tokio::test]
async fn a_release_after_the_look_of_who_goes_to_sleep_finds_the_wake_item() {
    let mut scene = Scene::new().await;
    let lock = scene.function.lock("holder").await;
    let report = scene.answer(ask("me")).await;
    let undisturbed = scene.function.deps.clone();
    let proxy = behind(&mut scene, Fate::Answered).await;
    proxy.decide(|Call { needs, .. }| {
        let is_look = needs.iter().any(|need| need.action.ends_with(":GetItem"));
        if is_look { Fate::AnsweredAfter(Duration::from_millis(900)) } else { Fate::Answered }
    });
    let wait = wait(&report, "mine");
    tokio::join!(scene.answer(wait), async {
        pause(Duration::from_millis(500)).await;
        handler(event(&json!({ "action": "release", "lock": lock }), 30.0), &undisturbed).await.unwrap();
    });
    assert_eq!(scene.tokens.take_woken(), ["mine"]);
}

#[tokio::test]
async fn every_answer_that_says_that_an_execution_waits_no_more_wakes_the_next_one() {
    for (code, tried) in [
        ("TaskTimedOut", 3),
        ("TaskDoesNotExist", 3),
        ("InvalidToken", 3),
        ("AccessDeniedException", 1),
        ("KmsInvalidStateException", 1),
    ] {
        let scene = Scene::new().await;
        let lock = scene.function.lock("holder").await;
        for n in 1..=3 {
            scene.sleeps(&format!("caller {n}"), &format!("token {n}")).await;
        }
        scene.tokens.refuse(code);
        scene.releases(&lock).await;
        for ticket in 1..=3 {
            assert_eq!(scene.has_item(ticket).await, ticket > tried, "{code}: {ticket}");
        }
    }
}

/// Whoever releases the lock waits for these requests.
#[tokio::test]
async fn a_release_looks_for_a_limited_number_of_those_who_are_gone() {
    let scene = Scene::new().await;
    let lock = scene.function.lock("holder").await;
    scene.answer(ask("me")).await;
    for counter in ["lastTicket", "lastSleeper"] {
        let value = aws_sdk_dynamodb::types::AttributeValue::N("9000000".to_owned());
        scene.function.server.set("locks", ("key", "customer-7"), (counter, value)).await;
    }
    scene.function.server.put(&[("key", "wake/customer-7/9000000"), ("taskToken", "too far")]).await;
    scene.releases(&lock).await;
    assert_eq!(scene.tokens.take_woken(), [""; 0]);
}

#[tokio::test]
async fn many_who_are_gone_do_not_keep_the_one_behind_them_from_being_woken() {
    let scene = Scene::new().await;
    let lock = scene.function.lock("holder").await;
    scene.answer(ask("me")).await;
    for counter in ["lastTicket", "lastSleeper"] {
        let value = aws_sdk_dynamodb::types::AttributeValue::N("41".to_owned());
        scene.function.server.set("locks", ("key", "customer-7"), (counter, value)).await;
    }
    for ticket in 1..=41 {
        let (key, token) = (format!("wake/customer-7/{ticket}"), format!("token {ticket}"));
        // Some were deleted when their executions ended, and others are left.
        if ticket % 2 == 1 {
            scene.function.server.put(&[("key", key.as_str()), ("taskToken", token.as_str())]).await;
        }
        if ticket < 41 {
            scene.tokens.close(&token);
        }
    }
    scene.releases(&lock).await;
    assert_eq!(scene.tokens.take_woken(), ["token 41"]);
}

#[tokio::test]
async fn a_release_waits_a_second_for_a_step_functions_that_does_not_answer() {
    takes(Duration::ZERO..Duration::from_millis(2_500), async || {
    let scene = Scene::new().await;
    let set =
        json!({ "action": "acquire", "keys": ["customer-6", "customer-7"], "owner": "holder", "leaseSeconds": 300 });
    let lock = scene.answer(set).await["lock"].clone();
    scene.sleeps("me", "mine").await;
    let other = json!({ "key": "customer-6" });
    let report = scene.answer(with(ask("other"), other.clone())).await;
    scene.answer(with(wait(&report, "other's"), other)).await;
    scene.tokens.fall_silent();
    let began = Instant::now();
    scene.releases(&lock).await;
    began.elapsed()
    })
    .await;
}

/// Its wake item is the one that a release finds while it looks.
#[tokio::test]
async fn whoever_keeps_its_place_keeps_its_wake_item() {
    let scene = Scene::new().await;
    scene.function.lock("holder").await;
    let report = scene.sleeps("me", "mine").await;
    let report = scene.answer(again("me", &report, 60)).await;
    assert_eq!(report["observation"]["ticket"], 1);
    assert!(scene.has_item(1).await);
}

#[tokio::test]
async fn who_waits_for_one_lock_of_a_set_is_woken_although_another_one_cannot_be_released() {
    let scene = Scene::new().await;
    let mut set = with(acquire("holder"), json!({ "keys": ["customer-7", "spoilt"] }));
    set.as_object_mut().unwrap().remove("key");
    let lock = scene.answer(set).await["lock"].clone();
    scene.sleeps("me", "mine").await;
    scene.function.server.put(&[("key", "spoilt")]).await;
    let released = scene.function.call(json!({ "action": "release", "lock": lock })).await;
    assert_failure(released, "InvalidRecord", "spoilt");
    assert_eq!(scene.tokens.take_woken(), ["mine"]);
}

#[tokio::test]
async fn who_waits_for_a_lock_of_a_set_is_woken_when_the_set_is_given_back_by_a_renewal() {
    let scene = Scene::new().await;
    let mut set = with(acquire("holder"), json!({ "keys": ["customer-7", "other"] }));
    set.as_object_mut().unwrap().remove("key");
    let lock = scene.answer(set).await["lock"].clone();
    scene.sleeps("sleeper", "mine").await;
    scene.function.server.delete("locks", "key", "other").await;

    let lost = scene.function.call(json!({ "action": "renew", "lock": lock, "leaseSeconds": 60 })).await;

    assert_failure(lost, "LockLost", "other");
    assert!(scene.function.is_free().await);
    assert_eq!(scene.tokens.take_woken(), ["mine"]);
}

#[tokio::test]
async fn who_sleeps_is_woken_although_the_response_to_the_release_is_lost_each_time() {
    let mut scene = Scene::new().await;
    let lock = scene.function.lock("holder").await;
    scene.sleeps("sleeper", "mine").await;
    let proxy = behind(&mut scene, Fate::Answered).await;
    proxy.decide(|Call { needs, .. }| {
        let is_write = needs.iter().any(|need| need.action.ends_with(":UpdateItem"));
        if is_write { Fate::AppliedButFails } else { Fate::Answered }
    });

    let released = scene.function.call(json!({ "action": "release", "lock": lock })).await;

    assert_failure(released, "LockUnknown", "may or may not");
    assert_eq!(scene.tokens.take_woken(), ["mine"]);
}

/// The grant was applied, its response was lost, and the time was over when the call gave it back.
#[tokio::test]
async fn who_sleeps_is_woken_when_an_acquire_gives_its_grant_back() {
    let mut scene = Scene::new().await;
    let lock = scene.function.lock("holder").await;
    scene.sleeps("sleeper", "mine").await;
    scene.releases(&lock).await;
    assert_eq!(scene.tokens.take_woken(), ["mine"]);
    scene.function.server.put(&[("key", "wake/customer-7/1"), ("taskToken", "mine again")]).await;
    let proxy = behind(&mut scene, Fate::Answered).await;
    // For longer than an acquire without a waiting time lasts.
    let end = Instant::now() + Duration::from_millis(3_500);
    proxy.decide(move |Call { needs, .. }| {
        let is = |action| needs.iter().any(|need| need.action.ends_with(action));
        match Instant::now() < end {
            true if is(":UpdateItem") => Fate::AppliedButFails,
            true if is(":GetItem") => Fate::Throttled,
            _ => Fate::Answered,
        }
    });

    let acquired = scene.function.call(acquire("another")).await;

    assert_failure(acquired, "LockUnknown", "may or may not");
    assert!(scene.function.is_free().await, "it was given back");
    assert_eq!(scene.tokens.take_woken(), ["mine again"]);
}
