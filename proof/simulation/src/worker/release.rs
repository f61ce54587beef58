//! Release, and what must hold when it has ended.

use super::{Me, grant_of, refused_or_unknown};
use crate::ledger::{CallKind, Ended, Invariant};
use lambda_lock::{Error, Lock, ReleaseOutcome};
use lambda_lock_protocol::Grant;
use std::time::Duration;

impl Me {
    pub(super) async fn release(&self, key: usize, lock: Lock) {
        let (grant, token) = grant_of(&lock.to_saved());
        let later = {
            let mut state = self.state();
            state.plan.one_owner && state.rng.u8(..4) == 0
        };
        let later_of = later.then(|| lock.owner().to_owned());
        self.state().call_begins(self.id, key, CallKind::Release { grant, token, later_of });
        // The guard ends here.
        self.state().processes[self.id].holds = None;
        let data = self.some_data();
        self.wants(data.as_ref());
        let release = lock.release();
        let release = if let Some(data) = data { release.data(data) } else { release };
        let release = if later { release.or_later_grant_of_owner() } else { release };
        let answer = self.perhaps(release.into_future()).await;
        self.release_ended(key, grant, token, answer, Some(self.call_limit()));
    }

    pub(super) fn release_ended(
        &self,
        key: usize,
        grant: Grant,
        token: u64,
        answer: Option<Result<ReleaseOutcome, Error>>,
        limit: Option<Duration>,
    ) {
        let mut state = self.state();
        state.say_of(self.id, || format!("release ended: {answer:?}"));
        let ended = match &answer {
            Some(Ok(_)) => Ended::Done,
            Some(Err(error)) => refused_or_unknown(error),
            None => Ended::Unknown,
        };
        let call = state.processes[self.id].call;
        if let (Some(Err(error)), Some(call)) = (&answer, call) {
            state.failed(self.id, call, error);
        }
        state.call_ends(self.id, ended, limit);
        let ours = state.is_held_by(key, grant, token);
        match answer {
            Some(Ok(outcome)) if ours => {
                let what = format!("{outcome:?} while grant {grant} is on the row");
                state.ledger.violate(Invariant::ReleasedIsFree, what);
            }
            Some(Ok(ReleaseOutcome::AlreadyGone)) => state.counts().already_gone += 1,
            Some(Err(error)) if error.is_unknown() => state.counts().unknown_releases += 1,
            _ => {}
        }
    }
}
