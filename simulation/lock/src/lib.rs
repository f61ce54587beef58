//! lambda-lock as the simulation drives it: a copy of its source, edited by the build script, with known mistakes
//! that can be switched on and a simulated network under the client.

include!(concat!(env!("OUT_DIR"), "/src/lib.rs"));

pub mod mistakes;
mod requests;
pub mod simulation;
