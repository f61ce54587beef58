//! Runs the state machines of `deploy/statemachines/` with MiniStack's engine, with the functions as the template
//! deploys them, on an embedded DynamoDB.

#![cfg(unix)]
#![allow(clippy::disallowed_methods, reason = "the tests wait for executions")]
#![allow(clippy::print_stdout, reason = "seeds are shown when a test fails")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on fails")]

mod at_most_n;
mod cost;
mod crowd;
mod definitions;
mod ends;
mod engine;
mod exclusive_work;
mod fan_out;
mod grants;
mod line;
mod paths;
mod redriven;
mod scene;
mod skip_if_running;
mod tenures;
mod without_lock_task;
