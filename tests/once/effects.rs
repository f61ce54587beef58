//! Effects in the completing transaction are applied exactly once.

use crate::{ROW, attempt, next_attempt, once, refused, replayed, unheard_or_lost};
use lambda_lock::once::{Attempt, Outcome};
use lambda_lock::{Error, ErrorKind};
use lambda_lock_testkit::{Fault, Table, applied, case, counted, millis};
use tokio::time::sleep;

#[tokio::test(start_paused = true)]
async fn effects_in_the_completing_transaction_are_applied_exactly_once() {
    for fault in unheard_or_lost() {
        let _case = case(format!("{fault:?}"));
        let table = Table::new();
        let process = table.process();
        let locks = process.locks("me");
        process.next([Fault::None, fault.clone()]);
        let work = async |_: &mut Attempt| Ok::<_, Error>((1, vec![counted("effect")]));

        let run = once(&locks).run_and_commit(work).await.unwrap();

        assert_eq!(run, Outcome::Done(1));
        let operations = process.take_operations();
        assert_eq!(operations, ["UpdateItem", "TransactWriteItems", "TransactWriteItems"]);
        assert!(once(&locks).run_and_commit(work).await.unwrap().is_replayed());
        assert_eq!(applied(&table, "effect"), 1);
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
async fn refused_effects_store_no_result_and_the_work_is_released() {
    let table = Table::new();
    let process = table.process();
    let locks = process.locks("me");
    let work = async |_: &mut Attempt| Ok::<_, Error>((1, vec![counted("effect"), refused("nowhere")]));

    let error = once(&locks).run_and_commit(work).await.unwrap_err();

    assert!(error.is_cancelled() && error.failed_writes()[0].index == 1, "{error}");
    assert_eq!(process.take_operations(), ["UpdateItem", "TransactWriteItems", "UpdateItem"]);
    assert_eq!(applied(&table, "effect"), 0);

    sleep(millis(5)).await;
    attempt(once(&locks)).await.complete(&1).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_result_that_does_not_fit_is_refused_before_it_is_sent_and_the_work_is_released() {
    let table = Table::new();
    let process = table.process();
    let locks = process.locks("me");
    let large = "x".repeat(400 * 1024);
    let first = attempt(once(&locks)).await;
    process.take_sent();

    let error = first.complete_with(&large, [counted("effect")]).await.unwrap_err();
    assert!(error.kind() == ErrorKind::InvalidRequest && error.to_string().contains("409602"), "{error}");
    assert!(error.to_string().contains("the next call does the work again"), "{error}");
    assert_eq!(process.take_operations(), ["UpdateItem"], "only given back");
    assert_eq!(applied(&table, "effect"), 0);

    sleep(millis(5)).await;
    let second = attempt(once(&locks)).await;
    let odd = std::collections::BTreeMap::from([((1, 2), 3)]);
    let error = second.complete(&odd).await.unwrap_err();
    assert!(
        error.kind() == ErrorKind::InvalidRequest && error.to_string().contains("the next call does the work again"),
        "{error}"
    );

    sleep(millis(5)).await;
    let third = attempt(once(&locks)).await;
    assert_eq!(third.number(), 3);

    third.complete(&large[..380 * 1024]).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_result_that_does_not_fit_beside_its_key_is_refused_before_it_is_sent() {
    let table = Table::new();
    let process = table.process();
    let locks = process.locks("me");
    let attempt = attempt(once(&locks)).await;
    process.take_sent();

    let error = attempt.complete(&"r".repeat(400 * 1024 - 100)).await.unwrap_err();

    assert_eq!(error.kind(), ErrorKind::InvalidRequest, "{error}");
    assert_eq!(process.take_operations(), ["UpdateItem"], "given back, and nothing else");
    assert!(table.is_released(ROW));
}

#[tokio::test(start_paused = true)]
async fn effects_that_dynamodb_recovers_after_five_seconds_are_applied_once() {
    let table = Table::new();
    let process = table.process();
    let locks = process.locks("me");
    process.next([Fault::None, Fault::Limbo]);
    let work = async |_: &mut Attempt| Ok::<_, Error>((1, vec![counted("effect")]));

    assert_eq!(once(&locks).run_and_commit(work).await.unwrap(), Outcome::Done(1));

    assert_eq!(applied(&table, "effect"), 1);
    assert_eq!(replayed(once(&locks)).await, 1);
}
