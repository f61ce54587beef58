//! How long a holder relies on its lease, and that it does not rely on it again after its end.

use crate::{BELIEVED, LEASE};
use lambda_lock::Instants;
use lambda_lock::{Clock, ErrorKind, Sleep};
use lambda_lock_testkit::{Fault, ManualClock, ROUND_TRIP, Table, acquired, granted, millis, secs};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use tokio::time::sleep;

/// The clocks of a process that is paused for five seconds between the first and the second reading
/// of its clocks in every step.
#[derive(Debug)]
struct PausedBetweenReadings {
    clock: ManualClock,
    readings: AtomicU32,
}

impl Clock for PausedBetweenReadings {
    fn now(&self) -> Instants {
        let reading = self.readings.fetch_add(1, Ordering::Relaxed);
        let mut now = self.clock.now();
        if reading > 1 {
            // Five seconds have passed from the second reading of the first step on.
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
async fn a_holder_relies_on_less_than_the_lease_because_peers_allow_for_no_drift() {
    let table = Table::new();

    let lock = acquired(&table.process().locks("me"), LEASE).await;
    assert_eq!(lock.remaining(), BELIEVED - ROUND_TRIP, "from before the request");

    sleep(secs(19)).await;
    assert_eq!(lock.remaining(), secs(1) - ROUND_TRIP);

    sleep(secs(1) - ROUND_TRIP - millis(1)).await;
    assert_eq!(lock.remaining(), millis(1));

    sleep(millis(1)).await;
    assert_eq!(lock.remaining(), Duration::ZERO);
    lock.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_expired_lease_is_renewed_while_no_other_caller_was_granted_the_lock() {
    let table = Table::new();
    let mut lock = acquired(&table.process().locks("me"), LEASE).await;

    sleep(secs(100)).await;
    assert_eq!(lock.remaining(), Duration::ZERO);

    lock.checkpoint().await.unwrap();
    assert_eq!(lock.remaining(), BELIEVED - ROUND_TRIP);
    lock.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_guard_seen_expired_stays_expired_until_a_renewal_succeeds() {
    let table = Table::new();
    let process = table.process();
    let mut lock = acquired(&process.locks("me"), LEASE).await;

    process.clock.jump_wall(60_000);
    assert_eq!(lock.remaining(), Duration::ZERO);

    process.clock.jump_wall(-60_000);
    assert_eq!(lock.remaining(), Duration::ZERO, "a clock that was put back does not make it ours again");

    process.next(vec![Fault::RequestLost; 40]);
    assert!(lock.checkpoint().await.is_err());
    assert_eq!(lock.remaining(), Duration::ZERO);

    process.take_sent();
    sleep(secs(5)).await;

    process.clear();
    lock.checkpoint().await.unwrap();
    assert!(!lock.remaining().is_zero());
    lock.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_frozen_sandbox_does_not_lengthen_the_lease() {
    let table = Table::new();
    let process = table.process();
    let lock = acquired(&process.locks("me"), LEASE).await;

    // The monotonic clock stood still for a minute, but the wall clock did not.
    process.clock.freeze(secs(60)).await;

    assert_eq!(lock.remaining(), Duration::ZERO);
    let _ = lock.save();

    let lock = granted(table.process().locks("x").acquire("other").lease(LEASE).try_once()).await;
    sleep(secs(5)).await;
    let _ = lock.save();
}

#[tokio::test(start_paused = true)]
async fn a_wall_clock_set_back_does_not_lengthen_the_lease() {
    let table = Table::new();
    let process = table.process();
    let lock = acquired(&process.locks("me"), LEASE).await;
    sleep(secs(15)).await;

    process.clock.jump_wall(-3_600_000);

    assert_eq!(lock.remaining(), secs(5) - ROUND_TRIP);
    lock.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_pause_between_reading_the_clocks_and_the_request_shortens_what_is_left_of_the_lease() {
    let table = Table::new();
    let process = table.process();
    process.set_date_offset(None);
    let clock = PausedBetweenReadings { clock: process.clock.clone(), readings: AtomicU32::new(0) };
    let locks = process.builder().clock(Arc::new(clock)).build().unwrap();
    let before = process.clock.wall_millis();

    let lock = acquired(&locks, LEASE).await;

    let ends = table.number("k", "leaseEndsAt");
    assert_eq!(ends, before + 5_000 + 21_000, "`:now` was read after the pause");
    assert_eq!(lock.remaining(), BELIEVED - secs(5) - ROUND_TRIP, "the lease counts from before it");
    lock.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_step_that_the_lease_does_not_cover_is_refused() {
    let table = Table::new();
    let process = table.process();
    let lock = acquired(&process.locks("me"), LEASE).await;
    process.take_sent();
    sleep(secs(15) - ROUND_TRIP).await;

    lock.ensure_remaining(secs(5)).unwrap();

    let error = lock.ensure_remaining(secs(6)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::OutOfTime, "{error}");
    assert_eq!((error.needed(), error.remaining()), (Some(secs(6)), Some(secs(5))));
    assert!(process.take_sent().is_empty());
    lock.release().await.unwrap();
}
