//! What is said of a lock's state, frozen or not. In one place, so that nothing says that a frozen lock is free.

use crate::row::State;
use crate::screen::{self, named};
use lambda_lock::operator::PeekedLock;

/// What is said of a lock that has a row.
pub(crate) struct Said {
    state: State,
    is_frozen: bool,
}

impl Said {
    pub(crate) fn of(lock: &PeekedLock, state: State) -> Self {
        Self::new(state, lock.freeze_reason.is_some())
    }

    pub(crate) fn new(state: State, is_frozen: bool) -> Self {
        Self { state, is_frozen }
    }

    /// Free, held, dead or frozen.
    pub(crate) fn is(&self) -> String {
        let (style, is) = match self.state {
            State::Released if self.is_frozen => (screen::DOUBTFUL, "frozen"),
            State::Released => (screen::GOOD, "free"),
            State::Dead => (screen::DOUBTFUL, "dead"),
            _ => (screen::STRONG, "held"),
        };
        format!("{style}{is}{style:#}")
    }

    /// Who is granted it. `None` where it is not frozen.
    pub(crate) fn while_frozen(&self) -> Option<&'static str> {
        let who = match self.state {
            State::Held => "Its holder may finish. Nobody else is granted it until it is thawed.",
            _ => "Nobody is granted it until it is thawed.",
        };
        self.is_frozen.then_some(who)
    }

    /// What follows the key: what the lock is, and of whom.
    pub(crate) fn of_holder(&self, holder: &str) -> String {
        let (is, holder) = (self.is(), named(holder));
        match self.state {
            State::Released => format!("is {is}. {holder} held it last."),
            State::Dead => format!("is {is}: {holder} did not release it."),
            _ => format!("is {is} by {holder}."),
        }
    }
}
