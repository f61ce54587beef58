//! What an operation needs of the world: clocks, randomness, time to pass, and a way to send a request.
//!
//! An operation is an `async` function over a [`Port`]. The client of this crate implements it on the SDK and awaits
//! the operation. Whoever cannot await drives it by [steps](super::Steps).

use super::instants::Instants;
use super::request::Request;
use super::value::Item;
use std::future::Future;
use std::time::Duration;

/// The world, as an operation sees it.
pub trait Port: Send {
    /// Reads the clocks, and what is left of the caller's time.
    fn now(&mut self) -> Now;

    /// Draws random bytes.
    fn random(&mut self) -> [u8; 16];

    /// Sends a request, once. Returns what came back, and both clocks as they were read after that.
    fn send(&mut self, request: Request) -> impl Future<Output = (Instants, Answer)> + Send;

    /// Lets time pass.
    fn sleep(&mut self, pause: Duration) -> impl Future<Output = ()> + Send;

    /// Draws the random digits of a stamp.
    fn random_u16(&mut self) -> u16 {
        let bytes = self.random();
        u16::from_le_bytes([bytes[0], bytes[1]])
    }

    /// Draws a fraction in `0..1`, in 2³² steps.
    fn random_fraction(&mut self) -> f64 {
        let bytes = self.random();
        f64::from(u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])) / f64::from(u32::MAX)
    }
}

/// The clocks at one moment, and what is left of the caller's time.
#[derive(Clone, Copy, Debug, Default)]
pub struct Now {
    /// Both clocks, read before anything else.
    pub instants: Instants,
    /// The wall clock, read after `moment`, corrected where the server showed that it is wrong.
    pub wall: WallClock,
    /// How much longer the caller wants to wait for somebody else's lock.
    pub wait_left: Duration,
    /// How much longer the caller can wait for an answer at all, faults included.
    pub time_left: Duration,
    /// The lease that a new grant, or a renewal, asks for.
    pub lease: Duration,
    /// Renewals do not push the lease's end beyond this epoch millisecond.
    pub latest_end: Option<u64>,
}

/// A wall clock and whether it may be used against others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
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

/// What came back for a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The write was applied; the attributes that it was asked to return.
    Applied(Item),
    /// The condition did not hold; the row as it is, if there is one.
    ConditionFailed(Option<Item>),
    /// A read was answered; the row, if there is one.
    Found(Option<Item>),
    /// Not applied: the transaction was cancelled because of the caller's own writes.
    Cancelled(Vec<FailedWrite>),
    /// Not applied, and worth another try: throttled, or another transaction holds the row.
    Throttled,
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
