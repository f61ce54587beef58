//! All calls get the result of the first call.

use crate::{DAY, LEASE, ORDER, attempt, once, replayed};
use lambda_lock::once::{Attempt, OnceState, Outcome, Started};
use lambda_lock::{Error, ErrorKind};
use lambda_lock_testkit::{Process, Table, applied, case, counted, millis, secs};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};
use tokio::time::sleep;

#[tokio::test(start_paused = true)]
async fn the_first_call_works_and_later_calls_get_its_result_with_one_request() {
    let table = Table::new();
    let process = table.process();
    let locks = process.locks("me");
    let calls = AtomicU32::new(0);
    let run = async || {
        let work = async |_: &mut Attempt| {
            calls.fetch_add(1, Ordering::Relaxed);
            Ok::<_, Error>(json!({"receipt": "r-1"}))
        };
        once(&locks).payload(&ORDER).run(work).await.unwrap()
    };

    assert_eq!(run().await, Outcome::Done(json!({"receipt": "r-1"})));
    assert_eq!(process.take_operations(), ["UpdateItem", "UpdateItem"], "claim, complete");
    for _ in 0..3 {
        assert_eq!(run().await, Outcome::Replayed(json!({"receipt": "r-1"})));
        assert_eq!(process.take_operations(), ["UpdateItem"], "a refused claim brings the record");
    }
    assert_eq!(calls.into_inner(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_call_during_the_work_waits_for_its_result() {
    let table = Table::new();
    let first = attempt(once(&table.process().locks("first"))).await;
    let second = table.process();
    let waiting = tokio::spawn(async move {
        let budget = second.budget(secs(30)).reserve(secs(10));
        let locks = second.locks("second");
        locks.once("order-42").within(&budget).start::<Value>().await.map(|started| (started, budget.remaining()))
    });
    sleep(secs(5)).await;
    first.complete("the result").await.unwrap();

    let (started, remaining) = waiting.await.unwrap().unwrap();

    assert!(matches!(started, Started::Replayed(result) if result == "the result"));
    assert!(remaining.unwrap() > secs(24), "soon after the result was stored: {remaining:?}");
}

#[tokio::test(start_paused = true)]
async fn a_call_that_does_not_wait_or_waits_too_long_gets_the_holder() {
    let table = Table::new();
    let first = attempt(once(&table.process().locks("first"))).await;
    let process = table.process();
    let locks = process.locks("second");

    let error = once(&locks).start::<Value>().await.unwrap_err();
    assert!(error.refusal().unwrap().holder.starts_with("first/"), "without a budget nothing is waited for");

    let budget = process.budget(secs(10)).reserve(secs(5));
    process.take_sent();

    let error = locks.once("order-42").within(&budget).without_waiting().start::<Value>().await.unwrap_err();
    assert!(error.is_held() && process.take_sent().len() == 1, "{error}");

    let error = locks.once("order-42").within(&budget).start::<Value>().await.unwrap_err();
    assert!(error.is_held(), "{error}");
    assert!(budget.remaining().unwrap() <= secs(5), "waited for what the budget allows");

    first.give_back().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn parallel_duplicates_are_done_once_and_all_get_the_same_result() {
    let table = Table::new();
    let calls = std::sync::Arc::new(AtomicU32::new(0));
    let mut duplicates = tokio::task::JoinSet::new();

    for number in 0..20 {
        let (process, calls) = (table.process(), calls.clone());
        duplicates.spawn(async move {
            process.set_latency(millis(20));
            let budget = process.budget(secs(60));
            let locks = process.locks(&format!("duplicate-{number}"));
            let work = async |_: &mut Attempt| {
                sleep(secs(2)).await;
                Ok::<_, Error>(calls.fetch_add(1, Ordering::Relaxed))
            };
            locks.once("order-42").payload(&ORDER).within(&budget).run(work).await.unwrap().into_result()
        });
    }

    assert_eq!(duplicates.join_all().await, [0; 20]);
    assert_eq!(calls.load(Ordering::Relaxed), 1);
}

#[tokio::test(start_paused = true)]
async fn falsy_values_are_valid_payloads_and_results() {
    let table = Table::new();
    let locks = table.process().locks("me");
    for (number, falsy) in [json!(null), json!(0), json!(false), json!(""), json!([]), json!({})].iter().enumerate() {
        let _case = case(falsy);
        let key = number.to_string();
        let work = || locks.once(&key).lease(LEASE).payload(falsy);

        let done = work().run(async |_| Ok::<_, Error>(falsy.clone())).await.unwrap();

        assert_eq!(done, Outcome::Done(falsy.clone()));
        assert_eq!(replayed(work()).await, *falsy);
        assert!(locks.once(&key).lease(LEASE).payload(&json!("x")).start::<Value>().await.is_err());
    }

    locks.once("nothing").lease(LEASE).run(async |_| Ok::<_, Error>(())).await.unwrap();

    assert!(locks.once("nothing").lease(LEASE).run(async |_| Ok::<_, Error>(())).await.unwrap().is_replayed());
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Odd {
    inner: Option<Option<u32>>,
    #[serde(skip)]
    skipped: u32,
}

#[tokio::test(start_paused = true)]
async fn the_first_call_returns_the_result_that_later_calls_read() {
    let table = Table::new();
    let locks = table.process().locks("me");
    let odd = Odd { inner: Some(None), skipped: 1 };
    let run = || once(&locks).run(async |_| Ok::<_, Error>(odd.clone()));

    assert_eq!(run().await.unwrap(), Outcome::Done(Odd::default()));
    assert_eq!(run().await.unwrap(), Outcome::Replayed(Odd::default()));
}

/// Runs work with this result, twice. Both calls must fail for good, and the work must be done once.
async fn assert_done_once<T: Serialize + DeserializeOwned>(result: impl Fn() -> T, reason: &str) {
    let _case = case(reason);
    let table = Table::new();
    let locks = table.process().locks("me");
    let done = AtomicU32::new(0);
    for _ in 0..2 {
        sleep(millis(5)).await;
        let work = async |_: &mut Attempt| {
            done.fetch_add(1, Ordering::Relaxed);
            Ok::<_, Error>((result(), vec![counted("effect")]))
        };
        let Err(error) = once(&locks).run_and_commit(work).await else { panic!("it was stored") };
        assert_eq!(error.kind(), ErrorKind::FailedBefore, "{error}");
        assert!(error.failure().unwrap().contains(reason), "{:?}", error.failure());
        assert!(error.failure().unwrap().len() < 1000);
    }
    assert_eq!((done.into_inner(), applied(&table, "effect")), (1, 0));
    assert_eq!(once(&locks).status().await.unwrap().unwrap().state, OnceState::Failed);
}

#[tokio::test(start_paused = true)]
async fn work_whose_result_cannot_be_stored_fails_for_good_and_is_not_done_again() {
    assert_done_once(|| f64::NAN, "invalid type: null, expected f64").await;
    assert_done_once(|| "x".repeat(400 * 1024), "409602").await;
    assert_done_once(|| BTreeMap::from([((1, 2), 3)]), "key must be a string").await;
    assert_done_once(|| Misread("x".repeat(300 * 1024)), "cannot be read").await;
    let deep = || (0..200).fold(json!(1), |inner, _| json!([inner]));
    assert_done_once(deep, "recursion limit").await;
}

/// It is written as text and read as a number.
struct Misread(String);

impl Serialize for Misread {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Misread {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        u32::deserialize(deserializer).map(|number| Misread(number.to_string()))
    }
}

#[tokio::test(start_paused = true)]
async fn work_whose_failure_cannot_be_stored_is_not_done_again() {
    let large = "x".repeat(400 * 1024);
    let odd = BTreeMap::from([((1, 2), 3)]);
    for by_hand in [false, true] {
        for is_large in [false, true] {
            let _case = case(format!("by hand: {by_hand}, large: {is_large}"));
            let table = Table::new();
            let locks = table.process().locks("me");
            let refused = if by_hand {
                let attempt = attempt(once(&locks)).await;
                if is_large { attempt.fail(&large).await } else { attempt.fail(&odd).await }
            } else {
                let work = async |attempt: &mut Attempt| {
                    if is_large { attempt.fail_for_good(&large) } else { attempt.fail_for_good(&odd) }
                };
                once(&locks).run(work).await.map(Outcome::into_result)
            };
            assert_eq!(refused.unwrap_err().kind(), ErrorKind::InvalidRequest);

            sleep(millis(5)).await;
            let error = once(&locks).start::<Value>().await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::FailedBefore, "{error}");
            let reason = if is_large { "409602" } else { "key must be a string" };
            assert!(error.failure().unwrap().contains(reason), "{:?}", error.failure());
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_stored_result_of_another_type_is_reported() {
    let table = Table::new();
    let locks = table.process().locks("me");
    attempt(once(&locks)).await.complete("text").await.unwrap();

    let error = once(&locks).start::<u32>().await.unwrap_err();

    assert_eq!(error.kind(), ErrorKind::InvalidRecord, "{error}");
    assert_eq!(error.invalid_attribute(), Some("outcome"));
}

#[tokio::test(start_paused = true)]
async fn works_nest_and_functions_that_share_a_payload_are_told_apart_by_their_keys() {
    let table = Table::new();
    let locks = table.process().locks("me");
    let inner = async || locks.once("inner").lease(LEASE).payload(&ORDER).run(async |_| Ok::<_, Error>(1)).await;
    let outer = async |_: &mut Attempt| Ok::<_, Error>(inner().await?.into_result() + 1);

    assert_eq!(locks.once("outer").lease(LEASE).payload(&ORDER).run(outer).await.unwrap(), Outcome::Done(2));
    assert_eq!(inner().await.unwrap(), Outcome::Replayed(1));

    let again = async |_: &mut Attempt| -> Result<i32, Error> { panic!("it was done") };
    assert_eq!(locks.once("outer").lease(LEASE).payload(&ORDER).run(again).await.unwrap(), Outcome::Replayed(2));

    // The work itself holds its key. A nested call with this key fails at once and does not
    // deadlock.
    let process: &Process = &table.process();
    let locks = process.locks("me");
    let itself = async |_: &mut Attempt| locks.once("loop").lease(LEASE).start::<Value>().await.map(|_| ());

    assert!(locks.once("loop").lease(LEASE).run(itself).await.unwrap_err().is_held());
}

#[tokio::test(start_paused = true)]
async fn the_status_of_a_work_is_read_without_touching_it() {
    let table = Table::new();
    let process = table.process();
    let locks = process.locks("me");

    assert_eq!(once(&locks).status().await.unwrap(), None);

    let first = attempt(once(&locks)).await;
    let open = once(&locks).status().await.unwrap().unwrap();
    assert_eq!((open.state, open.attempts, open.settled_at), (OnceState::Open, 1, None));

    first.complete(&1).await.unwrap();
    process.take_sent();

    let done = once(&locks).status().await.unwrap().unwrap();
    assert_eq!(process.take_operations(), ["GetItem"]);
    assert_eq!((done.state, done.attempts, done.first_seen_at), (OnceState::Done, 1, open.first_seen_at));
    assert_eq!(done.kept_until.unwrap().duration_since(done.settled_at.unwrap()).unwrap(), DAY);
}

#[tokio::test(start_paused = true)]
async fn a_final_failure_is_stored_and_not_retried() {
    let table = Table::new();
    let locks = table.process().locks("me");
    let failing = async |attempt: &mut Attempt| {
        attempt.fail_for_good(&json!({"reason": "declined"}))?;
        Err::<(), Box<dyn std::error::Error>>("declined".into())
    };

    assert_eq!(once(&locks).run(failing).await.unwrap_err().to_string(), "declined");

    let never = async |_: &mut Attempt| -> Result<(), Error> { panic!("it is not tried again") };
    let error = once(&locks).run(never).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::FailedBefore, "{error}");
    assert_eq!(error.failure(), Some(r#"{"reason":"declined"}"#));

    let status = once(&locks).status().await.unwrap().unwrap();
    assert_eq!((status.state, status.attempts), (OnceState::Failed, 1));

    let lucky = async |attempt: &mut Attempt| {
        attempt.fail_for_good("not in the end")?;
        Ok::<_, Error>(1)
    };

    locks.once("lucky").lease(LEASE).run(lucky).await.unwrap();
    assert_eq!(locks.once("lucky").status().await.unwrap().unwrap().state, OnceState::Done);
}

#[tokio::test(start_paused = true)]
async fn work_that_fails_is_released_and_tried_again() {
    let table = Table::new();
    let process = table.process();
    let locks = process.locks("me");
    let failing = async |_: &mut Attempt| Err::<(), Box<dyn std::error::Error>>("declined".into());

    let error = once(&locks).run(failing).await.unwrap_err();
    assert_eq!(error.to_string(), "declined");
    assert_eq!(process.take_operations(), ["UpdateItem", "UpdateItem"], "claim, release");

    sleep(millis(5)).await;
    let mut numbers = Vec::new();
    let work = async |attempt: &mut Attempt| {
        numbers.push(attempt.number());
        Ok::<_, Error>(7)
    };

    assert_eq!(once(&locks).run(work).await.unwrap(), Outcome::Done(7));
    assert_eq!(numbers, [2]);
}

#[tokio::test(start_paused = true)]
async fn the_debug_text_of_an_error_leaves_the_stored_failure_out() {
    let locks = Table::new().process().locks("me");
    attempt(once(&locks)).await.fail("card 4111-1111 was refused").await.unwrap();

    let error = once(&locks).start::<Value>().await.unwrap_err();

    assert!(error.failure().unwrap().contains("4111"), "{error}");
    assert!(!format!("{error:?}").contains("4111"), "{error:?}");
}

#[tokio::test(start_paused = true)]
async fn work_whose_result_is_too_large_beside_the_reason_of_a_reset_is_not_done_again() {
    let table = Table::new();
    let locks = table.process().locks("me");
    attempt(once(&locks)).await.fail(&"no such customer").await.unwrap();
    locks.operator().reset("order-42", &"r".repeat(2048)).await.unwrap();
    let done = AtomicU32::new(0);
    for _ in 0..3 {
        sleep(millis(5)).await;
        let work = async |_: &mut Attempt| {
            done.fetch_add(1, Ordering::Relaxed);
            Ok::<_, Error>("x".repeat(400 * 1024 - 1200))
        };
        let _ = once(&locks).run(work).await;
    }
    assert_eq!(done.into_inner(), 1);
}
