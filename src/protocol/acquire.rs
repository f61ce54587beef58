//! Acquire: one Claim, and what follows when it is refused or nobody answers.
//!
//! ```text
//! Claim
//!  ├ applied ............................ granted
//!  └ refused with the row
//!      ├ it carries our grant ........... granted (an earlier attempt had been applied)
//!      ├ it is released ................. Take that version (a peer's row, or released after our :now)
//!      ├ it is held, and proven dead .... Take that version
//!      ├ it is ours to reclaim .......... Take that version
//!      └ it is held ..................... say so, or wait and Peek again
//! nobody answers
//!      → Peek: our grant → granted; no row → Claim again as a new attempt; else as above
//! ```

use super::backoff::{Backoff, Faults, varied};
use super::crowd::Crowd;
use super::holding::{Belief, Holding};
use super::key::LockKey;
use super::lease::Lease;
use super::machine::{Answer, Machine, Rejection, Step, Tick};
use super::moment::{Moment, millis_rounded_up};
use super::observation::{Observation, Watch};
use super::record::{InvalidRecord, Record};
use super::request::{Action, DataChange, NewGrant, NextToken, Request, Scope};
use super::schema;
use super::settings::Settings;
use super::value::{Item, Value};
use super::version::{Grant, Stamp, Version};
use crate::mutants::{self, Mutant};
use std::time::Duration;

/// What a caller wants.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// Which lock.
    pub key: LockKey,
    /// Who will hold it.
    pub owner: String,
    /// The workflow that will hold it.
    pub workflow: Option<String>,
    /// What becomes of the row's payload.
    pub data: DataChange,
    /// Which holders may be replaced while they are alive.
    pub reclaim: Reclaim,
    /// What an earlier call saw.
    pub observation: Option<Observation>,
}

/// Which holders may be replaced while they are alive.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Reclaim {
    /// None.
    #[default]
    Nobody,
    /// A row of ours with the same owner: a retried task gets its own lock again.
    SameOwner,
    /// Only the holder of this grant, or of a later grant of the same owner: a lock that was
    /// written down is taken again so that its earlier copies are fenced off.
    Only(Version),
}

/// How an acquire ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AcquireVerdict {
    /// The lock is held.
    Granted {
        /// The lock.
        holding: Box<Holding>,
        /// The payload on the row.
        data: Option<Vec<u8>>,
        /// Under half of the lease is left: renew before working.
        renew_first: bool,
    },
    /// Somebody else holds it.
    Held(HolderSeen),
    /// The grant that was to be reclaimed, or our own, is no longer the row's.
    Gone,
    /// The row is not a lock record.
    InvalidRecord(InvalidRecord),
    /// DynamoDB will not take the request.
    Rejected(Rejection),
    /// DynamoDB refuses for now; nothing was applied.
    Unavailable,
    /// Nobody knows whether the lock was granted. What could be done to give it back was done.
    Unknown,
}

/// Somebody else's hold on a lock, as it was seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HolderSeen {
    /// Who holds it.
    pub owner: String,
    /// End of the lease in epoch milliseconds, by the holder's wall clock, where one is known.
    pub ends: Option<u64>,
    /// How long until the holder could be proven dead, if it does not renew.
    pub retry_after: Duration,
    /// What was seen, to be carried to the next call.
    pub observation: Observation,
}

/// The decision behind acquire, try-acquire and reclaim.
#[derive(Debug)]
pub struct Acquisition<'a> {
    settings: &'a Settings,
    wanted: Wanted,
    grant: Option<Grant>,
    /// Every attempt, because a later answer may show that an earlier one was applied.
    attempts: Vec<Attempt>,
    watch: Option<Watch>,
    poll: Backoff,
    crowd: Crowd,
    faults: Faults,
    /// An attempt whose outcome nobody knows: it may be applied even now.
    unsettled: bool,
    /// DynamoDB found an attempt invalid: perhaps because of what stands on the row.
    complaint: Option<String>,
    next: Next,
}

#[derive(Clone, Debug)]
struct Attempt {
    version: Version,
    /// Before the request was first sent.
    started: Moment,
    now: u64,
    lease: Lease,
    ends: u64,
}

#[derive(Debug)]
enum Next {
    Claim,
    Take {
        seen: String,
        token: NextToken,
    },
    Peek,
    /// The row is known: what does it mean?
    Decide,
    /// Waited behind a holder: take over if it is dead by now, else look again.
    Waited,
    Granted {
        attempt: Attempt,
        token: u64,
        data: Option<Vec<u8>>,
    },
    CleanUp,
    Finish(AcquireVerdict),
}

impl<'a> Acquisition<'a> {
    /// A new acquire call.
    pub fn new(settings: &'a Settings, wanted: Wanted) -> Self {
        let next = match &wanted.reclaim {
            Reclaim::Only(version) => Next::Take { seen: version.to_string(), token: NextToken::FromRow },
            Reclaim::Nobody | Reclaim::SameOwner => Next::Claim,
        };
        Self {
            settings,
            wanted,
            grant: None,
            attempts: Vec::new(),
            watch: None,
            poll: Backoff::behind_a_holder(),
            crowd: Crowd::default(),
            faults: Faults::none(),
            unsettled: false,
            complaint: None,
            next,
        }
    }

    /// A new attempt: a version never used before, counted from before it is sent.
    fn attempt(&mut self, tick: &Tick<'_>) -> NewGrant {
        let grant = *self.grant.get_or_insert_with(|| Grant::from_random((tick.random)()));
        let stamp = Stamp::after(self.newest(), tick.wall.millis, tick.random_u16());
        let lease = self.settings.lease(tick.lease);
        let attempt = Attempt {
            version: Version { grant, stamp },
            started: tick.now,
            now: tick.wall.millis,
            ends: tick.wall.millis.saturating_add(millis_rounded_up(lease.duration())),
            lease,
        };
        self.attempts.push(attempt.clone());
        NewGrant {
            version: attempt.version,
            owner: self.wanted.owner.clone(),
            lease: attempt.lease,
            now: attempt.now,
            ends: attempt.ends,
            data: self.wanted.data.clone(),
            workflow: self.wanted.workflow.clone(),
            once: None,
        }
    }

    fn newest(&self) -> Option<Stamp> {
        self.attempts.last().map(|attempt| attempt.version.stamp)
    }

    fn send(&self, action: Action) -> Step<AcquireVerdict> {
        Step::Send(Request::alone(self.wanted.key.clone(), action))
    }

    fn claim(&mut self, tick: &Tick<'_>) -> Step<AcquireVerdict> {
        let skew = self.settings.rules.max_clock_skew().filter(|_| tick.wall.trusted);
        let trusted = skew.map(|skew| tick.wall.millis.saturating_sub(millis_rounded_up(skew)));
        let grant = self.attempt(tick);
        self.send(Action::Claim { grant, trusted })
    }

    /// What a known row means, now.
    fn decide(&mut self, tick: &Tick<'_>, watch: &Watch) -> Next {
        let record = watch.record();
        let own = record.own_version.filter(|version| Some(version.grant) == self.grant);
        if let Some(version) = own.filter(|_| !mutants::on(Mutant::NoRecognition)) {
            return self.recognised(version, record, tick);
        }
        if let Some(complaint) = self.complaint.take() {
            return Next::Finish(AcquireVerdict::Rejected(Rejection::Invalid(complaint)));
        }
        if let Reclaim::Only(earlier) = &self.wanted.reclaim {
            let same_grant = record.own_version.is_some_and(|version| version.grant == earlier.grant);
            return if same_grant || self.is_same_owner(record) {
                take(record, tick)
            } else {
                Next::Finish(AcquireVerdict::Gone)
            };
        }
        let reclaimed = self.wanted.reclaim == Reclaim::SameOwner && self.is_same_owner(record);
        if record.released || reclaimed || watch.dead_in(tick, &self.settings.rules).is_zero() {
            return take(record, tick);
        }
        if tick.wait_left.is_zero() {
            return Next::Finish(AcquireVerdict::Held(self.holder(tick, watch)));
        }
        Next::Waited
    }

    fn is_same_owner(&self, record: &Record) -> bool {
        record.is_ours() && record.owner == self.wanted.owner
    }

    /// The row carries our grant: which of our attempts wrote it, and is it still held?
    fn recognised(&self, version: Version, record: &Record, tick: &Tick<'_>) -> Next {
        let written = self.attempts.iter().find(|attempt| attempt.version == version);
        match (written, record.token) {
            (Some(attempt), Some(token)) if !record.released => {
                let polled = mutants::on(Mutant::RecognisedCountsFromPoll);
                let started = if polled { tick.now } else { attempt.started };
                Next::Granted { attempt: Attempt { started, ..attempt.clone() }, token, data: record.data.clone() }
            }
            // Released by whoever cleans up after our workflow, or not written by an attempt of ours.
            _ => Next::Finish(AcquireVerdict::Gone),
        }
    }

    fn holder(&self, tick: &Tick<'_>, watch: &Watch) -> HolderSeen {
        HolderSeen {
            owner: watch.record().owner.clone(),
            ends: watch.record().believable_end(),
            retry_after: watch.dead_in(tick, &self.settings.rules),
            observation: watch.observation(tick.now),
        }
    }

    /// Behind a holder: until the next look, later in a crowd, but no longer than until the holder could be proven
    /// dead (a little later, so that not all waiters strike at once), or the caller's time is over.
    fn pause(&mut self, tick: &Tick<'_>, watch: &Watch) -> Duration {
        let dead_in = watch.dead_in(tick, &self.settings.rules);
        let jitter = Duration::from_millis(20).mul_f64(tick.random_fraction());
        let pause = self.poll.pause(tick).max(varied(self.crowd.pause(), tick));
        pause.min(dead_in + jitter).min(tick.wait_left).max(Duration::from_millis(1))
    }

    fn granted(&self, tick: &Tick<'_>, attempt: &Attempt, token: u64, data: Option<Vec<u8>>) -> AcquireVerdict {
        let until_end = Duration::from_millis(attempt.ends.saturating_sub(attempt.now));
        let started = if mutants::on(Mutant::LeaseCountsFromReceipt) { tick.now } else { attempt.started };
        let belief = Belief::of(started, &attempt.lease, until_end, &self.settings.rules);
        let newest = self.newest().unwrap_or(attempt.version.stamp);
        AcquireVerdict::Granted {
            renew_first: belief.remaining(tick.now) * 2 < attempt.lease.duration(),
            data,
            holding: Box::new(Holding {
                key: self.wanted.key.clone(),
                owner: self.wanted.owner.clone(),
                workflow: self.wanted.workflow.clone(),
                token,
                newest: Version { grant: attempt.version.grant, stamp: newest },
                seen: attempt.version.stamp,
                lease: attempt.lease.clone(),
                ends: attempt.ends,
                belief,
                keep: None,
                pending: None,
            }),
        }
    }

    /// The caller's time is over, or an answer ends the call.
    fn give_up(&self, tick: &Tick<'_>) -> AcquireVerdict {
        let held = |watch: &&Watch| !watch.record().released && !watch.dead_in(tick, &self.settings.rules).is_zero();
        match self.watch.as_ref().filter(held) {
            Some(watch) => AcquireVerdict::Held(self.holder(tick, watch)),
            None if self.faults.was_unavailable() => AcquireVerdict::Unavailable,
            None => AcquireVerdict::Unknown,
        }
    }

    /// Gives back what an attempt of unknown outcome may have got, or may still get.
    fn clean_up(&self, tick: &Tick<'_>) -> Option<Step<AcquireVerdict>> {
        let attempt = self.attempts.last()?;
        let Version { grant, stamp: up_to } = attempt.version;
        let ends = tick.wall.millis.max(up_to.millis() + 1);
        let scope = Scope::Mine { grant, up_to, token: None };
        Some(self.send(Action::Release { scope, ends, data: DataChange::Keep, keep: None }))
    }

    fn see(&mut self, after: Moment, row: Option<Item>) {
        let Some(item) = row else {
            self.watch = None;
            self.next = match self.complaint.take() {
                Some(complaint) => Next::Finish(AcquireVerdict::Rejected(Rejection::Invalid(complaint))),
                None if matches!(self.wanted.reclaim, Reclaim::Only(_)) => Next::Finish(AcquireVerdict::Gone),
                None => Next::Claim,
            };
            return;
        };
        let before = self.attempts.first().filter(|_| mutants::on(Mutant::SpanBeginsBeforeAnswer));
        let after = before.map_or(after, |attempt| attempt.started);
        match Record::read(item, &self.settings.schema) {
            Ok(record) => {
                self.crowd.see(&record, after);
                let carried = self.wanted.observation.as_ref();
                self.watch = Some(Watch::on(record, after, self.watch.take(), carried));
                self.next = Next::Decide;
            }
            Err(invalid) => self.next = Next::Finish(AcquireVerdict::InvalidRecord(invalid)),
        }
    }

    fn applied(&mut self, mut row: Item) {
        let token = match row.remove(schema::TOKEN) {
            Some(Value::N(number)) => number.parse().ok(),
            _ => None,
        };
        let data = match row.remove(schema::DATA) {
            Some(Value::B(bytes)) => Some(bytes),
            _ => None,
        };
        self.next = match (self.attempts.last(), token) {
            (Some(attempt), Some(token)) => Next::Granted { attempt: attempt.clone(), token, data },
            // The row's token was no whole number, so neither is ours: look at it, and say so.
            _ => {
                self.unsettled = true;
                Next::Peek
            }
        };
    }
}

/// Take over exactly this version. Under a peer's version the row's token may be stale, so the new
/// one is also as large as the clock.
fn take(record: &Record, tick: &Tick<'_>) -> Next {
    let clock = if mutants::on(Mutant::TokenNotFromTheClock) { 0 } else { tick.wall.millis };
    let token = if record.is_ours() || mutants::on(Mutant::PeersRowWithoutMaximum) {
        NextToken::FromRow
    } else {
        NextToken::Exactly(record.token.map_or(0, |token| token.saturating_add(1)).max(clock))
    };
    Next::Take { seen: record.version.clone(), token }
}

impl Machine for Acquisition<'_> {
    type Verdict = AcquireVerdict;

    fn step(&mut self, tick: &Tick<'_>) -> Step<AcquireVerdict> {
        loop {
            match std::mem::replace(&mut self.next, Next::Peek) {
                next @ (Next::Claim | Next::Take { .. } | Next::Peek) => match self.faults.due_pause(tick) {
                    Err(_) => self.next = Next::Finish(self.give_up(tick)),
                    Ok(Some(pause)) => {
                        self.next = next;
                        return Step::Wait(pause);
                    }
                    Ok(None) => match next {
                        Next::Claim => {
                            self.next = Next::Claim;
                            return self.claim(tick);
                        }
                        Next::Take { seen, token } => {
                            self.next = Next::Take { seen: seen.clone(), token };
                            let grant = self.attempt(tick);
                            return self.send(Action::Take { grant, seen, token });
                        }
                        _ => return self.send(Action::Peek),
                    },
                },
                Next::Decide => {
                    let Some(watch) = self.watch.take() else { continue };
                    self.next = self.decide(tick, &watch);
                    let waiting = matches!(self.next, Next::Waited).then(|| self.pause(tick, &watch));
                    self.watch = Some(watch);
                    if let Some(pause) = waiting {
                        return Step::Wait(pause);
                    }
                }
                Next::Waited => {
                    if let Some(watch) = &self.watch
                        && watch.dead_in(tick, &self.settings.rules).is_zero()
                    {
                        self.next = take(watch.record(), tick);
                    }
                }
                Next::Granted { attempt, token, data } => return Step::Done(self.granted(tick, &attempt, token, data)),
                Next::Finish(AcquireVerdict::Held(seen)) if self.unsettled && mutants::on(Mutant::HeldAfterUnknown) => {
                    return Step::Done(AcquireVerdict::Held(seen));
                }
                Next::Finish(_) if self.unsettled => {
                    self.next = Next::CleanUp;
                    if mutants::on(Mutant::NoCleanup) {
                        continue;
                    }
                    if let Some(release) = self.clean_up(tick) {
                        return release;
                    }
                }
                Next::CleanUp => return Step::Done(AcquireVerdict::Unknown),
                Next::Finish(verdict) => return Step::Done(verdict),
            }
        }
    }

    fn answered(&mut self, after: Moment, answer: Answer) {
        if matches!(self.next, Next::CleanUp) {
            return;
        }
        let was_write = !matches!(self.next, Next::Peek);
        match answer {
            Answer::Applied(row) => {
                self.faults.answered();
                self.applied(row);
            }
            Answer::Refused(row) | Answer::Found(row) => {
                self.faults.answered();
                self.see(after, row);
            }
            Answer::Unavailable => self.faults.unavailable(),
            Answer::Rejected(Rejection::Invalid(message)) if was_write => {
                self.complaint = Some(message);
                self.next = Next::Peek;
            }
            Answer::Rejected(rejection) => self.next = Next::Finish(AcquireVerdict::Rejected(rejection)),
            Answer::Unknown | Answer::Cancelled(_) => {
                // Whatever became of a first write shows on the row: look at once. Where writes keep
                // failing while reads are answered, pause.
                if was_write && !self.unsettled {
                    self.faults.go_on_at_once();
                } else {
                    self.faults.go_on_after_pause();
                }
                self.unsettled |= was_write;
                self.next = Next::Peek;
            }
        }
    }
}
