//! A held lock from its holder's side: what may be believed, and where renewal and release begin.

use crate::bindings::exports::lambda_lock::lock::decisions::{self, Clocks, GuestLock, ReleaseOptions, RenewOptions};
use crate::bindings::exports::lambda_lock::lock::types;
use crate::call::{Call, Ended, Terms, latest_moment};
use crate::convert::millis;
use crate::decision::Decision;
use crate::error::lost;
use crate::request::fence;
use crate::table::{Shared, data_change};
use lambda_lock::protocol::{self, Failure, Holding, Lease, LockToken, Steps};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

type Result<T> = std::result::Result<T, types::Error>;

/// What a lock and its renewals share.
pub(crate) struct Hold {
    holding: RefCell<Holding>,
    state: Cell<State>,
}

/// What is known of a hold besides its lease.
#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Held,
    /// The lease was seen to have run out: not ours again until a renewal succeeds.
    Expired,
    /// Another grant has it, or it was released, or it is being given back.
    Over,
}

impl Hold {
    /// What a renewal left, unless a newer one has been here.
    fn learn(&self, renewed: Holding) {
        let mut holding = self.holding.borrow_mut();
        if renewed.newest.stamp >= holding.newest.stamp {
            *holding = renewed;
        }
    }

    /// How a renewal of it ended. A lock that is over stays so.
    pub(crate) fn is_renewed(&self, renewed: &std::result::Result<(), Failure>) {
        let state = match renewed {
            Ok(()) => State::Held,
            Err(Failure::Lost) => State::Over,
            Err(_) => return,
        };
        if self.state.get() != State::Over {
            self.state.set(state);
        }
    }
}

/// A holding that is lent to a renewal. It hands what the renewal learnt to its lock, also when the host gave the
/// renewal up.
struct Lent {
    home: Rc<Hold>,
    holding: Holding,
}

impl Drop for Lent {
    fn drop(&mut self) {
        self.home.learn(self.holding.clone());
    }
}

/// A lock that was granted to the host.
pub(crate) struct Lock {
    shared: Rc<Shared>,
    hold: Rc<Hold>,
}

impl Lock {
    pub(crate) fn new(shared: Rc<Shared>, holding: Holding) -> Self {
        let hold = Hold { holding: RefCell::new(holding), state: Cell::new(State::Held) };
        Self { shared, hold: Rc::new(hold) }
    }

    fn holding(&self) -> Holding {
        self.hold.holding.borrow().clone()
    }
}

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
        let remaining = millis(self.holding().belief.remaining(latest_moment(&now)));
        if remaining == 0 {
            self.hold.state.set(State::Expired);
        }
        remaining
    }

    fn lease_ends_at(&self) -> u64 {
        self.holding().ends
    }

    fn token(&self) -> types::LockToken {
        (&LockToken::of(&self.holding())).into()
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
        let ReleaseOptions { data, delete_row, or_later_grant_of_owner } = options;
        let (holding, data) = (self.holding(), data_change(data));
        self.shared.settings.check_write(&holding.key, &holding.owner, None, &data)?;
        self.hold.state.set(State::Over);
        let (key, settings) = (holding.key.clone(), Rc::clone(&self.shared.settings));
        let options = protocol::ReleaseOptions { data, delete_row, or_later_grant_of_owner };
        let steps = Steps::new(|mut port| async move {
            Ended::Released(protocol::release(&mut port, &settings, &holding, options).await)
        });
        let call = Call::new(Rc::clone(&self.shared), steps, Terms::none());
        Ok(Decision::resource(&self.shared, key, call))
    }
}
