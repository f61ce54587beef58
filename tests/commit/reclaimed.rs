//! A commit whose lock is reclaimed while the commit finds out its own outcome.

use crate::{LEASE, applied_beside_another, counted, created, forget, table};
use lambda_lock::Error;
use lambda_lock_testkit::{Fault, granted, millis, secs};
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// A Renew found the lock lost. The commit before it had been applied. The guard must not report that it
/// holds the lock.
#[tokio::test(start_paused = true)]
async fn a_commit_applied_before_the_lock_was_reclaimed_does_not_bring_the_guard_back() {
    let table = table();
    let (one, two) = (table.process(), table.process());
    let (locks, budget) = (one.locks("me"), one.budget(secs(60)));
    let mut lock = granted(locks.try_acquire("k").lease(secs(30)).within(&budget)).await;
    lock.commit([created("o-1")]).await.unwrap();
    // The first copy arrives after the second one was cancelled (o-1 exists), and before the Renew.
    one.next([Fault::ArrivesLate(millis(1200)), Fault::Slow(Duration::ZERO), Fault::Slow(millis(900))]);
    let (orders, saved) = (table.clone(), lock.to_saved());
    let other = tokio::spawn(async move {
        sleep(millis(1100)).await;
        forget(&orders, "o-1");
        sleep(millis(300)).await;
        two.locks("other").reclaim(saved).lease(LEASE).await.unwrap()
    });

    lock.commit([created("o-1"), counted("o-2")]).await.unwrap();

    applied_beside_another(&table, lock, other.await.unwrap()).await;
}

/// The same, but DynamoDB does not respond to the last request. The work under the lock must also stop.
#[tokio::test(start_paused = true)]
async fn work_under_a_lock_learns_that_a_commit_found_the_lock_lost() {
    let table = table();
    let (one, two) = (table.process(), table.process());
    let budget = one.budget(secs(4)).grace(secs(10));
    let locks = one.locks("me");
    let mut left = None;
    let ended = locks
        .with_lock("k", &budget, async |lock| {
            lock.commit([created("o-1")]).await?;
            one.next([Fault::BlackHole, Fault::None, Fault::Slow(millis(500))]);
            one.next(vec![Fault::BlackHole; 20]);
            let saved = lock.to_saved();
            let (two, started) = (two.clone(), Instant::now());
            let other = tokio::spawn(async move {
                sleep(millis(1200)).await;
                two.locks("other").reclaim(saved).lease(LEASE).await.unwrap()
            });
            let error = lock.commit([created("o-1")]).await.unwrap_err();
            assert!(error.is_unknown(), "{error}");
            let other = other.await.unwrap();
            assert!(!other.remaining().is_zero());
            left = Some((started.elapsed(), lock.remaining()));
            let _ = other.save();
            Ok::<_, Error>(())
        })
        .await;
    one.clear();
    drop(ended);
    let (after, left) = left.unwrap();
    assert_eq!(left, Duration::ZERO, "after {after:?}, though a Renew had found the lock lost");
}
