//! Who held each lock and when, as the rows say: every change of the lock table, in order. It is the same for holders of
//! every kind.

use crate::scene::{LEASE, POLL, SKEW, Scene};
use lambda_lock_local::history;
use lambda_lock_protocol::WAKE;
use serde_json::Value;
use std::collections::BTreeMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// How much two busy processors may add to a wait.
pub(crate) const SLACK: Duration = Duration::from_millis(2500);

/// How long a free lock may be left to those ahead in line who do not come.
const LEFT_TO_OTHERS: Duration = Duration::from_secs(2);

/// One grant of a lock, by the wall clock.
#[derive(Clone, Debug)]
struct Grant {
    owner: String,
    token: u64,
    /// When the request was made that acquired the lock.
    granted: SystemTime,
    /// When its lease ends, after the last renewal.
    ends: SystemTime,
    released: Option<SystemTime>,
}

/// The grants of each key, in their order.
#[derive(Debug)]
pub(crate) struct Grants(BTreeMap<String, Vec<Grant>>);

impl Grants {
    /// Reads them from the history of the lock table.
    pub(crate) async fn read(scene: &Scene) -> Self {
        let mut of_keys: BTreeMap<String, Vec<Grant>> = BTreeMap::new();
        for change in history(scene.sample.dynamodb.endpoint(), "LockTable").await.unwrap() {
            let row = change.after;
            // A wake item is no lock. Nothing else is deleted.
            if row.get("key").is_none_or(|key| text(key).starts_with(WAKE)) {
                continue;
            }
            let (token, ends) = (number(&row["fencingToken"]), time(number(&row["leaseEndsAt"])));
            let grants = of_keys.entry(text(&row["key"])).or_default();
            match grants.last_mut().filter(|grant| grant.token == token) {
                Some(grant) if row.get("isReleased").is_some() => grant.released = grant.released.or(Some(ends)),
                Some(grant) => grant.ends = ends,
                None => {
                    let lease: u64 = text(&row["leaseDuration"]).parse().unwrap();
                    let granted = ends - Duration::from_millis(lease);
                    grants.push(Grant { owner: text(&row["ownerName"]), token, granted, ends, released: None });
                }
            }
        }
        Self(of_keys)
    }

    /// The owners of a lock, in the order of their grants. An owner that was granted its lock again is there once.
    pub(crate) fn owners(&self, key: &str) -> Vec<&str> {
        let mut owners: Vec<_> = self.0[key].iter().map(|grant| grant.owner.as_str()).collect();
        owners.dedup();
        owners
    }

    /// The times from each release of a lock to its next grant.
    pub(crate) fn pauses(&self, key: &str) -> Vec<Duration> {
        let pairs = self.pairs().filter(|(of, _, _)| *of == key);
        let released = pairs.filter_map(|(_, before, next)| Some((before.released?, next.granted)));
        released.map(|(released, granted)| granted.duration_since(released).unwrap_or_default()).collect()
    }

    /// Returns the grants that were made before the last holder had released the lock, or had let its lease pass, and
    /// those without a larger fencing token.
    pub(crate) fn too_early(&self) -> Vec<String> {
        self.too_early_but_for(|_, _| false)
    }

    /// The same, where these owners, one after the other, need not wait for each other.
    pub(crate) fn too_early_but_for(&self, may_follow: impl Fn(&str, &str) -> bool) -> Vec<String> {
        let is_too_early = |before: &Grant, next: &Grant| {
            let waits = !may_follow(&before.owner, &next.owner);
            waits && next.granted < before.released.unwrap_or(before.ends) || next.token <= before.token
        };
        let found = self.pairs().filter(|(_, before, next)| is_too_early(before, next));
        found.map(|(key, before, next)| format!("{key}: {before:?} {next:?}")).collect()
    }

    /// Asserts that none of these callers, by the beginnings of their owners' names and with the times when they came,
    /// waited for longer than a lease, a slot and one look after the last holder had begun its lease. Returns the longest wait.
    pub(crate) fn nobody_waited_too_long(&self, came: &BTreeMap<String, SystemTime>) -> Duration {
        let mut longest = Duration::ZERO;
        for (key, before, next) in self.pairs() {
            let caller = came.iter().find(|(owner, _)| next.owner.starts_with(owner.as_str()));
            let Some((_, came)) = caller else { continue };
            // The last renewal.
            let since = (before.ends - LEASE).max(*came);
            let waited = next.granted.duration_since(since).unwrap_or_default();
            assert!(waited < LEASE + SKEW * 2 + LEFT_TO_OTHERS + POLL + SLACK, "{key}: {waited:?} {before:?} {next:?}");
            longest = longest.max(waited);
        }
        longest
    }

    /// Returns whether somebody else got a lock of this execution because its lease had passed.
    pub(crate) fn was_overtaken(&self, execution: &str) -> bool {
        self.pairs().any(|(_, before, _)| before.owner.starts_with(execution) && before.released.is_none())
    }

    /// Returns each grant with the one before it, if that is of another owner. An owner may take its own lock again.
    fn pairs(&self) -> impl Iterator<Item = (&String, &Grant, &Grant)> {
        let pairs =
            self.0.iter().flat_map(|(key, grants)| grants.windows(2).map(move |pair| (key, &pair[0], &pair[1])));
        pairs.filter(|(_, before, next)| before.owner != next.owner)
    }
}

fn text(value: &Value) -> String {
    value["S"].as_str().unwrap().to_owned()
}

fn number(value: &Value) -> u64 {
    value["N"].as_str().unwrap().parse().unwrap()
}

fn time(millis: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_millis(millis)
}
