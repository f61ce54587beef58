//! A lock table: its settings, and the start of every operation.

use crate::bindings::exports::lambda_lock::lock::decisions::{
    self, Clocks, GuestTable, Reclaim as WantedReclaim, Settings, Wanted as WantedOptions,
};
use crate::bindings::exports::lambda_lock::lock::types;
use crate::call::{Call, Ended, Terms, instants};
use crate::convert::millis;
use crate::decision::Decision;
use crate::hold::Lock;
use crate::request::data_change;
use crate::shared::Shared;
use lambda_lock_protocol::{
    self as protocol, AcquireOptions, AttributesChange, ClockBounds, DataChange, Lease, Queueing, Reclaim,
    ReleaseOptions, SavedLock, Schema, Steps, Ttl,
};
use lambda_lock_protocol::{Dialect, LockKey};
use std::rc::Rc;
use std::time::Duration;

type Result<T> = std::result::Result<T, types::Error>;

const DEFAULT_REQUEST_TIMEOUT: Duration = Duration::from_secs(1);

/// A table that the host opened.
pub(crate) struct Table(Rc<Shared>);

impl GuestTable for Table {
    fn open(settings: Settings) -> Result<decisions::Table> {
        let Settings { table, request_timeout, schema, clocks } = settings;
        let schema = schema.map(Schema::from).unwrap_or_default();
        let clock_bounds = clocks.map(clock_bounds).transpose()?.unwrap_or_default();
        let request_timeout = request_timeout.map_or(DEFAULT_REQUEST_TIMEOUT, Duration::from_millis);
        if request_timeout.is_zero() {
            return Err(invalid("a request timeout of zero leaves no time to answer: give some hundred ms"));
        }
        let settings = protocol::Settings { schema, clock_bounds };
        settings.check()?;
        let settings = Rc::new(settings);
        Ok(decisions::Table::new(Table(Rc::new(Shared { table, settings, request_timeout }))))
    }

    fn lease_covering(&self, remaining: u64, grace: u64) -> u64 {
        let cover = Duration::from_millis(remaining.saturating_add(grace));
        protocol::millis_rounded_up(self.0.settings.clock_bounds.stretched(cover))
    }

    fn acquire(&self, wanted: WantedOptions) -> Result<decisions::Decision> {
        let lease = Duration::from_millis(wanted.lease);
        Lease::check(lease)?;
        let terms = Terms { wait: Duration::from_millis(wanted.wait), lease, latest_end: None };
        let options = self.options(wanted)?;
        let (key, settings) = (options.key.clone(), Rc::clone(&self.0.settings));
        let steps =
            Steps::new(
                |mut port| async move { Ended::Acquired(protocol::acquire(&mut port, &settings, options).await) },
            );
        let call = Call::new(Rc::clone(&self.0), steps, terms);
        Ok(Decision::resource(&self.0, key, call))
    }

    fn resume(&self, saved: types::SavedLock, now: Clocks) -> Result<decisions::Lock> {
        let saved = SavedLock::from(saved);
        saved.check(&self.0.settings)?;
        let holding = saved.holding(instants(&now), &self.0.settings)?;
        Ok(decisions::Lock::new(Lock::new(Rc::clone(&self.0), holding)))
    }

    fn release_workflow(&self, key: types::LockKey, workflow: String) -> Result<decisions::Decision> {
        let key = LockKey::from(key);
        self.0.settings.check_write(&key, &workflow, Some(&workflow), &DataChange::Keep)?;
        let (settings, of) = (Rc::clone(&self.0.settings), key.clone());
        let steps = Steps::new(|mut port| async move {
            let options = ReleaseOptions::default();
            Ended::Released(protocol::release_workflow(&mut port, &settings, &of, &workflow, |_| false, options).await)
        });
        let call = Call::new(Rc::clone(&self.0), steps, Terms::none());
        Ok(Decision::resource(&self.0, key, call))
    }

    fn peek(&self, key: types::LockKey) -> Result<decisions::Decision> {
        let key = LockKey::from(key);
        self.0.settings.check_key(&key)?;
        let (settings, of) = (Rc::clone(&self.0.settings), key.clone());
        let steps =
            Steps::new(|mut port| async move { Ended::Peeked(protocol::peek(&mut port, &settings, &of).await) });
        let call = Call::new(Rc::clone(&self.0), steps, Terms::none());
        Ok(Decision::resource(&self.0, key, call))
    }
}

impl Table {
    fn options(&self, wanted: WantedOptions) -> Result<AcquireOptions> {
        let settings = &self.0.settings;
        let (mut key, mut owner, mut workflow) = (LockKey::from(wanted.key), wanted.owner, wanted.workflow);
        let reclaim = match wanted.reclaim {
            WantedReclaim::Nobody => Reclaim::Nobody,
            WantedReclaim::SameOwner => Reclaim::SameOwner,
            WantedReclaim::Only(saved) => {
                let saved = SavedLock::from(saved);
                saved.check(settings)?;
                (key, owner) = (saved.key(), saved.owner().to_owned());
                workflow = saved.workflow().map(str::to_owned);
                Reclaim::Only(saved.parsed_version()?)
            }
        };
        let data = data_change(wanted.data);
        settings.check_write(&key, &owner, workflow.as_deref(), &data)?;
        let observation = wanted.observation.map(Into::into);
        let attributes = match reclaim {
            Reclaim::Only(_) => AttributesChange::Keep,
            Reclaim::Nobody | Reclaim::SameOwner => AttributesChange::default(),
        };
        let queueing = wanted.queueing.map(Queueing::from).unwrap_or_default();
        Ok(AcquireOptions { key, owner, workflow, data, attributes, reclaim, queueing, observation, commit: None })
    }
}

fn invalid(message: &str) -> types::Error {
    types::Error { kind: types::ErrorKind::InvalidRequest, message: message.to_owned(), cause: None }
}

fn clock_bounds(clocks: types::ClockRules) -> Result<ClockBounds> {
    let skew = clocks.max_clock_skew.map(Duration::from_millis);
    // The crate's own error text contains the number. To format a fraction would take a tenth of the component's size.
    if !(0.0..=1.0).contains(&clocks.clock_drift) {
        return Err(invalid("the clock drift must be a fraction from 0.0 to 1.0, such as 0.05"));
    }
    Ok(ClockBounds::default().with_drift(clocks.clock_drift)?.with_max_clock_skew(skew))
}

impl From<types::Queueing> for Queueing {
    fn from(queueing: types::Queueing) -> Self {
        match queueing {
            types::Queueing::BehindSlowHolders => Self::BehindSlowHolders,
            types::Queueing::InTurn => Self::AtOnce,
            types::Queueing::OutOfTurn => Self::Ignored,
        }
    }
}

impl From<types::Schema> for Schema {
    fn from(schema: types::Schema) -> Self {
        let types::Schema { key_attribute, sort_key_attribute, ttl, dialect } = schema;
        let ttl = ttl.map(|ttl| Ttl { attribute: ttl.attribute, retention: Duration::from_millis(ttl.retention) });
        let dialect = match dialect {
            types::Dialect::Java => Dialect::Java,
            types::Dialect::Go => Dialect::Go,
        };
        Self { key_attribute, sort_key_attribute, ttl, dialect }
    }
}

impl From<protocol::HolderSeen> for types::Held {
    fn from(seen: protocol::HolderSeen) -> Self {
        Self {
            holder: seen.owner,
            lease_ends_at: seen.ends_at_ms,
            retry_after: millis(seen.retry_after),
            waiting: seen.waiting,
            freeze_reason: seen.freeze_reason,
            observation: seen.observation.into(),
        }
    }
}
