//! Works that run under a guard. They are polled only while the guard is valid, in every kind of call.
//!
//! A work is polled at the instant at which its guard was checked in the same turn, by its process's clock. A process
//! can be paused between the check and the poll. Only fencing covers that pause, so both are one instant here.

use super::{Me, grant_of};
use crate::ledger::{CallKind, Ended, Invariant, Reclaims};
use lambda_lock::{Error, ErrorKind, Lock};
use lambda_lock_protocol::Grant;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

/// Whether `with_lock` and `run` stop their work at the end of the lease, as `keep_alive` does.
const WITH_LOCK_TOO: bool = true;

/// Why a guarded work failed.
#[derive(Debug)]
pub(super) struct Failed(pub(super) Option<Error>);

impl From<Error> for Failed {
    fn from(error: Error) -> Self {
        Self(Some(error))
    }
}

/// A part of a work. Each poll of it is entered into the ledger.
struct Polled<'a, F> {
    me: &'a Me,
    granted: usize,
    begun: bool,
    /// Whether the guard must stop it.
    by_guard: bool,
    work: Pin<&'a mut F>,
}

impl<F: Future> Future for Polled<'_, F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let fresh = !std::mem::replace(&mut self.begun, true);
        if self.by_guard {
            self.me.state().works(self.me.id, self.granted, fresh);
        }
        self.work.as_mut().poll(context)
    }
}

/// What the ledger needs when a work that owns its lock ends or is dropped.
struct AtWork<'a> {
    me: &'a Me,
    key: usize,
    grant: Grant,
    token: u64,
}

impl Drop for AtWork<'_> {
    fn drop(&mut self) {
        let Self { me, key, grant, token } = *self;
        let mut state = me.state();
        state.processes[me.id].holds = None;
        if state.processes[me.id].alive {
            // The work was dropped in the middle of a call.
            state.call_ends(me.id, Ended::Unknown, None);
            state.call_begins(me.id, key, CallKind::Release { grant, token, later_of: None });
        }
    }
}

impl Me {
    /// Naps. Each poll of a nap counts as a poll of the work.
    async fn works(&self, granted: usize, naps: u32, most: f64, by_guard: bool) {
        let work = pin!(async {
            for _ in 0..naps {
                self.rest(self.part_of_lease(most)).await;
            }
        });
        Polled { me: self, granted, begun: false, by_guard: WITH_LOCK_TOO || by_guard, work }.await;
    }

    /// One long step under `keep_alive`.
    pub(super) async fn keeps_alive(&self, key: usize, lock: &mut Lock, granted: usize) -> Ended {
        let (grant, token) = grant_of(&lock.to_saved());
        self.state().call_begins(self.id, key, CallKind::Hold(grant, token));
        let naps = self.state().rng.u32(1..=6);
        let lease = self.state().plan.lease;
        let work = self.works(granted, naps, 1.0, true);
        let answer = self.perhaps(async { lock.keep_alive(work).await }).await;
        let over = lock.remaining().is_zero();
        let mut state = self.state();
        // A pause lengthens the nap that it meets.
        let limit = lease.mul_f64(f64::from(naps) * 1.03) + state.paused(self.id) + state.call_limit() * 2;
        state.say_of(self.id, || format!("the guarded work ended: {answer:?}"));
        state.counts().kept_alive += 1;
        let ended = match &answer {
            Some(Ok(())) => Ended::Done,
            Some(Err(error)) if error.is_lost() => Ended::Refused,
            Some(Err(_)) | None => Ended::Unknown,
        };
        state.call_ends(self.id, ended, Some(limit));
        if let Some(Err(error)) = answer {
            state.counts().works_dropped += 1;
            let ours = state.is_held_by(key, grant, token);
            let broken = match (error.is_lost(), ours, over) {
                (true, true, _) => Some(Invariant::NotLostWhileOurs),
                (false, _, false) => Some(Invariant::WorkIsNotCutShort),
                _ => None,
            };
            if let Some(invariant) = broken {
                state.ledger.violate(invariant, format!("keep_alive of grant {grant}: {error}"));
            }
        }
        ended
    }

    /// A whole work under `with_lock` or under the `run` of an acquire.
    pub(super) async fn runs_guarded(&self, key: usize) {
        let lasting = self.part_of_lease(2.0) + self.state().plan.lease / 2;
        let lease = self.part_of_lease(1.0) + self.state().plan.lease / 4;
        let whole = self.one_in(2);
        let steps = self.state().rng.u32(0..=3);
        let budget = self.budget(lasting).reserve(lasting / 2).grace(lease / 8);
        let kind = CallKind::Acquire { owner: self.owner.clone(), named: false, reclaims: Reclaims::Nobody };
        self.state().call_begins(self.id, key, kind);
        let limit = lasting.max(self.call_limit()) + self.call_limit() * 2;
        let begun = Arc::new(Mutex::new(false));
        let at_work = begun.clone();
        let work = async |lock: &mut Lock| {
            *at_work.lock().unwrap() = true;
            self.works_with(key, lock, steps, limit).await
        };
        let answer = if whole {
            self.perhaps(self.locks.with_lock(self.lock_key(key), &budget, work)).await
        } else {
            let acquire = self.locks.acquire(self.lock_key(key)).within(&budget).lease(lease);
            self.perhaps(async { acquire.await?.run(work).await }).await
        };
        if !*begun.lock().unwrap() {
            let failed = answer.map(|answer| Err(answer.err().and_then(|Failed(error)| error)));
            return self.never_began(key, failed, limit);
        }
        let mut state = self.state();
        state.say_of(self.id, || format!("the work with the lock ended: {answer:?}"));
        let ended = if answer.is_some() { Ended::Done } else { Ended::Unknown };
        let limit = state.call_limit();
        state.call_ends(self.id, ended, Some(limit));
    }

    fn never_began(&self, key: usize, failed: Option<Result<(), Option<Error>>>, limit: Duration) {
        let tried = match failed {
            Some(Err(Some(error))) if error.kind() == ErrorKind::CutShort => {
                // Granted, but the lease ended before the work began.
                let mut state = self.state();
                return state.call_ends(self.id, Ended::Unknown, Some(limit));
            }
            Some(Err(Some(error))) => Some(Err(error)),
            Some(_) => {
                let what = "a guarded work was said to be done, and did not begin".to_owned();
                return self.state().ledger.violate(Invariant::GuardMatchesRow, what);
            }
            None => None,
        };
        let _ = self.acquire_ended(key, tried, Some(limit));
    }

    /// The work itself. It has the lock.
    async fn works_with(&self, key: usize, lock: &mut Lock, steps: u32, limit: Duration) -> Result<(), Failed> {
        let Some((grant, token, granted)) = self.granted_here(key, lock, limit) else { return Err(Failed(None)) };
        let _over = AtWork { me: self, key, grant, token };
        self.state().counts().with_lock += 1;
        self.works(granted, 1, 0.5, false).await;
        for _ in 0..steps {
            let choice = self.state().rng.u8(..4);
            match choice {
                0 if self.renew(key, lock).await == Ended::Refused => return Err(Failed(None)),
                1 if self.keeps_alive(key, lock, granted).await == Ended::Refused => return Err(Failed(None)),
                _ => self.works(granted, 2, 0.6, false).await,
            }
        }
        if self.one_in(4) { Err(Failed(None)) } else { Ok(()) }
    }
}
