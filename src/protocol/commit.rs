//! Commit: applies the caller's writes and the lock's own write in one transaction, all of them or none.
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
//!  │   └ an attempt has no response ..... Renew, which rules it out: see below
//!  ├ a conflict, or throttled ........... pause, then the same transaction again
//!  ├ rejected ........................... rejected, or unknown if an attempt has no response
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
//! transaction that it has applied, and refuses any other because of the row.

use super::backoff::Retry;
use super::failure::Failure;
use super::holding::{Holding, LeaseValidity, PendingCommit};
use super::instants::Instants;
use super::once;
use super::peek::{NotSeen, look};
use super::port::{Answer, FailedWrite, Now, Port};
use super::record::Record;
use super::renew::{self, Renewed, renew_unless};
use super::request::{Action, DataChange, Request, Scope, StoredOutcome, TransactionId};
use super::schema;
use super::settings::Settings;
use super::value::{Item, Value};
use super::version::{Stamp, Version};
use std::time::Duration;

/// For how long the same transaction is sent again. DynamoDB recognises its token for ten minutes (AWS documents this
/// with `TransactWriteItems`), and this is well within them.
const REPEATABLE: Duration = Duration::from_secs(8 * 60);

/// Applies the caller's writes and renews the lock, which stays held.
pub async fn commit(
    port: &mut impl Port,
    settings: &Settings,
    holding: &mut Holding,
    data: DataChange,
) -> Result<(), Failure> {
    Call::new(settings, holding, Ending::Renewed { data }).until_ended(port).await
}

/// Applies the caller's writes and releases the lock. The guard is over from the first request on.
pub async fn commit_and_release(
    port: &mut impl Port,
    settings: &Settings,
    holding: &mut Holding,
    data: DataChange,
) -> Result<(), Failure> {
    Call::new(settings, holding, Ending::Released { data }).until_ended(port).await
}

/// Stores the outcome of an idempotent work, alone or with the caller's writes. This ends the grant. The guard is
/// over from the first request on.
pub async fn settle(
    port: &mut impl Port,
    settings: &Settings,
    holding: &mut Holding,
    outcome: StoredOutcome,
    alone: bool,
) -> Result<(), Failure> {
    Call::new(settings, holding, Ending::Settled { outcome, alone }).until_ended(port).await
}

/// What the transaction does with the lock.
#[derive(Debug)]
enum Ending {
    /// Renews the lock, which stays held.
    Renewed { data: DataChange },
    /// Releases the lock.
    Released { data: DataChange },
    /// Ends the grant by storing the outcome of its work.
    Settled { outcome: StoredOutcome, alone: bool },
}

struct Call<'a> {
    settings: &'a Settings,
    holding: &'a mut Holding,
    ending: Ending,
    retry: Retry,
    /// The last transaction, unless it will never be applied.
    sent: Option<Sent>,
    /// The last transaction may have been applied, or may still be.
    outcome_unknown: bool,
    /// Why the caller's writes were refused. Set while the same transaction is sent once more, to learn whether an
    /// earlier copy of it was applied.
    cancelled: Option<Vec<FailedWrite>>,
}

/// A transaction as it was first sent.
#[derive(Debug)]
struct Sent {
    request: Request,
    /// The version that a Commit writes.
    version: Version,
    first: Instants,
    /// What a Commit changes in the holding when it is applied.
    renewal: Option<renew::Attempt>,
}

impl<'a> Call<'a> {
    fn new(settings: &'a Settings, holding: &'a mut Holding, ending: Ending) -> Self {
        let retry = Retry::new();
        Self { settings, holding, ending, retry, sent: None, outcome_unknown: false, cancelled: None }
    }

    async fn until_ended(mut self, port: &mut impl Port) -> Result<(), Failure> {
        loop {
            let Ok(now) = self.retry.ready(port).await else { return Err(self.unless_unknown(Failure::Throttled)) };
            let request = self.transaction(port, &now)?;
            let (after, answer) = port.send(request).await;
            match answer {
                Answer::Applied(_) => return self.committed(port).await,
                Answer::ConditionFailed(row) | Answer::Found(row) => {
                    let (after, row) = match row {
                        Some(row) => (after, Some(row)),
                        None => self.look(port).await?,
                    };
                    if self.is_ours(after, row)? {
                        return self.committed(port).await;
                    }
                }
                Answer::Cancelled(failed) => {
                    if self.ruled_out(port, failed).await? {
                        return self.committed(port).await;
                    }
                }
                Answer::Rejected(rejection) => return Err(self.unless_unknown(Failure::Rejected(rejection))),
                Answer::Throttled => self.retry.throttled(),
                Answer::Unknown => {
                    self.repeat();
                    self.outcome_unknown = true;
                }
            }
        }
    }

    /// Returns the last transaction again, unless it will never be applied. Then returns a new one.
    fn transaction(&mut self, port: &mut impl Port, now: &Now) -> Result<Request, Failure> {
        if let Some(sent) = &self.sent {
            let repeatable = now.instants.longest_since(sent.first) < REPEATABLE;
            let again = repeatable.then(|| sent.request.clone());
            return again.ok_or_else(|| self.unless_unknown(Failure::Throttled));
        }
        let mut renewal = None;
        let action = match &self.ending {
            Ending::Renewed { data } => {
                let (action, attempt) = renew::attempt(port, self.settings, self.holding, data, now);
                self.holding.pending = Some(PendingCommit::Sent(self.holding.newest.stamp));
                renewal = Some(attempt);
                action
            }
            Ending::Released { data } => release(self.holding, data.clone(), now),
            Ending::Settled { outcome, .. } => store(port, self.holding, outcome.clone(), now),
        };
        let alone = matches!(self.ending, Ending::Settled { alone: true, .. });
        let transaction = (!alone).then(|| TransactionId::from_random(port.random()));
        let request = Request { key: self.holding.key.clone(), action, transaction };
        self.sent = Some(Sent { request: request.clone(), version: self.holding.newest, first: now.instants, renewal });
        Ok(request)
    }

    /// The lock's own condition did not hold, so this transaction was not applied. It never will be, because the row
    /// is past its version, lease and end. Returns whether an earlier copy had been applied. Fails unless the lock is
    /// still ours.
    fn is_ours(&mut self, after: Instants, row: Option<Item>) -> Result<bool, Failure> {
        if row.as_ref().is_some_and(|row| self.has_written(row)) {
            return Ok(true);
        }
        if self.outcome_unknown && self.is_forgotten(after) && !self.is_older_than_sent(row.as_ref()) {
            return Err(self.untold());
        }
        if self.outcome_unknown && row.as_ref().is_some_and(|row| self.is_unreadable(row)) {
            // An unreadable row does not prove that it is past this transaction. Once somebody repairs the row, an
            // earlier copy may be applied.
            return Err(Failure::OutcomeUnknown);
        }
        self.not_applied();
        renew::adopt(self.settings, self.holding, row)?;
        if let Some(failed) = self.cancelled.take() {
            return Err(Failure::Cancelled(failed));
        }
        self.retry.after_pause();
        Ok(false)
    }

    /// The caller's writes were refused. Returns whether an earlier copy of them was applied nevertheless. Fails if
    /// none was and none will be.
    async fn ruled_out(&mut self, port: &mut impl Port, failed: Vec<FailedWrite>) -> Result<bool, Failure> {
        let first = self.cancelled.take();
        if first.is_some() || !self.outcome_unknown {
            self.not_applied();
            return Err(Failure::Cancelled(first.unwrap_or(failed)));
        }
        let ours = self.sent.as_ref().map(|sent| sent.written_by(&self.ending));
        let recognises = |row: &Item| ours.as_ref().is_some_and(|ours| ours.is_on(row));
        let renewed = renew_unless(port, self.settings, self.holding, &DataChange::Keep, recognises).await;
        let pending = self.holding.pending;
        if renewed == Ok(Renewed::Recognised) {
            return Ok(true);
        }
        // Even if the transaction turns out to be applied, what the Renew found came later.
        if let Some(sent) = &mut self.sent {
            sent.renewal = None;
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
                self.holding.validity = LeaseValidity::none(port.now().instants);
            }
            Err(_) => return Err(Failure::OutcomeUnknown),
        }
        self.cancelled = Some(failed);
        self.retry.at_once();
        Ok(false)
    }

    async fn look(&mut self, port: &mut impl Port) -> Result<(Instants, Option<Item>), Failure> {
        self.repeat();
        look(port, &mut self.retry, &self.holding.key).await.map_err(|not_seen| match not_seen {
            NotSeen::OutOfTime => self.unless_unknown(Failure::Throttled),
            NotSeen::Rejected(rejection) => self.unless_unknown(Failure::Rejected(rejection)),
        })
    }

    /// Repeats a request: the first time at once, later after a pause.
    fn repeat(&mut self) {
        if self.outcome_unknown { self.retry.after_pause() } else { self.retry.at_once() }
    }

    /// The last transaction was not applied, and no copy of it ever will be.
    fn not_applied(&mut self) {
        self.sent = None;
        self.outcome_unknown = false;
        self.holding.pending = None;
    }

    async fn committed(mut self, port: &mut impl Port) -> Result<(), Failure> {
        let sent = self.sent.take();
        self.not_applied();
        if let Some(renewal) = sent.and_then(|sent| sent.renewal)
            && renewal.applied(&port.now(), self.settings, self.holding, Item::default()).is_continue()
        {
            // The writes are applied, whether or not this succeeds. The caller may drop the call meanwhile, and must then
            // be able to find out that they are.
            self.holding.pending = Some(PendingCommit::Applied);
            let _ = renew::renew(port, self.settings, self.holding, &DataChange::Keep).await;
            self.holding.pending = None;
        }
        Ok(())
    }

    /// Returns a failure that means that nothing was applied, or [`Failure::OutcomeUnknown`] while that is unknown.
    fn unless_unknown(&mut self, failure: Failure) -> Failure {
        if self.outcome_unknown {
            return Failure::OutcomeUnknown;
        }
        self.not_applied();
        failure
    }

    fn has_written(&self, row: &Item) -> bool {
        self.sent.as_ref().is_some_and(|sent| sent.written_by(&self.ending).is_on(row))
    }

    fn is_unreadable(&self, row: &Item) -> bool {
        !once::is_settled(row) && Record::read(row.clone(), &self.settings.schema).is_err()
    }

    /// Whether DynamoDB may no longer recognise the transaction's token.
    fn is_forgotten(&self, now: Instants) -> bool {
        self.sent.as_ref().is_some_and(|sent| now.longest_since(sent.first) >= REPEATABLE)
    }

    /// Whether this grant still holds the row, and last wrote it before the transaction was made. Then the
    /// transaction was not applied, whether or not DynamoDB still recognises its token.
    fn is_older_than_sent(&self, row: Option<&Item>) -> bool {
        let version = match row.and_then(|row| row.get(schema::VERSION)) {
            Some(Value::S(version)) => Version::parse(version),
            _ => None,
        };
        let is_held = row.is_some_and(|row| row.get(schema::RELEASED).is_none());
        let older =
            |(found, sent): (Version, &Sent)| found.grant == sent.version.grant && found.stamp < sent.version.stamp;
        is_held && version.zip(self.sent.as_ref()).is_some_and(older)
    }

    /// Neither the row nor DynamoDB can show the outcome of the transaction any more.
    fn untold(&mut self) -> Failure {
        if matches!(self.ending, Ending::Renewed { .. }) {
            self.holding.pending = Some(PendingCommit::Untold);
        }
        Failure::OutcomeUnknown
    }
}

/// The version that an applied transaction leaves on the row, or what it begins with, if that identifies it.
struct Trace(Option<String>);

impl Trace {
    fn is_on(&self, row: &Item) -> bool {
        matches!((row.get(schema::VERSION), &self.0), (Some(Value::S(found)), Some(trace)) if found.starts_with(trace))
    }
}

impl Sent {
    fn written_by(&self, ending: &Ending) -> Trace {
        Trace(match ending {
            Ending::Renewed { .. } => Some(self.version.text()),
            // A grant is settled once. Any version of it is ours: an earlier attempt that was refused for now may have
            // been delivered twice.
            Ending::Settled { .. } => Some(self.version.grant.settled_versions()),
            // A release writes no version of its own.
            Ending::Released { .. } => None,
        })
    }
}

/// Returns the release in a transaction.
fn release(holding: &Holding, data: DataChange, now: &Now) -> Action {
    let scope = Scope::Mine { grant: holding.newest.grant, up_to: holding.seen, token: Some(holding.token) };
    let ends_at_ms = now.wall.written.max(holding.newest.stamp.millis() + 1);
    Action::Release { scope, ends_at_ms, data, keep: holding.keep }
}

/// Returns the write of the outcome, which is part of a transaction or goes alone.
fn store(port: &mut impl Port, holding: &mut Holding, outcome: StoredOutcome, now: &Now) -> Action {
    holding.newest.stamp = Stamp::after(Some(holding.newest.stamp), now.wall.millis, port.random_u16());
    let (version, token, keep) = (holding.newest, holding.token, holding.keep.unwrap_or_default());
    Action::Settle { version, token, outcome, now: now.wall.written, keep }
}
