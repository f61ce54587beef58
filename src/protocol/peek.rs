//! Peek: read who holds a lock, and change nothing.

use super::backoff::Faults;
use super::key::LockKey;
use super::machine::{Answer, Machine, Rejection, Step, Tick};
use super::moment::Moment;
use super::once::OnceRecord;
use super::record::{InvalidRecord, Record};
use super::request::{Action, Request};
use super::schema::Schema;
use super::settings::Settings;
use super::value::Item;

/// How a peek ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PeekVerdict<R = Record> {
    /// What the row says; `None` where there is no row.
    Seen(Option<R>),
    /// The row is not a lock record.
    InvalidRecord(InvalidRecord),
    /// DynamoDB will not take the request.
    Rejected(Rejection),
    /// DynamoDB refuses for now.
    Unavailable,
    /// No answer came.
    Unknown,
}

/// The decision behind peek.
#[derive(Debug)]
pub struct Peeking<'a, R = Record> {
    settings: &'a Settings,
    key: LockKey,
    read: fn(Item, &Schema) -> Result<R, InvalidRecord>,
    faults: Faults,
    verdict: Option<PeekVerdict<R>>,
}

impl<'a> Peeking<'a> {
    /// Reads this lock's row.
    pub fn new(settings: &'a Settings, key: LockKey) -> Self {
        Self { settings, key, read: Record::read, faults: Faults::none(), verdict: None }
    }
}

impl<'a> Peeking<'a, OnceRecord> {
    /// Reads the record of an idempotent work.
    pub fn once(settings: &'a Settings, key: LockKey) -> Self {
        Self { settings, key, read: OnceRecord::read, faults: Faults::none(), verdict: None }
    }
}

impl<R> Machine for Peeking<'_, R> {
    type Verdict = PeekVerdict<R>;

    fn step(&mut self, tick: &Tick<'_>) -> Step<PeekVerdict<R>> {
        if let Some(verdict) = self.verdict.take() {
            return Step::Done(verdict);
        }
        match self.faults.due_pause(tick) {
            Err(_) if self.faults.was_unavailable() => Step::Done(PeekVerdict::Unavailable),
            Err(_) => Step::Done(PeekVerdict::Unknown),
            Ok(Some(pause)) => Step::Wait(pause),
            Ok(None) => Step::Send(Request::alone(self.key.clone(), Action::Peek)),
        }
    }

    fn answered(&mut self, _after: Moment, answer: Answer) {
        match answer {
            Answer::Found(row) => {
                let record = row.map(|row| (self.read)(row, &self.settings.schema)).transpose();
                self.verdict = Some(record.map_or_else(PeekVerdict::InvalidRecord, PeekVerdict::Seen));
            }
            Answer::Rejected(rejection) => self.verdict = Some(PeekVerdict::Rejected(rejection)),
            Answer::Unavailable => self.faults.unavailable(),
            Answer::Unknown | Answer::Applied(_) | Answer::Refused(_) | Answer::Cancelled(_) => {
                self.faults.go_on_after_pause();
            }
        }
    }
}
