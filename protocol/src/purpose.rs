//! The purpose of an acquire: a plain lock, or idempotent work, whose row means more than the lock on it.
//!
//! Both acquire by the same decisions, in `acquire/`. Only what stands here differs between them.

use super::port::Now;
use super::record::InvalidRecord;
use super::request::Request;
use super::settings::Settings;
use super::value::Item;
use std::convert::Infallible;
use std::time::Duration;

/// What the lock is used for. A row of idempotent work means more than the lock on it.
pub(super) trait Purpose: Send {
    /// How else a call can end.
    type Settled: Send;

    /// Adds to a request what it writes beside the lock.
    fn with_record(&self, request: Request) -> Request;

    /// Interprets a row before the lock does.
    fn look(&mut self, now: &Now, settings: &Settings, row: Item) -> Result<Look<Self::Settled>, InvalidRecord>;

    /// Whether a Claim may be sent for a free row of ours. Otherwise the call takes exactly the version that it saw.
    fn is_claimable(&self) -> bool;

    /// How long after its lease the record of a new grant counts. `None` for a plain lock.
    fn keep(&self) -> Option<Duration>;
}

/// What a row means beside its lock.
pub(super) enum Look<S> {
    /// The lock decides about this row.
    Lock(Item),
    Settled(S),
}

/// A lock without anything beside it.
pub(super) struct PlainLock;

impl Purpose for PlainLock {
    type Settled = Infallible;

    fn with_record(&self, request: Request) -> Request {
        request
    }

    fn look(&mut self, _: &Now, _: &Settings, row: Item) -> Result<Look<Infallible>, InvalidRecord> {
        Ok(Look::Lock(row))
    }

    fn is_claimable(&self) -> bool {
        true
    }

    fn keep(&self) -> Option<Duration> {
        None
    }
}
