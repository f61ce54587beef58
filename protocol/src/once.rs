//! Idempotent work: a lock and the outcome of its work in one item.
//!
//! The first call for a key claims the item and does the work. Later calls get the stored outcome. While the work is
//! open, the item is a lock like any other: lease, takeover, renewal, release and fencing token follow the rules of
//! this crate. To store the outcome ends the grant permanently.
//!
//! # The item
//!
//! Beside the attributes of a [lock](crate):
//!
//! | attribute | type | meaning |
//! |---|---|---|
//! | `key` | S | `once/` and the caller's key: no plain lock may have such a key, and no idempotent work another |
//! | `attempts` | N | how many grants the work has had |
//! | `firstSeenAt` | N | epoch milliseconds: when the work was first requested |
//! | `keptUntilAt` | N | epoch milliseconds: until when the record counts. Lease end + retention while it is open, outcome + retention afterwards |
//! | `payloadHash` | S | SHA-256 of the payload's canonical JSON without fields that are `null`, 64 hexadecimal digits; absent when no payload was given |
//! | `onceState` | S | `done` or `failed`; absent while the work is open |
//! | `outcome` | S | the result, or the failure, as JSON |
//! | `outcomeAt` | N | epoch milliseconds: when it was stored |
//! | `recordVersionNumber` | S | while open that of a lock; afterwards `lo1-{grant}-{stamp}` |
//! | TTL attribute (where configured) | N | `keptUntilAt` in epoch seconds, rounded up. Only housekeeping: `keptUntilAt` decides |
//!
//! A settled record has no `leaseDuration` and its version is not a lock's. So no client that looks for a lock, ours,
//! Java's or Go's, can mistake it for a free one.
//!
//! # The requests
//!
//! `mine up to X` is the lock's condition: still this grant, and no version of it newer than X.
//!
//! | request | condition | effect |
//! |---|---|---|
//! | **Claim** `UpdateItem` | `attribute_not_exists(key) OR` (a lock's Claim `AND keptUntilAt >= :now AND` the payload is the same or was never given) | a lock's, and `attempts + 1`, `firstSeenAt` unless it is there, `keptUntilAt`, `payloadHash` |
//! | **Take** `UpdateItem` | exactly the version that was seen to be free, dead, or past its time | as Claim; past its time nothing but the fencing token is kept |
//! | **Complete**, **Fail** `UpdateItem`, alone or in a transaction with the caller's writes | mine up to this version, and not released | version `lo1-…`, `onceState`, `outcome`, `outcomeAt`, `keptUntilAt`; removes `leaseDuration`, `leaseEndsAt`, `workflow`, `data` |
//! | **Replay** | none: a refused Claim brings the row | nothing |
//!
//! Renew, Release and Commit are those of a lock. They also write `keptUntilAt`.
//!
//! # What a row means
//!
//! ```text
//! a row that is no record of an idempotent work .... InvalidRecord, left as it is
//! it counts (now <= keptUntilAt + max_clock_skew)
//!  ├ another payload ............................... mismatch
//!  ├ settled ....................................... the outcome
//!  └ open .......................................... as a lock: granted, held, or wait and Peek again
//! its time is over
//!  ├ settled, released, or its holder dead ......... Take, as if there had been no record
//!  └ held .......................................... as a lock: held, or wait and Peek again
//! ```
//!
//! A call that finishes late overwrites no other outcome, because Complete and Fail require their own grant. When a
//! response was lost, the version shows whether the outcome was stored.

use super::acquire::{AcquireOptions, Acquired, Ended, acquire_for};
use super::clock_bounds::DEFAULT_SKEW;
use super::failure::Failure;
use super::instants::millis_rounded_up;
use super::key::LockKey;
use super::port::{Now, Port};
use super::purpose::{Look, Purpose};
use super::read::row;
use super::record::{Fields, InvalidRecord, is_settled, quoted};
use super::request::{Action, DataChange, OnceClaim, Request, StoredOutcome};
use super::schema::{self, Schema};
use super::settings::Settings;
use super::value::{Item, Value};
use std::time::Duration;

pub use super::key::NAMESPACE;

/// The record of idempotent work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OnceRecord {
    /// How many grants the work has had.
    pub attempts: u64,
    /// When the work was first requested, in epoch milliseconds.
    pub first_seen: u64,
    /// Until when the record counts, in epoch milliseconds.
    pub kept_until: u64,
    /// The fingerprint of the payload.
    pub payload: Option<String>,
    /// Why the work was last reset.
    pub reset_reason: Option<String>,
    /// The outcome, and when it was stored, in epoch milliseconds. `None` while the work is open.
    pub settled: Option<(StoredOutcome, u64)>,
}

impl OnceRecord {
    /// Reads a row strictly.
    pub fn read(mut item: Item, schema: &Schema) -> Result<Self, InvalidRecord> {
        let settled = is_settled(&item);
        let mut fields = Fields { item: &mut item, schema };
        Ok(Self {
            attempts: fields.required_number(schema::ATTEMPTS)?,
            first_seen: fields.required_number(schema::FIRST_SEEN)?,
            kept_until: fields.required_number(schema::KEPT_UNTIL)?,
            payload: fields.text(schema::PAYLOAD)?,
            reset_reason: fields.text(schema::RESET_REASON)?,
            settled: if settled { Some(outcome(&mut fields)?) } else { None },
        })
    }

    /// Whether the record no longer counts. Clocks differ, so the record counts for the allowed skew longer than it
    /// states. Where no skew is set, because clocks are not trusted, it is the default.
    fn is_over(&self, now: &Now, settings: &Settings) -> bool {
        let skew = millis_rounded_up(settings.clock_bounds.max_clock_skew().unwrap_or(DEFAULT_SKEW));
        self.kept_until.saturating_add(skew) < now.wall.millis
    }
}

fn outcome(fields: &mut Fields<'_>) -> Result<(StoredOutcome, u64), InvalidRecord> {
    let (state, json) = (fields.required_text(schema::STATE)?, fields.required_text(schema::OUTCOME)?);
    let outcome = match state.as_str() {
        StoredOutcome::DONE => StoredOutcome::Done(json),
        StoredOutcome::FAILED => StoredOutcome::Failed(json),
        _ => {
            return Err(
                fields.invalid(schema::STATE, format!("{}, but must be \"done\" or \"failed\"", quoted(&state)))
            );
        }
    };
    Ok((outcome, fields.required_number(schema::OUTCOME_AT)?))
}

/// The result of starting idempotent work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Started {
    /// Like acquiring a lock. When it was granted, also the work's record, which includes this attempt.
    Lock(Acquired, Option<OnceRecord>),
    /// The work already has an outcome.
    Settled(OnceRecord),
    /// The record was made for another payload.
    Mismatch(OnceRecord),
}

/// Starts idempotent work: acquires a lock, after a look at the record.
///
/// `options.key` includes the [namespace](NAMESPACE). `payload` is the fingerprint to compare with the record. `keep`
/// is how long the record counts after its lease, or after its outcome.
pub async fn start(
    port: &mut impl Port,
    settings: &Settings,
    options: AcquireOptions,
    payload: Option<String>,
    keep: Duration,
) -> Result<Started, Failure> {
    let mut work = Work { payload, keep, record: None, over: false, claimable: true };
    match acquire_for(port, settings, options, &mut work).await? {
        Ended::Lock(acquired) => Ok(Started::Lock(acquired, work.record)),
        Ended::Settled(started) => Ok(started),
    }
}

/// Idempotent work as a call requests it, and what its row last showed.
struct Work {
    payload: Option<String>,
    keep: Duration,
    record: Option<OnceRecord>,
    /// The record's time is over.
    over: bool,
    claimable: bool,
}

impl Purpose for Work {
    type Settled = Started;

    fn with_record(&self, mut request: Request) -> Request {
        // A Claim is applied to a record that still counts, whatever was true of the one that was seen before.
        let anew = self.over && matches!(request.action, Action::Take { .. });
        match &mut request.action {
            Action::Claim { grant, .. } | Action::Take { grant, .. } => {
                grant.once = Some(OnceClaim { payload: self.payload.clone(), keep: self.keep, anew });
                if anew && grant.data == DataChange::Keep {
                    grant.data = DataChange::Remove;
                }
            }
            Action::Release { keep, .. } => *keep = Some(self.keep),
            _ => {}
        }
        request
    }

    fn look(&mut self, now: &Now, settings: &Settings, row: Item) -> Result<Look<Started>, InvalidRecord> {
        let record = OnceRecord::read(row.clone(), &settings.schema)?;
        let over = record.is_over(now, settings);
        let known = self.payload.as_ref().zip(record.payload.as_ref());
        if !over && known.is_some_and(|(ours, theirs)| ours != theirs) {
            return Ok(Look::Settled(Started::Mismatch(record)));
        }
        let settled = record.settled.is_some();
        if !over && settled {
            return Ok(Look::Settled(Started::Settled(record)));
        }
        self.over = over;
        // A Claim requires a record that still counts, and allows for no skew.
        self.claimable = !over && record.kept_until >= now.wall.millis;
        self.record = Some(record);
        Ok(Look::Lock(if settled { as_released(row) } else { row }))
    }

    fn is_claimable(&self) -> bool {
        self.claimable
    }

    fn keep(&self) -> Option<Duration> {
        Some(self.keep)
    }
}

/// Presents a settled record whose time is over as a released lock.
fn as_released(mut row: Item) -> Item {
    row.set(schema::LEASE, Value::S("1".to_owned()));
    row.set(schema::RELEASED, Value::S("1".to_owned()));
    row
}

/// Reads the record of idempotent work. Returns `None` where there is no row.
pub async fn peek_once(
    port: &mut impl Port,
    settings: &Settings,
    key: &LockKey,
) -> Result<Option<OnceRecord>, Failure> {
    let row = row(port, key).await?;
    Ok(row.map(|row| OnceRecord::read(row, &settings.schema)).transpose()?)
}
