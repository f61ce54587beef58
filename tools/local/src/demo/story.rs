//! The part of the demo with worker processes. Each step waits for events of workers and never for
//! a fixed time.

use super::crew::{Crew, Heard, WorkerId};
use super::ledger::Ledger;
use super::message::{Event, Order};
use super::screen::{Screen, Seconds};
use super::timeline::Timeline;
use super::{LEASE, MAX_CLOCK_SKEW, Options};
use anyhow::{Context, bail};
use std::collections::BTreeSet;
use std::time::{Duration, Instant, SystemTime};

/// How another holder got the lock of one that could not release it.
#[derive(Debug)]
pub(crate) struct Takeover {
    pub(crate) from: Grant,
    pub(crate) to: Grant,
    /// The time from the signal until the next holder reported that it holds the lock.
    pub(crate) after: Duration,
}

/// One grant of the lock to a worker.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Grant {
    pub(crate) worker: WorkerId,
    pub(crate) token: u64,
    /// By the wall clock, which all processes here share.
    acquired_at: SystemTime,
    lease_ends_at: SystemTime,
    pub(crate) heard_at: Instant,
}

impl Takeover {
    /// Returns how long after the end of the old lease the new grant was made. `None` if it was
    /// made before that end.
    pub(crate) fn after_lease_end(&self) -> Option<Duration> {
        self.to.acquired_at.duration_since(self.from.lease_ends_at).ok()
    }
}

/// The late write of a holder that was stopped before it.
#[derive(Debug)]
pub(crate) struct LateWrite {
    pub(crate) worker: WorkerId,
    pub(crate) token: u64,
    /// The larger token that a newer holder has written before.
    pub(crate) newer_token: u64,
    pub(crate) refused: bool,
    pub(crate) stopped_for: Duration,
}

/// The workers and what they have reported.
#[derive(Debug)]
pub(crate) struct Story {
    crew: Crew,
    alive: BTreeSet<WorkerId>,
    busy: BTreeSet<WorkerId>,
    ledger: Ledger,
    timeline: Timeline,
    screen: Screen,
}

impl Story {
    pub(crate) fn new(crew: Crew) -> Self {
        let alive = crew.ids().collect();
        Self {
            crew,
            alive,
            busy: BTreeSet::new(),
            ledger: Ledger::default(),
            timeline: Timeline::default(),
            screen: Screen::new(),
        }
    }

    /// Waits until every worker accepts orders.
    pub(crate) async fn opening(&mut self, options: &Options) -> anyhow::Result<()> {
        let (lease, skew) = (Seconds(LEASE), Seconds(MAX_CLOCK_SKEW));
        self.screen.title(format_args!(
            "{} processes share one lock and one counter: lease {lease}, max_clock_skew {skew}{}",
            options.workers,
            if options.unfenced { ", without fencing" } else { "" }
        ));
        for _ in 0..self.alive.len() {
            self.until("every worker is ready", |heard| matches!(heard.event, Event::Ready)).await?;
        }
        Ok(())
    }

    /// All workers contend for the lock.
    pub(crate) async fn contention(&mut self, rounds: u64) -> anyhow::Result<()> {
        self.screen.title(format_args!("Each process adds one {rounds} times"));
        for worker in self.alive.clone() {
            self.work(worker, Order::Work { rounds }).await?;
        }
        self.until_all_finished().await
    }

    /// A holder is killed during its work. The others continue when its lease has ended.
    pub(crate) async fn a_holder_is_killed(&mut self) -> anyhow::Result<Takeover> {
        let victim = *self.alive.first().context("no worker is left")?;
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

    /// A holder is stopped right before its write, and continued after a newer holder has written.
    pub(crate) async fn a_holder_is_stopped(&mut self) -> anyhow::Result<LateWrite> {
        let sleeper = *self.alive.first().context("no worker is left")?;
        self.screen.title(format_args!("{sleeper} is stopped while it holds the lock, and continued too late"));
        let from = self.about_to_write(sleeper).await?;

        self.crew.stop(sleeper)?;
        let stopped = Instant::now();
        self.screen.signal(sleeper, "SIGSTOP");
        // The worker reads this order when it is continued. The write is then its next step.
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

    /// Ends the workers. Returns what they reported, and the screen.
    pub(crate) fn end(self) -> (Ledger, Timeline, Screen) {
        (self.ledger, self.timeline, self.screen)
    }

    async fn work(&mut self, worker: WorkerId, order: Order) -> anyhow::Result<()> {
        self.busy.insert(worker);
        self.crew.tell(worker, order).await
    }

    /// Lets one worker acquire the lock and work up to its write. The other workers are idle.
    async fn about_to_write(&mut self, worker: WorkerId) -> anyhow::Result<Grant> {
        self.work(worker, Order::WorkAndPause).await?;
        let grant = self.until_granted().await?;
        self.until("a worker is about to write", |heard| matches!(heard.event, Event::AboutToWrite { .. })).await?;
        Ok(grant)
    }

    /// Lets all workers except the holder contend for its lock.
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

    /// Receives events until one matches.
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
        self.timeline.note(heard.from, &heard.event)?;
        self.screen.event(&heard);
        if matches!(heard.event, Event::Finished) {
            self.busy.remove(&heard.from);
        }
        Ok(heard)
    }
}
