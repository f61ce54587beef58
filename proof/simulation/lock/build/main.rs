//! Copies the source of lambda-lock and edits the copy. The edits add the known mistakes of the client, each behind a switch,
//! and the simulated network. The crate itself contains neither.

mod mistakes;
mod network;

use std::process::ExitCode;

fn main() -> ExitCode {
    let edits = [network::EDITS, mistakes::EDITS].concat();
    lambda_lock_copy::copy("../../../src", "lambda_lock_protocol::mistakes", &edits)
}
