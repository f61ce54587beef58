//! Renew: extends the lease of a held lock. It is safe to repeat, and never shortens the lease that others rely on.
//!
//! ```text
//! Renew
//!  ├ applied
//!  │   ├ by a clock that was behind ..... Renew again
//!  │   └ else ........................... renewed
//!  ├ condition failed, with the row
//!  │   ├ a copy of ours wrote it ........ adopt what it wrote, and Renew again
//!  │   ├ it is no lock record ........... report the row, or unknown if an earlier attempt had no response
//!  │   └ anything else .................. lost
//!  ├ condition failed, without a row .... Peek: no row → lost; else as above
//!  ├ throttled .......................... pause, then Renew again
//!  ├ rejected ........................... rejected, or unknown if an earlier attempt had no response
//!  └ no response ........................ Renew again, with a newer version
//! ```

use super::call::Call;
use super::failure::Failure;
use super::holding::{Holding, LeaseValidity};
use super::instants::{Instants, millis_rounded_up};
use super::lease::Lease;
use super::port::{Now, Port};
use super::read::look;
use super::record::{Record, is_settled};
use super::reply::Written;
use super::request::{Action, DataChange, Request};
use super::schema;
use super::settings::Settings;
use super::value::Item;
use super::version::{Stamp, Version};
use std::ops::ControlFlow;

/// Renews a lock for the lease that [`Now`] asks for.
///
/// After [`Failure::Throttled`] and [`Failure::OutcomeUnknown`] the holder may rely on its lease as long as before.
pub async fn renew(
    port: &mut impl Port,
    settings: &Settings,
    holding: &mut Holding,
    data: &DataChange,
) -> Result<(), Failure> {
    renew_unless_recognised(port, settings, holding, data, |_| false).await.map(|_| ())
}

/// The result of a renewal that stops at a row that its caller recognises.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Renewed {
    Renewed,
    Recognised,
}

/// Renews a lock. Stops when a row that refuses the renewal is one that the caller `recognises`.
pub(super) async fn renew_unless_recognised(
    port: &mut impl Port,
    settings: &Settings,
    holding: &mut Holding,
    data: &DataChange,
    recognises: impl Fn(&Item) -> bool + Send,
) -> Result<Renewed, Failure> {
    let mut call = Call::new();
    loop {
        let now = call.ready(port).await?;
        let (action, renewal) = renewal(port, settings, holding, data, &now);
        let (_, reply) = port.write(&now, Request::alone(holding.key.clone(), action)).await;
        let row = match reply {
            Ok(Written::Applied(replaced)) => {
                if renewal.applied(&port.now(), settings, holding, replaced).is_break() {
                    return Ok(Renewed::Renewed);
                }
                call.repeat();
                // It was applied, so a later failure must not say that nothing was.
                call.may_be_applied();
                continue;
            }
            Ok(Written::Refused(Some(row))) => Some(row),
            Ok(Written::Refused(None)) => {
                call.repeat();
                look(port, &mut call, &holding.key).await?.1
            }
            Err(fault) => {
                // Safe to repeat, because the next attempt has a newer stamp of the same grant.
                call.write_failed(fault)?;
                continue;
            }
        };
        if row.as_ref().is_some_and(&recognises) {
            return Ok(Renewed::Recognised);
        }
        call.repeat();
        match adopt(settings, holding, row) {
            // Once somebody repairs the row, an earlier attempt may be applied.
            Err(Failure::InvalidRecord(invalid)) => return Err(call.fail(invalid.into())),
            adopted => adopted?,
        }
    }
}

/// A renewal as it was sent.
#[derive(Debug)]
pub(super) struct SentRenewal {
    stamp: Stamp,
    /// Read before the request was sent.
    started: Instants,
    now: u64,
    lease: Lease,
    ends_at_ms: u64,
}

/// Makes a new renewal, with a version that was never used before.
pub(super) fn renewal(
    port: &mut impl Port,
    settings: &Settings,
    holding: &mut Holding,
    data: &DataChange,
    now: &Now,
) -> (Action, SentRenewal) {
    let stamp = Stamp::after(Some(holding.newest.stamp), now.wall.millis, port.random_u64());
    let longer = now.lease > holding.lease.duration();
    let lease = if longer { settings.lease(now.lease) } else { holding.lease.clone() };
    let wanted_end = now.wall.latest.saturating_add(millis_rounded_up(lease.duration()));
    let ends_at_ms = wanted_end.min(now.latest_end.unwrap_or(u64::MAX)).max(holding.ends_at_ms);
    holding.newest.stamp = stamp;
    let action = Action::Renew {
        version: holding.newest,
        token: holding.token,
        known_lease: holding.lease.clone(),
        lease: lease.clone(),
        ends_at_ms,
        data: data.clone(),
        keep: holding.keep,
    };
    (action, SentRenewal { stamp, started: now.instants, now: now.wall.latest, lease, ends_at_ms })
}

impl SentRenewal {
    /// The renewal was applied. The lease counts from before the request. The version that it replaced determines the
    /// outcome of an earlier commit.
    ///
    /// Continues when the renewal was written by a clock that was behind. Nobody relies on its lease, so the lock has
    /// to be renewed again.
    pub(super) fn applied(
        self,
        now: &Now,
        settings: &Settings,
        holding: &mut Holding,
        replaced: Item,
    ) -> ControlFlow<()> {
        let replaced = replaced.text(schema::VERSION).and_then(Version::parse);
        let grant = holding.newest.grant;
        holding.pending = holding.pending.map(|commit| commit.resolved_by(replaced, grant));
        let until_end = now.until_end(self.started, self.now, self.ends_at_ms, &settings.clock_bounds);
        holding.validity = LeaseValidity::of(self.started, &self.lease, until_end, &settings.clock_bounds);
        holding.seen = self.stamp;
        holding.lease = self.lease;
        holding.ends_at_ms = self.ends_at_ms;
        if now.found_behind(self.started, self.now, &settings.clock_bounds) {
            holding.validity = LeaseValidity::none(now.instants);
            return ControlFlow::Continue(());
        }
        ControlFlow::Break(())
    }
}

/// The row refused a write of this grant. Adopts what a copy of ours wrote. Fails when the grant is over.
pub(super) fn adopt(settings: &Settings, holding: &mut Holding, row: Option<Item>) -> Result<(), Failure> {
    let Some(row) = row.filter(|row| !is_settled(row)) else { return Err(Failure::Lost) };
    let record = Record::read(row.clone(), &settings.schema)?;
    let Some(version) = record.own_version.filter(|version| is_still_ours(holding, *version, &record)) else {
        return Err(Failure::Lost);
    };
    // Only a row of ours is not held beside the TTL of others. That of another holder says no more than that ours is lost.
    Record::read_to_hold(row, &settings.schema)?;
    holding.newest.stamp = version.stamp.max(holding.newest.stamp);
    holding.seen = version.stamp;
    holding.ends_at_ms = holding.ends_at_ms.max(record.ends_at_ms.unwrap_or(0));
    holding.lease = record.lease;
    Ok(())
}

fn is_still_ours(holding: &Holding, version: Version, record: &Record) -> bool {
    version.grant == holding.newest.grant && record.token == Some(holding.token) && !record.released
}
