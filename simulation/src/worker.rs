//! What processes do: callers of the real client, who hold locks, lose them, hand them over and die.

use crate::clocks::Nanos;
use crate::ledger::{CallKind, Ended, Invariant, ProcessId};
use crate::network::{Nap, ProcessClock, Wire};
use crate::plan::Peer;
use crate::sdk::Noted;
use crate::world::{Event, State, World, nanos};
use aws_sdk_dynamodb::config::{BehaviorVersion, Config};
use lambda_lock::protocol::{Grant, Version};
use lambda_lock::{
    Budget, Error, ErrorKind, Held, Lock, LockClient, LockToken, ReleaseOutcome, SharedClock, TryAcquired,
};
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::{LazyLock, MutexGuard};
use std::task::Poll;
use std::time::Duration;

/// The workflow that locks are held for, now and then.
const WORKFLOW: &str = "arn:workflow";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    Worker,
    Watcher,
    Cleaner,
    /// Does idempotent works.
    Doer,
    Peer(Peer),
    /// Waits for this key when all is over.
    Last(usize),
}

impl Role {
    pub(crate) fn may_crash(self) -> bool {
        !matches!(self, Role::Last(_))
    }

    /// What such a process does until it ends.
    pub(crate) fn live(self, me: Me) -> Pin<Box<dyn Future<Output = ()>>> {
        match self {
            Role::Worker => Box::pin(async move { me.work().await }),
            Role::Watcher => Box::pin(async move { me.watch().await }),
            Role::Doer => Box::pin(async move { me.does_once().await }),
            Role::Cleaner => Box::pin(async move { me.clean().await }),
            Role::Peer(peer) => Box::pin(crate::peer::live(me, peer)),
            Role::Last(key) => Box::pin(async move { me.comes_last(key).await }),
        }
    }
}

/// A process, from its own point of view.
pub(crate) struct Me {
    pub(crate) world: World,
    pub(crate) id: ProcessId,
    pub(crate) clock: SharedClock,
    pub(crate) owner: String,
    pub(crate) locks: LockClient,
}

/// Never asked for anything: its requests go over the simulated network.
static NOBODY: LazyLock<aws_sdk_dynamodb::Client> = LazyLock::new(|| {
    let config = Config::builder().behavior_version(BehaviorVersion::latest()).build();
    aws_sdk_dynamodb::Client::from_conf(config)
});

impl Me {
    pub(crate) fn new(world: World, id: ProcessId) -> Self {
        let clock = SharedClock::new(ProcessClock { world: world.clone(), process: id });
        let state = world.state();
        let plan = state.plan.clone();
        drop(state);
        let owner = if plan.one_owner { "twin".to_owned() } else { format!("w{id}") };
        let builder = LockClient::builder(NOBODY.clone(), "locks")
            .owner(owner.as_str())
            .clock(clock.clone())
            .dialect(plan.dialect)
            .request_timeout(plan.timeout)
            .max_clock_skew(plan.skew);
        let by_sdk = world.state().engine.is_some();
        let builder = if by_sdk {
            builder.network(Noted::new(&world, id))
        } else {
            builder.network(Wire { world: world.clone(), process: id })
        };
        let builder = if plan.by_wall_clock { builder } else { builder.without_wall_clock_takeover() };
        let locks = builder.build().unwrap();
        Self { world, id, clock, owner, locks }
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.world.state()
    }

    pub(crate) fn one_in(&self, many: u32) -> bool {
        self.state().rng.u32(..many) == 0
    }

    /// A random part of the usual lease, up to so many of them.
    pub(crate) fn part_of_lease(&self, most: f64) -> Duration {
        let mut state = self.state();
        state.plan.lease.mul_f64(state.rng.f64() * most).max(Duration::from_millis(1))
    }

    pub(crate) fn sleep(&self, duration: Duration) -> Nap {
        Nap::new(&self.world, self.id, duration)
    }

    /// Sleeps, or until somebody else says that the lock is his.
    pub(crate) async fn rest(&self, duration: Duration) {
        let mut nap = pin!(self.sleep(duration));
        self.state().processes[self.id].nudged = false;
        poll_fn(|context| {
            if self.state().processes[self.id].nudged {
                return Poll::Ready(());
            }
            nap.as_mut().poll(context)
        })
        .await;
        self.state().processes[self.id].nudged = false;
    }

    pub(crate) fn is_calm(&self) -> bool {
        self.state().calm
    }

    pub(crate) fn some_key(&self) -> usize {
        let mut state = self.state();
        let keys = state.plan.keys;
        state.rng.usize(..keys)
    }

    fn lock_key(&self, key: usize) -> lambda_lock::LockKey {
        self.state().keys[key].clone()
    }

    fn key_of(&self, token: &LockToken) -> usize {
        let key = token.key();
        self.state().keys.iter().position(|own| *own == key).unwrap_or_default()
    }

    // Roles.

    async fn work(&self) {
        let cycles = self.state().rng.u32(1..=8);
        for _ in 0..cycles {
            if self.is_calm() {
                return;
            }
            let handed = if self.one_in(2) { self.take_handed() } else { None };
            let held = match handed {
                Some(handed) => self.take_up(handed).await,
                None => {
                    let key = self.some_key();
                    self.acquire(key).await.map(|lock| (key, lock))
                }
            };
            match held {
                Some((key, lock)) => self.hold(key, lock).await,
                None => self.sleep(self.part_of_lease(0.5)).await,
            }
            self.sleep(self.part_of_lease(0.3)).await;
        }
    }

    fn take_handed(&self) -> Option<LockToken> {
        let mut state = self.state();
        let left = state.handed.len();
        if left == 0 {
            return None;
        }
        let choice = state.rng.usize(..left);
        // Tokens are data: now and then one is used twice.
        if state.rng.u8(..4) == 0 { Some(state.handed[choice].clone()) } else { Some(state.handed.swap_remove(choice)) }
    }

    /// Goes on with a lock that another process wrote down.
    async fn take_up(&self, token: LockToken) -> Option<(usize, Lock)> {
        let key = self.key_of(&token);
        let choice = self.state().rng.u8(..20);
        let lock = match choice {
            0..12 => self.resume(key, token).await,
            12..17 => self.reclaim(key, token).await,
            _ => {
                let (grant, number) = grant_of(&token);
                self.state().call_begins(self.id, key, CallKind::Release { grant, token: number, later_of: None });
                let answer = self.perhaps(async { self.locks.release(token).await }).await;
                self.release_ended(key, grant, number, answer, Some(self.call_limit()));
                None
            }
        };
        Some((key, lock?))
    }

    /// One try, with what the last watcher saw.
    async fn watch(&self) {
        let key = 0;
        let observation = {
            let mut state = self.state();
            let local = state.processes[self.id].local;
            match state.observed.clone() {
                // A wait of a state machine proves that so much time has passed, by a clock of its own.
                Some((seen, at)) if state.rng.u8(..3) > 0 => {
                    let proven = Duration::from_nanos(local.saturating_sub(at)).mul_f64(0.97);
                    Some(seen.and_waited(proven))
                }
                seen => seen.map(|(seen, _)| seen),
            }
        };
        let carried = observation.is_some();
        let lease = self.part_of_lease(1.5);
        self.state().call_begins(self.id, key, CallKind::Acquire { owner: self.owner.clone(), reclaims: false });
        let mut tried = self.locks.try_acquire(self.lock_key(key)).lease(lease);
        if let Some(observation) = observation {
            tried = tried.observation(observation);
        }
        let takeovers = self.state().counts().takeovers;
        let tried = self.perhaps(async { tried.await }).await;
        if let Some(Ok(TryAcquired::Held(held))) = &tried {
            // At its own present, which may lie ahead where it was paused.
            let mut state = self.state();
            let local = state.processes[self.id].local;
            state.at(local, Event::Observed(held.observation.clone()));
        }
        if let Some(lock) = self.acquire_ended(key, tried, Some(self.call_limit() * 3)) {
            if carried && self.state().counts().takeovers > takeovers {
                self.state().counts().observations_carried += 1;
            }
            self.hold(key, lock).await;
        }
    }

    async fn clean(&self) {
        while !self.is_calm() {
            self.sleep(self.part_of_lease(2.0)).await;
            let key = self.some_key();
            self.state().call_begins(self.id, key, CallKind::Workflow(WORKFLOW.to_owned()));
            let answer = self.perhaps(self.locks.release_workflow(self.lock_key(key), WORKFLOW).into_future()).await;
            let ended = match answer {
                Some(Ok(_)) => Ended::Done,
                _ => Ended::Unknown,
            };
            let limit = self.call_limit();
            self.state().call_ends(self.id, ended, Some(limit));
        }
    }

    /// Waits for a lock whose holders are all gone, without any faults.
    async fn comes_last(&self, key: usize) {
        let bound = self.state().takeover_bound(key);
        let started = self.state().processes[self.id].local;
        let budget = Budget::lasting_on(self.clock.clone(), Duration::from_secs(3600)).reserve(Duration::from_secs(1));
        self.state().call_begins(self.id, key, CallKind::Acquire { owner: self.owner.clone(), reclaims: false });
        let lease = Duration::from_secs(1);
        let lock = self.locks.acquire(self.lock_key(key)).within(&budget).lease(lease).await;
        let took = Duration::from_nanos(self.state().processes[self.id].local - started);
        if took > bound || lock.is_err() {
            let what = format!("took {took:?}, the bound is {bound:?}: {lock:?}");
            self.state().ledger.violate(Invariant::TakenOver, what);
        }
        self.state().counts().final_takeovers += 1;
        if let Some(lock) = self.acquire_ended(key, Some(lock.map(TryAcquired::Granted)), None) {
            self.release(key, lock).await;
        }
    }

    // Calls.

    pub(crate) fn call_limit(&self) -> Duration {
        self.state().call_limit()
    }

    /// Lets a call finish, or drops its future somewhere in the middle.
    pub(crate) async fn perhaps<T>(&self, call: impl Future<Output = T>) -> Option<T> {
        let cancelled = {
            let mut state = self.state();
            let chance = state.plan.faults.cancelled;
            let timeout = state.plan.timeout;
            state.chance(chance).then(|| timeout.mul_f64(state.rng.f64() * 1.5))
        };
        let Some(patience) = cancelled else { return Some(call.await) };
        let (mut call, mut nap) = (pin!(call), pin!(self.sleep(patience)));
        let answer = poll_fn(|context| {
            if let Poll::Ready(answer) = call.as_mut().poll(context) {
                return Poll::Ready(Some(answer));
            }
            nap.as_mut().poll(context).map(|()| None)
        })
        .await;
        if answer.is_none() {
            self.state().counts().cancelled += 1;
        }
        answer
    }

    async fn acquire(&self, key: usize) -> Option<Lock> {
        let (reclaims, workflow, waits, budget) = {
            let mut state = self.state();
            let reclaims = state.plan.one_owner && state.rng.bool();
            let workflow = state.plan.cleaner && state.rng.bool();
            (reclaims, workflow, state.rng.u8(..3) == 0, state.rng.u8(..3))
        };
        let lease = self.part_of_lease(1.0) + self.state().plan.lease / 4;
        let lasting = lease * 2;
        let within = Budget::lasting_on(self.clock.clone(), lasting).reserve(lease / 2).grace(lease / 8);
        self.state().call_begins(self.id, key, CallKind::Acquire { owner: self.owner.clone(), reclaims });
        let lock_key = self.lock_key(key);
        let tried = if waits {
            let mut acquire = self.locks.acquire(lock_key).within(&within);
            acquire = if budget > 0 { acquire.lease(lease) } else { acquire };
            acquire = if reclaims { acquire.reclaim_own() } else { acquire };
            acquire = if workflow { acquire.workflow(WORKFLOW) } else { acquire };
            self.perhaps(async { acquire.await.map(TryAcquired::Granted) }).await
        } else {
            let mut acquire = self.locks.try_acquire(lock_key);
            acquire = if budget > 0 { acquire.lease(lease) } else { acquire };
            acquire = if budget < 2 { acquire.within(&within) } else { acquire };
            acquire = if reclaims { acquire.reclaim_own() } else { acquire };
            acquire = if workflow { acquire.workflow(WORKFLOW) } else { acquire };
            self.perhaps(async { acquire.await }).await
        };
        let limit = if waits { lasting.max(self.call_limit()) + self.call_limit() * 2 } else { self.call_limit() * 3 };
        self.acquire_ended(key, tried, Some(limit))
    }

    async fn reclaim(&self, key: usize, token: LockToken) -> Option<Lock> {
        let kind = CallKind::Acquire { owner: token.owner().to_owned(), reclaims: true };
        self.state().call_begins(self.id, key, kind);
        let lease = self.part_of_lease(1.5);
        let reclaimed = self.perhaps(async { self.locks.reclaim(token).lease(lease).await }).await;
        self.acquire_ended(key, reclaimed.map(|lock| lock.map(TryAcquired::Granted)), Some(self.call_limit() * 3))
    }

    /// Writes into the books how an acquire ended.
    pub(crate) fn acquire_ended(
        &self,
        key: usize,
        tried: Option<Result<TryAcquired, Error>>,
        limit: Option<Duration>,
    ) -> Option<Lock> {
        let mut state = self.state();
        let call = state.processes[self.id].call.unwrap_or_default();
        state.say_of(self.id, || format!("acquire ended: {}", said(&tried)));
        let ended = match &tried {
            Some(Ok(TryAcquired::Granted(_))) => Ended::Done,
            Some(Ok(TryAcquired::Held(_))) => Ended::Refused,
            Some(Err(error)) => refused_or_unknown(error),
            None => Ended::Unknown,
        };
        state.call_ends(self.id, ended, limit);
        let left = state.ledger.current[key].map(|current| &state.ledger.grants[current]);
        let left = left.is_some_and(|left| left.call == call && !left.is_over() && !left.ghost);
        let sent_release = state.ledger.calls[call].sent_release;
        if left && ended == Ended::Refused {
            let what = format!("{} while the row carries this call's grant", said(&tried));
            state.ledger.violate(Invariant::NotHeldByOurselves, what);
        }
        if left && tried.is_some() && ended == Ended::Unknown && !sent_release {
            let what = format!("{} without a try to give back what was granted", said(&tried));
            state.ledger.violate(Invariant::GivenBack, what);
        }
        match tried? {
            Ok(TryAcquired::Granted(lock)) => {
                let (grant, token) = grant_of(&lock.token());
                let Some(granted) = state.ledger.find(key, grant, token) else {
                    let what = format!("a guard of {grant} with token {token}, which was never applied");
                    state.ledger.violate(Invariant::GuardMatchesRow, what);
                    drop(state);
                    return None;
                };
                let heard = state.slots[state.ledger.grants[granted].slot].heard;
                state.counts().recovered_answers += u64::from(!heard);
                Some(lock)
            }
            Ok(TryAcquired::Held(held)) => {
                self.is_somebody_else(&mut state, call, &held);
                None
            }
            Err(error) => {
                match error.kind() {
                    ErrorKind::Held(held) => self.is_somebody_else(&mut state, call, held),
                    ErrorKind::Unknown => state.counts().unknown_acquires += 1,
                    ErrorKind::Lost => state.counts().lost += 1,
                    _ => {}
                }
                None
            }
        }
    }

    fn is_somebody_else(&self, state: &mut State, call: usize, held: &Held) {
        state.counts().held += 1;
        let Some(version) = Version::parse(held.observation.version()) else { return };
        if state.ledger.grants.iter().any(|one| one.grant == Some(version.grant) && one.call == call) {
            let what = format!("held by {:?}, which this call wrote", held.observation.version());
            state.ledger.violate(Invariant::NotHeldByOurselves, what);
        }
    }

    async fn resume(&self, key: usize, token: LockToken) -> Option<Lock> {
        let (grant, number) = grant_of(&token);
        self.state().call_begins(self.id, key, CallKind::Hold(grant, number));
        let lease = self.part_of_lease(1.5);
        let budget = Budget::lasting_on(self.clock.clone(), lease * 2);
        let mut resume = self.locks.resume(token);
        if self.one_in(2) {
            resume = resume.lease(lease);
        }
        if self.one_in(3) {
            resume = resume.within(&budget);
        }
        let resumed = self.perhaps(async { resume.await }).await;
        let ended = resumed.as_ref().map(|resumed| resumed.as_ref().map(|_| ()));
        self.renewal_ended(key, grant, number, ended);
        let lock = resumed?.ok()?;
        self.state().counts().resumed += 1;
        Some(lock)
    }

    async fn renew(&self, key: usize, lock: &mut Lock) -> Ended {
        let (grant, token) = grant_of(&lock.token());
        self.state().call_begins(self.id, key, CallKind::Hold(grant, token));
        let lease = self.part_of_lease(1.5);
        let longer = self.one_in(2);
        let renewal = lock.renew();
        let renewal = if longer { renewal.lease(lease) } else { renewal };
        let renewed = self.perhaps(async { renewal.await }).await;
        self.renewal_ended(key, grant, token, renewed.as_ref().map(|renewed| renewed.as_ref().map(|_| ())))
    }

    fn renewal_ended(&self, key: usize, grant: Grant, token: u64, renewed: Option<Result<(), &Error>>) -> Ended {
        let mut state = self.state();
        state.say_of(self.id, || format!("renewal ended: {renewed:?}"));
        let ended = match renewed {
            Some(Ok(())) => Ended::Done,
            Some(Err(error)) => refused_or_unknown(error),
            None => Ended::Unknown,
        };
        let started = state.processes[self.id].call.map(|call| state.ledger.calls[call].started);
        let limit = state.call_limit();
        state.call_ends(self.id, ended, Some(limit));
        let ours = state.is_held_by(key, grant, token);
        match renewed {
            Some(Err(error)) if error.is_lost() => {
                state.counts().lost += 1;
                if ours {
                    let what = format!("grant {grant} is on the row: {error}");
                    state.ledger.violate(Invariant::NotLostWhileOurs, what);
                }
            }
            Some(Err(error)) if error.is_unknown() => {
                state.counts().unknown_renewals += 1;
                let renewed = state.ledger.find(key, grant, token).map(|found| state.ledger.grants[found].renewed);
                if renewed > started {
                    state.counts().applied_unheard += 1;
                }
            }
            _ => {}
        }
        ended
    }

    async fn release(&self, key: usize, lock: Lock) {
        let (grant, token) = grant_of(&lock.token());
        let (later, deleting) = {
            let mut state = self.state();
            let later = state.plan.one_owner && state.rng.u8(..4) == 0;
            (later, state.plan.deleting && state.rng.bool())
        };
        let later_of = later.then(|| lock.owner().to_owned());
        self.state().call_begins(self.id, key, CallKind::Release { grant, token, later_of });
        // Over from here on.
        self.state().processes[self.id].holds = None;
        let release = lock.release();
        let release = if deleting { release.delete_row() } else { release };
        let release = if later { release.or_later_grant_of_owner() } else { release };
        let answer = self.perhaps(release.into_future()).await;
        self.release_ended(key, grant, token, answer, Some(self.call_limit()));
    }

    fn release_ended(
        &self,
        key: usize,
        grant: Grant,
        token: u64,
        answer: Option<Result<ReleaseOutcome, Error>>,
        limit: Option<Duration>,
    ) {
        let mut state = self.state();
        state.say_of(self.id, || format!("release ended: {answer:?}"));
        let ended = match &answer {
            Some(Ok(_)) => Ended::Done,
            Some(Err(error)) => refused_or_unknown(error),
            None => Ended::Unknown,
        };
        state.call_ends(self.id, ended, limit);
        let ours = state.is_held_by(key, grant, token);
        match answer {
            Some(Ok(outcome)) if ours => {
                let what = format!("{outcome:?} while grant {grant} is on the row");
                state.ledger.violate(Invariant::ReleasedIsFree, what);
            }
            Some(Ok(ReleaseOutcome::AlreadyGone)) => state.counts().already_gone += 1,
            Some(Err(error)) if error.is_unknown() => state.counts().unknown_releases += 1,
            _ => {}
        }
    }

    // Holding.

    async fn hold(&self, key: usize, mut lock: Lock) {
        let (grant, token) = grant_of(&lock.token());
        let Some(granted) = self.state().granted_to(key, grant, token) else { return };
        self.state().processes[self.id].holds = Some(granted);
        self.check(&lock, granted, true);
        let steps = self.state().rng.u32(0..=5);
        let mut expired = false;
        for _ in 0..steps {
            self.rest(self.part_of_lease(0.6)).await;
            let mine = self.check(&lock, granted, false);
            if mine && expired {
                let what = format!("the guard of {grant} had run out and is back without a renewal");
                self.state().ledger.violate(Invariant::ExpiredStaysExpired, what);
            }
            expired = !mine;
            if mine {
                self.affect(granted);
            }
            let (renews, copies, transacts) = {
                let mut state = self.state();
                let copies = state.plan.handing_over && state.rng.u8(..6) == 0;
                (state.rng.u8(..5) < 2, copies, state.rng.u8(..6))
            };
            match transacts {
                0 => match self.commit(key, &mut lock, granted).await {
                    Ended::Refused => break,
                    Ended::Done => {
                        expired = false;
                        self.check(&lock, granted, true);
                    }
                    // To ask what became of it may have renewed it.
                    Ended::Unknown | Ended::Running => expired = false,
                },
                1 => self.fenced_write(key, &lock, granted),
                _ => {}
            }
            if copies {
                self.hand(lock.token());
            }
            if renews {
                match self.renew(key, &mut lock).await {
                    Ended::Done => {
                        expired = false;
                        self.check(&lock, granted, true);
                    }
                    Ended::Refused => break,
                    Ended::Unknown | Ended::Running => {}
                }
            }
        }
        let (choice, hands) = {
            let mut state = self.state();
            (state.rng.u8(..20), state.plan.handing_over)
        };
        match choice {
            0..4 => {}
            4..9 if hands => {
                self.state().processes[self.id].holds = None;
                self.hand(lock.into_token());
                return;
            }
            9 => return self.commit_and_release(key, lock, granted).await,
            _ => return self.release(key, lock).await,
        }
        // Forgotten: nobody releases it.
        self.state().processes[self.id].holds = None;
    }

    fn hand(&self, token: LockToken) {
        let mut state = self.state();
        let local = state.processes[self.id].local;
        state.at(local, Event::Hand(token));
    }

    /// Asks the guard. `fresh`: others are asked at the same instant.
    pub(crate) fn check(&self, lock: &Lock, granted: usize, fresh: bool) -> bool {
        let mine = !lock.remaining().is_zero();
        let mut state = self.state();
        if mine {
            state.says_mine(self.id, granted, fresh);
        } else {
            state.counts().expired += 1;
            // Whoever sets the clock back just now would find out whether the guard believes it again.
            if state.plan.clocks.jumps > 0.0 && !state.calm && state.rng.u8(..4) == 0 {
                state.jump(self.id);
            }
        }
        mine
    }

    /// Writes something, fenced by the token; now and then it takes long to arrive.
    fn affect(&self, granted: usize) {
        let mut state = self.state();
        let lease = nanos(state.plan.lease);
        let slow = if state.rng.u8(..8) == 0 { state.rng.u64(..3 * lease) } else { 0 };
        let at: Nanos = state.processes[self.id].local + state.way() + slow;
        state.at(at, Event::Effect(granted));
    }
}

/// The grant and the fencing token in a written-down lock.
pub(crate) fn grant_of(token: &LockToken) -> (Grant, u64) {
    let version = Version::parse(token.version()).unwrap();
    (version.grant, token.fencing_token())
}

pub(crate) fn refused_or_unknown(error: &Error) -> Ended {
    match error.kind() {
        ErrorKind::Unknown => Ended::Unknown,
        _ => Ended::Refused,
    }
}

fn said(tried: &Option<Result<TryAcquired, Error>>) -> String {
    match tried {
        None => "cancelled".to_owned(),
        Some(Ok(TryAcquired::Granted(lock))) => format!("granted with token {}", lock.fencing_token()),
        Some(Ok(TryAcquired::Held(held))) => format!("held by {:?}", held.observation.version()),
        Some(Err(error)) => error.to_string(),
    }
}
