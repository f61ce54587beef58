//! An operation that the host drives. It passes steps and answers to the call, and returns the verdict.

use crate::bindings::exports::lambda_lock::lock::decisions::{
    self, Answer, Clocks, Grant, GuestDecision, Next, Verdict,
};
use crate::bindings::exports::lambda_lock::lock::types::{self, PeekedLock, ReleaseOutcome};
use crate::call::{Call, Ended, NoVerdict};
use crate::convert::millis;
use crate::error::{failed, released_without_data};
use crate::hold::{Hold, Lock};
use crate::shared::Shared;
use lambda_lock_protocol::LockKey;
use lambda_lock_protocol::{Acquired, Failure, Operation, Record, Released};
use std::cell::RefCell;
use std::rc::Rc;

type Result<T> = std::result::Result<T, types::Error>;

/// An operation of the host.
pub(crate) struct Decision {
    shared: Rc<Shared>,
    key: LockKey,
    /// The lock that is renewed, if this is a renewal.
    renewed: Option<Rc<Hold>>,
    /// `None`: the verdict was taken.
    call: RefCell<Option<Call>>,
}

impl Decision {
    pub(crate) fn resource(shared: &Rc<Shared>, key: LockKey, call: Call) -> decisions::Decision {
        let call = RefCell::new(Some(call));
        decisions::Decision::new(Self { shared: Rc::clone(shared), key, renewed: None, call })
    }

    /// A renewal. Its verdict also updates the lock.
    pub(crate) fn of_renewal(shared: &Rc<Shared>, key: LockKey, hold: &Rc<Hold>, call: Call) -> decisions::Decision {
        let (call, renewed) = (RefCell::new(Some(call)), Some(Rc::clone(hold)));
        decisions::Decision::new(Self { shared: Rc::clone(shared), key, renewed, call })
    }

    fn reached(&self, ended: Ended) -> Result<Verdict> {
        let failed = |operation| move |failure: Failure| failed(&failure, operation, &self.key);
        match ended {
            Ended::Acquired(acquired) => Ok(self.acquired(acquired.map_err(failed(Operation::Acquire))?)),
            Ended::Renewed(renewed) => {
                if let Some(hold) = &self.renewed {
                    hold.is_renewed(&renewed);
                }
                renewed.map_err(failed(Operation::Renew))?;
                Ok(Verdict::Renewed)
            }
            Ended::Released(released) => match released.map_err(failed(Operation::Release))? {
                Released::Released { .. } => Ok(Verdict::Released(ReleaseOutcome::Released)),
                Released::Lost | Released::AlreadyGone => Ok(Verdict::Released(ReleaseOutcome::AlreadyGone)),
                Released::WithoutData(reason) => Err(released_without_data(&self.key, &reason)),
            },
            Ended::Peeked(record) => {
                Ok(Verdict::Peeked(record.map_err(failed(Operation::Read))?.map(PeekedLock::from)))
            }
        }
    }

    fn acquired(&self, acquired: Acquired) -> Verdict {
        match acquired {
            Acquired::Granted { holding, data, renew_first } => {
                let lock = decisions::Lock::new(Lock::new(Rc::clone(&self.shared), holding));
                Verdict::Granted(Grant { lock, data, renew_first })
            }
            Acquired::Held(seen) => Verdict::Held(seen.into()),
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
            Ok(ended) => self.reached(ended),
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
            freeze_reason: record.freeze_reason,
            version: record.version,
        }
    }
}
