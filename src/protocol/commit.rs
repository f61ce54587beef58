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

use super::backoff::Faults;
use super::holding::{Belief, Holding, PendingCommit};
use super::machine::{Answer, FailedWrite, Machine, Rejection, Step, Tick};
use super::moment::Moment;
use super::once;
use super::record::{InvalidRecord, Record};
use super::renew::{RenewVerdict, Renewal};
use super::request::{Action, DataChange, Request, Scope, StoredOutcome, TransactionId};
use super::schema;
use super::settings::Settings;
use super::value::{Item, Value};
use super::version::{Stamp, Version};
use std::time::Duration;

/// For how long a transaction is repeated: well within the ten minutes for which DynamoDB recognises
/// its token (AWS documents them with `TransactWriteItems`).
const REPEATABLE: Duration = Duration::from_secs(8 * 60);

/// How a commit ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CommitVerdict {
    /// The caller's writes were applied, and the lock's own with them.
    Committed,
    /// Nothing was applied: another grant has the lock, or it was released.
    Lost,
    /// Nothing was applied: the caller's own writes were refused. The lock is held as before.
    Cancelled(Vec<FailedWrite>),
    /// Nothing was applied: the row is not a lock record.
    InvalidRecord(InvalidRecord),
    /// Nothing was applied: DynamoDB will not take the request.
    Rejected(Rejection),
    /// Nothing was applied: DynamoDB refuses for now.
    Unavailable,
    /// Nobody knows whether everything or nothing was applied.
    Unknown,
}

/// The decision behind commit, and commit and release.
#[derive(Debug)]
pub struct Committing<'a> {
    renewal: Renewal<'a>,
    ending: Ending,
    data: DataChange,
    sent: Option<Sent>,
    faults: Faults,
    /// The last transaction may have been applied, or may be even now.
    unsettled: bool,
    /// Why the caller's writes were refused, while it is found out whether an earlier copy of them was applied.
    cancelled: Option<Cancelled>,
    /// A refusal brought no row: look at it before anything is concluded.
    looks: bool,
    verdict: Option<CommitVerdict>,
}

/// What becomes of the lock.
#[derive(Debug)]
enum Ending {
    /// It goes on, renewed.
    Renewed,
    /// It is given back.
    Released,
    /// It ends with the outcome of its work.
    Settled { outcome: StoredOutcome, alone: bool },
}

/// A transaction that was cancelled because of the caller's writes, after an attempt that had no answer.
#[derive(Debug)]
struct Cancelled {
    failed: Vec<FailedWrite>,
    /// A Renew has been at the row, so the same transaction is sent to ask what became of it.
    renewed: bool,
}

/// A transaction as it was first sent.
#[derive(Debug)]
struct Sent {
    request: Request,
    /// The version that a Commit writes.
    version: Version,
    first: Moment,
}

impl<'a> Committing<'a> {
    /// The caller's writes, while the lock stays held and is renewed.
    pub fn renewing(settings: &'a Settings, holding: &'a mut Holding, data: DataChange) -> Self {
        Self::new(settings, holding, data, Ending::Renewed)
    }

    /// The caller's writes, and the lock is given back with them. The guard is over from the first
    /// request on.
    pub fn releasing(settings: &'a Settings, holding: &'a mut Holding, data: DataChange) -> Self {
        Self::new(settings, holding, data, Ending::Released)
    }

    /// Stores the outcome of an idempotent work, which ends the grant: alone, or with the caller's
    /// writes. The guard is over from the first request on.
    pub fn settling(settings: &'a Settings, holding: &'a mut Holding, outcome: StoredOutcome, alone: bool) -> Self {
        Self::new(settings, holding, DataChange::Remove, Ending::Settled { outcome, alone })
    }

    fn new(settings: &'a Settings, holding: &'a mut Holding, data: DataChange, ending: Ending) -> Self {
        Self {
            renewal: Renewal::new(settings, holding, data.clone()),
            ending,
            data,
            sent: None,
            faults: Faults::none(),
            unsettled: false,
            cancelled: None,
            looks: false,
            verdict: None,
        }
    }

    /// The same transaction again while the outcome of the last one is unknown, else a new one.
    fn transaction(&mut self, tick: &Tick<'_>) -> Step<CommitVerdict> {
        if let Some(sent) = self.sent.as_ref().filter(|_| self.unsettled) {
            return if tick.now.longest_since(sent.first) < REPEATABLE {
                Step::Send(sent.request.clone())
            } else {
                Step::Done(CommitVerdict::Unknown)
            };
        }
        let part = match &self.ending {
            Ending::Renewed => {
                let renew = self.renewal.request(tick);
                self.renewal.holding.pending = Some(PendingCommit::Sent(self.renewal.holding.newest.stamp));
                renew
            }
            Ending::Released => release(self.renewal.holding, self.data.clone(), tick),
            Ending::Settled { outcome, .. } => settle(self.renewal.holding, outcome.clone(), tick),
        };
        let alone = matches!(self.ending, Ending::Settled { alone: true, .. });
        let transaction = (!alone).then(|| TransactionId::from_random((tick.random)()));
        let request = Request { transaction, ..part };
        self.sent = Some(Sent { request: request.clone(), version: self.renewal.holding.newest, first: tick.now });
        Step::Send(request)
    }

    /// The last transaction was not applied, and no copy of it ever will be.
    fn not_applied(&mut self) {
        self.unsettled = false;
        self.renewal.holding.pending = None;
    }

    fn finish(&mut self, verdict: CommitVerdict) {
        self.verdict = Some(verdict);
    }

    /// What an answer means to a transaction.
    fn transacted(&mut self, after: Moment, answer: Answer) {
        match answer {
            Answer::Applied(_) => self.committed(),
            Answer::Refused(None) => {
                self.go_on();
                self.looks = true;
            }
            Answer::Refused(row) | Answer::Found(row) => {
                self.looks = false;
                self.refused(after, row);
            }
            Answer::Cancelled(_) if self.cancelled.is_some() => self.not_applied_after_all(),
            Answer::Cancelled(failed) if self.unsettled => {
                self.faults.go_on_at_once();
                self.cancelled = Some(Cancelled { failed, renewed: false });
            }
            Answer::Cancelled(failed) => {
                self.not_applied();
                self.finish(CommitVerdict::Cancelled(failed));
            }
            Answer::Unavailable => {
                if !self.unsettled {
                    self.not_applied();
                }
                self.faults.unavailable();
            }
            Answer::Rejected(_) if self.unsettled => self.finish(CommitVerdict::Unknown),
            Answer::Rejected(rejection) => {
                self.not_applied();
                self.finish(CommitVerdict::Rejected(rejection));
            }
            Answer::Unknown => {
                self.go_on();
                self.unsettled |= !self.looks;
            }
        }
    }

    /// The first repetition goes at once; then pauses.
    fn go_on(&mut self) {
        if self.unsettled || self.looks { self.faults.go_on_after_pause() } else { self.faults.go_on_at_once() }
    }

    fn committed(&mut self) {
        self.not_applied();
        if matches!(self.ending, Ending::Renewed) {
            self.renewal.applied(Item::default());
        }
        self.finish(CommitVerdict::Committed);
    }

    /// The lock's own condition did not hold, so nothing was applied; nor will it be, because the
    /// row is past the version, lease and end that this transaction asks for.
    fn refused(&mut self, after: Moment, row: Option<Item>) {
        if self.is_our_commit(row.as_ref()) {
            return self.committed();
        }
        if self.unsettled && self.is_forgotten(after) && !self.is_older_than_sent(row.as_ref()) {
            return self.untold();
        }
        if self.unsettled && row.as_ref().is_some_and(|row| self.is_unreadable(row)) {
            // What cannot be read is not past this transaction: when it is repaired, an earlier copy may be applied.
            return self.finish(CommitVerdict::Unknown);
        }
        self.not_applied();
        self.renewal.refused(row);
        match self.renewal.take_verdict() {
            // Still ours.
            None if self.cancelled.is_some() => self.not_applied_after_all(),
            None => self.faults.go_on_after_pause(),
            Some(RenewVerdict::InvalidRecord(invalid)) => self.finish(CommitVerdict::InvalidRecord(invalid)),
            Some(_) => self.finish(CommitVerdict::Lost),
        }
    }

    fn is_unreadable(&self, row: &Item) -> bool {
        !once::is_settled(row) && Record::read(row.clone(), &self.renewal.settings.schema).is_err()
    }

    /// Whether DynamoDB may have forgotten the transaction's token by now.
    fn is_forgotten(&self, now: Moment) -> bool {
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
    fn untold(&mut self) {
        if matches!(self.ending, Ending::Renewed) {
            self.renewal.holding.pending = Some(PendingCommit::Untold);
        }
        self.finish(CommitVerdict::Unknown);
    }

    /// The caller's writes were refused, and no copy of them was applied before.
    fn not_applied_after_all(&mut self) {
        self.not_applied();
        let failed = self.cancelled.take().map(|cancelled| cancelled.failed);
        self.finish(CommitVerdict::Cancelled(failed.unwrap_or_default()));
    }

    fn is_our_commit(&self, row: Option<&Item>) -> bool {
        let (Some(Value::S(version)), Some(sent)) = (row.and_then(|row| row.get(schema::VERSION)), &self.sent) else {
            return false;
        };
        match self.ending {
            Ending::Renewed => *version == sent.version.text(),
            Ending::Settled { .. } => *version == sent.version.settled(),
            // A release leaves no version of its own.
            Ending::Released => false,
        }
    }

    /// What an answer means to the Renew that follows a refusal of the caller's writes.
    fn renewed(&mut self, after: Moment, answer: Answer) {
        if let Answer::Refused(row) = &answer
            && self.is_our_commit(row.as_ref())
        {
            return self.committed();
        }
        self.renewal.answered(after, answer);
        match self.renewal.take_verdict() {
            None => {}
            Some(RenewVerdict::Renewed) => match self.renewal.holding.pending {
                Some(PendingCommit::Applied) => {
                    self.not_applied();
                    self.finish(CommitVerdict::Committed);
                }
                // A commit and release that was applied would have refused the Renew.
                Some(PendingCommit::NotApplied) | None => self.not_applied_after_all(),
                Some(PendingCommit::Untold | PendingCommit::Sent(_)) => self.ask_again(),
            },
            Some(RenewVerdict::Lost) => {
                // Also if the transaction was applied: that was before.
                self.renewal.holding.belief = Belief::none(after);
                self.ask_again();
            }
            Some(RenewVerdict::InvalidRecord(_)) => self.ask_again(),
            Some(RenewVerdict::Rejected(_) | RenewVerdict::Unavailable | RenewVerdict::Unknown) => {
                self.finish(CommitVerdict::Unknown);
            }
        }
    }

    /// The row has not told: DynamoDB still knows whether it has applied the transaction.
    fn ask_again(&mut self) {
        if let Some(cancelled) = &mut self.cancelled {
            cancelled.renewed = true;
        }
        self.faults.go_on_at_once();
    }

    /// Whether a Renew is to find out what became of the transaction.
    fn renews(&self) -> bool {
        self.cancelled.as_ref().is_some_and(|cancelled| !cancelled.renewed)
    }

    fn give_up(&self) -> CommitVerdict {
        if self.unsettled { CommitVerdict::Unknown } else { CommitVerdict::Unavailable }
    }
}

/// Release's part of a transaction.
fn release(holding: &Holding, data: DataChange, tick: &Tick<'_>) -> Request {
    let scope = Scope::Mine { grant: holding.newest.grant, up_to: holding.seen, token: Some(holding.token) };
    let ends = tick.wall.written.max(holding.newest.stamp.millis() + 1);
    Request::alone(holding.key.clone(), Action::Release { scope, ends, data, keep: holding.keep })
}

/// The outcome's part of a transaction, or all there is of it.
fn settle(holding: &mut Holding, outcome: StoredOutcome, tick: &Tick<'_>) -> Request {
    let now = tick.wall.written;
    holding.newest.stamp = Stamp::after(Some(holding.newest.stamp), tick.wall.millis, tick.random_u16());
    let (version, token, keep) = (holding.newest, holding.token, holding.keep.unwrap_or_default());
    Request::alone(holding.key.clone(), Action::Settle { version, token, outcome, now, keep })
}

impl Machine for Committing<'_> {
    type Verdict = CommitVerdict;

    fn step(&mut self, tick: &Tick<'_>) -> Step<CommitVerdict> {
        if let Some(verdict) = self.verdict.take() {
            return Step::Done(verdict);
        }
        if self.renews() {
            return match self.renewal.step(tick) {
                Step::Send(request) => Step::Send(request),
                Step::Wait(pause) => Step::Wait(pause),
                Step::Done(_) => Step::Done(CommitVerdict::Unknown),
            };
        }
        match self.faults.due_pause(tick) {
            Err(_) => Step::Done(self.give_up()),
            Ok(Some(pause)) => Step::Wait(pause),
            Ok(None) if self.looks => Step::Send(Request::alone(self.renewal.holding.key.clone(), Action::Peek)),
            Ok(None) => self.transaction(tick),
        }
    }

    fn answered(&mut self, after: Moment, answer: Answer) {
        if self.renews() { self.renewed(after, answer) } else { self.transacted(after, answer) }
    }
}
