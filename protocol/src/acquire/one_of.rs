//! Acquire of one of several places, each of which is an ordinary lock.
//!
//! ```text
//! to reclaim the owner's own: look at all places
//!  ├ one is held by the owner .............. acquire that one
//!  └ else .................................. as after a look
//! else acquire the place that the caller gave back last, or a random one, without waiting
//!  ├ granted ............................... granted
//!  ├ held, or of unknown outcome ........... look at 5 random places (all, where there are no more)
//!  │   ├ some are free or dead ............. acquire one of them at random, without waiting; held: look again
//!  │   ├ all are held ...................... wait, and look at 5 random places
//!  │   └ all are held, and time is over .... look at all places; all are held: full
//!  └ failed ................................ the failure
//! ```
//!
//! Each place is acquired as any lock, with a grant of its own. A grant whose outcome is unknown is given up for good: before
//! the call ends, it is released once more, in case a request was applied late. Where clocks differ, the request can
//! still be applied after that. So a call that gave up such a grant, and got none, reports that its outcome is unknown.

use super::acquire_at_once;
use super::options::{AcquireOptions, Acquired, HolderSeen, Queueing, Reclaim};
use super::rows::Row;
use super::together::FailedAcquire;
use super::verdict::{Caller, Verdict, verdict};
use crate::backoff::{Backoff, longest_pause};
use crate::call::Call;
use crate::failure::Failure;
use crate::holding::Holding;
use crate::instants::Instants;
use crate::key::LockKey;
use crate::observation::{HolderWatch, Observation};
use crate::port::{Now, Port};
use crate::read::read_rows;
use crate::record::Record;
use crate::reply::Fault;
use crate::request::{Action, Request};
use crate::settings::Settings;
use crate::value::Item;
use crate::version::Version;
use std::collections::BTreeMap;
use std::time::Duration;

/// How many places a look shows, but for the last one of a call.
const SAMPLE: usize = 5;

/// How often the release of a place of unknown outcome is sent.
const MAX_RELEASES: u32 = 3;

/// The places of a semaphore: `name/0` to `name/{count - 1}`.
#[derive(Clone, Debug)]
pub struct Places {
    pub name: LockKey,
    pub count: u32,
}

impl Places {
    /// How many there are.
    pub fn count(&self) -> usize {
        self.count as usize
    }

    /// The key of this place.
    pub fn key(&self, place: usize) -> LockKey {
        LockKey::new(format!("{}/{place}", self.name.key()), self.name.sort_key().map(str::to_owned))
    }
}

/// What the caller asks for, beside the options of each place.
#[derive(Clone, Debug)]
pub struct WantedPlace {
    /// At least one.
    pub places: Places,
    /// The place to try first. Advice only.
    pub first: Option<usize>,
    /// The observations that an earlier call returned, each with its place.
    pub observations: Vec<(usize, Observation)>,
}

/// How an acquire of one of several places ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AcquiredPlace {
    Granted {
        place: usize,
        /// As [`Acquired::Granted`] has it, and so has the rest.
        holding: Holding,
        data: Option<Vec<u8>>,
        renew_first: bool,
    },
    /// Each place is held. The holders, each with its place.
    Full(Vec<(usize, HolderSeen)>),
}

/// Acquires one of several places. Waits for one for as long as [`Now`] allows.
///
/// `options` are those of each place. Their key and observation do not count. They reclaim nobody, or the same owner.
///
/// A failure of unknown outcome is that of the places which the call may hold.
pub async fn acquire_one_of(
    port: &mut impl Port,
    settings: &Settings,
    options: AcquireOptions,
    wanted: WantedPlace,
) -> Result<AcquiredPlace, FailedAcquire> {
    let mut acquiring = AcquiringOne {
        settings,
        options,
        wanted,
        rows: BTreeMap::new(),
        unknown: Vec::new(),
        poll: Backoff::behind_a_holder(),
        call: Call::new(),
    };
    let ended = acquiring.pursue(port).await;
    acquiring.finish(port, ended).await
}

struct AcquiringOne<'a> {
    settings: &'a Settings,
    options: AcquireOptions,
    wanted: WantedPlace,
    /// By place. What was seen is kept, so that a span of observation goes on over looks at other places.
    rows: BTreeMap<usize, Row>,
    /// The places whose outcome is unknown, with the newest version that was sent. Such a place may be drawn again, with another
    /// grant.
    unknown: Vec<(usize, Version)>,
    poll: Backoff,
    /// The looks of this call, and its tries of places that a look had shown to be free.
    call: Call,
}

impl AcquiringOne<'_> {
    async fn pursue(&mut self, port: &mut impl Port) -> Result<AcquiredPlace, Failure> {
        let all: Vec<usize> = (0..self.wanted.places.count()).collect();
        let mut seen = if self.options.reclaim == Reclaim::SameOwner {
            // Its own place may be any of them.
            self.look(port, &all).await?;
            if let Some(own) = all.iter().copied().find(|place| self.is_own(*place))
                && let Some(granted) = self.attempt(port, own).await?
            {
                return Ok(granted);
            }
            all.clone()
        } else {
            let first = self.wanted.first.filter(|first| *first < all.len());
            let first = first.unwrap_or_else(|| drawn(port, all.len()));
            if let Some(granted) = self.attempt(port, first).await? {
                return Ok(granted);
            }
            let sample = sample(port, all.len());
            self.look(port, &sample).await?;
            sample
        };
        loop {
            let now = port.now();
            let free: Vec<usize> = seen.iter().copied().filter(|place| self.is_free(&now, *place)).collect();
            if !free.is_empty() {
                self.call.follow_up();
                // A place that this call would take is not reported as held.
                self.call.ready(port).await?;
                let place = free[drawn(port, free.len())];
                if let Some(granted) = self.attempt(port, place).await? {
                    return Ok(granted);
                }
            } else if now.wait_left.is_zero() {
                if seen.len() == all.len() {
                    return self.full(&now);
                }
            } else {
                self.call.waits();
                let pause = self.pause(port, &now, &seen);
                port.sleep(&now, pause).await;
            }
            seen = if port.now().wait_left.is_zero() { all.clone() } else { sample(port, all.len()) };
            self.look(port, &seen).await?;
        }
    }

    /// Acquires this place as any lock, as the last look showed it, without waiting. Returns `None` where it was not granted.
    async fn attempt(&mut self, port: &mut impl Port, place: usize) -> Result<Option<AcquiredPlace>, Failure> {
        let mut row = self.rows.remove(&place).unwrap_or(Row::Unseen);
        let options = AcquireOptions {
            key: self.wanted.places.key(place),
            observation: self.carried(place).cloned(),
            // Nobody waits in line for one of several places.
            queueing: Queueing::Ignored,
            // Otherwise a call would take another call's place.
            reclaim: if row.watch().is_some() { self.options.reclaim.clone() } else { Reclaim::Nobody },
            ..self.options.clone()
        };
        let (acquired, newest) = acquire_at_once(port, self.settings, options, &mut row).await;
        self.rows.insert(place, row);
        match acquired {
            Ok(Acquired::Held(_)) => Ok(None),
            Ok(Acquired::Granted { holding, data, renew_first }) => {
                Ok(Some(AcquiredPlace::Granted { place, holding, data, renew_first }))
            }
            Err(Failure::InvalidRecord(invalid)) => {
                self.rows.insert(place, Row::Invalid(invalid));
                Ok(None)
            }
            // Another place may still be had.
            Err(Failure::OutcomeUnknown) => {
                self.unknown.extend(newest.map(|newest| (place, newest)));
                if port.now().time_left.is_zero() { Err(Failure::OutcomeUnknown) } else { Ok(None) }
            }
            Err(Failure::Lost) => Ok(None),
            Err(failure) => Err(failure),
        }
    }

    /// Reads these places, with as many requests as that takes.
    async fn look(&mut self, port: &mut impl Port, places: &[usize]) -> Result<(), Failure> {
        let keys: Vec<LockKey> = places.iter().map(|place| self.wanted.places.key(*place)).collect();
        let rows = read_rows(port, &mut self.call, &keys).await?;
        for (place, (after, row)) in places.iter().zip(rows) {
            self.see(*place, after, row);
        }
        Ok(())
    }

    /// Notes what a response showed of a place.
    fn see(&mut self, place: usize, after: Instants, row: Option<Item>) {
        let carried = self.carried(place).cloned();
        let known = self.rows.entry(place).or_insert(Row::Unseen);
        match row.map(|item| Record::read_to_hold(item, &self.settings.schema)) {
            None => *known = Row::Missing,
            Some(Ok(record)) => known.see(record, after, carried.as_ref()),
            Some(Err(invalid)) => *known = Row::Invalid(invalid),
        }
    }

    fn carried(&self, place: usize) -> Option<&Observation> {
        self.wanted.observations.iter().find(|(of, _)| *of == place).map(|(_, observation)| observation)
    }

    fn is_own(&self, place: usize) -> bool {
        let record = self.rows.get(&place).and_then(Row::watch).map(HolderWatch::record);
        record.is_some_and(|record| !record.released && self.caller().is_same_owner(record))
    }

    /// Whether this call may take the place, as it was last seen.
    fn is_free(&self, now: &Now, place: usize) -> bool {
        let row = self.rows.get(&place);
        row.is_some_and(|row| matches!(verdict(now, row, &self.caller()), Verdict::May(_)))
    }

    /// All places were seen, and none of them is free. A place whose row is no lock record is nobody's to take.
    fn full(&self, now: &Now) -> Result<AcquiredPlace, Failure> {
        let mut holders = Vec::new();
        let mut invalid = None;
        for (place, row) in &self.rows {
            match (verdict(now, row, &self.caller()), row) {
                (Verdict::Wait(wait), _) => holders.push((*place, self.caller().holder(now, &wait))),
                (_, Row::Invalid(found)) => invalid = Some(found.clone()),
                _ => {}
            }
        }
        match invalid {
            Some(invalid) if holders.is_empty() => Err(Failure::InvalidRecord(invalid)),
            _ => Ok(AcquiredPlace::Full(holders)),
        }
    }

    /// How long to wait before the next look: the first of the holders may be proven dead before that.
    fn pause(&mut self, port: &mut impl Port, now: &Now, seen: &[usize]) -> Duration {
        let due_in = |place: &usize| match verdict(now, self.rows.get(place)?, &self.caller()) {
            Verdict::Wait(wait) => Some(wait.due_in()),
            Verdict::May(_) | Verdict::Refuse(_) => None,
        };
        let due_in = seen.iter().filter_map(due_in).min().unwrap_or(Duration::MAX);
        let longest = longest_pause(port, now, due_in);
        self.poll.pause(port).min(longest)
    }

    /// Returns the caller's result. First releases the places of unknown outcome, in case a request for one of them was applied
    /// late.
    async fn finish(
        &mut self,
        port: &mut impl Port,
        ended: Result<AcquiredPlace, Failure>,
    ) -> Result<AcquiredPlace, FailedAcquire> {
        for (place, attempt) in &self.unknown {
            for _ in 0..MAX_RELEASES {
                let now = port.now();
                let action = Action::release_of_attempt(*attempt, now.wall.millis, None);
                let (_, reply) = port.write(&now, Request::alone(self.wanted.places.key(*place), action)).await;
                let retries = matches!(reply, Err(Fault::Unknown | Fault::Throttled));
                if !retries || port.now().time_left.is_zero() {
                    break;
                }
            }
        }
        match ended {
            Ok(AcquiredPlace::Full(_)) | Err(_) if !self.unknown.is_empty() => {
                let mut of: Vec<usize> = self.unknown.iter().map(|(place, _)| *place).collect();
                of.sort_unstable();
                of.dedup();
                Err(FailedAcquire { failure: Failure::OutcomeUnknown, of })
            }
            ended => ended.map_err(FailedAcquire::from),
        }
    }

    fn caller(&self) -> Caller<'_> {
        Caller::in_no_line(&self.options.owner, &self.options.reclaim, &self.settings.clock_bounds)
    }
}

/// Draws a number below this one.
fn drawn(port: &mut impl Port, below: usize) -> usize {
    // The bias is far too small to matter.
    usize::try_from(port.random_u64() % below.max(1) as u64).unwrap_or_default()
}

/// Draws the places of a look.
fn sample(port: &mut impl Port, places: usize) -> Vec<usize> {
    let mut drawn_places: Vec<usize> = Vec::with_capacity(SAMPLE);
    if places <= SAMPLE {
        drawn_places.extend(0..places);
    }
    while drawn_places.len() < SAMPLE.min(places) {
        let place = drawn(port, places);
        if !drawn_places.contains(&place) {
            drawn_places.push(place);
        }
    }
    drawn_places
}
