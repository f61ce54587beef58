//! A lock around a whole handler, as tower middleware.

mod error;
mod layer;
mod service;
mod settings;
mod when_held;

pub use error::LockServiceError;
pub use layer::LockLayer;
pub use service::{LockService, Locked};
pub use when_held::{Refuse, WhenHeld};
