//! What processes do, and what must hold when a call of theirs has ended.

use super::ledger::{Grants, Reported};
use super::port::Wire;
use super::table::{is_held, version};
use super::world::{Nanos, Role, State, World, nanos};
use crate::ledger::Invariant;
use lambda_lock_protocol::{
    AcquireAllOptions, AcquireOptions, Acquired, AcquiredAll, AcquiredPlace, AttributesChange, DataChange, Ending,
    FailedAcquire, FailedCommit, Failure, Holding, LockKey, PendingCommit, Places, Queueing, Reclaim, ReleaseOptions,
    Settings, Value, WantedLock, WantedPlace, acquire, acquire_all, acquire_one_of, commit, release, renew, schema,
};
use std::time::Duration;

pub(super) struct Me {
    wire: Wire,
    settings: Settings,
    calls: u32,
}

/// What became of the work under some locks.
enum Work {
    GoesOn,
    Over,
}

impl Me {
    pub(super) fn new(world: &World, id: usize) -> Self {
        let state = world.state();
        let (settings, lease, started) = (state.settings.clone(), state.plan.lease, state.clocks(id));
        drop(state);
        let (wait, time) = (Duration::ZERO, Duration::ZERO);
        let wire = Wire { world: world.clone(), id, started, wait, time, lease, commit: None };
        Self { wire, settings, calls: 0 }
    }

    pub(super) async fn live(mut self, role: Role) {
        match role {
            Role::LastSet => return self.last_set().await,
            Role::LastPlace => return self.last_place().await,
            Role::Set | Role::Single | Role::Place => {}
        }
        while !self.with(|state| state.is_over()) {
            match role {
                Role::Set => self.set().await,
                Role::Single => self.single().await,
                _ => self.place().await,
            }
            let rest = self.part_of_lease(0.4);
            self.wire.nap(rest).await;
        }
    }

    fn with<T>(&self, what: impl FnOnce(&mut State) -> T) -> T {
        what(&mut self.wire.world.state())
    }

    fn part_of_lease(&self, most: f64) -> Duration {
        self.with(|state| state.plan.lease.mul_f64(state.rng.f64() * most).max(Duration::from_millis(1)))
    }

    /// A name for one call alone, so that rows show which call holds them.
    fn owner(&mut self) -> String {
        self.calls += 1;
        format!("w{}-{}", self.wire.id, self.calls)
    }

    fn begin(&mut self) -> Nanos {
        let wait = if self.with(|state| state.rng.u8(..3) == 0) { Duration::ZERO } else { self.part_of_lease(3.0) };
        let time = self.part_of_lease(0.5) + Duration::from_millis(60);
        self.wire.begin(wait, time);
        self.with(|state| {
            state.processes[self.wire.id].lost = false;
            state.now
        })
    }

    fn keys(&self) -> Vec<LockKey> {
        self.with(|state| {
            let mut keys: Vec<LockKey> = state.keys[..state.plan.keys].to_vec();
            state.rng.shuffle(&mut keys);
            let count = state.rng.usize(2..=keys.len());
            keys.truncate(count);
            keys
        })
    }

    fn wanted(&self, keys: &[LockKey], owner: String) -> AcquireAllOptions {
        let lock =
            |key: &LockKey| WantedLock { key: key.clone(), reclaim: Reclaim::Nobody, observation: None, commit: None };
        let locks = keys.iter().map(lock).collect();
        AcquireAllOptions { locks, owner, workflow: None, keeps_attributes: false }
    }

    async fn set(&mut self) {
        let (keys, owner) = (self.keys(), self.owner());
        self.begin();
        let options = self.wanted(&keys, owner.clone());
        let acquired = acquire_all(&mut self.wire, &self.settings, options).await;
        match acquired {
            Ok(AcquiredAll::Granted { holdings, renew_first }) => {
                self.with(|state| state.ledger.counts.sets_granted += 1);
                self.is_whole(&keys, &holdings);
                self.holds(holdings, renew_first).await;
            }
            Ok(AcquiredAll::Held(blocked)) => {
                if blocked.by.is_empty() {
                    self.violate(Invariant::TakesWhatItMay, "held by nobody".to_owned());
                }
                self.has_nothing(&keys, &owner);
            }
            Err(failed) if failed.failure != Failure::OutcomeUnknown => self.has_nothing(&keys, &owner),
            Err(_) => self.with(|state| state.ledger.counts.sets_unknown += 1),
        }
    }

    /// All locks of a set were granted, with one token.
    fn is_whole(&self, keys: &[LockKey], holdings: &[Holding]) {
        let named: Vec<_> = holdings.iter().map(|holding| holding.key.clone()).collect();
        let one = holdings
            .iter()
            .all(|holding| (holding.token, holding.newest.grant) == (holdings[0].token, holdings[0].newest.grant));
        if named != keys || !one {
            self.violate(Invariant::Whole, format!("asked for {keys:?}, got {named:?}, one token: {one}"));
        }
    }

    /// A call that failed for certain holds none of these rows, but for what late copies bring.
    fn has_nothing(&self, keys: &[LockKey], owner: &str) {
        let held = self.with(|state| held_by(state, keys, owner));
        if !held.is_empty() {
            self.violate(Invariant::GivenBack, format!("process {} still holds {held:?}", self.wire.id));
        }
    }

    async fn single(&mut self) {
        let (key, owner) = (self.with(|state| state.keys[state.rng.usize(..state.plan.keys)].clone()), self.owner());
        self.begin();
        let options = self.alone(key.clone(), owner);
        match acquire(&mut self.wire, &self.settings, options).await {
            Ok(Acquired::Granted { holding, renew_first, .. }) => self.holds(vec![holding], renew_first).await,
            Ok(Acquired::Held(_)) | Err(_) => {}
        }
    }

    fn alone(&self, key: LockKey, owner: String) -> AcquireOptions {
        AcquireOptions {
            key,
            owner,
            workflow: None,
            data: DataChange::Keep,
            attributes: AttributesChange::Replace(Vec::new()),
            reclaim: Reclaim::Nobody,
            queueing: Queueing::default(),
            observation: None,
            commit: None,
        }
    }

    async fn place(&mut self) {
        let owner = self.owner();
        if !self.places(&owner, false).await && self.with(|state| state.rng.bool()) {
            // The task is tried again: it must find its own place.
            self.places(&owner, true).await;
        }
    }

    /// Works in a place. Returns false if the process died before that, and left the place behind.
    async fn places(&mut self, owner: &str, again: bool) -> bool {
        let owner = owner.to_owned();
        let (count, first) = self.with(|state| {
            // Some callers know another number of places.
            let more = usize::from(state.rng.u8(..4) == 0);
            let count = state.plan.places + more;
            (count, state.rng.bool().then(|| state.rng.usize(..count)))
        });
        let began = self.begin();
        let places = Places { name: LockKey::from("p"), count: u32::try_from(count).unwrap_or_default() };
        let keys: Vec<LockKey> = (0..count).map(|place| places.key(place)).collect();
        let reclaim =
            if again || self.with(|state| state.rng.u8(..4) == 0) { Reclaim::SameOwner } else { Reclaim::Nobody };
        let options = AcquireOptions { reclaim, ..self.alone(LockKey::from("p"), owner.clone()) };
        let wanted = WantedPlace { places, first, observations: Vec::new() };
        match acquire_one_of(&mut self.wire, &self.settings, options, wanted).await {
            Ok(AcquiredPlace::Granted { place, holding, renew_first, .. }) => {
                self.with(|state| state.ledger.counts.places_granted += 1);
                let held = self.with(|state| held_by(state, &keys, &owner));
                let others: Vec<_> = held.iter().filter(|key| **key != holding.key).collect();
                // A place whose release is lost stays behind for a lease. And who takes its own place may find two of them,
                // one of which a late copy got.
                let excused = self.with(|state| {
                    let key = state.index_of(&holding.key);
                    state.processes[self.wire.id].lost || state.ledger.follows_ghost(key, holding.newest.grant)
                });
                if keys.get(place) != Some(&holding.key) || !others.is_empty() && !excused {
                    let what = format!("place {place} of {count}, and {others:?}");
                    self.violate(Invariant::OnePlacePerCall, what);
                }
                if !again && self.with(|state| state.rng.u8(..6) == 0) {
                    return false;
                }
                self.holds(vec![holding], renew_first).await;
            }
            Ok(AcquiredPlace::Full(_)) => {
                self.with(|state| state.ledger.counts.places_full += 1);
                let free = self.with(|state| {
                    keys.iter().filter(|key| state.ledger.was_free_since(state.index_of(key), began)).count()
                });
                if free > 0 {
                    self.violate(Invariant::NoFalseFull, format!("{free} of {count} places were free all the time"));
                }
                if !again {
                    self.has_nothing(&keys, &owner);
                }
            }
            Err(FailedAcquire { failure: Failure::OutcomeUnknown, .. }) => {}
            Err(_) if again => {}
            Err(_) => self.has_nothing(&keys, &owner),
        }
        true
    }

    fn violate(&self, invariant: Invariant, what: String) {
        self.with(|state| state.ledger.violate(invariant, what));
    }

    /// The caller relies on all of these locks until the earliest of their leases ends.
    fn believes(&self, holdings: &[Holding]) -> bool {
        let id = self.wire.id;
        self.with(|state| {
            let instants = state.clocks(id);
            let left = holdings.iter().map(|holding| holding.validity.remaining(instants)).min().unwrap_or_default();
            let fastest = state.processes[id].monotonic_rate.max(state.processes[id].wall_rate);
            let (now, until) = (state.now, state.now + nanos(left.div_f64(fastest)));
            let of: Vec<(usize, &Holding)> =
                holdings.iter().map(|holding| (state.index_of(&holding.key), holding)).collect();
            state.ledger.believes(id, &of, now, until);
            !left.is_zero()
        })
    }

    /// Works under some locks until they are released or lost.
    async fn holds(&mut self, mut holdings: Vec<Holding>, renew_first: bool) {
        if renew_first && matches!(self.renews(&mut holdings).await, Work::Over) {
            return;
        }
        self.believes(&holdings);
        for _ in 0..self.with(|state| state.rng.u8(..5)) {
            let rest = self.part_of_lease(0.5);
            self.wire.nap(rest).await;
            if self.with(|state| state.chance(state.plan.crash)) {
                self.with(|state| state.ledger.gives_up(self.wire.id));
                return;
            }
            let work = match self.with(|state| state.rng.u8(..4)) {
                0 => self.commits(&mut holdings).await,
                1 if holdings.len() > 1 => match self.reclaims(&holdings).await {
                    Some(again) => {
                        holdings = again;
                        Work::GoesOn
                    }
                    None => Work::Over,
                },
                _ => self.renews(&mut holdings).await,
            };
            if matches!(work, Work::Over) {
                return;
            }
        }
        if self.with(|state| state.rng.u8(..4) == 0) {
            self.commits_and_releases(holdings).await;
        } else {
            self.releases(holdings).await;
        }
    }

    async fn renews(&mut self, holdings: &mut [Holding]) -> Work {
        self.begin();
        for index in 0..holdings.len() {
            let renewed = renew(&mut self.wire, &self.settings, &mut holdings[index], &DataChange::Keep).await;
            if renewed == Err(Failure::Lost) {
                self.is_lost(&holdings[index]);
                self.releases(holdings.to_vec()).await;
                return Work::Over;
            }
        }
        self.believes(holdings);
        Work::GoesOn
    }

    fn is_lost(&self, holding: &Holding) {
        self.with(|state| {
            state.ledger.counts.parts_lost += 1;
            let Grants { grant, .. } = state.grant_on(&holding.key);
            if grant == Some(holding.newest.grant) {
                let what = format!("{} is still held by its grant", holding.key);
                state.ledger.violate(Invariant::NotLostWhileOurs, what);
            }
        });
    }

    fn grants(&self, holdings: &[Holding]) -> Vec<Grants> {
        let of = |state: &State, holding: &Holding| Grants {
            key: state.index_of(&holding.key),
            grant: Some(holding.newest.grant),
        };
        self.with(|state| holdings.iter().map(|holding| of(state, holding)).collect())
    }

    async fn commits(&mut self, holdings: &mut [Holding]) -> Work {
        let grants = self.grants(holdings);
        let number = self.with(|state| state.ledger.begins_commit(grants));
        self.begin();
        self.wire.commit = Some(number);
        let mut refs: Vec<&mut Holding> = holdings.iter_mut().collect();
        let ending = Ending::Renewed { data: DataChange::Keep };
        let ended = commit(&mut self.wire, &self.settings, &mut refs, ending).await;
        self.wire.commit = None;
        match ended {
            Ok(()) => self.with(|state| state.ledger.reports(number, Reported::Applied)),
            Err(FailedCommit { failure: Failure::OutcomeUnknown, .. }) => return self.resolves(holdings, number).await,
            Err(FailedCommit { failure, lost }) => {
                self.with(|state| state.ledger.reports(number, reported(&failure)));
                if failure == Failure::Lost {
                    lost.iter().for_each(|index| self.is_lost(&holdings[*index]));
                    self.releases(holdings.to_vec()).await;
                    return Work::Over;
                }
            }
        }
        self.believes(holdings);
        Work::GoesOn
    }

    /// Finds out what became of a commit: by a renewal of any one of the locks.
    async fn resolves(&mut self, holdings: &mut [Holding], number: usize) -> Work {
        for _ in 0..4 {
            self.begin();
            let index = self.with(|state| state.rng.usize(..holdings.len()));
            match renew(&mut self.wire, &self.settings, &mut holdings[index], &DataChange::Keep).await {
                Ok(()) => {}
                Err(Failure::Lost) => {
                    self.is_lost(&holdings[index]);
                    break;
                }
                Err(_) => continue,
            }
            match holdings[index].pending {
                Some(PendingCommit::Applied) => self.with(|state| state.ledger.reports(number, Reported::Applied)),
                Some(PendingCommit::NotApplied) => {
                    self.with(|state| state.ledger.reports(number, Reported::NotApplied))
                }
                _ => break,
            }
            self.with(|state| state.ledger.counts.set_commits_resolved += 1);
            holdings.iter_mut().for_each(|holding| holding.pending = None);
            self.believes(holdings);
            return Work::GoesOn;
        }
        self.releases(holdings.to_vec()).await;
        Work::Over
    }

    async fn commits_and_releases(&mut self, mut holdings: Vec<Holding>) {
        let grants = self.grants(&holdings);
        let number = self.with(|state| state.ledger.begins_commit(grants));
        self.with(|state| state.ledger.gives_up(self.wire.id));
        self.begin();
        self.wire.commit = Some(number);
        let mut refs: Vec<&mut Holding> = holdings.iter_mut().collect();
        let ending = Ending::Released { data: DataChange::Keep };
        let ended = commit(&mut self.wire, &self.settings, &mut refs, ending).await;
        self.wire.commit = None;
        match ended {
            Ok(()) => self.with(|state| state.ledger.reports(number, Reported::Applied)),
            Err(FailedCommit { failure: Failure::OutcomeUnknown, .. }) => self.releases(holdings).await,
            Err(FailedCommit { failure, .. }) => {
                self.with(|state| state.ledger.reports(number, reported(&failure)));
                self.releases(holdings).await;
            }
        }
    }

    /// Takes a set again as a new grant, as a retried task does with saved locks.
    async fn reclaims(&mut self, holdings: &[Holding]) -> Option<Vec<Holding>> {
        self.with(|state| state.ledger.gives_up(self.wire.id));
        let (owner, keys): (String, Vec<LockKey>) =
            (holdings[0].owner.clone(), holdings.iter().map(|holding| holding.key.clone()).collect());
        let lock = |holding: &Holding| WantedLock {
            key: holding.key.clone(),
            reclaim: Reclaim::Only(holding.newest),
            observation: None,
            commit: holding.pending,
        };
        let locks = holdings.iter().map(lock).collect();
        let options = AcquireAllOptions { locks, owner, workflow: None, keeps_attributes: true };
        self.begin();
        match acquire_all(&mut self.wire, &self.settings, options).await {
            Ok(AcquiredAll::Granted { mut holdings, renew_first }) => {
                self.is_whole(&keys, &holdings);
                self.with(|state| state.ledger.counts.sets_reclaimed += 1);
                if renew_first && matches!(self.renews(&mut holdings).await, Work::Over) {
                    return None;
                }
                holdings.iter_mut().for_each(|holding| holding.pending = None);
                self.believes(&holdings);
                Some(holdings)
            }
            Ok(AcquiredAll::Held(_)) | Err(_) => None,
        }
    }

    /// From the first request on, none of the locks is ours.
    async fn releases(&mut self, holdings: Vec<Holding>) {
        self.with(|state| state.ledger.gives_up(self.wire.id));
        self.begin();
        for holding in &holdings {
            let _ = release(&mut self.wire, &self.settings, holding, ReleaseOptions::default()).await;
        }
    }

    /// How long the last callers may take: nobody else is there, and all holders have died.
    fn bound(&self) -> Duration {
        self.with(|state| state.plan.lease.mul_f64(1.2) + state.plan.skew + Duration::from_millis(1500))
    }

    async fn last_set(&mut self) {
        let (keys, owner) = (self.with(|state| state.keys[..state.plan.keys].to_vec()), self.owner());
        self.wire.begin(Duration::from_secs(60), Duration::from_secs(60));
        let began = self.with(|state| state.now);
        let options = self.wanted(&keys, owner);
        let acquired = acquire_all(&mut self.wire, &self.settings, options).await;
        self.took(began, matches!(acquired, Ok(AcquiredAll::Granted { .. })), "all keys");
        if let Ok(AcquiredAll::Granted { holdings, .. }) = acquired {
            self.believes(&holdings);
            self.releases(holdings).await;
        }
    }

    async fn last_place(&mut self) {
        let count = self.with(|state| u32::try_from(state.plan.places).unwrap_or_default());
        let owner = self.owner();
        self.wire.begin(Duration::from_secs(60), Duration::from_secs(60));
        let began = self.with(|state| state.now);
        let wanted =
            WantedPlace { places: Places { name: LockKey::from("p"), count }, first: None, observations: Vec::new() };
        let options = self.alone(LockKey::from("p"), owner);
        let acquired = acquire_one_of(&mut self.wire, &self.settings, options, wanted).await;
        self.took(began, matches!(acquired, Ok(AcquiredPlace::Granted { .. })), "a place");
    }

    fn took(&self, began: Nanos, granted: bool, what: &str) {
        let took = Duration::from_nanos(self.with(|state| state.now) - began);
        if !granted || took > self.bound() {
            let what = format!("{what}: granted {granted}, after {took:?} of {:?}", self.bound());
            self.violate(Invariant::TakenOver, what);
        }
    }
}

/// What this failure says of a commit.
fn reported(failure: &Failure) -> Reported {
    match failure {
        Failure::Cancelled(_) | Failure::Throttled => Reported::Cancelled,
        _ => Reported::NotApplied,
    }
}

/// The keys that this call holds, but for those that a late copy got.
fn held_by(state: &State, keys: &[LockKey], owner: &str) -> Vec<LockKey> {
    let is_its = |key: &&LockKey| {
        let row = state.rows.get(key).filter(|row| is_held(Some(row)));
        let Some(row) = row else { return false };
        let grant = version(row).map(|version| version.grant);
        let is_ghost = grant.is_some_and(|grant| state.ledger.is_ghost(state.index_of(key), grant));
        matches!(row.get(schema::OWNER), Some(Value::S(of)) if of == owner) && !is_ghost
    };
    keys.iter().filter(is_its).cloned().collect()
}
