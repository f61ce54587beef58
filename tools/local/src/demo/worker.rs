//! A worker process. It acquires the lock, adds one to the counter and releases the lock, as it is
//! ordered.

use super::clock;
use super::counter::{Counter, Fence, Fenced};
use super::message::{About, Event, Order};
use super::requests::Telling;
use super::{LEASE, LOCK_KEY, lock_client};
use anyhow::{Context, bail};
use clap::Args;
use lambda_lock::{Budget, Clock, ErrorKind, Lock, LockClient, ReleaseOutcome};
use lambda_lock_local::config;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokio::io::{AsyncBufReadExt, BufReader, Lines, Stdin, stdin};
use tokio::sync::mpsc;

/// How long one round may take. Nearly all of it may be spent on waiting for the lock.
const ROUND: Duration = Duration::from_secs(60);

/// How long the work takes besides its requests. It is long enough for other workers to interfere.
const WORK: Duration = Duration::from_millis(10);
/// The pause between two rounds. It is long enough for another worker to get the lock.
const REST: Duration = Duration::from_millis(40);

/// The options with which the demo starts a worker.
#[derive(Args, Debug)]
pub(crate) struct WorkerOptions {
    /// The endpoint of DynamoDB.
    #[arg(long)]
    pub(crate) endpoint: String,

    /// The owner of the lock.
    #[arg(long)]
    pub(crate) name: String,

    /// Write without the condition on the fencing token.
    #[arg(long)]
    pub(crate) unfenced: bool,

    /// How many seconds the wall clock of the lock client is behind, also when it signs requests.
    #[arg(long, default_value_t = 0)]
    pub(crate) clock_behind: u64,
}

/// Works until stdin closes.
pub(crate) async fn work(options: WorkerOptions) -> anyhow::Result<ExitCode> {
    end_with_the_parent()?;
    let mut worker = Worker::new(options)?;
    Event::Ready.say()?;
    if let Err(error) = worker.obey().await {
        Event::Failed { why: format!("{error:#}") }.say()?;
    }
    Ok(ExitCode::SUCCESS)
}

struct Worker {
    locks: LockClient,
    clock: Arc<dyn Clock>,
    counter: Counter,
    orders: mpsc::UnboundedReceiver<String>,
}

impl Worker {
    fn new(options: WorkerOptions) -> anyhow::Result<Self> {
        let behind = Duration::from_secs(options.clock_behind);
        let client = |about| {
            let config = config(&options.endpoint).interceptor(Telling(about));
            let config = if about == About::Lock { config.time_source(clock::wall(behind)) } else { config };
            aws_sdk_dynamodb::Client::from_conf(config.build())
        };
        let fence = if options.unfenced { Fence::Down } else { Fence::Up };
        let clock = clock::behind(behind);
        let locks = lock_client(client(About::Lock)).owner(&options.name).clock(clock.clone()).build()?;
        let counter = Counter::new(client(About::Counter), fence);
        let (hear, orders) = mpsc::unbounded_channel();
        tokio::spawn(listen(BufReader::new(stdin()).lines(), hear));
        Ok(Self { locks, clock, counter, orders })
    }

    async fn obey(&mut self) -> anyhow::Result<()> {
        loop {
            match self.order().await? {
                Order::Work { rounds } => {
                    for _ in 0..rounds {
                        self.add_one(false).await?;
                        tokio::time::sleep(REST).await;
                    }
                }
                Order::WorkAndPause => self.add_one(true).await?,
                Order::Write => bail!("there is nothing to write"),
            }
            Event::Finished.say()?;
        }
    }

    /// Adds one, and retries until the write is applied. A refused read or write means that the lock was
    /// lost. Then the work starts again under a new grant.
    async fn add_one(&mut self, mut pause: bool) -> anyhow::Result<()> {
        loop {
            Event::Waits { at: SystemTime::now() }.say()?;
            let budget = Budget::lasting_on(self.clock.clone(), ROUND).reserve(LEASE);
            let lock = match self.locks.acquire(LOCK_KEY).lease(LEASE).within(&budget).await {
                Ok(lock) => lock,
                // A retry is safe whatever the outcome of this call was.
                Err(error) if matches!(error.kind(), ErrorKind::Unknown | ErrorKind::Unavailable) => continue,
                Err(error) => return Err(error.into()),
            };
            let token = lock.fencing_token();
            Event::Acquired {
                token,
                at: SystemTime::now(),
                lease_ends_at: lock.lease_ends_at().context("the lease has no end")?,
            }
            .say()?;
            let written = self.read_and_write(&lock, pause).await?;
            let at = SystemTime::now();
            match lock.release().await {
                Ok(outcome) => {
                    Event::Released { token, at, already_gone: outcome == ReleaseOutcome::AlreadyGone }.say()?;
                }
                // The lock is free when its lease ends.
                Err(error) => Event::NotReleased { token, why: error.to_string() }.say()?,
            }
            if written == Fenced::Passed(()) {
                return Ok(());
            }
            pause = false;
        }
    }

    async fn read_and_write(&mut self, lock: &Lock, pause: bool) -> anyhow::Result<Fenced<()>> {
        let token = lock.fencing_token();
        let from = match self.counter.read(token).await? {
            Fenced::Passed(from) => from,
            Fenced::Refused { last_token } => return refused(lock, last_token),
        };
        tokio::time::sleep(WORK).await;
        if pause {
            Event::AboutToWrite { token, lease_left: lock.remaining() }.say()?;
            if self.order().await? != Order::Write {
                bail!("the worker must write first");
            }
            // A worker that is stopped here has made its last check. Only the fence can refuse its
            // write.
        }
        let to = from + 1;
        match self.counter.write(to, token).await? {
            Fenced::Passed(()) => Event::Applied { token, from, to }.say()?,
            Fenced::Refused { last_token } => return refused(lock, last_token),
        }
        Ok(Fenced::Passed(()))
    }

    async fn order(&mut self) -> anyhow::Result<Order> {
        let line = self.orders.recv().await.context("stdin is closed")?;
        serde_json::from_str(&line).with_context(|| format!("not an order: {line}"))
    }
}

fn refused(lock: &Lock, last_token: u64) -> anyhow::Result<Fenced<()>> {
    Event::Refused { token: lock.fencing_token(), last_token, lease_left: lock.remaining() }.say()?;
    Ok(Fenced::Refused { last_token })
}

/// Passes orders on. Ends the process at once when there can be no more orders.
async fn listen(mut orders: Lines<BufReader<Stdin>>, hear: mpsc::UnboundedSender<String>) {
    while let Ok(Some(order)) = orders.next_line().await {
        if hear.send(order).is_err() {
            break;
        }
    }
    std::process::exit(0);
}

/// Asks the system to end this process when its parent ends, because a stopped process cannot see
/// that its stdin was closed.
fn end_with_the_parent() -> anyhow::Result<()> {
    #[cfg(target_os = "linux")]
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))?;
    Ok(())
}
