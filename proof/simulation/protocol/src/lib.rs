//! The copy of lambda-lock-protocol that the simulation drives. The build script adds known mistakes that can be switched
//! on.

#![allow(missing_docs, reason = "docs that only repeat a name are left out")]

include!(concat!(env!("OUT_DIR"), "/src/lib.rs"));

pub mod mistakes;
mod requests;
