//! `with_lock` releases the lock on success and on error, and works where futures must be `Send`. Also:
//! what a dropped guard leaves behind.
//!
//! This is a separate binary, because a warning is lost when a test without a subscriber is the first one
//! that logs it.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a helper of a test may stop it")]

use lambda_lock::{Budget, Error, LockClient};
use lambda_lock_testkit::{Fault, Table, granted, secs};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};

const BUDGET: Duration = secs(30);

#[tokio::test(start_paused = true)]
async fn the_lock_is_held_during_the_work_and_released_after_it() {
    let table = Table::new();
    let process = table.process();

    let answer: Result<u64, Error> = process
        .locks("me")
        .with_lock("k", &process.budget(BUDGET), async |lock| {
            assert!(!table.is_released("k"));
            lock.checkpoint().await?;
            Ok(lock.fencing_token())
        })
        .await;

    assert_eq!(answer.unwrap().to_string(), table.attribute("k", "fencingToken").unwrap());
    assert!(table.is_released("k"));
    assert_eq!(process.take_operations(), ["UpdateItem"; 3]);
}

#[tokio::test(start_paused = true)]
async fn the_lock_is_released_when_the_work_fails() {
    let table = Table::new();
    let process = table.process();

    let answer: Result<(), Box<dyn std::error::Error + Send + Sync>> =
        process.locks("me").with_lock("k", &process.budget(BUDGET), async |_| Err("no stock".into())).await;

    assert_eq!(answer.unwrap_err().to_string(), "no stock");
    assert!(table.is_released("k"));
}

#[tokio::test(start_paused = true)]
async fn a_release_that_fails_does_not_hide_the_result_of_the_work() {
    let table = Table::new();
    let process = table.process();
    process.next([Fault::None]);
    process.next(vec![Fault::BlackHole; 20]);

    let answer: Result<u32, Error> = process.locks("me").with_lock("k", &process.budget(BUDGET), async |_| Ok(7)).await;

    assert_eq!(answer.unwrap(), 7);
}

#[tokio::test(start_paused = true)]
async fn a_lock_known_to_be_lost_is_not_released() {
    let table = Table::new();
    let process = table.process();

    let answer: Result<(), Error> = process
        .locks("me")
        .with_lock("k", &process.budget(BUDGET), async |lock| {
            table.delete("k");
            lock.checkpoint().await
        })
        .await;

    assert!(answer.unwrap_err().is_lost());
    assert_eq!(
        process.take_operations(),
        ["UpdateItem", "UpdateItem", "GetItem"],
        "claim, checkpoint, a look; no release"
    );
}

#[tokio::test(start_paused = true)]
async fn settings_go_before_the_work() {
    let table = Table::new();
    let process = table.process();
    let locks = process.locks("me");
    let budget = process.budget(BUDGET);

    let answer: Result<(), Error> = locks
        .acquire("k")
        .owner("order worker")
        .within(&budget)
        .await
        .unwrap()
        .run(async |lock| {
            assert_eq!(lock.owner(), "order worker");
            Ok(())
        })
        .await;

    answer.unwrap();
    assert!(table.is_released("k"));
}

#[tokio::test(start_paused = true)]
async fn a_saved_lock_runs_its_work_in_the_next_process_and_is_released_after_it() {
    let table = Table::new();
    let first = table.process();
    let lock = first.locks("first").acquire("k").within(&first.budget(secs(60))).await.unwrap();
    let (token, saved) = (lock.fencing_token(), lock.save());
    let next = table.process();
    let (locks, budget) = (next.locks("next"), next.budget(secs(60)));

    let lock = locks.resume(saved).within(&budget).await.unwrap();
    let done: Result<u64, Error> = lock
        .run(async |lock| {
            assert!(!table.is_released("k"));
            Ok(lock.fencing_token())
        })
        .await;

    assert_eq!(done.unwrap(), token);
    assert!(table.is_released("k"));
}

/// A handler as users write it, with borrowed arguments and several steps.
async fn handler(order: &str, locks: &LockClient, budget: &Budget) -> Result<u64, Error> {
    locks
        .with_lock(order, budget, async |lock| {
            step(order).await?;
            lock.checkpoint().await?;
            lock.keep_alive(step(order)).await??;
            Ok(lock.fencing_token())
        })
        .await
}

async fn step(order: &str) -> Result<(), Error> {
    tokio::task::yield_now().await;
    let _ = order;
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn the_future_of_a_handler_is_send() {
    fn is_send<F: Future + Send>(future: F) -> F {
        future
    }
    let table = Table::new();
    let process = table.process();
    let (locks, budget) = (process.locks("me"), process.budget(BUDGET));

    is_send(handler("k", &locks, &budget)).await.unwrap();
    tokio::spawn(async move { handler("k", &locks, &budget).await }).await.unwrap().unwrap();
}

/// Collects the text of warnings.
#[derive(Clone, Default)]
struct Warnings(Arc<Mutex<Vec<String>>>);

impl<S: tracing::Subscriber> Layer<S> for Warnings {
    fn on_event(&self, event: &tracing::Event<'_>, _: Context<'_, S>) {
        if *event.metadata().level() == tracing::Level::WARN {
            let mut text = String::new();
            event.record(&mut |field: &tracing::field::Field, value: &dyn std::fmt::Debug| {
                text.push_str(&format!("{field}={value:?} "));
            });
            self.0.lock().unwrap().push(text);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_guard_dropped_without_release_warns_and_says_until_when_the_lock_stays_taken() {
    let warnings = Warnings::default();
    let _guard = tracing::subscriber::set_default(tracing_subscriber::registry().with(warnings.clone()));
    let table = Table::new();
    let locks = table.process().locks("me");
    let acquire = || locks.acquire("k").lease(BUDGET).owner("me").reclaim_own().try_once();

    drop(granted(acquire()).await);
    let ends = table.attribute("k", "leaseEndsAt").unwrap();
    let text = std::mem::take(&mut *warnings.0.lock().unwrap()).concat();
    assert!(text.contains(&ends) && text.contains("key=k"), "{text}");
    assert!(!table.is_released("k"));

    granted(acquire()).await.release().await.unwrap();
    let _ = granted(acquire()).await.save();
    assert!(warnings.0.lock().unwrap().is_empty(), "a released or handed over lock warns of nothing");
}

/// Each lock of the set, not only its first.
#[tokio::test(start_paused = true)]
async fn a_set_that_is_saved_or_released_or_cannot_be_resumed_warns_of_nothing_and_a_dropped_one_of_each_lock() {
    let warnings = Warnings::default();
    let _guard = tracing::subscriber::set_default(tracing_subscriber::registry().with(warnings.clone()));
    let table = Table::new();
    let process = table.process();
    let locks = process.locks("me");
    let acquire = || locks.acquire_all(["a", "b"]).lease(BUDGET).owner("me").reclaim_own().try_once();

    acquire().await.unwrap().granted().unwrap().release().await.unwrap();
    let set = acquire().await.unwrap().granted().unwrap();
    let watch = set.watch();
    let saved = set.save();
    assert!(watch.remaining().is_zero() && !watch.is_lost(), "a set that is handed over is no longer held here");
    for responses in [vec![Fault::throttled(); 100], vec![Fault::BlackHole; 100]] {
        process.next_of("b", responses);
        locks.resume_all(saved.clone()).await.unwrap_err();
        locks.resume(saved.locks()[1].clone()).await.unwrap_err();
        process.clear();
    }
    assert_eq!(*warnings.0.lock().unwrap(), Vec::<String>::new());

    drop(locks.resume_all(saved).await.unwrap());
    let text = std::mem::take(&mut *warnings.0.lock().unwrap()).concat();
    assert!(text.contains("key=a") && text.contains("key=b"), "{text}");
}
