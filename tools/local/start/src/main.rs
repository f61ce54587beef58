//! `cargo demo` and `cargo local`: prints what will happen, and builds and runs the command with cargo.
//!
//! The first build takes minutes. So a new user gets this information, and the progress, at once. After a change of the
//! code too cargo shows what it compiles.

use std::env;
use std::path::Path;
use std::process::{Command, ExitCode};

const DEMO: &str = "\
lambda-lock: cargo compiles the demo first, with an embedded DynamoDB and the AWS SDK. That takes about five minutes on
two cores, and a second the next time. Then real processes share one lock: one is killed, one is paused and writes too
late, functions crash, and orders are charged once. The demo needs no AWS account, takes half a minute, and ends with a
verdict.
";

const LOCAL: &str = "\
lambda-lock: cargo compiles an embedded DynamoDB, the AWS SDK and the functions of the template first. That takes some
minutes, and a second the next time. Then the functions run until Ctrl-C. They need no AWS account.
";

fn main() -> ExitCode {
    let arguments: Vec<_> = env::args_os().skip(1).collect();
    let is_built = env::current_exe().is_ok_and(|own| own.with_file_name(program("lambda-lock-local")).exists());
    let mut cargo = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args(["run", "--bin", "lambda-lock-local"]);
    // With these variables build scripts would see other values than in a manual build, and run again.
    for (name, _) in env::vars_os() {
        if ["CARGO_PKG_", "CARGO_MANIFEST_"].iter().any(|prefix| name.to_string_lossy().starts_with(prefix)) {
            cargo.env_remove(name);
        }
    }
    if !is_built {
        say(if arguments.first().is_some_and(|command| command == "local") { LOCAL } else { DEMO });
    }
    cargo.arg("--").args(arguments);
    // Runs at the root, because its default members decide the features of the build.
    cargo.current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.."));
    match cargo.status() {
        Ok(status) => status.code().and_then(|code| u8::try_from(code).ok()).map_or(ExitCode::FAILURE, ExitCode::from),
        Err(error) => {
            say(&format!("error: cargo could not be started: {error}"));
            ExitCode::from(2)
        }
    }
}

fn program(name: &str) -> String {
    format!("{name}{}", env::consts::EXE_SUFFIX)
}

#[expect(clippy::print_stderr, reason = "This program speaks to the person who typed the command.")]
fn say(text: &str) {
    eprintln!("{text}");
}
