//! The crate itself in this process, with the same calls as the hosts.

use crate::dynamodb_json;
use crate::subject::{Acquire, Ask, Blocked, BoxFuture, Failure, Queueing, Several, Subject, World};
use anyhow::Context;
use aws_sdk_dynamodb::config::{Credentials, Region};
use lambda_lock::{
    Budget, Error, ErrorKind, Lock, LockClient, LockKey, LockSet, Observation, Refusal, ReleaseAllOutcome,
    ReleaseOutcome, SavedLock, SavedLockSet, Tried, operator::PeekedLock,
};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::{Duration, Instant, SystemTime};
use tokio::sync::Mutex;

/// The crate, with the locks that it was granted.
#[derive(Debug, Default)]
pub struct Native(Mutex<Opened>);

#[derive(Debug, Default)]
struct Opened {
    locks: Option<LockClient>,
    granted: BTreeMap<u64, Lock>,
    sets: BTreeMap<u64, LockSet>,
    last: u64,
}

/// Sets the options of a call for several locks or for a place, which have the same methods.
macro_rules! several {
    ($request:expr, $several:expr) => {{
        let Several { remaining, reserve, lease, owner, workflow, seen, reclaim_own } = $several;
        let [remaining, reserve] = [remaining, reserve].map(Duration::from_millis);
        let seen = seen.iter().map(|one| Ok((one.key.as_str(), read_observation(&one.held["observation"])?)));
        let request = $request.within(&Budget::lasting(remaining).reserve(reserve));
        let request = request.observations(seen.collect::<anyhow::Result<Vec<_>>>()?);
        let request = lease.iter().fold(request, |request, lease| request.lease(Duration::from_millis(*lease)));
        let request = owner.iter().fold(request, |request, owner| request.owner(owner));
        let request = workflow.iter().fold(request, |request, workflow| request.workflow(workflow));
        if reclaim_own { request.reclaim_own() } else { request }
    }};
}

impl Subject for Native {
    fn ask(&self, ask: Ask) -> BoxFuture<'_, anyhow::Result<Result<Value, Failure>>> {
        Box::pin(async move { self.0.lock().await.answer(ask).await })
    }

    fn world(&self) -> World {
        World::Client
    }
}

type Told = anyhow::Result<Result<Value, Failure>>;

impl Opened {
    async fn answer(&mut self, ask: Ask) -> Told {
        if let Ask::Open { table, endpoint, access_key_id, owner, request_timeout } = ask {
            self.forget();
            return Ok(client(table, &endpoint, &access_key_id, owner, request_timeout).map(|locks| {
                self.locks = Some(locks);
                Value::Null
            }));
        }
        let locks = self.locks.clone().context("the first call must be open")?;
        let told = match ask {
            Ask::Open { .. } => Ok(Value::Null),
            Ask::Acquire(acquire) => {
                let in_turn = acquire.queueing == Some(Queueing::InTurn);
                let request = acquiring(locks.acquire(acquire.key.as_str()), acquire)?;
                let request = if in_turn { request.in_turn() } else { request };
                request.await.map(|lock| self.grant(lock))
            }
            Ask::TryAcquire(acquire) => match acquiring(locks.acquire(acquire.key.as_str()), acquire)?.try_once().await
            {
                Ok(Tried::Granted(lock)) => Ok(json!({"granted": self.grant(lock)})),
                Ok(Tried::Refused(seen)) => Ok(json!({"held": held(&seen)})),
                Err(error) => Err(error),
            },
            Ask::Reclaim { saved, lease } => {
                let reclaim = locks.reclaim(read_saved(saved)?).lease(Duration::from_millis(lease));
                reclaim.await.map(|lock| self.grant(lock))
            }
            Ask::Resume { saved } => locks.resume(read_saved(saved)?).await.map(|lock| self.grant(lock)),
            Ask::ReleaseSaved { saved, or_later_grant_of_owner } => {
                let release = locks.release(read_saved(saved)?);
                let release = if or_later_grant_of_owner { release.or_later_grant_of_owner() } else { release };
                release.await.map(outcome)
            }
            Ask::ReleaseWorkflow { key, workflow } => locks.release_workflow(key, workflow).await.map(outcome),
            Ask::Peek { key } => locks.operator().peek(key).await.map(|row| row.map_or(Value::Null, peeked)),
            Ask::Pairs { key, count } => pairs(&locks, &key, count).await,
            Ask::Release { lock } => {
                self.granted.remove(&lock).context("there is no lock with this number")?.release().await.map(outcome)
            }
            Ask::AcquireAll { keys, in_order, several } => {
                let request = several!(locks.acquire_all(keys), several);
                match in_order {
                    true => request.in_order().await,
                    false => request.await,
                }
                .map(|set| self.grant_all(set))
            }
            Ask::ResumeAll { saved, lease } => {
                let resume = locks.resume_all(SavedLockSet::from_locks(read_all_saved(saved)?));
                let resume = lease.iter().fold(resume, |resume, lease| resume.lease(Duration::from_millis(*lease)));
                resume.await.map(|set| self.grant_all(set))
            }
            Ask::ReleaseAll { set } => {
                let set = self.sets.remove(&set).context("there is no set with this number")?;
                set.release().await.map(gone)
            }
            Ask::ReleaseAllSaved { saved } => {
                locks.release_all(SavedLockSet::from_locks(read_all_saved(saved)?)).await.map(gone)
            }
            Ask::SavedAll { set, keep: false } => {
                let set = self.sets.remove(&set).context("there is no set with this number")?;
                Ok(json!(set.save().locks().iter().map(written).collect::<Vec<_>>()))
            }
            Ask::AcquirePermit { name, permits, several } => {
                let semaphore = locks.semaphore(name, permits);
                let lock = several!(semaphore.acquire(), several).await;
                lock.map(|lock| json!({"place": lock.place(), "lock": self.grant(lock)}))
            }
            of_a_set @ (Ask::RenewAll { .. }
            | Ask::RemainingOfAll { .. }
            | Ask::EnsureRemainingOfAll { .. }
            | Ask::ConditionChecks { .. }
            | Ask::SavedAll { .. }) => return self.of_a_set(of_a_set).await,
            of_a_lock => return self.of_a_lock(of_a_lock).await,
        };
        Ok(told.map_err(failure))
    }

    async fn of_a_set(&mut self, ask: Ask) -> Told {
        let (Ask::RenewAll { set }
        | Ask::RemainingOfAll { set }
        | Ask::EnsureRemainingOfAll { set, .. }
        | Ask::ConditionChecks { set }
        | Ask::SavedAll { set, .. }) = &ask
        else {
            anyhow::bail!("{ask:?} does not use a set")
        };
        let set = self.sets.get_mut(set).context("there is no set with this number")?;
        let told = match ask {
            Ask::RenewAll { .. } => set.checkpoint().await.map(|()| Value::Null),
            Ask::EnsureRemainingOfAll { step, .. } => {
                set.ensure_remaining(Duration::from_millis(step)).map(|()| Value::Null)
            }
            Ask::ConditionChecks { .. } => match set.condition_checks() {
                Ok(checks) => {
                    let checks: anyhow::Result<Vec<_>> = checks.into_iter().map(dynamodb_json::written).collect();
                    Ok(json!(checks?))
                }
                Err(error) => Err(error),
            },
            Ask::SavedAll { .. } => Ok(json!(set.to_saved().locks().iter().map(written).collect::<Vec<_>>())),
            _ => Ok(json!(millis(set.remaining()))),
        };
        Ok(told.map_err(failure))
    }

    fn grant_all(&mut self, set: LockSet) -> Value {
        self.last += 1;
        let keys: Vec<_> = set.keys().map(|key| key.key().to_owned()).collect();
        let grant = json!({
            "set": self.last,
            "keys": keys,
            "fencingToken": set.fencing_token(),
            "remaining": millis(set.remaining()),
        });
        self.sets.insert(self.last, set);
        grant
    }

    async fn of_a_lock(&mut self, ask: Ask) -> Told {
        let (Ask::Renew { lock, .. }
        | Ask::Remaining { lock }
        | Ask::EnsureRemaining { lock, .. }
        | Ask::ToSaved { lock }
        | Ask::ConditionCheck { lock }) = &ask
        else {
            anyhow::bail!("{ask:?} does not use a lock")
        };
        let lock = self.granted.get_mut(lock).context("there is no lock with this number")?;
        let told = match ask {
            Ask::Renew { lease, data, .. } => {
                let mut renew = lock.renew();
                if let Some(lease) = lease {
                    renew = renew.lease(Duration::from_millis(lease));
                }
                if let Some(data) = data {
                    renew = renew.data(data);
                }
                renew.await.map(|()| Value::Null)
            }
            Ask::EnsureRemaining { step, .. } => {
                lock.ensure_remaining(Duration::from_millis(step)).map(|()| Value::Null)
            }
            Ask::ToSaved { .. } => Ok(written(&lock.to_saved())),
            Ask::ConditionCheck { .. } => match lock.condition_check() {
                Ok(check) => Ok(dynamodb_json::written(check)?),
                Err(error) => Err(error),
            },
            _ => Ok(json!(millis(lock.remaining()))),
        };
        Ok(told.map_err(failure))
    }

    fn grant(&mut self, lock: Lock) -> Value {
        self.last += 1;
        let grant = json!({
            "lock": self.last,
            "owner": lock.owner(),
            "fencingToken": lock.fencing_token(),
            "leaseEndsAt": lock.lease_ends_at().map(epoch_millis),
            "remaining": millis(lock.remaining()),
            "data": lock.data(),
        });
        self.granted.insert(self.last, lock);
        grant
    }
}

impl Opened {
    /// Forgets what was granted. Otherwise each lock would warn that it was not released.
    fn forget(&mut self) {
        for (_, lock) in std::mem::take(&mut self.granted) {
            let _ = lock.save();
        }
        for (_, set) in std::mem::take(&mut self.sets) {
            let _ = set.save();
        }
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        self.forget();
    }
}

fn client(table: String, endpoint: &str, caller: &str, owner: String, timeout: u64) -> Result<LockClient, Failure> {
    let credentials = Credentials::new(caller, "secret", None, None, "conformance");
    let config = lambda_lock_local::config(endpoint).region(Region::new("local")).credentials_provider(credentials);
    let dynamodb = aws_sdk_dynamodb::Client::from_conf(config.build());
    let builder = LockClient::builder(dynamodb, table).owner(owner);
    builder.request_timeout(Duration::from_millis(timeout)).build().map_err(failure)
}

fn acquiring(request: lambda_lock::Acquire<'_>, acquire: Acquire) -> anyhow::Result<lambda_lock::Acquire<'_>> {
    let Acquire { key: _, remaining, lease, owner, workflow, data, observation, reclaim_own, queueing } = acquire;
    let mut request = request;
    if let Some(remaining) = remaining {
        request = request.within(&Budget::lasting(Duration::from_millis(remaining)).reserve(Duration::ZERO));
    }
    if let Some(lease) = lease {
        request = request.lease(Duration::from_millis(lease));
    }
    if let Some(owner) = owner {
        request = request.owner(owner);
    }
    if let Some(workflow) = workflow {
        request = request.workflow(workflow);
    }
    if let Some(data) = data {
        request = request.data(data);
    }
    if let Some(observation) = observation {
        request = request.observation(read_observation(&observation)?);
    }
    if queueing == Some(Queueing::OutOfTurn) {
        request = request.out_of_turn();
    }
    Ok(if reclaim_own { request.reclaim_own() } else { request })
}

async fn pairs(locks: &LockClient, key: &str, count: u32) -> Result<Value, Error> {
    let started = Instant::now();
    for _ in 0..count {
        let tried = locks.acquire(key).lease(Duration::from_secs(60)).try_once().await?;
        let Some(lock) = tried.granted() else { continue };
        lock.release().await?;
    }
    Ok(json!(started.elapsed().as_nanos() as f64 / f64::from(count.max(1))))
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

fn epoch_millis(time: SystemTime) -> u64 {
    millis(time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default())
}

fn outcome(outcome: ReleaseOutcome) -> Value {
    match outcome {
        ReleaseOutcome::Released => json!("released"),
        ReleaseOutcome::AlreadyGone => json!("already-gone"),
    }
}

fn gone(outcome: ReleaseAllOutcome) -> Value {
    match outcome {
        ReleaseAllOutcome::Released => json!([]),
        ReleaseAllOutcome::AlreadyGone(keys) => json!(keys.iter().map(LockKey::key).collect::<Vec<_>>()),
    }
}

fn held(held: &Refusal) -> Value {
    json!({
        "holder": held.holder,
        "leaseEndsAt": held.lease_ends_at.map(epoch_millis),
        "retryAfter": millis(held.retry_after),
        "waiting": held.waiting,
        "freezeReason": held.freeze_reason,
        "observation": {
            "version": held.observation.version(),
            "lease": millis(held.observation.lease()),
            "unchangedFor": millis(held.observation.unchanged_for()),
        },
    })
}

fn read_observation(observation: &Value) -> anyhow::Result<Observation> {
    let number = |name: &str| observation[name].as_u64().map(Duration::from_millis).context("no observation");
    let version = observation["version"].as_str().context("no observation")?;
    Ok(Observation::from_parts(version.to_owned(), number("lease")?, number("unchangedFor")?))
}

/// The saved lock in the form of the WIT package.
fn written(saved: &SavedLock) -> Value {
    json!({
        "key": saved.key().key(),
        "owner": saved.owner(),
        "version": saved.version(),
        "fencingToken": saved.fencing_token(),
        "lease": millis(saved.lease()),
        "leaseEndsAt": saved.lease_ends_at().map(epoch_millis),
        "workflow": saved.workflow(),
    })
}

fn read_saved(saved: Value) -> anyhow::Result<SavedLock> {
    let text = |name: &str| saved[name].as_str().map(str::to_owned);
    let number = |name: &str| saved[name].as_u64().context("no saved lock");
    Ok(SavedLock::from_parts(
        text("key").context("no saved lock")?.into(),
        text("owner").context("no saved lock")?,
        text("version").context("no saved lock")?,
        number("fencingToken")?,
        Duration::from_millis(number("lease")?),
        number("leaseEndsAt")?,
        text("workflow"),
    ))
}

fn read_all_saved(saved: Vec<Value>) -> anyhow::Result<Vec<SavedLock>> {
    saved.into_iter().map(read_saved).collect()
}

fn peeked(row: PeekedLock) -> Value {
    json!({
        "holder": row.holder,
        "released": row.released,
        "lease": millis(row.lease),
        "renewedAt": row.renewed_at.map(epoch_millis),
        "leaseEndsAt": row.lease_ends_at.map(epoch_millis),
        "fencingToken": row.fencing_token,
        "workflow": row.workflow,
        "data": row.data,
        "freezeReason": row.freeze_reason,
        "version": row.version,
    })
}

fn failure(error: Error) -> Failure {
    let kind = match error.kind() {
        ErrorKind::Held => "held",
        ErrorKind::Lost => "lost",
        ErrorKind::Unknown => "unknown",
        ErrorKind::Unavailable => "unavailable",
        ErrorKind::OutOfTime => "out-of-time",
        ErrorKind::InvalidRequest => "invalid-request",
        ErrorKind::InvalidRecord => "invalid-record",
        ErrorKind::Table => "table",
        ErrorKind::Denied => "denied",
        _ => "of no case in the WIT package",
    };
    let blocked = |one: &Refusal| Blocked { key: one.key.key().to_owned(), held: held(one) };
    Failure {
        kind: kind.to_owned(),
        message: error.to_string(),
        held: error.refusal().map(held),
        blocked: error.refusals().iter().map(blocked).collect(),
    }
}
