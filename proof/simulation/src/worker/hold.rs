//! The steps of a holder, and what its guard reports in each of them.

use super::{Me, grant_of};
use crate::clocks::Nanos;
use crate::ledger::{Ended, Invariant};
use crate::world::{Event, nanos};
use lambda_lock::{Lock, SavedLock};
use std::ops::ControlFlow;

impl Me {
    pub(super) async fn hold(&self, key: usize, mut lock: Lock) {
        let (grant, token) = grant_of(&lock.to_saved());
        let Some(granted) = self.state().granted_to(key, grant, token) else { return };
        self.state().processes[self.id].holds = Some(granted);
        self.state().processes[self.id].unresolved = None;
        self.check(&lock, granted, true);
        let steps = self.state().rng.u32(0..=5);
        let mut expired = false;
        for _ in 0..steps {
            self.rest(self.part_of_lease(0.6)).await;
            let mine = self.check(&lock, granted, false);
            if mine && expired {
                let what = format!("the guard of {grant} had run out and is back without a renewal");
                self.state().ledger.violate(Invariant::ExpiredStaysExpired, what);
            }
            expired = !mine;
            if mine {
                self.affect(granted);
            }
            if self.step(key, &mut lock, granted, &mut expired).await.is_break() {
                break;
            }
        }
        self.stop(key, lock, granted).await;
    }

    /// One step between two checks of the guard. It breaks when the lock is lost.
    async fn step(&self, key: usize, lock: &mut Lock, granted: usize, expired: &mut bool) -> ControlFlow<()> {
        let (renews, copies, transacts) = {
            let mut state = self.state();
            let copies = state.plan.handing_over && state.rng.u8(..6) == 0;
            (state.rng.u8(..5) < 2, copies, state.rng.u8(..6))
        };
        match transacts {
            0 => match self.commit(key, lock, granted).await {
                Ended::Refused => return ControlFlow::Break(()),
                Ended::Done => {
                    *expired = false;
                    self.check(lock, granted, true);
                }
                // The settling may have renewed it.
                Ended::Unknown | Ended::Running => *expired = false,
            },
            1 => self.fenced_write(key, lock, granted),
            2 => match self.keeps_alive(key, lock, granted).await {
                Ended::Refused => return ControlFlow::Break(()),
                // It may have renewed the lock or not.
                Ended::Done | Ended::Unknown | Ended::Running => *expired = false,
            },
            _ => {}
        }
        if copies {
            self.hand(lock.to_saved());
        }
        if renews {
            match self.renew(key, lock).await {
                Ended::Done => {
                    *expired = false;
                    self.check(lock, granted, true);
                }
                Ended::Refused => return ControlFlow::Break(()),
                Ended::Unknown | Ended::Running => {}
            }
        }
        ControlFlow::Continue(())
    }

    /// Releases the lock, hands it over, or forgets it.
    async fn stop(&self, key: usize, lock: Lock, granted: usize) {
        let (choice, hands) = {
            let mut state = self.state();
            (state.rng.u8(..20), state.plan.handing_over)
        };
        match choice {
            0..4 => {}
            4..9 if hands => {
                self.state().processes[self.id].holds = None;
                self.hand(lock.save());
                return;
            }
            9 => return self.commit_and_release(key, lock, granted).await,
            _ => return self.release(key, lock).await,
        }
        // The lock is abandoned without a release.
        self.state().processes[self.id].holds = None;
    }

    fn hand(&self, token: SavedLock) {
        let mut state = self.state();
        let local = state.processes[self.id].local;
        let unresolved = state.processes[self.id].unresolved;
        state.at(local, Event::Hand(token, unresolved));
    }

    /// Checks the guard. `fresh`: other guards are checked at the same instant.
    pub(crate) fn check(&self, lock: &Lock, granted: usize, fresh: bool) -> bool {
        let mine = !lock.remaining().is_zero();
        let mut state = self.state();
        if mine {
            state.says_mine(self.id, granted, fresh);
        } else {
            state.counts().expired += 1;
            // A clock that is set back now must not make the guard valid again.
            if state.plan.clocks.jumps > 0.0 && !state.calm && state.rng.u8(..4) == 0 {
                state.jump(self.id);
            }
        }
        mine
    }

    /// Writes to the fenced resource with the token. Sometimes the write arrives late.
    fn affect(&self, granted: usize) {
        let mut state = self.state();
        let lease = nanos(state.plan.lease);
        let slow = if state.rng.u8(..8) == 0 { state.rng.u64(..3 * lease) } else { 0 };
        let at: Nanos = state.processes[self.id].local + state.way() + slow;
        state.at(at, Event::Effect(granted));
    }
}
