//! What is known of a lock that was granted to the host.

use crate::shared::Shared;
use lambda_lock::protocol::{Failure, Holding};
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// What a lock and its renewals share.
pub(crate) struct Hold {
    holding: RefCell<Holding>,
    pub(crate) state: Cell<State>,
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
    fn learn(&self, renewed: Holding) {
        let mut holding = self.holding.borrow_mut();
        if renewed.newest.stamp >= holding.newest.stamp {
            *holding = renewed;
        }
    }

    /// How a renewal of it ended. A lock that is over stays so.
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

/// A holding that is lent to a renewal. It hands what the renewal learnt to its lock, also when the host gave the
/// renewal up.
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
