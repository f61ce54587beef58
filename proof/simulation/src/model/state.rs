//! One state of the model, and what can be derived from it.

use super::CALLERS;
use super::line::Line;
use super::operations::instants;
use lambda_lock_protocol::{Answer, Holding, Item, LockKey, Request, Sent, TransactionId, Value, schema};
use std::fmt::{Debug, Write as _};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

/// The keys of the locks. The model of single locks has only the first.
pub(super) const KEYS: [&str; 2] = ["k0", "k1"];

/// The kind of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Call {
    /// Asks for the lock at this position.
    Acquire(usize),
    /// Asks for all locks together.
    AcquireAll,
    /// Renews what the caller holds.
    Renew,
    /// Releases what the caller holds.
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
    Calling {
        call: Call,
        held: Vec<Holding>,
        inputs: Vec<Input>,
        waits_for: WaitsFor,
        print: u64,
    },
    /// Has these locks, and relies on all of them or on none.
    Holding(Vec<Holding>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum WaitsFor {
    /// The response to the request with this number.
    Answer(u8),
    /// Time to pass.
    Time,
}

/// Whether this changes no row.
pub(super) fn reads(sent: &Sent) -> bool {
    matches!(sent, Sent::Read(_) | Sent::ReadAll(_))
}

/// A request in flight.
#[derive(Clone, Debug)]
pub(super) struct Message {
    pub(super) caller: usize,
    /// The number of the call that sent it. It follows from the content of a write.
    pub(super) call: u8,
    pub(super) number: u8,
    pub(super) sent: Sent,
    pub(super) print: u64,
    /// A copy of it was applied. Only for counting, so it is no part of the state.
    pub(super) applied: bool,
}

/// A transaction that DynamoDB has accepted, and that has not reached all of its rows.
#[derive(Clone, Debug)]
pub(super) struct Landing {
    pub(super) message: Arc<Message>,
    /// The writes that have not reached their rows.
    pub(super) left: Vec<Request>,
    /// Whether its response may reach the caller.
    pub(super) heard: bool,
}

/// The row of a lock.
#[derive(Clone, Debug, Default)]
pub(super) struct Row {
    pub(super) item: Option<Item>,
    pub(super) print: u64,
    /// The largest token of all grants.
    pub(super) largest_token: u64,
}

impl Row {
    pub(super) fn version(&self) -> Option<&str> {
        match self.item.as_ref()?.get(schema::VERSION) {
            Some(Value::S(version)) => Some(version),
            _ => None,
        }
    }

    pub(super) fn token(&self) -> u64 {
        match self.item.as_ref().and_then(|row| row.get(schema::TOKEN)) {
            Some(Value::N(number)) => number.parse().unwrap(),
            _ => 0,
        }
    }

    pub(super) fn is_released(&self) -> bool {
        self.item.as_ref().is_some_and(|row| row.get(schema::RELEASED).is_some())
    }

    /// Whether the grant whose versions begin with this has the row.
    pub(super) fn is_held_by(&self, grant: &str) -> bool {
        self.version().is_some_and(|version| version.starts_with(grant)) && !self.is_released()
    }
}

/// The whole state at one moment. Its parts are shared with the states before and after it, because millions of states wait in
/// memory for what follows them.
#[derive(Clone, Debug)]
pub struct State {
    pub(super) now: u8,
    pub(super) rows: [Arc<Row>; KEYS.len()],
    pub(super) callers: [Arc<Caller>; CALLERS],
    pub(super) calls: [u8; CALLERS],
    /// The number of requests that each caller has sent. It numbers the requests and seeds their random numbers.
    pub(super) sent: [u8; CALLERS],
    pub(super) messages: Vec<Arc<Message>>,
    pub(super) landing: Option<Box<Landing>>,
    /// The transactions that DynamoDB has accepted. It recognises a copy of them.
    pub(super) accepted: Vec<TransactionId>,
    pub(super) line: Line,
    pub(super) duplicates: u8,
    pub(super) conflicts: u8,
    pub(super) crashes: u8,
    pub(super) broken: Option<&'static str>,
}

impl Hash for State {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        let Self { now, rows, callers, calls, sent, messages, landing, accepted, .. } = self;
        let Self { line, duplicates, conflicts, crashes, broken, .. } = self;
        (now, calls, sent, line, duplicates, conflicts, crashes, broken).hash(hasher);
        for row in rows {
            (row.print, row.largest_token).hash(hasher);
        }
        for caller in callers {
            match &**caller {
                Caller::Idle => 0.hash(hasher),
                Caller::Calling { call, waits_for, print, .. } => (1, call, waits_for, print).hash(hasher),
                Caller::Holding(holdings) => (2, print_of(holdings)).hash(hasher),
            }
        }
        let mut prints: Vec<_> =
            messages.iter().map(|message| (message.caller, message.number, message.print)).collect();
        prints.sort_unstable();
        prints.hash(hasher);
        let landing = landing.as_deref().map(|Landing { message, left, heard }| {
            let left: Vec<usize> = left.iter().map(|request| position(&request.key)).collect();
            (message.number, message.print, left, heard)
        });
        landing.hash(hasher);
        print_of(accepted).hash(hasher);
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
    pub(super) fn new() -> Self {
        Self {
            now: 0,
            rows: Default::default(),
            callers: [(); CALLERS].map(|()| Arc::new(Caller::Idle)),
            calls: [0; CALLERS],
            sent: [0; CALLERS],
            messages: Vec::new(),
            landing: None,
            accepted: Vec::new(),
            line: Line::default(),
            duplicates: 0,
            conflicts: 0,
            crashes: 0,
            broken: None,
        }
    }

    /// What a caller does. It is idle from here on.
    pub(super) fn take(&mut self, caller: usize) -> Caller {
        Arc::unwrap_or_clone(std::mem::replace(&mut self.callers[caller], Arc::new(Caller::Idle)))
    }

    pub(super) fn set(&mut self, caller: usize, to: Caller) {
        self.callers[caller] = Arc::new(to);
    }

    pub(super) fn row_mut(&mut self, key: &LockKey) -> &mut Row {
        Arc::make_mut(&mut self.rows[position(key)])
    }

    /// The locks that the caller relies on now.
    pub(super) fn relies_on(&self, caller: usize) -> &[Holding] {
        let held = match &*self.callers[caller] {
            Caller::Holding(held) => held,
            // A renewal does not change the guard until its response arrives.
            Caller::Calling { call: Call::Renew, held, .. } => held,
            _ => return &[],
        };
        let now = instants(caller, self.now);
        if held.iter().any(|holding| holding.validity.remaining(now).is_zero()) { &[] } else { held }
    }

    /// Whether the guard is valid now.
    pub(super) fn says_mine(&self, caller: usize) -> bool {
        !self.relies_on(caller).is_empty()
    }

    /// Whether its caller still waits for the response to this request.
    pub(super) fn waits_for(&self, message: &Message) -> bool {
        matches!(&*self.callers[message.caller],
            Caller::Calling { waits_for: WaitsFor::Answer(number), .. } if *number == message.number)
    }

    pub(super) fn row(&self, key: &LockKey) -> &Row {
        &self.rows[position(key)]
    }

    pub(super) fn is_held_by(&self, holding: &Holding) -> bool {
        let row = self.row(&holding.key);
        row.is_held_by(&holding.newest.grant.first_version()[..37]) && row.token() == holding.token
    }

    /// Whether DynamoDB has accepted a copy of this transaction.
    pub(super) fn has_accepted(&self, sent: &Sent) -> bool {
        match sent {
            Sent::Transaction(requests) => {
                requests.iter().any(|request| request.transaction.as_ref().is_some_and(|id| self.accepted.contains(id)))
            }
            Sent::Write(_) | Sent::Read(_) | Sent::ReadAll(_) => false,
        }
    }

    /// Whether a transaction is about to write this row.
    pub(super) fn is_taken(&self, key: &LockKey) -> bool {
        self.landing.as_ref().is_some_and(|landing| of(&landing.message).any(|taken| taken == key))
    }

    pub(super) fn breaks(&mut self, what: &'static str) {
        self.broken.get_or_insert(what);
    }
}

/// The position of a key.
pub(super) fn position(key: &LockKey) -> usize {
    KEYS.iter().position(|known| *known == key.key()).unwrap_or_default()
}

/// The keys of a transaction.
fn of(message: &Message) -> impl Iterator<Item = &LockKey> {
    let requests = match &message.sent {
        Sent::Transaction(requests) => requests.as_slice(),
        Sent::Write(_) | Sent::Read(_) | Sent::ReadAll(_) => &[],
    };
    requests.iter().map(|request| &request.key)
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
