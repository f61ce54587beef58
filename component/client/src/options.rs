//! Applies the host's options to the crate's builders.

use crate::bindings::exports::lambda_lock::lock::locks::{AcquireOptions, Budget, ReleaseOptions, SeveralOptions};
use crate::bindings::exports::lambda_lock::lock::types;
use lambda_lock::{Acquire, AcquireAll, AcquirePlace, DataChange, Reclaim, Release, ReleaseOutcome};
use std::time::Duration;

/// Sets the options that an acquire and a reclaim have in common. The crate's builders have the same methods, but no trait for
/// them.
macro_rules! leasing {
    ($request:expr, $time:expr, $lease:expr, $data:expr) => {{
        let mut request = $request.data(data_change($data));
        if let Some(time) = $time {
            request = request.within(&budget(time));
        }
        match $lease {
            Some(lease) => request.lease(Duration::from_millis(lease)),
            None => request,
        }
    }};
}

pub(crate) fn acquiring(request: Acquire<'_>, options: AcquireOptions) -> Acquire<'_> {
    let AcquireOptions { budget: time, lease, owner, workflow, data, observation, reclaim_own, queueing } = options;
    let mut request = leasing!(request, time, lease, data);
    if let Some(owner) = owner {
        request = request.owner(owner);
    }
    if let Some(workflow) = workflow {
        request = request.workflow(workflow);
    }
    if let Some(observation) = observation {
        request = request.observation(observation.into());
    }
    if queueing == Some(types::Queueing::OutOfTurn) {
        request = request.out_of_turn();
    }
    if reclaim_own { request.reclaim_own() } else { request }
}

pub(crate) fn reclaiming(request: Reclaim<'_>, options: AcquireOptions) -> Reclaim<'_> {
    let AcquireOptions { budget: time, lease, data, .. } = options;
    leasing!(request, time, lease, data)
}

/// Sets the options of an acquire of several locks or of a place, which have the same methods too.
macro_rules! several {
    ($request:expr, $options:expr) => {{
        let SeveralOptions { budget: time, lease, owner, workflow, seen, reclaim_own } = $options;
        let seen = seen.into_iter().map(|blocked| (blocked.key, blocked.held.observation.into()));
        let mut request = $request.observations(seen).within(&budget(time));
        if let Some(lease) = lease {
            request = request.lease(Duration::from_millis(lease));
        }
        if let Some(owner) = owner {
            request = request.owner(owner);
        }
        if let Some(workflow) = workflow {
            request = request.workflow(workflow);
        }
        if reclaim_own { request.reclaim_own() } else { request }
    }};
}

pub(crate) fn several(request: AcquireAll<'_>, options: SeveralOptions) -> AcquireAll<'_> {
    several!(request, options)
}

pub(crate) fn one_of_several(request: AcquirePlace<'_>, options: SeveralOptions) -> AcquirePlace<'_> {
    several!(request, options)
}

pub(crate) fn releasing(release: Release, options: ReleaseOptions) -> Release {
    let ReleaseOptions { data, or_later_grant_of_owner } = options;
    let release = release.data(data_change(data));
    if or_later_grant_of_owner { release.or_later_grant_of_owner() } else { release }
}

pub(crate) fn data_change(data: types::DataChange) -> DataChange {
    match data {
        types::DataChange::Keep => DataChange::Keep,
        types::DataChange::Set(bytes) => DataChange::Set(bytes),
        types::DataChange::Remove => DataChange::Remove,
    }
}

pub(crate) fn outcome(outcome: ReleaseOutcome) -> types::ReleaseOutcome {
    match outcome {
        ReleaseOutcome::Released => types::ReleaseOutcome::Released,
        ReleaseOutcome::AlreadyGone => types::ReleaseOutcome::AlreadyGone,
    }
}

pub(crate) fn budget(time: Budget) -> lambda_lock::Budget {
    let mut budget = lambda_lock::Budget::lasting(Duration::from_millis(time.remaining));
    if let Some(grace) = time.grace {
        budget = budget.grace(Duration::from_millis(grace));
    }
    match time.reserve {
        Some(reserve) => budget.reserve(Duration::from_millis(reserve)),
        None => budget,
    }
}
