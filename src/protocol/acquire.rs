//! Acquire: one Claim, and what follows when it is refused or nobody answers.
//!
//! ```text
//! Claim
//!  ├ applied ............................ granted
//!  ├ applied, but the row's token is no
//!  │ number that another can follow ..... release it, and report the row
//!  ├ refused with the row
//!  │   ├ it carries our grant ........... granted (an earlier attempt had been applied)
//!  │   ├ it is ours, and released ....... Claim again; Take that version where it was released after our :now
//!  │   ├ it is a peer's, and released ... Take that version
//!  │   ├ it is held, and proven dead .... Take that version
//!  │   ├ it is ours to reclaim .......... Take that version
//!  │   └ it is held ..................... say so, or wait and Peek again
//!  └ refused without a row .............. pause, then Peek
//! nobody answers
//!      → Peek: our grant → granted; no row → Claim again as a new attempt; else as above
//! ```
//!
//! A rival can be faster each time. So the second write in a row that follows a refusal asks for time that is
//! left, and the third one pauses. A row that this call would take is never reported as held: when the time is
//! over, the lock was not to be had for now.

use super::backoff::{Backoff, Faults, varied};
use super::crowd::Crowd;
use super::holding::{Belief, Holding, PendingCommit};
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
    /// With [`Reclaim::Only`]: the last commit under the earlier grant, while its outcome is not known.
    pub commit: Option<PendingCommit>,
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
    /// Writes in a row that followed a refusal at once.
    follow_ups: u32,
    /// A free row of ours is not claimed again, since the record in it is past its time.
    only_takes: bool,
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
    /// The version that it takes the place of, where that is known and one of ours.
    replaces: Option<Version>,
}

#[derive(Debug)]
enum Next {
    Claim,
    Take {
        seen: String,
        held: bool,
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
    /// The grant was written into a row that is no lock record.
    GiveBack(InvalidRecord),
    /// The grant is released; then this is the verdict.
    CleanUp(AcquireVerdict),
    Finish(AcquireVerdict),
}

impl<'a> Acquisition<'a> {
    /// A new acquire call.
    pub fn new(settings: &'a Settings, wanted: Wanted) -> Self {
        let next = match &wanted.reclaim {
            // Whether it is still held nobody has seen: a lock that was released can be reclaimed too.
            Reclaim::Only(version) => Next::Take { seen: version.to_string(), held: false, token: NextToken::FromRow },
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
            follow_ups: 0,
            only_takes: false,
            next,
        }
    }

    /// A new attempt: a version never used before, counted from before it is sent.
    fn attempt(&mut self, tick: &Tick<'_>, replaces: Option<Version>) -> NewGrant {
        let grant = *self.grant.get_or_insert_with(|| Grant::from_random((tick.random)()));
        let stamp = Stamp::after(self.newest(), tick.wall.millis, tick.random_u16());
        let lease = self.settings.lease(tick.lease);
        let attempt = Attempt {
            version: Version { grant, stamp },
            started: tick.now,
            now: tick.wall.written,
            ends: tick.wall.written.saturating_add(millis_rounded_up(lease.duration())),
            lease,
            replaces,
        };
        self.attempts.push(attempt.clone());
        NewGrant {
            version: attempt.version,
            owner: self.wanted.owner.clone(),
            lease: attempt.lease,
            now: tick.wall.millis,
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
        let grant = self.attempt(tick, None);
        self.send(Action::Claim { grant, trusted })
    }

    /// What a known row means, now.
    fn decide(&mut self, tick: &Tick<'_>, watch: &Watch) -> Next {
        let record = watch.record();
        let own = record.own_version.filter(|version| Some(version.grant) == self.grant);
        if let Some(version) = own {
            return self.recognised(version, record);
        }
        if let Some(complaint) = self.complaint.take() {
            return Next::Finish(AcquireVerdict::Rejected(Rejection::Invalid(complaint)));
        }
        if let Reclaim::Only(earlier) = &self.wanted.reclaim {
            return if self.is_to_reclaim(record, earlier) {
                self.follow_up(take(record, tick))
            } else {
                Next::Finish(AcquireVerdict::Gone)
            };
        }
        if self.would_take(tick, watch) {
            // Any free version satisfies a Claim, so a rival that takes and releases the lock does not refuse it.
            let claim = record.is_free_of_ours(tick.wall.millis) && !self.only_takes;
            return self.follow_up(if claim { Next::Claim } else { take(record, tick) });
        }
        self.follow_ups = 0;
        if tick.wait_left.is_zero() {
            return Next::Finish(AcquireVerdict::Held(self.holder(tick, watch)));
        }
        Next::Waited
    }

    /// Another write, because of the row that refused the one before.
    fn follow_up(&mut self, write: Next) -> Next {
        self.follow_ups += 1;
        match self.follow_ups {
            1 => {}
            2 => self.faults.go_on_at_once(),
            _ => self.faults.go_on_after_pause(),
        }
        write
    }

    /// Whether this call takes the lock from whom the row names: nobody, somebody dead, or the caller itself.
    fn would_take(&self, tick: &Tick<'_>, watch: &Watch) -> bool {
        let record = watch.record();
        let reclaimed = match &self.wanted.reclaim {
            Reclaim::Nobody => false,
            Reclaim::SameOwner => self.is_same_owner(record),
            Reclaim::Only(earlier) => self.is_to_reclaim(record, earlier),
        };
        record.released || reclaimed || watch.dead_in(tick, &self.settings.rules).is_zero()
    }

    /// The grant that was written down, or a later one of the same holder.
    fn is_to_reclaim(&self, record: &Record, earlier: &Version) -> bool {
        let same_grant = record.own_version.is_some_and(|version| version.grant == earlier.grant);
        same_grant || self.is_same_owner(record)
    }

    /// Whether a free row is only taken, and never claimed.
    pub(super) fn only_takes(&mut self, only: bool) {
        self.only_takes = only;
    }

    fn is_same_owner(&self, record: &Record) -> bool {
        record.is_ours() && record.owner == self.wanted.owner
    }

    /// The row carries our grant: which of our attempts wrote it, and is it still held?
    fn recognised(&self, version: Version, record: &Record) -> Next {
        let written = self.attempts.iter().find(|attempt| attempt.version == version);
        match (written, record.token) {
            (Some(attempt), Some(token)) if !record.released => {
                Next::Granted { attempt: attempt.clone(), token, data: record.data.clone() }
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
        let belief = Belief::of(attempt.started, &attempt.lease, until_end, &self.settings.rules);
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
                pending: self.wanted.commit.map(|commit| self.settled(commit, attempt.replaces)),
            }),
        }
    }

    /// What the version that the new grant replaced says of the last commit under the earlier one.
    fn settled(&self, commit: PendingCommit, replaced: Option<Version>) -> PendingCommit {
        match &self.wanted.reclaim {
            Reclaim::Only(earlier) => commit.settled_by(replaced, earlier.grant),
            Reclaim::Nobody | Reclaim::SameOwner => commit,
        }
    }

    /// The caller's time is over.
    fn give_up(&self, tick: &Tick<'_>) -> AcquireVerdict {
        match &self.watch {
            Some(watch) if !self.would_take(tick, watch) => AcquireVerdict::Held(self.holder(tick, watch)),
            _ if self.faults.was_unavailable() || self.follow_ups > 0 => AcquireVerdict::Unavailable,
            _ => AcquireVerdict::Unknown,
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

    /// Whether a refusal without a row says too little.
    fn has_to_look(&self) -> bool {
        matches!(self.next, Next::Claim) || matches!(self.wanted.reclaim, Reclaim::Only(_))
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
        let ours = self.has_written(&item);
        match Record::read(item, &self.settings.schema) {
            Ok(record) => {
                self.crowd.see(&record, after);
                let carried = self.wanted.observation.as_ref();
                self.watch = Some(Watch::on(record, after, self.watch.take(), carried));
                self.next = Next::Decide;
            }
            Err(invalid) => self.unreadable(ours, invalid),
        }
    }

    /// Whether this call has written its grant into the row.
    pub(super) fn has_written(&self, row: &Item) -> bool {
        let grant = match row.get(schema::VERSION) {
            Some(Value::S(version)) => Version::parse(version).map(|version| version.grant),
            _ => None,
        };
        grant.is_some() && grant == self.grant
    }

    /// The row is no lock record. If this call has written its grant into it, the row is given back.
    pub(super) fn unreadable(&mut self, ours: bool, invalid: InvalidRecord) {
        self.faults.answered();
        self.next = if ours { Next::GiveBack(invalid) } else { Next::Finish(AcquireVerdict::InvalidRecord(invalid)) };
    }

    fn applied(&mut self, mut row: Item) {
        let token = match row.get(schema::TOKEN) {
            Some(Value::N(number)) => number.parse().ok().filter(|token| (1..u64::MAX).contains(token)),
            _ => None,
        };
        if let (Some(attempt), Some(token)) = (self.attempts.last(), token) {
            let data = match row.remove(schema::DATA) {
                Some(Value::B(bytes)) => Some(bytes),
                _ => None,
            };
            self.next = Next::Granted { attempt: attempt.clone(), token, data };
            return;
        }
        // The row's token was no number that another can follow, so neither is the one that was written.
        self.next = match Record::read_granted(row, &self.settings.schema) {
            Err(invalid) => Next::GiveBack(invalid),
            // The answer lacks what was asked for.
            Ok(_) => {
                self.unsettled = true;
                Next::Peek
            }
        };
    }
}

/// Take over exactly this version. Under a peer's version the row's token may be stale, so the new
/// one is also as large as the clock.
fn take(record: &Record, tick: &Tick<'_>) -> Next {
    let token = if record.is_ours() {
        NextToken::FromRow
    } else {
        NextToken::Exactly(record.token.map_or(0, |token| token.saturating_add(1)).max(tick.wall.millis))
    };
    Next::Take { seen: record.version.clone(), held: !record.released, token }
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
                        Next::Take { seen, held, token } => {
                            self.next = Next::Take { seen: seen.clone(), held, token };
                            let grant = self.attempt(tick, Version::parse(&seen));
                            return self.send(Action::Take { grant, seen, held, token });
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
                Next::Finish(_) if self.unsettled => {
                    self.next = Next::CleanUp(AcquireVerdict::Unknown);
                    if let Some(release) = self.clean_up(tick) {
                        return release;
                    }
                }
                Next::GiveBack(invalid) => {
                    self.next = Next::CleanUp(AcquireVerdict::InvalidRecord(invalid));
                    if let Some(release) = self.clean_up(tick) {
                        return release;
                    }
                }
                Next::CleanUp(verdict) | Next::Finish(verdict) => return Step::Done(verdict),
            }
        }
    }

    fn answered(&mut self, after: Moment, answer: Answer) {
        if matches!(self.next, Next::CleanUp(_)) {
            return;
        }
        let was_write = !matches!(self.next, Next::Peek);
        match answer {
            Answer::Applied(row) => {
                self.faults.answered();
                self.applied(row);
            }
            // A row that is not there refuses no Claim, and a reclaim has to know: look.
            Answer::Refused(None) if self.has_to_look() => {
                self.faults.unavailable();
                self.next = Next::Peek;
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
