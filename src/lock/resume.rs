//! Resume: continues to hold a saved lock.

use super::awaited::awaited;
use super::guard::Lock;
use super::held::{HeldLocks, Hold};
use crate::engine::Engine;
use crate::engine::budget::Budget;
use crate::engine::deadline::{Deadline, LeasePolicy};
use crate::engine::error::Error;
use lambda_lock_protocol::{DataChange, Lease, MAX_LEASE, SavedLock};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// A resume before it is awaited. Await it to get the [`Lock`]. See [`LockClient::resume`](crate::LockClient::resume)
/// for errors, requests and cancel safety.
#[must_use = "a resume does nothing until it is awaited"]
pub struct Resume<'a> {
    engine: &'a Arc<Engine>,
    saved: SavedLock,
    lease: Option<Duration>,
    budget: Option<Budget>,
    data: DataChange,
}

impl<'a> Resume<'a> {
    pub(crate) fn new(engine: &'a Arc<Engine>, saved: SavedLock) -> Self {
        Self { engine, saved, lease: None, budget: None, data: DataChange::Keep }
    }

    /// Sets the budget of the work that the lock is resumed for. The lease covers the budget. Checkpoints extend the
    /// lease up to the end of the budget and no further. Default: none, and the lease is that of the saved lock.
    pub fn within(mut self, budget: &Budget) -> Self {
        self.budget = Some(budget.on(&self.engine.clock));
        self
    }

    /// Sets a longer lease than that of the saved lock. A shorter one is ignored.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = Some(lease);
        self
    }

    /// Replaces the payload in the lock's row, or removes it: [`DataChange::Remove`]. Default: the row keeps its payload.
    pub fn data(mut self, data: impl Into<DataChange>) -> Self {
        self.data = data.into();
        self
    }

    /// Resumes the lock. The time for it begins with this call, also if others are polled first.
    pub(super) fn resume(self) -> impl Future<Output = Result<Hold, Error>> + Send + use<> {
        let engine = self.engine.clone();
        let prepared = self.prepared();
        async move {
            let (mut hold, deadline, data) = prepared?;
            let renewed = hold.renew(&engine, &deadline, &data).await;
            // After an error the saved lock still represents the lock, and no guard ever held it.
            renewed.inspect_err(|_| hold.abandon()).map(|()| hold)
        }
    }

    fn prepared(self) -> Result<(Hold, Deadline, DataChange), Error> {
        let Self { engine, saved, lease, budget, data } = self;
        let settings = &engine.settings;
        engine.check_saved(&saved)?;
        settings.check_write(&saved.key(), saved.owner(), saved.workflow(), &data)?;
        lease.map_or(Ok(()), Lease::check)?;
        let holding = saved.holding(engine.clock.now(), settings)?;
        let covering = budget.as_ref().and_then(|budget| budget.lease(&settings.clock_bounds));
        let wanted = lease.or(covering).unwrap_or_default().min(MAX_LEASE).max(holding.lease.duration());
        let lease = LeasePolicy::UpTo(wanted, budget.clone());
        let deadline = engine.deadline(lease, budget.as_ref());
        Ok((Hold::granted(&engine.clock, holding, None), deadline, data))
    }
}

awaited!(Resume<'a> => Result<Lock, Error>, |resume| async move {
    let (engine, budget) = (resume.engine.clone(), resume.budget.clone());
    let hold = resume.resume().await?;
    Ok(HeldLocks::one(engine, budget, hold).into())
});

impl fmt::Debug for Resume<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Resume").field("saved", &self.saved).finish_non_exhaustive()
    }
}
