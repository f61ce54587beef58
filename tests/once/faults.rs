//! Responses that are lost, late or refusals.

use crate::{ROW, attempt, once, replayed, unheard_or_lost};
use lambda_lock::Error;
use lambda_lock::once::{Attempt, Outcome};
use lambda_lock_testkit::{Fault, ROUND_TRIP, Table, applied, case, counted, millis};
use serde_json::Value;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use tokio::time::sleep;

#[tokio::test(start_paused = true)]
async fn every_lost_answer_ends_with_the_result_stored_once() {
    for (position, fault) in (0..2).flat_map(|position| unheard_or_lost().map(move |fault| (position, fault))) {
        let _case = case(format!("request {position}, {fault:?}"));
        let table = Table::new();
        let process = table.process();
        let locks = process.locks("me");
        process.next(std::iter::repeat_n(Fault::None, position).chain([fault.clone()]));
        let calls = AtomicU32::new(0);
        let work = async |attempt: &mut Attempt| {
            calls.fetch_add(1, Ordering::Relaxed);
            assert_eq!(attempt.number(), 1, "an attempt of unknown outcome is the same attempt");
            Ok::<_, Error>("r")
        };

        let run = once(&locks).run(async |attempt| work(attempt).await.map(str::to_owned)).await;

        assert_eq!(run.unwrap(), Outcome::Done("r".to_owned()));
        assert!(process.take_sent().len() <= 4);
        assert_eq!(replayed(once(&locks)).await, "r");
        assert_eq!(calls.into_inner(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn an_error_of_dynamodb_at_any_request_is_reported_and_nothing_is_half_done() {
    for (code, kind) in [("AccessDeniedException", "Denied"), ("ResourceNotFoundException", "Table")] {
        for position in 0..2 {
            let _case = case(format!("{code} at {position}"));
            let table = Table::new();
            let process = table.process();
            let locks = process.locks("me");
            process.next(std::iter::repeat_n(Fault::None, position).chain([Fault::error(code)]));

            let error = once(&locks).run(async |_| Ok::<_, Error>(1)).await.unwrap_err();
            assert!(format!("{:?}", error.kind()).starts_with(kind), "{error}");
            process.clear();

            sleep(millis(5)).await;
            assert_eq!(once(&locks).run(async |_| Ok::<_, Error>(2)).await.unwrap(), Outcome::Done(2));
        }
    }

    let table = Table::new();
    let process = table.process();
    process.next(std::iter::repeat_n(Fault::BlackHole, 20));

    assert!(once(&process.locks("me")).start::<Value>().await.unwrap_err().is_unknown());
}

#[tokio::test(start_paused = true)]
async fn an_attempt_that_is_recognised_late_is_renewed_before_it_begins() {
    let table = Table::new();
    let process = table.process();
    process.next([Fault::NeverAnswers]);
    let locks = process.locks("me");
    let lease = millis(1500);

    let first = attempt(locks.once("order-42").lease(lease)).await;

    assert_eq!(process.take_operations(), ["UpdateItem", "GetItem", "UpdateItem"]);
    // Less than a third of its lease was left when it was recognised. 1.5 s / 1.05
    assert_eq!(first.remaining(), Duration::from_nanos(1_428_571_428) - ROUND_TRIP);
    assert_eq!(first.number(), 1);

    first.complete(&1).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_attempt_that_is_recognised_late_and_cannot_be_renewed_is_released_and_reported_as_unknown() {
    let table = Table::new();
    let process = table.process();
    process.next([Fault::NeverAnswers, Fault::None].into_iter().chain(vec![Fault::RequestLost; 200]));
    let network = process.clone();
    let end_of_brown_out = tokio::spawn(async move {
        sleep(millis(4_500)).await;
        network.clear();
    });
    let locks = process.locks("me");

    let error = locks.once("order-42").lease(millis(1500)).start::<Value>().await.unwrap_err();

    end_of_brown_out.await.unwrap();
    assert!(error.is_unknown(), "{error}");
    assert!(table.is_released(ROW), "nobody is blocked by what was given up");
}

#[tokio::test(start_paused = true)]
async fn after_an_attempt_has_ended_no_copy_of_its_requests_begins_it_again() {
    for ending in ["given back", "done", "done in a transaction", "failed"] {
        for behind in [0, 60_000] {
            let _case = case(format!("{ending}, {behind} ms behind"));
            let table = Table::new();
            let process = table.process();
            process.set_date_offset(None);
            // The second attempt of the first call never arrives. The first one is applied late.
            process.next([Fault::ArrivesLate(millis(1500)), Fault::None, Fault::BlackHole]);
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
                assert_eq!(table.row(ROW), ended, "applied again: {copy:?}");
            }
            assert!(applied(&table, "effect") <= 1);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn work_that_was_released_is_begun_again_with_one_request() {
    for (latency, set_back) in [(Duration::ZERO, 0), (Duration::ZERO, 7), (ROUND_TRIP / 2, 10)] {
        let _case = case(format!("{latency:?} each way, the clock {set_back} ms back"));
        let table = Table::new();
        let process = table.process();
        process.set_latency(latency);
        let locks = process.locks("me");
        let first = attempt(once(&locks)).await;
        process.clock.jump_wall(-set_back);
        first.give_back().await.unwrap();
        process.take_sent();

        let second = attempt(once(&locks)).await;

        assert_eq!(process.take_operations(), ["UpdateItem"]);
        assert_eq!(second.number(), 2);

        second.complete(&1).await.unwrap();
    }
}
