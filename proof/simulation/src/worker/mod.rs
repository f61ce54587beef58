//! Processes from their own point of view: callers of the real client that hold locks, lose them, hand them over and
//! die. Each call has a file with what must hold when it has ended.

mod acquire;
mod commit;
mod guarded;
mod hold;
mod once;
mod release;
mod renew;
mod roles;

use crate::ledger::{Attributes, Call, CallId, CallKind, Ended, Invariant, ProcessId};
use crate::network::{Nap, ProcessClock, Wire};
use crate::plan::{Peer, RETENTION};
use crate::sdk::Noted;
use crate::world::{SORT, State, TTL, World};
use aws_sdk_dynamodb::config::{BehaviorVersion, Config};
use lambda_lock::{Budget, Clock, Error, ErrorKind, LockClient, SavedLock};
use lambda_lock_protocol::{Grant, Queueing, Version};
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::{LazyLock, MutexGuard};
use std::task::Poll;
use std::time::Duration;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    Worker,
    Watcher,
    /// Waits in line, and sleeps between its calls.
    Sleeper,
    Cleaner,
    /// Does idempotent work.
    Doer,
    Peer(Peer),
    /// Waits for this key at the end.
    Last(usize),
}

impl Role {
    pub(crate) fn may_crash(self) -> bool {
        !matches!(self, Role::Last(_))
    }

    /// What a process of this role does until it ends.
    pub(crate) fn live(self, me: Me) -> Pin<Box<dyn Future<Output = ()>>> {
        match self {
            Role::Worker => Box::pin(async move { me.work().await }),
            Role::Watcher => Box::pin(async move { me.watch().await }),
            Role::Sleeper => Box::pin(async move { me.sleeps_in_line().await }),
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
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) owner: String,
    pub(crate) locks: LockClient,
}

/// Never receives a request, because all requests go over the simulated network.
static NOBODY: LazyLock<aws_sdk_dynamodb::Client> = LazyLock::new(|| {
    let config = Config::builder().behavior_version(BehaviorVersion::latest()).build();
    aws_sdk_dynamodb::Client::from_conf(config)
});

impl Me {
    /// A process with a client of its own, or with the client of another process.
    pub(crate) fn new(world: World, id: ProcessId, shared: Option<LockClient>) -> Self {
        let clock = Arc::new(ProcessClock { world: world.clone() });
        let state = world.state();
        let plan = state.plan.clone();
        drop(state);
        if let Some(locks) = shared {
            let owner = if plan.one_owner { "twin".to_owned() } else { format!("w{id}") };
            return Self { world, id, clock, owner, locks };
        }
        let owner = if plan.one_owner { "twin".to_owned() } else { format!("w{id}") };
        let builder = LockClient::builder(NOBODY.clone(), "locks")
            .owner(owner.as_str())
            .clock(clock.clone())
            .dialect(plan.dialect)
            .request_timeout(plan.timeout)
            .max_clock_skew(plan.skew);
        let builder = if plan.sort_key { builder.sort_key_attribute(SORT) } else { builder };
        let builder = if plan.ttl { builder.ttl_attribute(TTL).ttl_retention(RETENTION) } else { builder };
        let by_sdk = world.state().engine.is_some();
        let builder =
            if by_sdk { builder.network(Noted::new(&world)) } else { builder.network(Wire { world: world.clone() }) };
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

    /// A random duration of at most `most` usual leases.
    pub(crate) fn part_of_lease(&self, most: f64) -> Duration {
        let mut state = self.state();
        state.plan.lease.mul_f64(state.rng.f64() * most).max(Duration::from_millis(1))
    }

    pub(crate) fn sleep(&self, duration: Duration) -> Nap {
        Nap::new(&self.world, self.id, duration)
    }

    /// Sleeps, or stops sleeping when another process reports that it holds the lock.
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

    /// The budget of a call: this duration, or until a point in time by the wall clock.
    pub(crate) fn budget(&self, lasting: Duration) -> Budget {
        if self.one_in(2) {
            return Budget::lasting_on(self.clock.clone(), lasting);
        }
        let end = self.clock.now().wall + lasting;
        self.state().counts().budgets_until += 1;
        // Computed as the budget does it: from the wall clock when the budget is made.
        let left = end.saturating_sub(self.clock.now().wall);
        // The clock may be set back between the two, and the call's limit knows only this duration.
        let left = left.min(lasting);
        Budget::lasting_on(self.clock.clone(), left)
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

    fn key_of(&self, token: &SavedLock) -> usize {
        let key = token.key();
        self.state().keys.iter().position(|own| *own == key).unwrap_or_default()
    }

    pub(crate) fn call_limit(&self) -> Duration {
        self.state().call_limit()
    }

    /// The payload that the next call leaves in the row, if any.
    pub(crate) fn some_data(&self) -> Option<Vec<u8>> {
        let mut state = self.state();
        let some = state.plan.data && state.rng.u8(..3) == 0;
        some.then(|| state.rng.u32(..).to_le_bytes().to_vec())
    }

    /// Notes that the current call leaves this payload in the row.
    pub(crate) fn wants(&self, data: Option<&Vec<u8>>) {
        let mut state = self.state();
        if let (Some(call), Some(data)) = (state.processes[self.id].call, data) {
            state.ledger.calls[call].wants = Some(data.clone());
            state.counts().data += 1;
        }
    }

    /// The additional attributes that the current call gives. They follow from its number, and differ also by name.
    pub(crate) fn some_attributes(&self) -> Attributes {
        let mut state = self.state();
        let Some(call) = state.processes[self.id].call.filter(|_| state.plan.attributes) else { return Vec::new() };
        let all = [("job", format!("of call {call}")), ("step", "first".to_owned())];
        let attributes: Attributes = all.into_iter().take([0, 1, 1, 2][call % 4]).collect();
        state.ledger.calls[call].attributes.clone_from(&attributes);
        attributes
    }

    /// How the current call behaves where others wait.
    pub(crate) fn some_queueing(&self) -> Queueing {
        let mut state = self.state();
        let all = [Queueing::BehindSlowHolders, Queueing::AtOnce, Queueing::AtOnce, Queueing::Ignored];
        let drawn = all[state.rng.usize(..4)];
        let queueing = if state.plan.in_line { Queueing::AtOnce } else { drawn };
        if let Some(call) = state.processes[self.id].call {
            state.ledger.calls[call].out_of_turn = queueing == Queueing::Ignored;
        }
        queueing
    }

    /// Notes that the current call is a transaction.
    pub(crate) fn commits(&self) {
        let mut state = self.state();
        if let Some(call) = state.processes[self.id].call {
            state.ledger.calls[call].commits = true;
        }
    }

    /// Lets a call finish, or drops its future at some point.
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
}

/// The grant and the fencing token of a saved lock.
pub(crate) fn grant_of(token: &SavedLock) -> (Grant, u64) {
    let version = Version::parse(token.version()).unwrap();
    (version.grant, token.fencing_token())
}

impl State {
    /// What a failed call may report.
    pub(crate) fn failed(&mut self, id: ProcessId, call: CallId, error: &Error) {
        let Call { applied, faulted, unclear: fault, refusals, disturbed, ref kind, .. } = self.ledger.calls[call];
        let acquires = matches!(kind, CallKind::Acquire { .. });
        match error.kind() {
            ErrorKind::InvalidRecord => self.counts().invalid_records += 1,
            ErrorKind::Denied => self.counts().denied += 1,
            _ => {}
        }
        let nothing = matches!(
            error.kind(),
            ErrorKind::Denied | ErrorKind::Table | ErrorKind::InvalidRequest | ErrorKind::Unavailable
        );
        // An acquire whose late grant could not be renewed releases it. That is checked elsewhere.
        if nothing && applied && !acquires {
            self.ledger.violate(
                Invariant::OnceUnknown,
                format!("process {id} reported \"{error}\", but one of its writes was applied"),
            );
        }
        let unclear = matches!(error.kind(), ErrorKind::Unknown | ErrorKind::Unavailable);
        // Faster contenders, or copies of the same grant, can refuse a call until its time is over. Where a clock is
        // found behind, a renewal is not enough, and the call may have no time for another one.
        if unclear && !faulted && disturbed.is_none() && refusals == 0 && !self.plan.shows_clocks_behind() {
            self.ledger.violate(Invariant::UnknownHasACause, format!("process {id} reported \"{error}\""));
        }
        // A request for a ticket decides nothing, so its outcome is not that of the call.
        let by_ticket = faulted && !fault && acquires && error.kind() == ErrorKind::Unknown;
        if by_ticket && disturbed.is_none() && !self.plan.shows_clocks_behind() {
            let what = format!("process {id} reported \"{error}\" because of a ticket");
            self.ledger.violate(Invariant::UnknownHasACause, what);
        }
    }
}

pub(crate) fn refused_or_unknown(error: &Error) -> Ended {
    match error.kind() {
        ErrorKind::Unknown => Ended::Unknown,
        _ => Ended::Refused,
    }
}
