//! Releases the locks that an ended execution still holds. A second look finds locks that were acquired late.

use crate::ended::Ended;
use crate::index::Index;
use lambda_lock::{Budget, LockClient, LockKey, ReleaseOutcome, Sleeper};
use lambda_lock_functions::{Config, ConfigError, Environment, Event, Failure, Fields, Waker, optional};
use lambda_lock_protocol::WAKE;
use lambda_runtime::LambdaEvent;
use serde_json::{Value, json};
use std::time::Duration;

/// The default pause between the first look and the second one. An acquire that was in flight when the execution
/// ended has been applied by then.
const DEFAULT_SECOND_LOOK: Duration = Duration::from_secs(5);
/// The part of the invocation that is reserved for the second look.
const TO_LOOK: Duration = Duration::from_secs(3);
/// The part of the invocation in which it ends, however many wake items are left.
const TO_END: Duration = Duration::from_secs(1);

/// Clients and settings that all invocations of a process share.
#[derive(Debug)]
pub(crate) struct Deps {
    locks: LockClient,
    index: Index,
    second_look: Duration,
    /// What the keys of its locks begin with. The role may allow no others.
    prefix: String,
    waker: Waker,
}

impl Deps {
    pub(crate) fn new(config: &Config, environment: &Environment<'_>) -> Result<Self, ConfigError> {
        let locks = config.locks()?;
        let prefix = optional(environment, "LOCK_KEY_PREFIX")?;
        // The keys in the index are whole, so a client that puts the prefix before them is no help.
        if let Some(Err(error)) = prefix.as_ref().map(|prefix| locks.prefixed(prefix)) {
            return Err(ConfigError::new(format!("LOCK_KEY_PREFIX cannot be used: {error}")));
        }
        let (index, second_look) = (Index::new(config)?, second_look(environment)?);
        let waker = Waker::new(config, environment)?;
        Ok(Self { locks, index, second_look, prefix: prefix.unwrap_or_default(), waker })
    }
}

fn second_look(environment: &Environment<'_>) -> Result<Duration, ConfigError> {
    let name = "CLEANUP_SECOND_LOOK_SECONDS";
    let Some(text) = optional(environment, name)? else { return Ok(DEFAULT_SECOND_LOOK) };
    let seconds = text.parse().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    seconds.ok_or_else(|| {
        ConfigError::new(format!("{name} is {text:?}: give a number of seconds, or 0 for no second look"))
    })
}

/// The result of one look at the locks of an execution.
#[derive(Debug, Default)]
struct Look {
    released: u64,
    /// How many locks could not be released, and why the first of them could not.
    failed: u64,
    failure: Option<Failure>,
    /// Those whose release has failed. It may have been applied nevertheless, and then nobody was woken.
    unsure: Vec<LockKey>,
    /// The wake items of the execution.
    wake_items: Vec<LockKey>,
}

pub(crate) async fn handler(event: LambdaEvent<Event>, deps: &Deps) -> Result<Value, Failure> {
    let ended = Ended::read(Fields::of_event(&event.payload)?)?;
    if !ended.leaves_locks() {
        return Ok(json!({ "released": 0 }));
    }
    let budget = Budget::from(&event.context);
    let mut look = deps.look(&ended, &budget, if deps.second_look.is_zero() { TO_END } else { TO_LOOK }).await;
    let mut released = look.released;
    let mut unsure = std::mem::take(&mut look.unsure);
    if !deps.second_look.is_zero() {
        pause(deps.second_look, &budget).await;
        // The second look also finds the locks that the first one could not release.
        look = deps.look(&ended, &budget, TO_END).await;
        released += look.released;
        unsure.append(&mut look.unsure);
    }
    if !unsure.is_empty() {
        let within = budget.remaining().map(|remaining| remaining.saturating_sub(TO_END));
        deps.waker.wake_freed(&deps.locks, &unsure, within).await;
    }
    // They keep nobody from a lock, so the second look does not wait for them.
    deps.forget(&mut look, &budget).await;
    tracing::info!(execution = ended.execution, released, failed = look.failed, "cleaned up");
    match look.failure {
        None => Ok(json!({ "released": released })),
        Some(failure) => {
            Err(failure.because_of(&format!("not every lock of the execution was released, {released} were")))
        }
    }
}

/// Waits for the second look, but leaves time for it before the deadline.
#[expect(clippy::disallowed_methods, reason = "the function holds no lock while it waits")]
async fn pause(wanted: Duration, budget: &Budget) {
    let most = budget.remaining().map_or(wanted, |remaining| remaining.saturating_sub(TO_LOOK));
    tokio::time::sleep(wanted.min(most)).await;
}

impl Deps {
    /// Releases the locks that the index lists, apart from those with another prefix. If one cannot be released, the others
    /// still are. What has to come after it has `reserve` of the budget.
    async fn look(&self, ended: &Ended, budget: &Budget, reserve: Duration) -> Look {
        let mut look = Look::default();
        let keys = match self.index.keys_of(&ended.execution).await {
            Ok(keys) => keys,
            Err(failure) => return Look { failure: Some(failure), ..look },
        };
        let (wake_items, keys): (Vec<_>, Vec<_>) = keys.into_iter().partition(|key| key.key().starts_with(WAKE));
        let mut sleepers = Vec::new();
        for key in keys.into_iter().filter(|key| key.key().starts_with(&self.prefix)) {
            match self.release(key.clone(), ended).await {
                Ok((ReleaseOutcome::Released, sleeper)) => {
                    look.released += 1;
                    sleepers.extend(sleeper);
                }
                // The index was late: the lock is free by now, or another holder has it.
                Ok((ReleaseOutcome::AlreadyGone, _)) => {}
                Err(failure) => {
                    tracing::warn!(%key, %failure, "a lock was not released; its lease frees it");
                    look.failed += 1;
                    look.failure.get_or_insert(failure);
                    look.unsure.push(key);
                }
            }
        }
        // Only when all locks are free: Step Functions may be slow to answer.
        let within = budget.remaining().map(|remaining| remaining.saturating_sub(reserve));
        self.waker.wake_all(&sleepers, within).await;
        let is_own = |item: &LockKey| item.key().strip_prefix(WAKE).is_some_and(|lock| lock.starts_with(&self.prefix));
        look.wake_items = wake_items.into_iter().filter(is_own).collect();
        look
    }

    /// Deletes the wake items that the look has found, as far as the time allows.
    #[expect(clippy::disallowed_methods, reason = "the locks are released")]
    async fn forget(&self, look: &mut Look, budget: &Budget) {
        let time = budget.remaining().unwrap_or(Duration::MAX).saturating_sub(TO_END);
        let all = async {
            for item in std::mem::take(&mut look.wake_items) {
                // If the execution was redriven since, it is woken, and sleeps again.
                if let Err(failure) = self.waker.wake(&item).await {
                    tracing::warn!(key = %item, %failure, "a wake item was not deleted");
                    look.failed += 1;
                    look.failure.get_or_insert(failure);
                }
            }
        };
        if tokio::time::timeout(time, all).await.is_err() {
            look.failed += 1;
            look.failure.get_or_insert(Failure::unknown("the time was over before all wake items were deleted"));
        }
    }

    async fn release(&self, key: LockKey, ended: &Ended) -> Result<(ReleaseOutcome, Option<Sleeper>), Failure> {
        let spares = ended.clone();
        let release = self.locks.release_workflow(key, &ended.execution);
        let release = release.sparing_owners(move |owner| spares.is_outlived_by(owner));
        Ok(release.with_sleeper().await?)
    }
}
