//! Has cargo build functions, and finds what it built.

use anyhow::{Context, bail};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use tokio::process::Command;

/// The function of this package, whose command line is not built, because it may be what is running.
const DEMO_FUNCTION: &str = "demo-function";

/// Builds these packages of the workspace, each with a binary of its name, and `demo-function`, and says
/// where the binaries are. Cargo shows its progress on stderr. They are built as this program was: with
/// `--release`, or without; and from the root, without `--package`, so that all that is built there has the same
/// features and is built once.
///
/// # Errors
/// When there is no cargo, or a package cannot be built.
pub async fn build(packages: &[String]) -> anyhow::Result<BTreeMap<String, PathBuf>> {
    let mut arguments = vec!["--bin", DEMO_FUNCTION];
    for package in packages {
        arguments.extend(["--bin", package]);
    }
    arguments.extend((!cfg!(debug_assertions)).then_some("--release"));
    cargo_build(&arguments).await
}

/// Runs `cargo build` with these arguments, and says where each binary is, by its name. Cargo shows its progress
/// on stderr.
///
/// # Errors
/// When there is no cargo, or something cannot be built.
pub async fn cargo_build(arguments: &[&str]) -> anyhow::Result<BTreeMap<String, PathBuf>> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(["build", "--message-format", "json-render-diagnostics"]).args(arguments);
    command.current_dir(workspace()).stdin(Stdio::null()).stderr(Stdio::inherit()).kill_on_drop(true);
    // What `cargo run` says of this package is not about what is built now, and build scripts that look at
    // it would build everything anew.
    for (name, _) in std::env::vars_os() {
        if ["CARGO_PKG_", "CARGO_MANIFEST_"].iter().any(|prefix| name.to_string_lossy().starts_with(prefix)) {
            command.env_remove(name);
        }
    }
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
