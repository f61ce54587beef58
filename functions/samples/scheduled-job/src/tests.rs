//! The promises to the owner of the schedule, tested on an embedded DynamoDB.

use crate::handler::{Deps, guarded, handler};
use crate::work::WorkError;
use lambda_lock_functions::test_support::{DynamoDb, assert_failure, event, rfc3339, variables};
use lambda_lock_functions::{ConfigError, Event, Failure};
use lambda_runtime::LambdaEvent;
use serde_json::{Value, json};
use std::time::Duration;

fn tick() -> LambdaEvent<Event> {
    event(&json!({ "source": "aws.scheduler" }), 30.0)
}

fn deps(server: &DynamoDb, environment: &[(&str, &str)]) -> Result<Deps, ConfigError> {
    Deps::new(&server.config(environment)?, &variables(environment))
}

async fn is_free(server: &DynamoDb, key: &str) -> bool {
    server.row(key).await.is_none_or(|row| row.contains_key("isReleased"))
}

#[tokio::test]
async fn a_tick_runs_the_job_and_frees_the_lock() {
    let server = DynamoDb::start().await;
    let deps = deps(&server, &[]).unwrap();
    let answer = handler(tick(), &deps).await.unwrap();
    assert_eq!(answer["ran"], true);
    let token = answer["fencingToken"].as_u64().unwrap();
    assert_eq!(answer.as_object().unwrap().len(), 2, "{answer}");
    assert!(is_free(&server, "job/scheduled-job").await);
    assert_eq!(server.row("job/scheduled-job").await.unwrap()["fencingToken"].as_n().unwrap(), &token.to_string());
}

#[tokio::test]
async fn the_second_of_two_ticks_at_once_does_not_run_and_names_the_first() {
    let server = DynamoDb::start().await;
    let deps = deps(&server, &[("JOB_NAME", "nightly")]).unwrap();
    let second: Result<Value, Failure> = guarded(tick(), &deps, async |lock| {
        let second = guarded(tick(), &deps, async |_| Err("two at once".into())).await?;
        assert_eq!(second, json!({ "ran": false, "holder": lock.owner() }));
        Ok(())
    })
    .await;
    assert_eq!(second.unwrap()["ran"], true);
    assert!(is_free(&server, "job/nightly").await);
}

#[tokio::test]
async fn a_holder_with_a_huge_name_is_named_in_part() {
    let server = DynamoDb::start().await;
    let row = [("key", "job/scheduled-job"), ("leaseDuration", "20000"), ("recordVersionNumber", "b2c6")];
    server.put(&[&row[..], &[("ownerName", "o".repeat(100_000).as_str())]].concat()).await;
    let held = handler(tick(), &deps(&server, &[]).unwrap()).await.unwrap();
    assert_eq!(held, json!({ "ran": false, "holder": "o".repeat(2048) }));
}

#[tokio::test]
async fn a_tick_after_the_first_has_ended_runs_again_with_a_larger_token() {
    let server = DynamoDb::start().await;
    let deps = deps(&server, &[]).unwrap();
    let first = handler(tick(), &deps).await.unwrap();
    let second = handler(tick(), &deps).await.unwrap();
    assert!(second["fencingToken"].as_u64() > first["fencingToken"].as_u64());
}

#[tokio::test]
async fn work_that_fails_is_reported_by_name_and_the_lock_is_free() {
    let server = DynamoDb::start().await;
    let deps = deps(&server, &[]).unwrap();
    let failed = guarded(tick(), &deps, async |_| Err::<(), WorkError>("no paper".into())).await;
    assert_failure(failed, "WorkFailed", "no paper");
    assert!(is_free(&server, "job/scheduled-job").await);
}

#[tokio::test]
async fn failed_work_reports_a_free_lock_only_when_it_was_released() {
    let server = DynamoDb::start().await;
    let deps = deps(&server, &[]).unwrap();
    let failed = guarded(tick(), &deps, async |_| Err::<(), WorkError>("no paper".into())).await;
    assert_failure(failed, "WorkFailed", "the lock is free again: no paper");

    let mut ends = None;
    let failed = guarded(tick(), &deps, async |lock| {
        ends = lock.lease_ends_at();
        server.drop_table("locks").await;
        Err::<(), WorkError>("no paper".into())
    })
    .await;
    let ends = rfc3339(ends.unwrap());
    assert_failure(failed, "WorkFailed", &format!("free at the latest when its lease ends, at {ends}: no paper"));
}

#[tokio::test]
async fn failed_work_under_a_lost_lock_reports_the_loss_and_no_end_of_a_lease() {
    let server = DynamoDb::start().await;
    let deps = deps(&server, &[]).unwrap();
    let failed = guarded(tick(), &deps, async |lock| {
        let other = server.locks(&[]);
        drop(other.reclaim(lock.to_saved()).lease(Duration::from_secs(30)).within(&budget()).await?.save());
        Err::<(), WorkError>("no paper".into())
    })
    .await;
    assert_failure(failed, "WorkFailed", "the lock was lost before it ended: no paper");
}

/// Another run may have been at work at the same time. An error would have Lambda run the job once more.
#[tokio::test]
async fn work_that_succeeded_under_a_lost_lock_says_that_the_lock_was_gone() {
    for once_per_tick in ["false", "true"] {
        let server = DynamoDb::start().await;
        let deps = deps(&server, &[("ONCE_PER_TICK", once_per_tick)]).unwrap();
        let mut token = 0;
        let ran = guarded(tick_at("2026-07-01T12:00:00Z"), &deps, async |lock| {
            token = lock.fencing_token();
            let other = server.locks(&[]);
            drop(other.reclaim(lock.to_saved()).lease(Duration::from_secs(30)).within(&budget()).await?.save());
            Ok(())
        })
        .await;

        let says = json!({ "ran": true, "fencingToken": token, "released": false, "reason": "gone" });
        assert_eq!(ran.unwrap(), says, "ONCE_PER_TICK={once_per_tick}");
        assert!(!is_free(&server, "job/scheduled-job").await, "the lock of the other holder must stay held");
    }
}

#[tokio::test]
async fn work_under_a_lost_lock_stops_with_lock_lost() {
    let server = DynamoDb::start().await;
    let deps = deps(&server, &[]).unwrap();
    let overtaken = guarded(tick(), &deps, async |lock| {
        let other = server.locks(&[]);
        drop(other.reclaim(lock.to_saved()).lease(Duration::from_secs(30)).within(&budget()).await?.save());
        Ok(lock.checkpoint().await?)
    })
    .await;
    assert_failure(overtaken, "LockLost", "no longer ours");
    assert!(!is_free(&server, "job/scheduled-job").await, "the lock of the other holder must stay held");
}

fn budget() -> lambda_lock::Budget {
    lambda_lock::Budget::lasting(Duration::from_secs(30))
}

const ONCE_PER_TICK: (&str, &str) = ("ONCE_PER_TICK", "true");

fn tick_at(time: &str) -> LambdaEvent<Event> {
    event(&json!({ "source": "aws.events", "time": time }), 30.0)
}

#[tokio::test]
async fn once_per_tick_a_second_delivery_does_no_work_and_names_the_first_run_s_token() {
    let server = DynamoDb::start().await;
    let deps = deps(&server, &[ONCE_PER_TICK]).unwrap();
    let mut runs = 0;
    let mut deliver = async |time: &str| {
        guarded(tick_at(time), &deps, async |_| {
            runs += 1;
            Ok(())
        })
        .await
        .unwrap()
    };

    let first = deliver("2026-07-01T12:00:00Z").await;
    assert_eq!(first["ran"], true);
    let replayed = json!({ "ran": false, "replayed": true, "fencingToken": first["fencingToken"] });
    assert_eq!(deliver("2026-07-01T12:00:00Z").await, replayed);
    assert_eq!(deliver("2026-07-01T14:00:00+02:00").await, replayed, "the same time, written differently");
    for other in ["2026-07-01T13:00:00Z", "2026-07-02T12:00:00Z", "2027-07-01T12:00:00Z", "2026-07-01T12:00:01Z"] {
        assert_eq!(deliver(other).await["ran"], true, "{other}");
    }
    assert_eq!(runs, 5);
    assert!(is_free(&server, "job/scheduled-job").await);
}

#[tokio::test]
async fn a_tick_whose_run_failed_is_tried_again() {
    let server = DynamoDb::start().await;
    let deps = deps(&server, &[ONCE_PER_TICK]).unwrap();
    let tick = || tick_at("2026-07-01T12:00:00Z");
    let failed = guarded(tick(), &deps, async |_| Err::<(), WorkError>("no paper".into())).await;
    assert_failure(failed, "WorkFailed", "the lock is free again: no paper");
    assert_eq!(guarded(tick(), &deps, async |_| Ok(())).await.unwrap()["ran"], true);
    assert_eq!(guarded(tick(), &deps, async |_| Ok(())).await.unwrap()["replayed"], true);
}

#[tokio::test]
async fn a_tick_that_finds_another_run_at_work_fails_so_that_it_is_delivered_again() {
    let server = DynamoDb::start().await;
    let deps = deps(&server, &[ONCE_PER_TICK]).unwrap();
    let done = tick_at("2026-07-01T11:00:00Z");
    assert_eq!(handler(done.clone(), &deps).await.unwrap()["ran"], true);
    let ran = guarded(tick_at("2026-07-01T12:00:00Z"), &deps, async |lock| {
        for tick in ["2026-07-01T12:00:00Z", "2026-07-01T13:00:00Z"] {
            let next = guarded(tick_at(tick), &deps, async |_| Err("two at once".into())).await;
            assert_failure(next.clone(), "LockHeld", "this tick was not done");
            assert_failure(next, "LockHeld", lock.owner());
        }
        // One that was done before needs no other delivery.
        let before = guarded(done, &deps, async |_| Err("two at once".into())).await?;
        assert_eq!(before, json!({ "ran": false, "holder": lock.owner() }));
        Ok(())
    });
    assert_eq!(ran.await.unwrap()["ran"], true);
    assert_eq!(handler(tick_at("2026-07-01T13:00:00Z"), &deps).await.unwrap()["ran"], true);
}

/// A run that dies leaves its lock. Lambda's retry must not take that for a run at work.
#[tokio::test]
async fn the_retry_of_a_run_that_died_does_not_report_success() {
    let server = DynamoDb::start().await;
    let deps = deps(&server, &[ONCE_PER_TICK]).unwrap();
    let tick = || tick_at("2026-07-01T12:00:00Z");
    let works = tokio::sync::Notify::new();
    tokio::select! {
        ended = guarded(tick(), &deps, async |_| { works.notify_one(); std::future::pending().await }) => panic!("{ended:?}"),
        () = works.notified() => {}
    }
    assert_failure(guarded(tick(), &deps, async |_| Ok(())).await, "LockHeld", "deliver it again");
}

/// Another delivery that had the job's lock and lost it still has the tick.
#[tokio::test]
async fn a_tick_that_another_delivery_has_is_not_waited_for() {
    let server = DynamoDb::start().await;
    let deps = deps(&server, &[ONCE_PER_TICK]).unwrap();
    let tick = || tick_at("2026-07-01T12:00:00Z");
    let ran = guarded(tick(), &deps, async |lock| {
        server.locks(&[]).release(lock.to_saved()).await?;
        let next = guarded(tick(), &deps, async |_| Err("two at once".into()));
        let next = tokio::time::timeout(Duration::from_secs(12), next).await.unwrap();
        assert_failure(next, "LockHeld", "");
        Ok(())
    });
    // Its lock is gone, and it says so.
    let _ = ran.await;
}

#[tokio::test]
async fn a_table_with_a_sort_key_has_ticks_too() {
    let environment = [("LOCK_SORT_KEY_ATTRIBUTE", "sk"), ONCE_PER_TICK];
    let server = DynamoDb::with_table(&environment).await;
    let deps = deps(&server, &environment).unwrap();
    for ran in [true, false] {
        assert_eq!(handler(tick_at("2026-07-01T12:00:00Z"), &deps).await.unwrap()["ran"], ran);
    }
}

#[tokio::test]
async fn an_event_without_a_time_is_refused_where_it_counts_and_nowhere_else() {
    let server = DynamoDb::start().await;
    let once = deps(&server, &[ONCE_PER_TICK]).unwrap();
    for (event_, says) in [
        (json!({}), "time is missing"),
        (json!({ "time": 7 }), "time is missing"),
        (json!({ "time": "noon" }), "time is malformed"),
        (json!({ "time": "2026-07-01" }), "time is malformed"),
    ] {
        assert_failure(handler(event(&event_, 30.0), &once).await, "InvalidRequest", says);
        assert_eq!(handler(event(&event_, 30.0), &deps(&server, &[]).unwrap()).await.unwrap()["ran"], true);
    }
    // Without the option each delivery runs.
    for _ in 0..2 {
        assert_eq!(handler(tick_at("2026-07-01T12:00:00Z"), &deps(&server, &[]).unwrap()).await.unwrap()["ran"], true);
    }
}

#[tokio::test]
async fn a_frozen_job_is_not_told_as_another_run() {
    let server = DynamoDb::start().await;
    let [plain, once] = [&[][..], &[ONCE_PER_TICK]].map(|environment| deps(&server, environment).unwrap());
    let locks = server.config(&[]).unwrap().locks().unwrap();
    locks.operator().freeze("job/scheduled-job", "ticket 4711").await.unwrap();

    let answer = handler(tick(), &plain).await.unwrap();
    assert_eq!([&answer["ran"], &answer["frozen"]], [&json!(false), &json!("ticket 4711")]);
    assert_failure(
        handler(tick_at("2026-07-01T12:00:00Z"), &once).await,
        "LockHeld",
        "frozen, because: \"ticket 4711\"",
    );

    locks.operator().thaw("job/scheduled-job").await.unwrap();
    assert_eq!(handler(tick(), &plain).await.unwrap()["ran"], true);
}

#[tokio::test]
async fn an_invocation_without_time_left_is_lock_unknown() {
    let server = DynamoDb::start().await;
    let spent = event(&json!({}), -1.0);
    assert_failure(handler(spent, &deps(&server, &[]).unwrap()).await, "LockUnknown", "has no time left");
}

#[tokio::test]
async fn a_missing_table_and_a_foreign_row_are_reported_by_name() {
    let server = DynamoDb::empty().await;
    assert_failure(handler(tick(), &deps(&server, &[]).unwrap()).await, "LockTableError", "cannot be used");
    let server = DynamoDb::start().await;
    server.put(&[("key", "job/scheduled-job"), ("recordVersionNumber", "x"), ("ownerName", "y")]).await;
    assert_failure(handler(tick(), &deps(&server, &[]).unwrap()).await, "InvalidRecord", "leaseDuration");
}

#[tokio::test]
async fn a_table_with_a_sort_key_works_too() {
    let environment = [("LOCK_SORT_KEY_ATTRIBUTE", "sk")];
    let server = DynamoDb::with_table(&environment).await;
    assert_eq!(handler(tick(), &deps(&server, &environment).unwrap()).await.unwrap()["ran"], true);
}

#[tokio::test]
async fn a_name_that_is_too_long_stops_the_start() {
    let server = DynamoDb::empty().await;
    let name = "n".repeat(2045);
    assert!(deps(&server, &[("JOB_NAME", &name)]).err().unwrap().to_string().starts_with("JOB_NAME "));
    assert!(deps(&server, &[("JOB_NAME", &name[1..])]).is_ok());
    for (length, fits) in [(2044 - 30, true), (2044 - 29, false)] {
        assert_eq!(deps(&server, &[("JOB_NAME", &name[..length]), ONCE_PER_TICK]).is_ok(), fits);
    }
    assert!(deps(&server, &[("ONCE_PER_TICK", "yes")]).err().unwrap().to_string().starts_with("ONCE_PER_TICK "));
}

/// Lambda ends a function at its deadline. On other machines nobody does.
#[tokio::test]
async fn a_job_is_stopped_when_its_lease_ends_although_nobody_ends_the_function() {
    let stopped = async |once_per_tick: &str| {
        let server = DynamoDb::start().await;
        let deps = deps(&server, &[("ONCE_PER_TICK", once_per_tick)]).unwrap();
        let late = event(&json!({ "time": "2026-11-21T03:00:00Z" }), 4.0);
        let stopped = guarded(late, &deps, async |_| {
            std::future::pending::<()>().await;
            Ok(())
        });
        assert_failure(stopped.await, "WorkFailed", "the lease ended while the work ran");
    };
    tokio::join!(stopped("false"), stopped("true"));
}
