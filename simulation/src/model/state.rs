//! One state of the model, and what can be derived from it.

use super::CALLERS;
use super::operations::instants;
use lambda_lock::protocol::{Answer, Holding, Item, Request, Value, schema};
use std::fmt::{Debug, Write as _};
use std::hash::{DefaultHasher, Hash, Hasher};

/// The kind of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Call {
    Acquire,
    Renew,
    Release,
}

/// The inputs of an operation and their times. They are enough to start it again, because a future cannot be copied.
#[derive(Clone, Debug)]
pub(super) enum Input {
    Step(u8),
    Answer(u8, Answer),
}

#[derive(Clone, Debug)]
pub(super) enum Caller {
    Idle,
    Calling { call: Call, held: Option<Holding>, inputs: Vec<Input>, waits_for: WaitsFor, print: u64 },
    Holding(Holding),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum WaitsFor {
    /// The response to the request with this number.
    Answer(u8),
    /// Time to pass.
    Time,
}

/// A request in flight.
#[derive(Clone, Debug)]
pub(super) struct Message {
    pub(super) caller: usize,
    pub(super) number: u8,
    pub(super) request: Request,
    pub(super) print: u64,
}

/// The whole state at one moment.
#[derive(Clone, Debug)]
pub struct State {
    pub(super) now: u8,
    pub(super) row: Option<Item>,
    pub(super) row_print: u64,
    pub(super) callers: [Caller; CALLERS],
    pub(super) calls: [u8; CALLERS],
    /// The number of requests that each caller has sent. It numbers the requests and seeds their random numbers.
    pub(super) sent: [u8; CALLERS],
    pub(super) messages: Vec<Message>,
    pub(super) duplicates: u8,
    pub(super) crashes: u8,
    /// The largest token of all grants.
    pub(super) token: u64,
    pub(super) broken: Option<&'static str>,
}

impl Hash for State {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        let Self { now, row: _, row_print, callers, calls, sent, messages, duplicates, crashes, token, broken } = self;
        (now, row_print, calls, sent, duplicates, crashes, token, broken).hash(hasher);
        for caller in callers {
            match caller {
                Caller::Idle => 0.hash(hasher),
                Caller::Calling { call, waits_for, print, .. } => (1, call, waits_for, print).hash(hasher),
                Caller::Holding(holding) => (2, print_of(holding)).hash(hasher),
            }
        }
        let mut prints: Vec<_> =
            messages.iter().map(|message| (message.caller, message.number, message.print)).collect();
        prints.sort_unstable();
        prints.hash(hasher);
    }
}

impl PartialEq for State {
    fn eq(&self, other: &Self) -> bool {
        let hash = |state: &Self| {
            let mut hasher = DefaultHasher::new();
            state.hash(&mut hasher);
            hasher.finish()
        };
        hash(self) == hash(other)
    }
}

impl State {
    /// Whether the guard is valid now.
    pub(super) fn says_mine(&self, caller: usize) -> bool {
        match &self.callers[caller] {
            Caller::Holding(holding) => !holding.validity.remaining(instants(caller, self.now)).is_zero(),
            // A renewal does not change the guard until its response arrives.
            Caller::Calling { call: Call::Renew, held: Some(holding), .. } => {
                !holding.validity.remaining(instants(caller, self.now)).is_zero()
            }
            _ => false,
        }
    }

    pub(super) fn version(&self) -> Option<&str> {
        match self.row.as_ref()?.get(schema::VERSION) {
            Some(Value::S(version)) => Some(version),
            _ => None,
        }
    }

    pub(super) fn token_on_row(&self) -> u64 {
        match self.row.as_ref().and_then(|row| row.get(schema::TOKEN)) {
            Some(Value::N(number)) => number.parse().unwrap(),
            _ => 0,
        }
    }

    pub(super) fn is_released(&self) -> bool {
        self.row.as_ref().is_some_and(|row| row.get(schema::RELEASED).is_some())
    }

    pub(super) fn is_held_by(&self, holding: &Holding) -> bool {
        let first = holding.newest.grant.first_version();
        let own = self.version().is_some_and(|version| version[..37] == first[..37]);
        own && self.token_on_row() == holding.token && !self.is_released()
    }

    pub(super) fn breaks(&mut self, what: &'static str) {
        self.broken.get_or_insert(what);
    }
}

/// A hash of the debug text of a value.
pub(super) fn print_of(value: &impl Debug) -> u64 {
    struct Printer(u64);
    impl std::fmt::Write for Printer {
        fn write_str(&mut self, text: &str) -> std::fmt::Result {
            for byte in text.bytes() {
                self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
            }
            Ok(())
        }
    }
    let mut printer = Printer(0xcbf2_9ce4_8422_2325);
    let _ = write!(printer, "{value:?}");
    printer.0
}

pub(super) fn sorted(row: &Option<Item>) -> Vec<(String, Value)> {
    let mut list: Vec<_> =
        row.iter().flat_map(Item::iter).map(|(name, value)| (name.to_owned(), value.clone())).collect();
    list.sort_by(|one, other| one.0.cmp(&other.0));
    list
}
