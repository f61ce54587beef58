//! Finds the Python tools that a script of the project installs under `target/`.

use crate::lambda::workspace;
use anyhow::{Context, ensure};
use std::env;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// Returns the Python interpreter of these tools. If they are not installed, prints a line on stderr and
/// returns `None`. The script installs them, which needs a network.
///
/// # Errors
/// With `LAMBDA_LOCK_CI`, returns an error if they are not installed.
pub(crate) fn python(tools: &str, script: &str) -> anyhow::Result<Option<PathBuf>> {
    let python = target(workspace()).join(tools).join("bin/python");
    if python.exists() {
        return Ok(Some(python));
    }
    ensure!(env::var_os("LAMBDA_LOCK_CI").is_none(), "run {script} before the tests");
    // Not `eprintln!`, because the test harness would hold it back.
    writeln!(io::stderr(), "SKIPPED: tests that need {tools}, because {script} has not run")?;
    Ok(None)
}

/// The path of a Python with boto3, which the engine brings. If `deploy/statemachines/tools` has not run, prints a line on
/// stderr and returns `None`.
///
/// # Errors
/// With `LAMBDA_LOCK_CI`, returns an error if it is not installed.
pub fn python_with_boto3() -> anyhow::Result<Option<PathBuf>> {
    python("state-machine-tools", "deploy/statemachines/tools")
}

/// Runs a script with the tools of the template, which must be installed, and gives it this text.
pub(crate) fn with_template_tools(script: &str, text: &str) -> anyhow::Result<Output> {
    let tools = python("template-tools", "deploy/template/tools")?.context("run deploy/template/tools first")?;
    let mut command = Command::new(tools);
    command.current_dir(workspace()).args(["-B", script]);
    let mut running = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    running.stdin.take().context("no standard input")?.write_all(text.as_bytes())?;
    Ok(running.wait_with_output()?)
}

/// The folder in which cargo builds.
pub(crate) fn target(workspace: &Path) -> PathBuf {
    env::var_os("CARGO_TARGET_DIR").map_or_else(|| workspace.join("target"), |given| workspace.join(given))
}
