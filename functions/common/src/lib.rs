//! The code that the functions share.
//!
//! | file | idea |
//! |---|---|
//! | `config` | the configuration of a function, read once |
//! | `client` | a DynamoDB client that starts in milliseconds: no profile, no system certificates |
//! | `credentials` | from Lambda's variables, or from the endpoint that they name |
//! | `environment` | variables; a wrong one stops the start with a message that names it |
//! | `event` | reads the fields of a request, and refuses a wrong field by its name |
//! | `failure` | errors with a name, and one log line for each |
//! | `lease` | the budget of an invocation, and work under a lock that a handler holds by hand |
//! | `metrics` | one line of metrics for each invocation |
//! | `quote` | shortens texts of other clients in errors |
//! | `restore` | what is done after a restore from a snapshot |
//! | `start` | logs, configuration, and the runtime |
//! | `wake` | wakes executions that sleep until it is their turn |
//! | `web` | HTTP to servers other than AWS |

mod client;
mod config;
mod credentials;
mod environment;
mod event;
mod failure;
mod lease;
mod metrics;
mod quote;
mod restore;
mod start;
#[cfg(feature = "test-support")]
pub mod test_support;
#[cfg(feature = "wake")]
mod wake;
mod web;

pub use config::Config;
pub use environment::{ConfigError, Environment, flag, may_simulate, optional, process, required};
pub use event::{Event, Fields, seconds_json};
pub use failure::{AfterWork, Failure, MAX_MESSAGE_BYTES, with_causes};
pub use lease::{budget, within_lease};
pub use metrics::count_keys;
pub use quote::{MAX_QUOTE_BYTES, beginning, quoted, short};
pub use start::{run, start};
#[cfg(feature = "wake")]
pub use wake::{MAX_TASK_TOKEN_BYTES, Waker, WithoutItem};
pub use web::{Answered, NoAnswer, Web};
