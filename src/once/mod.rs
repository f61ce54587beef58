//! Idempotent work: done once for each key, and answered from its record afterwards.

mod attempt;
mod payload;
mod request;
mod status;

pub use attempt::Attempt;
pub use request::{DEFAULT_RETENTION, Once, Outcome, Started};
pub use status::{OnceState, OnceStatus};
