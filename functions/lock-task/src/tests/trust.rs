//! What a caller says is believed within limits, and with a key only what a response has handed out.

use super::{Function, acquire, deps, with};
use lambda_lock_functions::test_support::{assert_failure, pause};
use serde_json::{Value, json};
use std::time::Duration;

const KEY: &str = "the first key which has many bytes";
const OTHER: &str = "the second key which has many bytes";
const WITH_KEY: [(&str, &str); 1] = [("LOCK_HMAC_KEYS", KEY)];

fn renew(lock: &Value) -> Value {
    json!({ "action": "renew", "lock": lock, "leaseSeconds": 300 })
}

fn release(lock: &Value) -> Value {
    json!({ "action": "release", "lock": lock })
}

fn set(owner: &str) -> Value {
    json!({ "action": "acquire", "keys": ["a", "b"], "owner": owner, "leaseSeconds": 300 })
}

fn report(request: Value) -> Value {
    with(request, json!({ "whenHeld": "report" }))
}

#[tokio::test]
async fn a_lock_that_no_response_handed_out_can_neither_be_renewed_nor_released() {
    let function = Function::with(&WITH_KEY).await;
    let lock = function.lock("me").await;
    for forged in [
        json!({ "owner": "another" }),
        json!({ "key": "customer-8" }),
        json!({ "fencingToken": 77 }),
        json!({ "leaseSeconds": 80_000 }),
        json!({ "leaseEndsAt": 1 }),
        json!({ "version": "ll1-0123456789abcdef0123456789abcdef-0199d6a4c8000123456789abcdef" }),
        json!({ "hmac": "c29tZXRoaW5nIGVsc2U=" }),
        json!({ "hmac": "no base64!" }),
        json!({ "hmac": "" }),
    ] {
        for request in [renew(&with(lock.clone(), forged.clone())), release(&with(lock.clone(), forged.clone()))] {
            assert_failure(function.call(request).await, "InvalidRequest", "send the lock exactly as it was returned");
        }
    }
    // Neither a part of the right one, nor one that is right for something else.
    let hmac = lock["hmac"].as_str().unwrap();
    let another = function.answer(with(acquire("me"), json!({ "key": "customer-8" }))).await["lock"]["hmac"].clone();
    let seen = function.answer(report(acquire("you"))).await["observation"]["hmac"].clone();
    let parts = [4, 24, 40].map(|length| json!(hmac[..length]));
    for part in parts.into_iter().chain([json!(format!("{hmac}AAAA")), another, seen]) {
        for request in
            [renew(&with(lock.clone(), json!({ "hmac": part }))), release(&with(lock.clone(), json!({ "hmac": part })))]
        {
            assert_failure(function.call(request).await, "InvalidRequest", "lock.hmac is malformed");
        }
    }
    let mut without = lock.clone();
    without.as_object_mut().unwrap().remove("hmac");
    for request in [renew(&without), release(&without)] {
        assert_failure(function.call(request).await, "InvalidRequest", "it is missing");
    }
    assert!(!function.is_free().await);

    let renewed = function.answer(renew(&lock)).await["lock"].clone();
    assert_ne!(renewed["hmac"], lock["hmac"]);
    assert_eq!(function.answer(release(&renewed)).await["released"], true);
}

#[tokio::test]
async fn each_lock_of_a_set_is_authenticated() {
    let function = Function::with(&WITH_KEY).await;
    let set = function.answer(set("me")).await["lock"].clone();
    let mut forged = set.clone();
    forged["locks"][1]["key"] = "c".into();
    for request in [renew(&forged), release(&forged)] {
        assert_failure(function.call(request).await, "InvalidRequest", "lock.locks.hmac is malformed");
    }
    let renewed = function.answer(renew(&set)).await["lock"].clone();
    assert_eq!(function.answer(release(&renewed)).await["released"], true);
}

#[tokio::test]
async fn a_lock_of_one_prefix_is_none_of_another() {
    let ours = Function::with(&[WITH_KEY[0], ("LOCK_KEY_PREFIX", "ours/")]).await;
    let theirs = deps(&ours.server, &[WITH_KEY[0], ("LOCK_KEY_PREFIX", "theirs/")]).unwrap();
    let lock = ours.lock("me").await;
    let theirs = Function { server: ours.server, deps: theirs };
    assert_failure(theirs.call(release(&lock)).await, "InvalidRequest", "lock.hmac is malformed");
}

#[tokio::test]
async fn keys_are_replaced_without_a_pause() {
    let first = Function::with(&WITH_KEY).await;
    let lock = first.lock("me").await;
    for (keys, is_known) in [
        (format!("{OTHER},{KEY}"), true),
        (format!("{KEY} , {OTHER}"), true),
        (OTHER.to_owned(), false),
        (KEY.to_owned(), true),
    ] {
        let deps = deps(&first.server, &[("LOCK_HMAC_KEYS", &keys)]).unwrap();
        let function = Function { server: first.server.clone(), deps };
        assert_eq!(function.call(renew(&lock)).await.is_ok(), is_known, "{keys}");
        if is_known {
            // The first key signs.
            let renewed = function.answer(renew(&lock)).await["lock"].clone();
            let is_by_the_first = keys.starts_with(KEY);
            assert_eq!(first.call(renew(&renewed)).await.is_ok(), is_by_the_first, "{keys}");
        }
    }
}

#[tokio::test]
async fn locks_from_before_the_first_key_are_accepted_where_the_environment_says_so() {
    let before = Function::start().await;
    let lock = before.lock("me").await;
    assert_eq!(lock.get("hmac"), None);
    let deps = deps(&before.server, &[WITH_KEY[0], ("LOCK_HMAC_REQUIRED", "false")]).unwrap();
    let function = Function { server: before.server.clone(), deps };
    let renewed = function.answer(renew(&lock)).await["lock"].clone();
    let forged = with(renewed.clone(), json!({ "owner": "another" }));
    assert_failure(function.call(release(&forged)).await, "InvalidRequest", "lock.hmac is malformed");
    // And when the key is taken away again.
    assert_eq!(before.answer(release(&renewed)).await["released"], true);
}

#[tokio::test]
async fn an_observation_is_believed_only_for_the_time_that_has_passed() {
    let function = Function::with(&[WITH_KEY[0], ("LOCK_MAX_CLOCK_SKEW_MS", "off")]).await;
    function.lock("holder").await;
    let seen = function.answer(report(acquire("me"))).await["observation"].clone();
    pause(Duration::from_millis(20)).await;
    let told = |seen: &Value| with(report(acquire("me")), json!({ "observation": seen, "waitedSeconds": 100_000 }));

    let refused = function.answer(told(&seen)).await;

    assert_eq!(refused["acquired"], false);
    let unchanged = refused["observation"]["unchangedForMillis"].as_u64().unwrap();
    assert!((20..20_000).contains(&unchanged), "{unchanged} ms");
    for forged in [
        json!({ "unchangedForMillis": 1_000_000 }),
        json!({ "leaseMillis": 1 }),
        json!({ "at": 1 }),
        json!({ "at": null }),
        json!({ "hmac": null }),
    ] {
        let refused = function.call(told(&with(seen.clone(), forged))).await;
        assert_failure(refused, "InvalidRequest", "observation is malformed: send it exactly");
    }
    let of_another = with(told(&seen), json!({ "key": "customer-8" }));
    assert_failure(function.call(of_another).await, "InvalidRequest", "observation is malformed");
    function.answer(set("holder")).await;
    let seen = function.answer(report(set("me"))).await["observation"].clone();
    let told = |seen: &Value| with(report(set("me")), json!({ "observation": seen, "waitedSeconds": 100_000 }));
    assert_eq!(function.answer(told(&seen)).await["acquired"], false);
    let mut forged = seen;
    forged[0]["index"] = forged[1]["index"].clone();
    assert_failure(function.call(told(&forged)).await, "InvalidRequest", "observation is malformed");
}

#[tokio::test]
async fn without_a_key_a_waiting_time_is_believed_up_to_a_limit() {
    let function = Function::with(&[("MAX_WAITED_SECONDS", "10"), ("LOCK_MAX_CLOCK_SKEW_MS", "off")]).await;
    function.lock("holder").await;
    let seen = function.answer(report(acquire("me"))).await["observation"].clone();
    let told = with(report(acquire("me")), json!({ "observation": seen, "waitedSeconds": 100_000 }));
    let refused = function.answer(told).await;
    let unchanged = refused["observation"]["unchangedForMillis"].as_u64().unwrap();
    assert!((10_000..11_000).contains(&unchanged), "{unchanged} ms");
    // What an observation says is limited as well, with or without an HMAC that nobody can check.
    for told in
        [json!({ "unchangedForMillis": 400_000 }), json!({ "unchangedForMillis": 400_000, "hmac": "aGk=", "at": 1 })]
    {
        let told = with(report(acquire("me")), json!({ "observation": with(seen.clone(), told), "waitedSeconds": 0 }));
        let unchanged = function.answer(told).await["observation"]["unchangedForMillis"].as_u64().unwrap();
        assert!((10_000..11_000).contains(&unchanged), "{unchanged} ms");
    }
}

/// What is authenticated counts as a whole, what nobody can check counts up to the limit.
#[tokio::test]
async fn where_a_key_is_not_required_an_observation_without_an_hmac_is_believed_up_to_the_limit() {
    let optional =
        [WITH_KEY[0], ("LOCK_HMAC_REQUIRED", "false"), ("MAX_WAITED_SECONDS", "1"), ("LOCK_MAX_CLOCK_SKEW_MS", "off")];
    let function = Function::with(&optional).await;
    function.lock("holder").await;
    let unchanged = async |observation: &Value| {
        let told = with(report(acquire("me")), json!({ "observation": observation, "waitedSeconds": 0 }));
        let seen = function.answer(told).await["observation"].clone();
        (seen["unchangedForMillis"].as_u64().unwrap(), seen)
    };
    let seen = function.answer(report(acquire("me"))).await["observation"].clone();
    let mut bare = with(seen, json!({ "unchangedForMillis": 400_000 }));
    bare.as_object_mut().unwrap().remove("hmac");
    bare.as_object_mut().unwrap().remove("at");

    let (believed, signed) = unchanged(&bare).await;

    assert!((1_000..2_000).contains(&believed), "{believed} ms");
    // Two of these together are longer than the limit.
    pause(Duration::from_millis(200)).await;
    let told = json!({ "observation": signed, "waitedSeconds": 0.2 });
    let signed = function.answer(with(report(acquire("me")), told)).await["observation"].clone();
    assert!(signed["unchangedForMillis"].as_u64() > Some(1_150), "{signed}");
    assert!(unchanged(&signed).await.0 > 1_150);
}

#[tokio::test]
async fn what_is_handed_out_is_authenticated_for_one_row_of_a_table_with_a_sort_key() {
    let environment = [WITH_KEY[0], ("LOCK_SORT_KEY_ATTRIBUTE", "sk"), ("LOCK_MAX_CLOCK_SKEW_MS", "off")];
    let function = Function::with(&environment).await;
    let of = |sort_key: &str, more: Value| with(with(acquire("me"), json!({ "sortKey": sort_key })), more);
    let lock = function.answer(of("a", json!({ "owner": "holder" }))).await["lock"].clone();
    let other = with(lock.clone(), json!({ "sortKey": "b" }));
    for request in [renew(&other), release(&other)] {
        assert_failure(function.call(request).await, "InvalidRequest", "lock.hmac is malformed");
    }
    let seen = function.answer(report(of("a", json!({})))).await["observation"].clone();
    function.answer(of("b", json!({ "owner": "holder" }))).await;
    let told = json!({ "observation": seen, "waitedSeconds": 0 });
    assert_eq!(function.answer(report(of("a", told.clone()))).await["acquired"], false);
    assert_failure(function.call(report(of("b", told))).await, "InvalidRequest", "observation is malformed");
    assert_eq!(function.answer(release(&lock)).await["released"], true);
}

#[tokio::test]
async fn a_lease_beyond_the_limit_is_refused() {
    for (environment, most) in [(&[][..], 86_400), (&[("MAX_LEASE_SECONDS", "600")][..], 600)] {
        let function = Function::with(environment).await;
        let longer = with(acquire("me"), json!({ "leaseSeconds": most + 1 }));
        assert_failure(function.call(longer).await, "InvalidRequest", &format!("at most {most} seconds"));
        let lock = function.answer(with(acquire("me"), json!({ "leaseSeconds": most }))).await["lock"].clone();
        let longer = with(renew(&lock), json!({ "leaseSeconds": most + 1 }));
        assert_failure(function.call(longer).await, "InvalidRequest", &format!("at most {most} seconds"));
        // Nor does a lock that says so make the lease longer.
        let forged = with(lock.clone(), json!({ "leaseSeconds": 20_000_000 }));
        let renewed = function.answer(renew(&forged)).await["lock"].clone();
        assert_eq!(renewed["leaseSeconds"], most);
        assert_eq!(function.answer(release(&renewed)).await["released"], true);
    }
}

#[tokio::test]
async fn owners_can_be_hidden_from_others() {
    let owner = "the payroll of a customer";
    let function = Function::with(&[("SHOW_OWNERS", "false")]).await;
    let named = with(acquire(owner), json!({ "attributes": { "who": owner } }));
    let lock = function.answer(named).await["lock"].clone();
    assert_eq!(lock["owner"], owner, "the holder knows its own name");
    function.answer(set(owner)).await;
    let place = |who: &str| with(acquire(who), json!({ "key": "gate", "permits": 1 }));
    function.answer(place(owner)).await;
    let mut shown = Vec::new();
    for request in [acquire("me"), set("me"), place("me")] {
        for when in ["fail", "report", "failWithReport"] {
            let told = match function.call(with(request.clone(), json!({ "whenHeld": when }))).await {
                Ok(report) => report.to_string(),
                Err(failure) => {
                    assert_eq!(failure.error_type(), "LockHeld");
                    failure.message().into_owned()
                }
            };
            assert!(!told.contains("payroll"), "{told}");
            shown.extend(told.split('"').find(|text| text.starts_with("hidden-")).map(str::to_owned));
        }
    }
    // The same owner looks the same everywhere.
    shown.dedup();
    assert!(shown.len() == 1 && shown[0].len() == "hidden-".len() + 16, "{shown:?}");
}

#[tokio::test]
async fn wrong_settings_are_named_without_secrets() {
    let function = Function::start().await;
    for (name, value, says) in [
        ("MAX_LEASE_SECONDS", "0", "from 1 to 31622400"),
        ("MAX_LEASE_SECONDS", "31622401", "from 1 to 31622400"),
        ("MAX_WAITED_SECONDS", "1.5", "give a whole number of seconds"),
        ("LOCK_HMAC_KEYS", "s3cret", "of 32 bytes or more"),
        ("LOCK_HMAC_KEYS", "s3cret s3cret s3cret s3cret s3cret,s3cret", "of 32 bytes or more"),
        ("LOCK_HMAC_REQUIRED", "yes", "give true or false"),
        ("SHOW_OWNERS", "no", "give true or false"),
    ] {
        let error = deps(&function.server, &[(name, value)]).err().unwrap().to_string();
        assert!(error.starts_with(name) && error.contains(says) && !error.contains("s3cret"), "{error}");
    }
}

#[tokio::test]
async fn a_key_hides_owners_from_those_who_do_not_have_it() {
    let mut shown = Vec::new();
    for keys in ["", KEY, OTHER] {
        let function = Function::with(&[("SHOW_OWNERS", "false"), ("LOCK_HMAC_KEYS", keys)]).await;
        function.lock("the payroll").await;
        let holder = function.answer(report(acquire("me"))).await["holder"]["owner"].as_str().unwrap().to_owned();
        assert!(holder.starts_with("hidden-") && !shown.contains(&holder), "{holder} {shown:?}");
        shown.push(holder);
    }
}
