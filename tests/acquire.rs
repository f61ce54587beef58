//! Acquiring: which rows are taken, which are not, and what a refusal says.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a helper of a test may stop it")]

use lambda_lock::{ErrorKind, LockKey};
use lambda_lock_testkit::{Fault, ROUND_TRIP, Table};
use serde_json::json;
use std::time::Duration;

const LEASE: Duration = Duration::from_secs(20);

fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

#[tokio::test(start_paused = true)]
async fn a_missing_row_is_acquired_and_reads_as_peers_expect() {
    let table = Table::new();
    let process = table.process();
    let now = process.clock.wall_millis();
    let lock = process.locks("me").try_acquire("k").lease(LEASE).await.unwrap().granted().unwrap();

    let row = table.row("k").unwrap();
    assert!(row["ownerName"]["S"].as_str().unwrap().starts_with("me/"), "{row}");
    assert_eq!(row["leaseDuration"], json!({"S": "20000"}));
    assert_eq!(row["leaseEndsAt"], json!({"N": (now + 20_000).to_string()}));
    assert_eq!(row["fencingToken"], json!({"N": lock.fencing_token().to_string()}));
    assert!(row["recordVersionNumber"]["S"].as_str().unwrap().starts_with("ll1-"));
    assert_eq!(row.as_object().unwrap().len(), 6, "nothing else is written: {row}");
    assert!(lock.fencing_token() > now, "the first token comes from the clock");
    lock.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_released_row_is_acquired_with_the_next_token() {
    let table = Table::new();
    let locks = table.process().locks("me");
    let first = locks.try_acquire("k").lease(LEASE).await.unwrap().granted().unwrap();
    let token = first.fencing_token();
    first.release().await.unwrap();
    assert_eq!(table.attribute("k", "isReleased").as_deref(), Some("1"));

    let second = locks.try_acquire("k").lease(LEASE).await.unwrap().granted().unwrap();
    assert_eq!(second.fencing_token(), token + 1);
    assert_eq!(table.attribute("k", "isReleased"), None);
    second.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_deleted_row_is_acquired_and_its_token_still_grows() {
    let table = Table::new();
    let locks = table.process().locks("me");
    let first = locks.try_acquire("k").lease(LEASE).await.unwrap().granted().unwrap();
    let token = first.fencing_token();
    first.release().delete_row().await.unwrap();
    assert_eq!(table.row("k"), None);

    tokio::time::sleep(Duration::from_millis(5)).await;
    let second = locks.try_acquire("k").lease(LEASE).await.unwrap().granted().unwrap();
    assert!(second.fencing_token() > token);
    second.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_held_lock_is_refused_and_says_by_whom_and_until_when() {
    let table = Table::new();
    let (one, two) = (table.process(), table.process());
    let lock = one.locks("one").try_acquire("k").lease(LEASE).await.unwrap().granted().unwrap();
    tokio::time::sleep(secs(5)).await;

    let refused = two.locks("two").try_acquire("k").lease(LEASE).await.unwrap();
    let held = refused.held().unwrap();
    assert!(held.holder.starts_with("one/"), "{held:?}");
    assert_eq!(held.lease_ends_at, lock.lease_ends_at());
    // Fifteen seconds of the lease are left after two round trips, then the two seconds by which clocks may differ.
    assert_eq!(held.retry_after, Duration::from_millis(17_001) - 2 * ROUND_TRIP);
    assert_eq!(two.take_operations(), ["UpdateItem"]);
    lock.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_lost_race_ends_as_held() {
    let table = Table::new();
    let (java, two) = (table.process(), table.process());
    // A released row of a Java client: it takes a Claim, then a Take of exactly that version.
    table.put_java_row("k", "v1", LEASE);
    table.set("k", json!({"isReleased": {"S": "1"}}));
    two.next([Fault::None, Fault::Slow(Duration::from_millis(100))]);
    let locks = two.locks("two");
    let attempt = tokio::spawn(async move { locks.try_acquire("k").lease(LEASE).await });
    // Between the two, somebody else wins.
    tokio::time::sleep(Duration::from_millis(20)).await;
    assert_eq!(two.take_operations(), ["UpdateItem", "UpdateItem"]);
    let winner = java.locks("winner").try_acquire("k").lease(LEASE).await.unwrap().granted().unwrap();
    let refused = attempt.await.unwrap().unwrap();
    assert!(refused.held().unwrap().holder.starts_with("winner/"));
    winner.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn waiting_ends_where_the_reserve_begins_and_never_before() {
    let table = Table::new();
    let (one, two) = (table.process(), table.process());
    let lock = one.locks("one").try_acquire("k").lease(secs(6000)).await.unwrap().granted().unwrap();

    // Many lengths, so that the end falls into each part of a pause.
    for number in 0..25 {
        let wait = Duration::from_millis(4000 + 37 * number);
        let started = tokio::time::Instant::now();
        let budget = two.budget(wait + secs(12)).reserve(secs(12));
        let error = two.locks("two").acquire("k").within(&budget).await.unwrap_err();
        assert!(error.is_held(), "{error}");
        // One last look, which may have been under way.
        let latest = wait + ROUND_TRIP + Duration::from_millis(1);
        assert!(started.elapsed() >= wait && started.elapsed() <= latest, "{wait:?}: {:?}", started.elapsed());
    }
    lock.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn waiting_ends_in_time_also_for_a_process_that_is_frozen_or_whose_clock_is_set_back_meanwhile() {
    for frozen in [true, false] {
        let table = Table::new();
        let (one, two) = (table.process(), table.process());
        let lock = one.locks("one").try_acquire("k").lease(secs(6000)).await.unwrap().granted().unwrap();
        two.set_date_offset(None);
        let clock = two.clock.clone();
        let disturbed = tokio::spawn(async move {
            tokio::time::sleep(secs(1)).await;
            if frozen {
                clock.freeze(secs(6)).await;
            } else {
                clock.jump_wall(-3_600_000);
            }
        });
        let started = tokio::time::Instant::now();
        let budget = two.budget(secs(30)).reserve(secs(20));
        let error = two.locks("two").acquire("k").within(&budget).await.unwrap_err();
        assert!(error.is_held(), "{error}");
        let latest = secs(10) + ROUND_TRIP + Duration::from_millis(1);
        assert!(
            started.elapsed() >= secs(10) && started.elapsed() <= latest,
            "frozen: {frozen}: {:?}",
            started.elapsed()
        );
        disturbed.await.unwrap();
        lock.release().await.unwrap();
    }
}

/// Rows that an acquire would take, each in front of a client that is throttled from then on.
#[tokio::test(start_paused = true)]
async fn a_lock_that_this_call_would_take_is_never_reported_as_held() {
    let throttled = || vec![Fault::error("ThrottlingException"); 500];
    for what in ["a peer's, released", "released in the future", "dead by what was carried", "dying while it waits"] {
        let table = Table::new();
        let (one, two) = (table.process(), table.process());
        let locks = two.locks("two");
        let acquired = match what {
            "a peer's, released" => {
                table.put_java_row("k", "v1", LEASE);
                table.set("k", json!({"isReleased": {"S": "1"}}));
                two.next(std::iter::once(Fault::None).chain(throttled()));
                locks.try_acquire("k").lease(LEASE).await.map(drop)
            }
            "released in the future" => {
                one.clock.jump_wall(1_500);
                let lock = one.locks("one").try_acquire("k").lease(LEASE).await.unwrap().granted().unwrap();
                lock.release().await.unwrap();
                two.next(std::iter::once(Fault::None).chain(throttled()));
                locks.try_acquire("k").lease(LEASE).await.map(drop)
            }
            "dead by what was carried" => {
                table.put_java_row("k", "v1", LEASE);
                let seen = locks.try_acquire("k").lease(LEASE).await.unwrap().held().unwrap().observation.clone();
                two.next(std::iter::once(Fault::None).chain(throttled()));
                locks.try_acquire("k").lease(LEASE).observation(seen.and_waited(secs(60))).await.map(drop)
            }
            _ => {
                table.put_java_row("k", "v1", secs(3));
                let network = two.clone();
                let brown_out = tokio::spawn(async move {
                    // Its lease and 5 % of it are over a moment later.
                    tokio::time::sleep(Duration::from_millis(3_100)).await;
                    network.next(throttled());
                });
                let budget = two.budget(secs(60)).reserve(secs(50));
                let waited = locks.acquire("k").within(&budget).await.map(drop);
                brown_out.await.unwrap();
                waited
            }
        };
        let error = acquired.expect_err("it was throttled");
        assert!(matches!(error.kind(), ErrorKind::Unavailable), "{what}: {error}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_waiter_gets_the_lock_soon_after_it_was_released() {
    let table = Table::new();
    let (one, two) = (table.process(), table.process());
    let lock = one.locks("one").try_acquire("k").lease(secs(600)).await.unwrap().granted().unwrap();
    let (locks, budget) = (two.locks("two"), two.budget(secs(60)));
    let waiter = tokio::spawn(async move { locks.acquire("k").within(&budget).await });
    tokio::time::sleep(secs(10)).await;
    let token = lock.fencing_token();
    lock.release().await.unwrap();
    let released = tokio::time::Instant::now();

    let lock = waiter.await.unwrap().unwrap();
    assert!(released.elapsed() <= Duration::from_millis(250), "{:?}", released.elapsed());
    assert_eq!(lock.fencing_token(), token + 1);
    lock.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn the_lease_follows_the_budget_and_checkpoints_do_not_push_it_past_the_end() {
    let table = Table::new();
    let process = table.process();
    let budget = process.budget(secs(60)).grace(secs(2));
    let begin = process.clock.wall_millis();
    let mut lock = process.locks("me").acquire("k").within(&budget).await.unwrap();
    // (60 + 2) × 1.05
    assert_eq!(table.attribute("k", "leaseDuration").as_deref(), Some("65100"));
    let ends = table.attribute("k", "leaseEndsAt");
    assert_eq!(ends, Some((begin + 65_100).to_string()));
    assert_eq!(lock.remaining(), secs(62) - ROUND_TRIP);

    tokio::time::sleep(secs(40)).await;
    lock.checkpoint().await.unwrap();
    assert_eq!(table.attribute("k", "leaseEndsAt"), ends, "neither later nor earlier");
    assert_eq!(table.attribute("k", "leaseDuration").as_deref(), Some("65100"), "never shortened");
    // The guard believes in the earlier of its two ends.
    assert!(lock.remaining() <= Duration::from_millis(25_100), "{:?}", lock.remaining());
    lock.release().await.unwrap();
}

/// With a lease of its own a lock is renewed up to the end of the budget and its grace, for a function that is
/// killed late, and not beyond.
#[tokio::test(start_paused = true)]
async fn a_renewal_within_a_budget_covers_its_grace_and_nothing_after_it() {
    for renewed_by in ["checkpoint", "renew", "commit", "resume"] {
        let table = Table::new();
        let process = table.process();
        let locks = process.locks("me");
        let deadline = process.clock.wall_millis() + 60_000;
        let budget = process.budget(secs(60)).grace(secs(2));
        let mut lock = locks.acquire("k").within(&budget).lease(LEASE).await.unwrap();
        let ends = || table.attribute("k", "leaseEndsAt").unwrap().parse::<u64>().unwrap();
        // Before, in and after the last lease of the budget.
        for seconds in [5, 45, 10, 1, 5] {
            tokio::time::sleep(secs(seconds)).await;
            let now = process.clock.wall_millis();
            let lease = secs(if renewed_by == "renew" { 30 } else { 20 });
            lock = match renewed_by {
                "checkpoint" => lock.checkpoint().await.map(|()| lock),
                "renew" => lock.renew().lease(lease).await.map(|()| lock),
                "commit" => lock.commit([]).await.map(|()| lock),
                _ => locks.resume(lock.into_token()).within(&budget).await,
            }
            .unwrap();
            let covered = (deadline + 2_000).max(now);
            let expected = match renewed_by {
                // It asks for the rest of the budget.
                "resume" => covered,
                _ => covered.min(now + lease.as_millis() as u64),
            };
            assert_eq!(ends(), expected, "{renewed_by} at {}", now as i64 - deadline as i64);
        }
        let _ = lock.into_token();
    }
}

/// A frozen sandbox stops the monotonic clock, and a wall clock may be put back: neither gives time back.
#[tokio::test(start_paused = true)]
async fn a_budget_counts_by_whichever_clock_says_that_more_has_passed() {
    for frozen in [true, false] {
        let table = Table::new();
        let process = table.process();
        process.set_date_offset(None);
        let locks = process.locks("me");
        let budget = process.budget(secs(60)).grace(secs(2)).reserve(secs(30));
        if frozen {
            process.clock.freeze(secs(20)).await;
        } else {
            tokio::time::sleep(secs(20)).await;
            process.clock.jump_wall(-3_600_000);
        }
        assert_eq!(budget.remaining(), Some(secs(40)), "frozen: {frozen}");
        let lock = locks.acquire("k").within(&budget).await.unwrap();
        // (40 + 2) × 1.05
        assert_eq!(table.attribute("k", "leaseDuration").as_deref(), Some("44100"), "frozen: {frozen}");
        // Ten seconds are left to wait in.
        let started = tokio::time::Instant::now();
        assert!(process.locks("other").acquire("k").within(&budget).await.unwrap_err().is_held());
        assert!(started.elapsed() < secs(10) + 2 * ROUND_TRIP, "frozen: {frozen}: {:?}", started.elapsed());
        lock.release().await.unwrap();
        tokio::time::sleep(secs(31)).await;
        let error = locks.acquire("k").within(&budget).await.unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::OutOfTime { .. }), "frozen: {frozen}: {error}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_spent_budget_is_refused_without_a_request() {
    let table = Table::new();
    let process = table.process();
    let budget = process.budget(secs(1));
    tokio::time::sleep(secs(2)).await;
    for error in [
        process.locks("me").acquire("k").within(&budget).await.unwrap_err(),
        process.locks("me").try_acquire("k").within(&budget).await.unwrap_err(),
    ] {
        assert!(matches!(error.kind(), ErrorKind::OutOfTime { .. }), "{error}");
    }
    assert!(process.take_sent().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_retried_task_gets_its_own_lock_again_with_a_larger_token() {
    let table = Table::new();
    let (first_run, retry) = (table.process(), table.process());
    let owner = "execution-1";
    let mut first = first_run.locks("1").try_acquire("k").lease(LEASE).owner(owner).await.unwrap().granted().unwrap();

    let refused = retry.locks("2").try_acquire("k").lease(LEASE).owner(owner).await.unwrap();
    assert!(refused.granted().is_none(), "only if asked for");
    retry.take_sent();
    let again =
        retry.locks("2").try_acquire("k").lease(LEASE).owner(owner).reclaim_own().await.unwrap().granted().unwrap();
    assert_eq!(retry.take_operations(), ["UpdateItem", "UpdateItem"]);
    assert_eq!(again.fencing_token(), first.fencing_token() + 1);
    assert!(first.checkpoint().await.unwrap_err().is_lost());
    let other = retry.locks("3").try_acquire("k").lease(LEASE).owner("execution-2").reclaim_own().await.unwrap();
    assert_eq!(other.held().unwrap().holder, owner);
    again.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn the_same_owner_text_on_a_peers_row_is_nobody_of_ours() {
    let table = Table::new();
    table.put_java_row("k", "v1", LEASE);
    let locks = table.process().locks("a-java-host");
    assert!(locks.try_acquire("k").lease(LEASE).owner("a-java-host").reclaim_own().await.unwrap().granted().is_none());
}

#[tokio::test(start_paused = true)]
async fn composite_keys_do_not_collide() {
    let table = Table::with_keys(&["pk", "sk"]);
    let process = table.process();
    let locks = process.builder().key_attribute("pk").sort_key_attribute("sk").owner("me").build().unwrap();
    let one = locks.try_acquire(("a", "bc")).lease(LEASE).await.unwrap().granted().unwrap();
    let two = locks.try_acquire(("ab", "c")).lease(LEASE).await.unwrap().granted().unwrap();
    assert_eq!(one.key(), &LockKey::from(("a", "bc")));
    assert!(locks.try_acquire(("a", "bc")).lease(LEASE).await.unwrap().granted().is_none());
    one.release().await.unwrap();
    two.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_workflow_stands_on_the_row_only_while_it_holds_the_lock() {
    let table = Table::new();
    let locks = table.process().locks("me");
    let mut lock = locks.try_acquire("k").lease(LEASE).workflow("arn:1").await.unwrap().granted().unwrap();
    lock.checkpoint().await.unwrap();
    assert_eq!(table.attribute("k", "workflow").as_deref(), Some("arn:1"));
    lock.release().await.unwrap();
    assert_eq!(table.attribute("k", "workflow"), None);

    // A dead workflow's mark does not stay on the lock of whoever takes it over.
    let dead = locks.try_acquire("k").lease(LEASE).workflow("arn:2").await.unwrap().granted().unwrap();
    let _ = dead.into_token();
    tokio::time::sleep(secs(23)).await;
    let next = locks.try_acquire("k").lease(LEASE).await.unwrap().granted().unwrap();
    assert_eq!(table.attribute("k", "workflow"), None);
    next.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn ttl_is_written_by_every_write_and_lies_after_the_retention() {
    let table = Table::new();
    let process = table.process();
    let locks = process.builder().ttl_attribute("expiresAt").ttl_retention(secs(3600)).build().unwrap();
    // From the moment before each request.
    let seconds = |after: u64| Some((process.clock.wall_millis().div_ceil(1000) + after).to_string());
    let expected = seconds(20 + 3600);
    let mut lock = locks.try_acquire("k").lease(LEASE).await.unwrap().granted().unwrap();
    assert_eq!(table.attribute("k", "expiresAt"), expected);
    tokio::time::sleep(secs(7)).await;
    let expected = seconds(20 + 3600);
    lock.checkpoint().await.unwrap();
    assert_eq!(table.attribute("k", "expiresAt"), expected);
    tokio::time::sleep(secs(7)).await;
    let expected = seconds(3600);
    lock.release().await.unwrap();
    assert_eq!(table.attribute("k", "expiresAt"), expected);
}

#[tokio::test(start_paused = true)]
async fn no_request_is_waited_for_much_longer_than_the_time_of_its_call() {
    let table = Table::new();
    let process = table.process();
    let (locks, budget) = (process.locks("me"), process.budget(Duration::from_millis(1_200)));
    process.next(vec![Fault::BlackHole; 10]);
    let started = tokio::time::Instant::now();

    let error = locks.try_acquire("k").within(&budget).await.unwrap_err();

    assert!(error.is_unknown(), "{error}");
    // The clean-up, and the request before it, have 250 ms each.
    assert!(started.elapsed() <= Duration::from_millis(1_700), "{:?}", started.elapsed());
}
