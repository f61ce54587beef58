//! Taking over from the dead, by both rules, and never from the living.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a helper of a test may stop it")]

use lambda_lock::{LockClient, Observation, TryAcquired};
use lambda_lock_testkit::{Fault, Process, ROUND_TRIP, Table};
use serde_json::json;
use std::time::Duration;

const LEASE: Duration = Duration::from_secs(20);

fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// Somebody acquires the lock and dies.
async fn die_holding(locks: &LockClient, lease: Duration) -> u64 {
    let lock = locks.try_acquire("k").lease(lease).await.unwrap().granted().unwrap();
    lock.into_token().fencing_token()
}

async fn refused(locks: &LockClient) -> Observation {
    match locks.try_acquire("k").lease(LEASE).await.unwrap() {
        TryAcquired::Granted(_) => panic!("granted"),
        TryAcquired::Held(held) => held.observation,
    }
}

async fn is_granted(locks: &LockClient, seen: Observation) -> bool {
    match locks.try_acquire("k").lease(LEASE).observation(seen).await.unwrap() {
        TryAcquired::Granted(lock) => {
            let _ = lock.into_token();
            true
        }
        TryAcquired::Held(_) => false,
    }
}

fn without_wall_clock(process: &Process) -> LockClient {
    process.builder().owner("watcher").without_wall_clock_takeover().build().unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_dead_holder_of_ours_is_taken_over_in_one_request_after_its_end_and_the_skew() {
    let table = Table::new();
    let (one, two) = (table.process(), table.process());
    let token = die_holding(&one.locks("one"), LEASE).await;

    let locks = two.locks("two");
    // By the wall clock of the moment before the request.
    tokio::time::sleep(secs(22) - ROUND_TRIP).await;
    let early = table.process();
    early.set_latency(Duration::ZERO);
    let tried = early.locks("early").try_acquire("k").lease(LEASE).await.unwrap();
    assert!(tried.granted().is_none(), "not one millisecond early");
    tokio::time::sleep(Duration::from_millis(1)).await;
    two.take_sent();
    let lock = locks.try_acquire("k").lease(LEASE).await.unwrap().granted().unwrap();
    assert_eq!(two.take_operations(), ["UpdateItem"]);
    assert_eq!(lock.fencing_token(), token + 1);
    lock.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_renewed_lock_is_never_taken_and_an_abandoned_one_is() {
    let table = Table::new();
    let (one, two) = (table.process(), table.process());
    let mut lock = one.locks("one").try_acquire("k").lease(secs(5)).await.unwrap().granted().unwrap();
    let locks = without_wall_clock(&two);
    let budget = two.budget(secs(400));
    let waiter = tokio::spawn(async move { locks.acquire("k").within(&budget).await });
    for _ in 0..40 {
        tokio::time::sleep(secs(4)).await;
        assert!(!waiter.is_finished());
        lock.checkpoint().await.unwrap();
    }
    let abandoned = tokio::time::Instant::now();
    let _ = lock.into_token();
    let lock = waiter.await.unwrap().unwrap();
    // A whole lease and the drift from the last renewal, one poll and its jitter.
    let (least, most) = (Duration::from_millis(5_250), Duration::from_millis(5_250 + 250 + 25));
    assert!(abandoned.elapsed() >= least && abandoned.elapsed() <= most, "{:?}", abandoned.elapsed());
    lock.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_waiter_takes_over_by_observation_with_one_claim_and_one_take_beside_its_polls() {
    let table = Table::new();
    let two = table.process();
    table.put_java_row("k", "v1", secs(3));
    let lock = two.locks("two").acquire("k").within(&two.budget(secs(60))).await.unwrap();
    let counts = two.take_counts();
    assert_eq!(counts["UpdateItem"], 2, "{counts:?}");
    assert!(counts["GetItem"] <= 24, "{counts:?}");
    lock.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_changed_version_restarts_the_observation() {
    let table = Table::new();
    let two = table.process();
    table.put_java_row("k", "v1", secs(10));
    let locks = two.locks("two");
    let budget = two.budget(secs(200));
    let waiter = tokio::spawn(async move { locks.acquire("k").within(&budget).await });
    tokio::time::sleep(secs(9)).await;
    table.put_java_row("k", "v2", secs(10));
    tokio::time::sleep(secs(9)).await;
    assert!(!waiter.is_finished(), "18 s of two versions are no 10 s of one");
    tokio::time::sleep(secs(3)).await;
    waiter.await.unwrap().unwrap().release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn the_lease_that_counts_is_the_one_on_the_row_now() {
    let table = Table::new();
    let two = table.process();
    table.put_java_row("k", "v1", secs(10));
    let locks = two.locks("two");
    let seen = refused(&locks).await;
    // The same version with a longer lease: no client does that, a repair by hand might.
    table.put_java_row("k", "v1", secs(40));
    assert!(!is_granted(&locks, seen.clone().and_waited(secs(20))).await);
    assert!(is_granted(&locks, seen.and_waited(secs(42))).await);
}

#[tokio::test(start_paused = true)]
async fn a_carried_observation_survives_a_process_restart() {
    let table = Table::new();
    table.put_java_row("k", "v1", LEASE);
    let mut carried: Option<String> = None;
    for call in 0.. {
        // A new process each time: nothing but the observation goes on.
        let process = table.process();
        let locks = process.locks("two");
        let mut acquire = locks.acquire("k");
        if let Some(text) = carried.take() {
            acquire = acquire.observation(serde_json::from_str::<Observation>(&text).unwrap());
        }
        let budget = process.budget(secs(5)).reserve(Duration::ZERO);
        match acquire.within(&budget).await {
            Ok(lock) => {
                // 21 s of watching in calls of 5 s each.
                assert_eq!(call, 4);
                return lock.release().await.map(drop).unwrap();
            }
            Err(error) => carried = Some(serde_json::to_string(&error.held().unwrap().observation).unwrap()),
        }
        // Time that passes between the calls does not count by itself.
        tokio::time::sleep(secs(1000)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn time_between_calls_counts_only_if_the_caller_vouches_for_it() {
    let table = Table::new();
    table.put_java_row("k", "v1", LEASE);
    let locks = table.process().locks("two");
    let seen = refused(&locks).await;
    tokio::time::sleep(secs(100)).await;
    assert!(!is_granted(&locks, seen.clone()).await);
    assert!(!is_granted(&locks, seen.clone().and_waited(Duration::from_millis(20_999))).await);
    assert!(is_granted(&locks, seen.and_waited(secs(21))).await);
}

#[tokio::test(start_paused = true)]
async fn an_observation_of_another_version_counts_nothing() {
    let table = Table::new();
    table.put_java_row("k", "v1", LEASE);
    let locks = table.process().locks("two");
    let seen = refused(&locks).await.and_waited(secs(1000));
    table.put_java_row("k", "v2", LEASE);
    assert!(!is_granted(&locks, seen).await);
}

#[tokio::test(start_paused = true)]
async fn the_observed_span_begins_after_the_first_answer() {
    let table = Table::new();
    table.put_java_row("k", "v1", secs(2));
    let process = table.process();
    let locks = process.builder().request_timeout(secs(10)).build().unwrap();
    // The answer says what was true 5 s ago: the holder may have renewed since.
    process.next([Fault::Slow(secs(5))]);
    match locks.try_acquire("k").lease(LEASE).await.unwrap() {
        TryAcquired::Granted(_) => panic!("an answer that travelled for 5 s proves nothing"),
        TryAcquired::Held(held) => assert_eq!(held.observation.unchanged_for(), Duration::ZERO),
    }
}

#[tokio::test(start_paused = true)]
async fn a_contender_counts_by_the_slower_of_its_clocks() {
    for freeze in [false, true] {
        let table = Table::new();
        table.put_java_row("k", "v1", secs(10));
        let process = table.process();
        let locks = process.locks("two");
        let budget = process.budget(secs(300)).reserve(Duration::ZERO);
        let started = tokio::time::Instant::now();
        let waiter = tokio::spawn(async move { locks.acquire("k").within(&budget).await });
        tokio::time::sleep(secs(5)).await;
        if freeze {
            // The monotonic clock stands still for 8 s.
            process.clock.freeze(secs(8)).await;
        } else {
            process.clock.jump_wall(60_000);
        }
        waiter.await.unwrap().unwrap().release().await.unwrap();
        let least = Duration::from_millis(10_500) + if freeze { secs(8) } else { Duration::ZERO };
        assert!(started.elapsed() >= least, "freeze={freeze}: {:?}", started.elapsed());
    }
}

#[tokio::test(start_paused = true)]
async fn without_wall_clock_takeover_a_dead_holder_of_ours_must_be_watched_too() {
    let table = Table::new();
    let (one, two) = (table.process(), table.process());
    die_holding(&one.locks("one"), secs(3)).await;
    tokio::time::sleep(secs(1000)).await;
    let locks = without_wall_clock(&two);
    assert!(locks.try_acquire("k").lease(LEASE).await.unwrap().granted().is_none());
    let started = tokio::time::Instant::now();
    let lock = locks.acquire("k").within(&two.budget(secs(60))).await.unwrap();
    assert!(started.elapsed() >= Duration::from_millis(3_150), "{:?}", started.elapsed());
    lock.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_wall_clock_that_the_server_contradicts_is_not_used_against_others() {
    let table = Table::new();
    let (one, two) = (table.process(), table.process());
    let mut lock = one.locks("one").try_acquire("k").lease(LEASE).await.unwrap().granted().unwrap();
    // Two's wall clock is a minute ahead: by it, one has been dead for long.
    two.clock.jump_wall(60_000);
    let locks = two.locks("two");
    // Any two answers tell: here those of another key.
    for _ in 0..2 {
        locks.peek("another").await.unwrap();
    }
    let refused = locks.try_acquire("k").lease(LEASE).await.unwrap();
    assert!(refused.held().is_some(), "a clock that is a minute off must not kill a living holder");
    lock.checkpoint().await.unwrap();
    lock.release().await.unwrap();

    // What it writes for others is no earlier than its own clock says: a correction may be wrong.
    let two_now = two.clock.wall_millis();
    let lock = locks.try_acquire("k").lease(LEASE).await.unwrap().granted().unwrap();
    let ends: u64 = table.attribute("k", "leaseEndsAt").unwrap().parse().unwrap();
    assert!(ends.abs_diff(two_now + 20_000) <= 1_000, "{ends}");
    lock.release().await.unwrap();
}

/// A process whose wall clock the server has contradicted, in answers about another key.
async fn contradicted(process: &Process, locks: &LockClient, wrong_by: i64) {
    process.clock.jump_wall(wrong_by);
    for _ in 0..3 {
        locks.peek("another").await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_clock_that_is_wrong_once_more_kills_nobody() {
    for again in [60_000, 600_000] {
        let table = Table::new();
        let (one, two) = (table.process(), table.process());
        let mut lock = one.locks("one").try_acquire("k").lease(LEASE).await.unwrap().granted().unwrap();
        let locks = two.locks("two");
        // Contradicted and put right, and then the clock jumps again before the next answer.
        contradicted(&two, &locks, 60_000).await;
        two.clock.jump_wall(again);
        let tried = locks.try_acquire("k").lease(LEASE).await.unwrap();
        assert!(tried.granted().is_none(), "by its first request");
        two.clock.jump_wall(again);
        let waited = locks.acquire("k").within(&two.budget(secs(5))).await;
        assert!(waited.unwrap_err().is_held(), "by what it sends after a refusal");
        lock.checkpoint().await.unwrap();
        lock.release().await.unwrap();
    }
}

/// What a client wrote when its clock was ahead, it remembers for its own next acquire, but for a moment only.
#[tokio::test(start_paused = true)]
async fn a_clock_that_was_put_right_kills_nobody_whatever_was_written_before() {
    for given_back in ["release", "commit and release", "workflow"] {
        let table = Table::new();
        let (one, two) = (table.process(), table.process());
        let mut lock = one.locks("one").try_acquire("k").lease(LEASE).await.unwrap().granted().unwrap();
        two.set_date_offset(None);
        let locks = two.locks("two");
        two.clock.jump_wall(60_000);
        let other = locks.try_acquire("another").workflow("arn:1").lease(LEASE).await.unwrap().granted().unwrap();
        match given_back {
            "release" => drop(other.release().await.unwrap()),
            "commit and release" => other.commit_and_release([]).await.unwrap(),
            _ => {
                let _ = other.into_token();
                locks.release_workflow("another", "arn:1").await.unwrap();
            }
        }
        two.clock.jump_wall(-60_000);
        let tried = locks.try_acquire("k").lease(LEASE).await.unwrap();
        assert!(tried.granted().is_none(), "{given_back}");
        assert!(locks.acquire("k").within(&two.budget(secs(5))).await.unwrap_err().is_held(), "{given_back}");
        lock.checkpoint().await.unwrap();
        // What it writes from then on is right too.
        let now = two.clock.wall_millis();
        let third = locks.try_acquire("third").lease(LEASE).await.unwrap().granted().unwrap();
        let ends: u64 = table.attribute("third", "leaseEndsAt").unwrap().parse().unwrap();
        assert!((now + 20_000..=now + 20_020).contains(&ends), "{given_back}: {ends} at {now}");
        third.release().await.unwrap();
        lock.release().await.unwrap();
    }
}

/// An answer that travels for long says a time that is long past when it arrives. That is no reason to distrust
/// the clock it is compared with, also where the process was frozen meanwhile and only its wall clock saw the time.
#[tokio::test(start_paused = true)]
async fn an_answer_that_was_on_its_way_for_long_does_not_make_the_clock_look_wrong() {
    for frozen in [false, true] {
        for (there, back) in [(0, 9), (9, 0), (5, 5)] {
            let what = format!("frozen: {frozen}, {there} s there, {back} s back");
            let table = Table::new();
            let (one, two) = (table.process(), table.process());
            die_holding(&one.locks("one"), secs(1)).await;
            let locks = two.builder().owner("two").request_timeout(secs(30)).build().unwrap();
            for _ in 0..3 {
                // The whole round trip, in both directions.
                two.next([Fault::SlowBothWays(secs(there), secs(back))]);
                let read = async { locks.peek("another").await.map(drop) };
                if frozen {
                    tokio::join!(read, two.clock.freeze(secs(there + back))).0.unwrap();
                } else {
                    read.await.unwrap();
                }
            }
            two.take_sent();
            let lock = locks.try_acquire("k").lease(LEASE).await.unwrap().granted();
            assert!(lock.is_some(), "the dead are taken over by the wall clock as before: {what}");
            assert_eq!(two.take_operations(), ["UpdateItem"], "{what}");
            lock.unwrap().release().await.unwrap();
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_released_row_from_the_future_is_taken_by_its_version() {
    let table = Table::new();
    let (one, two) = (table.process(), table.process());
    one.clock.jump_wall(1_500);
    one.locks("one").try_acquire("k").lease(LEASE).await.unwrap().granted().unwrap().release().await.unwrap();
    // Claim refuses: the release is newer than our :now, so our Claim might be a delayed copy.
    let lock = two.locks("two").try_acquire("k").lease(LEASE).await.unwrap().granted().unwrap();
    assert_eq!(two.take_operations(), ["UpdateItem", "UpdateItem"]);
    lock.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_peers_lock_is_left_alone_whatever_stale_attributes_of_ours_it_carries() {
    let table = Table::new();
    // Go copies our attributes forward when it writes a row.
    table.put_java_row("k", "v1", LEASE);
    table.set("k", json!({"leaseEndsAt": {"N": "5"}, "fencingToken": {"N": "7"}}));
    let locks = table.process().locks("two");
    assert!(locks.try_acquire("k").lease(LEASE).await.unwrap().granted().is_none());
}
