//! The lock on a DynamoDB client of your own, through the component `protocol`: the component decides, and the AWS SDK
//! sends.
//!
//! ```text
//! let decisions = Decisions::load("lambda_lock_protocol.wasm")?;
//! let mut locks = Locks::open(&decisions, dynamodb, &settings)?;
//! let Acquired::Granted(lock) = locks.acquire(&wanted).await? else { return … };
//! …
//! locks.renew(lock.handle, &options).await?;
//! locks.release(lock.handle, &options).await?;
//! ```
//!
//! A failure that the lock reports is the error [`types::Error`](crate::bindings::types::Error). Any other error comes
//! from the host.

use crate::bindings::decisions::{
    Clocks, Guest, GuestIndices, Next, ReleaseOptions, RenewOptions, Sending, Settings, Verdict, Wanted,
};
use crate::bindings::types::{ConditionCheck, DataChange, Held, LockKey, PeekedLock, ReleaseOutcome, SavedLock};
use crate::dynamodb::send;
use anyhow::bail;
use aws_sdk_dynamodb::Client;
use std::time::{Duration, Instant, SystemTime};
use tokio::time::sleep;
use wasmtime::component::{Component, InstancePre, Linker, ResourceAny};
use wasmtime::{Engine, Store};

/// The compiled component.
pub struct Decisions {
    component: InstancePre<()>,
    exports: GuestIndices,
}

impl Decisions {
    pub fn load(path: &str) -> anyhow::Result<Self> {
        let engine = Engine::default();
        // The linker is empty because the component imports nothing.
        let component = Linker::new(&engine).instantiate_pre(&Component::from_file(&engine, path)?)?;
        let exports = GuestIndices::new(&component)?;
        Ok(Self { component, exports })
    }
}

/// Locks in one table. They have a component instance of their own.
pub struct Locks {
    api: Guest,
    store: Store<()>,
    table: ResourceAny,
    dynamodb: Client,
    /// The origin of the monotonic clock.
    started: Instant,
}

/// The result of an acquire. Neither case is an error.
pub enum Acquired {
    Granted(Lock),
    Held(Held),
}

/// A granted lock.
pub struct Lock {
    pub handle: ResourceAny,
    /// The payload on the row.
    pub data: Option<Vec<u8>>,
}

impl Locks {
    /// `dynamodb` must not repeat requests by itself: give it `RetryConfig::disabled()`.
    pub fn open(decisions: &Decisions, dynamodb: Client, settings: &Settings) -> anyhow::Result<Self> {
        let mut store = Store::new(decisions.component.engine(), ());
        let instance = decisions.component.instantiate(&mut store)?;
        let api = decisions.exports.load(&mut store, &instance)?;
        let table = api.table().call_open(&mut store, settings)??;
        Ok(Self { api, store, table, dynamodb, started: Instant::now() })
    }

    /// Waits for the lock for the time in `wanted.wait`.
    pub async fn acquire(&mut self, wanted: &Wanted) -> anyhow::Result<Acquired> {
        let decision = self.api.table().call_acquire(&mut self.store, self.table, wanted)??;
        let grant = match self.decided(decision).await? {
            Verdict::Granted(grant) => grant,
            Verdict::Held(seen) => return Ok(Acquired::Held(seen)),
            other => bail!("unexpected verdict of an acquire: {other:?}"),
        };
        if grant.renew_first {
            self.renew(grant.lock, &RenewOptions { lease: None, latest_end: None, data: DataChange::Keep }).await?;
        }
        Ok(Acquired::Granted(Lock { handle: grant.lock, data: grant.data }))
    }

    /// Reads a saved lock. Its remaining lease counts as zero until a renewal succeeds, so renew it first.
    pub fn read(&mut self, saved: &SavedLock) -> anyhow::Result<ResourceAny> {
        let now = self.clocks();
        Ok(self.api.table().call_resume(&mut self.store, self.table, saved, now)??)
    }

    pub async fn renew(&mut self, lock: ResourceAny, options: &RenewOptions) -> anyhow::Result<()> {
        let decision = self.api.lock().call_renew(&mut self.store, lock, options)??;
        self.decided(decision).await.map(drop)
    }

    pub async fn release(&mut self, lock: ResourceAny, options: &ReleaseOptions) -> anyhow::Result<ReleaseOutcome> {
        let decision = self.api.lock().call_release(&mut self.store, lock, options)??;
        self.released(decision).await
    }

    pub async fn release_workflow(&mut self, key: &LockKey, workflow: &str) -> anyhow::Result<ReleaseOutcome> {
        let decision = self.api.table().call_release_workflow(&mut self.store, self.table, key, workflow)??;
        self.released(decision).await
    }

    pub async fn peek(&mut self, key: &LockKey) -> anyhow::Result<Option<PeekedLock>> {
        let decision = self.api.table().call_peek(&mut self.store, self.table, key)??;
        match self.decided(decision).await? {
            Verdict::Peeked(row) => Ok(row),
            other => bail!("unexpected verdict of a peek: {other:?}"),
        }
    }

    /// The lease that covers work with this much time left.
    pub fn lease_covering(&mut self, remaining: u64, grace: u64) -> anyhow::Result<u64> {
        Ok(self.api.table().call_lease_covering(&mut self.store, self.table, remaining, grace)?)
    }

    pub fn owner(&mut self, lock: ResourceAny) -> anyhow::Result<String> {
        Ok(self.api.lock().call_owner(&mut self.store, lock)?)
    }

    pub fn fencing_token(&mut self, lock: ResourceAny) -> anyhow::Result<u64> {
        Ok(self.api.lock().call_fencing_token(&mut self.store, lock)?)
    }

    pub fn remaining(&mut self, lock: ResourceAny) -> anyhow::Result<u64> {
        let now = self.clocks();
        Ok(self.api.lock().call_remaining(&mut self.store, lock, now)?)
    }

    pub fn lease_ends_at(&mut self, lock: ResourceAny) -> anyhow::Result<u64> {
        Ok(self.api.lock().call_lease_ends_at(&mut self.store, lock)?)
    }

    pub fn save(&mut self, lock: ResourceAny) -> anyhow::Result<SavedLock> {
        Ok(self.api.lock().call_to_saved(&mut self.store, lock)?)
    }

    pub fn condition_check(&mut self, lock: ResourceAny) -> anyhow::Result<ConditionCheck> {
        Ok(self.api.lock().call_condition_check(&mut self.store, lock)??)
    }

    /// Drops a lock. This does not release it.
    pub fn drop(&mut self, lock: ResourceAny) -> anyhow::Result<()> {
        Ok(lock.resource_drop(&mut self.store)?)
    }

    async fn released(&mut self, decision: ResourceAny) -> anyhow::Result<ReleaseOutcome> {
        match self.decided(decision).await? {
            Verdict::Released(outcome) => Ok(outcome),
            other => bail!("unexpected verdict of a release: {other:?}"),
        }
    }

    async fn decided(&mut self, decision: ResourceAny) -> anyhow::Result<Verdict> {
        let verdict = self.drive(decision).await?;
        decision.resource_drop(&mut self.store)?;
        Ok(verdict?)
    }

    /// The loop of every decision: step, send or wait, until the verdict.
    async fn drive(&mut self, decision: ResourceAny) -> anyhow::Result<Result<Verdict, crate::bindings::types::Error>> {
        loop {
            let mut random = [0; 32];
            getrandom::fill(&mut random)?;
            let now = self.clocks();
            match self.api.decision().call_step(&mut self.store, decision, now, &random)? {
                Next::Send(Sending { request, patience }) => {
                    let answer = send(&self.dynamodb, request, Duration::from_millis(patience)).await;
                    let after = self.clocks();
                    self.api.decision().call_answered(&mut self.store, decision, after, &answer)?;
                }
                Next::Wait(pause) => sleep(Duration::from_millis(pause)).await,
                Next::Done => return Ok(self.api.decision().call_verdict(&mut self.store, decision)?),
            }
        }
    }

    /// Reads both clocks, the monotonic clock first. Both are rounded down.
    fn clocks(&self) -> Clocks {
        let millis = |duration: Duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
        let monotonic = millis(self.started.elapsed());
        let wall = millis(SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default());
        Clocks { monotonic, wall, wall_is_right: true }
    }
}
