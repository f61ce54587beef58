//! The copy of lambda-lock that the simulation drives. The build script adds known mistakes that can be switched on,
//! and a simulated network under the client.

include!(concat!(env!("OUT_DIR"), "/src/lib.rs"));

pub mod simulation;
