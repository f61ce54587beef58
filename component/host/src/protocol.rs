//! The component `protocol` on the AWS SDK, as a host for the conformance scenarios.

use crate::bindings::decisions::{Reclaim, ReleaseOptions, RenewOptions, Settings, Wanted};
use crate::bindings::types::{DataChange, Error, ErrorKind};
use crate::convert::{condition_check, data_change, held, lock_key, outcome, row};
use crate::driver::{Acquired, Decisions, Lock, Locks};
use crate::lines::{Acquire, Answer, Ask, Grant, Open, SavedLock};
use anyhow::{Context, bail};
use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::config::retry::RetryConfig;
use aws_sdk_dynamodb::config::{BehaviorVersion, Config, Credentials, Region};
use aws_smithy_http_client::Builder;
use aws_smithy_http_client::tls::Provider;
use aws_smithy_http_client::tls::rustls_provider::CryptoMode;
use serde_json::{Value, json};
use std::time::Instant;
use tokio::runtime::Runtime;
use wasmtime::component::ResourceAny;

/// The grace of the scenarios' budgets: the default of the world `client`.
const GRACE: u64 = 1_000;

/// The component, and a table with the locks that were granted.
pub struct Host {
    runtime: Runtime,
    decisions: Decisions,
    opened: Option<Opened>,
}

struct Opened {
    locks: Locks,
    owner: String,
    granted: Vec<ResourceAny>,
}

impl Host {
    pub fn new(path: &str) -> anyhow::Result<Self> {
        Ok(Self { runtime: Runtime::new()?, decisions: Decisions::load(path)?, opened: None })
    }
}

impl Answer for Host {
    fn answer(&mut self, ask: Ask) -> anyhow::Result<Value> {
        if let Ask::Open(open) = ask {
            let (settings, owner) = (settings(&open), open.owner.clone());
            let locks = Locks::open(&self.decisions, dynamodb(open), &settings)?;
            self.opened = Some(Opened { locks, owner, granted: Vec::new() });
            return Ok(Value::Null);
        }
        let opened = self.opened.as_mut().context("the first call must be open")?;
        self.runtime.block_on(opened.answer(ask))
    }
}

impl Opened {
    async fn answer(&mut self, ask: Ask) -> anyhow::Result<Value> {
        match ask {
            Ask::Acquire(acquire) => {
                let wait = acquire.remaining.unwrap_or_default();
                let wanted = Wanted { wait, ..self.wanted(acquire)? };
                self.acquire(wanted).await
            }
            Ask::TryAcquire(acquire) => {
                let wanted = self.wanted(acquire)?;
                match self.locks.acquire(&wanted).await? {
                    Acquired::Granted(lock) => Ok(json!({"granted": self.grant(lock)?})),
                    Acquired::Held(seen) => Ok(json!({"held": held(seen)})),
                }
            }
            Ask::Reclaim { saved, lease } => {
                let acquire = Acquire { lease: Some(lease), ..Acquire::default() };
                let wanted = Wanted { reclaim: Reclaim::Only(saved.into()), ..self.wanted(acquire)? };
                self.acquire(wanted).await
            }
            Ask::Resume { saved } => {
                let lock = self.locks.read(&saved.into())?;
                self.locks.renew(lock, &renewing(None, DataChange::Keep)).await?;
                self.grant(Lock { handle: lock, data: None })
            }
            Ask::ReleaseSaved { saved, or_later_grant_of_owner } => {
                let lock = self.locks.read(&saved.into())?;
                let options = ReleaseOptions { or_later_grant_of_owner, ..releasing() };
                Ok(outcome(self.locks.release(lock, &options).await?))
            }
            Ask::ReleaseWorkflow { key, workflow } => {
                Ok(outcome(self.locks.release_workflow(&lock_key(key), &workflow).await?))
            }
            Ask::Peek { key } => Ok(json!(self.locks.peek(&lock_key(key)).await?.map(row))),
            Ask::Pairs { key, count } => self.pairs(key, count).await,
            of_a_lock => self.of_a_lock(of_a_lock).await,
        }
    }

    async fn of_a_lock(&mut self, ask: Ask) -> anyhow::Result<Value> {
        let (locks, granted) = (&mut self.locks, &self.granted);
        let lock = |number: usize| granted.get(number).copied().context("there is no lock with this number");
        Ok(match ask {
            Ask::Renew { lock: number, lease, data } => {
                json!(locks.renew(lock(number)?, &renewing(lease, data_change(data))).await?)
            }
            Ask::Remaining { lock: number } => json!(locks.remaining(lock(number)?)?),
            Ask::ToSaved { lock: number } => json!(SavedLock::from(locks.save(lock(number)?)?)),
            Ask::ConditionCheck { lock: number } => condition_check(locks.condition_check(lock(number)?)?),
            Ask::Release { lock: number } => {
                let options = releasing();
                outcome(locks.release(lock(number)?, &options).await?)
            }
            _ => bail!("the world protocol does not have this call, or the call does not use a lock"),
        })
    }

    /// Waits for a lock. If somebody else holds it, this is an error, as in the world `client`.
    async fn acquire(&mut self, wanted: Wanted) -> anyhow::Result<Value> {
        match self.locks.acquire(&wanted).await? {
            Acquired::Granted(lock) => self.grant(lock),
            Acquired::Held(seen) => {
                let message = format!("the lock is held by {:?}", seen.holder);
                bail!(Error { kind: ErrorKind::Held(seen), message, cause: None })
            }
        }
    }

    async fn pairs(&mut self, key: String, count: u32) -> anyhow::Result<Value> {
        let wanted = self.wanted(Acquire { key, lease: Some(60_000), ..Acquire::default() })?;
        let started = Instant::now();
        for _ in 0..count {
            let lock = match self.locks.acquire(&wanted).await? {
                Acquired::Granted(lock) => lock.handle,
                Acquired::Held(seen) => bail!("held by {}", seen.holder),
            };
            self.locks.release(lock, &releasing()).await?;
            self.locks.drop(lock)?;
        }
        Ok(json!(started.elapsed().as_nanos() as f64 / f64::from(count.max(1))))
    }

    fn wanted(&mut self, acquire: Acquire) -> anyhow::Result<Wanted> {
        let Acquire { key, remaining, lease, owner, workflow, data, observation, reclaim_own, queueing } = acquire;
        let lease = match lease {
            Some(lease) => lease,
            None => self.locks.lease_covering(remaining.unwrap_or_default(), GRACE)?,
        };
        Ok(Wanted {
            key: lock_key(key),
            owner: owner.unwrap_or_else(|| self.owner.clone()),
            lease,
            wait: 0,
            workflow,
            data: data_change(data),
            observation: observation.map(Into::into),
            reclaim: if reclaim_own { Reclaim::SameOwner } else { Reclaim::Nobody },
            queueing: queueing.map(Into::into),
        })
    }

    fn grant(&mut self, Lock { handle, data }: Lock) -> anyhow::Result<Value> {
        self.granted.push(handle);
        Ok(json!(Grant {
            lock: self.granted.len() - 1,
            owner: self.locks.owner(handle)?,
            fencing_token: self.locks.fencing_token(handle)?,
            lease_ends_at: self.locks.lease_ends_at(handle)?,
            remaining: self.locks.remaining(handle)?,
            data,
        }))
    }
}

fn settings(open: &Open) -> Settings {
    let request_timeout = Some(open.request_timeout);
    Settings { table: open.table.clone(), request_timeout, schema: None, clocks: None }
}

/// The SDK's client, with TLS by rustls and ring. It makes one attempt per request, because the decisions repeat
/// requests themselves.
fn dynamodb(open: Open) -> Client {
    let config = Config::builder()
        .behavior_version(BehaviorVersion::latest())
        .region(Region::new("local"))
        .credentials_provider(Credentials::new(open.access_key_id, "secret", None, None, "host"))
        .endpoint_url(open.endpoint)
        .retry_config(RetryConfig::disabled())
        .http_client(Builder::new().tls_provider(Provider::Rustls(CryptoMode::Ring)).build_https());
    Client::from_conf(config.build())
}

fn renewing(lease: Option<u64>, data: DataChange) -> RenewOptions {
    RenewOptions { lease, latest_end: None, data }
}

fn releasing() -> ReleaseOptions {
    ReleaseOptions { data: DataChange::Keep, or_later_grant_of_owner: false }
}
