//! A watch tells other code how long the lock is ours, and wakes it before the lease ends.

use crate::{BELIEVED, LEASE, SHORT_BELIEVED, SHORT_LEASE};
use lambda_lock::{Error, LockWatch, ReleaseOutcome};
use lambda_lock_testkit::{Fault, ROUND_TRIP, Table, acquired, ends_within, millis, secs};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Wake, Waker};
use std::time::Duration;
use tokio::task::{JoinHandle, yield_now};
use tokio::time::{Instant, sleep};

/// Notes in another task when each of the two futures completes.
fn noted(watch: &LockWatch, before: Duration) -> (JoinHandle<Instant>, JoinHandle<Instant>) {
    let (near, end) = (watch.clone(), watch.clone());
    let near = tokio::spawn(async move {
        ends_within(secs(60), near.nearing_end(before)).await;
        Instant::now()
    });
    let end = tokio::spawn(async move {
        ends_within(secs(60), end.ended()).await;
        Instant::now()
    });
    (near, end)
}

#[tokio::test(start_paused = true)]
async fn a_watch_wakes_other_tasks_before_the_lease_ends_and_when_it_ends() {
    let table = Table::new();
    let started = Instant::now();
    let lock = acquired(&table.process().locks("me"), LEASE).await;
    let watch = lock.watch();
    assert_eq!(watch.remaining(), lock.remaining());

    let (near, end) = noted(&watch, secs(5));

    assert_eq!(near.await.unwrap(), started + BELIEVED - secs(5));
    assert_eq!(watch.remaining(), secs(5));
    assert_eq!(end.await.unwrap(), started + BELIEVED);
    assert_eq!((watch.remaining(), watch.is_lost()), (Duration::ZERO, false), "ended is not lost");
    lock.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_renewal_delays_what_the_watch_waits_for() {
    let table = Table::new();
    let mut lock = acquired(&table.process().locks("me"), LEASE).await;
    let (near, end) = noted(&lock.watch(), secs(5));
    sleep(secs(10)).await;

    let renewed = Instant::now();
    lock.checkpoint().await.unwrap();

    assert_eq!(near.await.unwrap(), renewed + BELIEVED - secs(5));
    assert_eq!(end.await.unwrap(), renewed + BELIEVED);
    lock.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_lock_that_is_renewed_after_its_end_is_ours_for_the_watch_too() {
    let table = Table::new();
    let mut lock = acquired(&table.process().locks("me"), LEASE).await;
    let watch = lock.watch();
    ends_within(LEASE, watch.ended()).await;

    lock.checkpoint().await.unwrap();

    assert_eq!(watch.remaining(), BELIEVED - ROUND_TRIP);
    lock.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_watch_says_at_once_that_the_lock_is_lost() {
    let table = Table::new();
    let mut lock = acquired(&table.process().locks("me"), LEASE).await;
    let watch = lock.watch();
    let (near, end) = noted(&watch, secs(1));
    yield_now().await;

    table.delete("k");
    lock.checkpoint().await.unwrap_err();
    let lost = Instant::now();

    assert!(watch.is_lost());
    assert_eq!(watch.remaining(), Duration::ZERO);
    assert_eq!((near.await.unwrap(), end.await.unwrap()), (lost, lost));
}

#[tokio::test(start_paused = true)]
async fn a_watch_ends_with_its_guard() {
    let table = Table::new();
    let locks = table.process().locks("me");

    let released = acquired(&locks, LEASE).await;
    let watch = released.watch();
    let (near, end) = noted(&watch, secs(1));
    yield_now().await;
    let now = Instant::now();
    let release = released.release();
    assert_eq!((watch.remaining(), watch.is_lost()), (Duration::ZERO, false), "before the request is sent");
    assert_eq!((near.await.unwrap(), end.await.unwrap()), (now, now));
    release.await.unwrap();

    let saved = acquired(&locks, LEASE).await;
    let watch = saved.watch();
    let saved = saved.save();
    ends_within(millis(1), watch.ended()).await;
    locks.release(saved).await.unwrap();

    let committed = acquired(&locks, LEASE).await;
    let watch = committed.watch();
    committed.commit_and_release([]).await.unwrap();
    ends_within(millis(1), watch.ended()).await;
}

#[tokio::test(start_paused = true)]
async fn a_dropped_lock_is_ours_until_its_lease_ends_for_the_watch_too() {
    let table = Table::new();
    let started = Instant::now();
    let watch = acquired(&table.process().locks("me"), SHORT_LEASE).await.watch();

    ends_within(LEASE, watch.ended()).await;

    assert_eq!(Instant::now(), started + SHORT_BELIEVED);
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_is_polled_after_a_freeze_does_not_wait_for_its_timer() {
    let table = Table::new();
    let process = table.process();
    let lock = acquired(&process.locks("me"), LEASE).await;
    let (watch, started) = (lock.watch(), Instant::now());

    tokio::select! {
        biased;
        () = watch.ended() => {}
        () = async {
            yield_now().await;
            // Only the wall clock shows the freeze, and the timer runs on the other clock.
            process.clock.jump_wall(60_000);
            yield_now().await;
            sleep(LEASE).await;
        } => panic!("it waits for its timer"),
    }

    assert!(started.elapsed() < secs(1), "{:?}", started.elapsed());
    lock.release().await.unwrap();
}

/// The answer to the transaction is lost. It was applied, so the lock is free.
#[tokio::test(start_paused = true)]
async fn a_watch_ends_when_a_commit_and_release_is_sent() {
    let table = Table::new();
    let process = table.process();
    let lock = acquired(&process.locks("me"), LEASE).await;
    let watch = lock.watch();
    process.next(vec![Fault::BlackHole; 100]);

    let ended = ends_within(secs(1), async {
        tokio::select! {
            biased;
            _ = lock.commit_and_release([]) => panic!("nothing gets through"),
            () = watch.ended() => watch.remaining(),
        }
    });

    assert_eq!(ended.await, Duration::ZERO);
    assert!(!watch.is_lost());
}

#[tokio::test(start_paused = true)]
async fn a_watch_says_that_a_release_found_the_lock_lost() {
    let table = Table::new();
    let locks = table.process().locks("me");
    let lock = acquired(&locks, LEASE).await;
    let watch = lock.watch();
    let next = locks.reclaim(lock.to_saved()).lease(LEASE).await.unwrap();

    assert_eq!(lock.release().await.unwrap(), ReleaseOutcome::AlreadyGone);

    assert!(watch.is_lost());
    next.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_lock_that_is_lost_stays_lost_for_the_watch() {
    let table = Table::new();
    let process = table.process();
    let (locks, budget) = (process.locks("me"), process.budget(secs(60)));
    let mut watch = None;

    let answer: Result<(), Error> = locks
        .with_lock("k", &budget, async |lock| {
            watch = Some(lock.watch());
            table.delete("k");
            lock.checkpoint().await
        })
        .await;

    assert!(answer.unwrap_err().is_lost());
    assert!(watch.unwrap().is_lost());
}

#[tokio::test(start_paused = true)]
async fn a_task_that_waits_hears_that_another_one_found_the_lease_ended() {
    let table = Table::new();
    let process = table.process();
    let lock = acquired(&process.locks("me"), LEASE).await;
    let (_, end) = noted(&lock.watch(), secs(1));
    yield_now().await;
    let thawed = Instant::now();

    process.clock.jump_wall(60_000);
    assert!(lock.remaining().is_zero());

    assert_eq!(end.await.unwrap(), thawed);
    lock.release().await.unwrap();
}

mod inside_keep_alive {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_watch_shows_the_renewals() {
        let table = Table::new();
        let process = table.process();
        let budget = process.budget(secs(300));

        let shortest = Arc::new(Mutex::new(BELIEVED));
        let done: Result<(), Error> = process
            .locks("me")
            .acquire("k")
            .lease(LEASE)
            .within(&budget)
            .await
            .unwrap()
            .run(async |lock| {
                let watch = lock.watch();
                let work = async {
                    for _ in 0..1_000 {
                        let so_far = *shortest.lock().unwrap();
                        *shortest.lock().unwrap() = watch.remaining().min(so_far);
                        sleep(millis(100)).await;
                    }
                };
                tokio::pin!(work);
                lock.keep_alive(async {
                    tokio::select! {
                        () = &mut work => {}
                        () = watch.nearing_end(BELIEVED / 3) => panic!("it was renewed in time"),
                    }
                })
                .await
            })
            .await;

        done.unwrap();
        let shortest = *shortest.lock().unwrap();
        assert!(shortest > BELIEVED / 2 && shortest < BELIEVED * 3 / 4, "{shortest:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn work_hears_of_the_end_in_time_when_renewals_fail() {
        let table = Table::new();
        let process = table.process();
        let started = Instant::now();
        let mut lock = acquired(&process.locks("me"), LEASE).await;
        process.next(vec![Fault::BlackHole; 100]);
        let watch = lock.watch();

        let heard = lock
            .keep_alive(async {
                ends_within(LEASE, watch.nearing_end(secs(3))).await;
                Instant::now()
            })
            .await
            .unwrap();

        assert_eq!(heard, started + BELIEVED - secs(3));
        process.clear();
        lock.release().await.unwrap();
    }
}

/// Any number of watches, dropped and made again at any time, while the lock is renewed, idle and without an answer.
mod in_any_schedule {
    use super::*;
    use tokio::time::timeout;

    /// Waits again and again, and stops waiting at any time. Notes what it waits for.
    async fn waits(watch: LockWatch, mut random: fastrand::Rng, waits_for: Arc<Mutex<Option<Duration>>>) {
        loop {
            let before = match random.u32(0..6) {
                0 => Duration::ZERO,
                1 => Duration::MAX,
                2 => BELIEVED,
                _ => millis(random.u64(0..25_000)),
            };
            *waits_for.lock().unwrap() = Some(before);
            let patience = millis(random.u64(1..30_000));
            if timeout(patience, watch.nearing_end(before)).await.is_ok() {
                assert!(watch.remaining() <= before, "{:?} is left, and not {before:?}", watch.remaining());
            }
            *waits_for.lock().unwrap() = None;
            sleep(millis(random.u64(1..500))).await;
        }
    }

    async fn settled() {
        for _ in 0..10 {
            yield_now().await;
        }
    }

    fn nobody_waits_below(left: Duration, waiting: &[Arc<Mutex<Option<Duration>>>], seed: u64) {
        for waits_for in waiting {
            let before = *waits_for.lock().unwrap();
            assert!(before.is_none_or(|before| left > before), "seed {seed}: {left:?} left, waits for {before:?}");
        }
    }

    async fn runs(seed: u64, with_a_wall_clock_that_jumps: bool) {
        let mut random = fastrand::Rng::with_seed(seed);
        let table = Table::new();
        let process = table.process();
        let mut lock = acquired(&process.locks("me"), LEASE).await;
        let waiting: Vec<_> = (0..4).map(|_| Arc::new(Mutex::new(None))).collect();
        let tasks: Vec<_> = waiting
            .iter()
            .map(|waits_for| tokio::spawn(waits(lock.watch(), random.fork(), waits_for.clone())))
            .collect();
        for _ in 0..40 {
            match random.u32(0..10) {
                0..5 => sleep(millis(random.u64(0..9_000))).await,
                5 | 6 => drop(lock.checkpoint().await),
                7 => drop(lock.renew().lease(millis(random.u64(1..60_000))).await),
                8 => drop(timeout(millis(random.u64(0..50)), lock.checkpoint()).await),
                _ if with_a_wall_clock_that_jumps => process.clock.jump_wall(random.i64(-9_000..9_000)),
                _ => {
                    process.next(vec![Fault::BlackHole; 2]);
                    drop(lock.checkpoint().await);
                    process.clear();
                }
            }
            settled().await;
            // A timer does not see that the wall clock jumps.
            if !with_a_wall_clock_that_jumps {
                nobody_waits_below(lock.remaining(), &waiting, seed);
            }
        }
        drop(lock.save());
        settled().await;
        nobody_waits_below(Duration::ZERO, &waiting, seed);
        for task in tasks {
            task.abort();
            assert!(task.await.unwrap_err().is_cancelled(), "seed {seed}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_watch_wakes_in_time_and_never_too_early() {
        for seed in 0..60 {
            runs(seed, false).await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_wall_clock_that_jumps_wakes_no_watch_too_early() {
        for seed in 0..60 {
            runs(seed, true).await;
        }
    }
}

/// An executor that polls at once what is woken.
struct AsksWhenWoken(LockWatch, AtomicBool);

impl Wake for AsksWhenWoken {
    fn wake(self: Arc<Self>) {
        assert_eq!(self.0.remaining(), Duration::ZERO);
        self.1.store(true, Ordering::Relaxed);
    }
}

#[tokio::test(start_paused = true)]
async fn whoever_is_woken_by_the_end_of_a_lease_may_ask_the_watch_at_once() {
    let table = Table::new();
    let lock = acquired(&table.process().locks("me"), LEASE).await;
    let watch = lock.watch();
    let woken = Arc::new(AsksWhenWoken(watch.clone(), AtomicBool::new(false)));
    let mut ended = pin!(watch.ended());
    let waker = Waker::from(woken.clone());
    assert!(ended.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    tokio::time::advance(LEASE).await;

    assert_eq!(lock.remaining(), Duration::ZERO);

    assert!(woken.1.load(Ordering::Relaxed));
}
