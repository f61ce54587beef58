//! A held lock from its holder's side: what may be believed, and where renewal and release begin.

use crate::bindings::exports::lambda_lock::lock::decisions::{self, Clocks, GuestLock, ReleaseOptions, RenewOptions};
use crate::bindings::exports::lambda_lock::lock::types;
use crate::call::{Call, Terms, latest_moment};
use crate::convert::millis;
use crate::decision::{Decision, Purpose};
use crate::error::lost;
use crate::machines::{AnyMachine, OwnedReleasing, OwnedRenewal, Renewed};
use crate::request::fence;
use crate::table::{Shared, data_change};
use lambda_lock::protocol::{self, Holding, Lease, LockToken};
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
pub(crate) enum State {
    Held,
    /// The lease was seen to have run out: not ours again until a renewal succeeds.
    Expired,
    /// Another grant has it, or it was released, or it is being given back.
    Over,
}

impl Hold {
    /// What a renewal left, unless a newer one has been here.
    pub(crate) fn learn(&self, renewed: Holding) {
        let mut holding = self.holding.borrow_mut();
        if renewed.newest.stamp >= holding.newest.stamp {
            *holding = renewed;
        }
    }

    /// A lock that is over stays so.
    pub(crate) fn is_now(&self, state: State) {
        if self.state.get() != State::Over {
            self.state.set(state);
        }
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
        let owner = Renewed::new(Rc::clone(&self.shared.settings), holding);
        let machine = OwnedRenewal::new(owner, |owner| {
            protocol::Renewal::new(owner.settings(), owner.holding().borrow_mut(), data)
        });
        let terms = Terms { wait: Duration::ZERO, lease, latest_end };
        let call = Call::new(Rc::clone(&self.shared), AnyMachine::Renewal(machine), terms);
        Ok(Decision::resource(&self.shared, key, Purpose::Renew(Rc::clone(&self.hold)), call))
    }

    fn release(&self, options: ReleaseOptions) -> Result<decisions::Decision> {
        let ReleaseOptions { data, delete_row, or_later_grant_of_owner } = options;
        let (holding, data) = (self.holding(), data_change(data));
        self.shared.settings.check_write(&holding.key, &holding.owner, None, &data)?;
        self.hold.state.set(State::Over);
        let machine = OwnedReleasing::new(Rc::clone(&self.shared.settings), |settings| {
            let releasing = if or_later_grant_of_owner {
                protocol::Releasing::owners(settings, &holding)
            } else {
                protocol::Releasing::mine(settings, &holding)
            };
            releasing.with_data(data).deleting(delete_row)
        });
        let call = Call::new(Rc::clone(&self.shared), AnyMachine::Releasing(machine), Terms::none());
        Ok(Decision::resource(&self.shared, holding.key, Purpose::Release, call))
    }
}
