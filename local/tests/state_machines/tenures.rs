//! Which owner held each lock and when, as the router saw it, and what must be true of that.

use crate::scene::{LEASE, POLL, SKEW};
use lambda_lock_local::states::Asked;
use serde_json::Value;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// How much two busy processors may add to a wait.
pub(crate) const SLACK: Duration = Duration::from_millis(2500);

/// The time for which one owner held a lock.
#[derive(Clone, Debug)]
pub(crate) struct Tenure {
    pub(crate) owner: String,
    /// When the owner first tried to acquire the lock.
    came: Instant,
    granted: Instant,
    /// The last renewal happened between these two times.
    renewed: (Instant, Instant),
    /// When the owner began to release the lock.
    released: Option<Instant>,
}

/// The tenures of each key, in the order of the grants, and the acquires of unknown outcome.
#[derive(Debug, Default)]
pub(crate) struct Tenures {
    of_keys: BTreeMap<String, Vec<Tenure>>,
    /// The times at which acquires of unknown outcome had ended, by key.
    ghosts: BTreeMap<String, Vec<Instant>>,
}

impl Tenures {
    pub(crate) fn read(asked: &[Asked]) -> Self {
        let mut tenures = Self::default();
        let mut came = BTreeMap::new();
        for asked in asked.iter().filter(|asked| asked.function == "lock-task") {
            tenures.add(asked, &mut came);
        }
        tenures
    }

    fn add(&mut self, asked: &Asked, came: &mut BTreeMap<String, Instant>) {
        let Asked { request, answer, began, ended, .. } = asked;
        if request["action"] == "acquire" {
            let first = came.entry(text(&request["owner"])).or_insert(*began);
            *first = (*first).min(*began);
            if answer["errorType"].is_string() && answer["errorType"] != "LockHeld" {
                self.ghosts.entry(text(&request["key"])).or_default().push(*ended);
            }
        }
        if request["action"] == "release" {
            let of_key = self.of_keys.entry(text(&request["lock"]["key"])).or_default();
            let owner = text(&request["lock"]["owner"]);
            if let Some(tenure) = of_key.iter_mut().rfind(|tenure| tenure.owner == owner) {
                tenure.released.get_or_insert(*began);
            }
        }
        let (key, owner) = (text(&answer["lock"]["key"]), text(&answer["lock"]["owner"]));
        if key.is_empty() {
            return;
        }
        let of_key = self.of_keys.entry(key).or_default();
        let renewed = (*began, *ended);
        match of_key.last_mut().filter(|tenure| tenure.owner == owner) {
            Some(tenure) => tenure.renewed = renewed,
            None => {
                let came = came.get(&owner).copied().unwrap_or(*began);
                of_key.push(Tenure { owner, granted: *ended, came, renewed, released: None });
            }
        }
    }

    /// Asserts that no waiting owner got a lock too late. After the lock could be acquired, it may wait
    /// for one poll, and for the lease of the last holder if that one died. Returns the longest wait.
    pub(crate) fn nobody_waited_too_long(&self) -> Duration {
        let mut longest = Duration::ZERO;
        for (key, before, next) in self.pairs() {
            let ghosts = self.ghosts.get(key).into_iter().flatten().filter(|ended| **ended <= next.granted);
            let since = ghosts.copied().max().map_or(before.renewed.1, |ghost| ghost.max(before.renewed.1));
            let waited = next.granted.saturating_duration_since(since.max(next.came));
            let bound = LEASE + SKEW + POLL + SLACK;
            assert!(waited < bound, "{} waited {waited:?} for {key} behind {}", next.owner, before.owner);
            longest = longest.max(waited);
        }
        longest
    }

    /// Asserts that a lock is granted only after the last holder has released it, was cleaned up, or let
    /// a whole lease pass.
    pub(crate) fn nobody_shared(&self, cleaned_up: &[(String, Instant)]) {
        for (key, before, next) in self.pairs() {
            let cleaned_up = cleaned_up.iter().filter(|(execution, _)| before.owner.starts_with(execution.as_str()));
            let ends = cleaned_up.map(|(_, began)| *began).chain(before.released).chain([before.renewed.0 + LEASE]);
            let free = ends.min().unwrap_or(before.granted);
            assert!(
                next.granted >= free,
                "{} got {key} while {} held it: {before:?} {next:?}",
                next.owner,
                before.owner
            );
        }
    }

    /// Returns whether this execution once let a whole lease pass, so that it may have lost its lock.
    pub(crate) fn let_a_lease_pass(&self, execution: &str, asked: &[Asked]) -> bool {
        let mut renewed: Option<Instant> = None;
        asked.iter().filter(|asked| asked.function == "lock-task").any(|asked| {
            let owner = text(&asked.request["lock"]["owner"]) + &text(&asked.request["owner"]);
            if !owner.starts_with(execution) {
                return false;
            }
            let late = renewed.is_some_and(|renewed| asked.ended - renewed >= LEASE);
            if asked.answer["lock"].is_object() {
                renewed = Some(asked.began);
            }
            late
        })
    }

    fn pairs(&self) -> impl Iterator<Item = (&String, &Tenure, &Tenure)> {
        self.of_keys.iter().flat_map(|(key, tenures)| tenures.windows(2).map(move |pair| (key, &pair[0], &pair[1])))
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}
