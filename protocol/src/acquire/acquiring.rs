//! What a call for one lock knows, and how it ends: with a grant, which a response contains or the row shows, behind a holder, or
//! with a failure.

use super::attempt::{Attempt, Attempts};
use super::options::{AcquireOptions, Acquired, HolderSeen, Queueing, Started};
use super::rows::Row;
use super::verdict::{Caller, Verdict, verdict};
use super::waiter::Waiter;
use crate::backoff::Backoff;
use crate::call::Call;
use crate::failure::Failure;
use crate::holding::Holding;
use crate::instants::Instants;
use crate::port::{Now, Port};
use crate::record::{InvalidRecord, Record};
use crate::reply::{Reply, Written};
use crate::request::{Action, Request};
use crate::schema;
use crate::settings::Settings;
use crate::value::{Item, Value};
use crate::version::Version;
use crate::work::{Look, Work};
use std::ops::ControlFlow;
use std::time::Duration;

pub(super) struct Acquiring<'a> {
    pub(super) settings: &'a Settings,
    pub(super) options: AcquireOptions,
    /// What the lock is for, where its row means more than the lock.
    pub(super) work: Option<Work>,
    /// Whether it waits for another holder, as long as [`Now`] allows.
    pub(super) waits: bool,
    pub(super) attempts: Attempts,
    pub(super) call: Call,
    pub(super) row: Row,
    pub(super) poll: Backoff,
    pub(super) waiter: Waiter,
    /// DynamoDB found a write invalid. The cause may be the row as it stands.
    pub(super) refused_as_invalid: Option<String>,
}

/// How the requests of a call ended.
pub(super) enum End {
    Granted(Acquired),
    Held(HolderSeen),
    /// The record of the work says it.
    Known(Started),
    Failed(Failure),
    /// The grant was written into a row that is not a lock record.
    Unreadable(InvalidRecord),
}

/// `Break` ends the call.
pub(super) type Flow<T> = ControlFlow<End, T>;

pub(super) fn failed<T>(failure: Failure) -> Flow<T> {
    ControlFlow::Break(End::Failed(failure))
}

impl<'a> Acquiring<'a> {
    pub(super) fn new(settings: &'a Settings, options: AcquireOptions, work: Option<Work>) -> Self {
        let earlier = options.observation.as_ref().filter(|_| options.queueing != Queueing::Ignored);
        let waiter = earlier.map(Waiter::after).unwrap_or_default();
        Self {
            settings,
            options,
            work,
            waits: true,
            attempts: Attempts::default(),
            call: Call::new(),
            row: Row::Unseen,
            poll: Backoff::behind_a_holder(),
            waiter,
            refused_as_invalid: None,
        }
    }

    /// Reads the clocks. A call that does not wait has no time to wait.
    pub(super) fn now(&self, port: &mut impl Port) -> Now {
        self.as_it_waits(port.now())
    }

    pub(super) fn as_it_waits(&self, now: Now) -> Now {
        if self.waits { now } else { Now { wait_left: Duration::ZERO, ..now } }
    }

    /// What the row means for the work, where the call is for some. Breaks where its record says how the call ends.
    pub(super) fn look_at_work(&mut self, now: &Now, row: &Item) -> Flow<Result<Look, InvalidRecord>> {
        let Some(work) = &mut self.work else { return ControlFlow::Continue(Ok(Look::Lock)) };
        match work.look(now, self.settings, row) {
            Ok(Look::Settled(record)) => ControlFlow::Break(End::Known(Started::Settled(record))),
            Ok(Look::Mismatch(record)) => ControlFlow::Break(End::Known(Started::Mismatch(record))),
            look => ControlFlow::Continue(look),
        }
    }

    /// Whether the call may take the row now.
    pub(super) fn verdict(&self, now: &Now) -> Verdict<'_> {
        verdict(now, &self.row, &self.caller())
    }

    pub(super) fn caller(&self) -> Caller<'_> {
        let is_claimable = self.work.as_ref().is_none_or(|work| work.is_claimable);
        Caller {
            owner: &self.options.owner,
            reclaim: &self.options.reclaim,
            clock_bounds: &self.settings.clock_bounds,
            line: (self.options.queueing != Queueing::Ignored).then_some(&self.waiter),
            claim: is_claimable.then_some(&self.options.attributes),
        }
    }

    /// The row carries our grant. Finds the attempt that wrote it, and checks that it is still held.
    pub(super) fn recognised(&self, now: &Now, version: Version, record: &Record) -> End {
        let written = self.attempts.that_wrote(version);
        match (written, record.token) {
            (Some(attempt), Some(token)) if !record.released => {
                End::Granted(self.granted(now, attempt, token, record.data.clone()))
            }
            // The row was released by a cleanup of our workflow, or no attempt of this call wrote it.
            _ => End::Failed(Failure::Lost),
        }
    }

    /// A write was applied. Breaks with the grant, or continues when the response does not contain it.
    pub(super) fn applied(&mut self, now: &Now, mut row: Item) -> Flow<()> {
        // A response without a version contains no row.
        if row.get(schema::VERSION).is_none() {
            return ControlFlow::Continue(());
        }
        if let Err(invalid) = self.look_at_work(now, &row)? {
            return ControlFlow::Break(End::Unreadable(invalid));
        }
        let token = row.number(schema::TOKEN).filter(|token| (1..u64::MAX).contains(token));
        if let (Some(attempt), Some(token)) = (self.attempts.last(), token) {
            let data = match row.remove(schema::DATA) {
                Some(Value::B(bytes)) => Some(bytes),
                _ => None,
            };
            return ControlFlow::Break(End::Granted(self.granted(now, attempt, token, data)));
        }
        match Record::read_granted(row, &self.settings.schema) {
            // No larger token can follow the row's token, so the token that was written is invalid too.
            Err(invalid) => ControlFlow::Break(End::Unreadable(invalid)),
            Ok(_) => ControlFlow::Continue(()),
        }
    }

    pub(super) fn out_of_time(&self, now: &Now, failure: Failure) -> End {
        match self.verdict(now) {
            Verdict::Wait(wait) => End::Held(self.caller().holder(now, &wait)),
            Verdict::Refuse(failure) => End::Failed(failure),
            Verdict::May(_) => End::Failed(failure),
        }
    }

    /// Returns the caller's result. Without a grant, first releases the lock in case an attempt was applied, or still
    /// will be.
    pub(super) async fn finish(&mut self, port: &mut impl Port, end: End) -> Result<Started, Failure> {
        match end {
            End::Granted(granted) => Ok(self.with_record(granted)),
            End::Known(started) => Ok(started),
            End::Unreadable(invalid) => {
                self.release(port).await;
                Err(Failure::InvalidRecord(invalid))
            }
            End::Held(_) | End::Failed(_) if self.call.is_unknown() => {
                self.release(port).await;
                self.leave(port).await;
                Err(Failure::OutcomeUnknown)
            }
            End::Held(seen) => {
                let seen = match self.leave(port).await {
                    Some(is_waited_for) => seen.without_ticket(u64::from(is_waited_for)),
                    None => seen,
                };
                Ok(self.with_record(Acquired::Held(seen)))
            }
            End::Failed(failure) => {
                self.leave(port).await;
                Err(failure)
            }
        }
    }

    /// Without a grant: gives up the ticket, if there is one, and says so, so that nobody waits for this caller. A caller that sleeps
    /// between its calls keeps its place. Returns whether there was one, and whether others waited for its caller.
    async fn leave(&mut self, port: &mut impl Port) -> Option<bool> {
        let ticket = self.waiter.ticket().filter(|_| self.options.queueing != Queueing::BetweenCalls)?;
        self.waiter.forget();
        let line = self.row.watch().and_then(|watch| watch.record().believable_line());
        let is_waited_for = line.is_some_and(|line| line.has(ticket));
        if is_waited_for {
            let now = port.now();
            // Nothing follows from the reply: who cannot say so is passed like one that is gone.
            let _ = self.send(port, &now, Action::Leave { ticket }).await;
        }
        Some(is_waited_for)
    }

    fn with_record(&mut self, acquired: Acquired) -> Started {
        Started::Lock(acquired, self.work.take().and_then(|work| work.record))
    }

    fn granted(&self, now: &Now, attempt: &Attempt, token: u64, data: Option<Vec<u8>>) -> Acquired {
        let AcquireOptions { key, owner, workflow, commit, .. } = &self.options;
        let newest = self.attempts.newest().unwrap_or(attempt.version.stamp);
        let bounds = &self.settings.clock_bounds;
        let validity = attempt.validity(now, bounds);
        let holding = attempt.holding(key.clone(), owner, workflow.as_deref(), token, newest, validity);
        let pending = attempt.resolved(0, *commit, &self.options.reclaim);
        Acquired::Granted {
            renew_first: attempt.is_half_over(now, validity, bounds),
            data,
            holding: Holding { keep: self.work.as_ref().map(|work| work.keep), pending, ..holding },
        }
    }

    /// Releases the lock in case an attempt without a response was applied, or still will be.
    async fn release(&mut self, port: &mut impl Port) {
        let Some(attempt) = self.attempts.last() else { return };
        let now = port.now();
        let keep = self.work.as_ref().map(|work| work.keep);
        let action = Action::release_of_attempt(attempt.version, now.wall.millis, keep);
        // Nothing follows from the reply.
        let _ = self.send(port, &now, action).await;
    }

    pub(super) async fn send(&mut self, port: &mut impl Port, now: &Now, action: Action) -> (Instants, Reply<Written>) {
        port.write(now, Request::alone(self.options.key.clone(), action)).await
    }
}
