//! A host of a component: a process that gets one line of JSON for each call.

use crate::subject::{Ask, BoxFuture, Failure, Subject, World};
use anyhow::{Context, bail};
use serde::Deserialize;
use serde_json::Value;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::sync::Mutex;
use tokio::time::timeout;

/// Longer than any call of the scenarios takes.
const PATIENCE: Duration = Duration::from_secs(60);

/// A running host. Dropping it kills the process.
#[derive(Debug)]
pub struct Host {
    world: World,
    id: Option<u32>,
    process: Mutex<Process>,
}

#[derive(Debug)]
struct Process {
    /// Dropped last, which kills the process.
    _child: Child,
    questions: ChildStdin,
    answers: Lines<BufReader<ChildStdout>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
enum Line {
    Ok(Value),
    Error(Failure),
}

impl Host {
    /// Starts a host: a program and its arguments, separated by spaces.
    ///
    /// # Errors
    /// If it cannot be started.
    pub fn start(world: World, command: &str) -> anyhow::Result<Self> {
        let mut words = command.split_whitespace();
        let program = words.next().context("a host needs a command")?;
        Self::run(world, Path::new(program), words)
    }

    /// Starts this program as a host of the crate itself, so that it is measured in the same way as the others.
    ///
    /// # Errors
    /// If it cannot be started.
    pub fn native() -> anyhow::Result<Self> {
        Self::run(World::Client, &std::env::current_exe()?, ["serve"])
    }

    fn run<'a>(world: World, program: &Path, arguments: impl IntoIterator<Item = &'a str>) -> anyhow::Result<Self> {
        let mut child = Command::new(program)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("the host {program:?} could not be started"))?;
        let questions = child.stdin.take().context("the host has no input")?;
        let answers = BufReader::new(child.stdout.take().context("the host has no output")?).lines();
        let id = child.id();
        Ok(Self { world, id, process: Mutex::new(Process { _child: child, questions, answers }) })
    }
}

impl Host {
    /// The CPU time of the process with all its threads. `None` without `/proc`.
    pub fn cpu(&self) -> Option<Duration> {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.id?)).ok()?;
        // The second field is the program's name in parentheses. It may contain any character.
        let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
        let (user, system) = (fields.nth(11)?.parse::<u64>().ok()?, fields.next()?.parse::<u64>().ok()?);
        // In ticks. Linux reports a hundred per second (proc_pid_stat(5), USER_HZ).
        Some(Duration::from_millis((user + system) * 10))
    }
}

impl Process {
    async fn ask(&mut self, ask: &Ask) -> anyhow::Result<Result<Value, Failure>> {
        let mut line = serde_json::to_vec(ask)?;
        line.push(b'\n');
        self.questions.write_all(&line).await.context("the host no longer reads its input")?;
        self.questions.flush().await?;
        let Some(line) = self.answers.next_line().await? else { bail!("the host ended without an answer to {ask:?}") };
        match serde_json::from_str(&line).with_context(|| format!("unexpected line from the host: {line}"))? {
            Line::Ok(told) => Ok(Ok(told)),
            Line::Error(failure) => Ok(Err(failure)),
        }
    }
}

impl Subject for Host {
    fn ask(&self, ask: Ask) -> BoxFuture<'_, anyhow::Result<Result<Value, Failure>>> {
        Box::pin(async move {
            let mut process = self.process.lock().await;
            timeout(PATIENCE, process.ask(&ask)).await.with_context(|| format!("no answer to {ask:?}"))?
        })
    }

    fn world(&self) -> World {
        self.world
    }
}
