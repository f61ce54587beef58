//! Tries once to acquire the lock, runs the work and releases the lock. With `ONCE_PER_TICK` the work is also done once for
//! each tick.

use crate::tick::{self, MAX_TICK_BYTES};
use crate::work::{WorkError, work};
use lambda_lock::once::{Attempt, OnceState, Started};
use lambda_lock::{Budget, Lock, LockClient, LockKey, MAX_NAME_BYTES, ReleaseOutcome, Tried};
use lambda_lock_functions::{
    AfterWork, Config, ConfigError, Environment, Event, Failure, beginning, flag, optional, quoted, within_lease,
};
use lambda_runtime::LambdaEvent;
use serde_json::{Value, json};

/// The job's name if `JOB_NAME` is not set.
const DEFAULT_NAME: &str = "scheduled-job";

/// Clients and settings that all invocations of a process share.
pub(crate) struct Deps {
    locks: LockClient,
    key: LockKey,
    once_per_tick: bool,
}

impl Deps {
    pub(crate) fn new(config: &Config, environment: &Environment<'_>) -> Result<Self, ConfigError> {
        let name = optional(environment, "JOB_NAME")?.unwrap_or_else(|| DEFAULT_NAME.to_owned());
        let key = format!("job/{name}");
        // If the table has a sort key, it gets the same text.
        let sort_key = config.has_sort_key().then(|| key.clone());
        let longest = if sort_key.is_some() { LockKey::MAX_SORT_KEY_BYTES } else { LockKey::MAX_KEY_BYTES };
        let once_per_tick = flag(environment, "ONCE_PER_TICK")?.unwrap_or(false);
        let longest = if once_per_tick { longest - MAX_TICK_BYTES } else { longest };
        if key.len() > longest {
            return Err(ConfigError::new(format!(
                "JOB_NAME is too long: job/ and the name may have {longest} bytes together"
            )));
        }
        Ok(Self { locks: config.locks()?, key: LockKey::new(key, sort_key), once_per_tick })
    }
}

/// Each event of the schedule is one try. Only its time is read, and only with `ONCE_PER_TICK`.
pub(crate) async fn handler(event: LambdaEvent<Event>, deps: &Deps) -> Result<Value, Failure> {
    guarded(event, deps, work).await
}

pub(crate) async fn guarded<W>(event: LambdaEvent<Event>, deps: &Deps, work: W) -> Result<Value, Failure>
where
    W: AsyncFnOnce(&mut Lock) -> Result<(), WorkError>,
{
    let budget = Budget::from(&event.context);
    let tick = if deps.once_per_tick { Some(tick::key(&deps.key, &event.payload)?) } else { None };
    run(&budget, deps, tick, work).await.map_err(|failure| failure.of_lock(&deps.key))
}

async fn run<W>(budget: &Budget, deps: &Deps, tick: Option<LockKey>, work: W) -> Result<Value, Failure>
where
    W: AsyncFnOnce(&mut Lock) -> Result<(), WorkError>,
{
    match deps.locks.acquire(&deps.key).within(budget).try_once().await? {
        Tried::Refused(held) => {
            // Owners of this crate have at most this length. Another client's may be as large as a
            // row.
            let holder = beginning(&held.holder, MAX_NAME_BYTES);
            let frozen = held.freeze_reason.as_deref().map(|reason| beginning(reason, MAX_NAME_BYTES));
            match frozen {
                Some(reason) => tracing::warn!(holder, reason, "the job is frozen: no tick runs it until it is thawed"),
                None => tracing::info!(holder, "somebody else runs the job"),
            }
            match tick {
                Some(tick) if !is_done(&tick, deps).await? => Err(Failure::held(format!(
                    "{}, and this tick was not done; deliver it again",
                    match frozen {
                        Some(reason) => format!("the job is frozen, because: {}", quoted(reason)),
                        None => format!("{} runs the job", quoted(holder)),
                    }
                ))),
                // Whoever held it last may have released it: nobody need be at work.
                _ if frozen.is_some() => Ok(json!({ "ran": false, "frozen": frozen, "holder": holder })),
                _ => Ok(json!({ "ran": false, "holder": holder })),
            }
        }
        Tried::Granted(mut lock) => {
            let done = match tick {
                None => {
                    let watch = lock.watch();
                    within_lease(&watch, async { work(&mut lock).await.map_err(failure) }).await
                }
                Some(tick) => match unless_done(tick, budget, deps, &mut lock, work).await {
                    Ok(Tick::DoneBefore(fencing_token)) => {
                        give_back(lock).await;
                        return Ok(json!({ "ran": false, "replayed": true, "fencingToken": fencing_token }));
                    }
                    Ok(Tick::DoneNow) => Ok(()),
                    Err(failure) => Err(failure),
                },
            };
            let fencing_token = lock.fencing_token();
            let after = give_back(lock).await;
            done.map_err(|failure| failure.leaving(after))?;
            Ok(after.told_in(json!({ "ran": true, "fencingToken": fencing_token })))
        }
    }
}

/// Whether an earlier delivery did the work of this tick.
async fn is_done(tick: &LockKey, deps: &Deps) -> Result<bool, Failure> {
    Ok(deps.locks.once(tick).status().await?.is_some_and(|status| status.state == OnceState::Done))
}

enum Tick {
    DoneNow,
    /// An earlier delivery of the tick did the work, under this fencing token.
    DoneBefore(u64),
}

/// Does the work of a tick under the job's lock, unless it was done before. Work that fails leaves the tick open, so that
/// the next delivery tries it again.
async fn unless_done<W>(tick: LockKey, budget: &Budget, deps: &Deps, lock: &mut Lock, work: W) -> Result<Tick, Failure>
where
    W: AsyncFnOnce(&mut Lock) -> Result<(), WorkError>,
{
    let attempt: Attempt = match deps.locks.once(tick).within(budget).without_waiting().start().await? {
        Started::Replayed(fencing_token) => return Ok(Tick::DoneBefore(fencing_token)),
        Started::Attempt(attempt) => attempt,
    };
    let (job, of_tick) = (lock.watch(), attempt.watch());
    let work = within_lease(&job, async { work(lock).await.map_err(failure) });
    if let Err(failure) = within_lease(&of_tick, work).await {
        if let Err(error) = attempt.give_back().await {
            tracing::warn!(%error, "the attempt was not given back; its lease frees it");
        }
        return Err(failure);
    }
    attempt.complete(&lock.fencing_token()).await?;
    Ok(Tick::DoneNow)
}

/// Returns the failure of the work. Errors of the lock keep their own error names.
fn failure(error: WorkError) -> Failure {
    match error.downcast::<lambda_lock::Error>() {
        Ok(error) => Failure::from(*error),
        Err(error) => Failure::work_failed(&error),
    }
}

/// Releases the lock. A failure of the release is only logged, because the work has ended and the
/// lease frees the lock.
async fn give_back(lock: Lock) -> AfterWork {
    let ends = lock.lease_ends_at();
    match lock.release().await {
        Ok(ReleaseOutcome::Released) => AfterWork::Free,
        Ok(ReleaseOutcome::AlreadyGone) => {
            tracing::warn!("the lock was no longer ours when the work ended");
            AfterWork::Lost
        }
        Err(error) => {
            tracing::warn!(%error, "the lock was not released; its lease frees it");
            AfterWork::FreeBy(ends)
        }
    }
}
