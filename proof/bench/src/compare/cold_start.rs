//! Cold starts. `proof/bench/cold-start`, a program outside of the workspace, measures them.

use crate::Error;
use serde::{Deserialize, Serialize};
use std::path::Path;
use std::process::Stdio;
use tokio::process::Command;

/// A single start has no interval, so the smallest number is 2.
pub(crate) fn number(text: &str) -> Result<u32, String> {
    match text.parse() {
        Ok(1) => Err("must be 0 (none) or at least 2".to_owned()),
        Ok(number) => Ok(number),
        Err(error) => Err(format!("{error}")),
    }
}

/// The output of the program with `--json`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ColdStarts {
    pub(crate) starts: u32,
    pub(crate) binaries: Vec<Binary>,
    pub(crate) comparisons: Vec<Comparison>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Binary {
    pub(crate) function: String,
    pub(crate) bytes: u64,
}

/// A figure of lock-task and the same figure of another function.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Comparison {
    pub(crate) what: String,
    pub(crate) unit: String,
    pub(crate) lock_task: f64,
    pub(crate) other: String,
    pub(crate) other_median: f64,
    pub(crate) ratio: f64,
}

pub(crate) async fn measure(starts: u32) -> Result<ColdStarts, Error> {
    let project = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(["run", "--manifest-path", "proof/bench/cold-start/Cargo.toml", "--target-dir", "target", "--"]);
    command.args(["--json", "--starts", &starts.to_string()]);
    command.current_dir(project).stdin(Stdio::null()).stderr(Stdio::inherit()).kill_on_drop(true);
    let output = command.output().await?;
    if !output.status.success() {
        return Err(format!("the cold starts could not be measured: {}", output.status).into());
    }
    Ok(serde_json::from_slice(&output.stdout)?)
}
