//! Renew: go on holding. Safe to repeat, and never shortens the lease that others count.
//!
//! ```text
//! Renew
//!  ├ applied ............................ renewed
//!  ├ refused with the row
//!  │   ├ a copy of ours wrote it ........ take over what it wrote, and Renew again
//!  │   └ anything else .................. lost
//!  ├ refused without a row .............. Peek: no row → lost; else as above
//!  ├ rejected ........................... so, unless an earlier attempt has no answer: then unknown
//!  └ nobody answers ..................... Renew again, with a newer version
//! ```

use super::backoff::Faults;
use super::holding::{Belief, Holding};
use super::lease::Lease;
use super::machine::{Answer, Machine, Rejection, Step, Tick};
use super::moment::{Moment, millis_rounded_up};
use super::once;
use super::record::{InvalidRecord, Record};
use super::request::{Action, DataChange, Request};
use super::schema;
use super::settings::Settings;
use super::value::{Item, Value};
use super::version::{Stamp, Version};
use std::time::Duration;

/// How a renewal ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RenewVerdict {
    /// The lock is still ours, for a whole lease from the moment before the request.
    Renewed,
    /// Another grant has it, or it was released.
    Lost,
    /// The row is not a lock record.
    InvalidRecord(InvalidRecord),
    /// DynamoDB will not take the request.
    Rejected(Rejection),
    /// DynamoDB refuses for now; nothing was applied.
    Unavailable,
    /// Nobody knows whether the lease was renewed. What the guard believed before, it may go on
    /// believing.
    Unknown,
}

/// The decision behind checkpoint, renew and resume.
#[derive(Debug)]
pub struct Renewal<'a> {
    pub(super) settings: &'a Settings,
    pub(super) holding: &'a mut Holding,
    data: DataChange,
    sent: Option<Attempt>,
    faults: Faults,
    /// It is not the first request any more: the next one but one pauses.
    repeats: bool,
    /// An attempt had no answer, so it may have been applied.
    unknown: bool,
    /// A refusal brought no row: look at it before anything is concluded.
    looks: bool,
    verdict: Option<RenewVerdict>,
}

#[derive(Debug)]
struct Attempt {
    stamp: Stamp,
    started: Moment,
    now: u64,
    lease: Lease,
    ends: u64,
}

impl<'a> Renewal<'a> {
    /// A renewal of this lock. The lease asked for comes with each [`Tick`].
    pub fn new(settings: &'a Settings, holding: &'a mut Holding, data: DataChange) -> Self {
        Self {
            settings,
            holding,
            data,
            sent: None,
            faults: Faults::none(),
            repeats: false,
            unknown: false,
            looks: false,
            verdict: None,
        }
    }

    /// A new attempt: a version never used before, counted from before it is sent.
    pub(super) fn request(&mut self, tick: &Tick<'_>) -> Request {
        let stamp = Stamp::after(Some(self.holding.newest.stamp), tick.wall.millis, tick.random_u16());
        let longer = tick.lease > self.holding.lease.duration();
        let lease = if longer { self.settings.lease(tick.lease) } else { self.holding.lease.clone() };
        let wanted_end = tick.wall.written.saturating_add(millis_rounded_up(lease.duration()));
        let ends = wanted_end.min(tick.latest_end.unwrap_or(u64::MAX)).max(self.holding.ends);
        self.holding.newest.stamp = stamp;
        self.sent = Some(Attempt { stamp, started: tick.now, now: tick.wall.written, lease: lease.clone(), ends });
        let action = Action::Renew {
            version: self.holding.newest,
            token: self.holding.token,
            known_lease: self.holding.lease.clone(),
            lease,
            ends,
            data: self.data.clone(),
            keep: self.holding.keep,
        };
        Request::alone(self.holding.key.clone(), action)
    }

    /// The lease counts from before the request. What the write replaced settles an earlier commit.
    pub(super) fn applied(&mut self, mut replaced: Item) {
        let replaced = match replaced.remove(schema::VERSION) {
            Some(Value::S(version)) => Version::parse(&version),
            _ => None,
        };
        let grant = self.holding.newest.grant;
        self.holding.pending = self.holding.pending.map(|commit| commit.settled_by(replaced, grant));
        let Some(Attempt { stamp, started, now, lease, ends }) = self.sent.take() else { return };
        let until_end = Duration::from_millis(ends.saturating_sub(now));
        self.holding.belief = Belief::of(started, &lease, until_end, &self.settings.rules);
        self.holding.seen = stamp;
        self.holding.lease = lease;
        self.holding.ends = ends;
        self.verdict = Some(RenewVerdict::Renewed);
    }

    /// Refused: either the grant is over, or a copy of ours knows more than we do.
    pub(super) fn refused(&mut self, row: Option<Item>) {
        // Nothing of it is on the row, whatever turns out to have been applied before.
        self.sent = None;
        if row.as_ref().is_some_and(once::is_settled) {
            return self.verdict = Some(RenewVerdict::Lost);
        }
        let record = match row.map(|row| Record::read(row, &self.settings.schema)) {
            None => return self.verdict = Some(RenewVerdict::Lost),
            Some(Err(invalid)) => return self.verdict = Some(RenewVerdict::InvalidRecord(invalid)),
            Some(Ok(record)) => record,
        };
        match record.own_version {
            Some(version) if self.is_still_ours(version, &record) => self.adopt(version, record),
            _ => self.verdict = Some(RenewVerdict::Lost),
        }
    }

    pub(super) fn take_verdict(&mut self) -> Option<RenewVerdict> {
        self.verdict.take()
    }

    fn is_still_ours(&self, version: Version, record: &Record) -> bool {
        version.grant == self.holding.newest.grant && record.token == Some(self.holding.token) && !record.released
    }

    /// Takes over what a copy of this grant wrote, and tries again.
    fn adopt(&mut self, version: Version, record: Record) {
        let newest = &mut self.holding.newest.stamp;
        *newest = version.stamp.max(*newest);
        self.holding.seen = version.stamp;
        self.holding.ends = self.holding.ends.max(record.ends.unwrap_or(0));
        self.holding.lease = record.lease;
        self.repeats = true;
    }

    /// The first repetition goes at once; then pauses, also so as not to race a busy copy of ours.
    fn go_on(&mut self) {
        if self.repeats { self.faults.go_on_after_pause() } else { self.faults.go_on_at_once() }
    }

    fn give_up(&self) -> RenewVerdict {
        if self.faults.was_unavailable() && !self.unknown { RenewVerdict::Unavailable } else { RenewVerdict::Unknown }
    }
}

impl Machine for Renewal<'_> {
    type Verdict = RenewVerdict;

    fn step(&mut self, tick: &Tick<'_>) -> Step<RenewVerdict> {
        if let Some(verdict) = self.verdict.take() {
            return Step::Done(verdict);
        }
        match self.faults.due_pause(tick) {
            Err(_) => Step::Done(self.give_up()),
            Ok(Some(pause)) => Step::Wait(pause),
            Ok(None) if self.looks => Step::Send(Request::alone(self.holding.key.clone(), Action::Peek)),
            Ok(None) => Step::Send(self.request(tick)),
        }
    }

    fn answered(&mut self, _after: Moment, answer: Answer) {
        match answer {
            Answer::Applied(replaced) => self.applied(replaced),
            Answer::Refused(None) => {
                self.go_on();
                (self.repeats, self.looks) = (true, true);
            }
            Answer::Refused(row) | Answer::Found(row) => {
                self.looks = false;
                self.go_on();
                self.refused(row);
            }
            Answer::Unavailable => self.faults.unavailable(),
            Answer::Rejected(_) if self.unknown => self.verdict = Some(RenewVerdict::Unknown),
            Answer::Rejected(rejection) => self.verdict = Some(RenewVerdict::Rejected(rejection)),
            Answer::Unknown | Answer::Cancelled(_) => {
                // Safe to repeat: the next attempt has a newer stamp of the same grant.
                self.go_on();
                self.repeats = true;
                self.unknown |= !self.looks;
            }
        }
    }
}
