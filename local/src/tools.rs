//! Tools in Python that a script of the project installs under `target/`.

use crate::lambda::workspace;
use anyhow::ensure;
use std::env;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// The interpreter of these tools. `None`, and a line on stderr, where they are not installed: that is the
/// script's work, because it takes a network.
///
/// # Errors
/// With `LAMBDA_LOCK_CI`, when they are not installed.
pub(crate) fn python(tools: &str, script: &str) -> anyhow::Result<Option<PathBuf>> {
    let python = target(workspace()).join(tools).join("bin/python");
    if python.exists() {
        return Ok(Some(python));
    }
    ensure!(env::var_os("LAMBDA_LOCK_CI").is_none(), "{script} has to run before the tests");
    // Not `eprintln!`, which the test harness would hold back.
    writeln!(io::stderr(), "SKIPPED: what needs {tools}, because {script} has not run")?;
    Ok(None)
}

/// A Python with boto3. `None`, and a line on stderr, where `deploy/statemachines/tools` has not run: the engine brings boto3.
///
/// # Errors
/// With `LAMBDA_LOCK_CI`, when it is not installed.
pub fn python_with_boto3() -> anyhow::Result<Option<PathBuf>> {
    python("state-machine-tools", "deploy/statemachines/tools")
}

/// Where cargo builds.
pub(crate) fn target(workspace: &Path) -> PathBuf {
    env::var_os("CARGO_TARGET_DIR").map_or_else(|| workspace.join("target"), |given| workspace.join(given))
}
