//! Has cargo build the three functions, with the same profile and in the same target directory.

use anyhow::{Context, bail};
use lambda_lock_local::lambda::workspace;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use tokio::process::Command;

/// A function's executable.
#[derive(Debug)]
pub(crate) struct Binary {
    pub(crate) name: &'static str,
    pub(crate) path: PathBuf,
    pub(crate) bytes: u64,
}

/// lock-task, bare-lean and bare-defaults. Each is built on its own: built together, they would share
/// the features of their dependencies.
pub(crate) async fn build_all() -> anyhow::Result<[Binary; 3]> {
    let project = workspace();
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    Ok([build(project, "lock-task").await?, build(here, "bare-lean").await?, build(here, "bare-defaults").await?])
}

async fn build(directory: &Path, name: &'static str) -> anyhow::Result<Binary> {
    let target = workspace().join("target");
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(["build", "--release", "--locked", "--package", name, "--target-dir"]).arg(&target);
    let built = command.current_dir(directory).stdin(Stdio::null()).kill_on_drop(true).status().await;
    let status = built.context("cargo cannot be started")?;
    if !status.success() {
        bail!("cargo cannot build {name}: {status}");
    }
    let path = target.join("release").join(name);
    let bytes = path.metadata().with_context(|| format!("cargo has built no {name}"))?.len();
    Ok(Binary { name, path, bytes })
}
