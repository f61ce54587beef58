//! Counts the events of the workers.

use super::message::{About, Event};
use std::collections::BTreeMap;

/// The requests that the workers sent, and their outcomes.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    grants: u64,
    applied: u64,
    requests: BTreeMap<(About, String), u64>,
}

impl Ledger {
    pub(crate) fn note(&mut self, event: &Event) {
        match event {
            Event::Acquired { .. } => self.grants += 1,
            Event::Applied { .. } => self.applied += 1,
            Event::Sent { about, operation } => *self.requests.entry((*about, operation.clone())).or_default() += 1,
            _ => {}
        }
    }

    /// Returns how often the lock was granted.
    pub(crate) fn grants(&self) -> u64 {
        self.grants
    }

    /// Returns how many increments were applied, as the workers report.
    pub(crate) fn applied(&self) -> u64 {
        self.applied
    }

    /// Returns how many requests of each operation were sent about something.
    pub(crate) fn requests(&self, about: About) -> impl Iterator<Item = (&str, u64)> {
        let of_it = self.requests.iter().filter(move |((what, _), _)| *what == about);
        of_it.map(|((_, operation), count)| (operation.as_str(), *count))
    }
}
