//! `template.yaml` as CloudFormation would expand it: the functions' environments and roles, and the
//! tables.

use crate::authorize::Role;
use crate::lambda::workspace;
use anyhow::{Context, bail, ensure};
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::env;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The expanded template.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Expansion {
    /// By the name of the binary.
    pub functions: BTreeMap<String, ExpandedFunction>,
    /// Each as `CreateTable` takes it.
    pub tables: Vec<Value>,
}

/// What the template says of one function.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ExpandedFunction {
    /// For how long an invocation may last.
    pub timeout_seconds: u64,
    /// How much memory it gets.
    pub memory_mb: u32,
    /// Its environment variables, without those that Lambda sets.
    pub environment: BTreeMap<String, String>,
    /// What its role allows, apart from writing its own logs.
    pub allows: Role,
}

impl Expansion {
    /// Expands the workspace's template. `None`, and a line on stderr, where the tools for it are not
    /// installed: that is `template/tools`' work, because it takes a network.
    ///
    /// # Errors
    /// When the template cannot be expanded; with `LAMBDA_LOCK_CI` also when the tools are missing.
    pub fn expand() -> anyhow::Result<Option<Self>> {
        let workspace = workspace();
        let python = target(workspace).join("template-tools/bin/python");
        if !python.exists() {
            ensure!(env::var_os("LAMBDA_LOCK_CI").is_none(), "template/tools has to run before the tests");
            // Not `eprintln!`, which the test harness would hold back.
            writeln!(io::stderr(), "SKIPPED: what needs the expanded template, because template/tools has not run")?;
            return Ok(None);
        }
        let output = Command::new(python)
            .current_dir(workspace)
            // No compiled files beside the sources.
            .args(["-B", "template/expansion.py", "template.yaml"])
            .output()
            .context("template/expansion.py could not be run")?;
        if !output.status.success() {
            bail!("template/expansion.py failed: {}", String::from_utf8_lossy(&output.stderr));
        }
        Self::read(&output.stdout).map(Some)
    }

    fn read(json: &[u8]) -> anyhow::Result<Self> {
        let template: Self = serde_json::from_slice(json).context("the expanded template cannot be read")?;
        ensure!(!template.functions.is_empty(), "the template has no functions");
        Ok(template)
    }

    /// What it says of the function with this binary.
    ///
    /// # Errors
    /// When it has none.
    pub fn function(&self, binary: &str) -> anyhow::Result<&ExpandedFunction> {
        self.functions.get(binary).with_context(|| format!("the template has no function {binary}"))
    }
}

pub(crate) fn target(workspace: &Path) -> PathBuf {
    env::var_os("CARGO_TARGET_DIR").map_or_else(|| workspace.join("target"), |given| workspace.join(given))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_known_is_not_overlooked() {
        let json = r#"{"functions":{"a":{"timeoutSeconds":1,"memoryMb":1,"environment":{},
            "allows":[{"action":"dynamodb:GetItem","resource":"arn"}]}},"tables":[]}"#;
        assert_eq!(Expansion::read(json.as_bytes()).unwrap().function("a").unwrap().allows.len(), 1);
        let condition = json.replace(r#""resource":"arn""#, r#""resource":"arn","condition":{}"#);
        assert!(Expansion::read(condition.as_bytes()).is_err());
        assert!(Expansion::read(br#"{"functions":{},"tables":[]}"#).is_err());
    }
}
