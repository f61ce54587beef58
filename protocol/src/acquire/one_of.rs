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
//! Each place is acquired as any lock, with a grant of its own. A place whose outcome is unknown is left for good: before
//! the call ends, its grant is released once more, in case a request was applied late. Where clocks differ, the request can
//! still be applied after that. So a call without a grant that left a place reports that its outcome is unknown.

use super::candidate::Candidate;
use super::options::{AcquireOptions, Acquired, HolderSeen, Queueing, Reclaim};
use super::together::FailedAcquire;
use super::{Seen, acquire_at_once};
use crate::backoff::Backoff;
use crate::call::Call;
use crate::failure::Failure;
use crate::holding::Holding;
use crate::instants::Instants;
use crate::key::LockKey;
use crate::observation::{HolderWatch, Observation};
use crate::port::{Now, Port};
use crate::read::read_rows;
use crate::record::{InvalidRecord, Record};
use crate::reply::Fault;
use crate::request::{Action, Request};
use crate::settings::Settings;
use crate::value::Item;
use crate::version::Version;
use std::collections::BTreeMap;
use std::time::Duration;

/// How many places a look shows, but for the last one of a call.
const SAMPLE: usize = 5;

/// How often the release of a place that was left is sent.
const MOST_RELEASES: u32 = 3;

/// The places of which one is wanted.
#[derive(Clone, Debug)]
pub enum Places {
    /// Locks with names of their own, none of them twice.
    Named(Vec<LockKey>),
    /// `name/0` to `name/{count - 1}`.
    Numbered { name: LockKey, count: u32 },
}

impl Places {
    /// How many there are.
    pub fn count(&self) -> usize {
        match self {
            Places::Named(keys) => keys.len(),
            Places::Numbered { count, .. } => *count as usize,
        }
    }

    /// The key of the place at this position.
    pub fn key(&self, place: usize) -> LockKey {
        match self {
            Places::Named(keys) => keys.get(place).cloned().unwrap_or_else(|| LockKey::new(String::new(), None)),
            Places::Numbered { name, .. } => {
                LockKey::new(format!("{}/{place}", name.key()), name.sort_key().map(str::to_owned))
            }
        }
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
        left: Vec::new(),
        poll: Backoff::behind_a_holder(),
        call: Call::new(),
    };
    let ended = acquiring.until_end(port).await;
    acquiring.finish(port, ended).await
}

/// What the last look showed of a place.
#[derive(Debug)]
enum Row {
    Missing,
    Watched(HolderWatch, Seen),
    Invalid(InvalidRecord),
}

struct AcquiringOne<'a> {
    settings: &'a Settings,
    options: AcquireOptions,
    wanted: WantedPlace,
    /// By place. What was seen is kept, so that a span of observation goes on over looks at other places.
    rows: BTreeMap<usize, Row>,
    /// The places whose outcome is unknown, with the newest version that was sent.
    left: Vec<(usize, Version)>,
    poll: Backoff,
    /// The looks of this call, and its tries of places that a look had shown to be free.
    call: Call,
}

impl AcquiringOne<'_> {
    async fn until_end(&mut self, port: &mut impl Port) -> Result<AcquiredPlace, Failure> {
        let all: Vec<usize> = (0..self.wanted.places.count()).collect();
        let mut seen = if self.options.reclaim == Reclaim::SameOwner {
            // Its own place may be any of them.
            self.look(port, &all).await?;
            let now = port.now();
            if let Some(own) = all.iter().copied().find(|place| self.is_own(*place))
                && let Some(granted) = self.attempt(port, &now, own).await?
            {
                return Ok(granted);
            }
            all.clone()
        } else {
            let first = self.wanted.first.filter(|first| *first < all.len());
            let first = first.unwrap_or_else(|| drawn(port, all.len()));
            if let Some(granted) = self.attempt_unseen(port, first).await? {
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
                let now = self.call.ready(port).await?;
                let place = free[drawn(port, free.len())];
                if let Some(granted) = self.attempt(port, &now, place).await? {
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

    /// Tries a place of which nothing is known.
    async fn attempt_unseen(&mut self, port: &mut impl Port, place: usize) -> Result<Option<AcquiredPlace>, Failure> {
        self.acquire(port, place, None, None).await
    }

    /// Tries a place as the last look showed it.
    async fn attempt(
        &mut self,
        port: &mut impl Port,
        now: &Now,
        place: usize,
    ) -> Result<Option<AcquiredPlace>, Failure> {
        let (seen, observation) = match self.rows.get(&place) {
            Some(Row::Watched(watch, seen)) => (Some(seen.clone()), Some(watch.observation(now.instants))),
            _ => (None, None),
        };
        self.acquire(port, place, seen, observation).await
    }

    /// Acquires this place as any lock, without waiting. Returns `None` where it was not granted.
    async fn acquire(
        &mut self,
        port: &mut impl Port,
        place: usize,
        seen: Option<Seen>,
        observation: Option<Observation>,
    ) -> Result<Option<AcquiredPlace>, Failure> {
        let observation = observation.or_else(|| self.carried(place).cloned());
        let options = AcquireOptions {
            key: self.wanted.places.key(place),
            observation,
            // Nobody waits in line for one of several places.
            queueing: Queueing::Ignored,
            // Otherwise a call would take another call's place.
            reclaim: if seen.is_some() { self.options.reclaim.clone() } else { Reclaim::Nobody },
            ..self.options.clone()
        };
        let (acquired, newest) = acquire_at_once(port, self.settings, options, seen).await;
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
                self.left.extend(newest.map(|newest| (place, newest)));
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
            let seen = self.seen(*place, after, row);
            self.rows.insert(*place, seen);
        }
        Ok(())
    }

    fn seen(&mut self, place: usize, after: Instants, row: Option<Item>) -> Row {
        let Some(item) = row else { return Row::Missing };
        match Record::read_to_hold(item.clone(), &self.settings.schema) {
            Ok(record) => {
                let earlier = match self.rows.remove(&place) {
                    Some(Row::Watched(watch, _)) => Some(watch),
                    _ => None,
                };
                let carried = self.carried(place);
                Row::Watched(HolderWatch::on(record, after, earlier, carried), (after, Some(item)))
            }
            Err(invalid) => Row::Invalid(invalid),
        }
    }

    fn carried(&self, place: usize) -> Option<&Observation> {
        self.wanted.observations.iter().find(|(of, _)| *of == place).map(|(_, observation)| observation)
    }

    fn is_own(&self, place: usize) -> bool {
        match self.rows.get(&place) {
            Some(Row::Watched(watch, _)) => !watch.record().released && self.candidate().is_same_owner(watch.record()),
            _ => false,
        }
    }

    /// Whether this call may take the place, as it was last seen.
    fn is_free(&self, now: &Now, place: usize) -> bool {
        match self.rows.get(&place) {
            Some(Row::Watched(watch, _)) => self.candidate().would_take(now, watch),
            Some(Row::Missing) => true,
            Some(Row::Invalid(_)) | None => false,
        }
    }

    /// All places were seen, and none of them is free. A place whose row is no lock record is nobody's to take.
    fn full(&self, now: &Now) -> Result<AcquiredPlace, Failure> {
        let mut holders = Vec::new();
        let mut invalid = None;
        for (place, row) in &self.rows {
            match row {
                Row::Watched(watch, _) => holders.push((*place, self.candidate().holder(now, watch))),
                Row::Invalid(found) => invalid = Some(found.clone()),
                Row::Missing => {}
            }
        }
        match invalid {
            Some(invalid) if holders.is_empty() => Err(Failure::InvalidRecord(invalid)),
            _ => Ok(AcquiredPlace::Full(holders)),
        }
    }

    /// How long to wait before the next look: never beyond the moment when the first of the holders can be proven dead,
    /// or the end of the caller's time.
    fn pause(&mut self, port: &mut impl Port, now: &Now, seen: &[usize]) -> Duration {
        let dead_in = |place: &usize| match self.rows.get(place) {
            Some(Row::Watched(watch, _)) => Some(watch.dead_in(now, &self.settings.clock_bounds)),
            _ => None,
        };
        let dead_in = seen.iter().filter_map(dead_in).min().unwrap_or(Duration::MAX);
        let jitter = Duration::from_millis(20).mul_f64(port.random_fraction());
        let pause = self.poll.pause(port);
        pause.min(dead_in.saturating_add(jitter)).min(now.wait_left).max(Duration::from_millis(1))
    }

    /// Returns the caller's result. First releases the places that were left, in case a request for one of them was applied
    /// late.
    async fn finish(
        &mut self,
        port: &mut impl Port,
        ended: Result<AcquiredPlace, Failure>,
    ) -> Result<AcquiredPlace, FailedAcquire> {
        for (place, attempt) in &self.left {
            for _ in 0..MOST_RELEASES {
                let now = port.now();
                let action = Action::release_of_attempt(*attempt, now.wall.millis);
                let (_, reply) = port.write(&now, Request::alone(self.wanted.places.key(*place), action)).await;
                let retries = matches!(reply, Err(Fault::Unknown | Fault::Throttled));
                if !retries || port.now().time_left.is_zero() {
                    break;
                }
            }
        }
        match ended {
            Ok(AcquiredPlace::Full(_)) | Err(_) if !self.left.is_empty() => {
                let mut of: Vec<usize> = self.left.iter().map(|(place, _)| *place).collect();
                of.sort_unstable();
                of.dedup();
                Err(FailedAcquire { failure: Failure::OutcomeUnknown, of })
            }
            ended => ended.map_err(FailedAcquire::from),
        }
    }

    fn candidate(&self) -> Candidate<'_> {
        Candidate {
            owner: &self.options.owner,
            reclaim: &self.options.reclaim,
            clock_bounds: &self.settings.clock_bounds,
        }
    }
}

/// Draws a number below this one.
fn drawn(port: &mut impl Port, below: usize) -> usize {
    let [a, b, c, d, e, f, g, h, ..] = port.random();
    let number = u64::from_le_bytes([a, b, c, d, e, f, g, h]);
    // The bias is far too small to matter.
    usize::try_from(number % below.max(1) as u64).unwrap_or_default()
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
