//! `template.yaml` as CloudFormation would expand it: the functions' environments and roles, the
//! tables and the queues.

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
    /// The functions, by the names of their binaries.
    pub functions: BTreeMap<String, ExpandedFunction>,
    /// What the roles of the state machines permit on DynamoDB, by the logical names of the state machines.
    #[serde(default)]
    pub state_machines: BTreeMap<String, Role>,
    /// The tables, each as a request of `CreateTable`.
    pub tables: Vec<Value>,
    /// The queues whose messages invoke a function.
    #[serde(default)]
    pub queues: Vec<ExpandedQueue>,
}

/// A queue in the template, and the event source mapping that delivers its messages.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ExpandedQueue {
    /// The ARN of the queue.
    pub arn: String,
    /// The binary of the function that gets its messages.
    pub function: String,
    /// For how long a delivered message is not delivered again.
    pub visibility_timeout_seconds: f64,
    /// How often a message is delivered before it goes to the dead-letter queue.
    pub max_receive_count: u32,
    /// The most messages of one invocation.
    pub batch_size: usize,
    /// Whether the function reports which messages of a batch failed.
    pub reports_batch_item_failures: bool,
}

/// A function in the template.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ExpandedFunction {
    /// How long an invocation may take.
    pub timeout_seconds: u64,
    /// The memory of the function.
    pub memory_mb: u32,
    /// Its environment variables, without those that Lambda sets.
    pub environment: BTreeMap<String, String>,
    /// What its role permits, except writing its own logs.
    pub allows: Role,
}

impl Expansion {
    /// Expands the workspace's template. If the tools are missing, prints a line on stderr and
    /// returns `None`. `deploy/template/tools` installs them, which needs a network.
    ///
    /// # Errors
    /// Returns an error if the template cannot be expanded. With `LAMBDA_LOCK_CI` also if the tools
    /// are missing.
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
            // Writes no compiled files next to the sources.
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

    /// Returns the function with this binary.
    ///
    /// # Errors
    /// Returns an error if there is none.
    pub fn function(&self, binary: &str) -> anyhow::Result<&ExpandedFunction> {
        self.functions.get(binary).with_context(|| format!("the template has no function {binary}"))
    }

    /// Returns the queue whose messages go to the function with this binary.
    ///
    /// # Errors
    /// Returns an error if there is none.
    pub fn queue_of(&self, binary: &str) -> anyhow::Result<&ExpandedQueue> {
        let queue = self.queues.iter().find(|queue| queue.function == binary);
        queue.with_context(|| format!("the template has no queue for {binary}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_field_is_an_error() {
        let json = r#"{"functions":{"a":{"timeoutSeconds":1,"memoryMb":1,"environment":{},
            "allows":[{"action":"dynamodb:GetItem","resource":"arn"}]}},"tables":[]}"#;
        assert_eq!(Expansion::read(json.as_bytes()).unwrap().function("a").unwrap().allows.len(), 1);
        let condition = r#""resource":"arn","condition":{"Bool":{"aws:SecureTransport":"true"}}"#;
        assert!(Expansion::read(json.replace(r#""resource":"arn""#, condition).as_bytes()).is_err());
        assert!(Expansion::read(br#"{"functions":{},"tables":[]}"#).is_err());
    }
}
