//! A host of the component `client`, which sends its requests to DynamoDB itself.

use crate::bindings::locks::{
    AcquireOptions, Acquired, Budget, Credentials, Guest, GuestIndices, Permit, ReleaseOptions, RenewOptions,
    ResumeOptions, Settings, SeveralOptions,
};
use crate::bindings::types::{DataChange, LockKey};
use crate::convert::{condition_check, data_change, held, lock_key, outcome, row};
use crate::lines::{Acquire, Answer, Ask, Grant, GrantedSet, Open, SavedLock, Several};
use crate::sandbox::{Sandbox, load};
use anyhow::{Context, bail};
use serde_json::{Value, json};
use std::time::Instant;
use wasmtime::Store;
use wasmtime::component::ResourceAny;

/// An instance of the component, with the locks that it was granted.
pub struct Host {
    locks: Guest,
    store: Store<Sandbox>,
    client: Option<ResourceAny>,
    granted: Vec<ResourceAny>,
    sets: Vec<ResourceAny>,
}

impl Host {
    pub fn new(path: &str) -> anyhow::Result<Self> {
        let (component, mut store) = load(path)?;
        let indices = GuestIndices::new(&component)?;
        let instance = component.instantiate(&mut store)?;
        let locks = indices.load(&mut store, &instance)?;
        Ok(Self { locks, store, client: None, granted: Vec::new(), sets: Vec::new() })
    }
}

impl Answer for Host {
    fn answer(&mut self, ask: Ask) -> anyhow::Result<Value> {
        let ask = match ask {
            Ask::Open(open) => return self.open(open),
            ask => ask,
        };
        let client = self.client.context("the first call must be open")?;
        let (api, store) = (self.locks.client(), &mut self.store);
        match ask {
            Ask::Acquire(acquire) => {
                let (key, options) = acquiring(acquire);
                let lock = api.call_acquire(store, client, &key, &options)??;
                self.grant(lock)
            }
            Ask::TryAcquire(acquire) => {
                let (key, options) = acquiring(acquire);
                match api.call_try_acquire(store, client, &key, &options)?? {
                    Acquired::Granted(lock) => Ok(json!({"granted": self.grant(lock)?})),
                    Acquired::Held(seen) => Ok(json!({"held": held(seen)})),
                }
            }
            Ask::Reclaim { saved, lease } => {
                let (_, options) = acquiring(Acquire { lease: Some(lease), ..Acquire::default() });
                let lock = api.call_reclaim(store, client, &saved.into(), &options)??;
                self.grant(lock)
            }
            Ask::Resume { saved } => {
                let options = ResumeOptions { budget: None, lease: None, data: DataChange::Keep };
                let lock = api.call_resume(store, client, &saved.into(), &options)??;
                self.grant(lock)
            }
            Ask::ReleaseSaved { saved, or_later_grant_of_owner } => {
                let options = ReleaseOptions { or_later_grant_of_owner, ..releasing() };
                Ok(outcome(api.call_release(store, client, &saved.into(), &options)??))
            }
            Ask::ReleaseWorkflow { key, workflow } => {
                Ok(outcome(api.call_release_workflow(store, client, &lock_key(key), &workflow)??))
            }
            Ask::Peek { key } => Ok(json!(api.call_peek(store, client, &lock_key(key))??.map(row))),
            Ask::AcquireAll { keys, in_order, several } => {
                let keys: Vec<_> = keys.into_iter().map(lock_key).collect();
                let set = api.call_acquire_all(store, client, &keys, in_order, &acquiring_several(several))??;
                self.grant_all(set)
            }
            Ask::ResumeAll { saved, lease } => {
                let saved: Vec<_> = saved.into_iter().map(Into::into).collect();
                let set = api.call_resume_all(store, client, &saved, None, lease)??;
                self.grant_all(set)
            }
            Ask::ReleaseAllSaved { saved } => {
                let saved: Vec<_> = saved.into_iter().map(Into::into).collect();
                Ok(keys(api.call_release_all(store, client, &saved)??))
            }
            Ask::AcquirePermit { name, permits, several } => {
                let Permit { place, lock } =
                    api.call_acquire_permit(store, client, &lock_key(name), permits, &acquiring_several(several))??;
                Ok(json!({"place": place, "lock": self.grant(lock)?}))
            }
            Ask::Pairs { key, count } => self.pairs(client, key, count),
            of_a_set @ (Ask::RenewAll { set }
            | Ask::RemainingOfAll { set }
            | Ask::EnsureRemainingOfAll { set, .. }
            | Ask::ConditionChecks { set }
            | Ask::SavedAll { set, .. }
            | Ask::ReleaseAll { set }) => self.of_a_set(of_a_set, set),
            of_a_lock => self.of_a_lock(of_a_lock),
        }
    }
}

impl Host {
    fn open(&mut self, open: Open) -> anyhow::Result<Value> {
        for earlier in self.granted.drain(..).chain(self.sets.drain(..)).chain(self.client.take()) {
            earlier.resource_drop(&mut self.store)?;
        }
        let (access_key_id, secret_access_key) = (open.access_key_id, "secret".to_owned());
        let settings = Settings {
            table: open.table,
            region: "local".to_owned(),
            endpoint: Some(open.endpoint),
            credentials: Credentials { access_key_id, secret_access_key, session_token: None },
            owner: Some(open.owner),
            request_timeout: Some(open.request_timeout),
            schema: None,
            clocks: None,
        };
        self.client = Some(self.locks.client().call_open(&mut self.store, &settings)??);
        Ok(Value::Null)
    }

    fn of_a_lock(&mut self, ask: Ask) -> anyhow::Result<Value> {
        let lock = |number: usize| self.granted.get(number).copied().context("there is no lock with this number");
        let (api, store) = (self.locks.lock(), &mut self.store);
        Ok(match ask {
            Ask::Renew { lock: number, lease, data } => {
                let options = RenewOptions { lease, data: data_change(data) };
                json!(api.call_renew(store, lock(number)?, &options)??)
            }
            Ask::Remaining { lock: number } => json!(api.call_remaining(store, lock(number)?)?),
            Ask::EnsureRemaining { lock: number, step } => {
                json!(api.call_ensure_remaining(store, lock(number)?, step)??)
            }
            Ask::ToSaved { lock: number } => json!(SavedLock::from(api.call_to_saved(store, lock(number)?)?)),
            Ask::ConditionCheck { lock: number } => condition_check(api.call_condition_check(store, lock(number)?)??),
            Ask::Release { lock: number } => {
                let options = releasing();
                outcome(api.call_release(store, lock(number)?, &options)??)
            }
            _ => bail!("this call does not use a lock"),
        })
    }

    fn of_a_set(&mut self, ask: Ask, number: usize) -> anyhow::Result<Value> {
        let set = self.sets.get(number).copied().context("there is no set with this number")?;
        let (api, store) = (self.locks.lock_set(), &mut self.store);
        Ok(match ask {
            Ask::RenewAll { .. } => json!(api.call_renew(store, set)??),
            Ask::EnsureRemainingOfAll { step, .. } => json!(api.call_ensure_remaining(store, set, step)??),
            Ask::ConditionChecks { .. } => {
                api.call_condition_checks(store, set)??.into_iter().map(condition_check).collect()
            }
            Ask::SavedAll { keep, .. } => {
                let saved = if keep { api.call_to_saved(store, set)? } else { api.call_save(store, set)? };
                json!(saved.into_iter().map(SavedLock::from).collect::<Vec<_>>())
            }
            Ask::ReleaseAll { .. } => keys(api.call_release(store, set)??),
            _ => json!(api.call_remaining(store, set)?),
        })
    }

    fn pairs(&mut self, client: ResourceAny, key: String, count: u32) -> anyhow::Result<Value> {
        let (key, options) = acquiring(Acquire { key, lease: Some(60_000), ..Acquire::default() });
        let started = Instant::now();
        for _ in 0..count {
            let lock = match self.locks.client().call_try_acquire(&mut self.store, client, &key, &options)?? {
                Acquired::Granted(lock) => lock,
                Acquired::Held(seen) => bail!("held by {}", seen.holder),
            };
            self.locks.lock().call_release(&mut self.store, lock, &releasing())??;
            lock.resource_drop(&mut self.store)?;
        }
        Ok(json!(started.elapsed().as_nanos() as f64 / f64::from(count.max(1))))
    }

    fn grant(&mut self, lock: ResourceAny) -> anyhow::Result<Value> {
        self.granted.push(lock);
        let (api, store) = (self.locks.lock(), &mut self.store);
        Ok(json!(Grant {
            lock: self.granted.len() - 1,
            owner: api.call_owner(&mut *store, lock)?,
            fencing_token: api.call_fencing_token(&mut *store, lock)?,
            lease_ends_at: api.call_lease_ends_at(&mut *store, lock)?,
            remaining: api.call_remaining(&mut *store, lock)?,
            data: api.call_data(&mut *store, lock)?,
        }))
    }

    fn grant_all(&mut self, set: ResourceAny) -> anyhow::Result<Value> {
        self.sets.push(set);
        let (api, store) = (self.locks.lock_set(), &mut self.store);
        Ok(json!(GrantedSet {
            set: self.sets.len() - 1,
            keys: api.call_keys(&mut *store, set)?.into_iter().map(|key| key.key).collect(),
            fencing_token: api.call_fencing_token(&mut *store, set)?,
            remaining: api.call_remaining(&mut *store, set)?,
        }))
    }
}

fn acquiring_several(several: Several) -> SeveralOptions {
    let Several { remaining, reserve, lease, owner, workflow, seen, reclaim_own } = several;
    let budget = Budget { remaining, grace: None, reserve: Some(reserve) };
    let seen = seen.into_iter().map(Into::into).collect();
    SeveralOptions { budget, lease, owner, workflow, seen, reclaim_own }
}

fn keys(keys: Vec<LockKey>) -> Value {
    keys.into_iter().map(|key| key.key).collect()
}

fn acquiring(acquire: Acquire) -> (LockKey, AcquireOptions) {
    let Acquire { key, remaining, lease, owner, workflow, data, observation, reclaim_own, queueing } = acquire;
    let options = AcquireOptions {
        budget: remaining.map(|remaining| Budget { remaining, grace: None, reserve: Some(0) }),
        lease,
        owner,
        workflow,
        data: data_change(data),
        observation: observation.map(Into::into),
        reclaim_own,
        queueing: queueing.map(Into::into),
    };
    (lock_key(key), options)
}

fn releasing() -> ReleaseOptions {
    ReleaseOptions { data: DataChange::Keep, or_later_grant_of_owner: false }
}
