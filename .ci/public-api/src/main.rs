//! Prints the public API of a crate, one item a line, from the JSON that rustdoc made of it.
//!
//! `.ci/public-api/check` calls it and compares the result with `.ci/public-api/lambda-lock.txt`.

use std::error::Error;
use std::io::{Write, stdout};

fn main() -> Result<(), Box<dyn Error>> {
    let json = std::env::args_os().nth(1).ok_or("give the path of the JSON that rustdoc made")?;
    let api =
        public_api::Builder::from_rustdoc_json(json).omit_blanket_impls(true).omit_auto_trait_impls(true).build()?;
    let mut out = stdout().lock();
    for item in api.items() {
        writeln!(out, "{item}")?;
    }
    Ok(())
}
