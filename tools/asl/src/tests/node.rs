//! jsonata in a process of Node, with the clock and the random numbers of the test.

use serde_json::{Value, json};
use std::env;
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// Evaluates JSONata as Step Functions does.
pub(super) struct Node {
    process: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Node {
    /// Starts it. Without the tools prints a line on stderr and returns `None`, but fails in CI.
    pub(super) fn start() -> Option<Self> {
        let asl = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
        let workspace = asl.ancestors().nth(2).unwrap();
        let target = env::var_os("CARGO_TARGET_DIR").map_or(workspace.join("target"), |given| workspace.join(given));
        let tools = target.join("state-machine-tools/npm");
        if !tools.join("node_modules/jsonata").exists() {
            assert!(env::var_os("LAMBDA_LOCK_CI").is_none(), "run deploy/statemachines/tools before the tests");
            // Not `eprintln!`, because the test harness would hold it back.
            let skipped = "SKIPPED: tests that need jsonata, because deploy/statemachines/tools has not run";
            writeln!(std::io::stderr(), "{skipped}").unwrap();
            return None;
        }
        let mut process = Command::new("node")
            .arg(asl.join("src/tests/render.mjs"))
            .arg(tools)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (input, output) = (process.stdin.take().unwrap(), process.stdout.take().unwrap());
        Some(Self { process, input, output: BufReader::new(output) })
    }

    /// Renders what stands in a state. Returns the message of an expression that fails, or has no value.
    pub(super) fn render(&mut self, template: &Value, scene: &Scene) -> Result<Value, String> {
        let Scene { bindings, millis, uuids } = scene;
        let line = json!({ "template": template, "bindings": bindings, "millis": millis, "uuids": uuids });
        writeln!(self.input, "{line}").unwrap();
        let mut answer = String::new();
        self.output.read_line(&mut answer).unwrap();
        let answer: Value = serde_json::from_str(&answer).unwrap();
        answer.get("value").cloned().ok_or_else(|| answer["error"].to_string())
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// What an expression sees.
#[derive(Clone, Debug, Default)]
pub(super) struct Scene {
    /// The variables, `states` among them.
    pub(super) bindings: Value,
    pub(super) millis: u64,
    pub(super) uuids: Vec<String>,
}
