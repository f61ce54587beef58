//! What the functions share, so that each of them is its handler and nothing else.
//!
//! | file | idea |
//! |---|---|
//! | `config` | the environment, read once; every mistake in it stops the start with a sentence |
//! | `client` | a DynamoDB client that starts in milliseconds: no profile, no system certificates |
//! | `credentials` | from Lambda's variables, or from the endpoint that they name |
//! | `event` | a request's fields, each refused by its name |
//! | `failure` | errors that leave under a name, and one line in the log for each |
//! | `quote` | texts of others in errors, cut |
//! | `restore` | what is done after a restore from a snapshot |
//! | `start` | logs, configuration, and the runtime |
//! | `web` | HTTP to others than AWS |

mod client;
mod config;
mod credentials;
mod event;
mod failure;
mod quote;
mod restore;
mod start;
#[cfg(feature = "test-support")]
pub mod test_support;
mod web;

pub use config::{Config, ConfigError, Environment, optional, process, required};
pub use event::{Event, Fields, seconds_json};
pub use failure::{AfterWork, Failure, LONGEST_MESSAGE};
pub use quote::{LONGEST_QUOTE, beginning, quoted};
pub use start::{serve, start};
pub use web::{Answered, NoAnswer, Web};
