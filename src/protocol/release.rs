//! Release: gives a lock back, and never anybody else's.
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

use super::backoff::Retry;
use super::failure::Failure;
use super::holding::Holding;
use super::key::LockKey;
use super::once;
use super::peek::{NotSeen, look};
use super::port::{Answer, Now, Port, Rejection};
use super::record::Record;
use super::request::{Action, DataChange, Request, Scope};
use super::settings::Settings;
use super::value::Item;
use super::version::Stamp;
use std::time::Duration;

/// How a release ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Released {
    /// The lock is free.
    Released,
    /// The lock is free, and the row keeps the payload that it had. DynamoDB did not take the new one, and said this.
    WithoutData(String),
    /// The grant was over before this release: another one has the row, or the row is gone.
    Lost,
    /// The grant is no longer the row's: released and taken since, or lost before; nobody can tell which.
    AlreadyGone,
}

/// What a release does beside making the lock free.
#[derive(Clone, Debug, Default)]
pub struct ReleaseOptions {
    /// What becomes of the payload.
    pub data: DataChange,
    /// Deletes the row instead of marking it, and with it the memory of its fencing token.
    pub delete_row: bool,
    /// Releases also a later grant of the same owner: a retried task releases what its first run, whose answer was
    /// lost, had acquired again.
    pub or_later_grant_of_owner: bool,
}

/// Gives this lock back.
pub async fn release(
    port: &mut impl Port,
    settings: &Settings,
    holding: &Holding,
    options: ReleaseOptions,
) -> Result<Released, Failure> {
    let scope = Scope::Mine { grant: holding.newest.grant, up_to: holding.seen, token: Some(holding.token) };
    let held = Held { holding, or_later_grant_of_owner: options.or_later_grant_of_owner };
    let mut call = Call::new(settings, &holding.key, held, options);
    call.newest = Some(holding.newest.stamp);
    call.keep = holding.keep;
    call.until_released(port, scope).await
}

/// Gives back whatever this workflow holds on this key, after it has ended, but for owners that are `spared`: a
/// workflow that was started again under its old name may hold locks anew.
pub async fn release_workflow(
    port: &mut impl Port,
    settings: &Settings,
    key: &LockKey,
    workflow: &str,
    spared: impl Fn(&str) -> bool + Send,
    options: ReleaseOptions,
) -> Result<Released, Failure> {
    let mut call = Call::new(settings, key, Workflows { workflow, spared }, options);
    match call.look(port).await? {
        Next::Ended(released) => Ok(released),
        Next::Release(scope) => call.until_released(port, scope).await,
    }
}

/// Whose grant is to end.
trait Whose: Send {
    /// What a row that is a lock record means.
    fn meaning(&self, record: &Record, wrote: Option<&Scope>) -> Meaning;

    /// Whether the grant was held when the release began.
    fn was_held(&self) -> bool;
}

/// What a row means for a release.
enum Meaning {
    Free,
    Gone,
    /// Still to be ended, with this scope.
    Ours(Scope),
}

/// The grant of a lock that was held.
struct Held<'a> {
    holding: &'a Holding,
    or_later_grant_of_owner: bool,
}

impl Whose for Held<'_> {
    fn meaning(&self, record: &Record, _: Option<&Scope>) -> Meaning {
        let Holding { newest, token, owner, .. } = self.holding;
        match record.own_version {
            Some(version) if version.grant == newest.grant && record.token == Some(*token) => {
                // A copy of ours renewed it: end that version, and no newer one.
                Meaning::Ours(Scope::Mine { grant: newest.grant, up_to: version.stamp, token: Some(*token) })
            }
            _ if !(self.or_later_grant_of_owner && record.is_ours() && record.owner == *owner) => Meaning::Gone,
            _ if record.released => Meaning::Free,
            _ => Meaning::Ours(Scope::Exactly { version: record.version.clone(), workflow: None }),
        }
    }

    fn was_held(&self) -> bool {
        true
    }
}

/// Whichever grant this workflow holds, but for owners that are spared.
struct Workflows<'a, S> {
    workflow: &'a str,
    spared: S,
}

impl<S: Fn(&str) -> bool + Send> Whose for Workflows<'_, S> {
    fn meaning(&self, record: &Record, wrote: Option<&Scope>) -> Meaning {
        if record.believable_workflow() == Some(self.workflow) && !(self.spared)(&record.owner) {
            let workflow = Some(self.workflow.to_owned());
            return Meaning::Ours(Scope::Exactly { version: record.version.clone(), workflow });
        }
        // Our own release, of which only the answer was lost.
        let aimed_at = matches!(wrote, Some(Scope::Exactly { version, .. }) if *version == record.version);
        if aimed_at && record.released { Meaning::Free } else { Meaning::Gone }
    }

    fn was_held(&self) -> bool {
        false
    }
}

struct Call<'a, W> {
    settings: &'a Settings,
    key: &'a LockKey,
    whose: W,
    options: ReleaseOptions,
    /// The newest stamp known of the grant: the release ends after it.
    newest: Option<Stamp>,
    /// For an idempotent work: how long after its lease the record counts.
    keep: Option<Duration>,
    /// Why the payload was left out.
    left_out: Option<String>,
    retry: Retry,
    /// The next request is at least the second one.
    repeats: bool,
    /// What was last sent without a response.
    wrote: Option<Scope>,
}

/// What a look at the row comes to.
enum Next {
    Ended(Released),
    Release(Scope),
}

impl<'a, W: Whose> Call<'a, W> {
    fn new(settings: &'a Settings, key: &'a LockKey, whose: W, options: ReleaseOptions) -> Self {
        Self {
            settings,
            key,
            whose,
            options,
            newest: None,
            keep: None,
            left_out: None,
            retry: Retry::new(),
            repeats: false,
            wrote: None,
        }
    }

    async fn until_released(&mut self, port: &mut impl Port, mut scope: Scope) -> Result<Released, Failure> {
        loop {
            let Ok(now) = self.retry.ready(port).await else { return Err(self.out_of_time()) };
            let request = Request::alone(self.key.clone(), self.action(&now, &scope));
            let (_, answer) = port.send(request).await;
            let next = match answer {
                Answer::Applied(_) => {
                    return Ok(self.left_out.take().map_or(Released::Released, Released::WithoutData));
                }
                Answer::ConditionFailed(Some(row)) | Answer::Found(Some(row)) => self.decide(Some(row))?,
                Answer::ConditionFailed(None) | Answer::Found(None) => {
                    self.repeat();
                    self.look(port).await?
                }
                // Such as a row that grows too large. Whoever releases has to leave the lock free.
                Answer::Rejected(Rejection::Invalid(message)) if matches!(self.options.data, DataChange::Set(_)) => {
                    self.repeat();
                    self.options.data = DataChange::Keep;
                    self.left_out = Some(message);
                    continue;
                }
                Answer::Rejected(rejection) => return Err(self.unless_unknown(Failure::Rejected(rejection))),
                Answer::Throttled => {
                    self.retry.throttled();
                    continue;
                }
                Answer::Unknown | Answer::Cancelled(_) => {
                    // Harmless to repeat.
                    self.repeat();
                    self.wrote = Some(scope.clone());
                    continue;
                }
            };
            scope = match next {
                Next::Ended(released) => return Ok(released),
                Next::Release(scope) => scope,
            };
        }
    }

    fn action(&self, now: &Now, scope: &Scope) -> Action {
        if self.options.delete_row {
            return Action::Delete { scope: scope.clone() };
        }
        let after_newest = self.newest.map_or(0, |stamp| stamp.millis() + 1);
        let ends_at_ms = now.wall.written.max(after_newest);
        Action::Release { scope: scope.clone(), ends_at_ms, data: self.options.data.clone(), keep: self.keep }
    }

    async fn look(&mut self, port: &mut impl Port) -> Result<Next, Failure> {
        match look(port, &mut self.retry, self.key).await {
            Ok((_, row)) => self.decide(row),
            Err(NotSeen::OutOfTime) => Err(self.out_of_time()),
            Err(NotSeen::Rejected(rejection)) => Err(self.unless_unknown(Failure::Rejected(rejection))),
        }
    }

    /// What the row that refused the release means.
    fn decide(&mut self, row: Option<Item>) -> Result<Next, Failure> {
        let Some(row) = row else {
            // Our own Delete, of which only the answer was lost, leaves no row behind.
            let ours = self.options.delete_row && self.wrote.is_some();
            return Ok(Next::Ended(if ours { Released::Released } else { self.gone() }));
        };
        if once::is_settled(&row) {
            return Ok(Next::Ended(self.gone()));
        }
        let record = Record::read(row, &self.settings.schema)?;
        if let Some(version) = record.own_version {
            self.newest = self.newest.max(Some(version.stamp));
        }
        Ok(match self.whose.meaning(&record, self.wrote.as_ref()) {
            Meaning::Free => Next::Ended(Released::Released),
            Meaning::Gone => Next::Ended(self.gone()),
            Meaning::Ours(scope) => {
                self.repeat();
                Next::Release(scope)
            }
        })
    }

    /// The row is not this grant's any more.
    fn gone(&self) -> Released {
        if self.whose.was_held() && self.wrote.is_none() { Released::Lost } else { Released::AlreadyGone }
    }

    /// The first repetition goes at once. Later ones pause, also so as not to race a busy copy of ours.
    fn repeat(&mut self) {
        if self.repeats {
            self.retry.after_pause()
        } else {
            self.retry.at_once()
        }
        self.repeats = true;
    }

    fn out_of_time(&self) -> Failure {
        if self.retry.was_throttled() { self.unless_unknown(Failure::Throttled) } else { Failure::OutcomeUnknown }
    }

    fn unless_unknown(&self, failure: Failure) -> Failure {
        if self.wrote.is_some() { Failure::OutcomeUnknown } else { failure }
    }
}
