//! The component `client`: it talks to DynamoDB itself.

use crate::lines::{self, Acquire, Answer, Ask, Failure, Grant, Told};
use crate::sandbox::{Sandbox, load};
use anyhow::Context;
use bindings::Client;
use bindings::exports::lambda_lock::lock::locks::{
    AcquireOptions, Acquired, Budget, Credentials, ReleaseOptions, RenewOptions, ResumeOptions, Settings,
};
use bindings::exports::lambda_lock::lock::types::{
    AttributeValue, ConditionCheck, DataChange, Error, ErrorKind, Held, LockKey, LockToken, Observation, PeekedLock,
    ReleaseOutcome,
};
use serde_json::{Map, Value, json};
use std::rc::Rc;
use std::time::Instant;
use wasmtime::Store;
use wasmtime::component::ResourceAny;

mod bindings {
    wasmtime::component::bindgen!({ path: "../wit", world: "client" });
}

/// An instance of the component, with the locks that it was granted.
pub struct Host {
    component: Rc<Client>,
    store: Store<Sandbox>,
    client: Option<ResourceAny>,
    granted: Vec<ResourceAny>,
}

impl Host {
    pub fn new(path: &str) -> anyhow::Result<Self> {
        let (component, linker, mut store) = load(path)?;
        let component = Rc::new(Client::instantiate(&mut store, &component, &linker)?);
        Ok(Self { component, store, client: None, granted: Vec::new() })
    }
}

impl Answer for Host {
    fn answer(&mut self, ask: Ask) -> Told {
        if let Ask::Open { table, endpoint, access_key_id, owner, request_timeout } = ask {
            return self.open(table, endpoint, access_key_id, owner, request_timeout);
        }
        let (component, client) = (Rc::clone(&self.component), self.client.context("open comes first")?);
        let api = component.lambda_lock_lock_locks().client();
        match ask {
            Ask::Acquire(acquire) => {
                let (key, options) = acquiring(acquire);
                let lock = api.call_acquire(&mut self.store, client, &key, &options)?;
                self.granted(lock)
            }
            Ask::TryAcquire(acquire) => {
                let (key, options) = acquiring(acquire);
                match api.call_try_acquire(&mut self.store, client, &key, &options)? {
                    Ok(Acquired::Granted(lock)) => Ok(Ok(json!({"granted": self.grant(lock)?}))),
                    Ok(Acquired::Held(seen)) => Ok(Ok(json!({"held": held(seen)}))),
                    Err(error) => Ok(Err(failure(error))),
                }
            }
            Ask::Reclaim { token, lease } => {
                let (_, options) = acquiring(Acquire { lease: Some(lease), ..Acquire::default() });
                let token = token.into();
                let lock = api.call_reclaim(&mut self.store, client, &token, &options)?;
                self.granted(lock)
            }
            Ask::Resume { token } => {
                let options = ResumeOptions { budget: None, lease: None, data: DataChange::Keep };
                let token = token.into();
                let lock = api.call_resume(&mut self.store, client, &token, &options)?;
                self.granted(lock)
            }
            Ask::ReleaseToken { token, or_later_grant_of_owner } => {
                let options = ReleaseOptions { or_later_grant_of_owner, ..releasing() };
                let token = token.into();
                let told = api.call_release(&mut self.store, client, &token, &options)?;
                Ok(told.map(outcome).map_err(failure))
            }
            Ask::ReleaseWorkflow { key, workflow } => {
                let told = api.call_release_workflow(&mut self.store, client, &lock_key(key), &workflow)?;
                Ok(told.map(outcome).map_err(failure))
            }
            Ask::Peek { key } => {
                let told = api.call_peek(&mut self.store, client, &lock_key(key))?;
                Ok(told.map(|found| json!(found.map(row))).map_err(failure))
            }
            Ask::Pairs { key, count } => self.pairs(client, key, count),
            of_a_lock => self.of_a_lock(of_a_lock),
        }
    }
}

impl Host {
    fn open(&mut self, table: String, endpoint: String, caller: String, owner: String, timeout: u64) -> Told {
        for earlier in self.granted.drain(..).chain(self.client.take()) {
            earlier.resource_drop(&mut self.store)?;
        }
        let secret_access_key = "secret".to_owned();
        let settings = Settings {
            table,
            region: "local".to_owned(),
            endpoint: Some(endpoint),
            credentials: Credentials { access_key_id: caller, secret_access_key, session_token: None },
            owner: Some(owner),
            request_timeout: Some(timeout),
            schema: None,
            clocks: None,
        };
        let api = self.component.lambda_lock_lock_locks().client();
        match api.call_open(&mut self.store, &settings)? {
            Ok(client) => self.client = Some(client),
            Err(error) => return Ok(Err(failure(error))),
        }
        Ok(Ok(Value::Null))
    }

    fn of_a_lock(&mut self, ask: Ask) -> Told {
        let (Ask::Renew { lock, .. }
        | Ask::Remaining { lock }
        | Ask::Fits { lock, .. }
        | Ask::Token { lock }
        | Ask::ConditionCheck { lock }
        | Ask::Release { lock, .. }) = &ask
        else {
            anyhow::bail!("not about a lock")
        };
        let lock = *self.granted.get(*lock).context("no such lock")?;
        let (api, store) = (self.component.lambda_lock_lock_locks().lock(), &mut self.store);
        let told = match ask {
            Ask::Renew { lease, data, .. } => {
                let data = data.map_or(DataChange::Keep, DataChange::Set);
                api.call_renew(store, lock, &RenewOptions { lease, data })?.map(|()| Value::Null)
            }
            Ask::Remaining { .. } => Ok(json!(api.call_remaining(store, lock)?)),
            Ask::Fits { step, .. } => api.call_fits(store, lock, step)?.map(|()| Value::Null),
            Ask::Token { .. } => Ok(json!(lines::Token::from(api.call_token(store, lock)?))),
            Ask::ConditionCheck { .. } => api.call_condition_check(store, lock)?.map(condition_check),
            Ask::Release { delete_row, .. } => {
                api.call_release(store, lock, &ReleaseOptions { delete_row, ..releasing() })?.map(outcome)
            }
            _ => Ok(Value::Null),
        };
        Ok(told.map_err(failure))
    }

    fn pairs(&mut self, client: ResourceAny, key: String, count: u32) -> Told {
        let (key, options) = acquiring(Acquire { key, lease: Some(60_000), ..Acquire::default() });
        let locks = self.component.lambda_lock_lock_locks();
        let started = Instant::now();
        for _ in 0..count {
            let lock = match locks.client().call_try_acquire(&mut self.store, client, &key, &options)? {
                Ok(Acquired::Granted(lock)) => lock,
                Ok(Acquired::Held(seen)) => anyhow::bail!("held by {}", seen.holder),
                Err(error) => return Ok(Err(failure(error))),
            };
            if let Err(error) = locks.lock().call_release(&mut self.store, lock, &releasing())? {
                return Ok(Err(failure(error)));
            }
            lock.resource_drop(&mut self.store)?;
        }
        Ok(Ok(json!(started.elapsed().as_nanos() as f64 / f64::from(count.max(1)))))
    }

    fn granted(&mut self, lock: Result<ResourceAny, Error>) -> Told {
        match lock {
            Ok(lock) => Ok(Ok(json!(self.grant(lock)?))),
            Err(error) => Ok(Err(failure(error))),
        }
    }

    fn grant(&mut self, lock: ResourceAny) -> anyhow::Result<Grant> {
        self.granted.push(lock);
        let (api, store) = (self.component.lambda_lock_lock_locks().lock(), &mut self.store);
        Ok(Grant {
            lock: self.granted.len() - 1,
            owner: api.call_owner(&mut *store, lock)?,
            fencing_token: api.call_fencing_token(&mut *store, lock)?,
            lease_ends_at: api.call_lease_ends_at(&mut *store, lock)?,
            remaining: api.call_remaining(&mut *store, lock)?,
            data: api.call_data(&mut *store, lock)?,
        })
    }
}

fn acquiring(acquire: Acquire) -> (LockKey, AcquireOptions) {
    let Acquire { key, remaining, lease, owner, workflow, data, observation, reclaim_own } = acquire;
    let options = AcquireOptions {
        budget: remaining.map(|remaining| Budget { remaining, grace: None, reserve: Some(0) }),
        lease,
        owner,
        workflow,
        data: data.map_or(DataChange::Keep, DataChange::Set),
        observation: observation.map(Into::into),
        reclaim_own,
    };
    (lock_key(key), options)
}

fn releasing() -> ReleaseOptions {
    ReleaseOptions { data: DataChange::Keep, delete_row: false, or_later_grant_of_owner: false }
}

fn lock_key(key: String) -> LockKey {
    LockKey { key, sort_key: None }
}

fn outcome(outcome: ReleaseOutcome) -> Value {
    match outcome {
        ReleaseOutcome::Released => json!("released"),
        ReleaseOutcome::AlreadyGone => json!("already-gone"),
    }
}

fn held(seen: Held) -> lines::Held {
    let Held { holder, lease_ends_at, retry_after, observation } = seen;
    lines::Held { holder, lease_ends_at, retry_after, observation: observation.into() }
}

fn failure(error: Error) -> Failure {
    let (kind, seen) = match error.kind {
        ErrorKind::Held(seen) => ("held", Some(held(seen))),
        ErrorKind::Lost => ("lost", None),
        ErrorKind::Unknown => ("unknown", None),
        ErrorKind::Unavailable => ("unavailable", None),
        ErrorKind::OutOfTime(_) => ("out-of-time", None),
        ErrorKind::InvalidRequest => ("invalid-request", None),
        ErrorKind::InvalidRecord => ("invalid-record", None),
        ErrorKind::Table => ("table", None),
        ErrorKind::Denied => ("denied", None),
    };
    Failure { kind, message: error.message, held: seen }
}

/// Attribute values as DynamoDB's JSON has them; a lock's condition has no bytes.
fn condition_check(check: ConditionCheck) -> Value {
    let value = |value| match value {
        AttributeValue::S(text) => json!({"S": text}),
        AttributeValue::N(number) => json!({"N": number}),
        AttributeValue::B(_) | AttributeValue::Other(_) => Value::Null,
    };
    let key = check.key.into_iter().map(|attribute| (attribute.name, value(attribute.value)));
    let names = check.expression_attribute_names.into_iter().map(|each| (each.placeholder, json!(each.name)));
    let values = check.expression_attribute_values.into_iter().map(|each| (each.placeholder, value(each.value)));
    json!({
        "tableName": check.table_name,
        "key": key.collect::<Map<_, _>>(),
        "conditionExpression": check.condition_expression,
        "expressionAttributeNames": names.collect::<Map<_, _>>(),
        "expressionAttributeValues": values.collect::<Map<_, _>>(),
    })
}

fn row(row: PeekedLock) -> lines::Row {
    lines::Row {
        holder: row.holder,
        released: row.released,
        lease: row.lease,
        renewed_at: row.renewed_at,
        lease_ends_at: row.lease_ends_at,
        fencing_token: row.fencing_token,
        workflow: row.workflow,
        data: row.data,
        version: row.version,
    }
}

impl From<LockToken> for lines::Token {
    fn from(token: LockToken) -> Self {
        let LockToken { key, owner, version, fencing_token, lease, lease_ends_at, workflow } = token;
        Self { key: key.key, owner, version, fencing_token, lease, lease_ends_at, workflow }
    }
}

impl From<lines::Token> for LockToken {
    fn from(token: lines::Token) -> Self {
        let lines::Token { key, owner, version, fencing_token, lease, lease_ends_at, workflow } = token;
        Self { key: lock_key(key), owner, version, fencing_token, lease, lease_ends_at, workflow }
    }
}

impl From<Observation> for lines::Observation {
    fn from(observation: Observation) -> Self {
        let Observation { version, lease, unchanged_for } = observation;
        Self { version, lease, unchanged_for }
    }
}

impl From<lines::Observation> for Observation {
    fn from(observation: lines::Observation) -> Self {
        let lines::Observation { version, lease, unchanged_for } = observation;
        Self { version, lease, unchanged_for }
    }
}
