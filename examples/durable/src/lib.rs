//! A lock that a durable execution holds while no invocation runs. Copy this file.
//!
//! A suspension drops all that an invocation has in memory, and a replay runs the handler again from its start. So a
//! guard cannot live across a suspension. What lives is the saved lock, as the recorded result of a step. `docs/durable.md`
//! has the rules and their reasons.

use aws_durable_execution_sdk::builders::wait_for_condition::WaitDecision;
use aws_durable_execution_sdk::{BoxError, DurableContext, StepContext};
use lambda_lock::{ErrorKind, Lock, LockClient, LockKey, Observation, SavedLock, Tried};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::time::Duration;
use uuid::Uuid;

/// The longest pause between two looks at a lock that is held. A release is noticed after this time at the latest.
const MAX_PAUSE_SECONDS: u64 = 10;

/// What one look at the lock leaves for the next one. The service records it.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Waiting {
    granted: Option<SavedLock>,
    seen: Option<Observation>,
    /// The pause before the next look.
    pause_seconds: u64,
}

/// A lock that this execution holds.
#[derive(Debug)]
pub struct DurableLock<'a> {
    ctx: &'a DurableContext,
    locks: LockClient,
    lease: Duration,
    saved: SavedLock,
}

/// Acquires the lock, runs the work, and releases the lock, whether the work succeeds or fails. A suspension of the work
/// releases nothing. `lease` has to cover the longest pause between two steps.
pub async fn with_lock<T, F>(
    ctx: &DurableContext,
    locks: &LockClient,
    key: impl Into<LockKey>,
    lease: Duration,
    work: F,
) -> Result<T, BoxError>
where
    F: AsyncFnOnce(&mut DurableLock<'_>) -> Result<T, BoxError>,
{
    let mut lock = acquire(ctx, locks, key, lease).await?;
    let result = work(&mut lock).await;
    if let Err(error) = lock.release().await {
        tracing::warn!("not released, the lock becomes free when its lease ends: {error}");
    }
    result
}

/// Acquires the lock. It waits as long as somebody else holds the lock, in no invocation.
pub async fn acquire<'a>(
    ctx: &'a DurableContext,
    locks: &LockClient,
    key: impl Into<LockKey>,
    lease: Duration,
) -> Result<DurableLock<'a>, BoxError> {
    let key = key.into();
    let execution = ctx.execution_arn().to_owned();
    // Recorded: each replay has the same owner, and two branches of one execution have two.
    let drawn = ctx.step(|_| async { Ok(Uuid::new_v4().simple().to_string()) });
    let owner = format!("{execution}/{}", drawn.name(format!("owner of {key}")).await?);

    let (client, wanted) = (locks.clone(), key.clone());
    let look = move |_: StepContext, before: Waiting| {
        let (client, key, owner, execution) = (client.clone(), wanted.clone(), owner.clone(), execution.clone());
        async move { look(&client, key, owner, execution, lease, before).await }
    };
    let waiting = ctx.wait_for_condition(look, Waiting::default()).name(format!("lock {key}"));
    let waited = waiting.wait_strategy_fn(|waiting: Waiting, _| match waiting.granted {
        Some(_) => WaitDecision::complete(),
        None => WaitDecision::continue_with(Duration::from_secs(waiting.pause_seconds)),
    });
    let saved = waited.await?.granted.ok_or("the wait for the lock ended without it")?;
    Ok(DurableLock { ctx, locks: locks.clone(), lease, saved })
}

/// Tries once.
async fn look(
    locks: &LockClient,
    key: LockKey,
    owner: String,
    execution: String,
    lease: Duration,
    before: Waiting,
) -> Result<Waiting, BoxError> {
    // The service has paused for at least as long as it was told.
    let pause = Duration::from_secs(before.pause_seconds);
    let seen = before.seen.map(|seen| seen.and_waited(pause));
    // An earlier run of this look may have acquired the lock without being recorded: then the lock is our own.
    let mut attempt = locks.acquire(key).owner(owner).reclaim_own().workflow(execution).lease(lease);
    if let Some(seen) = &seen {
        attempt = attempt.observation(seen.clone());
    }
    match attempt.try_once().await {
        Ok(Tried::Granted(lock)) => Ok(Waiting { granted: Some(lock.save()), ..Waiting::default() }),
        Ok(Tried::Refused(held)) => {
            let pause_seconds = held.retry_after.as_secs_f64().ceil() as u64;
            let pause_seconds = pause_seconds.clamp(1, MAX_PAUSE_SECONDS);
            Ok(Waiting { granted: None, seen: Some(held.observation), pause_seconds })
        }
        // An error would end the wait for good.
        Err(error) if matches!(error.kind(), ErrorKind::Unknown | ErrorKind::Unavailable) => {
            Ok(Waiting { granted: None, seen, pause_seconds: 1 })
        }
        Err(error) => Err(error.into()),
    }
}

impl DurableLock<'_> {
    /// The fencing token of the newest grant that is recorded. Within a step, take that of its lock, which is larger.
    pub fn fencing_token(&self) -> u64 {
        self.saved.fencing_token()
    }

    /// Runs a step under the lock, as a new grant: an earlier attempt of this step that still runs is fenced off. The work
    /// gets the guard and returns it with its result.
    ///
    /// It fails without a retry if somebody else has got the lock. Other errors are retried as those of any step.
    pub async fn step<T, F, Fut>(&mut self, name: &str, work: F) -> Result<T, BoxError>
    where
        T: Serialize + DeserializeOwned + Send + Sync + 'static,
        F: Fn(Lock) -> Fut + Clone + Send + Sync + 'static,
        Fut: Future<Output = Result<(T, Lock), BoxError>> + Send + 'static,
    {
        let (locks, saved, lease) = (self.locks.clone(), self.saved.clone(), self.lease);
        let step = self.ctx.step(move |_| {
            let (locks, saved, work) = (locks.clone(), saved.clone(), work.clone());
            async move {
                match locks.reclaim(saved).lease(lease).await {
                    // With the result the newest saved lock is recorded, so that the release is one request.
                    Ok(lock) => work(lock).await.map(|(result, lock)| Ok((result, lock.save()))),
                    Err(error) if error.is_lost() => Ok(Err(error.to_string())),
                    Err(error) => Err(error.into()),
                }
            }
        });
        let (result, newest) = step.name(name).await??;
        self.saved = newest;
        Ok(result)
    }

    /// Releases the lock. An attempt of a step that failed may have left a later grant than the recorded one.
    pub async fn release(self) -> Result<(), BoxError> {
        let (locks, saved) = (self.locks, self.saved);
        let name = format!("unlock {}", saved.key());
        let step = self.ctx.step(move |_| {
            let release = locks.release(saved.clone()).or_later_grant_of_owner();
            async move { Ok(release.await.map(|_| ())?) }
        });
        Ok(step.name(name).await?)
    }
}
