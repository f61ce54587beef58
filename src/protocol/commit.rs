//! Commit: the caller's writes and the lock's own write in one transaction, all of them or none.
//!
//! ```text
//! the lock's write is a Renew (Commit), a Release (Commit and release), or stores the outcome of an
//! idempotent work (Settle, also alone)
//!  ├ applied ............................ committed
//!  ├ the lock's condition is refused
//!  │   ├ the row has this very version ... committed (an earlier attempt had been applied)
//!  │   ├ a copy of ours wrote it ......... take over what it wrote, and try again as a new transaction
//!  │   ├ anything else ................... lost, nothing was applied
//!  │   └ no row came with it ............. Peek, then as above
//!  ├ the caller's writes are refused ..... cancelled, nothing was applied
//!  ├ a conflict, or throttled ............ not applied: try again as a new transaction
//!  └ nobody answers ...................... the same transaction again: same token, same content
//! ```
//!
//! Once an attempt's outcome is unknown it is never sent as a *new* transaction: both might be
//! applied. DynamoDB recognises the token for ten minutes, so it is not repeated for longer than that
//! either; and a refusal that is heard later does not prove that no copy was applied.
//!
//! When the caller's writes are refused while an earlier copy may still be on its way, a Renew goes in
//! between: it leaves a newer version on the row, so that the copy is refused. The version that the Renew
//! replaces tells whether the copy had been applied. Where it does not tell, the same transaction is sent
//! again: DynamoDB recognises one that it has applied, and refuses the other one because of the row.

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

/// For how long a transaction is repeated: well within the ten minutes for which DynamoDB recognises
/// its token (AWS documents them with `TransactWriteItems`).
const REPEATABLE: Duration = Duration::from_secs(8 * 60);

/// Applies the caller's writes. The lock stays held and is renewed.
pub async fn commit(
    port: &mut impl Port,
    settings: &Settings,
    holding: &mut Holding,
    data: DataChange,
) -> Result<(), Failure> {
    Call::new(settings, holding, Ending::Renewed { data }).until_ended(port).await
}

/// Applies the caller's writes, and gives the lock back with them. The guard is over from the first request on.
pub async fn commit_and_release(
    port: &mut impl Port,
    settings: &Settings,
    holding: &mut Holding,
    data: DataChange,
) -> Result<(), Failure> {
    Call::new(settings, holding, Ending::Released { data }).until_ended(port).await
}

/// Stores the outcome of an idempotent work, which ends the grant: alone, or with the caller's writes. The guard is
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

/// What becomes of the lock.
#[derive(Debug)]
enum Ending {
    /// It stays held.
    Renewed { data: DataChange },
    /// It is given back.
    Released { data: DataChange },
    /// It ends with the outcome of its work.
    Settled { outcome: StoredOutcome, alone: bool },
}

struct Call<'a> {
    settings: &'a Settings,
    holding: &'a mut Holding,
    ending: Ending,
    retry: Retry,
    /// The last transaction.
    sent: Option<Sent>,
    /// The last transaction may have been applied, or may be even now.
    outcome_unknown: bool,
    /// Why the caller's writes were refused, while the same transaction is sent once more to learn whether an
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
    /// What a Commit changes in the holding once it is applied.
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
                Answer::Applied(_) => return self.committed(),
                Answer::ConditionFailed(row) | Answer::Found(row) => {
                    let (after, row) = match row {
                        Some(row) => (after, Some(row)),
                        None => self.look(port).await?,
                    };
                    if self.is_ours(after, row)? {
                        return self.committed();
                    }
                }
                Answer::Cancelled(failed) => {
                    if self.ruled_out(port, failed).await? {
                        return self.committed();
                    }
                }
                Answer::Rejected(rejection) => return Err(self.unless_unknown(Failure::Rejected(rejection))),
                Answer::Throttled => {
                    if !self.outcome_unknown {
                        self.not_applied();
                    }
                    self.retry.throttled();
                }
                Answer::Unknown => {
                    self.repeat();
                    self.outcome_unknown = true;
                }
            }
        }
    }

    /// The same transaction again while the outcome of the last one is unknown, else a new one.
    fn transaction(&mut self, port: &mut impl Port, now: &Now) -> Result<Request, Failure> {
        if let Some(sent) = self.sent.as_ref().filter(|_| self.outcome_unknown) {
            let repeatable = now.instants.longest_since(sent.first) < REPEATABLE;
            return if repeatable { Ok(sent.request.clone()) } else { Err(Failure::OutcomeUnknown) };
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

    /// The lock's own condition did not hold, so nothing was applied; nor will it be, because the row is past the
    /// version, lease and end that this transaction asks for. Returns whether it had been applied before, and fails
    /// unless the lock is still ours.
    fn is_ours(&mut self, after: Instants, row: Option<Item>) -> Result<bool, Failure> {
        if row.as_ref().is_some_and(|row| self.has_written(row)) {
            return Ok(true);
        }
        if self.outcome_unknown && self.is_forgotten(after) && !self.is_older_than_sent(row.as_ref()) {
            return Err(self.untold());
        }
        if self.outcome_unknown && row.as_ref().is_some_and(|row| self.is_unreadable(row)) {
            // What cannot be read is not past this transaction: when it is repaired, an earlier copy may be applied.
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

    /// The caller's writes were refused. Returns whether an earlier copy of them was applied all the same, or fails if
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
        match renewed {
            Ok(Renewed::Recognised) => return Ok(true),
            Ok(Renewed::Renewed) if pending == Some(PendingCommit::Applied) => {
                // The Renew came after it, and has told the holding all that the commit would.
                if let Some(sent) = &mut self.sent {
                    sent.renewal = None;
                }
                return Ok(true);
            }
            // A commit and release that was applied would have refused the Renew.
            Ok(Renewed::Renewed) if matches!(pending, Some(PendingCommit::NotApplied) | None) => {
                self.not_applied();
                return Err(Failure::Cancelled(failed));
            }
            // The row has not told. DynamoDB still knows whether it has applied the transaction.
            Ok(Renewed::Renewed) | Err(Failure::InvalidRecord(_)) => {}
            Err(Failure::Lost) => {
                // Also if the transaction was applied: that was before.
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

    /// The first repetition goes at once. Later ones pause.
    fn repeat(&mut self) {
        if self.outcome_unknown { self.retry.after_pause() } else { self.retry.at_once() }
    }

    /// The last transaction was not applied, and no copy of it ever will be.
    fn not_applied(&mut self) {
        self.outcome_unknown = false;
        self.holding.pending = None;
    }

    fn committed(mut self) -> Result<(), Failure> {
        self.not_applied();
        if let Some(renewal) = self.sent.take().and_then(|sent| sent.renewal) {
            renewal.applied(self.settings, self.holding, Item::default());
        }
        Ok(())
    }

    /// A failure that says that nothing was applied, unless that is not known.
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

    /// Whether DynamoDB may have forgotten the transaction's token by now.
    fn is_forgotten(&self, now: Instants) -> bool {
        self.sent.as_ref().is_some_and(|sent| now.longest_since(sent.first) >= REPEATABLE)
    }

    /// Whether the row is still held by this grant, and was written last before the transaction was made: then
    /// that was not applied, whatever DynamoDB remembers.
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

    /// Neither the row nor DynamoDB tells any more what became of the transaction.
    fn untold(&mut self) -> Failure {
        if matches!(self.ending, Ending::Renewed { .. }) {
            self.holding.pending = Some(PendingCommit::Untold);
        }
        Failure::OutcomeUnknown
    }
}

/// What a transaction that was applied leaves on the row, where that tells it from others.
struct Trace(Option<String>);

impl Trace {
    fn is_on(&self, row: &Item) -> bool {
        matches!((row.get(schema::VERSION), &self.0), (Some(Value::S(found)), Some(trace)) if found == trace)
    }
}

impl Sent {
    fn written_by(&self, ending: &Ending) -> Trace {
        Trace(match ending {
            Ending::Renewed { .. } => Some(self.version.text()),
            Ending::Settled { .. } => Some(self.version.settled()),
            // A release leaves no version of its own.
            Ending::Released { .. } => None,
        })
    }
}

/// Release's part of a transaction.
fn release(holding: &Holding, data: DataChange, now: &Now) -> Action {
    let scope = Scope::Mine { grant: holding.newest.grant, up_to: holding.seen, token: Some(holding.token) };
    let ends_at_ms = now.wall.written.max(holding.newest.stamp.millis() + 1);
    Action::Release { scope, ends_at_ms, data, keep: holding.keep }
}

/// The outcome's part of a transaction, or all there is of it.
fn store(port: &mut impl Port, holding: &mut Holding, outcome: StoredOutcome, now: &Now) -> Action {
    holding.newest.stamp = Stamp::after(Some(holding.newest.stamp), now.wall.millis, port.random_u16());
    let (version, token, keep) = (holding.newest, holding.token, holding.keep.unwrap_or_default());
    Action::Settle { version, token, outcome, now: now.wall.written, keep }
}
