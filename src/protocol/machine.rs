//! How a decision is driven: it says what to send, is told what came back, and says what comes next.

use super::moment::Moment;
use super::request::Request;
use super::value::Item;
use std::time::Duration;

/// A decision that is reached over several requests.
///
/// The driver calls [`step`](Machine::step) and carries the step out. After a [`Step::Send`] it
/// calls [`answered`](Machine::answered) with what came back, then `step` again; after a
/// [`Step::Wait`] it calls `step` once the time has passed.
pub trait Machine {
    /// What the decision ends with.
    type Verdict;

    /// What to do now. `tick.now` must have been read **before** `tick.wall`.
    fn step(&mut self, tick: &Tick<'_>) -> Step<Self::Verdict>;

    /// What came back for the request that was sent last. `after` was read after the answer arrived.
    fn answered(&mut self, after: Moment, answer: Answer);
}

/// What a machine wants its driver to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step<V> {
    /// Send this request, once.
    Send(Request),
    /// Let this much time pass.
    Wait(Duration),
    /// Nothing more: this is the verdict.
    Done(V),
}

/// The world at one step: clocks, what is left of the caller's time, and randomness.
pub struct Tick<'a> {
    /// Both clocks, read before anything else of this step.
    pub now: Moment,
    /// The wall clock, read after `now`, corrected where the server showed that it is wrong.
    pub wall: WallClock,
    /// How much longer the caller wants to wait for somebody else's lock.
    pub wait_left: Duration,
    /// How much longer the caller can wait for an answer at all, faults included.
    pub time_left: Duration,
    /// The lease that a new grant, or a renewal, shall ask for.
    pub lease: Duration,
    /// Renewals do not push the lease's end beyond this epoch millisecond.
    pub latest_end: Option<u64>,
    /// Fresh random bytes.
    pub random: &'a dyn Fn() -> [u8; 16],
}

/// A wall clock and whether it may be used against others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WallClock {
    /// Epoch milliseconds. No earlier than the end of a lease that the same client has released: within the
    /// same millisecond its next Claim would otherwise look like a delayed copy.
    pub millis: u64,
    /// What is written for others to compare their clocks with: `millis`, and never earlier than the local clock
    /// says. A correction that is wrong must not make a living holder look dead.
    pub written: u64,
    /// Whether another holder may be declared dead by it.
    pub trusted: bool,
}

impl Tick<'_> {
    /// Random digits for a stamp.
    pub(crate) fn random_u16(&self) -> u16 {
        let bytes = (self.random)();
        u16::from_le_bytes([bytes[0], bytes[1]])
    }

    /// A random fraction in `0..1`, in 2³² steps.
    pub(crate) fn random_fraction(&self) -> f64 {
        let bytes = (self.random)();
        f64::from(u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])) / f64::from(u32::MAX)
    }
}

/// What came back for a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The write was applied; the attributes that it was asked to return.
    Applied(Item),
    /// The condition did not hold; the row as it is, if there is one.
    Refused(Option<Item>),
    /// A read was answered; the row, if there is one.
    Found(Option<Item>),
    /// Not applied: the transaction was cancelled because of the caller's own writes.
    Cancelled(Vec<FailedWrite>),
    /// Not applied, and worth another try: throttled, or another transaction holds the row.
    Unavailable,
    /// Not applied, and another try would fail just the same.
    Rejected(Rejection),
    /// Nobody knows: no answer, a broken one, or a failure inside DynamoDB.
    Unknown,
}

/// One of the caller's writes that made DynamoDB cancel a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailedWrite {
    /// Its place among the caller's writes, from 0.
    pub index: usize,
    /// DynamoDB's code, such as `ConditionalCheckFailed`.
    pub code: String,
    /// What DynamoDB says about it.
    pub message: Option<String>,
}

/// Why DynamoDB will not take the request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Rejection {
    /// The request itself, or what it meets on the row, makes no sense to DynamoDB.
    Invalid(String),
    /// The table is missing, or has another key schema.
    Table(String),
    /// Credentials or permissions are missing.
    Denied(String),
}
