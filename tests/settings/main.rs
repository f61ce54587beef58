//! Settings and input: what cannot work is refused with a message, and the rest works up to its limits.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a helper of a test may stop it")]

mod auto_traits;
mod error_kinds;
mod input;
mod limits;
mod mixed;
mod prefixes;
mod table;
