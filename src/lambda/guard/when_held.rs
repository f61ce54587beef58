//! What a guarded handler returns when another caller holds the lock.

use crate::engine::error::Refusal;

/// Returns no response when the lock is held, so that it is an error.
#[derive(Clone, Copy, Debug)]
pub struct Refuse;

/// Makes the response for when another caller holds the lock.
pub trait WhenHeld<R> {
    /// Returns the response. `None` means that the held lock is an error.
    fn answer(&self, refusal: &Refusal) -> Option<R>;
}

impl<R> WhenHeld<R> for Refuse {
    fn answer(&self, _: &Refusal) -> Option<R> {
        None
    }
}

impl<R, F: Fn(&Refusal) -> R> WhenHeld<R> for F {
    fn answer(&self, refusal: &Refusal) -> Option<R> {
        Some(self(refusal))
    }
}
