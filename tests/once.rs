//! Idempotent work: done once for each key, its outcome stored by the attempt that owns it.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a helper of a test may stop it")]

use aws_sdk_dynamodb::types::{AttributeValue, Put, TransactWriteItem, Update};
use lambda_lock::{Attempt, Budget, Error, ErrorKind, LockClient, Once, OnceState, Outcome, ReleaseOutcome, Started};
use lambda_lock_testkit::{EPOCH_SECONDS, Fault, Process, ROUND_TRIP, Table};
use serde::Serialize;
use serde_json::{Value, json};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

const LEASE: Duration = Duration::from_millis(21_000);
const DAY: Duration = Duration::from_secs(24 * 60 * 60);
/// The row of the work `order-42`.
const ROW: &str = "once/order-42";

fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

#[derive(Clone, Serialize)]
struct Order {
    id: &'static str,
    amount: u64,
}

const ORDER: Order = Order { id: "order-42", amount: 1250 };

fn once(locks: &LockClient) -> Once<'_> {
    locks.once("order-42").lease(LEASE)
}

/// The attempt that a call was granted.
async fn attempt(once: Once<'_>) -> Attempt {
    match once.start::<Value>().await.unwrap() {
        Started::Attempt(attempt) => attempt,
        Started::Replayed(result) => panic!("it was done already: {result}"),
    }
}

/// The result that a call got from the record.
async fn replayed(once: Once<'_>) -> Value {
    match once.start::<Value>().await.unwrap() {
        Started::Attempt(attempt) => panic!("it was not done yet: {attempt:?}"),
        Started::Replayed(result) => result,
    }
}

/// Counts how often it was applied, in a row of its own.
fn counted(id: &str) -> TransactWriteItem {
    let update = Update::builder()
        .table_name("locks")
        .key("key", AttributeValue::S(id.to_owned()))
        .update_expression("ADD applied :one")
        .expression_attribute_values(":one", AttributeValue::N("1".to_owned()));
    TransactWriteItem::builder().update(update.build().unwrap()).build()
}

fn refused(id: &str) -> TransactWriteItem {
    let put = Put::builder().table_name("locks").item("key", AttributeValue::S(id.to_owned()));
    let put = put.condition_expression("attribute_exists(nowhere)").build().unwrap();
    TransactWriteItem::builder().put(put).build()
}

fn applied(table: &Table, id: &str) -> u32 {
    table.attribute(id, "applied").map_or(0, |count| count.parse().unwrap())
}

fn applied_unheard() -> [Fault; 4] {
    [
        Fault::AnswerLost,
        Fault::NeverAnswers,
        Fault::failure_after_apply(),
        Fault::AppliedButSays(200, r#"{"Attributes": {"#),
    ]
}

fn not_applied() -> [Fault; 4] {
    [Fault::RequestLost, Fault::BlackHole, Fault::Says(500, ""), Fault::error("ThrottlingException")]
}

/// Takes over after the lease of whoever was granted the work before.
async fn next_attempt(table: &Table) -> Attempt {
    tokio::time::sleep(secs(100)).await;
    attempt(once(&table.process().locks("next"))).await
}

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
async fn the_record_is_as_its_wire_format_says() {
    let table = Table::new();
    let locks = table.process().builder().owner("me").ttl_attribute("expiresAt").build().unwrap();
    let first = attempt(once(&locks).payload(&ORDER).keep_for(secs(3600))).await;
    let (token, now) = (first.fencing_token(), EPOCH_SECONDS * 1000);
    let open = table.row(ROW).unwrap();
    assert!(open["recordVersionNumber"]["S"].as_str().unwrap().starts_with("ll1-"));
    assert_eq!(open["attempts"]["N"], "1");
    assert_eq!(open["firstSeenAt"]["N"], now.to_string());
    assert_eq!(open["keptUntilAt"]["N"], (now + 21_000 + 3_600_000).to_string());
    assert_eq!(open["expiresAt"]["N"], (EPOCH_SECONDS + 21 + 3600).to_string());
    assert_eq!(open["payloadHash"]["S"].as_str().unwrap().len(), 64);
    assert!(open.get("onceState").is_none());

    // Each request at a whole second.
    tokio::time::sleep(secs(10) - ROUND_TRIP).await;
    let mut first = first;
    first.renew().data("half way").await.unwrap();
    assert_eq!(table.attribute(ROW, "keptUntilAt").unwrap(), (now + 31_000 + 3_600_000).to_string());
    assert_eq!(table.attribute(ROW, "expiresAt").unwrap(), (EPOCH_SECONDS + 31 + 3600).to_string());
    tokio::time::sleep(secs(2) - ROUND_TRIP).await;
    first.complete(&json!([1])).await.unwrap();
    let settled = table.row(ROW).unwrap();
    assert!(settled["recordVersionNumber"]["S"].as_str().unwrap().starts_with("lo1-"));
    assert_eq!((&settled["onceState"]["S"], &settled["outcome"]["S"]), (&json!("done"), &json!("[1]")));
    assert_eq!(settled["outcomeAt"]["N"], (now + 12_000).to_string());
    assert_eq!(settled["keptUntilAt"]["N"], (now + 12_000 + 3_600_000).to_string());
    assert_eq!(settled["expiresAt"]["N"], (EPOCH_SECONDS + 12 + 3600).to_string());
    assert_eq!(settled["fencingToken"]["N"], token.to_string());
    for gone in ["leaseDuration", "leaseEndsAt", "isReleased", "data", "workflow"] {
        assert!(settled.get(gone).is_none(), "{gone}");
    }
    assert_eq!((&settled["attempts"], &settled["payloadHash"]), (&open["attempts"], &open["payloadHash"]));
}

#[tokio::test(start_paused = true)]
async fn whoever_comes_while_it_is_being_done_waits_for_the_result() {
    let table = Table::new();
    let first = attempt(once(&table.process().locks("first"))).await;
    let second = table.process();
    let waiting = tokio::spawn(async move {
        let budget = second.budget(secs(30)).reserve(secs(10));
        let locks = second.locks("second");
        locks.once("order-42").within(&budget).start::<Value>().await.map(|started| (started, budget.remaining()))
    });
    tokio::time::sleep(secs(5)).await;
    first.complete("the result").await.unwrap();
    let (started, remaining) = waiting.await.unwrap().unwrap();
    assert!(matches!(started, Started::Replayed(result) if result == "the result"));
    assert!(remaining.unwrap() > secs(24), "soon after the result was stored: {remaining:?}");
}

#[tokio::test(start_paused = true)]
async fn whoever_does_not_wait_or_waits_in_vain_hears_who_is_at_it() {
    let table = Table::new();
    let first = attempt(once(&table.process().locks("first"))).await;
    let process = table.process();
    let locks = process.locks("second");
    let error = once(&locks).start::<Value>().await.unwrap_err();
    assert!(error.held().unwrap().holder.starts_with("first/"), "without a budget nothing is waited for");
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
            process.set_latency(Duration::from_millis(20));
            let budget = process.budget(secs(60));
            let locks = process.locks(&format!("duplicate-{number}"));
            let work = async |_: &mut Attempt| {
                tokio::time::sleep(secs(2)).await;
                Ok::<_, Error>(calls.fetch_add(1, Ordering::Relaxed))
            };
            locks.once("order-42").payload(&ORDER).within(&budget).run(work).await.unwrap().into_result()
        });
    }
    assert_eq!(duplicates.join_all().await, [0; 20]);
    assert_eq!(calls.load(Ordering::Relaxed), 1);
}

#[tokio::test(start_paused = true)]
async fn a_crashed_attempt_is_taken_over_and_counted() {
    let table = Table::new();
    let crashed = attempt(once(&table.process().locks("crashed"))).await;
    assert_eq!(crashed.number(), 1);
    let (first_seen, token) = (crashed.first_seen_at().unwrap(), crashed.fencing_token());
    let second = next_attempt(&table).await;
    assert_eq!((second.number(), second.first_seen_at()), (2, Some(first_seen)));
    assert!(second.fencing_token() > token);
    second.complete(&1).await.unwrap();
    drop(crashed);
}

#[tokio::test(start_paused = true)]
async fn a_late_finisher_never_overwrites_what_another_attempt_does_or_did() {
    let table = Table::new();
    let process = table.process();
    for late_one in ["complete", "fail", "commit", "give back"] {
        for other_is_done in [false, true] {
            table.delete(ROW);
            let mut late = attempt(once(&process.locks("late"))).await;
            let other = next_attempt(&table).await;
            let other = if other_is_done {
                other.complete("the other's").await.unwrap();
                None
            } else {
                Some(other)
            };
            let before = table.row(ROW);
            let lost = match late_one {
                "complete" => late.complete("late").await.unwrap_err().is_lost(),
                "fail" => late.fail("late").await.unwrap_err().is_lost(),
                "commit" => late.complete_with("late", [counted("effect")]).await.unwrap_err().is_lost(),
                _ => {
                    let lost = late.checkpoint().await.unwrap_err().is_lost();
                    lost && late.give_back().await.unwrap() == ReleaseOutcome::AlreadyGone
                }
            };
            assert!(lost, "{late_one}, the other done: {other_is_done}");
            assert_eq!(table.row(ROW), before, "{late_one}, the other done: {other_is_done}");
            if let Some(other) = other {
                other.complete("the other's").await.unwrap();
            }
            assert_eq!(replayed(once(&process.locks("x"))).await, "the other's");
        }
    }
    assert_eq!(applied(&table, "effect"), 0);
}

#[tokio::test(start_paused = true)]
async fn a_completion_that_arrives_after_a_takeover_is_refused() {
    let table = Table::new();
    let process = table.process();
    let late = attempt(once(&process.locks("late"))).await;
    process.next([Fault::ArrivesLate(secs(200)), Fault::BlackHole, Fault::BlackHole, Fault::BlackHole]);
    assert!(late.complete("late").await.unwrap_err().is_unknown());
    let other = next_attempt(&table).await;
    tokio::time::sleep(secs(200)).await;
    other.complete("the other's").await.unwrap();
    assert_eq!(replayed(once(&process.locks("x"))).await, "the other's");
}

#[tokio::test(start_paused = true)]
async fn a_completion_that_arrives_after_its_work_was_given_back_is_refused() {
    let table = Table::new();
    let process = table.process();
    let locks = process.locks("late");
    let late = attempt(once(&locks)).await;
    process.next([Fault::ArrivesLate(secs(10)), Fault::BlackHole, Fault::BlackHole]);
    assert!(late.complete("late").await.unwrap_err().is_unknown());
    assert!(table.attribute(ROW, "isReleased").is_some(), "given back as well as could be");
    tokio::time::sleep(secs(20)).await;
    let next = attempt(once(&locks)).await;
    assert_eq!(next.number(), 2);
    next.complete("the next one's").await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn another_payload_is_a_mismatch_whatever_became_of_the_first() {
    let tampered = Order { amount: 1, ..ORDER };
    for state in ["running", "crashed", "given back", "done", "failed"] {
        let table = Table::new();
        let process = table.process();
        let locks = process.locks("me");
        let first = attempt(once(&locks).payload(&ORDER)).await;
        let kept = match state {
            "running" | "crashed" => Some(first),
            "given back" => {
                first.give_back().await.unwrap();
                None
            }
            "done" => {
                first.complete(&1).await.unwrap();
                None
            }
            _ => {
                first.fail(&1).await.unwrap();
                None
            }
        };
        tokio::time::sleep(if state == "crashed" { secs(100) } else { Duration::from_millis(5) }).await;
        let before = table.row(ROW);
        let error = once(&locks).payload(&tampered).start::<Value>().await.unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::PayloadMismatch), "{state}: {error}");
        assert_eq!(table.row(ROW), before, "{state}");
        drop(kept);
    }
}

#[tokio::test(start_paused = true)]
async fn the_same_payload_in_another_order_is_the_same_and_no_payload_is_not_compared() {
    let table = Table::new();
    let locks = table.process().locks("me");
    attempt(once(&locks).payload(&ORDER)).await.complete(&1).await.unwrap();
    assert_eq!(replayed(once(&locks).payload(&json!({"amount": 1250, "id": "order-42"}))).await, 1);
    assert_eq!(replayed(once(&locks)).await, 1);

    let open = attempt(locks.once("open").lease(LEASE)).await;
    assert_eq!(table.attribute("once/open", "payloadHash"), None);
    open.give_back().await.unwrap();
    tokio::time::sleep(Duration::from_millis(5)).await;
    attempt(locks.once("open").lease(LEASE).payload(&ORDER)).await.give_back().await.unwrap();
    tokio::time::sleep(Duration::from_millis(5)).await;
    let error = locks.once("open").lease(LEASE).payload(&json!(1)).start::<Value>().await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::PayloadMismatch), "the first payload that was given counts: {error}");
}

#[tokio::test(start_paused = true)]
async fn falsy_payloads_and_results_are_payloads_and_results() {
    let table = Table::new();
    let locks = table.process().locks("me");
    for (number, falsy) in [json!(null), json!(0), json!(false), json!(""), json!([]), json!({})].iter().enumerate() {
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

#[tokio::test(start_paused = true)]
async fn a_work_that_fails_is_given_back_and_tried_again() {
    let table = Table::new();
    let process = table.process();
    let locks = process.locks("me");
    let failing = async |_: &mut Attempt| Err::<(), Box<dyn std::error::Error>>("declined".into());
    let error = once(&locks).run(failing).await.unwrap_err();
    assert_eq!(error.to_string(), "declined");
    assert_eq!(process.take_operations(), ["UpdateItem", "UpdateItem"], "claim, release");
    tokio::time::sleep(Duration::from_millis(5)).await;
    let mut numbers = Vec::new();
    let work = async |attempt: &mut Attempt| {
        numbers.push(attempt.number());
        Ok::<_, Error>(7)
    };
    assert_eq!(once(&locks).run(work).await.unwrap(), Outcome::Done(7));
    assert_eq!(numbers, [2]);
}

#[tokio::test(start_paused = true)]
async fn a_failure_for_good_is_stored_and_not_tried_again() {
    let table = Table::new();
    let locks = table.process().locks("me");
    let failing = async |attempt: &mut Attempt| {
        attempt.fail_for_good(&json!({"reason": "declined"}))?;
        Err::<(), Box<dyn std::error::Error>>("declined".into())
    };
    assert_eq!(once(&locks).run(failing).await.unwrap_err().to_string(), "declined");
    let never = async |_: &mut Attempt| -> Result<(), Error> { panic!("it is not tried again") };
    let error = once(&locks).run(never).await.unwrap_err();
    let ErrorKind::FailedBefore { failure } = error.kind() else { panic!("{error}") };
    assert_eq!(failure, r#"{"reason":"declined"}"#);
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
async fn a_record_whose_time_is_over_is_as_if_it_had_never_been() {
    for failed in [false, true] {
        let table = Table::new();
        let process = table.process();
        let locks = process.locks("me");
        let first = attempt(once(&locks).payload(&ORDER).keep_for(secs(60))).await;
        let token = first.fencing_token();
        if failed {
            first.fail(&1).await.unwrap()
        } else {
            first.complete(&1).await.unwrap()
        }
        let again = || once(&locks).payload(&json!("another payload")).keep_for(secs(60));
        tokio::time::sleep(secs(61)).await;
        assert!(again().start::<Value>().await.is_err(), "clocks disagree, so it counts a little longer");
        tokio::time::sleep(secs(2)).await;
        process.take_sent();
        let anew = attempt(again()).await;
        assert_eq!(process.take_operations(), ["UpdateItem", "UpdateItem"], "refused claim, take");
        assert_eq!(anew.number(), 1);
        assert!(anew.fencing_token() > token, "but for the fencing token");
        assert_ne!(anew.first_seen_at(), None);
        for gone in ["onceState", "outcome", "outcomeAt", "isReleased"] {
            assert_eq!(table.attribute(ROW, gone), None, "{gone}");
        }
        anew.complete(&2).await.unwrap();
        assert_eq!(replayed(again()).await, 2);
    }
}

#[tokio::test(start_paused = true)]
async fn an_open_record_whose_time_is_over_is_forgotten_too_but_not_while_it_is_held() {
    let table = Table::new();
    let locks = table.process().locks("me");
    let short = || once(&locks).payload(&ORDER).keep_for(secs(1));
    let mut first = attempt(short()).await;
    first.renew().data("progress").await.unwrap();
    // Whoever keeps records for less than the lease still cannot disturb a living holder.
    tokio::time::sleep(secs(20)).await;
    assert!(short().start::<Value>().await.unwrap_err().is_held());
    first.give_back().await.unwrap();
    tokio::time::sleep(secs(30)).await;
    let anew = attempt(once(&locks).payload(&json!("another payload"))).await;
    assert_eq!((anew.number(), anew.data()), (1, None));
    anew.give_back().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_plain_lock_and_an_idempotent_work_never_take_each_others_rows() {
    let table = Table::new();
    let process = table.process();
    let locks = process.locks("me");
    for error in [
        locks.try_acquire(ROW).lease(LEASE).await.unwrap_err(),
        locks.peek(ROW).await.unwrap_err(),
        locks.release_workflow(ROW, "arn").await.unwrap_err(),
    ] {
        assert!(matches!(error.kind(), ErrorKind::InvalidRequest) && error.to_string().contains("once/"), "{error}");
    }
    let open = attempt(once(&locks)).await;
    assert!(locks.resume(open.token()).await.is_err());
    assert!(locks.release(open.token()).await.is_err());
    assert!(locks.reclaim(open.token()).lease(LEASE).await.is_err());

    // A lock with the same name is another row, and held beside the work.
    let lock = locks.try_acquire("order-42").lease(LEASE).await.unwrap().granted().unwrap();
    open.complete(&1).await.unwrap();
    lock.release().await.unwrap();

    // Even a request that ignores the namespace: a plain Claim on a settled record, at any time.
    process.take_sent();
    let other = locks.try_acquire("other").lease(LEASE).await.unwrap().granted().unwrap();
    let mut claim = process.take_sent().remove(0);
    claim.body = claim.body.replace(r#"{"S":"other"}"#, r#"{"S":"once/order-42"}"#);
    tokio::time::sleep(DAY * 30).await;
    let before = table.row(ROW);
    assert!(!table.replay(&claim));
    assert_eq!(table.row(ROW), before);
    drop(other);
    // And the Claim of a work on a plain lock's row, which is free.
    attempt(locks.once("third").lease(LEASE)).await.give_back().await.unwrap();
    let mut claim = process.take_sent().remove(0);
    claim.body = claim.body.replace("once/third", "order-42");
    assert!(!table.replay(&claim));
}

#[tokio::test(start_paused = true)]
async fn a_row_that_is_no_record_of_a_work_is_left_as_it_is() {
    let table = Table::new();
    let locks = table.process().locks("me");
    let plain = locks.try_acquire("plain").lease(LEASE).await.unwrap().granted().unwrap();
    plain.release().await.unwrap();
    let mut released = table.row("plain").unwrap();
    released["key"] = json!({"S": ROW});
    let done = {
        attempt(locks.once("done").lease(LEASE)).await.complete(&1).await.unwrap();
        let mut done = table.row("once/done").unwrap();
        done["key"] = json!({"S": ROW});
        done
    };
    let with = |name: &str, value: Value| {
        let mut row = done.clone();
        row[name] = value;
        row
    };
    for (row, attribute) in [
        (json!({"key": {"S": ROW}, "text": {"S": "somebody else's"}}), "attempts"),
        (released, "attempts"),
        (with("attempts", json!({"S": "1"})), "attempts"),
        (with("firstSeenAt", json!({"N": "-1"})), "firstSeenAt"),
        (with("keptUntilAt", json!({"NULL": true})), "keptUntilAt"),
        (with("payloadHash", json!({"N": "1"})), "payloadHash"),
        (with("onceState", json!({"S": "perhaps"})), "onceState"),
        (with("outcome", json!({"B": "eA=="})), "outcome"),
        (with("outcomeAt", json!({"S": "soon"})), "outcomeAt"),
    ] {
        table.put(row.clone());
        for error in [once(&locks).start::<Value>().await.unwrap_err(), once(&locks).status().await.unwrap_err()] {
            assert!(matches!(error.kind(), ErrorKind::InvalidRecord), "{attribute}: {error}");
            assert!(error.to_string().contains(attribute) && error.to_string().contains(ROW), "{error}");
        }
        assert_eq!(table.row(ROW), Some(row));
    }
}

#[tokio::test(start_paused = true)]
async fn a_result_of_another_type_is_said_to_be_one() {
    let table = Table::new();
    let locks = table.process().locks("me");
    attempt(once(&locks)).await.complete("text").await.unwrap();
    let error = once(&locks).start::<u32>().await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::InvalidRecord), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_result_that_does_not_fit_is_refused_before_it_is_sent_and_the_work_given_back() {
    let table = Table::new();
    let process = table.process();
    let locks = process.locks("me");
    let large = "x".repeat(400 * 1024);
    let first = attempt(once(&locks)).await;
    process.take_sent();
    let error = first.complete_with(&large, [counted("effect")]).await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::InvalidRequest) && error.to_string().contains("409602"), "{error}");
    assert_eq!(process.take_operations(), ["UpdateItem"], "only given back");
    assert_eq!(applied(&table, "effect"), 0);
    tokio::time::sleep(Duration::from_millis(5)).await;
    let second = attempt(once(&locks)).await;
    let odd = std::collections::BTreeMap::from([((1, 2), 3)]);
    assert!(matches!(second.complete(&odd).await.unwrap_err().kind(), ErrorKind::InvalidRequest));
    tokio::time::sleep(Duration::from_millis(5)).await;
    let third = attempt(once(&locks)).await;
    assert_eq!(third.number(), 3);
    third.complete(&large[..380 * 1024]).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_missing_key_and_a_payload_that_is_no_json_are_refused_before_any_request() {
    let table = Table::new();
    let process = table.process();
    let locks = process.locks("me");
    let odd = std::collections::BTreeMap::from([((1, 2), 3)]);
    for error in [
        locks.once("").lease(LEASE).start::<Value>().await.unwrap_err(),
        locks.once("k".repeat(2048)).lease(LEASE).start::<Value>().await.unwrap_err(),
        locks.once(("k", "sort")).lease(LEASE).start::<Value>().await.unwrap_err(),
        locks.once("k").lease(LEASE).payload(&odd).start::<Value>().await.unwrap_err(),
        locks.once("k").start::<Value>().await.unwrap_err(),
    ] {
        assert!(matches!(error.kind(), ErrorKind::InvalidRequest), "{error}");
    }
    let spent = process.budget(Duration::ZERO);
    let error = locks.once("k").within(&spent).start::<Value>().await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::OutOfTime { .. }), "no time remains: {error}");
    let unknown = Budget::unknown();
    assert!(locks.once("k").within(&unknown).start::<Value>().await.is_err());
    assert_eq!(process.take_sent().len(), 0);
}

#[tokio::test(start_paused = true)]
async fn every_lost_answer_ends_with_the_result_stored_once() {
    for (position, fault) in (0..2)
        .flat_map(|position| applied_unheard().into_iter().chain(not_applied()).map(move |fault| (position, fault)))
    {
        let table = Table::new();
        let process = table.process();
        let locks = process.locks("me");
        process.next(std::iter::repeat_n(Fault::None, position).chain([fault.clone()]));
        let calls = AtomicU32::new(0);
        let work = async |attempt: &mut Attempt| {
            calls.fetch_add(1, Ordering::Relaxed);
            assert_eq!(attempt.number(), 1, "an attempt of unknown outcome is the same attempt: {fault:?}");
            Ok::<_, Error>("r")
        };
        let run = once(&locks).run(async |attempt| work(attempt).await.map(str::to_owned)).await;
        assert_eq!(run.unwrap(), Outcome::Done("r".to_owned()), "{position} {fault:?}");
        assert!(process.take_sent().len() <= 4, "{position} {fault:?}");
        assert_eq!(replayed(once(&locks)).await, "r");
        assert_eq!(calls.into_inner(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn effects_in_the_completing_transaction_are_applied_exactly_once() {
    for fault in applied_unheard().into_iter().chain(not_applied()) {
        let table = Table::new();
        let process = table.process();
        let locks = process.locks("me");
        process.next([Fault::None, fault.clone()]);
        let work = async |_: &mut Attempt| Ok::<_, Error>((1, vec![counted("effect")]));
        let run = once(&locks).run_and_commit(work).await.unwrap();
        assert_eq!(run, Outcome::Done(1), "{fault:?}");
        let operations = process.take_operations();
        assert_eq!(operations, ["UpdateItem", "TransactWriteItems", "TransactWriteItems"], "{fault:?}");
        assert!(once(&locks).run_and_commit(work).await.unwrap().is_replayed());
        assert_eq!(applied(&table, "effect"), 1, "{fault:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_attempt_that_was_taken_over_applies_no_effects() {
    let table = Table::new();
    let late = attempt(once(&table.process().locks("late"))).await;
    let other = next_attempt(&table).await;
    assert!(late.complete_with(&1, [counted("effect")]).await.unwrap_err().is_lost());
    assert_eq!(applied(&table, "effect"), 0);
    other.complete_with(&2, [counted("effect")]).await.unwrap();
    assert_eq!(applied(&table, "effect"), 1);
}

#[tokio::test(start_paused = true)]
async fn refused_effects_store_no_result_and_the_work_is_given_back() {
    let table = Table::new();
    let process = table.process();
    let locks = process.locks("me");
    let work = async |_: &mut Attempt| Ok::<_, Error>((1, vec![counted("effect"), refused("nowhere")]));
    let error = once(&locks).run_and_commit(work).await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Cancelled(failed) if failed[0].index == 1), "{error}");
    assert_eq!(process.take_operations(), ["UpdateItem", "TransactWriteItems", "UpdateItem"]);
    assert_eq!(applied(&table, "effect"), 0);
    tokio::time::sleep(Duration::from_millis(5)).await;
    attempt(once(&locks)).await.complete(&1).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_result_that_landed_before_its_effects_would_be_called_refused_counts() {
    let table = Table::new();
    let process = table.process();
    let locks = process.locks("me");
    // The guard row makes the effects fail while it is there.
    table.put(json!({"key": {"S": "guard"}}));
    let guarded = || {
        let put = Put::builder().table_name("locks").item("key", AttributeValue::S("guard".to_owned()));
        let put = put.condition_expression("attribute_not_exists(#pk)").expression_attribute_names("#pk", "key");
        TransactWriteItem::builder().put(put.build().unwrap()).build()
    };
    let first = attempt(once(&locks)).await;
    process.next([
        Fault::ArrivesLate(Duration::from_millis(1200)),
        Fault::Slow(Duration::ZERO),
        Fault::Slow(Duration::from_millis(500)),
    ]);
    let rows = table.clone();
    let removing = tokio::spawn(async move {
        tokio::time::sleep(Duration::from_millis(1100)).await;
        rows.delete("guard");
    });
    first.complete_with(&1, [guarded(), counted("effect")]).await.unwrap();
    removing.await.unwrap();
    assert_eq!(applied(&table, "effect"), 1);
    assert_eq!(replayed(once(&locks)).await, 1);
}

#[tokio::test(start_paused = true)]
async fn persistence_errors_on_each_request_are_said_and_nothing_is_half_done() {
    let scripted = |code: &str| Fault::error(code);
    for (code, kind) in [("AccessDeniedException", "Denied"), ("ResourceNotFoundException", "Table")] {
        for position in 0..2 {
            let table = Table::new();
            let process = table.process();
            let locks = process.locks("me");
            process.next(std::iter::repeat_n(Fault::None, position).chain([scripted(code)]));
            let error = once(&locks).run(async |_| Ok::<_, Error>(1)).await.unwrap_err();
            assert!(format!("{:?}", error.kind()).starts_with(kind), "{code} at {position}: {error}");
            process.clear();
            tokio::time::sleep(Duration::from_millis(5)).await;
            assert_eq!(once(&locks).run(async |_| Ok::<_, Error>(2)).await.unwrap(), Outcome::Done(2));
        }
    }
    let table = Table::new();
    let process = table.process();
    process.next(std::iter::repeat_n(Fault::BlackHole, 20));
    assert!(once(&process.locks("me")).start::<Value>().await.unwrap_err().is_unknown());
}

#[tokio::test(start_paused = true)]
async fn an_invocation_that_timed_out_is_taken_over_when_its_deadline_has_passed() {
    let table = Table::new();
    let killed = {
        let process = table.process();
        let budget = process.budget(secs(10));
        attempt(process.locks("killed").once("order-42").within(&budget)).await
    };
    let retry = table.process();
    let locks = retry.locks("retry");
    tokio::time::sleep(secs(5)).await;
    let short = retry.budget(secs(2));
    assert!(locks.once("order-42").within(&short).start::<Value>().await.unwrap_err().is_held());
    tokio::time::sleep(secs(5)).await;
    let budget = retry.budget(secs(20));
    let second = attempt(locks.once("order-42").within(&budget)).await;
    assert!(budget.remaining().unwrap() > secs(15), "no longer than grace, drift and skew: {:?}", budget.remaining());
    assert_eq!(second.number(), 2);
    second.complete(&1).await.unwrap();
    drop(killed);
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

    // The same key within its own work is held by it: said at once, not a deadlock.
    let process: &Process = &table.process();
    let locks = process.locks("me");
    let itself = async |_: &mut Attempt| locks.once("loop").lease(LEASE).start::<Value>().await.map(|_| ());
    assert!(locks.once("loop").lease(LEASE).run(itself).await.unwrap_err().is_held());
}

#[tokio::test(start_paused = true)]
async fn checkpoints_commits_and_fences_work_between_the_steps_of_an_attempt() {
    let table = Table::new();
    let process = table.process();
    let locks = process.locks("me");
    let mut first = attempt(once(&locks)).await;
    tokio::time::sleep(secs(15)).await;
    first.checkpoint().await.unwrap();
    first.fits(secs(19)).unwrap();
    first.commit([counted("step")]).data("step 1").await.unwrap();
    let fence = first.condition_check().unwrap();
    process
        .dynamodb()
        .transact_write_items()
        .transact_items(counted("own"))
        .transact_items(fence)
        .send()
        .await
        .unwrap();
    let fence = first.condition_check().unwrap();
    first.complete(&1).await.unwrap();
    let fenced = process.dynamodb().transact_write_items().transact_items(counted("own")).transact_items(fence);
    assert!(fenced.send().await.is_err(), "a settled record fences off its own attempt");
    assert_eq!((applied(&table, "step"), applied(&table, "own")), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn the_progress_of_a_crashed_attempt_is_there_for_the_next() {
    let table = Table::new();
    let mut crashed = attempt(once(&table.process().locks("crashed"))).await;
    crashed.renew().data("step 1 of 2").await.unwrap();
    let next = next_attempt(&table).await;
    assert_eq!(next.data(), Some(b"step 1 of 2".as_slice()));
    next.complete(&1).await.unwrap();
    drop(crashed);
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
async fn a_table_with_a_sort_key_keeps_its_sort_key() {
    let table = Table::with_keys(&["pk", "sk"]);
    let locks = table.process().builder().key_attribute("pk").sort_key_attribute("sk").build().unwrap();
    let work = || locks.once(("order", "42")).lease(LEASE);
    attempt(work()).await.complete_with(&1, []).await.unwrap();
    assert_eq!(replayed(work()).await, 1);
    attempt(locks.once(("order", "43")).lease(LEASE)).await.give_back().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_attempt_that_is_recognised_late_is_renewed_before_it_begins() {
    let table = Table::new();
    let process = table.process();
    process.next([Fault::NeverAnswers]);
    let locks = process.locks("me");
    let lease = Duration::from_millis(1500);
    let first = attempt(locks.once("order-42").lease(lease)).await;
    assert_eq!(process.take_operations(), ["UpdateItem", "GetItem", "UpdateItem"]);
    // Less than a third of its lease was left when it was recognised. 1.5 s / 1.05
    assert_eq!(first.remaining(), Duration::from_nanos(1_428_571_428) - ROUND_TRIP);
    assert_eq!(first.number(), 1);
    first.complete(&1).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_attempt_that_is_recognised_late_and_cannot_be_renewed_is_given_back_and_said_to_be_unknown() {
    let table = Table::new();
    let process = table.process();
    process.next([Fault::NeverAnswers, Fault::None].into_iter().chain(vec![Fault::RequestLost; 200]));
    let network = process.clone();
    let end_of_brown_out = tokio::spawn(async move {
        tokio::time::sleep(Duration::from_millis(4_500)).await;
        network.clear();
    });
    let locks = process.locks("me");
    let error = locks.once("order-42").lease(Duration::from_millis(1500)).start::<Value>().await.unwrap_err();
    end_of_brown_out.await.unwrap();
    assert!(error.is_unknown(), "{error}");
    assert!(table.attribute(ROW, "isReleased").is_some(), "nobody is blocked by what was given up");
}

/// Two find a record whose time is over. The faster one begins anew and crashes; the slower one, which would have
/// begun anew too, then takes over from it: that is the second attempt.
#[tokio::test(start_paused = true)]
async fn a_crashed_attempt_counts_also_for_whoever_found_the_record_before_it_out_of_time() {
    for done in [true, false] {
        let table = Table::new();
        let first = attempt(once(&table.process().locks("first")).keep_for(secs(60))).await;
        if done {
            first.complete(&1).await.unwrap();
        } else {
            first.give_back().await.unwrap();
        }
        tokio::time::sleep(secs(100)).await;
        let (slow, fast) = (table.process(), table.process());
        // Its Claim is refused because the record is out of time, and its Take arrives too late.
        slow.next([Fault::None, Fault::Slow(Duration::from_millis(500))]);
        let budget = slow.budget(secs(60)).reserve(secs(10));
        let waiting = tokio::spawn(async move {
            let locks = slow.locks("slow");
            let begun = attempt(locks.once("order-42").keep_for(secs(60)).within(&budget)).await;
            (begun, slow)
        });
        tokio::time::sleep(Duration::from_millis(100)).await;
        let crashed = attempt(fast.locks("fast").once("order-42").lease(secs(2)).keep_for(secs(60))).await;
        assert_eq!(crashed.number(), 1, "done: {done}");
        let first_seen = crashed.first_seen_at();
        let (second, slow) = waiting.await.unwrap();
        assert_eq!((second.number(), second.first_seen_at()), (2, first_seen), "done: {done}");
        second.complete(&2).await.unwrap();
        drop((crashed, slow));
    }
}

#[tokio::test(start_paused = true)]
async fn after_an_attempt_has_ended_no_copy_of_its_requests_begins_it_again() {
    for ending in ["given back", "done", "done in a transaction", "failed"] {
        for behind in [0, 60_000] {
            let table = Table::new();
            let process = table.process();
            process.set_date_offset(None);
            // The second attempt of the first call never arrives; the first one is applied late.
            process.next([Fault::ArrivesLate(Duration::from_millis(1500)), Fault::None, Fault::BlackHole]);
            let locks = process.locks("me");
            let begun = attempt(once(&locks)).await;
            assert_eq!(process.sent().len(), 4);
            process.clock.jump_wall(-behind);
            match ending {
                "given back" => drop(begun.give_back().await.unwrap()),
                "done" => begun.complete(&1).await.unwrap(),
                "done in a transaction" => begun.complete_with(&1, [counted("effect")]).await.unwrap(),
                _ => begun.fail(&1).await.unwrap(),
            }
            let ended = table.row(ROW);
            for copy in process.take_sent() {
                table.replay(&copy);
                assert_eq!(table.row(ROW), ended, "{ending}, {behind} ms behind, applied again: {copy:?}");
            }
            assert!(applied(&table, "effect") <= 1, "{ending}, {behind} ms behind");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_work_that_was_given_back_is_begun_again_with_one_request() {
    for (latency, set_back) in [(Duration::ZERO, 0), (Duration::ZERO, 7), (ROUND_TRIP / 2, 10)] {
        let table = Table::new();
        let process = table.process();
        process.set_latency(latency);
        let locks = process.locks("me");
        let first = attempt(once(&locks)).await;
        process.clock.jump_wall(-set_back);
        first.give_back().await.unwrap();
        process.take_sent();
        let second = attempt(once(&locks)).await;
        assert_eq!(process.take_operations(), ["UpdateItem"], "{latency:?} each way, the clock {set_back} ms back");
        assert_eq!(second.number(), 2);
        second.complete(&1).await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn every_read_of_a_record_is_consistent() {
    let table = Table::new();
    let process = table.process();
    let locks = process.locks("me");
    once(&locks).status().await.unwrap();
    process.next([Fault::AnswerLost]);
    let first = attempt(once(&locks)).await;
    let waited = locks.once("order-42").within(&process.budget(secs(4))).start::<Value>().await;
    assert!(waited.unwrap_err().is_held());
    first.complete(&1).await.unwrap();
    let reads: Vec<_> = process.take_sent().into_iter().filter(|sent| sent.operation == "GetItem").collect();
    assert!(reads.len() >= 5, "{}", reads.len());
    for read in reads {
        let body: Value = serde_json::from_str(&read.body).unwrap();
        assert_eq!(body["ConsistentRead"], true, "{body}");
    }
}

#[tokio::test(start_paused = true)]
async fn whoever_waits_for_a_result_goes_on_over_a_bad_connection_until_its_time_is_over() {
    let table = Table::new();
    let (first, second) = (table.process(), table.process());
    let doing = attempt(once(&first.locks("first"))).await;
    let budget = second.budget(secs(60)).reserve(secs(10));
    let network = second.clone();
    let waiting = tokio::spawn(async move {
        let locks = network.locks("second");
        locks.once("order-42").within(&budget).start::<Value>().await
    });
    // Long after a call that waits for nobody would have given up.
    tokio::time::sleep(secs(10)).await;
    for fault in [Fault::error("ThrottlingException"), Fault::RequestLost, Fault::BlackHole, Fault::Says(503, "")] {
        second.next([fault]);
        tokio::time::sleep(secs(2)).await;
    }
    doing.complete("the result").await.unwrap();
    let started = waiting.await.unwrap().unwrap();
    assert!(matches!(started, Started::Replayed(result) if result == "the result"));
}

#[tokio::test(start_paused = true)]
async fn a_record_whose_time_has_just_ended_can_be_begun_by_whoever_finds_it_free() {
    let table = Table::new();
    let locks = table.process().locks("me");
    attempt(once(&locks).keep_for(secs(10))).await.give_back().await.unwrap();
    // Over by its own clock, and not yet by everybody's.
    tokio::time::sleep(secs(11)).await;

    let again = attempt(once(&locks).keep_for(secs(10))).await;

    assert_eq!(again.number(), 2);
    again.give_back().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_attempt_that_is_given_back_counts_for_its_time_from_then_on() {
    for unheard in [false, true] {
        let table = Table::new();
        let process = table.process();
        let locks = process.locks("me");
        if unheard {
            process.next([Fault::AnswerLost, Fault::BlackHole, Fault::BlackHole, Fault::BlackHole]);
            assert!(once(&locks).keep_for(secs(100)).start::<Value>().await.unwrap_err().is_unknown());
        } else {
            let attempt = attempt(once(&locks).keep_for(secs(100))).await;
            tokio::time::sleep(secs(60)).await;
            attempt.give_back().await.unwrap();
        }
        let number = |name| table.attribute(ROW, name).unwrap().parse::<u64>().unwrap();
        assert!(table.attribute(ROW, "isReleased").is_some());
        assert_eq!(number("keptUntilAt"), number("leaseEndsAt") + 100_000, "unheard: {unheard}");
    }
}

#[tokio::test(start_paused = true)]
async fn wrong_dates_do_not_make_a_result_be_forgotten_early() {
    let table = Table::new();
    let process = table.process();
    let locks = process.locks("me");
    process.set_date_offset(Some(-3600));
    for _ in 0..2 {
        locks.peek("another").await.unwrap();
    }
    let attempt = attempt(once(&locks).keep_for(secs(100))).await;
    let now = process.clock.wall_millis();

    attempt.complete(&json!("done")).await.unwrap();

    let kept: u64 = table.attribute(ROW, "keptUntilAt").unwrap().parse().unwrap();
    assert!(kept >= now + 100_000, "until {} ms from then", kept as i64 - now as i64);
}

#[tokio::test(start_paused = true)]
async fn a_result_that_does_not_fit_beside_its_key_is_refused_before_it_is_sent() {
    let table = Table::new();
    let process = table.process();
    let locks = process.locks("me");
    let attempt = attempt(once(&locks)).await;
    process.take_sent();

    let error = attempt.complete(&"r".repeat(400 * 1024 - 100)).await.unwrap_err();

    assert!(matches!(error.kind(), ErrorKind::InvalidRequest), "{error}");
    assert_eq!(process.take_operations(), ["UpdateItem"], "given back, and nothing else");
    assert!(table.attribute(ROW, "isReleased").is_some());
}
