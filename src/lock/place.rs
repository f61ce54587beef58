//! Places of a semaphore, each of which is a lock.

use super::acquire::Acquire;
use super::awaited::awaited;
use super::guard::{Lock, Place};
use super::peek::PeekedLock;
use super::terms::{Tried, reported};
use crate::engine::Engine;
use crate::engine::budget::Budget;
use crate::engine::error::{Detail, Error, ErrorKind, Refusal, frozen};
use crate::engine::operation::{Ended, operation_span};
use crate::engine::port::EnginePort;
use lambda_lock_protocol::{
    self as protocol, AcquiredPlace, Attribute, DataChange, FailedAcquire, Invalid, LockKey, Named, Observation,
    Operation, Places, WantedPlace,
};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use tracing::field::Empty;

/// At most N callers at once. See [`LockClient::semaphore`](crate::LockClient::semaphore).
#[derive(Clone, Debug)]
pub struct Semaphore<'a> {
    engine: &'a Arc<Engine>,
    places: Places,
}

impl<'a> Semaphore<'a> {
    /// How many places a semaphore has at most.
    pub const MAX_PLACES: u32 = 1000;

    pub(crate) fn new(engine: &'a Arc<Engine>, name: LockKey, places: u32) -> Self {
        Self { engine, places: Places { name, count: places } }
    }

    /// Acquires a place. Waits while all are held.
    ///
    /// # Errors
    /// Returns the errors of [`acquire`](crate::LockClient::acquire). A semaphore is full when all of its places were seen
    /// held: `Held`, with all holders in [`Error::refusals`]. [`Error::refusal`] is the one whose place can be free first.
    /// Returns `Unknown` instead, when a request for a place had no response: that place may be this call's until its lease ends, and
    /// [`Error::may_be_held`] has it.
    /// Returns `InvalidRequest` for a semaphore of 0 or more than 1,000 places.
    ///
    /// # Requests and IAM actions
    /// It sends one write when the place that it tries first is free. Otherwise it sends up to three requests to a free
    /// place. While it waits, it reads five random places per look. Before it reports that all are held, it reads all of
    /// them, a hundred per request. With [`reclaim_own`](AcquirePlace::reclaim_own) it reads all places first. It needs
    /// `dynamodb:UpdateItem`, `dynamodb:GetItem` and `dynamodb:BatchGetItem`.
    ///
    /// # Cancel safety
    /// If the future is dropped, a place may have been acquired. It is then free when its lease ends.
    pub fn acquire(&self) -> AcquirePlace<'a> {
        AcquirePlace::new(self.engine, self.places.clone())
    }

    /// Reads all places. `None` where there is no row, because nobody ever held the place.
    ///
    /// # Errors
    /// Returns `InvalidRecord` when a row is no lock record, `Unknown`, `Unavailable`, `Table` or `Denied`.
    ///
    /// # Requests and IAM actions
    /// It sends one strongly consistent read per hundred places: `dynamodb:BatchGetItem`.
    ///
    /// # Cancel safety
    /// It is cancel safe, because it changes nothing.
    pub async fn peek(&self) -> Result<Vec<Option<PeekedLock>>, Error> {
        let places = &self.places;
        check_places(self.engine, places)?;
        let keys: Vec<LockKey> = (0..places.count()).map(|place| places.key(place)).collect();
        let span = operation_span!("lock_peek_all", name = %places.name);
        let call = async |port: &mut EnginePort<'_>| protocol::peek_all(port, &self.engine.settings, &keys).await;
        let records = self.engine.run_alone(&span, ("peek", Operation::Read, &places.name), call, |_| "read").await?;
        Ok(records.into_iter().map(|record| record.map(PeekedLock::from)).collect())
    }
}

fn check_places(engine: &Engine, places: &Places) -> Result<(), Error> {
    let (count, most) = (places.count(), Semaphore::MAX_PLACES as usize);
    if count == 0 || count > most {
        return Err(Invalid::new(format!(
            "the semaphore {} needs 1 to {most} places, but {count} were given: give a number in between",
            Named(&places.name)
        ))
        .into());
    }
    // The last one has the longest key.
    Ok(engine.check_lock_key(&places.key(count - 1))?)
}

/// An acquire of a place before it is awaited. Await it to wait for a place and get a [`Lock`] that knows its
/// [number](Lock::place), or [try once](AcquirePlace::try_once). See [`Semaphore::acquire`] for errors, requests and cancel safety.
#[must_use = "an acquire does nothing until it is awaited"]
pub struct AcquirePlace<'a> {
    engine: &'a Arc<Engine>,
    places: Places,
    observations: Vec<(LockKey, Observation)>,
    request: Acquire<'a>,
}

impl<'a> AcquirePlace<'a> {
    fn new(engine: &'a Arc<Engine>, places: Places) -> Self {
        let request = Acquire::new(engine, places.key(0));
        Self { engine, places, observations: Vec::new(), request }
    }

    /// Sets the budget of the work that the place is for, as [`within`](crate::Acquire::within) does for a lock.
    pub fn within(mut self, budget: &Budget) -> Self {
        self.request = self.request.within(budget);
        self
    }

    /// Sets the lease, as [`lease`](crate::Acquire::lease) does for a lock.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.request = self.request.lease(lease);
        self
    }

    /// Stores a payload in the row of the place, as [`data`](crate::Acquire::data) does for a lock.
    pub fn data(mut self, data: impl Into<DataChange>) -> Self {
        self.request = self.request.data(data);
        self
    }

    /// Adds an additional attribute to the row of the place, as [`attribute`](crate::Acquire::attribute) does for a lock.
    pub fn attribute(mut self, name: impl Into<String>, value: impl Into<Attribute>) -> Self {
        self.request = self.request.attribute(name, value);
        self
    }

    /// Sets what an earlier, refused call observed: the [observation](Refusal::observation) of each
    /// [place that was held](Error::refusals), with its key exactly as it is named there. Twenty of
    /// them, those whose places can be free first, are enough. See [`observation`](crate::Acquire::observation).
    pub fn observations<K: Into<LockKey>>(mut self, seen: impl IntoIterator<Item = (K, Observation)>) -> Self {
        self.observations = seen.into_iter().map(|(key, seen)| (key.into(), seen)).collect();
        self
    }

    fn wanted(&self) -> WantedPlace {
        let place_of = |key: &LockKey| (0..self.places.count()).find(|place| self.places.key(*place) == *key);
        WantedPlace {
            first: self.engine.given_back.pop(&self.places.name),
            observations: self
                .observations
                .iter()
                .filter_map(|(key, observation)| Some((place_of(key)?, observation.clone())))
                .collect(),
            places: self.places.clone(),
        }
    }

    /// Tries once to acquire a place. A refusal is not an error: it returns all holders.
    ///
    /// # Errors
    /// Returns the errors of [`acquire`](Semaphore::acquire), but `Held`.
    ///
    /// # Requests, IAM actions and cancel safety
    /// They are those of [`acquire`](Semaphore::acquire), without waiting.
    pub async fn try_once(self) -> Result<Tried<Lock, Vec<Refusal>>, Error> {
        self.acquire(false).await
    }

    /// Returns the place. It is an error if there is none.
    async fn or_full(self) -> Result<Lock, Error> {
        // Fails first if it cannot wait, before it checks the other settings.
        self.request.terms.wait(&[&self.places.key(0)])?;
        let places = self.places.clone();
        match self.acquire(true).await? {
            Tried::Granted(lock) => Ok(lock),
            Tried::Refused(refusals) => Err(full(&places, refusals)),
        }
    }

    async fn acquire(mut self, waits: bool) -> Result<Tried<Lock, Vec<Refusal>>, Error> {
        check_places(self.engine, &self.places)?;
        let of = self.places.name.clone();
        let (options, deadline) = self.request.prepared(waits)?;
        let span = operation_span!(
            "lock_acquire_one_of", name = %of, places = self.places.count(), owner = options.owner, token = Empty
        );
        let (engine, wanted) = (self.engine, self.wanted());
        let call =
            async |port: &mut EnginePort<'_>| protocol::acquire_one_of(port, &engine.settings, options, wanted).await;
        let Ended { result, cause, report } = engine.run(&deadline, &span, call).await;
        let tried = match result {
            Ok(AcquiredPlace::Granted { place, holding, data, renew_first }) => {
                let lock = self.request.guarded(holding, data, renew_first, &span).await;
                let place = Place { number: place, semaphore: of.clone() };
                lock.map(|lock| Tried::Granted(Lock { place: Some(place), ..lock }))
            }
            Ok(AcquiredPlace::Full(holders)) => {
                let refusal = |(place, seen)| Refusal::new(self.places.key(place), seen);
                Ok(Tried::Refused(holders.into_iter().map(refusal).collect()))
            }
            // No place was asked for, so none may be held.
            Err(FailedAcquire { failure, of: places }) if places.is_empty() => {
                Err(Error::of_failure(failure, Operation::Read, &[&of], cause))
            }
            Err(FailedAcquire { failure, of: places }) => {
                let keys: Vec<LockKey> = places.into_iter().map(|place| self.places.key(place)).collect();
                Err(Error::of_failure(failure, Operation::Acquire, &keys.iter().collect::<Vec<_>>(), cause))
            }
        };
        reported(tried, report, &of)
    }

    /// Sets the owner that holds the place, as [`owner`](crate::Acquire::owner) does for a lock.
    pub fn owner(mut self, owner: impl Into<String>) -> Self {
        self.request = self.request.owner(owner);
        self
    }

    /// Sets the workflow that holds the place, as [`workflow`](crate::Acquire::workflow) does for a lock.
    pub fn workflow(mut self, workflow: impl Into<String>) -> Self {
        self.request = self.request.workflow(workflow);
        self
    }

    /// Acquires the place that the same [`owner`](AcquirePlace::owner) holds already, if there is one. A retried task gets
    /// its own place again, and takes no second one. It reads all places first.
    pub fn reclaim_own(mut self) -> Self {
        self.request = self.request.reclaim_own();
        self
    }
}

awaited!(AcquirePlace<'a> => Result<Lock, Error>, |acquire| acquire.or_full());

impl fmt::Debug for AcquirePlace<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AcquirePlace")
            .field("places", &self.places)
            .field("request", &self.request)
            .finish_non_exhaustive()
    }
}

/// Of a call that needs a place, and found none that it can have.
fn full(places: &Places, refusals: Vec<Refusal>) -> Error {
    // When a frozen one can be had, nobody knows.
    let soonest = |(_, one): &(usize, &Refusal)| (one.freeze_reason.is_some(), one.retry_after);
    let first = refusals.iter().enumerate().min_by_key(soonest).map_or(0, |(index, _)| index);
    let held = refusals.len();
    let (name, places) = (Named(&places.name), places.count());
    let what = if held == places {
        format!("the semaphore {name} is full: all of its {places} places are held")
    } else {
        format!("the semaphore {name} is full: {held} of its {places} places are held, and the others cannot be used")
    };
    let when = match refusals.get(first) {
        Some(Refusal { freeze_reason: Some(reason), .. }) => format!(", and the first one is {}", frozen(reason)),
        one => format!(": retry in at most {:?}", one.map(|one| one.retry_after).unwrap_or_default()),
    };
    Error::new(ErrorKind::Held, format!("{what}{when}")).with(Detail::Refused { refusals, decisive: first })
}
