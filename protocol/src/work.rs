//! Idempotent work as an acquire sees it: its record, which decides before the lock does, and what a grant writes beside the lock.

use super::instants::millis_rounded_up;
use super::port::Now;
use super::record::{Fields, InvalidRecord, is_settled, quoted};
use super::request::{OnceClaim, StoredOutcome};
use super::schema::{self, Schema};
use super::settings::Settings;
use super::value::Item;
use std::time::Duration;

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
        let skew = millis_rounded_up(settings.clock_bounds.allowed_skew());
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

/// Idempotent work as a call requests it, and what its row last showed.
pub(super) struct Work {
    payload: Option<String>,
    /// How long after its lease the record of a new grant counts.
    pub(super) keep: Duration,
    /// The record as it was last seen.
    pub(super) record: Option<OnceRecord>,
    /// The record's time is over.
    is_over: bool,
    /// Whether a Claim may be sent for a free row of ours. Otherwise the call takes exactly the version that it saw.
    pub(super) is_claimable: bool,
}

/// What a row means for the work.
pub(super) enum Look {
    /// The lock decides about this row.
    Lock,
    /// So does it, where the work has an outcome whose time is over: nobody holds it.
    Over,
    /// The work has an outcome.
    Settled(OnceRecord),
    /// The record was made for another payload.
    Mismatch(OnceRecord),
}

impl Work {
    /// `payload` is the fingerprint to compare with the record. `keep` is how long the record counts after its lease.
    pub(super) fn new(payload: Option<String>, keep: Duration) -> Self {
        Self { payload, keep, record: None, is_over: false, is_claimable: true }
    }

    /// What a grant writes beside the lock.
    pub(super) fn claim(&self, is_take: bool) -> OnceClaim {
        // A Claim is applied to a record that still counts, whatever was true of the one that was seen before.
        OnceClaim { payload: self.payload.clone(), keep: self.keep, anew: is_take && self.is_over }
    }

    /// Interprets a row before the lock does.
    pub(super) fn look(&mut self, now: &Now, settings: &Settings, row: &Item) -> Result<Look, InvalidRecord> {
        let record = OnceRecord::read(row.clone(), &settings.schema)?;
        let is_over = record.is_over(now, settings);
        let known = self.payload.as_ref().zip(record.payload.as_ref());
        if !is_over && known.is_some_and(|(ours, theirs)| ours != theirs) {
            return Ok(Look::Mismatch(record));
        }
        let is_settled = record.settled.is_some();
        if !is_over && is_settled {
            return Ok(Look::Settled(record));
        }
        self.is_over = is_over;
        // A Claim requires a record that still counts, and allows for no skew.
        self.is_claimable = !is_over && record.kept_until >= now.wall.millis;
        self.record = Some(record);
        Ok(if is_settled { Look::Over } else { Look::Lock })
    }
}
