//! What is said of a lock's state, frozen or not. In one place, so that nothing says that a frozen lock is free.

use crate::row::State;
use crate::screen::{self, named};
use anstyle::Style;
use lambda_lock::PeekedLock;

/// What is said of a lock that has a row.
pub(crate) struct Said {
    style: Style,
    is: &'static str,
    /// Who is granted it. `None` where it is not frozen.
    pub(crate) while_frozen: Option<&'static str>,
}

impl Said {
    pub(crate) fn of(lock: &PeekedLock, state: State) -> Self {
        Self::new(state, lock.freeze_reason.is_some())
    }

    pub(crate) fn new(state: State, is_frozen: bool) -> Self {
        let (style, is) = match state {
            State::Released if is_frozen => (screen::DOUBTFUL, "frozen"),
            State::Released => (screen::GOOD, "free"),
            State::Dead => (screen::DOUBTFUL, "dead"),
            _ => (screen::STRONG, "held"),
        };
        let while_frozen = match state {
            State::Held => "Its holder may finish. Nobody else is granted it until it is thawed.",
            _ => "Nobody is granted it until it is thawed.",
        };
        Self { style, is, while_frozen: is_frozen.then_some(while_frozen) }
    }

    /// Free, held, dead or frozen.
    pub(crate) fn is(&self) -> String {
        format!("{}{}{:#}", self.style, self.is, self.style)
    }

    /// What follows the key: what the lock is, and of whom.
    pub(crate) fn of_holder(&self, holder: &str) -> String {
        let (is, holder) = (self.is(), named(holder));
        match self.is {
            "dead" => format!("is {is}: {holder} did not release it."),
            "held" => format!("is {is} by {holder}."),
            _ => format!("is {is}. {holder} held it last."),
        }
    }
}
