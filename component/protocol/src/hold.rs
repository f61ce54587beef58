//! What is known about a lock that was granted to the host.

use crate::shared::Shared;
use lambda_lock_protocol::{Failure, Holding};
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// The state that a lock and its renewals share.
pub(crate) struct Hold {
    holding: RefCell<Holding>,
    pub(crate) state: Cell<State>,
}

/// What is known about a lock besides its lease.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    Held,
    /// The lease was seen to have ended. The lock counts as held again only after a renewal succeeds.
    Expired,
    /// Another grant has the lock, it was released, or it is being released.
    Over,
}

impl Hold {
    /// Stores the result of a renewal, unless a newer one is stored.
    fn learn(&self, renewed: Holding) {
        let mut holding = self.holding.borrow_mut();
        if renewed.newest.stamp >= holding.newest.stamp {
            *holding = renewed;
        }
    }

    /// Stores how a renewal ended. A lock that has ended stays so.
    pub(crate) fn is_renewed(&self, renewed: &Result<(), Failure>) {
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

/// A holding that is lent to a renewal. It returns what the renewal learnt to the lock, also if the host dropped the
/// renewal.
pub(crate) struct Lent {
    pub(crate) home: Rc<Hold>,
    pub(crate) holding: Holding,
}

impl Drop for Lent {
    fn drop(&mut self) {
        self.home.learn(self.holding.clone());
    }
}

/// A lock that was granted to the host.
pub(crate) struct Lock {
    pub(crate) shared: Rc<Shared>,
    pub(crate) hold: Rc<Hold>,
}

impl Lock {
    pub(crate) fn new(shared: Rc<Shared>, holding: Holding) -> Self {
        let hold = Hold { holding: RefCell::new(holding), state: Cell::new(State::Held) };
        Self { shared, hold: Rc::new(hold) }
    }

    pub(crate) fn holding(&self) -> Holding {
        self.hold.holding.borrow().clone()
    }
}
