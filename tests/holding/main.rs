//! Holding: renewals, how long the guard relies on its lease, and the work that runs meanwhile.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a helper of a test may stop it")]

mod keep_alive;
mod lease;
mod renewals;
mod watch;
mod work_kept_alive;
mod work_under_a_lock;

use lambda_lock_testkit::{millis, secs};
use std::future::poll_fn;
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;
use tokio::time::{Instant, sleep};

const LEASE: Duration = millis(21_000);
/// How long a holder relies on its lease: 21 s / 1.05.
const BELIEVED: Duration = secs(20);
const SHORT_LEASE: Duration = millis(2_100);
/// How long a holder relies on its lease: 2.1 s / 1.05.
const SHORT_BELIEVED: Duration = secs(2);

/// Work that is to be stopped, and stores when it was last polled. It fails when it was not stopped for a minute, so that
/// no test hangs.
#[derive(Clone)]
struct Polled(Arc<Mutex<Instant>>);

impl Polled {
    fn new() -> Self {
        Self(Arc::new(Mutex::new(Instant::now())))
    }

    /// Waits to be polled every 10 ms.
    async fn work(self) {
        let began = Instant::now();
        while began.elapsed() < secs(60) {
            *self.0.lock().unwrap() = Instant::now();
            sleep(millis(10)).await;
        }
        panic!("the work was not stopped");
    }

    /// Asks to be polled again at once, each time. No virtual time passes meanwhile, so the polls are counted.
    async fn busy(self) {
        let mut polls = 0;
        poll_fn(|context| {
            *self.0.lock().unwrap() = Instant::now();
            polls += 1;
            assert!(polls < 10_000, "the work was not stopped");
            context.waker().wake_by_ref();
            Poll::<()>::Pending
        })
        .await;
    }

    fn last(&self) -> Instant {
        *self.0.lock().unwrap()
    }
}
