//! Tries once to acquire the lock, runs the work and releases the lock.

use crate::work::{WorkError, work};
use lambda_lock::protocol::{LONGEST_KEY, LONGEST_NAME};
use lambda_lock::{Budget, Lock, LockClient, LockKey, ReleaseOutcome, TryAcquired};
use lambda_lock_functions::{AfterWork, Config, ConfigError, Environment, Event, Failure, beginning, optional};
use lambda_runtime::LambdaEvent;
use serde_json::{Value, json};

/// The job's name if `JOB_NAME` is not set.
const DEFAULT_NAME: &str = "scheduled-job";

/// Clients and settings that all invocations of a process share.
pub(crate) struct Deps {
    locks: LockClient,
    key: LockKey,
}

impl Deps {
    pub(crate) fn new(config: &Config, environment: &Environment<'_>) -> Result<Self, ConfigError> {
        let name = optional(environment, "JOB_NAME")?.unwrap_or_else(|| DEFAULT_NAME.to_owned());
        let key = format!("job/{name}");
        // If the table has a sort key, it gets the same text.
        let sort_key = config.has_sort_key().then(|| key.clone());
        let longest = if sort_key.is_some() { lambda_lock::protocol::LONGEST_SORT_KEY } else { LONGEST_KEY };
        if key.len() > longest {
            return Err(ConfigError::new(format!(
                "JOB_NAME is too long: job/ and the name may have {longest} bytes together"
            )));
        }
        Ok(Self { locks: config.locks()?, key: LockKey::new(key, sort_key) })
    }
}

/// Each event of the schedule is one try. The content of the event is ignored.
pub(crate) async fn handler(event: LambdaEvent<Event>, deps: &Deps) -> Result<Value, Failure> {
    guarded(event, deps, work).await
}

pub(crate) async fn guarded<W>(event: LambdaEvent<Event>, deps: &Deps, work: W) -> Result<Value, Failure>
where
    W: AsyncFnOnce(&mut Lock) -> Result<(), WorkError>,
{
    let budget = Budget::from(&event.context);
    run(&budget, deps, work).await.map_err(|failure| failure.of_lock(&deps.key))
}

async fn run<W>(budget: &Budget, deps: &Deps, work: W) -> Result<Value, Failure>
where
    W: AsyncFnOnce(&mut Lock) -> Result<(), WorkError>,
{
    match deps.locks.try_acquire(&deps.key).within(budget).await? {
        TryAcquired::Held(held) => {
            // Owners of this crate have at most this length. Another client's may be as large as a
            // row.
            let holder = beginning(&held.holder, LONGEST_NAME);
            tracing::info!(holder, "somebody else runs the job");
            Ok(json!({ "ran": false, "holder": holder }))
        }
        TryAcquired::Granted(mut lock) => {
            let done = work(&mut lock).await;
            let fencing_token = lock.fencing_token();
            let after = give_back(lock).await;
            done.map_err(|error| failure(error).leaving(after))?;
            Ok(json!({ "ran": true, "fencingToken": fencing_token }))
        }
    }
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
