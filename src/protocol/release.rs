//! Release: give the lock back, and never anybody else's.
//!
//! ```text
//! Release (for a workflow: Peek first)
//!  ├ applied ............................ released
//!  ├ refused with the row
//!  │   ├ a copy of ours renewed it ...... Release that version
//!  │   ├ the owner's, where that counts . Release that version, or it is free already
//!  │   └ anything else .................. lost before, or gone: see below
//!  ├ refused without a row .............. Peek: no row → as above
//!  ├ the payload is not taken ........... Release without it
//!  ├ rejected ........................... so, unless an earlier attempt has no answer: then unknown
//!  └ nobody answers ..................... Release again
//! ```
//!
//! Whoever finds another grant on the row has lost the lock before, if each of its releases was answered. If one
//! was not, it may have been applied, and the other grant came after it.

use super::backoff::Faults;
use super::holding::Holding;
use super::key::LockKey;
use super::machine::{Answer, Machine, Rejection, Step, Tick};
use super::moment::Moment;
use super::once;
use super::record::{InvalidRecord, Record};
use super::request::{Action, DataChange, Request, Scope};
use super::settings::Settings;
use super::value::Item;
use super::version::{Grant, Stamp};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// How a release ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReleaseVerdict {
    /// The lock is free.
    Released,
    /// The lock is free, and the row keeps the payload that it had: DynamoDB did not take the new one, and said this.
    ReleasedWithoutData(String),
    /// The grant was over before this release: another one has the row, or the row is gone.
    Lost,
    /// The grant is no longer the row's: released and taken since, or lost before; nobody can
    /// tell which.
    AlreadyGone,
    /// The row is not a lock record.
    InvalidRecord(InvalidRecord),
    /// DynamoDB will not take the request.
    Rejected(Rejection),
    /// DynamoDB refuses for now; nothing was applied.
    Unavailable,
    /// Nobody knows whether the lock is free; its lease frees it.
    Unknown,
}

/// The decision behind every way to give a lock back.
#[derive(Debug)]
pub struct Releasing<'a> {
    settings: &'a Settings,
    key: LockKey,
    whose: Whose,
    /// The newest stamp known of the grant: the release ends after it.
    newest: Option<Stamp>,
    /// What to end next; `None`: look at the row first.
    scope: Option<Scope>,
    data: DataChange,
    /// Why the payload was left out.
    left_out: Option<String>,
    /// For an idempotent work: how long after its lease the record counts.
    keep: Option<Duration>,
    delete: bool,
    faults: Faults,
    /// It is not the first request any more: the next one but one pauses.
    repeats: bool,
    /// Whether a write of unknown outcome was sent.
    wrote: bool,
    /// A refusal brought no row: look at it before anything is concluded.
    looks: bool,
    verdict: Option<ReleaseVerdict>,
}

/// Whose grant is to end.
#[derive(Debug)]
enum Whose {
    /// This one.
    Mine { grant: Grant, token: u64 },
    /// This one, or a later one of the same owner.
    OwnersToo { grant: Grant, token: u64, owner: String },
    /// Whichever this workflow holds, but for owners that are spared.
    Workflows { workflow: String, spared: Spared },
}

/// Owners whose grants a release for a workflow leaves alone: a workflow that was started again under
/// its old name may hold locks anew.
#[derive(Clone)]
pub struct Spared(Arc<dyn Fn(&str) -> bool + Send + Sync>);

impl Spared {
    /// The owners of whom this says yes.
    pub fn owners(those: impl Fn(&str) -> bool + Send + Sync + 'static) -> Self {
        Self(Arc::new(those))
    }

    /// No owner at all.
    pub fn nobody() -> Self {
        Self::owners(|_| false)
    }

    fn names(&self, owner: &str) -> bool {
        (self.0)(owner)
    }
}

impl fmt::Debug for Spared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Spared")
    }
}

/// What a row means for a release.
enum Meaning {
    Free,
    Gone,
    /// Still to be ended, with this scope.
    Ours(Scope),
}

impl<'a> Releasing<'a> {
    /// Gives back this lock.
    pub fn mine(settings: &'a Settings, holding: &Holding) -> Self {
        let (grant, token) = (holding.newest.grant, holding.token);
        let scope = Scope::Mine { grant, up_to: holding.seen, token: Some(token) };
        let (whose, newest) = (Whose::Mine { grant, token }, Some(holding.newest.stamp));
        Self { keep: holding.keep, ..Self::new(settings, holding.key.clone(), whose, Some(scope), newest) }
    }

    /// Gives back this lock, or a later grant of the same owner: a retried task releases what its
    /// first run, whose answer was lost, had acquired again.
    pub fn owners(settings: &'a Settings, holding: &Holding) -> Self {
        let Holding { newest, token, owner, .. } = holding;
        let whose = Whose::OwnersToo { grant: newest.grant, token: *token, owner: owner.clone() };
        Self { whose, ..Self::mine(settings, holding) }
    }

    /// Gives back whatever this workflow holds on this key, after it has ended.
    pub fn workflows(settings: &'a Settings, key: LockKey, workflow: String) -> Self {
        Self::new(settings, key, Whose::Workflows { workflow, spared: Spared::nobody() }, None, None)
    }

    /// Leaves a workflow's grant alone whose owner is one of these.
    #[must_use]
    pub fn sparing(mut self, owners: Spared) -> Self {
        if let Whose::Workflows { spared, .. } = &mut self.whose {
            *spared = owners;
        }
        self
    }

    fn new(settings: &'a Settings, key: LockKey, whose: Whose, scope: Option<Scope>, newest: Option<Stamp>) -> Self {
        Self {
            settings,
            key,
            whose,
            newest,
            scope,
            data: DataChange::Keep,
            left_out: None,
            keep: None,
            delete: false,
            faults: Faults::none(),
            repeats: false,
            wrote: false,
            looks: false,
            verdict: None,
        }
    }

    /// Changes the payload along with the release.
    #[must_use]
    pub fn with_data(mut self, data: DataChange) -> Self {
        self.data = data;
        self
    }

    /// Deletes the row instead of marking it, and with it the memory of its fencing token.
    #[must_use]
    pub fn deleting(mut self, delete: bool) -> Self {
        self.delete = delete;
        self
    }

    fn request(&mut self, tick: &Tick<'_>) -> Request {
        let action = match self.scope.clone() {
            _ if self.looks => Action::Peek,
            None => Action::Peek,
            Some(scope) if self.delete => Action::Delete { scope },
            Some(scope) => {
                let after_newest = self.newest.map_or(0, |stamp| stamp.millis() + 1);
                let ends = tick.wall.written.max(after_newest);
                Action::Release { scope, ends, data: self.data.clone(), keep: self.keep }
            }
        };
        Request::alone(self.key.clone(), action)
    }

    fn see(&mut self, row: Option<Item>) {
        let Some(row) = row else {
            // Our own Delete, of which only the answer was lost, leaves no row behind.
            let ours = self.delete && self.wrote;
            return self.verdict = Some(if ours { ReleaseVerdict::Released } else { self.gone() });
        };
        if once::is_settled(&row) {
            return self.verdict = Some(self.gone());
        }
        let record = match Record::read(row, &self.settings.schema) {
            Ok(record) => record,
            Err(invalid) => return self.verdict = Some(ReleaseVerdict::InvalidRecord(invalid)),
        };
        if let Some(version) = record.own_version {
            self.newest = self.newest.max(Some(version.stamp));
        }
        match self.meaning(&record) {
            Meaning::Free => self.verdict = Some(ReleaseVerdict::Released),
            Meaning::Gone => self.verdict = Some(self.gone()),
            Meaning::Ours(scope) => {
                self.go_on();
                self.scope = Some(scope);
            }
        }
    }

    fn meaning(&self, record: &Record) -> Meaning {
        let exactly = |workflow: Option<&String>| {
            Meaning::Ours(Scope::Exactly { version: record.version.clone(), workflow: workflow.cloned() })
        };
        match &self.whose {
            Whose::Workflows { workflow, spared }
                if record.believable_workflow() == Some(workflow) && !spared.names(&record.owner) =>
            {
                exactly(Some(workflow))
            }
            // Our own release, of which only the answer was lost.
            Whose::Workflows { .. } if self.wrote && record.released && self.aims_at(&record.version) => Meaning::Free,
            Whose::Workflows { .. } => Meaning::Gone,
            Whose::Mine { grant, token } | Whose::OwnersToo { grant, token, .. } => {
                match record.own_version {
                    Some(version) if version.grant == *grant && record.token == Some(*token) => {
                        // A copy of ours renewed it: end that version, and no newer one.
                        Meaning::Ours(Scope::Mine { grant: *grant, up_to: version.stamp, token: Some(*token) })
                    }
                    _ => match &self.whose {
                        Whose::OwnersToo { owner, .. } if record.is_ours() && record.owner == *owner => {
                            if record.released { Meaning::Free } else { exactly(None) }
                        }
                        _ => Meaning::Gone,
                    },
                }
            }
        }
    }

    /// The row is not this grant's any more.
    fn gone(&self) -> ReleaseVerdict {
        let was_held = matches!(self.whose, Whose::Mine { .. } | Whose::OwnersToo { .. });
        if was_held && !self.wrote { ReleaseVerdict::Lost } else { ReleaseVerdict::AlreadyGone }
    }

    fn aims_at(&self, seen: &str) -> bool {
        matches!(&self.scope, Some(Scope::Exactly { version, .. }) if version == seen)
    }

    /// The first repetition goes at once; then pauses, also so as not to race a busy copy of ours.
    fn go_on(&mut self) {
        if self.repeats {
            self.faults.go_on_after_pause()
        } else {
            self.faults.go_on_at_once()
        }
        self.repeats = true;
    }

    fn give_up(&self) -> ReleaseVerdict {
        if self.faults.was_unavailable() && !self.wrote { ReleaseVerdict::Unavailable } else { ReleaseVerdict::Unknown }
    }
}

impl Machine for Releasing<'_> {
    type Verdict = ReleaseVerdict;

    fn step(&mut self, tick: &Tick<'_>) -> Step<ReleaseVerdict> {
        if let Some(verdict) = self.verdict.take() {
            return Step::Done(verdict);
        }
        match self.faults.due_pause(tick) {
            Err(_) => Step::Done(self.give_up()),
            Ok(Some(pause)) => Step::Wait(pause),
            Ok(None) => Step::Send(self.request(tick)),
        }
    }

    fn answered(&mut self, _after: Moment, answer: Answer) {
        match answer {
            Answer::Applied(_) => {
                let left_out = self.left_out.take();
                self.verdict = Some(left_out.map_or(ReleaseVerdict::Released, ReleaseVerdict::ReleasedWithoutData));
            }
            Answer::Refused(None) => {
                self.go_on();
                self.looks = true;
            }
            Answer::Refused(row) | Answer::Found(row) => {
                self.looks = false;
                self.see(row);
            }
            Answer::Unavailable => self.faults.unavailable(),
            // Such as a row that grows too large. Whoever releases has to leave the lock free.
            Answer::Rejected(Rejection::Invalid(message)) if matches!(self.data, DataChange::Set(_)) => {
                self.go_on();
                self.data = DataChange::Keep;
                self.left_out = Some(message);
            }
            Answer::Rejected(_) if self.wrote => self.verdict = Some(ReleaseVerdict::Unknown),
            Answer::Rejected(rejection) => self.verdict = Some(ReleaseVerdict::Rejected(rejection)),
            Answer::Unknown | Answer::Cancelled(_) => {
                // Harmless to repeat.
                self.go_on();
                self.wrote |= self.scope.is_some() && !self.looks;
            }
        }
    }
}
