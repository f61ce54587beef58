//! The command as a user starts it, against the embedded DynamoDB.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking, in its helpers too")]

mod beside;
mod events;
mod freezing;
mod golden;
mod hostile;
mod inherited;
mod looking;
mod place;
mod reaching;
mod restored;
mod run;
mod run_beyond;
mod run_family;
mod run_rest;
mod run_signals;
mod run_slept;
mod saying;
mod seen;
mod session;
mod stalled;
mod unread;
