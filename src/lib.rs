//! lambda-lock
pub mod protocol;
pub use protocol::{LockKey, LockToken, Observation};
