//! A process that uses the line protocol.

use anyhow::{Context, ensure};
use serde_json::Value;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::time::timeout;

/// How long to wait for a response. A client may wait without end: Go's does so for a row that it takes for released,
/// but whose `isReleased` is not the value that it expects. All correct requests need less than half of this time.
const PATIENCE: Duration = Duration::from_secs(300);

/// A process that reads one request per line and writes one response per line.
///
/// It is killed when this value is dropped.
#[derive(Debug)]
pub struct Driver {
    process: Child,
    requests: ChildStdin,
    answers: Lines<BufReader<ChildStdout>>,
}

impl Driver {
    /// Starts a driver.
    ///
    /// # Errors
    /// Returns an error if the program cannot be run.
    pub fn start(program: &Path, arguments: &[&str]) -> anyhow::Result<Self> {
        let mut process = Command::new(program)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("{} could not be started", program.display()))?;
        let requests = process.stdin.take().context("the driver has no stdin")?;
        let answers = process.stdout.take().context("the driver has no stdout")?;
        Ok(Self { process, requests, answers: BufReader::new(answers).lines() })
    }

    /// Sends a request and waits for the response.
    ///
    /// # Errors
    /// Returns an error if the process ends, does not respond within five minutes, or returns no JSON object.
    pub async fn ask(&mut self, request: &Value) -> anyhow::Result<Value> {
        let line = format!("{request}\n");
        self.requests.write_all(line.as_bytes()).await.context("the driver does not read its input")?;
        let answered = timeout(PATIENCE, self.answers.next_line()).await;
        let line = answered.with_context(|| format!("no response within {PATIENCE:?} to {request}"))??;
        let line = line.with_context(|| format!("the driver ended during {request}"))?;
        let answer: Value = serde_json::from_str(&line).with_context(|| format!("the driver returned {line:?}"))?;
        ensure!(answer.is_object(), "the driver returned {line:?}");
        Ok(answer)
    }

    /// Returns the process id. `None` when the process has ended.
    pub fn id(&self) -> Option<u32> {
        self.process.id()
    }

    /// Kills the process, as when its machine fails, and waits until it has ended.
    ///
    /// # Errors
    /// Returns an error if the operating system does not permit it.
    pub async fn kill(mut self) -> anyhow::Result<()> {
        self.process.kill().await.context("the driver could not be killed")
    }
}
