//! When the callers of lock-task believed that they held each lock, as the router saw it, and what must be true of that.

use crate::scene::LEASE;
use lambda_lock_local::states::Asked;
use serde_json::Value;
use std::collections::BTreeMap;
use std::time::Instant;

/// The time for which one owner held a lock.
#[derive(Clone, Debug)]
pub(crate) struct Tenure {
    pub(crate) owner: String,
    token: u64,
    granted: Instant,
    /// When the last renewal was requested.
    renewed: Instant,
    /// When the owner began to release the lock.
    released: Option<Instant>,
}

/// The tenures of each key, in the order of the grants. That is the one of their tokens: the answer to a call whose execution was
/// stopped meanwhile may come after the next grant.
#[derive(Debug, Default)]
pub(crate) struct Tenures {
    of_keys: BTreeMap<String, Vec<Tenure>>,
}

impl Tenures {
    pub(crate) fn read(asked: &[Asked]) -> Self {
        let mut tenures = Self::default();
        for asked in asked.iter().filter(|asked| asked.function == "lock-task") {
            tenures.add(asked);
        }
        tenures.of_keys.values_mut().for_each(|of_key| of_key.sort_by_key(|tenure| tenure.token));
        tenures
    }

    fn add(&mut self, asked: &Asked) {
        let Asked { request, answer, began, ended, .. } = asked;
        if request["action"] == "release"
            && let Some(tenure) = self.of(&request["lock"])
        {
            tenure.released.get_or_insert(*began);
        }
        let lock = &answer["lock"];
        match self.of(lock) {
            Some(tenure) => tenure.renewed = *began,
            None if lock["key"].is_string() => {
                let (owner, token) = (text(&lock["owner"]), lock["fencingToken"].as_u64().unwrap());
                let tenure = Tenure { owner, token, granted: *ended, renewed: *began, released: None };
                self.of_keys.entry(text(&lock["key"])).or_default().push(tenure);
            }
            None => {}
        }
    }

    /// The tenure of this lock, if its grant was seen.
    fn of(&mut self, lock: &Value) -> Option<&mut Tenure> {
        let of_key = self.of_keys.get_mut(lock["key"].as_str()?)?;
        of_key.iter_mut().find(|tenure| tenure.owner == lock["owner"] && lock["fencingToken"] == tenure.token)
    }

    /// Asserts that a lock is granted only after the last holder has released it, was cleaned up, or let
    /// a whole lease pass.
    pub(crate) fn nobody_shared(&self, cleaned_up: &[(String, Instant)]) {
        for (key, before, next) in self.pairs() {
            let cleaned_up = cleaned_up.iter().filter(|(execution, _)| before.owner.starts_with(execution.as_str()));
            let ends = cleaned_up.map(|(_, began)| *began).chain(before.released).chain([before.renewed + LEASE]);
            let free = ends.min().unwrap_or(before.granted);
            assert!(
                next.granted >= free,
                "{} got {key} while {} held it: {before:?} {next:?}",
                next.owner,
                before.owner
            );
        }
    }

    fn pairs(&self) -> impl Iterator<Item = (&String, &Tenure, &Tenure)> {
        let pairs =
            self.of_keys.iter().flat_map(|(key, all)| all.windows(2).map(move |pair| (key, &pair[0], &pair[1])));
        // Who asks again gets its own lock at once.
        pairs.filter(|(_, before, next)| before.owner != next.owner)
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}
