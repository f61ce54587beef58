//! One list of scenarios that every way to use the lock has to pass: the crate itself, and the components
//! in their hosts.
//!
//! * [`scenarios`]: the list. Each of them is a promise of the lock, kept in front of a real HTTP server
//!   on which answers get lost, and next to a native holder or contender.
//! * [`Subject`]: who is to keep it. [`Native`] is the crate in this process; [`Host`] is a program that
//!   runs a component and speaks one line of JSON per call, so that a host can be written in any language.
//! * [`Stage`]: an embedded DynamoDB, and the way to it.

#![allow(clippy::disallowed_methods, reason = "a test bench looks at the clock; only the library may not")]

mod dynamodb_json;
mod host;
mod native;
pub mod overhead;
mod plays;
pub mod report;
pub mod scenarios;
mod stage;
mod subject;

pub use crate::host::Host;
pub use crate::native::Native;
pub use crate::stage::Stage;
pub use crate::subject::{Ask, BoxFuture, Failure, Subject, World};
