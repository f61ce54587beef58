//! Settings and input: what cannot work is refused with a sentence, and what can is usable to its limits.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a helper of a test may stop it")]

mod auto_traits;
mod error_kinds;
mod input;
mod limits;
mod prefixes;
mod table;
