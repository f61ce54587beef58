//! Builds the functions: those in Rust with the same profile and in the same target directory.

use anyhow::{Context, bail};
use lambda_lock_local::lambda::workspace;
use std::os::unix::fs::PermissionsExt;
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

/// lock-task, bare-lean and bare-defaults, and with `java` the Java client's. Each is built on its own:
/// built together, they would share the features of their dependencies.
pub(crate) async fn build_all(java: bool) -> anyhow::Result<Vec<Binary>> {
    let project = workspace();
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut binaries =
        vec![build(project, "lock-task").await?, build(here, "bare-lean").await?, build(here, "bare-defaults").await?];
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
    let built = command.current_dir(here).stdin(Stdio::null()).kill_on_drop(true).status().await;
    let status = built.context("mvn cannot be started")?;
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
    Ok(Binary { name: "java-client", path, bytes })
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
