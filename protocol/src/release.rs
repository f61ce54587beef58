//! Release: releases a lock, and never another holder's lock.
//!
//! ```text
//! Release (for a workflow: Peek first)
//!  ├ applied ............................ released
//!  ├ condition failed, with the row
//!  │   ├ it stores an outcome ........... lost, or gone: see below
//!  │   ├ an operator has broken it ...... lost; a later grant of the owner: lost, or gone
//!  │   ├ it is no lock record ........... report the row, or unknown if an earlier attempt had no response
//!  │   ├ a copy of ours renewed it ...... Release that version
//!  │   ├ a later grant of the owner,
//!  │   │ where that counts .............. Release that version, or it is free already
//!  │   ├ the workflow's, unless its
//!  │   │ owner is spared ................ Release that version, or it is free already
//!  │   └ anything else .................. lost, or gone: see below
//!  ├ condition failed, without a row .... Peek: no row → as above
//!  ├ the payload is not accepted ........ Release without it
//!  ├ throttled .......................... pause, then Release again
//!  ├ rejected ........................... rejected, or unknown if an earlier attempt had no response
//!  └ no response ........................ Release again
//! ```
//!
//! When another grant is on the row and every earlier Release of this call had a response, the lock was lost before.
//! When one of them had no response, it may have been applied, and the other grant may have followed it.

use super::call::Call;
use super::failure::Failure;
use super::holding::Holding;
use super::key::LockKey;
use super::line::Line;
use super::port::{Now, Port};
use super::read::look;
use super::record::{Record, is_settled};
use super::reply::{Fault, Rejection, Written};
use super::request::{Action, DataChange, Request, Scope};
use super::schema;
use super::settings::Settings;
use super::value::Item;
use super::version::{Stamp, Version};
use std::ops::RangeInclusive;
use std::time::Duration;

/// The result of a release.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Released {
    Released {
        /// The tickets to wake, where [it was asked for](ReleaseOptions::tells_sleeper) and somebody sleeps.
        to_wake: Option<RangeInclusive<u64>>,
    },
    /// The lock was released, but the row keeps its earlier payload. Contains DynamoDB's message about the new
    /// payload.
    WithoutData(String),
    /// The grant was over before this release: the row has another grant, or is gone.
    Lost,
    /// The row no longer has this grant. It is unknown whether the lock was released and acquired since, or was lost
    /// before.
    AlreadyGone,
}

/// What a release does in addition to freeing the lock.
#[derive(Clone, Debug, Default)]
pub struct ReleaseOptions {
    pub data: DataChange,
    /// Also releases a later grant of the same owner. A retried task needs this when its first run acquired the lock
    /// again and the response was lost.
    pub or_later_grant_of_owner: bool,
    /// Asks which ticket is to be woken. It costs no request.
    pub tells_sleeper: bool,
}

/// Releases this lock.
pub async fn release(
    port: &mut impl Port,
    settings: &Settings,
    holding: &Holding,
    options: ReleaseOptions,
) -> Result<Released, Failure> {
    let up_to = Version { stamp: holding.seen, ..holding.newest };
    let scope = Scope::Mine { up_to, token: Some(holding.token) };
    let mut releasing = Releasing::new(settings, &holding.key, Whose::Holder(holding), options);
    releasing.newest = Some(holding.newest.stamp);
    releasing.keep = holding.keep;
    releasing.until_released(port, scope).await
}

/// Releases whatever this workflow holds on this key, after the workflow has ended. Skips owners for which
/// `is_spared` is true, because a workflow that was started again under its old name may have acquired locks since.
pub async fn release_workflow(
    port: &mut impl Port,
    settings: &Settings,
    key: &LockKey,
    workflow: &str,
    is_spared: impl Fn(&str) -> bool + Send,
    options: ReleaseOptions,
) -> Result<Released, Failure> {
    let of_workflow = Whose::Workflow { name: workflow, is_spared: Box::new(is_spared) };
    let mut releasing = Releasing::new(settings, key, of_workflow, options);
    match releasing.look(port).await? {
        Decision::Ended(released) => Ok(released),
        Decision::Release(scope) => releasing.until_released(port, scope).await,
    }
}

/// Whose grant the call releases.
enum Whose<'a> {
    /// The grant of a held lock.
    Holder(&'a Holding),
    /// Any grant that this workflow holds, unless its owner is spared.
    Workflow { name: &'a str, is_spared: Box<dyn Fn(&str) -> bool + Send + 'a> },
}

/// What a row means for a release.
enum Meaning {
    Free,
    Gone,
    /// The grant was over before any release of it.
    Lost,
    /// The grant is still on the row, and is released with this scope.
    Ours(Scope),
}

fn of_holder(holding: &Holding, or_later_grant_of_owner: bool, record: &Record) -> Meaning {
    let Holding { newest, token, owner, .. } = holding;
    let own = record.own_version.filter(|version| version.grant == newest.grant && record.token == Some(*token));
    match own {
        // A break needs a lock that is held, so no release of ours was applied before it, and none is after it.
        Some(_) if record.is_broken() => Meaning::Lost,
        _ if record.is_broken() => Meaning::Gone,
        Some(version) => {
            // A copy of ours renewed it. Release that version, and no newer one.
            Meaning::Ours(Scope::Mine { up_to: version, token: Some(*token) })
        }
        _ if !(or_later_grant_of_owner && record.is_ours() && record.owner == *owner) => Meaning::Gone,
        _ if record.released => Meaning::Free,
        _ => Meaning::Ours(Scope::Exactly { version: record.version.clone(), workflow: None }),
    }
}

struct Releasing<'a> {
    settings: &'a Settings,
    key: &'a LockKey,
    whose: Whose<'a>,
    options: ReleaseOptions,
    /// The newest known stamp of the grant. The lease that the release writes ends after it.
    newest: Option<Stamp>,
    /// For idempotent work: how long after its lease the record counts.
    keep: Option<Duration>,
    /// Why the payload was left out.
    left_out: Option<String>,
    call: Call,
    /// The scope of the last release without a response.
    wrote: Option<Scope>,
}

/// What to do after the row was read.
enum Decision {
    Ended(Released),
    Release(Scope),
}

impl<'a> Releasing<'a> {
    fn new(settings: &'a Settings, key: &'a LockKey, whose: Whose<'a>, options: ReleaseOptions) -> Self {
        Self { settings, key, whose, options, newest: None, keep: None, left_out: None, call: Call::new(), wrote: None }
    }

    async fn until_released(&mut self, port: &mut impl Port, mut scope: Scope) -> Result<Released, Failure> {
        loop {
            let now = self.call.ready(port).await?;
            let request = Request::alone(self.key.clone(), self.action(&now, &scope));
            let (_, reply) = port.write(&now, request).await;
            let next = match reply {
                Ok(Written::Applied(row)) => {
                    // A response without a version contains no row.
                    let line = row.get(schema::VERSION).and_then(|_| Line::of_row(&row));
                    return Ok(self.released(line.as_ref()));
                }
                Ok(Written::Refused(Some(row))) => self.decide(Some(row))?,
                Ok(Written::Refused(None)) => {
                    self.call.repeat();
                    self.look(port).await?
                }
                // The row may have become too large, for example. The lock must be freed nevertheless.
                Err(Fault::Rejected(Rejection::Invalid(message)))
                    if matches!(self.options.data, DataChange::Set(_)) =>
                {
                    self.call.repeat();
                    self.options.data = DataChange::Keep;
                    self.left_out = Some(message);
                    continue;
                }
                Err(fault) => {
                    if fault == Fault::Unknown {
                        self.wrote = Some(scope.clone());
                    }
                    // A release may be applied twice.
                    self.call.write_failed(fault)?;
                    continue;
                }
            };
            scope = match next {
                Decision::Ended(released) => return Ok(released),
                Decision::Release(scope) => scope,
            };
        }
    }

    /// The result of a release that left this line.
    fn released(&mut self, line: Option<&Line>) -> Released {
        let to_wake = line.and_then(Line::to_wake).filter(|_| self.options.tells_sleeper);
        self.left_out.take().map_or(Released::Released { to_wake }, Released::WithoutData)
    }

    fn action(&self, now: &Now, scope: &Scope) -> Action {
        let after_newest = self.newest.map_or(0, |stamp| stamp.millis() + 1);
        let ends_at_ms = now.wall.written.max(after_newest);
        let (data, returns_row) = (self.options.data.clone(), self.options.tells_sleeper);
        Action::Release { scope: scope.clone(), ends_at_ms, data, keep: self.keep, returns_row }
    }

    async fn look(&mut self, port: &mut impl Port) -> Result<Decision, Failure> {
        let (_, row) = look(port, &mut self.call, self.key).await?;
        self.decide(row)
    }

    /// Decides what the row that refused the release means.
    fn decide(&mut self, row: Option<Item>) -> Result<Decision, Failure> {
        let Some(row) = row.filter(|row| !is_settled(row)) else { return Ok(Decision::Ended(self.gone())) };
        // Once somebody repairs a row that is no lock record, an earlier release may be applied.
        let schema = &self.settings.schema;
        let read = if schema.named_ttl().is_some() { Record::read_to_hold } else { Record::read };
        let record = read(row, schema).map_err(|invalid| self.call.fail(invalid.into()))?;
        if let Some(version) = record.own_version {
            self.newest = self.newest.max(Some(version.stamp));
        }
        Ok(match self.meaning(&record) {
            Meaning::Free => Decision::Ended(self.released(record.believable_line())),
            Meaning::Gone => Decision::Ended(self.gone()),
            Meaning::Lost => Decision::Ended(Released::Lost),
            Meaning::Ours(scope) => {
                self.call.repeat();
                Decision::Release(scope)
            }
        })
    }

    /// What the row means, given that it is a lock record.
    fn meaning(&self, record: &Record) -> Meaning {
        match &self.whose {
            Whose::Holder(holding) => of_holder(holding, self.options.or_later_grant_of_owner, record),
            Whose::Workflow { name, is_spared } => {
                if record.believable_workflow() == Some(*name) && !is_spared(&record.owner) {
                    let workflow = Some((*name).to_owned());
                    return Meaning::Ours(Scope::Exactly { version: record.version.clone(), workflow });
                }
                // The row shows our own release, whose response was lost.
                let aimed_at =
                    matches!(&self.wrote, Some(Scope::Exactly { version, .. }) if *version == record.version);
                if aimed_at && record.released { Meaning::Free } else { Meaning::Gone }
            }
        }
    }

    /// The result when the row no longer has this grant.
    fn gone(&self) -> Released {
        let was_held = matches!(self.whose, Whose::Holder(_));
        if was_held && !self.call.is_unknown() { Released::Lost } else { Released::AlreadyGone }
    }
}
