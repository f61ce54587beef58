//! A process that speaks the line protocol.

use anyhow::{Context, ensure};
use serde_json::Value;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::time::timeout;

/// A client may wait without end: Go's does, for a row that it believes to be released and whose `isReleased` is not
/// what it expects. Nothing that a driver is asked for takes half of this.
const PATIENCE: Duration = Duration::from_secs(300);

/// A process that reads one request per line and writes one answer per line.
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
    /// When the program cannot be run.
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

    /// Asks, and waits for the answer.
    ///
    /// # Errors
    /// When the process ends, does not answer within five minutes, or answers with something else than a JSON object.
    pub async fn ask(&mut self, request: &Value) -> anyhow::Result<Value> {
        let line = format!("{request}\n");
        self.requests.write_all(line.as_bytes()).await.context("the driver reads no more")?;
        let answered = timeout(PATIENCE, self.answers.next_line()).await;
        let line = answered.with_context(|| format!("no answer within {PATIENCE:?} to {request}"))??;
        let line = line.with_context(|| format!("the driver ended during {request}"))?;
        let answer: Value = serde_json::from_str(&line).with_context(|| format!("the driver answered {line:?}"))?;
        ensure!(answer.is_object(), "the driver answered {line:?}");
        Ok(answer)
    }

    /// Its process id; `None` once it has ended.
    pub fn id(&self) -> Option<u32> {
        self.process.id()
    }

    /// Kills it, as a machine that fails would, and waits until it is gone.
    ///
    /// # Errors
    /// When the operating system does not let it.
    pub async fn kill(mut self) -> anyhow::Result<()> {
        self.process.kill().await.context("the driver could not be killed")
    }
}
