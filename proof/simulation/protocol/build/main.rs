//! Copies the source of lambda-lock-protocol and adds the known mistakes, each behind a switch. The crate itself has none.

mod mistakes;

use std::process::ExitCode;

fn main() -> ExitCode {
    lambda_lock_copy::copy("../../../protocol/src", "crate::mistakes", mistakes::EDITS)
}
