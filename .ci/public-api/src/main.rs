//! Prints the public API of lambda-lock, one item a line, from the JSON that rustdoc made of it and of lambda-lock-protocol:
//! first the crate's own items, then those that it re-exports.
//!
//! `.ci/public-api/check` calls it and compares the result with `.ci/public-api/lambda-lock.txt`. Derived implementations
//! are left out.

use public_api::{Builder, PublicApi};
use std::error::Error;
use std::io::{Write, stdout};
use std::path::PathBuf;

/// How the crate's own list names what it re-exports.
const RE_EXPORT: &str = "pub use lambda_lock::";

fn main() -> Result<(), Box<dyn Error>> {
    let jsons: Vec<PathBuf> = std::env::args_os().skip(1).map(PathBuf::from).collect();
    let [lock, protocol] = jsons.as_slice() else {
        return Err(
            "give the paths of two files: the JSON that rustdoc made of lambda-lock, and of lambda-lock-protocol"
                .into(),
        );
    };
    let (lock, protocol) = (api(lock)?, api(protocol)?);
    let mut out = stdout().lock();
    let mut names = Vec::new();
    for item in lock.items() {
        let line = item.to_string();
        writeln!(out, "{line}")?;
        names.extend(line.strip_prefix(RE_EXPORT).map(|name| format!("lambda_lock_protocol::{name}")));
    }
    let is_part = |line: &str, name: &str| {
        line.split(name).skip(1).any(|rest| !rest.starts_with(|next: char| next.is_alphanumeric() || next == '_'))
    };
    for item in protocol.items() {
        let line = item.to_string();
        // What an item is of stands first: `pub fn lambda_lock_protocol::LockKey::new(...)`, `impl Trait for ...`.
        let of = line.split_once('(').map_or(line.as_str(), |(of, _)| of);
        let of = of.split_once(": ").map_or(of, |(of, _)| of);
        let of = of.split_once(" for ").map_or(of, |(_, of)| of);
        if names.iter().any(|name| is_part(of, name)) {
            writeln!(out, "{line}")?;
        }
    }
    Ok(())
}

fn api(json: &PathBuf) -> Result<PublicApi, Box<dyn Error>> {
    let builder = Builder::from_rustdoc_json(json);
    Ok(builder.omit_blanket_impls(true).omit_auto_trait_impls(true).omit_auto_derived_impls(true).build()?)
}
