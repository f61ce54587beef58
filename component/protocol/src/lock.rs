//! A held lock from its holder's side: what is known about it, and the start of its renewal and release.

use crate::bindings::exports::lambda_lock::lock::decisions::{self, Clocks, GuestLock, ReleaseOptions, RenewOptions};
use crate::bindings::exports::lambda_lock::lock::types;
use crate::call::{Call, Ended, Terms, latest_moment};
use crate::convert::millis;
use crate::decision::Decision;
use crate::error::lost;
use crate::hold::{Lent, Lock, State};
use crate::request::{data_change, fence};
use lambda_lock_protocol::{self as protocol, Lease, SavedLock, Steps};
use std::rc::Rc;
use std::time::Duration;

type Result<T> = std::result::Result<T, types::Error>;

impl GuestLock for Lock {
    fn key(&self) -> types::LockKey {
        (&self.holding().key).into()
    }

    fn owner(&self) -> String {
        self.holding().owner
    }

    fn fencing_token(&self) -> u64 {
        self.holding().token
    }

    fn remaining(&self, now: Clocks) -> u64 {
        if self.hold.state.get() != State::Held {
            return 0;
        }
        let remaining = millis(self.holding().validity.remaining(latest_moment(&now)));
        if remaining == 0 {
            self.hold.state.set(State::Expired);
        }
        remaining
    }

    fn lease_ends_at(&self) -> u64 {
        self.holding().ends_at_ms
    }

    fn to_saved(&self) -> types::SavedLock {
        (&SavedLock::of(&self.holding())).into()
    }

    fn condition_check(&self) -> Result<types::ConditionCheck> {
        let holding = self.holding();
        if self.hold.state.get() == State::Over {
            return Err(lost(&holding.key));
        }
        Ok(fence(&holding, &self.shared))
    }

    fn renew(&self, options: RenewOptions) -> Result<decisions::Decision> {
        let RenewOptions { lease, latest_end, data } = options;
        let (holding, data) = (self.holding(), data_change(data));
        if self.hold.state.get() == State::Over {
            return Err(lost(&holding.key));
        }
        let lease = lease.map_or(holding.lease.duration(), Duration::from_millis);
        Lease::check(lease)?;
        self.shared.settings.check_write(&holding.key, &holding.owner, None, &data)?;
        let key = holding.key.clone();
        let (settings, home) = (Rc::clone(&self.shared.settings), Rc::clone(&self.hold));
        let steps = Steps::new(|mut port| async move {
            let mut lent = Lent { home, holding };
            Ended::Renewed(protocol::renew(&mut port, &settings, &mut lent.holding, &data).await)
        });
        let terms = Terms { wait: Duration::ZERO, lease, latest_end };
        let call = Call::new(Rc::clone(&self.shared), steps, terms);
        Ok(Decision::of_renewal(&self.shared, key, &self.hold, call))
    }

    fn release(&self, options: ReleaseOptions) -> Result<decisions::Decision> {
        let ReleaseOptions { data, or_later_grant_of_owner } = options;
        let (holding, data) = (self.holding(), data_change(data));
        self.shared.settings.check_write(&holding.key, &holding.owner, None, &data)?;
        self.hold.state.set(State::Over);
        let (key, settings) = (holding.key.clone(), Rc::clone(&self.shared.settings));
        let options = protocol::ReleaseOptions { data, or_later_grant_of_owner, tells_sleeper: false };
        let steps = Steps::new(|mut port| async move {
            Ended::Released(protocol::release(&mut port, &settings, &holding, options).await)
        });
        let call = Call::new(Rc::clone(&self.shared), steps, Terms::none());
        Ok(Decision::resource(&self.shared, key, call))
    }
}
