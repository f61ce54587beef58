//! Builds functions with cargo, and finds their binaries.

use anyhow::{Context, bail};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use tokio::process::Command;

/// The function of this package. The package's command line is not built, because it may be running.
const DEMO_FUNCTION: &str = "demo-function";

/// Builds these packages of the workspace and `demo-function`, and returns the paths of the binaries. Each
/// package has a binary of its name. Cargo prints its progress on stderr. The build uses `--release` if this
/// program was built with it. It runs at the root without `--package`, so that everything has the same features
/// and is built once.
///
/// # Errors
/// Returns an error if there is no cargo, or if a package cannot be built.
pub async fn build(packages: &[String]) -> anyhow::Result<BTreeMap<String, PathBuf>> {
    let mut arguments = vec!["--bin", DEMO_FUNCTION];
    for package in packages {
        arguments.extend(["--bin", package]);
    }
    arguments.extend((!cfg!(debug_assertions)).then_some("--release"));
    cargo_build(&arguments).await
}

/// Runs `cargo build` with these arguments, and returns the path of each binary by its name. Cargo prints its
/// progress on stderr.
///
/// # Errors
/// Returns an error if there is no cargo, or if the build fails.
pub async fn cargo_build(arguments: &[&str]) -> anyhow::Result<BTreeMap<String, PathBuf>> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(["build", "--message-format", "json-render-diagnostics"]).args(arguments);
    command.current_dir(workspace()).stdin(Stdio::null()).stderr(Stdio::inherit()).kill_on_drop(true);
    // `cargo run` sets variables about this package. Build scripts that read them would rebuild everything.
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

/// The folder of the template and the functions.
pub fn workspace() -> &'static Path {
    let local = Path::new(env!("CARGO_MANIFEST_DIR"));
    local.ancestors().nth(2).unwrap_or(local)
}

/// Whether this package is part of a clone, so that its workspace can be built. Otherwise it comes from a registry.
pub fn is_clone() -> bool {
    workspace().join("template.yaml").exists()
}

/// Returns the name and the path of the binary in this line of cargo's output.
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
