//! Builds the functions: those in Rust with the same profile and in the same target directory.

use anyhow::{Context, bail};
use lambda_lock_local::lambda::workspace;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use tokio::process::Command;

/// Everything in one file: no C library is loaded at the start.
const MUSL: &str = "x86_64-unknown-linux-musl";

/// A function's executable.
#[derive(Debug)]
pub(crate) struct Binary {
    pub(crate) name: &'static str,
    pub(crate) path: PathBuf,
    pub(crate) bytes: u64,
    /// How far lock-task may be above it; nothing is promised of most.
    pub(crate) limit: f64,
}

/// lock-task first, then what it is compared with. Each is built on its own: built together, they would
/// share the features of their dependencies.
pub(crate) async fn build_all(java: bool, musl: bool) -> anyhow::Result<Vec<Binary>> {
    let project = workspace();
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let lock_task = build(project, "lock-task", None).await?;
    let lean = Binary { limit: 1.05, ..build(here, "bare-lean", None).await? };
    let defaults = Binary { limit: 0.6, ..build(here, "bare-defaults", None).await? };
    let mut binaries = vec![lock_task, lean, defaults];
    if musl {
        binaries.push(Binary { name: "lock-task-musl", ..build(project, "lock-task", Some(MUSL)).await? });
    }
    if java {
        binaries.push(build_java(here).await?);
    }
    Ok(binaries)
}

/// The jars, and a script that starts them with what `java` does by default. Its bytes are those of the
/// jars: the virtual machine is not counted, because Lambda's image has it.
async fn build_java(here: &Path) -> anyhow::Result<Binary> {
    let directory = workspace().join("target/cold-start-java");
    let mut command = Command::new("mvn");
    command.args(["--quiet", "--batch-mode", "--file", "java/pom.xml", "package"]);
    command.arg(format!("-Dfunction.directory={}", directory.display()));
    // Even when quiet it writes to stdout, which is the figures'.
    command.current_dir(here).stdin(Stdio::null()).stdout(Stdio::null()).kill_on_drop(true);
    let status = command.status().await.context("mvn cannot be started")?;
    if !status.success() {
        bail!("mvn cannot build the Java function: {status}");
    }
    let jar = directory.join("function.jar");
    let path = directory.join("run");
    let start = format!("#!/bin/sh\nexec java -jar '{}' coldstart.Function::handleRequest\n", jar.display());
    std::fs::write(&path, start)?;
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755))?;
    let mut bytes = jar.metadata()?.len();
    for library in std::fs::read_dir(directory.join("lib"))? {
        bytes += library?.metadata()?.len();
    }
    Ok(Binary { name: "java-client", path, bytes, limit: f64::INFINITY })
}

async fn build(directory: &Path, name: &'static str, triple: Option<&str>) -> anyhow::Result<Binary> {
    let target = workspace().join("target");
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(["build", "--release", "--locked", "--package", name, "--target-dir"]).arg(&target);
    if let Some(triple) = triple {
        // The C in ring needs no C library, so the system's compiler does.
        command.args(["--target", triple]).env(format!("CC_{}", triple.replace('-', "_")), "cc");
    }
    let built = command.current_dir(directory).stdin(Stdio::null()).kill_on_drop(true).status().await;
    let status = built.context("cargo cannot be started")?;
    if !status.success() {
        bail!("cargo cannot build {name}: {status}");
    }
    let path = target.join(triple.unwrap_or_default()).join("release").join(name);
    let bytes = path.metadata().with_context(|| format!("cargo has built no {name}"))?.len();
    Ok(Binary { name, path, bytes, limit: f64::INFINITY })
}
