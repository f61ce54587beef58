//! Many contenders: each one gets a turn, nothing is counted twice, and late writes of old holders are
//! refused.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a helper of a test may stop it")]

use aws_sdk_dynamodb::error::{ProvideErrorMetadata, SdkError};
use aws_sdk_dynamodb::operation::update_item::{UpdateItemError, UpdateItemOutput};
use aws_sdk_dynamodb::types::{AttributeValue, ReturnValue};
use lambda_lock::{Error, ErrorKind};
use lambda_lock_testkit::{Fault, Process, Table, acquired, case, millis, rounds, secs};
use serde_json::json;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

/// Adds one to a counter in another item by reading and writing it, so that two holders at once would lose an
/// increment. The read raises the fence too. Both are refused when the counter has seen a newer token.
async fn increment(process: &Process, token: u64, fenced: bool) -> bool {
    let dynamodb = process.dynamodb();
    let condition = fenced.then(|| "attribute_not_exists(lastToken) OR lastToken <= :token".to_owned());
    let update = || {
        dynamodb
            .update_item()
            .table_name("locks")
            .key("key", AttributeValue::S("counter".to_owned()))
            .set_condition_expression(condition.clone())
            .expression_attribute_values(":token", AttributeValue::N(token.to_string()))
    };
    let read = update().update_expression("SET lastToken = :token").return_values(ReturnValue::AllNew).send().await;
    let Some(row) = unless_refused(read) else { return false };
    let count: u64 = row.attributes().unwrap().get("count").map_or(0, |count| count.as_n().unwrap().parse().unwrap());
    let write = update()
        .update_expression("SET #count = :count, lastToken = :token")
        .expression_attribute_names("#count", "count")
        .expression_attribute_values(":count", AttributeValue::N((count + 1).to_string()));
    unless_refused(write.send().await).is_some()
}

fn unless_refused(sent: Result<UpdateItemOutput, SdkError<UpdateItemError>>) -> Option<UpdateItemOutput> {
    match sent {
        Ok(answer) => Some(answer),
        Err(error) if error.code() == Some("ConditionalCheckFailedException") => None,
        Err(error) => panic!("{error:?}"),
    }
}

fn count(table: &Table) -> u64 {
    table.attribute("counter", "count").unwrap_or_default().parse().unwrap_or_default()
}

#[tokio::test(start_paused = true)]
async fn a_hundred_acquirers_of_one_key_all_get_their_turn() {
    let table = Table::new();
    let mut tasks = JoinSet::new();
    for number in 0..100 {
        let process = table.process();
        process.set_latency(millis(5));
        tasks.spawn(async move {
            let locks = process.locks(&format!("task {number}"));
            let budget = process.budget(secs(300)).reserve(secs(1));
            let answer: Result<(), Error> = locks
                .with_lock("k", &budget, async |lock| {
                    assert!(increment(&process, lock.fencing_token(), true).await);
                    Ok(())
                })
                .await;
            answer.unwrap();
        });
    }

    tasks.join_all().await;

    assert_eq!(count(&table), 100);
}

const TASKS: u64 = 64;
/// How often each task adds one. The first round is a crowd of all tasks, and the others are more of it: `.ci/nightly` has
/// fifty.
const ROUNDS: u64 = 10;

/// All tasks add one to a counter in each round, with faults between the lock client and the table. Returns how many
/// increments were applied, as the tasks report, how many there should be, and the value of the counter.
async fn contend(faults: bool) -> [u64; 3] {
    fastrand::seed(7);
    let rounds = rounds(ROUNDS);
    let table = Table::new();
    let mut set = JoinSet::new();
    for number in 0..TASKS {
        let (process, resource) = (table.process(), table.process());
        process.set_latency(millis(3));
        if faults {
            process.next((0..rounds * 10).map(|_| match fastrand::u8(0..25) {
                0 => Fault::RequestLost,
                1 => Fault::AnswerLost,
                2 => Fault::failure_after_apply(),
                3 => Fault::throttled(),
                4 => Fault::ArrivesTwice(millis(fastrand::u64(1..4000))),
                5 => Fault::Slow(millis(fastrand::u64(1..400))),
                _ => Fault::None,
            }));
        }
        set.spawn(async move {
            let locks = process.locks(&format!("task {number}"));
            let mut applied = 0;
            while applied < rounds {
                let budget = process.budget(secs(120)).reserve(secs(1));
                let acquired = locks.acquire("k").within(&budget).lease(secs(2)).await;
                let lock = match acquired {
                    Ok(lock) => lock,
                    Err(error) => match error.kind() {
                        ErrorKind::Held | ErrorKind::Unknown | ErrorKind::Unavailable | ErrorKind::Lost => continue,
                        _ => panic!("{error}"),
                    },
                };
                if increment(&resource, lock.fencing_token(), true).await {
                    applied += 1;
                }
                let _ = lock.release().await;
            }
            applied
        });
    }
    let applied: u64 = set.join_all().await.into_iter().sum();
    [applied, TASKS * rounds, count(&table)]
}

#[tokio::test(start_paused = true)]
async fn sixty_four_tasks_increment_a_fenced_counter_exactly() {
    let [applied, asked, counted] = contend(false).await;

    assert_eq!((applied, counted), (asked, asked));
}

#[tokio::test(start_paused = true)]
async fn sixty_four_tasks_increment_a_fenced_counter_exactly_over_a_bad_connection() {
    let [applied, asked, counted] = contend(true).await;

    assert_eq!((applied, counted), (asked, asked));
}

/// A holder is paused until its lease has ended. Another one takes over and writes. Then the first one writes
/// late.
async fn paused_holder(fenced: bool) -> (bool, u64) {
    let table = Table::new();
    table.put(json!({"key": {"S": "counter"}, "count": {"N": "0"}}));
    let (one, two) = (table.process(), table.process());
    let lease = secs(2);
    let paused = acquired(&one.locks("one"), lease).await;
    sleep(secs(5)).await;
    let newer = acquired(&two.locks("two"), lease).await;
    assert!(increment(&two, newer.fencing_token(), fenced).await);
    let late = increment(&one, paused.fencing_token(), fenced).await;
    newer.release().await.unwrap();
    let _ = paused.save();
    (late, count(&table))
}

#[tokio::test(start_paused = true)]
async fn a_paused_holders_late_write_is_refused_by_its_token() {
    assert_eq!(paused_holder(true).await, (false, 1));
}

#[tokio::test(start_paused = true)]
async fn without_the_token_the_late_write_is_applied() {
    // The control experiment: a test that cannot fail proves nothing.
    assert_eq!(paused_holder(false).await, (true, 2));
}

/// Lets contenders take turns with work of this length. Returns the requests for each turn, and its time
/// without the work.
async fn take_turns(contenders: u32, turns: u32, work: Duration) -> (f64, Duration) {
    fastrand::seed(7);
    let table = Table::new();
    let began = Instant::now();
    let mut set = JoinSet::new();
    for number in 0..contenders {
        let process = table.process();
        process.set_latency(millis(1));
        set.spawn(async move {
            let locks = process.locks(&format!("contender {number}"));
            for _ in 0..turns {
                let budget = process.budget(secs(300)).reserve(Duration::ZERO);
                let lock = locks.acquire("k").within(&budget).lease(secs(20)).await.unwrap();
                sleep(work).await;
                lock.release().await.unwrap();
            }
            process.take_counts().values().sum::<usize>()
        });
    }
    let requests: usize = set.join_all().await.into_iter().sum();
    let turns = contenders * turns;
    (requests as f64 / f64::from(turns), began.elapsed() / turns - work)
}

/// For so long the lock is idle between two turns of up to half a second.
const HAND_OVER: Duration = millis(60);

#[tokio::test(start_paused = true)]
async fn many_waiters_send_few_requests_and_leave_no_long_gaps() {
    // Two contenders of short turns need no line. A turn in line takes a Claim, a ticket, a Take and a release, and reads, whose
    // number grows by the logarithm of the line's length.
    for (work, for_two, for_many) in [(50, 4.0, 19.0), (500, 18.0, 27.0)] {
        let _case = case(format!("{work} ms"));
        for (contenders, requests_at_most) in [(2, for_two), (32, for_many)] {
            let (requests, hand_over) = take_turns(contenders, 10, millis(work)).await;

            assert!(requests <= requests_at_most, "{requests} requests for each turn of {contenders}");
            assert!(hand_over <= HAND_OVER, "{hand_over:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_burst_of_callers_for_one_turn_each_does_not_leave_the_lock_idle() {
    for (callers, requests_at_most) in [(8, 19.0), (32, 23.0)] {
        let _case = case(format!("{callers} callers"));

        let (requests, hand_over) = take_turns(callers, 1, millis(500)).await;

        assert!(hand_over <= HAND_OVER, "{hand_over:?}");
        assert!(requests <= requests_at_most, "{requests} requests for each turn");
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_that_comes_back_within_a_millisecond_is_not_refused_by_its_own_release() {
    let table = Table::new();
    let process = table.process();
    process.set_latency(Duration::ZERO);
    let locks = process.locks("me");

    for _ in 0..10 {
        acquired(&locks, secs(20)).await.release().await.unwrap();
    }

    assert_eq!(process.take_counts()["UpdateItem"], 20);
}
