//! Guarded work: it is not polled after the end of its lease, whoever polls it.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a helper of a test may stop it")]

use lambda_lock::{Error, ErrorKind, Lock, LockClient};
use lambda_lock_testkit::{Fault, Process, ROUND_TRIP, Table};
use std::future::poll_fn;
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;
use tokio::time::{Instant, sleep};

const LEASE: Duration = Duration::from_millis(2_100);
/// What a holder believes of it: 2.1 s / 1.05.
const BELIEVED: Duration = Duration::from_secs(2);

fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

async fn acquired(locks: &LockClient) -> Lock {
    locks.try_acquire("k").lease(LEASE).await.unwrap().granted().unwrap()
}

/// Work that never ends, and remembers when it was polled last.
#[derive(Clone)]
struct Polled(Arc<Mutex<Instant>>);

impl Polled {
    fn new() -> Self {
        Self(Arc::new(Mutex::new(Instant::now())))
    }

    /// Wants to be polled every 10 ms.
    async fn work(self) {
        loop {
            *self.0.lock().unwrap() = Instant::now();
            sleep(Duration::from_millis(10)).await;
        }
    }

    /// Wants to be polled without end, and is for this long.
    async fn busy_for(self, duration: Duration) {
        let started = Instant::now();
        poll_fn(|context| {
            *self.0.lock().unwrap() = Instant::now();
            if started.elapsed() >= duration {
                return Poll::Ready(());
            }
            context.waker().wake_by_ref();
            Poll::Pending
        })
        .await;
    }

    fn last(&self) -> Instant {
        *self.0.lock().unwrap()
    }
}

/// From now on nothing arrives.
fn goes_dark(process: &Process) {
    process.next(vec![Fault::BlackHole; 1000]);
}

#[tokio::test(start_paused = true)]
async fn work_that_is_kept_alive_stands_still_when_its_lease_ends_while_a_renewal_is_pending() {
    for timeout in [Duration::from_millis(300), secs(1), secs(5)] {
        let table = Table::new();
        let (one, two) = (table.process(), table.process());
        let locks = one.builder().request_timeout(timeout).build().unwrap();
        let mut lock = acquired(&locks).await;
        let granted = Instant::now();
        goes_dark(&one);
        let polled = Polled::new();

        let next = tokio::spawn(async move {
            let locks = two.locks("two");
            let lock = locks.acquire("k").within(&two.budget(secs(60))).await.unwrap();
            let at = Instant::now();
            lock.release().await.unwrap();
            at
        });
        let error = lock.keep_alive(polled.clone().work()).await.unwrap_err();

        assert!(error.is_unknown(), "{error}");
        assert!(polled.last() <= granted + BELIEVED, "{:?} after its grant", polled.last() - granted);
        assert!(polled.last() > granted + BELIEVED - Duration::from_millis(20), "as long as the lock is ours it runs");
        assert!(polled.last() < next.await.unwrap(), "beside the next holder");
    }
}

#[tokio::test(start_paused = true)]
async fn work_that_is_kept_alive_is_not_polled_by_a_thawed_process_whose_lease_has_ended() {
    let table = Table::new();
    let (one, two) = (table.process(), table.process());
    let mut lock = acquired(&one.locks("one")).await;
    let polled = Polled::new();
    let work = polled.clone().work();
    let thawed = Arc::new(Mutex::new(None));
    let thaw = {
        let (one, thawed) = (one.clone(), thawed.clone());
        tokio::spawn(async move {
            sleep(Duration::from_millis(100)).await;
            // The wall clock has gone on, and no timer has.
            one.clock.jump_wall(60_000);
            goes_dark(&one);
            *thawed.lock().unwrap() = Some(Instant::now());
            let lock = acquired(&two.locks("two")).await;
            let _ = lock.into_token();
        })
    };
    two_lets_the_lease_pass(&table).await;

    let error = lock.keep_alive(work).await.unwrap_err();

    thaw.await.ok();
    let thawed = thawed.lock().unwrap().unwrap();
    assert!(polled.last() <= thawed, "polled {:?} after the thaw: {error}", polled.last() - thawed);
}

/// The row says that its lease ended long ago, as it does when a process was frozen.
async fn two_lets_the_lease_pass(table: &Table) {
    let ends: u64 = table.attribute("k", "leaseEndsAt").unwrap().parse().unwrap();
    table.set("k", serde_json::json!({"leaseEndsAt": {"N": (ends - 60_000).to_string()}}));
}

#[tokio::test(start_paused = true)]
async fn work_that_is_kept_alive_goes_on_after_a_freeze_if_nobody_else_was_granted_the_lock() {
    let table = Table::new();
    let process = table.process();
    let mut lock = acquired(&process.locks("me")).await;
    let clock = process.clock.clone();
    let work = async move {
        sleep(Duration::from_millis(100)).await;
        clock.jump_wall(60_000);
        sleep(secs(10)).await;
        7
    };

    assert_eq!(lock.keep_alive(work).await.unwrap(), 7);

    lock.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn work_that_is_kept_alive_outlives_a_renewal_that_fails_with_most_of_the_lease_left() {
    for code in ["ExpiredTokenException", "AccessDeniedException", "ValidationException", "ResourceNotFoundException"] {
        let table = Table::new();
        let process = table.process();
        let mut lock = acquired(&process.locks("me")).await;
        process.next([Fault::error(code)]);

        lock.keep_alive(sleep(secs(10))).await.unwrap();

        lock.release().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn work_that_is_kept_alive_ends_with_its_lease_when_every_renewal_is_denied() {
    let table = Table::new();
    let process = table.process();
    let mut lock = acquired(&process.locks("me")).await;
    process.next(vec![Fault::error("ExpiredTokenException"); 100]);
    let (polled, granted) = (Polled::new(), Instant::now());

    let error = lock.keep_alive(polled.clone().work()).await.unwrap_err();

    assert!(matches!(error.kind(), ErrorKind::Denied), "{error}");
    assert!(polled.last() <= granted + BELIEVED);
    assert!(process.take_sent().len() < 30, "it does not hurry");
    let _ = lock.into_token();
}

#[tokio::test(start_paused = true)]
async fn work_under_a_lock_is_dropped_when_its_lease_ends_and_the_lock_is_given_back() {
    let table = Table::new();
    let process = table.process();
    let (locks, budget) = (process.locks("me"), process.budget(secs(60)));
    let (polled, started) = (Polled::new(), Instant::now());

    let answer: Result<(), Error> = locks
        .acquire("k")
        .lease(LEASE)
        .within(&budget)
        .run(async |_| {
            polled.clone().work().await;
            Ok(())
        })
        .await;

    let error = answer.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::CutShort), "{error}");
    assert!(error.to_string().contains("was released"), "{error}");
    assert!(polled.last() <= started + BELIEVED && polled.last() > started + BELIEVED - Duration::from_millis(20));
    assert!(table.attribute("k", "isReleased").is_some());
}

#[tokio::test(start_paused = true)]
async fn work_under_a_lock_may_run_as_long_as_it_renews_in_time() {
    let table = Table::new();
    let process = table.process();
    let (locks, budget) = (process.locks("me"), process.budget(secs(60)));

    let answer: Result<u32, Error> = locks
        .acquire("k")
        .lease(LEASE)
        .within(&budget)
        .run(async |lock| {
            for _ in 0..10 {
                sleep(Duration::from_millis(1_500)).await;
                lock.checkpoint().await?;
            }
            lock.keep_alive(sleep(secs(10))).await?;
            Ok(7)
        })
        .await;

    assert_eq!(answer.unwrap(), 7);
}

#[tokio::test(start_paused = true)]
async fn work_under_a_lock_is_not_polled_by_a_thawed_process_whose_lease_has_ended() {
    let table = Table::new();
    let process = table.process();
    let (locks, budget) = (process.locks("me"), process.budget(secs(60)));
    let polled = Polled::new();
    let mut thawed = None;

    let answer: Result<(), Error> = locks
        .acquire("k")
        .lease(LEASE)
        .within(&budget)
        .run(async |_| {
            process.clock.jump_wall(60_000);
            thawed = Some(Instant::now());
            tokio::task::yield_now().await;
            polled.clone().busy_for(secs(1)).await;
            Ok(())
        })
        .await;

    assert!(matches!(answer.unwrap_err().kind(), ErrorKind::CutShort));
    assert!(polled.last() <= thawed.unwrap());
}

#[tokio::test(start_paused = true)]
async fn whoever_opts_out_goes_on_after_the_end_of_the_lease() {
    let table = Table::new();
    let process = table.process();
    let (locks, budget) = (process.locks("me"), process.budget(secs(60)));

    let work = locks.acquire("k").lease(LEASE).within(&budget).without_cut();
    let answer: Result<bool, Error> = work
        .run(async |lock| {
            sleep(secs(10)).await;
            let expired = lock.remaining().is_zero();
            lock.checkpoint().await?;
            Ok(expired)
        })
        .await;

    assert!(answer.unwrap(), "the guard says so all the same");
}

#[tokio::test(start_paused = true)]
async fn work_that_ended_well_under_a_lock_that_was_lost_is_an_error() {
    let table = Table::new();
    let (one, two) = (table.process(), table.process());
    let budget = one.budget(secs(60));

    let answer: Result<(), Error> = one
        .locks("one")
        .with_lock("k", &budget, async |_| {
            // Somebody repairs the table by hand.
            table.delete("k");
            let _ = acquired(&two.locks("two")).await.into_token();
            Ok(())
        })
        .await;

    let error = answer.unwrap_err();
    assert!(error.is_lost() && error.to_string().contains("ended well"), "{error}");
    assert_eq!(table.attribute("k", "isReleased"), None, "two's lock is left alone");
}

#[tokio::test(start_paused = true)]
async fn a_release_whose_answer_was_lost_does_not_make_good_work_an_error() {
    let table = Table::new();
    let (one, two) = (table.process(), table.process());
    let budget = one.budget(secs(60));
    let locks = one.locks("one");
    let work = locks.with_lock("k", &budget, async |_| {
        // The release is applied, its answer is lost, and two is faster than the repetition.
        one.next([Fault::NeverAnswers]);
        Ok::<_, Error>(7)
    });
    let rival = async {
        tokio::time::sleep(ROUND_TRIP).await;
        let lock = two.locks("two").acquire("k").within(&two.budget(secs(60))).await.unwrap();
        let _ = lock.into_token();
    };

    let (answer, ()) = tokio::join!(work, rival);

    assert_eq!(answer.unwrap(), 7);
}

#[tokio::test(start_paused = true)]
async fn work_that_learns_of_its_loss_and_goes_on_all_the_same_is_not_polled() {
    let table = Table::new();
    let process = table.process();
    let (locks, budget) = (process.locks("me"), process.budget(secs(60)));
    let polled = Polled::new();
    let (work, lost) = (polled.clone(), Arc::new(Mutex::new(None)));

    let answer: Result<(), Error> = locks
        .acquire("k")
        .lease(LEASE)
        .within(&budget)
        .run(async |lock| {
            let stolen = locks.reclaim(lock.token()).lease(secs(30)).await?;
            assert!(lock.checkpoint().await.unwrap_err().is_lost());
            *lost.lock().unwrap() = Some(Instant::now());
            work.clone().work().await;
            stolen.release().await.map(|_| ())
        })
        .await;

    let error = answer.unwrap_err();
    assert!(error.is_lost(), "{error}");
    assert!(polled.last() <= lost.lock().unwrap().unwrap(), "polled after its lock was lost");
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_was_seen_to_have_ended_does_not_come_back_with_a_clock_that_is_set_back() {
    for seen_before in [false, true] {
        let table = Table::new();
        let process = table.process();
        let locks = process.builder().request_timeout(secs(1)).build().unwrap();
        let mut lock = acquired(&locks).await;
        let (polled, clock) = (Polled::new(), process.clock.clone());
        goes_dark(&process);
        if seen_before {
            clock.jump_wall(60_000);
            assert!(lock.remaining().is_zero());
            clock.jump_wall(-60_000);
        }
        let ended = Instant::now() + Duration::from_millis(if seen_before { 0 } else { 100 });
        let jumps = tokio::spawn(async move {
            if !seen_before {
                sleep(Duration::from_millis(95)).await;
                clock.jump_wall(60_000);
                sleep(Duration::from_millis(100)).await;
                clock.jump_wall(-60_000);
            }
        });

        let error = lock.keep_alive(polled.clone().work()).await.unwrap_err();

        jumps.await.unwrap();
        assert!(error.is_unknown(), "{error}");
        assert!(polled.last() <= ended, "polled {:?} after the end was seen", polled.last() - ended);
    }
}

#[tokio::test(start_paused = true)]
async fn idle_work_that_has_renewed_is_dropped_when_its_new_lease_ends() {
    let table = Table::new();
    let process = table.process();
    let (locks, budget) = (process.locks("me"), process.budget(secs(60)));
    let started = Instant::now();

    let answer: Result<(), Error> = locks
        .acquire("k")
        .lease(LEASE)
        .within(&budget)
        .run(async |lock| {
            sleep(secs(1)).await;
            lock.checkpoint().await?;
            std::future::pending().await
        })
        .await;

    assert!(matches!(answer.unwrap_err().kind(), ErrorKind::CutShort));
    let ended = started.elapsed();
    assert!(ended > secs(1) + BELIEVED && ended < secs(1) + BELIEVED + ROUND_TRIP * 4, "{ended:?}");
}

#[tokio::test(start_paused = true)]
async fn renewals_that_fail_are_tried_again_well_before_the_end_of_the_lease() {
    let table = Table::new();
    let process = table.process();
    let mut lock = acquired(&process.locks("me")).await;
    process.next([(); 3].map(|()| Fault::error("ExpiredTokenException")));
    assert!(lock.keep_alive(sleep(secs(3))).await.is_ok());
    lock.release().await.unwrap();
}
