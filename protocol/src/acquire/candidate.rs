//! Which rows a call may take: because they are free, because their holder is dead, or because the call reclaims them.

use super::options::{HolderSeen, Reclaim};
use crate::attributes::EarlierNames;
use crate::clock_bounds::ClockBounds;
use crate::observation::HolderWatch;
use crate::port::Now;
use crate::record::Record;
use crate::request::{LineRule, NextToken};
use crate::version::Version;

/// The write that makes a row ours.
#[derive(Clone, Debug)]
pub(crate) enum Write {
    Claim,
    Take { seen: String, held: bool, reclaims: bool, line: LineRule, token: NextToken, names: EarlierNames },
}

impl Write {
    /// Takes over exactly this version. Under a peer's version the row's token may be stale, so the new token is also
    /// at least as large as the clock.
    pub(crate) fn take(record: &Record, reclaims: bool, line: LineRule, now: &Now) -> Self {
        let token = if record.is_ours() {
            NextToken::FromRow
        } else {
            NextToken::Exactly(record.token.map_or(0, |token| token.saturating_add(1)).max(now.wall.millis))
        };
        let names = EarlierNames::Seen(record.attribute_names.clone());
        Write::Take { seen: record.version.clone(), held: !record.released, reclaims, line, token, names }
    }

    /// Takes a saved lock, whose row was not read. A released lock can be reclaimed too, so this does not ask for a
    /// held one.
    pub(crate) fn reclaim(saved: &Version) -> Self {
        let (line, token, names) = (LineRule::Ignored, NextToken::FromRow, EarlierNames::Unseen);
        Write::Take { seen: saved.to_string(), held: false, reclaims: true, line, token, names }
    }
}

/// Who wants a lock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Candidate<'a> {
    pub(crate) owner: &'a str,
    pub(crate) reclaim: &'a Reclaim,
    pub(crate) clock_bounds: &'a ClockBounds,
}

impl Candidate<'_> {
    /// Whether this call may take the row.
    pub(crate) fn would_take(&self, now: &Now, watch: &HolderWatch) -> bool {
        let record = watch.record();
        if record.freeze_reason.is_some() {
            // Its holder may still hand it over to itself. Nobody else is granted it, dead or alive.
            return !record.released && self.reclaims(record);
        }
        record.released || self.reclaims(record) || watch.dead_in(now, self.clock_bounds).is_zero()
    }

    /// Whether the call takes this row even from a living holder.
    pub(crate) fn reclaims(&self, record: &Record) -> bool {
        match self.reclaim {
            Reclaim::Nobody => false,
            Reclaim::SameOwner => self.is_same_owner(record),
            // The grant of the saved lock, or a later grant of the same owner.
            Reclaim::Only(earlier) => {
                record.own_version.is_some_and(|version| version.grant == earlier.grant) || self.is_same_owner(record)
            }
        }
    }

    pub(crate) fn is_same_owner(&self, record: &Record) -> bool {
        record.is_ours() && record.owner == self.owner
    }

    /// The holder of the row, as this call saw it.
    pub(crate) fn holder(&self, now: &Now, watch: &HolderWatch) -> HolderSeen {
        let record = watch.record();
        let waiting = record.believable_line().map_or(0, |line| line.waiting());
        HolderSeen {
            owner: record.owner.clone(),
            ends_at_ms: record.believable_end(),
            retry_after: watch.dead_in(now, self.clock_bounds),
            waiting,
            left_to_line: false,
            freeze_reason: record.freeze_reason.clone(),
            observation: watch.observation(now.instants),
            attributes: record.attributes.clone(),
        }
    }
}
