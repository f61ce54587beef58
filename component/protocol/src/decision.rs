//! An operation on its way: steps and answers go to the call, its verdict comes out as the host's.

use crate::bindings::exports::lambda_lock::lock::decisions::{
    self, Answer, Clocks, Grant, GuestDecision, Next, Verdict,
};
use crate::bindings::exports::lambda_lock::lock::types::{self, PeekedLock, ReleaseOutcome};
use crate::call::{Call, NoVerdict};
use crate::convert::millis;
use crate::error::{lost, rejected, released_without_data, unavailable, unknown};
use crate::lock::{Hold, Lock, State};
use crate::machines::AnyVerdict;
use crate::table::Shared;
use lambda_lock::LockKey;
use lambda_lock::protocol::{AcquireVerdict, PeekVerdict, Record, ReleaseVerdict, RenewVerdict};
use std::cell::RefCell;
use std::rc::Rc;

type Result<T> = std::result::Result<T, types::Error>;

/// An operation of the host's.
pub(crate) struct Decision {
    shared: Rc<Shared>,
    key: LockKey,
    purpose: Purpose,
    /// `None`: the verdict was taken.
    call: RefCell<Option<Call>>,
}

/// What a verdict changes beyond its own operation.
pub(crate) enum Purpose {
    Acquire,
    /// What it learns is the lock's.
    Renew(Rc<Hold>),
    Release,
    Peek,
}

impl Decision {
    pub(crate) fn resource(shared: &Rc<Shared>, key: LockKey, purpose: Purpose, call: Call) -> decisions::Decision {
        let call = RefCell::new(Some(call));
        decisions::Decision::new(Self { shared: Rc::clone(shared), key, purpose, call })
    }

    /// Hands what a renewal learnt to its lock: also when the host gave it up.
    fn settle(&self, call: Call) {
        if let (Purpose::Renew(hold), Some(holding)) = (&self.purpose, call.into_machine().into_renewed()) {
            hold.learn(holding);
        }
    }

    fn acquired(&self, verdict: AcquireVerdict) -> Result<Verdict> {
        match verdict {
            AcquireVerdict::Granted { holding, data, renew_first } => {
                let lock = decisions::Lock::new(Lock::new(Rc::clone(&self.shared), *holding));
                Ok(Verdict::Granted(Grant { lock, data, renew_first }))
            }
            AcquireVerdict::Held(seen) => Ok(Verdict::Held(seen.into())),
            AcquireVerdict::Gone => Err(lost(&self.key)),
            AcquireVerdict::InvalidRecord(invalid) => Err(invalid.into()),
            AcquireVerdict::Rejected(rejection) => Err(rejected(&self.key, rejection)),
            AcquireVerdict::Unavailable => Err(unavailable(&self.key, "acquired")),
            AcquireVerdict::Unknown => Err(unknown(&self.key, "acquired")),
        }
    }

    fn renewed(&self, verdict: RenewVerdict) -> Result<Verdict> {
        match verdict {
            RenewVerdict::Renewed => {
                self.is_now(State::Held);
                Ok(Verdict::Renewed)
            }
            RenewVerdict::Lost => {
                self.is_now(State::Over);
                Err(lost(&self.key))
            }
            RenewVerdict::InvalidRecord(invalid) => Err(invalid.into()),
            RenewVerdict::Rejected(rejection) => Err(rejected(&self.key, rejection)),
            RenewVerdict::Unavailable => Err(unavailable(&self.key, "renewed")),
            RenewVerdict::Unknown => Err(unknown(&self.key, "renewed")),
        }
    }

    fn is_now(&self, state: State) {
        if let Purpose::Renew(hold) = &self.purpose {
            hold.is_now(state);
        }
    }

    fn released(&self, verdict: ReleaseVerdict) -> Result<Verdict> {
        match verdict {
            ReleaseVerdict::Released => Ok(Verdict::Released(ReleaseOutcome::Released)),
            ReleaseVerdict::Lost | ReleaseVerdict::AlreadyGone => Ok(Verdict::Released(ReleaseOutcome::AlreadyGone)),
            ReleaseVerdict::ReleasedWithoutData(reason) => Err(released_without_data(&self.key, &reason)),
            ReleaseVerdict::InvalidRecord(invalid) => Err(invalid.into()),
            ReleaseVerdict::Rejected(rejection) => Err(rejected(&self.key, rejection)),
            ReleaseVerdict::Unavailable => Err(unavailable(&self.key, "released")),
            ReleaseVerdict::Unknown => Err(unknown(&self.key, "released")),
        }
    }

    fn peeked(&self, verdict: PeekVerdict) -> Result<Verdict> {
        match verdict {
            PeekVerdict::Seen(record) => Ok(Verdict::Peeked(record.map(PeekedLock::from))),
            PeekVerdict::InvalidRecord(invalid) => Err(invalid.into()),
            PeekVerdict::Rejected(rejection) => Err(rejected(&self.key, rejection)),
            PeekVerdict::Unavailable => Err(unavailable(&self.key, "read")),
            PeekVerdict::Unknown => Err(unknown(&self.key, "read")),
        }
    }
}

impl GuestDecision for Decision {
    fn step(&self, now: Clocks, random: Vec<u8>) -> Next {
        self.call.borrow_mut().as_mut().map_or(Next::Done, |call| call.step(now, &random))
    }

    fn answered(&self, after: Clocks, answer: Answer) {
        if let Some(call) = self.call.borrow_mut().as_mut() {
            call.answered(after, answer);
        }
    }

    fn verdict(&self) -> Result<Verdict> {
        let mut call = self.call.take().ok_or(NoVerdict::Taken)?;
        match call.verdict() {
            Err(NoVerdict::Open) => {
                self.call.replace(Some(call));
                Err(NoVerdict::Open.into())
            }
            Err(no_verdict) => Err(no_verdict.into()),
            Ok(verdict) => {
                self.settle(call);
                match verdict {
                    AnyVerdict::Acquire(verdict) => self.acquired(verdict),
                    AnyVerdict::Renew(verdict) => self.renewed(verdict),
                    AnyVerdict::Release(verdict) => self.released(verdict),
                    AnyVerdict::Peek(verdict) => self.peeked(verdict),
                }
            }
        }
    }
}

impl Drop for Decision {
    fn drop(&mut self) {
        if let Some(call) = self.call.take() {
            self.settle(call);
        }
    }
}

impl From<Record> for PeekedLock {
    fn from(record: Record) -> Self {
        Self {
            released: record.released,
            lease: millis(record.lease.duration()),
            renewed_at: record.own_version.map(|version| version.stamp.millis()),
            lease_ends_at: record.believable_end(),
            fencing_token: record.token,
            workflow: record.believable_workflow().map(str::to_owned),
            holder: record.owner,
            data: record.data,
            version: record.version,
        }
    }
}
