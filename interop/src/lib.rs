//! The Java, Go and Python lock clients as processes that a test, or a benchmark, can ask.
//!
//! Each is a small program around the library, built by its own language's tools (`interop/build`), that
//! reads one request per line and writes one answer per line. `README.md` describes the protocol.
//! [`Driver`] is one such process; [`Peer`] is one lock client in it.

mod driver;
mod language;
mod peer;

pub use crate::driver::Driver;
pub use crate::language::Language;
pub use crate::peer::{Answer, Opened, Peer, Refusal, Seen, Why};
