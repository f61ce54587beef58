//! Renew and resume, and what must hold when they have ended.

use super::{Me, grant_of, refused_or_unknown};
use crate::ledger::{CallKind, Ended, Invariant};
use lambda_lock::{Budget, Error, Lock, SavedLock};
use lambda_lock_protocol::Grant;

impl Me {
    pub(super) async fn resume(&self, key: usize, token: SavedLock) -> Option<Lock> {
        let (grant, number) = grant_of(&token);
        self.state().call_begins(self.id, key, CallKind::Hold(grant, number));
        let lease = self.part_of_lease(1.5);
        let budget = Budget::lasting_on(self.clock.clone(), lease * 2);
        let mut resume = self.locks.resume(token);
        if self.one_in(2) {
            resume = resume.lease(lease);
        }
        if self.one_in(3) {
            resume = resume.within(&budget);
        }
        let resumed = self.perhaps(async { resume.await }).await;
        let ended = resumed.as_ref().map(|resumed| resumed.as_ref().map(|_| ()));
        self.renewal_ended(key, grant, number, ended);
        let lock = resumed?.ok()?;
        self.state().counts().resumed += 1;
        Some(lock)
    }

    pub(super) async fn renew(&self, key: usize, lock: &mut Lock) -> Ended {
        let (grant, token) = grant_of(&lock.to_saved());
        self.state().call_begins(self.id, key, CallKind::Hold(grant, token));
        let lease = self.part_of_lease(1.5);
        let longer = self.one_in(2);
        let data = self.some_data();
        self.wants(data.as_ref());
        let renewal = lock.renew();
        let renewal = if let Some(data) = data { renewal.data(data) } else { renewal };
        let renewal = if longer { renewal.lease(lease) } else { renewal };
        let renewed = self.perhaps(async { renewal.await }).await;
        self.renewal_ended(key, grant, token, renewed.as_ref().map(|renewed| renewed.as_ref().map(|_| ())))
    }

    fn renewal_ended(&self, key: usize, grant: Grant, token: u64, renewed: Option<Result<(), &Error>>) -> Ended {
        let mut state = self.state();
        state.say_of(self.id, || format!("renewal ended: {renewed:?}"));
        let ended = match renewed {
            Some(Ok(())) => Ended::Done,
            Some(Err(error)) => refused_or_unknown(error),
            None => Ended::Unknown,
        };
        let call = state.processes[self.id].call;
        if let (Some(Err(error)), Some(call)) = (renewed, call) {
            state.failed(self.id, call, error);
        }
        let started = state.processes[self.id].call.map(|call| state.ledger.calls[call].started);
        let limit = state.call_limit();
        state.call_ends(self.id, ended, Some(limit));
        let ours = state.is_held_by(key, grant, token);
        match renewed {
            Some(Err(error)) if error.is_lost() => {
                state.counts().lost += 1;
                if ours {
                    let what = format!("grant {grant} is on the row: {error}");
                    state.ledger.violate(Invariant::NotLostWhileOurs, what);
                }
            }
            Some(Err(error)) if error.is_unknown() => {
                state.counts().unknown_renewals += 1;
                let renewed = state.ledger.find(key, grant, token).map(|found| state.ledger.grants[found].renewed);
                if renewed > started {
                    state.counts().applied_unheard += 1;
                }
            }
            _ => {}
        }
        ended
    }
}
