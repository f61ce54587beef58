//! The story in three acts. Each step waits for what a worker says, never for time to pass.

use super::crew::{Crew, Heard, WorkerId};
use super::ledger::Ledger;
use super::message::{Event, Order};
use super::screen::{Screen, Seconds};
use super::{LEASE, MAX_CLOCK_SKEW, Options};
use anyhow::{Context, bail};
use std::collections::BTreeSet;
use std::time::{Duration, Instant, SystemTime};

/// How the lock of a holder that could not release it came to another one.
#[derive(Debug)]
pub(crate) struct Takeover {
    pub(crate) from: Grant,
    pub(crate) to: Grant,
    /// From the signal until the next holder said that it holds the lock.
    pub(crate) after: Duration,
}

/// One worker's hold on the lock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Grant {
    pub(crate) worker: WorkerId,
    pub(crate) token: u64,
    /// By the wall clock that all processes here share.
    acquired_at: SystemTime,
    lease_ends_at: SystemTime,
    pub(crate) heard_at: Instant,
}

impl Takeover {
    /// How long after the end of the old lease the new grant was made; `None` if it was before.
    pub(crate) fn after_lease_end(&self) -> Option<Duration> {
        self.to.acquired_at.duration_since(self.from.lease_ends_at).ok()
    }
}

/// What became of the write of a holder that was stopped before it.
#[derive(Debug)]
pub(crate) struct LateWrite {
    pub(crate) worker: WorkerId,
    pub(crate) token: u64,
    /// The larger token that had been written before it.
    pub(crate) newer_token: u64,
    pub(crate) refused: bool,
    pub(crate) stopped_for: Duration,
}

/// The story so far.
#[derive(Debug)]
pub(crate) struct Story {
    crew: Crew,
    alive: BTreeSet<WorkerId>,
    busy: BTreeSet<WorkerId>,
    ledger: Ledger,
    screen: Screen,
}

impl Story {
    pub(crate) fn new(crew: Crew) -> Self {
        let alive = crew.ids().collect();
        Self { crew, alive, busy: BTreeSet::new(), ledger: Ledger::default(), screen: Screen::new() }
    }

    /// Waits until every worker takes orders.
    pub(crate) async fn opening(&mut self, options: &Options) -> anyhow::Result<()> {
        let (lease, skew) = (Seconds(LEASE), Seconds(MAX_CLOCK_SKEW));
        self.screen.title(format_args!(
            "{} processes, one lock, one counter: lease {lease}, max_clock_skew {skew}{}",
            options.workers,
            if options.unfenced { ", and no fence" } else { "" }
        ));
        for _ in 0..self.alive.len() {
            self.until("every worker is ready", |heard| matches!(heard.event, Event::Ready)).await?;
        }
        Ok(())
    }

    /// Everybody contends for the lock.
    pub(crate) async fn contention(&mut self, rounds: u64) -> anyhow::Result<()> {
        self.screen.title(format_args!("Everybody adds one, {rounds} times each"));
        for worker in self.alive.clone() {
            self.work(worker, Order::Work { rounds }).await?;
        }
        self.until_all_finished().await
    }

    /// A holder is killed in the middle of its work; the others go on after its lease.
    pub(crate) async fn a_holder_is_killed(&mut self) -> anyhow::Result<Takeover> {
        let victim = *self.alive.first().context("nobody is left")?;
        self.screen.title(format_args!("{victim} is killed while it holds the lock"));
        let from = self.about_to_write(victim).await?;

        self.crew.kill(victim).await?;
        let killed = Instant::now();
        self.screen.signal(victim, "SIGKILL");
        self.alive.remove(&victim);
        self.busy.remove(&victim);

        let takeover = self.others_take_over(from, killed).await?;
        self.until_all_finished().await?;
        Ok(takeover)
    }

    /// A holder is stopped right before its write, and woken up when a newer holder has written.
    pub(crate) async fn a_holder_is_stopped(&mut self) -> anyhow::Result<LateWrite> {
        let sleeper = *self.alive.first().context("nobody is left")?;
        self.screen.title(format_args!("{sleeper} is stopped while it holds the lock, and woken up late"));
        let from = self.about_to_write(sleeper).await?;

        self.crew.stop(sleeper)?;
        let stopped = Instant::now();
        self.screen.signal(sleeper, "SIGSTOP");
        // It reads this when it wakes up: the write is the next thing that it does.
        self.crew.tell(sleeper, Order::Write).await?;

        self.others_take_over(from, stopped).await?;
        let newer_token = self.a_newer_write(from.token).await?;
        self.screen.signal(sleeper, "SIGCONT");
        let stopped_for = stopped.elapsed();
        self.crew.wake(sleeper)?;

        let refused = self.late_write_is_refused(from).await?;
        self.until_all_finished().await?;
        Ok(LateWrite { worker: sleeper, token: from.token, newer_token, refused, stopped_for })
    }

    /// Ends the workers; what they said, all in all, stays, and the screen with it.
    pub(crate) fn end(self) -> (Ledger, Screen) {
        (self.ledger, self.screen)
    }

    async fn work(&mut self, worker: WorkerId, order: Order) -> anyhow::Result<()> {
        self.busy.insert(worker);
        self.crew.tell(worker, order).await
    }

    /// Lets one worker acquire the lock and work up to its write. Nobody else is busy.
    async fn about_to_write(&mut self, worker: WorkerId) -> anyhow::Result<Grant> {
        self.work(worker, Order::WorkAndPause).await?;
        let grant = self.until_granted().await?;
        self.until("a worker is about to write", |heard| matches!(heard.event, Event::AboutToWrite { .. })).await?;
        Ok(grant)
    }

    /// Lets all but the holder contend for its lock.
    async fn others_take_over(&mut self, from: Grant, since: Instant) -> anyhow::Result<Takeover> {
        for worker in self.alive.clone() {
            if worker != from.worker {
                self.work(worker, Order::Work { rounds: 1 }).await?;
            }
        }
        let to = self.until_granted().await?;
        let takeover = Takeover { from, to, after: to.heard_at.saturating_duration_since(since) };
        self.screen.takeover(&takeover);
        Ok(takeover)
    }

    async fn a_newer_write(&mut self, than: u64) -> anyhow::Result<u64> {
        let newer = |heard: &Heard| matches!(heard.event, Event::Applied { token, .. } if token > than);
        match self.until("a newer holder has written", newer).await?.event {
            Event::Applied { token, .. } => Ok(token),
            other => bail!("{other:?} is not a write"),
        }
    }

    async fn late_write_is_refused(&mut self, late: Grant) -> anyhow::Result<bool> {
        let of_it = |heard: &Heard| match heard.event {
            Event::Applied { token, .. } | Event::Refused { token, .. } => token == late.token,
            _ => false,
        };
        Ok(matches!(self.until("the late write is over", of_it).await?.event, Event::Refused { .. }))
    }

    async fn until_granted(&mut self) -> anyhow::Result<Grant> {
        let heard = self.until("the lock is granted", |heard| matches!(heard.event, Event::Acquired { .. })).await?;
        match heard.event {
            Event::Acquired { token, at, lease_ends_at } => {
                Ok(Grant { worker: heard.from, token, acquired_at: at, lease_ends_at, heard_at: heard.at })
            }
            other => bail!("{other:?} is not a grant"),
        }
    }

    async fn until_all_finished(&mut self) -> anyhow::Result<()> {
        while !self.busy.is_empty() {
            self.hear().await.with_context(|| format!("{:?} should finish", self.busy))?;
        }
        Ok(())
    }

    /// Goes on until a worker says what is waited for.
    async fn until(&mut self, what: &str, is_it: impl Fn(&Heard) -> bool) -> anyhow::Result<Heard> {
        loop {
            let heard = self.hear().await.with_context(|| format!("waiting until {what}"))?;
            if is_it(&heard) {
                return Ok(heard);
            }
        }
    }

    async fn hear(&mut self) -> anyhow::Result<Heard> {
        let heard = self.crew.hear().await?;
        self.ledger.note(&heard.event);
        self.screen.event(&heard);
        if matches!(heard.event, Event::Finished) {
            self.busy.remove(&heard.from);
        }
        Ok(heard)
    }
}
