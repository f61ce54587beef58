//! Attempts are counted. After a crash they are taken over and fenced off.

use crate::{ROW, attempt, next_attempt, once, replayed};
use lambda_lock::ReleaseOutcome;
use lambda_lock_testkit::{Fault, Table, applied, case, counted, millis, secs};
use serde_json::Value;
use tokio::time::sleep;

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
async fn a_late_attempt_never_overwrites_the_work_of_another_attempt() {
    let table = Table::new();
    let process = table.process();

    for late_one in ["complete", "fail", "commit", "give back"] {
        for other_is_done in [false, true] {
            let _case = case(format!("{late_one}, the other done: {other_is_done}"));
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
            assert!(lost);
            assert_eq!(table.row(ROW), before);

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
    sleep(secs(200)).await;

    other.complete("the other's").await.unwrap();
    assert_eq!(replayed(once(&process.locks("x"))).await, "the other's");
}

#[tokio::test(start_paused = true)]
async fn a_completion_that_arrives_after_its_work_was_released_is_refused() {
    let table = Table::new();
    let process = table.process();
    let locks = process.locks("late");
    let late = attempt(once(&locks)).await;
    process.next([Fault::ArrivesLate(secs(10)), Fault::BlackHole, Fault::BlackHole]);

    assert!(late.complete("late").await.unwrap_err().is_unknown());
    assert!(table.is_released(ROW), "given back as well as could be");

    sleep(secs(20)).await;
    let next = attempt(once(&locks)).await;
    assert_eq!(next.number(), 2);

    next.complete("the next one's").await.unwrap();
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

    sleep(secs(5)).await;
    let short = retry.budget(secs(2));
    assert!(locks.once("order-42").within(&short).start::<Value>().await.unwrap_err().is_held());

    sleep(secs(5)).await;
    let budget = retry.budget(secs(20));

    let second = attempt(locks.once("order-42").within(&budget)).await;
    assert!(budget.remaining().unwrap() > secs(15), "no longer than grace, drift and skew: {:?}", budget.remaining());
    assert_eq!(second.number(), 2);

    second.complete(&1).await.unwrap();
    drop(killed);
}

#[tokio::test(start_paused = true)]
async fn checkpoints_commits_and_fences_work_between_the_steps_of_an_attempt() {
    let table = Table::new();
    let process = table.process();
    let locks = process.locks("me");
    let mut first = attempt(once(&locks)).await;
    sleep(secs(15)).await;
    first.checkpoint().await.unwrap();
    first.ensure_remaining(secs(19)).unwrap();
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
async fn the_next_attempt_gets_the_progress_of_a_crashed_one() {
    let table = Table::new();
    let mut crashed = attempt(once(&table.process().locks("crashed"))).await;
    crashed.renew().data("step 1 of 2").await.unwrap();

    let next = next_attempt(&table).await;

    assert_eq!(next.data(), Some(b"step 1 of 2".as_slice()));

    next.complete(&1).await.unwrap();
    drop(crashed);
}

/// Two callers find an expired record. The faster one starts the work and crashes. The slower one also wanted to
/// start anew. It then takes over, and its attempt is the second one.
mod a_crashed_attempt_counts_for_a_caller_that_had_found_an_expired_record {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn after_a_result() {
        check(true).await;
    }

    #[tokio::test(start_paused = true)]
    async fn after_it_was_given_back() {
        check(false).await;
    }

    async fn check(done: bool) {
        let table = Table::new();
        let first = attempt(once(&table.process().locks("first")).keep_for(secs(60))).await;
        if done {
            first.complete(&1).await.unwrap();
        } else {
            first.give_back().await.unwrap();
        }
        sleep(secs(100)).await;
        let (slow, fast) = (table.process(), table.process());
        // The Claim is refused because the record has expired, and the Take arrives too late.
        slow.next([Fault::None, Fault::Slow(millis(500))]);
        let budget = slow.budget(secs(60)).reserve(secs(10));
        let waiting = tokio::spawn(async move {
            let locks = slow.locks("slow");
            let begun = attempt(locks.once("order-42").keep_for(secs(60)).within(&budget)).await;
            (begun, slow)
        });
        sleep(millis(100)).await;

        let crashed = attempt(fast.locks("fast").once("order-42").lease(secs(2)).keep_for(secs(60))).await;
        assert_eq!(crashed.number(), 1);

        let first_seen = crashed.first_seen_at();
        let (second, slow) = waiting.await.unwrap();
        assert_eq!((second.number(), second.first_seen_at()), (2, first_seen));

        second.complete(&2).await.unwrap();
        drop((crashed, slow));
    }
}

mod an_attempt_that_is_given_back_counts_for_its_time_from_then_on {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn by_an_acquire_that_was_given_up() {
        check(true).await;
    }

    #[tokio::test(start_paused = true)]
    async fn by_its_attempt() {
        check(false).await;
    }

    async fn check(unheard: bool) {
        let table = Table::new();
        let process = table.process();
        let locks = process.locks("me");
        if unheard {
            process.next([Fault::AnswerLost, Fault::BlackHole, Fault::BlackHole, Fault::BlackHole]);
            assert!(once(&locks).keep_for(secs(100)).start::<Value>().await.unwrap_err().is_unknown());
        } else {
            let attempt = attempt(once(&locks).keep_for(secs(100))).await;
            sleep(secs(60)).await;
            attempt.give_back().await.unwrap();
        }
        let number = |name| table.attribute(ROW, name).unwrap().parse::<u64>().unwrap();

        assert!(table.is_released(ROW));
        assert_eq!(number("keptUntilAt"), number("leaseEndsAt") + 100_000);
    }
}
