//! Has cargo build functions, and finds what it built.

use anyhow::{Context, bail};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use tokio::process::Command;

/// This package and its features, so that what is built here and there is built once.
const THIS: &str = env!("CARGO_PKG_NAME");

/// Builds these packages of the workspace, and says where their binaries are. Cargo shows its progress
/// on stderr. They are built as this program was: with `--release`, or without.
///
/// # Errors
/// When there is no cargo, or a package cannot be built.
pub async fn build(packages: &[String]) -> anyhow::Result<BTreeMap<String, PathBuf>> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(["build", "--message-format", "json-render-diagnostics", "--package", THIS]);
    for package in packages {
        command.args(["--package", package]);
    }
    command.args((!cfg!(debug_assertions)).then_some("--release"));
    command.current_dir(workspace()).stdin(Stdio::null()).stderr(Stdio::inherit()).kill_on_drop(true);
    let built = command.output().await.context("cargo cannot be started")?;
    if !built.status.success() {
        bail!("cargo build has failed: {}", built.status);
    }
    Ok(built.stdout.split(|byte| *byte == b'\n').filter_map(binary).collect())
}

/// Where the template and the functions are.
pub fn workspace() -> &'static Path {
    let local = Path::new(env!("CARGO_MANIFEST_DIR"));
    local.parent().unwrap_or(local)
}

/// The name and the path of a binary that this line of cargo's is about.
fn binary(line: &[u8]) -> Option<(String, PathBuf)> {
    #[derive(Deserialize)]
    struct Message {
        target: Target,
        executable: Option<PathBuf>,
    }
    #[derive(Deserialize)]
    struct Target {
        name: String,
    }
    let message: Message = serde_json::from_slice(line).ok()?;
    Some((message.target.name, message.executable?))
}
