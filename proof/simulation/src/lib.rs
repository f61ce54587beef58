//! Checks that the lock keeps its promises. See `README.md` in this directory.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a simulation that is broken may stop")]

mod batch;
mod clocks;
mod counts;
pub mod expression;
mod ledger;
pub mod model;
mod network;
mod peer;
mod plan;
mod run;
mod sdk;
mod several;
mod survey;
mod table;
mod worker;
mod world;

pub use batch::{Batch, Summary};
pub use counts::{Counts, OF_SETS};
pub use ledger::{Invariant, Violation};
pub use plan::FIRST_CROWD;
pub use run::{Options, Run, run};
pub use survey::{Known, noticed_by, read, survey, table};
pub use table::{Answer, Rows};
