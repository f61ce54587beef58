//! A client of the crate, on the SDK, which sends through the host's `wasi:http`.

use crate::bindings::exports::lambda_lock::lock::locks::{
    self, AcquireOptions, Acquired, Budget, Credentials, GuestClient, ReleaseOptions, ResumeOptions, Settings,
    SeveralError, SeveralOptions,
};
use crate::bindings::exports::lambda_lock::lock::types;
use crate::convert::{epoch_millis, millis};
use crate::error::invalid;
use crate::lock::Lock;
use crate::options::{acquiring, budget, data_change, one_of_several, outcome, reclaiming, releasing, several};
use crate::run::run;
use crate::set::{LockSet, gone};
use aws_sdk_dynamodb::config::{BehaviorVersion, Config, Region};
use aws_smithy_wasm::wasi::{WasiHttpClientBuilder, WasiSleep};
use lambda_lock::{Dialect, LockClient, LockClientBuilder, SavedLockSet, Tried, operator::PeekedLock};
use std::time::Duration;

type Result<T> = std::result::Result<T, types::Error>;

/// Locks in one table.
pub(crate) struct Client {
    locks: LockClient,
}

impl GuestClient for Client {
    fn open(settings: Settings) -> Result<locks::Client> {
        let Settings { table, region, endpoint, credentials, owner, request_timeout, schema, clocks } = settings;
        let dynamodb = aws_sdk_dynamodb::Client::from_conf(config(region, endpoint, credentials));
        let mut builder = LockClient::builder(dynamodb, table);
        if let Some(owner) = owner {
            builder = builder.owner(owner);
        }
        if let Some(timeout) = request_timeout {
            builder = builder.request_timeout(Duration::from_millis(timeout));
        }
        if let Some(schema) = schema {
            builder = with_schema(builder, schema);
        }
        if let Some(clocks) = clocks {
            builder = builder.clock_drift(clocks.clock_drift);
            builder = match clocks.max_clock_skew {
                Some(skew) => builder.max_clock_skew(Duration::from_millis(skew)),
                None => builder.without_wall_clock_takeover(),
            };
        }
        Ok(locks::Client::new(Client { locks: builder.build()? }))
    }

    fn acquire(&self, key: types::LockKey, options: AcquireOptions) -> Result<locks::Lock> {
        let in_turn = options.queueing == Some(types::Queueing::InTurn);
        let mut request = acquiring(self.locks.acquire(key), options);
        if in_turn {
            request = request.in_turn();
        }
        Ok(self.held(run(request.into_future())?))
    }

    fn try_acquire(&self, key: types::LockKey, options: AcquireOptions) -> Result<Acquired> {
        match run(Box::pin(acquiring(self.locks.acquire(key), options).try_once()))? {
            Tried::Granted(lock) => Ok(Acquired::Granted(self.held(lock))),
            Tried::Refused(refusal) => Ok(Acquired::Held(refusal.into())),
        }
    }

    fn resume(&self, saved: types::SavedLock, options: ResumeOptions) -> Result<locks::Lock> {
        let ResumeOptions { budget: time, lease, data } = options;
        let mut resume = self.locks.resume(saved.into());
        if let Some(time) = time {
            resume = resume.within(&budget(time));
        }
        if let Some(lease) = lease {
            resume = resume.lease(Duration::from_millis(lease));
        }
        Ok(self.held(run(resume.data(data_change(data)).into_future())?))
    }

    fn reclaim(&self, saved: types::SavedLock, options: AcquireOptions) -> Result<locks::Lock> {
        Ok(self.held(run(reclaiming(self.locks.reclaim(saved.into()), options).into_future())?))
    }

    fn release(&self, saved: types::SavedLock, options: ReleaseOptions) -> Result<types::ReleaseOutcome> {
        Ok(outcome(run(releasing(self.locks.release(saved.into()), options).into_future())?))
    }

    fn release_workflow(&self, key: types::LockKey, workflow: String) -> Result<types::ReleaseOutcome> {
        Ok(outcome(run(self.locks.release_workflow(key, workflow).into_future())?))
    }

    fn peek(&self, key: types::LockKey) -> Result<Option<types::PeekedLock>> {
        Ok(run(Box::pin(self.locks.operator().peek(key)))?.map(Into::into))
    }

    fn acquire_all(
        &self,
        keys: Vec<types::LockKey>,
        in_order: bool,
        options: SeveralOptions,
    ) -> std::result::Result<locks::LockSet, SeveralError> {
        let request = several(self.locks.acquire_all(keys), options);
        let acquire = if in_order { request.in_order().into_future() } else { request.into_future() };
        Ok(self.set(run(acquire)?))
    }

    fn resume_all(
        &self,
        saved: Vec<types::SavedLock>,
        time: Option<Budget>,
        lease: Option<u64>,
    ) -> Result<locks::LockSet> {
        let mut resume = self.locks.resume_all(saved_locks(saved));
        if let Some(time) = time {
            resume = resume.within(&budget(time));
        }
        if let Some(lease) = lease {
            resume = resume.lease(Duration::from_millis(lease));
        }
        Ok(self.set(run(resume.into_future())?))
    }

    fn release_all(&self, saved: Vec<types::SavedLock>) -> Result<Vec<types::LockKey>> {
        gone(self.locks.release_all(saved_locks(saved)))
    }

    fn acquire_permit(
        &self,
        name: types::LockKey,
        permits: u32,
        options: SeveralOptions,
    ) -> std::result::Result<locks::Permit, SeveralError> {
        let semaphore = self.locks.semaphore(name, permits);
        Ok(self.permit(run(one_of_several(semaphore.acquire(), options).into_future())?))
    }
}

impl Client {
    fn held(&self, lock: lambda_lock::Lock) -> locks::Lock {
        locks::Lock::new(Lock::held(self.locks.clone(), lock))
    }

    fn set(&self, locks: lambda_lock::LockSet) -> locks::LockSet {
        locks::LockSet::new(LockSet::new(self.locks.clone(), locks))
    }

    fn permit(&self, lock: lambda_lock::Lock) -> locks::Permit {
        // There are 1000 places at most.
        locks::Permit { place: lock.place().unwrap_or_default() as u32, lock: self.held(lock) }
    }
}

fn saved_locks(saved: Vec<types::SavedLock>) -> SavedLockSet {
    SavedLockSet::from_locks(saved.into_iter().map(Into::into).collect())
}

fn config(region: String, endpoint: Option<String>, credentials: Credentials) -> Config {
    let Credentials { access_key_id, secret_access_key, session_token } = credentials;
    let credentials =
        aws_sdk_dynamodb::config::Credentials::new(access_key_id, secret_access_key, session_token, None, "host");
    let mut config = Config::builder()
        .behavior_version(BehaviorVersion::v2026_01_12())
        .region(Region::new(region))
        .credentials_provider(credentials)
        .http_client(WasiHttpClientBuilder::new().build())
        .sleep_impl(WasiSleep);
    config.set_endpoint_url(endpoint);
    config.build()
}

fn with_schema(builder: LockClientBuilder, schema: types::Schema) -> LockClientBuilder {
    let types::Schema { key_attribute, sort_key_attribute, ttl, dialect } = schema;
    let mut builder = builder.key_attribute(key_attribute).dialect(match dialect {
        types::Dialect::Java => Dialect::Java,
        types::Dialect::Go => Dialect::Go,
    });
    if let Some(name) = sort_key_attribute {
        builder = builder.sort_key_attribute(name);
    }
    if let Some(types::Ttl { attribute, retention }) = ttl {
        builder = builder.ttl_attribute(attribute).ttl_retention(Duration::from_millis(retention));
    }
    builder
}

impl From<PeekedLock> for types::PeekedLock {
    fn from(peeked: PeekedLock) -> Self {
        Self {
            holder: peeked.holder,
            released: peeked.released,
            lease: millis(peeked.lease),
            renewed_at: peeked.renewed_at.map(epoch_millis),
            lease_ends_at: peeked.lease_ends_at.map(epoch_millis),
            fencing_token: peeked.fencing_token,
            workflow: peeked.workflow,
            data: peeked.data,
            freeze_reason: peeked.freeze_reason,
            version: peeked.version,
        }
    }
}
