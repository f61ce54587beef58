//! One list of scenarios that every form of the lock must pass: the crate itself, and the components in their hosts.
//!
//! * [`scenarios`]: the list. Each scenario checks one promise of the lock, on a real HTTP server that loses responses,
//!   and next to a native holder or contender.
//! * [`Subject`]: what is tested. [`Native`] is the crate in this process. [`Host`] is a program that runs a component
//!   and reads one line of JSON per call, so a host can be written in any language.
//! * [`Stage`]: an embedded DynamoDB and a proxy to it.

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
pub use crate::subject::{Ask, Blocked, BoxFuture, Failure, Several, Subject, World};
