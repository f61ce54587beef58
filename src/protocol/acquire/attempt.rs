//! The writes that a call sends to make a lock ours.

use crate::protocol::clock_bounds::ClockBounds;
use crate::protocol::holding::{Holding, LeaseValidity};
use crate::protocol::instants::{Instants, millis_rounded_up};
use crate::protocol::key::LockKey;
use crate::protocol::lease::Lease;
use crate::protocol::port::{Now, Port};
use crate::protocol::schema;
use crate::protocol::settings::Settings;
use crate::protocol::value::{Item, Value};
use crate::protocol::version::{Grant, Stamp, Version};

/// A write that makes a lock ours.
#[derive(Clone, Debug)]
pub(in crate::protocol) struct Attempt {
    pub(in crate::protocol) version: Version,
    /// Read before the request was sent.
    pub(in crate::protocol) started: Instants,
    now: u64,
    pub(in crate::protocol) lease: Lease,
    pub(in crate::protocol) ends_at_ms: u64,
    /// For each row: the version that the attempt replaces, where it is known and one of ours. Empty where none is.
    replaces: Vec<Option<Version>>,
}

impl Attempt {
    /// The lock that this attempt has acquired. `newest` is the newest stamp that the call has sent.
    pub(in crate::protocol) fn holding(
        &self,
        key: LockKey,
        owner: &str,
        workflow: Option<&str>,
        token: u64,
        newest: Stamp,
        validity: LeaseValidity,
    ) -> Holding {
        Holding {
            key,
            owner: owner.to_owned(),
            workflow: workflow.map(str::to_owned),
            token,
            newest: Version { grant: self.version.grant, stamp: newest },
            seen: self.version.stamp,
            lease: self.lease.clone(),
            ends_at_ms: self.ends_at_ms,
            validity,
            keep: None,
            line: None,
            pending: None,
        }
    }

    /// The version of this row that the attempt replaces, where it is known and one of ours.
    pub(in crate::protocol) fn replaced(&self, row: usize) -> Option<Version> {
        self.replaces.get(row).copied().flatten()
    }

    pub(in crate::protocol) fn validity(&self, now: &Now, clock_bounds: &ClockBounds) -> LeaseValidity {
        if now.found_behind(self.started, self.now, clock_bounds) {
            return LeaseValidity::none(now.instants);
        }
        let until_end = now.until_end(self.started, self.now, self.ends_at_ms, clock_bounds);
        LeaseValidity::of(self.started, &self.lease, until_end, clock_bounds)
    }
}

/// All attempts of a call, because a later response may show that an earlier one was applied.
#[derive(Debug, Default)]
pub(in crate::protocol) struct Attempts {
    grant: Option<Grant>,
    all: Vec<Attempt>,
}

impl Attempts {
    /// Makes a new attempt, with a version that was never used before.
    pub(in crate::protocol) fn next(
        &mut self,
        port: &mut impl Port,
        now: &Now,
        settings: &Settings,
        replaces: Vec<Option<Version>>,
    ) -> &Attempt {
        let grant = *self.grant.get_or_insert_with(|| Grant::from_random(port.random()));
        let stamp = Stamp::after(self.newest(), now.wall.millis, port.random_u64());
        let lease = settings.lease(now.lease);
        let attempt = Attempt {
            version: Version { grant, stamp },
            started: now.instants,
            now: now.wall.latest,
            ends_at_ms: now.wall.latest.saturating_add(millis_rounded_up(lease.duration())),
            lease,
            replaces,
        };
        self.all.push(attempt);
        &self.all[self.all.len() - 1]
    }

    pub(in crate::protocol) fn last(&self) -> Option<&Attempt> {
        self.all.last()
    }

    pub(in crate::protocol) fn newest(&self) -> Option<Stamp> {
        self.last().map(|attempt| attempt.version.stamp)
    }

    /// The attempt that wrote this version, if it is one of this call.
    pub(in crate::protocol) fn that_wrote(&self, version: Version) -> Option<&Attempt> {
        self.all.iter().find(|attempt| attempt.version == version)
    }

    /// Whether this is a version of this call's grant.
    pub(in crate::protocol) fn have_granted(&self, version: &Version) -> bool {
        Some(version.grant) == self.grant
    }

    /// Whether this call has written its grant into the row.
    pub(in crate::protocol) fn have_written(&self, row: &Item) -> bool {
        let version = match row.get(schema::VERSION) {
            Some(Value::S(version)) => Version::parse(version),
            _ => None,
        };
        version.is_some_and(|version| self.have_granted(&version))
    }
}
