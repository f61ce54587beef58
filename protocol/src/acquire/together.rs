//! Acquire of several locks together: one transaction grants all of them, or none.
//!
//! ```text
//! SetClaim: for each key a Claim, or a Take of the version that was seen to be free, dead or to be reclaimed
//!  ├ applied ............................... granted
//!  ├ refused, with rows
//!  │   ├ one carries our grant, held ....... granted, all of them: that attempt had been applied
//!  │   ├ one is no lock record ............. report the row
//!  │   ├ to reclaim, and one is another's .. lost
//!  │   ├ each may be taken ................. SetClaim again
//!  │   └ some are held or frozen ........... report their holders, or wait and look again
//!  ├ refused, and a row is missing ......... look
//!  ├ a conflict, or throttled .............. pause, then a new attempt
//!  ├ rejected as invalid ................... look: our grant → granted; else rejected
//!  ├ rejected .............................. rejected
//!  ├ still in progress ..................... pause, then the same transaction again, also when DynamoDB can recover it
//!  └ no response ........................... the same transaction again: same id, same content
//! Look: all rows in one request. None of them is written while one of them is held.
//! ```
//!
//! All locks of a grant have one token, which the call chooses: larger than the clock and than each token that the call
//! has seen on their rows. A row that has a larger one refuses the transaction and shows it.
//!
//! A row with our grant proves that the transaction was applied, to all of them. Rows without it prove nothing: they
//! become visible one after the other, and a late copy may still arrive. If the call ends without a grant after a request
//! without a response, it releases what it may have got, and reports that the outcome is unknown.

use super::attempt::{Attempt, Attempts};
use super::options::{HolderSeen, Reclaim};
use super::rows::Row;
use super::verdict::{Caller, Verdict, Write, verdict};
use crate::attributes::AttributesChange;
use crate::backoff::{Backoff, longest_pause};
use crate::call::Call;
use crate::failure::Failure;
use crate::holding::{Holding, PendingCommit};
use crate::instants::Instants;
use crate::key::LockKey;
use crate::observation::Observation;
use crate::port::{Now, Port};
use crate::read::read_rows;
use crate::record::{InvalidRecord, Record};
use crate::reply::{Fault, Refusal, Rejection, Transacted};
use crate::request::{Action, NewGrant, REPEATABLE, Request, TransactionId};
use crate::settings::Settings;
use crate::value::Item;
use std::convert::Infallible;
use std::ops::ControlFlow;
use std::time::Duration;

/// What the caller of an acquire of several locks asks for.
#[derive(Clone, Debug)]
pub struct AcquireAllOptions {
    /// None of them twice.
    pub locks: Vec<WantedLock>,
    pub owner: String,
    pub workflow: Option<String>,
    /// Whether the additional attributes of the rows stay.
    pub keeps_attributes: bool,
}

/// One of several locks that a call asks for.
#[derive(Clone, Debug)]
pub struct WantedLock {
    pub key: LockKey,
    pub reclaim: Reclaim,
    /// The observation that an earlier call returned.
    pub observation: Option<Observation>,
    /// With [`Reclaim::Only`]: the last commit under the earlier grant, while its outcome is unknown.
    pub commit: Option<PendingCommit>,
}

/// How an acquire of several locks ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AcquiredAll {
    Granted {
        /// In the order of the keys. They have one token.
        holdings: Vec<Holding>,
        /// The caller must renew them before it works, as with one lock.
        renew_first: bool,
    },
    Held(Blocked),
}

/// What kept a call from getting its locks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Blocked {
    /// The position of each lock that is held, with its holder.
    pub by: Vec<(usize, HolderSeen)>,
    /// How often the call found something held.
    pub looks: u32,
}

/// Why an acquire of several locks failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailedAcquire {
    pub failure: Failure,
    /// The positions of the locks that the failure is about. Empty where it is about all of them.
    pub of: Vec<usize>,
}

impl From<Failure> for FailedAcquire {
    fn from(failure: Failure) -> Self {
        Self { failure, of: Vec::new() }
    }
}

/// Acquires several locks together. Waits for other holders for as long as [`Now`] allows, and holds nothing meanwhile.
///
/// Fails with [`Failure::Lost`] when a grant to reclaim is no longer on its row.
pub async fn acquire_all(
    port: &mut impl Port,
    settings: &Settings,
    options: AcquireAllOptions,
) -> Result<AcquiredAll, FailedAcquire> {
    let rows = options.locks.iter().map(|_| Row::Unseen).collect();
    let mut acquiring = AcquiringAll {
        settings,
        options,
        rows,
        attempts: Attempts::default(),
        sent: None,
        call: Call::new(),
        poll: Backoff::behind_a_holder(),
        refused_as_invalid: None,
        looks: 0,
    };
    let ControlFlow::Break(ended) = acquiring.pursue(port).await;
    acquiring.finish(port, ended).await
}

/// How the requests of a call ended.
type Ended = Result<AcquiredAll, FailedAcquire>;

/// `Break` ends the call.
type Flow<T> = ControlFlow<Ended, T>;

/// A transaction as it was first sent.
#[derive(Debug)]
struct SentTransaction {
    requests: Vec<Request>,
    first: Instants,
}

struct AcquiringAll<'a> {
    settings: &'a Settings,
    options: AcquireAllOptions,
    /// In the order of the keys.
    rows: Vec<Row>,
    attempts: Attempts,
    /// The last transaction, while it has no response.
    sent: Option<SentTransaction>,
    call: Call,
    poll: Backoff,
    /// DynamoDB found a transaction invalid. The cause may be a row as it stands.
    refused_as_invalid: Option<String>,
    looks: u32,
}

impl AcquiringAll<'_> {
    async fn pursue(&mut self, port: &mut impl Port) -> Flow<Infallible> {
        loop {
            self.write(port).await?;
            self.until_free(port).await?;
        }
    }

    /// Sends transactions until one has a usable response. Continues when the rows were seen.
    async fn write(&mut self, port: &mut impl Port) -> Flow<()> {
        loop {
            let now = self.ready(port).await?;
            let requests = self.transaction(port, &now)?;
            let (after, reply) = port.transact(&now, requests).await;
            match reply {
                Ok(Transacted::Applied) => return self.granted(&port.now(), self.attempts.last()),
                Ok(Transacted::Refused(refusals)) => {
                    self.sent = None;
                    // A row that is missing refuses no Claim, and a reclaim has to know the row. So read them.
                    let all_there = refusals.iter().all(|refusal| refusal.row.is_some());
                    for Refusal { index, row } in refusals.into_iter().filter(|refusal| refusal.row.is_some()) {
                        self.see(index, after, row)?;
                    }
                    if all_there {
                        self.call.answered();
                        return ControlFlow::Continue(());
                    }
                    self.call.throttled();
                    return self.look(port).await;
                }
                Ok(Transacted::InProgress) => {
                    self.call.in_progress(self.sent.as_ref().map_or(now.instants, |sent| sent.first));
                }
                // There are no writes of the caller's that could cancel it.
                Ok(Transacted::Cancelled(_)) => self.call.no_response(),
                Err(Fault::Rejected(Rejection::Invalid(message))) => {
                    self.sent = None;
                    self.refused_as_invalid = Some(message);
                    return self.look(port).await;
                }
                Err(fault) => {
                    // Whoever has a row for a moment is not known to hold its lock. The conditions of a new attempt refuse
                    // what an earlier copy has written.
                    if fault == Fault::Throttled {
                        self.sent = None;
                    }
                    self.call.write_failed(fault).map_or_else(failed, ControlFlow::Continue)?;
                }
            }
        }
    }

    /// Returns the last transaction again, while it has no response and DynamoDB recognises it. Otherwise a new one.
    fn transaction(&mut self, port: &mut impl Port, now: &Now) -> Flow<Vec<Request>> {
        if let Some(sent) = self.sent.as_ref().filter(|sent| now.instants.longest_since(sent.first) < REPEATABLE) {
            return ControlFlow::Continue(sent.requests.clone());
        }
        let token = self.next_token(now)?;
        let writes: Vec<Write> =
            (0..self.rows.len()).map(|index| self.caller(index).write(now, &self.rows[index])).collect();
        let replaces = writes.iter().map(Write::replaced).collect();
        let attempt = self.attempts.next(port, now, self.settings, Some(token), replaces).clone();
        let id = TransactionId::from_random(port.random());
        let AcquireAllOptions { locks, owner, workflow, keeps_attributes } = &self.options;
        let attributes = if *keeps_attributes { AttributesChange::Keep } else { AttributesChange::Replace(Vec::new()) };
        let grant = NewGrant { attributes, ..attempt.grant(now, owner, workflow.as_deref()) };
        let requests = locks.iter().zip(writes).enumerate().map(|(index, (lock, write))| Request {
            key: lock.key.clone(),
            action: write.action(now, &self.caller(index), grant.clone(), Some(token)),
            transaction: Some(id.clone()),
        });
        let requests: Vec<Request> = requests.collect();
        self.sent = Some(SentTransaction { requests: requests.clone(), first: now.instants });
        ControlFlow::Continue(requests)
    }

    /// A token that is larger than the clock, and than all that were seen.
    fn next_token(&self, now: &Now) -> Flow<u64> {
        let mut token = now.wall.millis.saturating_add(1);
        for (index, (lock, row)) in self.options.locks.iter().zip(&self.rows).enumerate() {
            let seen = row.watch().and_then(|watch| watch.record().token);
            let next = seen.map_or(0, |seen| seen.saturating_add(1));
            if next == u64::MAX {
                let invalid = InvalidRecord::of_last_token(&lock.key, &self.settings.schema, next - 1);
                return failed_at(index, invalid.into());
            }
            token = token.max(next);
        }
        ControlFlow::Continue(token)
    }

    /// Reads all rows.
    async fn look(&mut self, port: &mut impl Port) -> Flow<()> {
        let keys: Vec<LockKey> = self.options.locks.iter().map(|lock| lock.key.clone()).collect();
        match read_rows(port, &mut self.call, &keys).await {
            Ok(rows) => {
                for (index, (after, row)) in rows.into_iter().enumerate() {
                    self.see(index, after, row)?;
                }
                self.call.answered();
                ControlFlow::Continue(())
            }
            Err(Failure::Rejected(rejection)) => failed(Failure::Rejected(rejection)),
            Err(failure) => ControlFlow::Break(self.out_of_time(&port.now(), failure)),
        }
    }

    /// Notes what a response showed of a row.
    fn see(&mut self, index: usize, after: Instants, row: Option<Item>) -> Flow<()> {
        let Some(seen) = self.rows.get_mut(index) else { return ControlFlow::Continue(()) };
        let Some(item) = row else {
            *seen = Row::Missing;
            return ControlFlow::Continue(());
        };
        let record = match Record::read_to_hold(item, &self.settings.schema) {
            Ok(record) => record,
            Err(invalid) => return failed_at(index, invalid.into()),
        };
        seen.see(record, after, self.options.locks[index].observation.as_ref());
        ControlFlow::Continue(())
    }

    /// Waits until each lock may be taken, by what was seen of its row.
    async fn until_free(&mut self, port: &mut impl Port) -> Flow<()> {
        loop {
            let now = port.now();
            self.recognised(&now)?;
            if let Some(message) = self.refused_as_invalid.take() {
                return failed(Failure::Rejected(Rejection::Invalid(message)));
            }
            let blocked = self.blocked(&now)?;
            if blocked.is_empty() {
                self.call.follow_up();
                return ControlFlow::Continue(());
            }
            self.call.waits();
            self.looks += 1;
            if now.wait_left.is_zero() {
                return ControlFlow::Break(Ok(AcquiredAll::Held(self.holders(&now))));
            }
            let pause = self.pause(port, &now, &blocked);
            port.sleep(&now, pause).await;
            if self.blocked(&port.now())?.is_empty() {
                return ControlFlow::Continue(());
            }
            self.look(port).await?;
        }
    }

    /// A row that carries our grant shows which attempt was applied, to all of them.
    fn recognised(&self, now: &Now) -> Flow<()> {
        for (index, watch) in self.rows.iter().enumerate().filter_map(|(index, row)| Some((index, row.watch()?))) {
            let record = watch.record();
            let Some(version) = record.own_version.filter(|version| self.attempts.have_granted(version)) else {
                continue;
            };
            let attempt = self.attempts.that_wrote(version);
            if record.released || attempt.is_none_or(|attempt| record.token != attempt.token) {
                // It was released by a cleanup of our workflow, or no attempt of this call wrote it.
                return failed_at(index, Failure::Lost);
            }
            self.granted(now, attempt)?;
        }
        ControlFlow::Continue(())
    }

    /// The locks that the call has to wait for, each with the time until it may take it. Breaks where one is refused to it.
    fn blocked(&self, now: &Now) -> Flow<Vec<(usize, Duration)>> {
        let mut blocked = Vec::new();
        for (index, row) in self.rows.iter().enumerate() {
            match verdict(now, row, &self.caller(index)) {
                Verdict::May(_) => {}
                Verdict::Wait(wait) => blocked.push((index, wait.due_in())),
                Verdict::Refuse(failure) => return failed_at(index, failure),
            }
        }
        ControlFlow::Continue(blocked)
    }

    fn holders(&self, now: &Now) -> Blocked {
        let holder = |(index, row): (usize, &Row)| match verdict(now, row, &self.caller(index)) {
            Verdict::Wait(wait) => Some((index, self.caller(index).holder(now, &wait))),
            Verdict::May(_) | Verdict::Refuse(_) => None,
        };
        Blocked { by: self.rows.iter().enumerate().filter_map(holder).collect(), looks: self.looks }
    }

    /// Waits until the next request may be sent. Breaks when the caller's time is over.
    async fn ready(&mut self, port: &mut impl Port) -> Flow<Now> {
        match self.call.ready(port).await {
            Ok(now) => ControlFlow::Continue(now),
            Err(failure) => ControlFlow::Break(self.out_of_time(&port.now(), failure)),
        }
    }

    fn out_of_time(&self, now: &Now, failure: Failure) -> Ended {
        match self.blocked(now) {
            ControlFlow::Break(refused) => refused,
            ControlFlow::Continue(blocked) if blocked.is_empty() => Err(failure.into()),
            ControlFlow::Continue(_) => Ok(AcquiredAll::Held(self.holders(now))),
        }
    }

    /// Returns the caller's result. Without a grant, first releases the locks in case an attempt was applied, or still
    /// will be.
    async fn finish(&mut self, port: &mut impl Port, ended: Ended) -> Ended {
        match ended {
            Ok(AcquiredAll::Held(_)) | Err(_) if self.call.is_unknown() => {
                self.release(port).await;
                Err(Failure::OutcomeUnknown.into())
            }
            ended => ended,
        }
    }

    /// Breaks with the grant that this attempt has written into all rows.
    fn granted(&self, now: &Now, attempt: Option<&Attempt>) -> Flow<()> {
        let Some((attempt, token)) = attempt.and_then(|attempt| Some((attempt, attempt.token?))) else {
            return failed(Failure::OutcomeUnknown);
        };
        let AcquireAllOptions { owner, workflow, locks, .. } = &self.options;
        let newest = self.attempts.newest().unwrap_or(attempt.version.stamp);
        let bounds = &self.settings.clock_bounds;
        let validity = attempt.validity(now, bounds);
        let holding = |(index, lock): (usize, &WantedLock)| {
            let holding = attempt.holding(lock.key.clone(), owner, workflow.as_deref(), token, newest, validity);
            let pending = attempt.resolved(index, lock.commit, &lock.reclaim);
            Holding { pending, ..holding }
        };
        ControlFlow::Break(Ok(AcquiredAll::Granted {
            holdings: locks.iter().enumerate().map(holding).collect(),
            renew_first: attempt.is_half_over(now, validity, bounds),
        }))
    }

    /// Releases each lock in case an attempt without a response was applied, or still will be. Once the caller's time is
    /// over and DynamoDB does not respond, the leases have to free the rest.
    async fn release(&mut self, port: &mut impl Port) {
        let Some(attempt) = self.attempts.last() else { return };
        for lock in &self.options.locks {
            let now = port.now();
            let action = Action::release_of_attempt(attempt.version, now.wall.millis, None);
            let (_, reply) = port.write(&now, Request::alone(lock.key.clone(), action)).await;
            if reply == Err(Fault::Unknown) && port.now().time_left.is_zero() {
                return;
            }
        }
    }

    fn caller(&self, index: usize) -> Caller<'_> {
        let reclaim = &self.options.locks[index].reclaim;
        Caller::in_no_line(&self.options.owner, reclaim, &self.settings.clock_bounds)
    }

    /// How long to wait before the next look. All of the locks must be free, so the last of their holders counts.
    fn pause(&mut self, port: &mut impl Port, now: &Now, blocked: &[(usize, Duration)]) -> Duration {
        let due_in = blocked.iter().map(|(_, due_in)| *due_in).max().unwrap_or_default();
        let longest = longest_pause(port, now, due_in);
        self.poll.pause(port).min(longest)
    }
}

fn failed<T>(failure: Failure) -> Flow<T> {
    ControlFlow::Break(Err(failure.into()))
}

/// A failure that is about the lock at this position.
fn failed_at<T>(index: usize, failure: Failure) -> Flow<T> {
    ControlFlow::Break(Err(FailedAcquire { failure, of: vec![index] }))
}
