//! The Java, Go and Python lock clients as processes, for tests and benchmarks.
//!
//! Each process is a small program around one library. The tools of its language build it
//! (`proof/interop/build`). It reads one request per line and writes one response per line. `README.md`
//! describes the protocol. [`Driver`] is such a process, and [`Peer`] is a lock client in it.

mod driver;
mod language;
mod peer;

pub use crate::driver::Driver;
pub use crate::language::Language;
pub use crate::peer::{Answer, Opened, Peer, Refusal, Seen, Why};
