//! Builds each function as it would be deployed: with cargo-lambda, in the version of the template's tools.

use anyhow::{Context, bail};
use lambda_lock_local::lambda::workspace;
use std::env::consts::ARCH;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use tokio::process::Command;

/// A function's executable.
#[derive(Debug)]
pub(crate) struct Binary {
    pub(crate) name: &'static str,
    /// What is copied.
    built: PathBuf,
    /// What is started.
    pub(crate) path: PathBuf,
    pub(crate) bytes: u64,
}

/// Builds lock-task first, then the functions that it is compared with. Each is built separately, because functions
/// that are built together share the features of their dependencies.
pub(crate) async fn build_all(gnu: bool) -> anyhow::Result<Vec<Binary>> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let tools = Tools::installed().await?;
    let lock_task = tools.build_as_the_template("lock-task", "LockTask").await?;
    let lean = tools.build(here, "bare-lean", "musl", "bare-lean").await?;
    let defaults = tools.build(here, "bare-defaults", "gnu", "bare-defaults").await?;
    let mut binaries = vec![lock_task, lean, defaults];
    if gnu {
        binaries.push(tools.build(workspace(), "lock-task", "gnu", "lock-task-gnu").await?);
    }
    Ok(binaries)
}

/// The tools that build functions: cargo-lambda and Zig, from the packages that `deploy/template/tools` installs.
struct Tools {
    path: OsString,
}

impl Tools {
    async fn installed() -> anyhow::Result<Self> {
        let mut command = Command::new(workspace().join("deploy/template/tools"));
        command.stdin(Stdio::null()).stderr(Stdio::inherit()).kill_on_drop(true);
        let output = command.output().await.context("deploy/template/tools cannot be started")?;
        if !output.status.success() {
            bail!("deploy/template/tools cannot install the build tools: {}", output.status);
        }
        let tools = PathBuf::from(String::from_utf8(output.stdout)?.trim_end()).join("bin");
        let others = std::env::var_os("PATH").unwrap_or_default();
        let path = std::env::join_paths(std::iter::once(tools).chain(std::env::split_paths(&others)))?;
        Ok(Self { path })
    }

    /// Builds in the same way as `sam build` with the template, so that the deployed binary is measured: for arm64 with
    /// the template's make rule, for x86_64 without a target option.
    async fn build_as_the_template(&self, name: &'static str, id: &str) -> anyhow::Result<Binary> {
        let artifacts = workspace().join("target/cold-start").join(name);
        if ARCH == "aarch64" {
            let mut command = Command::new("make");
            command
                .args(["--file", "deploy/template/Makefile"])
                .arg(format!("build-{id}"))
                .env("ARTIFACTS_DIR", &artifacts);
            self.run(&mut command, workspace(), name).await?;
        } else {
            let mut command = Command::new("cargo");
            command.args(["lambda", "build", "--release", "--bin", name, "--flatten", name]);
            command.arg("--lambda-dir").arg(&artifacts);
            self.run(&mut command, &workspace().join("functions").join(name), name).await?;
        }
        Binary::at(&artifacts, name)
    }

    /// Builds with the same command for the GNU C library.
    async fn build(
        &self,
        directory: &Path,
        package: &str,
        library: &str,
        name: &'static str,
    ) -> anyhow::Result<Binary> {
        let artifacts = workspace().join("target/cold-start").join(name);
        let mut command = Command::new("cargo");
        command.args(["lambda", "build", "--release", "--locked", "--package", package, "--bin", package]);
        command.args(["--target", &format!("{ARCH}-unknown-linux-{library}"), "--flatten", package]);
        self.run(command.arg("--lambda-dir").arg(&artifacts), directory, name).await?;
        Binary::at(&artifacts, name)
    }

    async fn run(&self, command: &mut Command, directory: &Path, name: &str) -> anyhow::Result<()> {
        command.env("PATH", &self.path).env("CARGO_TARGET_DIR", workspace().join("target"));
        // Standard output is for the figures.
        command.current_dir(directory).stdin(Stdio::null()).stdout(std::io::stderr()).kill_on_drop(true);
        let program = command.as_std().get_program().to_owned();
        let status = command.status().await.with_context(|| format!("{} cannot be started", program.display()))?;
        if !status.success() {
            bail!("{name} cannot be built: {status}");
        }
        Ok(())
    }
}

impl Binary {
    fn at(artifacts: &Path, name: &'static str) -> anyhow::Result<Self> {
        let built = artifacts.join("bootstrap");
        let bytes = built.metadata().with_context(|| format!("{} is not there", built.display()))?.len();
        let binary = Self { name, built, path: artifacts.join("measured"), bytes };
        binary.copy_anew()?;
        Ok(binary)
    }

    /// Makes a new copy to start.
    ///
    /// The system loads a file that was just written in larger pieces than one that it has read again, and where in memory
    /// the file is makes a start some percent faster or slower. So a function is measured from many copies.
    pub(crate) fn copy_anew(&self) -> anyhow::Result<()> {
        // The old copy keeps its place in memory until the new one has another.
        let next = self.path.with_extension("next");
        let copied = || {
            std::fs::copy(&self.built, &next)?;
            std::fs::File::open(&next)?.sync_all()?;
            std::fs::rename(&next, &self.path)
        };
        copied().with_context(|| format!("cannot copy {}", self.built.display()))
    }
}
