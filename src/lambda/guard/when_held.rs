//! What is answered when somebody else holds the lock.

use crate::engine::error::Held;

/// Makes no answer of a held lock: it is an error.
#[derive(Clone, Copy, Debug)]
pub struct Refuse;

/// What to answer when somebody else holds the lock.
pub trait WhenHeld<R> {
    /// The answer, if it is one, and the error otherwise.
    fn answer(&self, held: &Held) -> Option<R>;
}

impl<R> WhenHeld<R> for Refuse {
    fn answer(&self, _: &Held) -> Option<R> {
        None
    }
}

impl<R, F: Fn(&Held) -> R> WhenHeld<R> for F {
    fn answer(&self, held: &Held) -> Option<R> {
        Some(self(held))
    }
}
