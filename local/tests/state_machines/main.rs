//! The state machines of `statemachines/`, executed: by moto's engine, with the functions as the template
//! deploys them, on an embedded DynamoDB.

#![cfg(unix)]
#![allow(clippy::disallowed_methods, reason = "the tests wait for executions")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on fails")]


mod definitions;
mod ends;
mod exclusive_work;
mod fan_out;
mod scene;
mod skip_if_running;
