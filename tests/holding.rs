//! Holding: checkpoints, what the guard believes, and what it never believes again.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a helper of a test may stop it")]

use lambda_lock::protocol::Moment;
use lambda_lock::{Clock, Error, ErrorKind, Lock, LockClient, ReleaseOutcome, SharedClock, Sleep};
use lambda_lock_testkit::{Fault, ManualClock, ROUND_TRIP, Table, ends_within};
use serde_json::json;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

const LEASE: Duration = Duration::from_millis(21_000);
/// What a holder believes of it: 21 s / 1.05.
const BELIEVED: Duration = Duration::from_secs(20);

fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

async fn acquired(locks: &LockClient) -> Lock {
    locks.try_acquire("k").lease(LEASE).await.unwrap().granted().unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_holder_believes_in_less_than_the_lease_because_peers_allow_for_no_drift() {
    let table = Table::new();
    let lock = acquired(&table.process().locks("me")).await;
    assert_eq!(lock.remaining(), BELIEVED - ROUND_TRIP, "from before the request");
    tokio::time::sleep(secs(19)).await;
    assert_eq!(lock.remaining(), secs(1) - ROUND_TRIP);
    tokio::time::sleep(secs(1) - ROUND_TRIP - Duration::from_millis(1)).await;
    assert_eq!(lock.remaining(), Duration::from_millis(1));
    tokio::time::sleep(Duration::from_millis(1)).await;
    assert_eq!(lock.remaining(), Duration::ZERO);
    lock.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_checkpoint_renews_with_one_request_and_keeps_grant_and_token() {
    let table = Table::new();
    let process = table.process();
    let mut lock = acquired(&process.locks("me")).await;
    let (token, version) = (lock.fencing_token(), table.attribute("k", "recordVersionNumber").unwrap());
    process.take_sent();
    tokio::time::sleep(secs(15)).await;
    lock.checkpoint().await.unwrap();
    assert_eq!(process.take_operations(), ["UpdateItem"]);
    assert_eq!(lock.remaining(), BELIEVED - ROUND_TRIP);
    assert_eq!(lock.fencing_token(), token);
    let renewed = table.attribute("k", "recordVersionNumber").unwrap();
    assert_eq!(renewed[..36], version[..36], "the same grant");
    assert!(renewed > version, "a newer stamp");
    lock.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_ran_out_is_renewed_while_nobody_else_was_granted_the_lock() {
    let table = Table::new();
    let mut lock = acquired(&table.process().locks("me")).await;
    tokio::time::sleep(secs(100)).await;
    assert_eq!(lock.remaining(), Duration::ZERO);
    lock.checkpoint().await.unwrap();
    assert_eq!(lock.remaining(), BELIEVED - ROUND_TRIP);
    lock.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_guard_seen_expired_stays_expired_until_a_renewal_succeeds() {
    let table = Table::new();
    let process = table.process();
    let mut lock = acquired(&process.locks("me")).await;
    process.clock.jump_wall(60_000);
    assert_eq!(lock.remaining(), Duration::ZERO);
    process.clock.jump_wall(-60_000);
    assert_eq!(lock.remaining(), Duration::ZERO, "a clock that was put back does not make it ours again");
    process.next(vec![Fault::RequestLost; 40]);
    assert!(lock.checkpoint().await.is_err());
    assert_eq!(lock.remaining(), Duration::ZERO);
    process.take_sent();
    tokio::time::sleep(secs(5)).await;
    while lock.checkpoint().await.is_err() {}
    assert!(!lock.remaining().is_zero());
    lock.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_frozen_sandbox_does_not_come_back_young() {
    let table = Table::new();
    let process = table.process();
    let lock = acquired(&process.locks("me")).await;
    // The monotonic clock stood still for a minute; the wall clock did not.
    process.clock.freeze(secs(60)).await;
    assert_eq!(lock.remaining(), Duration::ZERO);
    let _ = lock.into_token();

    let lock = table.process().locks("x").try_acquire("other").lease(LEASE).await.unwrap().granted().unwrap();
    tokio::time::sleep(secs(5)).await;
    let _ = lock.into_token();
}

#[tokio::test(start_paused = true)]
async fn a_wall_clock_set_back_does_not_make_the_holder_young_either() {
    let table = Table::new();
    let process = table.process();
    let lock = acquired(&process.locks("me")).await;
    tokio::time::sleep(secs(15)).await;
    process.clock.jump_wall(-3_600_000);
    assert_eq!(lock.remaining(), secs(5) - ROUND_TRIP);
    lock.release().await.unwrap();
}

/// A process that is paused for five seconds between the first and the second reading of its clocks
/// in every step.
#[derive(Debug)]
struct PausedBetweenReadings {
    clock: ManualClock,
    readings: AtomicU32,
}

impl Clock for PausedBetweenReadings {
    fn now(&self) -> Moment {
        let reading = self.readings.fetch_add(1, Ordering::Relaxed);
        let mut now = self.clock.now();
        if reading > 1 {
            // From the second reading of the first step on, five seconds have passed.
            now.monotonic += secs(5);
            now.wall += secs(5);
        }
        now
    }

    fn sleep(&self, duration: Duration) -> Sleep {
        self.clock.sleep(duration)
    }

    fn random(&self) -> [u8; 16] {
        self.clock.random()
    }
}

#[tokio::test(start_paused = true)]
async fn a_pause_between_reading_the_clocks_and_the_request_makes_the_lease_older_not_younger() {
    let table = Table::new();
    let process = table.process();
    process.set_date_offset(None);
    let clock = PausedBetweenReadings { clock: process.clock.clone(), readings: AtomicU32::new(0) };
    let locks = process.builder().clock(SharedClock::new(clock)).build().unwrap();
    let before = process.clock.wall_millis();
    let lock = acquired(&locks).await;
    let ends: u64 = table.attribute("k", "leaseEndsAt").unwrap().parse().unwrap();
    assert_eq!(ends, before + 5_000 + 21_000, "`:now` was read after the pause");
    assert_eq!(lock.remaining(), BELIEVED - secs(5) - ROUND_TRIP, "the lease counts from before it");
    lock.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_renewal_after_a_takeover_says_lost_and_stays_lost() {
    let table = Table::new();
    let (one, two) = (table.process(), table.process());
    let mut lock = acquired(&one.locks("one")).await;
    tokio::time::sleep(secs(30)).await;
    let other = acquired(&two.locks("two")).await;
    let row = table.row("k");
    assert!(lock.checkpoint().await.unwrap_err().is_lost());
    assert_eq!(lock.remaining(), Duration::ZERO);
    assert!(lock.fits(Duration::from_millis(1)).is_err());
    one.take_sent();
    assert!(lock.checkpoint().await.unwrap_err().is_lost());
    assert!(one.take_sent().is_empty(), "once lost, nothing is asked any more");
    assert_eq!(lock.release().await.unwrap(), ReleaseOutcome::AlreadyGone);
    assert_eq!(table.row("k"), row, "the new owner's row is untouched");
    other.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_renewal_of_a_deleted_or_released_row_says_lost() {
    let table = Table::new();
    let locks = table.process().locks("me");
    let mut lock = acquired(&locks).await;
    table.delete("k");
    assert!(lock.checkpoint().await.unwrap_err().is_lost());

    let mut lock = acquired(&locks).await;
    locks.release(lock.token()).await.unwrap();
    assert!(lock.checkpoint().await.unwrap_err().is_lost());
}

#[tokio::test(start_paused = true)]
async fn a_step_that_the_lease_does_not_cover_is_refused() {
    let table = Table::new();
    let process = table.process();
    let lock = acquired(&process.locks("me")).await;
    process.take_sent();
    tokio::time::sleep(secs(15) - ROUND_TRIP).await;
    lock.fits(secs(5)).unwrap();
    let error = lock.fits(secs(6)).unwrap_err();
    assert!(
        matches!(error.kind(), ErrorKind::OutOfTime { needed, remaining } if (*needed, *remaining) == (secs(6), secs(5))),
        "{error}"
    );
    assert!(process.take_sent().is_empty());
    lock.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_renewal_lengthens_the_lease_and_never_shortens_it() {
    let table = Table::new();
    let mut lock = acquired(&table.process().locks("me")).await;
    lock.renew().lease(secs(60)).await.unwrap();
    assert_eq!(table.attribute("k", "leaseDuration").as_deref(), Some("60000"));
    lock.renew().lease(secs(1)).await.unwrap();
    assert_eq!(table.attribute("k", "leaseDuration").as_deref(), Some("60000"));
    lock.checkpoint().await.unwrap();
    assert_eq!(table.attribute("k", "leaseDuration").as_deref(), Some("60000"));
    lock.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_renewal_for_a_shorter_lease_whose_answer_was_lost_shortens_nothing() {
    let faults = [
        Fault::AnswerLost,
        Fault::NeverAnswers,
        Fault::failure_after_apply(),
        Fault::RequestLost,
        Fault::ArrivesLate(secs(5)),
    ];
    for fault in faults {
        let table = Table::new();
        let (one, two) = (table.process(), table.process());
        let mut lock = acquired(&one.locks("one")).await;
        one.next(vec![fault.clone(); 20]);
        let error = lock.renew().lease(secs(1)).await.unwrap_err();
        assert!(error.is_unknown(), "{fault:?}: {error}");
        // It goes on believing in the lease that it had, and so does everybody else.
        let believed = lock.remaining();
        assert!(believed > secs(16), "{fault:?}: {believed:?}");
        tokio::time::sleep(believed - Duration::from_millis(1)).await;
        assert!(!lock.remaining().is_zero(), "{fault:?}");
        let tried = two.locks("two").try_acquire("k").lease(LEASE).await.unwrap();
        assert!(tried.granted().is_none(), "{fault:?}: granted to two holders");
        assert_eq!(table.attribute("k", "leaseDuration").as_deref(), Some("21000"), "{fault:?}");
        one.clear();
        lock.release().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_renewal_that_arrives_late_does_not_shorten_a_lease_that_was_lengthened_meanwhile() {
    let table = Table::new();
    let (one, two) = (table.process(), table.process());
    let mut lock = acquired(&one.locks("one")).await;
    // The copy's clock runs ahead: its renewal has a newer version, and a later end, than any that one will
    // write.
    two.set_date_offset(None);
    two.clock.jump_wall(600_000);
    two.next([Fault::ArrivesLate(secs(10)), Fault::BlackHole, Fault::BlackHole]);
    assert!(two.locks("two").resume(lock.token()).await.unwrap_err().is_unknown());
    lock.renew().lease(secs(63)).await.unwrap();
    let renewed = table.row("k");
    tokio::time::sleep(secs(10)).await;
    assert_eq!(table.row("k"), renewed, "it knows only the lease that there was before");
    lock.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn the_end_of_the_lease_never_moves_back() {
    let table = Table::new();
    let process = table.process();
    process.set_date_offset(None);
    let mut lock = acquired(&process.locks("me")).await;
    let ends = table.attribute("k", "leaseEndsAt");
    process.clock.jump_wall(-5_000);
    lock.checkpoint().await.unwrap();
    assert_eq!(table.attribute("k", "leaseEndsAt"), ends);
    lock.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_copy_that_does_not_know_the_current_lease_takes_it_over() {
    let table = Table::new();
    let (one, two) = (table.process(), table.process());
    let mut lock = acquired(&one.locks("one")).await;
    let copy = lock.token();
    lock.renew().lease(secs(120)).await.unwrap();
    two.take_sent();
    let resumed = two.locks("two").resume(copy).await.unwrap();
    assert_eq!(two.take_operations(), ["UpdateItem", "UpdateItem"], "refused once, then with the row's lease");
    assert_eq!(table.attribute("k", "leaseDuration").as_deref(), Some("120000"));
    assert_eq!(resumed.fencing_token(), lock.fencing_token());
    lock.checkpoint().await.unwrap();
    let _ = resumed.into_token();
    lock.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_renewal_refused_by_ever_newer_copies_of_its_own_grant_ends_as_unknown() {
    let table = Table::new();
    let process = table.process();
    let mut lock = acquired(&process.locks("me")).await;
    // A copy far ahead in time that writes before each of our attempts.
    let version = table.attribute("k", "recordVersionNumber").unwrap();
    let busy = tokio::spawn({
        let table = table.clone();
        async move {
            for millis in 1.. {
                let stamp = format!("{:012x}0000", 2_000_000_000_000_u64 + 100_000 * millis);
                table.set("k", json!({"recordVersionNumber": {"S": format!("{}{stamp}", &version[..37])}}));
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        }
    });
    tokio::time::sleep(Duration::from_millis(1)).await;
    let error: Error = lock.checkpoint().await.unwrap_err();
    busy.abort();
    assert!(error.is_unknown(), "{error}");
    assert!(process.take_sent().len() > 5, "it tries again within its time");
    let _ = lock.into_token();
}

#[tokio::test(start_paused = true)]
async fn two_copies_that_renew_in_the_same_millisecond_never_write_the_same_version() {
    let table = Table::new();
    let (one, two) = (table.process(), table.process());
    // Else they would not be in the same millisecond.
    one.set_latency(Duration::ZERO);
    two.set_latency(Duration::ZERO);
    let lock = acquired(&one.locks("one")).await;
    let copy = lock.token();
    let mut a = one.locks("one").resume(copy.clone()).await.unwrap();
    let first = table.attribute("k", "recordVersionNumber").unwrap();
    let b = two.locks("two").resume(copy).await.unwrap();
    let second = table.attribute("k", "recordVersionNumber").unwrap();
    assert_ne!(first, second);
    assert_ne!(first[first.len() - 4..], second[second.len() - 4..], "the random digits differ");
    a.checkpoint().await.unwrap();
    let _ = (b.into_token(), lock.into_token());
    a.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn keep_alive_renews_while_the_work_runs_and_spawns_nothing() {
    let table = Table::new();
    let process = table.process();
    let mut lock = acquired(&process.locks("me")).await;
    process.take_sent();
    let answer = lock
        .keep_alive(async {
            tokio::time::sleep(secs(100)).await;
            42
        })
        .await
        .unwrap();
    assert_eq!(answer, 42);
    assert!(!lock.remaining().is_zero());
    let renewals = process.take_sent().len();
    assert!((14..=16).contains(&renewals), "a third of 20 s: {renewals} renewals in 100 s");
    lock.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn keep_alive_bridges_a_brown_out_that_is_shorter_than_the_lease() {
    let table = Table::new();
    let process = table.process();
    let mut lock = acquired(&process.locks("me")).await;
    process.next(vec![Fault::BlackHole; 6]);
    lock.keep_alive(tokio::time::sleep(secs(60))).await.unwrap();
    lock.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn keep_alive_stops_the_work_when_the_lock_is_lost_or_the_lease_runs_out() {
    let table = Table::new();
    let process = table.process();
    let locks = process.locks("me");
    let mut lock = acquired(&locks).await;
    table.delete("k");
    let mut finished = false;
    let error = lock
        .keep_alive(async {
            tokio::time::sleep(secs(60)).await;
            finished = true;
        })
        .await
        .unwrap_err();
    assert!(error.is_lost(), "{error}");

    let mut lock = acquired(&locks).await;
    process.next(vec![Fault::BlackHole; 100]);
    let started = tokio::time::Instant::now();
    let mut polled = started;
    let work = async {
        loop {
            polled = tokio::time::Instant::now();
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let error = lock.keep_alive(work).await.unwrap_err();
    assert!(error.is_unknown(), "{error}");
    assert!(polled <= started + BELIEVED, "{:?}", polled - started);
    assert!(!finished);
    let _ = lock.into_token();
}

#[tokio::test(start_paused = true)]
async fn keep_alive_under_a_budget_ends_with_it() {
    // The lease covers the budget and is hardly renewed, or it is short and renewed again and again.
    for (lease, requests) in [(None, 6), (Some(secs(5)), 30)] {
        let table = Table::new();
        let process = table.process();
        let budget = process.budget(secs(30));
        let locks = process.locks("me");
        let acquire = locks.acquire("k").within(&budget);
        let acquire = if let Some(lease) = lease { acquire.lease(lease) } else { acquire };
        let mut lock = acquire.await.unwrap();
        process.take_sent();
        let started = tokio::time::Instant::now();
        let error = ends_within(secs(60), lock.keep_alive(std::future::pending::<()>())).await.unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::OutOfTime { .. }), "{lease:?}: {error}");
        // Thirty seconds, one of grace, and the drift of the lease that the first write asked for.
        let elapsed = started.elapsed() + ROUND_TRIP;
        assert!(elapsed >= secs(31) && elapsed <= secs(33), "{lease:?}: {elapsed:?}");
        assert!(process.take_sent().len() <= requests, "{lease:?}");
        let _ = lock.into_token();
    }
}
