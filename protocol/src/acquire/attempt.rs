//! The writes that a call sends to make a lock ours.

use super::options::Reclaim;
use crate::attributes::AttributesChange;
use crate::clock_bounds::ClockBounds;
use crate::holding::{Holding, LeaseValidity, PendingCommit};
use crate::instants::{Instants, millis_rounded_up};
use crate::key::LockKey;
use crate::lease::Lease;
use crate::port::{Now, Port};
use crate::request::{DataChange, NewGrant};
use crate::schema;
use crate::settings::Settings;
use crate::value::Item;
use crate::version::{Grant, Stamp, Version};

/// A write that makes a lock ours.
#[derive(Clone, Debug)]
pub(crate) struct Attempt {
    pub(crate) version: Version,
    /// Read before the request was sent.
    pub(crate) started: Instants,
    now: u64,
    pub(crate) lease: Lease,
    pub(crate) ends_at_ms: u64,
    /// The token that it writes, where the call chooses it.
    pub(crate) token: Option<u64>,
    /// For each row: the version that the attempt replaces, where it is known and one of ours. Empty where none is.
    replaces: Vec<Option<Version>>,
}

impl Attempt {
    /// The lock that this attempt has acquired. `newest` is the newest stamp that the call has sent.
    pub(crate) fn holding(
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
            pending: None,
        }
    }

    /// The grant that it writes, beside what the caller asks for.
    pub(crate) fn grant(&self, now: &Now, owner: &str, workflow: Option<&str>) -> NewGrant {
        NewGrant {
            version: self.version,
            owner: owner.to_owned(),
            lease: self.lease.clone(),
            now: now.wall.millis,
            ends_at_ms: self.ends_at_ms,
            data: DataChange::Keep,
            attributes: AttributesChange::Keep,
            workflow: workflow.map(str::to_owned),
            once: None,
        }
    }

    /// The last commit under the earlier grant, whose outcome follows from the version of this row that the attempt replaces.
    pub(crate) fn resolved(
        &self,
        row: usize,
        commit: Option<PendingCommit>,
        reclaim: &Reclaim,
    ) -> Option<PendingCommit> {
        let replaced = self.replaces.get(row).copied().flatten();
        commit.map(|commit| match reclaim {
            Reclaim::Only(earlier) => commit.resolved_by(replaced, earlier.grant),
            Reclaim::Nobody | Reclaim::SameOwner => commit,
        })
    }

    /// Whether the caller must renew before it works: less than half of the time is left that a holder relies on.
    pub(crate) fn is_half_over(&self, now: &Now, validity: LeaseValidity, clock_bounds: &ClockBounds) -> bool {
        validity.remaining(now.instants) * 2 < clock_bounds.believed(self.lease.duration())
    }

    pub(crate) fn validity(&self, now: &Now, clock_bounds: &ClockBounds) -> LeaseValidity {
        if now.found_behind(self.started, self.now, clock_bounds) {
            return LeaseValidity::none(now.instants);
        }
        let until_end = now.until_end(self.started, self.now, self.ends_at_ms, clock_bounds);
        LeaseValidity::of(self.started, &self.lease, until_end, clock_bounds)
    }
}

/// All attempts of a call, because a later response may show that an earlier one was applied.
#[derive(Debug, Default)]
pub(crate) struct Attempts {
    grant: Option<Grant>,
    all: Vec<Attempt>,
}

impl Attempts {
    /// Makes a new attempt, with a version that was never used before.
    pub(crate) fn next(
        &mut self,
        port: &mut impl Port,
        now: &Now,
        settings: &Settings,
        token: Option<u64>,
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
            token,
            replaces,
        };
        self.all.push(attempt);
        &self.all[self.all.len() - 1]
    }

    pub(crate) fn last(&self) -> Option<&Attempt> {
        self.all.last()
    }

    pub(crate) fn newest(&self) -> Option<Stamp> {
        self.last().map(|attempt| attempt.version.stamp)
    }

    /// The attempt that wrote this version, if it is one of this call.
    pub(crate) fn that_wrote(&self, version: Version) -> Option<&Attempt> {
        self.all.iter().find(|attempt| attempt.version == version)
    }

    /// Whether this is a version of this call's grant.
    pub(crate) fn have_granted(&self, version: &Version) -> bool {
        Some(version.grant) == self.grant
    }

    /// Whether this call has written its grant into the row.
    pub(crate) fn have_written(&self, row: &Item) -> bool {
        let version = row.text(schema::VERSION).and_then(Version::parse);
        version.is_some_and(|version| self.have_granted(&version))
    }
}
