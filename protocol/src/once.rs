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

use super::acquire::{AcquireOptions, acquire_for};
use super::failure::Failure;
use super::key::LockKey;
use super::port::Port;
use super::read::row;
use super::settings::Settings;
use super::work::{OnceRecord, Work};
use std::time::Duration;

pub use super::acquire::Started;
pub use super::key::NAMESPACE;

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
    acquire_for(port, settings, options, Work::new(payload, keep)).await
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
