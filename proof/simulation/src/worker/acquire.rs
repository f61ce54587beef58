//! Acquire and reclaim, and what must hold when they have ended.

use super::roles::WORKFLOW;
use super::{Me, grant_of, refused_or_unknown};
use crate::ledger::{Call, CallId, CallKind, Ended, Invariant, Reclaims};
use crate::world::State;
use lambda_lock::{Error, ErrorKind, Lock, Refusal, SavedLock, Tried};
use lambda_lock_protocol::{Grant, Queueing, Version};
use std::time::Duration;

impl Me {
    pub(super) async fn acquire(&self, key: usize) -> Option<Lock> {
        let (reclaims, workflow, waits, budget) = {
            let mut state = self.state();
            let reclaims = state.plan.one_owner && state.rng.bool();
            let workflow = state.plan.cleaner && state.rng.bool();
            (reclaims, workflow, state.rng.u8(..3) == 0, state.rng.u8(..3))
        };
        let lease = self.part_of_lease(1.0) + self.state().plan.lease / 4;
        let lasting = lease * 2;
        let within = self.budget(lasting).reserve(lease / 2).grace(lease / 8);
        let kind = if reclaims { Reclaims::Owner } else { Reclaims::Nobody };
        // Without a name each acquire gets a name of its own.
        let named = reclaims || self.one_in(2);
        self.state().call_begins(self.id, key, CallKind::Acquire { owner: self.owner.clone(), named, reclaims: kind });
        let queueing = self.some_queueing();
        let attributes = self.some_attributes();
        let data = self.some_data();
        self.wants(data.as_ref());
        let lock_key = self.lock_key(key);
        let tried = if waits {
            let mut acquire = self.locks.acquire(lock_key).within(&within);
            acquire = if budget > 0 { acquire.lease(lease) } else { acquire };
            acquire = if named { acquire.owner(self.owner.as_str()) } else { acquire };
            acquire = if reclaims { acquire.reclaim_own() } else { acquire };
            acquire = if let Some(data) = &data { acquire.data(data.clone()) } else { acquire };
            acquire = if workflow { acquire.workflow(WORKFLOW) } else { acquire };
            acquire = acquire.attributes(attributes.clone());
            acquire = match queueing {
                Queueing::Ignored => acquire.out_of_turn(),
                Queueing::AtOnce => acquire.in_turn(),
                Queueing::BehindSlowHolders => acquire,
                Queueing::BetweenCalls => acquire.between_calls(),
            };
            self.perhaps(async { acquire.await.map(Tried::Granted) }).await
        } else {
            let mut acquire = self.locks.acquire(lock_key);
            acquire = if budget > 0 { acquire.lease(lease) } else { acquire };
            acquire = if budget < 2 { acquire.within(&within) } else { acquire };
            acquire = if named { acquire.owner(self.owner.as_str()) } else { acquire };
            acquire = if reclaims { acquire.reclaim_own() } else { acquire };
            acquire = if let Some(data) = &data { acquire.data(data.clone()) } else { acquire };
            acquire = if workflow { acquire.workflow(WORKFLOW) } else { acquire };
            acquire = acquire.attributes(attributes.clone());
            acquire = if queueing == Queueing::Ignored { acquire.out_of_turn() } else { acquire };
            self.perhaps(acquire.try_once()).await
        };
        let limit = if waits { lasting.max(self.call_limit()) + self.call_limit() * 2 } else { self.call_limit() * 3 };
        self.acquire_ended(key, tried, Some(limit))
    }

    pub(super) async fn reclaim(&self, key: usize, token: SavedLock) -> Option<Lock> {
        let reclaims = Reclaims::Grant(grant_of(&token).0);
        let kind = CallKind::Acquire { owner: token.owner().to_owned(), named: false, reclaims };
        self.state().call_begins(self.id, key, kind);
        let lease = self.part_of_lease(1.5);
        let reclaimed = self.perhaps(async { self.locks.reclaim(token).lease(lease).await }).await;
        self.acquire_ended(key, reclaimed.map(|lock| lock.map(Tried::Granted)), Some(self.call_limit() * 3))
    }

    /// The grant of a guard that a work received when its acquire had ended.
    pub(super) fn granted_here(&self, key: usize, lock: &Lock, limit: Duration) -> Option<(Grant, u64, usize)> {
        let (grant, token) = grant_of(&lock.to_saved());
        let mut state = self.state();
        state.say_of(self.id, || format!("a work begins with token {token}"));
        state.call_ends(self.id, Ended::Done, Some(limit));
        if !self.stands_for_a_grant(&mut state, key, lock) {
            return None;
        }
        let granted = state.granted_to(key, grant, token)?;
        state.processes[self.id].holds = Some(granted);
        Some((grant, token, granted))
    }

    /// Enters the end of an acquire into the ledger.
    pub(crate) fn acquire_ended(
        &self,
        key: usize,
        tried: Option<Result<Tried<Lock>, Error>>,
        limit: Option<Duration>,
    ) -> Option<Lock> {
        let mut state = self.state();
        let call = state.processes[self.id].call.unwrap_or_default();
        state.say_of(self.id, || format!("acquire ended: {}", said(&tried)));
        let ended = match &tried {
            Some(Ok(Tried::Granted(_))) => Ended::Done,
            Some(Ok(Tried::Refused(_))) => Ended::Refused,
            Some(Err(error)) => refused_or_unknown(error),
            None => Ended::Unknown,
        };
        state.call_ends(self.id, ended, limit);
        let shown = state.ledger.calls[call].shown.as_ref();
        let own_holder =
            !matches!(ended, Ended::Done) && shown.is_some_and(|shown| state.ledger.calls[call].takes(shown));
        state.counts().own_holders += u64::from(own_holder);
        self.left_nothing(&mut state, key, call, &tried);
        match tried? {
            Ok(Tried::Granted(lock)) => {
                let good = self.stands_for_a_grant(&mut state, key, &lock);
                // A guard logs when it is dropped, and reads the clock for that.
                drop(state);
                good.then_some(lock)
            }
            Ok(Tried::Refused(held)) => {
                self.is_somebody_else(&mut state, call, &held);
                None
            }
            Err(error) => {
                state.failed(self.id, call, &error);
                if let Some(held) = error.refusal() {
                    self.is_somebody_else(&mut state, call, held);
                }
                match error.kind() {
                    ErrorKind::Unknown => state.counts().unknown_acquires += 1,
                    ErrorKind::Lost => self.is_not_to_be_taken(&mut state, call, &error),
                    _ => {}
                }
                None
            }
        }
    }

    /// A caller that was refused has no grant. A caller with an unknown outcome has tried to release what it may have
    /// got. Requests that arrive late are excepted.
    fn left_nothing(&self, state: &mut State, key: usize, call: CallId, tried: &Option<Result<Tried<Lock>, Error>>) {
        let left = state.ledger.current[key].map(|current| &state.ledger.grants[current]);
        if !left.is_some_and(|left| left.call == call && !left.is_over() && !left.ghost) {
            return;
        }
        let Call { ended, sent_release, .. } = state.ledger.calls[call];
        // A grant that was written over nonsense, or that cannot be renewed, is released if possible. The error names
        // the cause.
        let why =
            matches!(tried, Some(Err(error)) if matches!(error.kind(), ErrorKind::InvalidRecord | ErrorKind::Denied));
        if ended == Ended::Refused && !(why && sent_release) {
            let what = format!("{} while the row carries this call's grant", said(tried));
            state.ledger.violate(Invariant::NotHeldByOurselves, what);
        }
        if tried.is_some() && ended == Ended::Unknown && !sent_release {
            let what = format!("{} without a try to give back what was granted", said(tried));
            state.ledger.violate(Invariant::GivenBack, what);
        }
    }

    fn stands_for_a_grant(&self, state: &mut State, key: usize, lock: &Lock) -> bool {
        let (grant, token) = grant_of(&lock.to_saved());
        let Some(granted) = state.ledger.find(key, grant, token) else {
            let what = format!("a guard of {grant} with token {token}, which was never applied");
            state.ledger.violate(Invariant::GuardMatchesRow, what);
            return false;
        };
        if state.ledger.grants[granted].data.as_deref() != lock.data() {
            let what = format!("a guard has {:?}, its row {:?}", lock.data(), state.ledger.grants[granted].data);
            state.ledger.violate(Invariant::DataIsKept, what);
        }
        let heard = state.slots[state.ledger.grants[granted].slot].heard;
        state.counts().recovered_answers += u64::from(!heard);
        true
    }

    /// If a reclaim reports that the lock is lost, it was shown a row that it may not acquire.
    fn is_not_to_be_taken(&self, state: &mut State, call: CallId, error: &Error) {
        state.counts().lost += 1;
        let Some(shown) = state.ledger.calls[call].shown.clone() else { return };
        let by_itself =
            |own: Version| state.ledger.grants.iter().any(|one| one.grant == Some(own.grant) && one.call == call);
        if state.ledger.calls[call].takes(&shown) && !shown.own.is_some_and(by_itself) {
            let what = format!("{error}, by {shown:?}");
            state.ledger.violate(Invariant::TakesWhatItMay, what);
        }
    }

    fn is_somebody_else(&self, state: &mut State, call: CallId, held: &Refusal) {
        state.counts().held += 1;
        state.counts().refused_as_frozen += u64::from(held.freeze_reason.is_some());
        // Nobody reclaims a lock that was released, if it is frozen or left to others in line. Perhaps none of them waits any more:
        // where the counters began again, the caller's own place may have been given up by an old ticket of the same number.
        let shown = state.ledger.calls[call].shown.clone();
        let is_nobodys =
            (held.freeze_reason.is_some() || held.left_to_line) && shown.as_ref().is_none_or(|shown| shown.released);
        state.left_to_nobody(call, held, shown.as_ref());
        state.is_not_its_turn(call, held);
        let Some(version) = Version::parse(held.observation.version()) else { return };
        let own = matches!(&state.ledger.calls[call].kind, CallKind::Acquire { owner, reclaims: Reclaims::Owner, .. }
            if *owner == held.holder);
        if own && !is_nobodys {
            let what = format!("held by {:?} of {:?}, from whom it reclaims", held.observation.version(), held.holder);
            state.ledger.violate(Invariant::TakesWhatItMay, what);
        }
        if state.ledger.grants.iter().any(|one| one.grant == Some(version.grant) && one.call == call) {
            let what = format!("held by {:?}, which this call wrote", held.observation.version());
            state.ledger.violate(Invariant::NotHeldByOurselves, what);
        }
    }
}

fn said(tried: &Option<Result<Tried<Lock>, Error>>) -> String {
    match tried {
        None => "cancelled".to_owned(),
        Some(Ok(Tried::Granted(lock))) => format!("granted with token {}", lock.fencing_token()),
        Some(Ok(Tried::Refused(held))) => format!("held by {:?}", held.observation.version()),
        Some(Err(error)) => error.to_string(),
    }
}
