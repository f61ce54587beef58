//! `template.yaml` as CloudFormation would expand it: the functions' environments and roles, and the
//! tables.

use crate::authorize::Role;
use crate::lambda::workspace;
use crate::tools;
use anyhow::{Context, bail, ensure};
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::process::Command;

/// The expanded template.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Expansion {
    /// By the name of the binary.
    pub functions: BTreeMap<String, ExpandedFunction>,
    /// Each as `CreateTable` takes it.
    pub tables: Vec<Value>,
    /// What invokes a function for its messages.
    #[serde(default)]
    pub queues: Vec<ExpandedQueue>,
}

/// What the template says of a queue and of the event source mapping that delivers it.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ExpandedQueue {
    /// The queue's.
    pub arn: String,
    /// The binary of the function that gets its messages.
    pub function: String,
    /// For how long nobody else gets a message that was delivered.
    pub visibility_timeout_seconds: f64,
    /// How often a message is delivered before it goes to the dead-letter queue.
    pub max_receive_count: u32,
    /// How many messages one invocation gets at most.
    pub batch_size: usize,
    /// Whether the function says which messages of a batch failed.
    pub reports_batch_item_failures: bool,
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
    /// installed: that is `deploy/template/tools`' work, because it takes a network.
    ///
    /// # Errors
    /// When the template cannot be expanded; with `LAMBDA_LOCK_CI` also when the tools are missing.
    pub fn expand() -> anyhow::Result<Option<Self>> {
        Self::expand_with(&[])
    }

    /// The same with these values of parameters, such as `LockKeyPrefix=orders/`.
    ///
    /// # Errors
    /// As [`expand`](Self::expand), and when there is no such parameter.
    pub fn expand_with(parameters: &[&str]) -> anyhow::Result<Option<Self>> {
        let Some(python) = tools::python("template-tools", "deploy/template/tools")? else { return Ok(None) };
        let output = Command::new(python)
            .current_dir(workspace())
            // No compiled files beside the sources.
            .args(["-B", "deploy/template/expansion.py", "template.yaml"])
            .args(parameters)
            .output()
            .context("deploy/template/expansion.py could not be run")?;
        if !output.status.success() {
            bail!("deploy/template/expansion.py failed: {}", String::from_utf8_lossy(&output.stderr));
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

    /// What it says of the queue whose messages go to the function with this binary.
    ///
    /// # Errors
    /// When there is none.
    pub fn queue_of(&self, binary: &str) -> anyhow::Result<&ExpandedQueue> {
        let queue = self.queues.iter().find(|queue| queue.function == binary);
        queue.with_context(|| format!("the template has no queue for {binary}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_known_is_not_overlooked() {
        let json = r#"{"functions":{"a":{"timeoutSeconds":1,"memoryMb":1,"environment":{},
            "allows":[{"action":"dynamodb:GetItem","resource":"arn"}]}},"tables":[]}"#;
        assert_eq!(Expansion::read(json.as_bytes()).unwrap().function("a").unwrap().allows.len(), 1);
        let condition = r#""resource":"arn","condition":{"Bool":{"aws:SecureTransport":"true"}}"#;
        assert!(Expansion::read(json.replace(r#""resource":"arn""#, condition).as_bytes()).is_err());
        assert!(Expansion::read(br#"{"functions":{},"tables":[]}"#).is_err());
    }
}
