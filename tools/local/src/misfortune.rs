//! Misfortune for functions on this machine: processes that are killed or stand still, and requests to DynamoDB that are
//! lost, late, or without a response. All of it follows from a seed.

use crate::authorize::Fate;
use crate::lambda::Lambda;
use crate::sample::Sample;
use fastrand::Rng;
use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// The latest arrival of a late request. It is longer than the lease of a function with a timeout of 2 s.
pub const LATEST: Duration = Duration::from_secs(6);

/// What happens, and how often it did. Clones share the counts.
#[derive(Clone, Debug)]
pub struct Misfortune {
    seed: u64,
    counts: Arc<Counts>,
}

/// How often each kind of accident happened.
#[derive(Debug, Default)]
struct Counts {
    kills: AtomicU32,
    standstills: AtomicU32,
    requests: AtomicU32,
}

impl Misfortune {
    /// Draws a seed, or takes it from the variable with this name.
    pub fn from_env(name: &str) -> Self {
        let given = std::env::var(name).ok().and_then(|seed| seed.parse().ok());
        Self { seed: given.unwrap_or_else(|| fastrand::u64(..)), counts: Arc::default() }
    }

    /// The seed, to draw the same accidents again.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// How many processes were killed, how many stood still, and how many requests had an accident.
    pub fn counts(&self) -> [u32; 3] {
        let Counts { kills, standstills, requests } = &*self.counts;
        [kills, standstills, requests].map(|count| count.load(Ordering::Relaxed))
    }

    /// Whether at least so many processes were killed, so many stood still, and so many requests had an accident. A run that
    /// goes on until then does not depend on how fast the machine is.
    pub fn happened(&self, least: [u32; 3]) -> bool {
        self.counts().iter().zip(least).all(|(count, least)| *count >= least)
    }

    /// Lets requests to DynamoDB have accidents from now on, until [`end`](Misfortune::end).
    pub fn of_requests(&self, sample: &Sample) {
        let (rng, counts) = (Mutex::new(Rng::with_seed(self.seed)), Arc::clone(&self.counts));
        sample.proxy.decide(move |_| {
            let fate = fate(&mut rng.lock().unwrap_or_else(PoisonError::into_inner));
            counts.requests.fetch_add(u32::from(fate != Fate::Answered), Ordering::Relaxed);
            fate
        });
    }

    /// Kills processes of these functions, or lets them stand still, with pauses of so many milliseconds. It does not end
    /// by itself. A standstill is a moment, or longer than the lease of a function with a timeout of 2 s.
    pub async fn of_processes(&self, lambda: &Lambda, functions: &[&str], pauses: Range<u64>) {
        let mut rng = Rng::with_seed(self.seed.rotate_left(32));
        loop {
            tokio::time::sleep(Duration::from_millis(rng.u64(pauses.clone()))).await;
            let environments: Vec<_> = functions.iter().flat_map(|function| lambda.environments(function)).collect();
            let Some(environment) = rng.choice(environments) else { continue };
            if rng.u8(0..3) == 0 {
                self.counts.kills.fetch_add(u32::from(lambda.kill(environment).is_ok()), Ordering::Relaxed);
                continue;
            }
            let pause = Duration::from_millis(if rng.bool() { rng.u64(50..500) } else { rng.u64(3_500..6_000) });
            if lambda.stand_still(environment).is_ok() {
                self.counts.standstills.fetch_add(1, Ordering::Relaxed);
                let lambda = lambda.clone();
                tokio::spawn(async move {
                    tokio::time::sleep(pause).await;
                    // The process may have been killed meanwhile.
                    let _ = lambda.thaw(environment);
                });
            }
        }
    }

    /// Lets all requests to DynamoDB be answered from now on.
    pub fn end(&self, sample: &Sample) {
        sample.proxy.decide(|_| Fate::Answered);
    }
}

fn fate(rng: &mut Rng) -> Fate {
    match rng.u32(0..1000) {
        0..15 => Fate::AnswerLost,
        15..30 => Fate::RequestLost,
        30..45 => Fate::AppliedLate(Duration::from_millis(rng.u64(500..LATEST.as_millis() as u64))),
        45..60 => Fate::AppliedAgain(Duration::from_millis(rng.u64(10..LATEST.as_millis() as u64))),
        60..80 => Fate::AnsweredAfter(Duration::from_millis(rng.u64(10..300))),
        _ => Fate::Answered,
    }
}
