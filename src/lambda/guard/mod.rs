//! A lock around a whole handler, as tower middleware.

mod error;
mod layer;
mod service;

pub use error::LockServiceError;
pub use layer::{LockLayer, Refuse, WhenHeld};
pub use service::{LockService, Locked};
