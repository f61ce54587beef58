//! Commit: applies the caller's writes and the lock's own write in one transaction, all of them or none. Several locks
//! that one call acquired are written in one transaction too.
//!
//! ```text
//! the lock's write is a Renew (Commit), a Release (Commit and release), or stores the outcome of an
//! idempotent work (Settle, also alone)
//!  ├ applied ............................ committed
//!  ├ the lock's condition failed
//!  │   ├ no row came with it ............ Peek, then as below
//!  │   ├ the row has this very version .. committed (an earlier attempt had been applied)
//!  │   ├ an attempt has no response, and
//!  │   │   ├ its token is forgotten ..... unknown, unless the row is older than the transaction
//!  │   │   └ the row is no lock record .. unknown
//!  │   ├ a copy of ours wrote it ........ adopt what it wrote, and retry as a new transaction
//!  │   ├ it is no lock record ........... report the row
//!  │   └ anything else .................. lost, nothing was applied
//!  ├ the caller's writes are refused .... cancelled, nothing was applied
//!  │   └ an attempt has no response ..... Renew, which rules it out: see below. Unknown if it did not
//!  ├ a conflict, or throttled ........... pause, then the same transaction again
//!  ├ rejected ........................... rejected, or unknown if an attempt has no response
//!  ├ still in progress .................. pause, then the same transaction again, also when DynamoDB can recover it
//!  └ no response ........................ the same transaction again: same token, same content
//! ```
//!
//! While the outcome of a transaction is unknown, its writes are never sent as a *new* transaction, because both
//! could be applied. After a conflict they are not either: the network may deliver a late copy of the transaction that
//! met it. DynamoDB recognises the token of a transaction for ten minutes, so the same transaction is not sent for
//! longer than that either. A later refusal does not prove that no copy was applied.
//!
//! When the caller's writes are refused while an earlier copy may still arrive, a Renew is sent first. It writes a
//! newer version, so that the copy is refused. The version that the Renew replaces shows whether the copy had been
//! applied. Where that version does not show it, the same transaction is sent again. DynamoDB recognises a
//! transaction that it has applied, and refuses any other because of the row. If it refuses the caller's writes alone again,
//! the outcome stays unknown.
//!
//! Of several locks, one row is enough to show that the transaction was applied, or that it never will be. So one
//! Renew rules a copy out.

use super::call::Call;
use super::failure::Failure;
use super::holding::{Holding, LeaseValidity, PendingCommit};
use super::instants::Instants;
use super::port::{Now, Port};
use super::read::look;
use super::record::{Record, is_settled};
use super::renew::{self, Renewed, renew_unless_recognised};
use super::reply::{FailedWrite, Refusal, Reply, Transacted, Written};
use super::request::{Action, DataChange, REPEATABLE, Request, Scope, StoredOutcome, TransactionId};
use super::schema;
use super::settings::Settings;
use super::value::Item;
use super::version::{Stamp, Version};
use std::time::Duration;

/// Applies the caller's writes together with what `ending` does with the locks.
pub async fn commit(
    port: &mut impl Port,
    settings: &Settings,
    holdings: &mut [&mut Holding],
    ending: Ending,
) -> Result<(), FailedCommit> {
    Committing { settings, holdings, ending, call: Call::new(), sent: None, cancelled: None }.pursue(port).await
}

/// Why a transaction with the caller's writes failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailedCommit {
    pub failure: Failure,
    /// The locks that are lost, by their position.
    pub lost: Vec<usize>,
}

impl From<Failure> for FailedCommit {
    fn from(failure: Failure) -> Self {
        Self { failure, lost: Vec::new() }
    }
}

/// What a commit does with the locks.
#[derive(Clone, Debug)]
pub enum Ending {
    /// Renews them. They stay held.
    Renewed { data: DataChange },
    /// Releases them. The guard is over from the first request on.
    Released { data: DataChange },
    /// Stores the outcome of an idempotent work, which has one lock: alone, or with the caller's writes. This ends the
    /// grant. The guard is over from the first request on.
    Settled { outcome: StoredOutcome, alone: bool },
}

struct Committing<'a, 'b> {
    settings: &'a Settings,
    /// Never empty.
    holdings: &'a mut [&'b mut Holding],
    ending: Ending,
    /// Its outcome is unknown while the last transaction may have been applied, or may still be.
    call: Call,
    /// The last transaction, unless it will never be applied.
    sent: Option<SentCommit>,
    /// Why the caller's writes were refused. Set while the same transaction is sent once more, to learn whether an
    /// earlier copy of it was applied.
    cancelled: Option<Vec<FailedWrite>>,
}

/// A transaction as it was first sent.
#[derive(Debug)]
struct SentCommit {
    /// For each lock: its write.
    requests: Vec<Request>,
    /// For each lock: the version that a Commit writes.
    versions: Vec<Version>,
    first: Instants,
    /// For each lock: what a Commit changes in the holding when it is applied.
    renewals: Vec<Option<renew::SentRenewal>>,
}

impl Committing<'_, '_> {
    async fn pursue(mut self, port: &mut impl Port) -> Result<(), FailedCommit> {
        loop {
            let Ok(now) = self.call.ready(port).await else { return Err(self.out_of_time().into()) };
            let requests = self.transaction(port, &now)?;
            let (mut after, reply) = send(port, &now, requests).await;
            match reply {
                Ok(Transacted::Applied) => return self.committed(port).await,
                Ok(Transacted::Refused(mut refusals)) => {
                    // Read the rows that did not come with the refusal.
                    for Refusal { index, row } in refusals.iter_mut().filter(|refusal| refusal.row.is_none()) {
                        (after, *row) = self.look(port, *index).await?;
                    }
                    if self.was_applied(after, refusals)? {
                        return self.committed(port).await;
                    }
                }
                Ok(Transacted::Cancelled(failed)) => {
                    if self.ruled_out(port, failed).await? {
                        return self.committed(port).await;
                    }
                }
                Ok(Transacted::InProgress) => {
                    self.call.in_progress(self.sent.as_ref().map_or(now.instants, |sent| sent.first));
                }
                Err(fault) => {
                    if let Err(failure) = self.call.write_failed(fault) {
                        return Err(self.fail(failure).into());
                    }
                }
            }
        }
    }

    /// Returns the last transaction again, unless it will never be applied. Then returns a new one.
    fn transaction(&mut self, port: &mut impl Port, now: &Now) -> Result<Vec<Request>, Failure> {
        if let Some(sent) = &self.sent {
            let repeatable = now.instants.longest_since(sent.first) < REPEATABLE;
            let again = repeatable.then(|| sent.requests.clone());
            return again.ok_or_else(|| self.out_of_time());
        }
        let mut sent =
            SentCommit { requests: Vec::new(), versions: Vec::new(), first: now.instants, renewals: Vec::new() };
        for holding in self.holdings.iter_mut() {
            let mut renewal = None;
            let action = match &self.ending {
                Ending::Renewed { data } => {
                    let (action, sent) = renew::renewal(port, self.settings, holding, data, now);
                    holding.pending = Some(PendingCommit::Sent(holding.newest.stamp));
                    renewal = Some(sent);
                    action
                }
                Ending::Released { data } => release(holding, data.clone(), now),
                Ending::Settled { outcome, .. } => store(port, holding, outcome.clone(), now),
            };
            sent.requests.push(Request::alone(holding.key.clone(), action));
            sent.versions.push(holding.newest);
            sent.renewals.push(renewal);
        }
        // The outcome of an idempotent work may be stored without a transaction.
        if !matches!(self.ending, Ending::Settled { alone: true, .. }) {
            let id = TransactionId::from_random(port.random());
            sent.requests.iter_mut().for_each(|request| request.transaction = Some(id.clone()));
        }
        let requests = sent.requests.clone();
        self.sent = Some(sent);
        Ok(requests)
    }

    /// The condition of a lock did not hold, so this transaction was not applied. It never will be, because a row is past
    /// its version, lease and end. Returns whether an earlier copy had been applied. Fails unless the locks are still
    /// ours.
    fn was_applied(&mut self, after: Instants, refusals: Vec<Refusal>) -> Result<bool, FailedCommit> {
        let any = |of: &dyn Fn(usize, &Item) -> bool| {
            refusals.iter().any(|Refusal { index, row }| row.as_ref().is_some_and(|row| of(*index, row)))
        };
        if any(&|index, row| self.sent.as_ref().is_some_and(|sent| sent.is_on(&self.ending, index, row))) {
            return Ok(true);
        }
        if self.call.is_unknown() && self.is_forgotten(after) && !any(&|index, row| self.is_older_than_sent(index, row))
        {
            return Err(self.forget_outcome().into());
        }
        let is_unreadable = |row: &Option<Item>| row.as_ref().is_some_and(|row| self.is_unreadable(row));
        if self.call.is_unknown() && refusals.iter().all(|refusal| is_unreadable(&refusal.row)) {
            // An unreadable row does not prove that it is past this transaction. Once somebody repairs the row, an
            // earlier copy may be applied.
            return Err(Failure::OutcomeUnknown.into());
        }
        self.not_applied();
        self.adopt(refusals)?;
        if let Some(failed) = self.cancelled.take() {
            return Err(Failure::Cancelled(failed).into());
        }
        self.call.after_pause();
        Ok(false)
    }

    /// Adopts what copies of ours wrote. Fails when a lock is lost, or when a row is no lock record.
    fn adopt(&mut self, refusals: Vec<Refusal>) -> Result<(), FailedCommit> {
        let mut failed = None;
        let mut lost = Vec::new();
        for Refusal { index, row } in refusals {
            let Some(holding) = self.holdings.get_mut(index) else { continue };
            match renew::adopt(self.settings, holding, row) {
                Ok(()) => {}
                Err(Failure::Lost) => lost.push(index),
                Err(failure) => failed = Some(failure),
            }
        }
        if lost.is_empty() {
            failed.map_or(Ok(()), |failure| Err(failure.into()))
        } else {
            Err(FailedCommit { failure: Failure::Lost, lost })
        }
    }

    /// The caller's writes were refused. Returns whether an earlier copy of them was applied nevertheless. Fails if
    /// none was and none will be.
    async fn ruled_out(&mut self, port: &mut impl Port, failed: Vec<FailedWrite>) -> Result<bool, Failure> {
        if !self.call.is_unknown() {
            self.not_applied();
            return Err(Failure::Cancelled(failed));
        }
        // The locks' own conditions hold again, so they rule out no earlier copy.
        if self.cancelled.is_some() {
            return Err(Failure::OutcomeUnknown);
        }
        let (sent, ending) = (&self.sent, &self.ending);
        let recognises = |row: &Item| sent.as_ref().is_some_and(|sent| sent.is_on(ending, 0, row));
        let Some(first_lock) = self.holdings.first_mut() else { return Err(Failure::Cancelled(failed)) };
        let renewed = renew_unless_recognised(port, self.settings, first_lock, &DataChange::Keep, recognises).await;
        let pending = first_lock.pending;
        if renewed == Ok(Renewed::Recognised) {
            return Ok(true);
        }
        // Even if the transaction turns out to be applied, what the Renew found came later.
        if let Some(renewal) = self.sent.as_mut().and_then(|sent| sent.renewals.first_mut()) {
            *renewal = None;
        }
        match renewed {
            Ok(_) if pending == Some(PendingCommit::Applied) => return Ok(true),
            // The Renew was applied, so no commit and release had been applied before: it would have refused the
            // Renew.
            Ok(_) if matches!(pending, Some(PendingCommit::NotApplied) | None) => {
                self.not_applied();
                return Err(Failure::Cancelled(failed));
            }
            // The row does not show the outcome. DynamoDB can still recognise a transaction that it has applied.
            Ok(_) | Err(Failure::InvalidRecord(_)) => {}
            Err(Failure::Lost) => {
                // The lock is lost, even if the transaction was applied before that.
                first_lock.validity = LeaseValidity::none(port.now().instants);
            }
            Err(_) => return Err(Failure::OutcomeUnknown),
        }
        self.cancelled = Some(failed);
        self.call.at_once();
        Ok(false)
    }

    async fn look(&mut self, port: &mut impl Port, index: usize) -> Result<(Instants, Option<Item>), Failure> {
        self.call.repeat();
        let Some(holding) = self.holdings.get(index) else { return Err(Failure::OutcomeUnknown) };
        look(port, &mut self.call, &holding.key).await.map_err(|failure| match failure {
            Failure::Rejected(_) => self.fail(failure),
            _ => self.out_of_time(),
        })
    }

    /// The last transaction was not applied, and no copy of it ever will be.
    fn not_applied(&mut self) {
        self.sent = None;
        self.call.ruled_out();
        self.set_pending(None);
    }

    fn set_pending(&mut self, pending: Option<PendingCommit>) {
        self.holdings.iter_mut().for_each(|holding| holding.pending = pending);
    }

    async fn committed(mut self, port: &mut impl Port) -> Result<(), FailedCommit> {
        let sent = self.sent.take();
        self.not_applied();
        let now = port.now();
        let mut behind = Vec::new();
        let renewals = sent.map_or_else(Vec::new, |sent| sent.renewals);
        for (index, (holding, renewal)) in self.holdings.iter_mut().zip(renewals).enumerate() {
            if renewal
                .is_some_and(|renewal| renewal.applied(&now, self.settings, holding, Item::default()).is_continue())
            {
                behind.push(index);
            }
        }
        if behind.is_empty() {
            return Ok(());
        }
        // The writes are applied, whether or not this succeeds. The caller may drop the call meanwhile, and must then
        // be able to find out that they are.
        self.set_pending(Some(PendingCommit::Applied));
        for index in behind {
            if let Some(holding) = self.holdings.get_mut(index) {
                let _ = renew::renew(port, self.settings, holding, &DataChange::Keep).await;
            }
        }
        self.set_pending(None);
        Ok(())
    }

    /// The caller's time is over. Unless the outcome is unknown, nothing was applied, also where nothing was throttled.
    fn out_of_time(&mut self) -> Failure {
        self.fail(Failure::Throttled)
    }

    /// Returns a failure that means that nothing was applied, or [`Failure::OutcomeUnknown`] while that is unknown.
    fn fail(&mut self, failure: Failure) -> Failure {
        if !self.call.is_unknown() {
            self.not_applied();
        }
        self.call.fail(failure)
    }

    fn is_unreadable(&self, row: &Item) -> bool {
        !is_settled(row) && Record::read(row.clone(), &self.settings.schema).is_err()
    }

    /// Whether nothing may show any more that the transaction was applied: DynamoDB no longer recognises its token, or the
    /// outcome that was stored alone may have been replaced.
    fn is_forgotten(&self, now: Instants) -> bool {
        let shown_for = match &self.ending {
            // An operator may reset it at any time.
            Ending::Settled { alone: true, outcome: StoredOutcome::Failed(_) } => Some(Duration::ZERO),
            Ending::Settled { alone: true, .. } => self.holdings.first().and_then(|holding| holding.keep),
            _ => None,
        };
        let shown_for = shown_for.unwrap_or(REPEATABLE).min(REPEATABLE);
        self.sent.as_ref().is_some_and(|sent| now.longest_since(sent.first) >= shown_for)
    }

    /// Whether this grant still holds the row, and last wrote it before the transaction was made. Then the
    /// transaction was not applied, whether or not DynamoDB still recognises its token.
    fn is_older_than_sent(&self, index: usize, row: &Item) -> bool {
        let found = row.text(schema::VERSION).and_then(Version::parse);
        let sent = self.sent.as_ref().and_then(|sent| sent.versions.get(index));
        let is_older = |(found, sent): (Version, &Version)| found.grant == sent.grant && found.stamp < sent.stamp;
        row.get(schema::RELEASED).is_none() && found.zip(sent).is_some_and(is_older)
    }

    /// Neither the row nor DynamoDB can show the outcome of the transaction any more.
    fn forget_outcome(&mut self) -> Failure {
        if matches!(self.ending, Ending::Renewed { .. }) {
            self.set_pending(Some(PendingCommit::Untold));
        }
        Failure::OutcomeUnknown
    }
}

impl SentCommit {
    /// Whether the row of this lock shows that the transaction was applied: by its version, or by what that begins with.
    fn is_on(&self, ending: &Ending, index: usize, row: &Item) -> bool {
        let Some(version) = self.versions.get(index) else { return false };
        let ours = match ending {
            Ending::Renewed { .. } => version.text(),
            // A grant is settled once. Any version of it is ours: an earlier attempt that was refused for now may have
            // been delivered twice.
            Ending::Settled { .. } => version.grant.settled_versions(),
            // A release writes no version of its own.
            Ending::Released { .. } => return false,
        };
        row.text(schema::VERSION).is_some_and(|found| found.starts_with(&ours))
    }
}

/// Sends the write of a lock that goes alone, or those of a transaction.
async fn send(port: &mut impl Port, now: &Now, mut requests: Vec<Request>) -> (Instants, Reply<Transacted>) {
    let Some(request) = requests.pop_if(|request| request.transaction.is_none()) else {
        return port.transact(now, requests).await;
    };
    let (after, reply) = port.write(now, request).await;
    let transacted = reply.map(|written| match written {
        Written::Applied(_) => Transacted::Applied,
        Written::Refused(row) => Transacted::Refused(vec![Refusal { index: 0, row }]),
    });
    (after, transacted)
}

/// Returns the release in a transaction.
fn release(holding: &Holding, data: DataChange, now: &Now) -> Action {
    let up_to = Version { stamp: holding.seen, ..holding.newest };
    let scope = Scope::Mine { up_to, token: Some(holding.token) };
    let ends_at_ms = now.wall.written.max(holding.newest.stamp.millis() + 1);
    Action::Release { scope, ends_at_ms, data, keep: holding.keep, returns_row: false }
}

/// Returns the write of the outcome, which is part of a transaction or goes alone.
fn store(port: &mut impl Port, holding: &mut Holding, outcome: StoredOutcome, now: &Now) -> Action {
    holding.newest.stamp = Stamp::after(Some(holding.newest.stamp), now.wall.millis, port.random_u64());
    let (version, token, keep) = (holding.newest, holding.token, holding.keep.unwrap_or_default());
    Action::Settle { version, token, outcome, now: now.wall.written, keep }
}
