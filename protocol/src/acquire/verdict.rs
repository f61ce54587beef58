//! Who may take a row, and when.
//!
//! ```text
//! the row                      the caller                            the verdict
//! ───────────────────────────  ────────────────────────────────────  ──────────────────────────────────────────────────
//! not seen yet                 brings a saved lock                   may take its version
//!                              brings a ticket                       looks first
//!                              any other                             may claim
//! there is none                brings a saved lock                   refused: it is lost
//!                              any other                             may claim
//! neither of the saved grant   brings a saved lock                   refused: it is lost
//! nor of its owner
//! held                         reclaims it, frozen or not            may take it, whoever is in line
//! frozen                       any other                             waits until somebody thaws it
//! held, the holder may live    any other                             waits until the holder is dead, and for its turn
//! released, or of a dead       reclaims it with a saved lock         may take it, whoever is in line
//! holder                       does not look at the line             may take it
//!                              finds nobody ahead in line            may take it
//!                              has left it long enough to all ahead  may take it
//!                              any other                             waits: it is left to those ahead
//! ```
//!
//! Where a row may be taken, a Claim is sent if it would be applied: it is applied to any released version, so a contender that
//! acquires and releases in between does not make it fail. Otherwise, and always in a set, exactly the version is taken that was
//! seen.

use super::options::{HolderSeen, Reclaim};
use super::rows::Row;
use super::waiter::Waiter;
use crate::attributes::{AttributesChange, EarlierNames};
use crate::clock_bounds::ClockBounds;
use crate::failure::Failure;
use crate::instants::millis_rounded_up;
use crate::line::Line;
use crate::observation::HolderWatch;
use crate::port::Now;
use crate::record::Record;
use crate::request::{Action, LineRule, NewGrant, NextToken};
use crate::version::Version;
use std::time::Duration;

/// Who wants a lock.
#[derive(Clone, Copy, Debug)]
pub(super) struct Caller<'a> {
    pub(super) owner: &'a str,
    pub(super) reclaim: &'a Reclaim,
    pub(super) clock_bounds: &'a ClockBounds,
    /// Its place among those who wait. `None` where it does not look at the line.
    pub(super) line: Option<&'a Waiter>,
    /// What its Claim writes, if it may claim a row that it has seen.
    pub(super) claim: Option<&'a AttributesChange>,
}

impl<'a> Caller<'a> {
    /// One that looks at no line and claims nothing: it asks for several locks, or for one of several places.
    pub(super) fn in_no_line(owner: &'a str, reclaim: &'a Reclaim, clock_bounds: &'a ClockBounds) -> Self {
        Self { owner, reclaim, clock_bounds, line: None, claim: None }
    }
}

/// Whether the caller may take the row now.
#[derive(Debug)]
pub(super) enum Verdict<'a> {
    May(Write),
    Wait(Wait<'a>),
    /// Never. The call fails so.
    Refuse(Failure),
}

/// For how long the caller may not take the row, if nobody changes it. Both times together are not zero.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wait<'a> {
    watch: &'a HolderWatch,
    /// Until its holder is proven dead.
    held_for: Duration,
    /// For how long it is left to those ahead in line then.
    left_for: Duration,
}

impl Wait<'_> {
    pub(super) fn record(&self) -> &Record {
        self.watch.record()
    }

    /// Whether nobody holds the lock, and it is left to those ahead.
    pub(super) fn is_left_to_line(&self) -> bool {
        self.held_for.is_zero()
    }

    /// When the caller may take the row, if nobody changes it.
    pub(super) fn due_in(&self) -> Duration {
        self.held_for.saturating_add(self.left_for)
    }
}

/// The write that makes a row ours.
#[derive(Clone, Debug)]
pub(super) enum Write {
    Claim,
    Take { seen: String, held: bool, reclaims: bool, line: LineRule, token: NextToken, names: EarlierNames },
}

/// Judges the row as it is known.
pub(super) fn verdict<'a>(now: &Now, row: &'a Row, caller: &Caller<'_>) -> Verdict<'a> {
    let saved = caller.saved();
    let watch = match row {
        Row::Watched(watch) => watch,
        Row::Invalid(invalid) => return Verdict::Refuse(invalid.clone().into()),
        Row::Missing if saved.is_some() => return Verdict::Refuse(Failure::Lost),
        Row::Missing | Row::Unseen => return Verdict::May(caller.write_without_record()),
    };
    let record = watch.record();
    let reclaims = caller.reclaims(record);
    if saved.is_some() && !reclaims {
        return Verdict::Refuse(Failure::Lost);
    }
    let is_free = match record.freeze_reason {
        // Its holder may still hand it over to itself. Nobody else is granted it, dead or alive.
        Some(_) => !record.released && reclaims,
        None => record.released || reclaims,
    };
    let held_for = if is_free { Duration::ZERO } else { watch.dead_in(now, caller.clock_bounds) };
    let left_for = match caller.line_before(record) {
        Some(waiter) => waiter.turn_in(now, watch, caller.clock_bounds),
        None => Duration::ZERO,
    };
    if held_for.is_zero() && left_for.is_zero() {
        return Verdict::May(caller.write(now, row));
    }
    Verdict::Wait(Wait { watch, held_for, left_for })
}

impl<'a> Caller<'a> {
    /// Whether the call takes this row even from a living holder.
    pub(super) fn reclaims(&self, record: &Record) -> bool {
        match self.reclaim {
            Reclaim::Nobody => false,
            Reclaim::SameOwner => self.is_same_owner(record),
            // The grant of the saved lock, or a later grant of the same owner.
            Reclaim::Only(earlier) => {
                record.own_version.is_some_and(|version| version.grant == earlier.grant) || self.is_same_owner(record)
            }
        }
    }

    pub(super) fn is_same_owner(&self, record: &Record) -> bool {
        record.is_ours() && record.owner == self.owner
    }

    fn saved(&self) -> Option<&'a Version> {
        match self.reclaim {
            Reclaim::Only(saved) => Some(saved),
            Reclaim::Nobody | Reclaim::SameOwner => None,
        }
    }

    /// Whether the call reclaims the lock from its holder, or from whoever has saved it. Such a lock is its own, so it leaves it to
    /// nobody in line.
    fn reclaims_held(&self, record: &Record) -> bool {
        self.reclaims(record) && (self.saved().is_some() || !record.released)
    }

    /// Whether the caller leaves this row to others first, or has left it to them.
    pub(super) fn lets_others_go_first(&self, record: &Record) -> bool {
        self.line_before(record).is_some_and(|waiter| waiter.lets_others_go_first(record))
    }

    /// The place in line, where the row is not the caller's own.
    fn line_before(&self, record: &Record) -> Option<&'a Waiter> {
        self.line.filter(|_| !self.reclaims_held(record))
    }

    /// The write that takes the row as it is known, where the caller may take it.
    pub(super) fn write(&self, now: &Now, row: &Row) -> Write {
        let Some(watch) = row.watch() else { return self.write_without_record() };
        let record = watch.record();
        let claim_suffices = self.saved().is_none()
            && record.believable_line().is_none_or(|line| !line.has_tickets())
            && record.is_free_of_ours(now.wall.millis)
            && self.claim.is_some_and(|change| change.needs_no_look(record.attribute_names.as_deref()));
        if claim_suffices { Write::Claim } else { self.take(now, record) }
    }

    /// The same, where nothing is known of the row, or there is none.
    pub(super) fn write_without_record(&self) -> Write {
        self.saved().map_or(Write::Claim, Write::reclaim)
    }

    /// Takes exactly this version. Under a peer's version the row's token may be stale, so the new token is also at least as large
    /// as the clock.
    fn take(&self, now: &Now, record: &Record) -> Write {
        let token = if record.is_ours() {
            NextToken::FromRow
        } else {
            NextToken::Exactly(record.token.map_or(0, |token| token.saturating_add(1)).max(now.wall.millis))
        };
        Write::Take {
            seen: record.version.clone(),
            held: !record.released,
            reclaims: self.reclaims(record),
            line: self.line_rule(record),
            token,
            names: EarlierNames::Seen(record.attribute_names.clone()),
        }
    }

    fn line_rule(&self, record: &Record) -> LineRule {
        let Some(waiter) = self.line_before(record) else { return LineRule::Ignored };
        match record.believable_line().filter(|line| line.has_tickets()) {
            Some(line) => match waiter.ticket_to_serve(line) {
                Some(ticket) => LineRule::Serves { ticket, over: line.over_with(ticket) },
                None if !line.is_open() => LineRule::Ends(line.last),
                // Nobody came for these tickets. They must not keep others from the lock again.
                None if waiter.ticket().is_none() => {
                    LineRule::Serves { ticket: line.last, over: line.over_with(line.last) }
                }
                None => LineRule::Ignored,
            },
            // A line may have been opened since this call saw the dead holder.
            None if record.is_ours() && !record.released => LineRule::NobodyWaits,
            None => LineRule::Ignored,
        }
    }

    /// The holder of a row that the caller waits for.
    pub(super) fn holder(&self, now: &Now, wait: &Wait<'_>) -> HolderSeen {
        let (watch, record, left_to_line) = (wait.watch, wait.watch.record(), wait.is_left_to_line());
        let retry_after = if left_to_line {
            let deserted_in = self.line.and_then(|waiter| waiter.deserted_in(now, record, self.clock_bounds));
            deserted_in.unwrap_or(wait.left_for)
        } else {
            watch.dead_in(now, self.clock_bounds)
        };
        let observation = watch.observation(now.instants);
        HolderSeen {
            owner: record.owner.clone(),
            ends_at_ms: record.believable_end(),
            retry_after,
            waiting: record.believable_line().map_or(0, Line::waiting),
            left_to_line,
            freeze_reason: record.freeze_reason.clone(),
            observation: match self.line {
                Some(waiter) => waiter.hands_over(observation),
                None => observation,
            },
            attributes: record.attributes.clone(),
        }
    }
}

impl Write {
    /// The version that is replaced, where it is known and one of ours.
    pub(super) fn replaced(&self) -> Option<Version> {
        match self {
            Write::Claim => None,
            Write::Take { seen, .. } => Version::parse(seen),
        }
    }

    /// The request that sends it. All locks of a set have one token, which the call chooses.
    pub(super) fn action(self, now: &Now, caller: &Caller<'_>, grant: NewGrant, token_of_set: Option<u64>) -> Action {
        let (bounds, token_of_set) = (caller.clock_bounds, token_of_set.map(NextToken::Larger));
        match self {
            Write::Claim => {
                let skew = bounds.max_clock_skew().filter(|_| now.wall.trusted);
                let trusted = skew.map(|skew| now.wall.millis.saturating_sub(millis_rounded_up(skew)));
                let token = token_of_set.unwrap_or(NextToken::FromRow);
                Action::Claim { grant, trusted, looks_at_line: caller.line.is_some(), token }
            }
            Write::Take { seen, held, reclaims, line, token, names } => {
                Action::Take { grant, seen, held, reclaims, line, token: token_of_set.unwrap_or(token), names }
            }
        }
    }

    /// Takes a saved lock, whose row was not read. A released lock can be reclaimed too, so this does not ask for a held one.
    fn reclaim(saved: &Version) -> Self {
        let (line, token, names) = (LineRule::Ignored, NextToken::FromRow, EarlierNames::Unseen);
        Write::Take { seen: saved.to_string(), held: false, reclaims: true, line, token, names }
    }
}
