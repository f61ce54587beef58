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
    granted: Instant,
    /// When the last renewal was requested.
    renewed: Instant,
    /// When the owner began to release the lock.
    released: Option<Instant>,
}

/// The tenures of each key, in the order of the grants.
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
        tenures
    }

    fn add(&mut self, asked: &Asked) {
        let Asked { request, answer, began, ended, .. } = asked;
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
        match of_key.last_mut().filter(|tenure| tenure.owner == owner) {
            Some(tenure) => tenure.renewed = *began,
            None => of_key.push(Tenure { owner, granted: *ended, renewed: *began, released: None }),
        }
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
        self.of_keys.iter().flat_map(|(key, tenures)| tenures.windows(2).map(move |pair| (key, &pair[0], &pair[1])))
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}
