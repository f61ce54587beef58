//! Idempotent work that several callers do.

use super::commit::write;
use super::{Me, grant_of};
use crate::ledger::{CallKind, Ended, Invariant, Reclaims};
use lambda_lock::once::{Attempt, Started};
use lambda_lock::{Budget, LockKey};

impl Me {
    /// Does idempotent work that others do too.
    pub(crate) async fn does_once(&self) {
        while !self.is_calm() {
            let (job, key) = {
                let mut state = self.state();
                let jobs = state.plan.jobs;
                let job = state.rng.usize(..jobs);
                (job, state.plan.keys + job)
            };
            self.do_once(job, key).await;
            self.sleep(self.part_of_lease(1.0)).await;
        }
    }

    async fn do_once(&self, job: usize, key: usize) {
        let lease = self.part_of_lease(1.0) + self.state().plan.lease / 4;
        let budget = Budget::lasting_on(self.clock.clone(), lease * 2);
        let waits = self.one_in(2);
        let before = self.state().ledger.results[key].clone();
        self.state().call_begins(
            self.id,
            key,
            CallKind::Acquire { owner: self.owner.clone(), named: false, reclaims: Reclaims::Nobody },
        );
        let sort = self.state().plan.sort_key.then(|| "s".to_owned());
        let once = self.locks.once(LockKey::new(job.to_string(), sort)).lease(lease).within(&budget).payload(&job);
        let once = if waits { once } else { once.without_waiting() };
        let started = self.perhaps(once.start::<u64>()).await;
        let limit = (lease * 2).max(self.call_limit()) + self.call_limit() * 2;
        match started {
            Some(Ok(Started::Replayed(result))) => {
                let mut state = self.state();
                state.call_ends(self.id, Ended::Refused, Some(limit));
                state.counts().replayed += 1;
                let stored = state.ledger.results[key].clone();
                if stored != Some(result.to_string()) {
                    let what = format!("replayed {result}, stored is {stored:?}");
                    state.ledger.violate(Invariant::OnceIsOnce, what);
                }
            }
            Some(Ok(Started::Attempt(attempt))) => {
                if let Some(result) = before {
                    let what = format!("begun again after its result {result} was stored");
                    self.state().ledger.violate(Invariant::OnceIsOnce, what);
                }
                self.state().call_ends(self.id, Ended::Done, Some(limit));
                self.work_at(key, attempt).await;
            }
            Some(Err(error)) => {
                let _ = self.acquire_ended(key, Some(Err(error)), Some(limit));
            }
            None => {
                let _ = self.acquire_ended(key, None, Some(limit));
            }
        }
    }

    async fn work_at(&self, key: usize, attempt: Attempt) {
        let (grant, token) = grant_of(&attempt.to_saved());
        let Some(granted) = self.state().granted_to(key, grant, token) else {
            let what = format!("an attempt of {grant} with token {token}, which was never applied");
            return self.state().ledger.violate(Invariant::GuardMatchesRow, what);
        };
        self.state().processes[self.id].holds = Some(granted);
        self.check(&attempt, granted, true);
        let steps = self.state().rng.u32(0..3);
        for _ in 0..steps {
            self.rest(self.part_of_lease(0.6)).await;
            self.check(&attempt, granted, false);
        }
        let choice = self.state().rng.u8(..10);
        self.state().processes[self.id].holds = None;
        self.state().call_begins(self.id, key, CallKind::Hold(grant, token));
        let answer = match choice {
            // The attempt is abandoned.
            0..2 => None,
            2..4 => self.perhaps(attempt.give_back()).await.map(|answer| answer.map(|_| false)),
            4..6 => {
                let number = self.state().ledger.begin_commit(granted);
                let settled = self.perhaps(attempt.complete_with(&token, vec![write(number)])).await;
                settled.map(|answer| answer.map(|()| true))
            }
            _ => self.perhaps(attempt.complete(&token)).await.map(|answer| answer.map(|()| true)),
        };
        let mut state = self.state();
        state.say_of(self.id, || format!("the work ended: {answer:?}"));
        let ended = if matches!(answer, Some(Ok(_))) { Ended::Done } else { Ended::Unknown };
        state.call_ends(self.id, ended, None);
        let stored = state.ledger.results[key].clone();
        if matches!(answer, Some(Ok(true))) && stored != Some(token.to_string()) {
            let what = format!("stored {token}, there is {stored:?}");
            state.ledger.violate(Invariant::OnceIsOnce, what);
        }
    }
}
