//! What the workers said, added up.

use super::message::{About, Event};
use std::collections::BTreeMap;

/// What the workers were told by DynamoDB, and what they sent to it.
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

    /// How often the lock was granted.
    pub(crate) fn grants(&self) -> u64 {
        self.grants
    }

    /// How many increments workers were told had been applied.
    pub(crate) fn applied(&self) -> u64 {
        self.applied
    }

    /// How many requests of which operation were sent about something.
    pub(crate) fn requests(&self, about: About) -> impl Iterator<Item = (&str, u64)> {
        let of_it = self.requests.iter().filter(move |((what, _), _)| *what == about);
        of_it.map(|((_, operation), count)| (operation.as_str(), *count))
    }
}
