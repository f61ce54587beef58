//! The worker processes: starts them, sends them orders and signals, and receives their events.

use super::Options;
use super::message::{Event, Order};
use anyhow::{Context, anyhow, bail};
use rustix::process::{Pid, Signal, kill_process};
use std::fmt;
use std::process::Stdio;
use std::time::{Duration, Instant};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::sync::mpsc;

/// If no worker reports anything for this long, something is broken.
const SILENCE: Duration = Duration::from_secs(120);

/// One of the workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct WorkerId(usize);

impl fmt::Display for WorkerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("worker-{}", self.0 + 1))
    }
}

/// An event of a worker.
#[derive(Debug)]
pub(crate) struct Heard {
    pub(crate) from: WorkerId,
    pub(crate) at: Instant,
    pub(crate) event: Event,
}

/// All workers. Dropping them ends them.
#[derive(Debug)]
pub(crate) struct Crew {
    workers: Vec<Worker>,
    said: mpsc::UnboundedReceiver<Said>,
}

#[derive(Debug)]
struct Worker {
    process: Child,
    orders: ChildStdin,
    killed: bool,
}

/// What was read from a worker's stdout.
#[derive(Debug)]
enum Said {
    Event(Heard),
    Nonsense(WorkerId, anyhow::Error),
    /// The output has ended.
    TheEnd(WorkerId),
}

impl Crew {
    /// Starts one process of this program for each worker.
    pub(crate) fn start(endpoint: &str, options: &Options) -> anyhow::Result<Self> {
        let (hear, said) = mpsc::unbounded_channel();
        let ids = (0..usize::try_from(options.workers)?).map(WorkerId);
        let workers = ids.map(|id| Worker::start(id, endpoint, options.unfenced, hear.clone()));
        Ok(Self { workers: workers.collect::<anyhow::Result<_>>()?, said })
    }

    pub(crate) fn ids(&self) -> impl Iterator<Item = WorkerId> + use<> {
        (0..self.workers.len()).map(WorkerId)
    }

    pub(crate) async fn tell(&mut self, id: WorkerId, order: Order) -> anyhow::Result<()> {
        let line = format!("{}\n", serde_json::to_string(&order)?);
        let told = self.worker(id)?.orders.write_all(line.as_bytes()).await;
        told.with_context(|| format!("{id} does not accept orders"))
    }

    /// Returns the next event of any worker.
    pub(crate) async fn hear(&mut self) -> anyhow::Result<Heard> {
        loop {
            let said = tokio::time::timeout(SILENCE, self.said.recv())
                .await
                .with_context(|| format!("no worker reported anything for {SILENCE:?}"))?;
            match said.context("all workers are gone")? {
                Said::Event(Heard { from, event: Event::Failed { why }, .. }) => bail!("{from} cannot go on: {why}"),
                Said::Event(heard) => return Ok(heard),
                Said::Nonsense(from, error) => {
                    return Err(error.context(format!("{from} wrote a line that is not an event")));
                }
                Said::TheEnd(from) if self.worker(from)?.killed => {}
                Said::TheEnd(from) => bail!("{from} has ended, although it was not killed"),
            }
        }
    }

    /// Kills a worker at once. It reports nothing afterwards.
    pub(crate) async fn kill(&mut self, id: WorkerId) -> anyhow::Result<()> {
        self.send(id, Signal::KILL)?;
        let worker = self.worker(id)?;
        worker.killed = true;
        worker.process.wait().await?;
        Ok(())
    }

    /// Stops a worker at once. It executes nothing until it is continued.
    pub(crate) fn stop(&mut self, id: WorkerId) -> anyhow::Result<()> {
        self.send(id, Signal::STOP)
    }

    pub(crate) fn wake(&mut self, id: WorkerId) -> anyhow::Result<()> {
        self.send(id, Signal::CONT)
    }

    fn send(&mut self, id: WorkerId, signal: Signal) -> anyhow::Result<()> {
        let pid = self.worker(id)?.process.id().and_then(|pid| Pid::from_raw(pid.cast_signed()));
        let pid = pid.with_context(|| format!("{id} has ended"))?;
        kill_process(pid, signal).with_context(|| format!("{signal:?} could not be sent to {id}"))
    }

    fn worker(&mut self, id: WorkerId) -> anyhow::Result<&mut Worker> {
        self.workers.get_mut(id.0).with_context(|| format!("there is no {id}"))
    }
}

impl Worker {
    fn start(id: WorkerId, endpoint: &str, unfenced: bool, hear: mpsc::UnboundedSender<Said>) -> anyhow::Result<Self> {
        let mut process = Command::new(std::env::current_exe()?)
            .args(["worker", "--endpoint", endpoint, "--name", &id.to_string()])
            .args(unfenced.then_some("--unfenced"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("{id} could not be started"))?;
        let orders = process.stdin.take().context("no stdin")?;
        let events = process.stdout.take().context("no stdout")?;
        tokio::spawn(listen(id, BufReader::new(events).lines(), hear));
        Ok(Self { process, orders, killed: false })
    }
}

/// Passes on the events of a worker, each with the time when it was read.
async fn listen(from: WorkerId, mut lines: Lines<BufReader<ChildStdout>>, hear: mpsc::UnboundedSender<Said>) {
    while let Ok(Some(line)) = lines.next_line().await {
        let said = match serde_json::from_str(&line) {
            Ok(event) => Said::Event(Heard { from, at: Instant::now(), event }),
            Err(error) => Said::Nonsense(from, anyhow!(error).context(line)),
        };
        // The receiver is gone only when the demo has ended.
        let _ = hear.send(said);
    }
    let _ = hear.send(Said::TheEnd(from));
}
