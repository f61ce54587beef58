//! Future events in the order of true time.

use super::State;
use super::traffic::Message;
use crate::clocks::Nanos;
use crate::ledger::ProcessId;
use crate::peer::Op;
use crate::worker::Role;
use lambda_lock::{Observation, SavedLock};
use lambda_lock_protocol::Expression;
use std::cmp::Reverse;

pub(crate) enum Event {
    /// A process may continue. The number is that of the timer that wakes it.
    Wake(ProcessId, Option<usize>),
    Arrive(Box<Message>),
    ArrivePeers(usize, Box<Op>),
    Answer(usize),
    Claim {
        granted: usize,
        fresh: bool,
    },
    /// A work of this grant was polled.
    Work {
        granted: usize,
        fresh: bool,
    },
    Effect(usize),
    /// A lock was saved for another process.
    Hand(SavedLock, Option<usize>),
    /// A watcher's observation is ready for the next watcher.
    Observed(Observation),
    /// A caller's own transaction with a Fence.
    Fenced(Box<Fenced>),
    DeleteRow,
    /// Somebody writes nonsense into a row.
    Spoil,
    /// Somebody repairs the row.
    Repair(usize),
    Jump,
    Throttle,
    Spawn(Role),
}

/// A caller's own write with the condition that a grant is current.
pub(crate) struct Fenced {
    pub(crate) key: usize,
    pub(crate) granted: usize,
    pub(crate) condition: Expression,
}

pub(super) struct Scheduled {
    at: Nanos,
    number: u64,
    event: Event,
}

impl PartialEq for Scheduled {
    fn eq(&self, other: &Self) -> bool {
        self.number == other.number
    }
}

impl Eq for Scheduled {}

impl PartialOrd for Scheduled {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Scheduled {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.number).cmp(&(other.at, other.number))
    }
}

impl State {
    pub(crate) fn at(&mut self, at: Nanos, event: Event) {
        self.scheduled += 1;
        self.queue.push(Reverse(Scheduled { at, number: self.scheduled, event }));
    }

    pub(crate) fn next(&mut self) -> Option<Event> {
        let Reverse(Scheduled { at, event, .. }) = self.queue.pop()?;
        self.now = at.max(self.now);
        Some(event)
    }
}
