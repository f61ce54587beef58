//! What a process of each role does until it ends.

use super::{Me, grant_of};
use crate::ledger::{CallKind, Ended, Invariant, Reclaims};
use crate::world::Event;
use lambda_lock::{Budget, Lock, Observation, SavedLock, Tried};
use lambda_lock_protocol::OURS;
use std::time::Duration;

/// The workflow for which some locks are held.
pub(super) const WORKFLOW: &str = "arn:workflow";

impl Me {
    pub(super) async fn work(&self) {
        let cycles = self.state().rng.u32(1..=8);
        for _ in 0..cycles {
            if self.is_calm() {
                return;
            }
            if self.one_in(5) {
                let key = self.some_key();
                self.runs_guarded(key).await;
                self.sleep(self.part_of_lease(0.3)).await;
                continue;
            }
            let handed = if self.one_in(2) { self.take_handed() } else { None };
            let held = match handed {
                Some(handed) => self.take_up(handed).await,
                None => {
                    let key = self.some_key();
                    self.acquire(key).await.map(|lock| (key, lock))
                }
            };
            match held {
                Some((key, lock)) => self.hold(key, lock).await,
                None => self.sleep(self.part_of_lease(0.5)).await,
            }
            self.sleep(self.part_of_lease(0.3)).await;
        }
    }

    fn take_handed(&self) -> Option<(SavedLock, Option<usize>)> {
        let mut state = self.state();
        let left = state.handed.len();
        if left == 0 {
            return None;
        }
        let choice = state.rng.usize(..left);
        // Saved locks are data, so one of them is sometimes used twice.
        if state.rng.u8(..4) == 0 { Some(state.handed[choice].clone()) } else { Some(state.handed.swap_remove(choice)) }
    }

    /// Continues with a lock that another process saved.
    async fn take_up(&self, (token, unresolved): (SavedLock, Option<usize>)) -> Option<(usize, Lock)> {
        let key = self.key_of(&token);
        let choice = self.state().rng.u8(..20);
        let lock = match choice {
            0..12 => {
                let mut lock = self.resume(key, token).await;
                if let (Some(lock), Some(number)) = (&mut lock, unresolved) {
                    self.commits_again(key, lock, number).await;
                }
                lock
            }
            12..17 => self.reclaim(key, token).await,
            _ => {
                let (grant, number) = grant_of(&token);
                self.state().call_begins(self.id, key, CallKind::Release { grant, token: number, later_of: None });
                let answer = self.perhaps(async { self.locks.release(token).await }).await;
                self.release_ended(key, grant, number, answer, Some(self.call_limit()));
                None
            }
        };
        Some((key, lock?))
    }

    /// One try, with the observation of the last watcher.
    pub(super) async fn watch(&self) {
        let key = 0;
        let observation = {
            let mut state = self.state();
            let local = state.processes[self.id].local;
            match state.observed.clone() {
                // The wait of a state machine proves, by a clock of its own, that this much time has passed.
                Some((seen, at)) if state.rng.u8(..3) > 0 => {
                    let proven = Duration::from_nanos(local.saturating_sub(at)).mul_f64(0.97);
                    Some(seen.and_waited(proven))
                }
                seen => seen.map(|(seen, _)| seen),
            }
        };
        let carried = observation.is_some();
        let lease = self.part_of_lease(1.5);
        self.state().call_begins(
            self.id,
            key,
            CallKind::Acquire { owner: self.owner.clone(), named: false, reclaims: Reclaims::Nobody },
        );
        let mut acquire = self.locks.acquire(self.lock_key(key)).lease(lease);
        if let Some(observation) = observation {
            acquire = acquire.observation(observation);
        }
        let takeovers = self.state().counts().takeovers;
        let tried = self.perhaps(acquire.try_once()).await;
        if let Some(Ok(Tried::Refused(held))) = &tried {
            // At the present of the process, which may be ahead of true time after a pause.
            let mut state = self.state();
            let local = state.processes[self.id].local;
            state.at(local, Event::Observed(held.observation.clone()));
        }
        if let Some(lock) = self.acquire_ended(key, tried, Some(self.call_limit() * 3)) {
            if carried && self.state().counts().takeovers > takeovers {
                self.state().counts().observations_carried += 1;
            }
            self.hold(key, lock).await;
        }
    }

    /// Waits in line without waiting in a call: tries, sleeps until it is woken or its time is over, and tries again.
    pub(super) async fn sleeps_in_line(&self) {
        let key = 0;
        let mut seen: Option<Observation> = None;
        while !self.is_calm() {
            let asleep = self.state().processes[self.id].local;
            self.sleep(self.part_of_lease(if seen.is_some() { 1.0 } else { 0.3 })).await;
            let lease = self.part_of_lease(1.0) + self.state().plan.lease / 4;
            let kind = CallKind::Acquire { owner: self.owner.clone(), named: false, reclaims: Reclaims::Nobody };
            let call = self.state().call_begins(self.id, key, kind);
            let mut acquire = self.locks.acquire(self.lock_key(key)).lease(lease).between_calls();
            if let Some(seen) = seen.take() {
                let mut state = self.state();
                let proven = Duration::from_nanos(state.processes[self.id].local.saturating_sub(asleep)).mul_f64(0.97);
                state.comes_back(key, self.id, call);
                acquire = acquire.observation(seen.and_waited(proven));
            }
            let tried = self.perhaps(acquire.try_once()).await;
            if let Some(Ok(Tried::Refused(held))) = &tried {
                self.state().processes[self.id].ticket = held.observation.ticket().map(|ticket| (ticket, call));
                seen = Some(held.observation.clone());
            }
            if let Some(lock) = self.acquire_ended(key, tried, Some(self.call_limit() * 4)) {
                self.hold(key, lock).await;
            }
        }
    }

    pub(super) async fn clean(&self) {
        while !self.is_calm() {
            self.sleep(self.part_of_lease(2.0)).await;
            let key = self.some_key();
            let choice = self.state().rng.u8(..4);
            match choice {
                0 => self.breaks(key).await,
                1 => self.freezes(key).await,
                _ => self.cleans(key).await,
            }
        }
    }

    async fn cleans(&self, key: usize) {
        self.state().call_begins(self.id, key, CallKind::Workflow(WORKFLOW.to_owned()));
        let answer = self.perhaps(self.locks.release_workflow(self.lock_key(key), WORKFLOW).into_future()).await;
        let ended = match answer {
            Some(Ok(_)) => Ended::Done,
            _ => Ended::Unknown,
        };
        let limit = self.call_limit();
        self.state().call_ends(self.id, ended, Some(limit));
    }

    /// Freezes a lock for a while.
    async fn freezes(&self, key: usize) {
        // One that got no response may give up at once, with the freeze still under way.
        if self.change_freeze(key, true).await {
            self.sleep(self.part_of_lease(1.5)).await;
        }
        // Sometimes an operator forgets it for longer.
        while self.one_in(4) {
            self.sleep(self.part_of_lease(1.0)).await;
        }
        while !self.change_freeze(key, false).await && !self.is_calm() {
            self.sleep(self.part_of_lease(0.2)).await;
        }
    }

    /// Freezes or thaws a lock. Returns whether that is certain.
    async fn change_freeze(&self, key: usize, freeze: bool) -> bool {
        self.state().call_begins(self.id, key, CallKind::Freeze);
        let change = async {
            if freeze {
                self.locks.operator().freeze(self.lock_key(key), "why not").await
            } else {
                self.locks.operator().thaw(self.lock_key(key)).await.map(drop)
            }
        };
        let is_done = matches!(self.perhaps(change).await, Some(Ok(())));
        let limit = self.call_limit();
        let mut state = self.state();
        if is_done {
            let call = state.processes[self.id].call.unwrap_or_default();
            state.ledger.freeze_ended(key, call);
        }
        state.call_ends(self.id, if is_done { Ended::Done } else { Ended::Unknown }, Some(limit));
        is_done
    }

    /// Looks at a lock, and breaks it a while later, whether its holder is alive or not. Not a peer's, which would not
    /// hear of it.
    async fn breaks(&self, key: usize) {
        self.state().call_begins(self.id, key, CallKind::Break(String::new()));
        let seen = self.perhaps(async { self.locks.operator().peek(self.lock_key(key)).await }).await;
        let limit = self.call_limit();
        self.state().call_ends(self.id, Ended::Unknown, Some(limit));
        let Some(Ok(Some(seen))) = seen else { return };
        if seen.released || !seen.version.starts_with(OURS) {
            return;
        }
        self.sleep(self.part_of_lease(0.5)).await;
        self.state().call_begins(self.id, key, CallKind::Break(seen.version.clone()));
        let break_it = async { self.locks.operator().break_lock(self.lock_key(key), &seen, "why not").await };
        let ended = match self.perhaps(break_it).await {
            Some(Ok(_)) => Ended::Done,
            _ => Ended::Unknown,
        };
        let limit = self.call_limit();
        self.state().call_ends(self.id, ended, Some(limit));
    }

    /// Waits without faults for a lock whose holders have all died.
    pub(super) async fn comes_last(&self, key: usize) {
        if self.state().mark(key).is_some_and(|mark| mark.frozen) && !self.change_freeze(key, false).await {
            self.state().ledger.violate(Invariant::TakenOver, "a lock was not thawed".to_owned());
        }
        let bound = self.state().takeover_bound(key);
        let started = self.state().processes[self.id].local;
        let budget = Budget::lasting_on(self.clock.clone(), Duration::from_secs(3600)).reserve(Duration::from_secs(1));
        self.state().call_begins(
            self.id,
            key,
            CallKind::Acquire { owner: self.owner.clone(), named: false, reclaims: Reclaims::Nobody },
        );
        let lease = Duration::from_secs(1);
        let lock = self.locks.acquire(self.lock_key(key)).within(&budget).lease(lease).await;
        let took = Duration::from_nanos(self.state().processes[self.id].local - started);
        if took > bound || lock.is_err() {
            let what = format!("took {took:?}, the bound is {bound:?}: {lock:?}");
            self.state().ledger.violate(Invariant::TakenOver, what);
        }
        self.state().counts().final_takeovers += 1;
        if let Some(lock) = self.acquire_ended(key, Some(lock.map(Tried::Granted)), None) {
            self.release(key, lock).await;
        }
    }
}
