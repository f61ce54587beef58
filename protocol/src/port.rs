//! What an operation needs from outside: clocks, random numbers, pauses, and a way to send a request.
//!
//! An operation is an `async` function over a [`Port`]. The client of this crate implements the port on the SDK and
//! awaits the operation. A driver that cannot await runs it by [steps](super::Steps).

use super::clock_bounds::ClockBounds;
use super::instants::{Instants, millis_rounded_down, millis_rounded_up};
use super::key::LockKey;
use super::reply::{Reply, RowRead, Transacted, Written};
use super::request::Request;
use super::value::Item;
use std::time::Duration;

/// What an operation needs from outside.
///
/// Each request and each pause is given the reading of the clocks by which the operation has decided it: what it writes counts
/// from there, and it waits no longer than the caller's time that was left then.
pub trait Port: Send {
    /// Reads the clocks and the rest of the caller's time.
    fn now(&mut self) -> Now;

    /// Draws 16 random bytes.
    fn random(&mut self) -> [u8; 16];

    /// Sends a write that goes alone, once. Returns both clocks as they were read after the response.
    fn write(&mut self, now: &Now, request: Request) -> impl Future<Output = (Instants, Reply<Written>)> + Send;

    /// Sends a transaction once: these requests, which all have its id, with the caller's own writes.
    fn transact(
        &mut self,
        now: &Now,
        requests: Vec<Request>,
    ) -> impl Future<Output = (Instants, Reply<Transacted>)> + Send;

    /// Reads the row of this lock once.
    fn read(&mut self, now: &Now, key: LockKey) -> impl Future<Output = (Instants, Reply<Option<Item>>)> + Send;

    /// Reads the rows of these locks once: 100 at most, none of them twice. The reply is in their order.
    fn read_all(
        &mut self,
        now: &Now,
        keys: Vec<LockKey>,
    ) -> impl Future<Output = (Instants, Reply<Vec<RowRead>>)> + Send;

    /// Waits for this long.
    fn sleep(&mut self, now: &Now, pause: Duration) -> impl Future<Output = ()> + Send;

    /// Draws a random number, such as the random part of a stamp.
    fn random_u64(&mut self) -> u64 {
        u128::from_le_bytes(self.random()) as u64
    }

    /// Draws a fraction from 0 to 1, in 2³² steps.
    fn random_fraction(&mut self) -> f64 {
        let bytes = self.random();
        f64::from(u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])) / f64::from(u32::MAX)
    }
}

/// The clocks at one moment, and what is left of the caller's time.
#[derive(Clone, Copy, Debug, Default)]
pub struct Now {
    /// Both clocks, read before the wall clock below.
    pub instants: Instants,
    /// The wall clock, read after `instants`, and corrected where DynamoDB's clock showed that it is wrong.
    pub wall: WallClock,
    /// How much longer the caller waits for another holder's lock.
    pub wait_left: Duration,
    /// How much longer the caller waits for responses, retries included.
    pub time_left: Duration,
    /// The lease that a new grant or a renewal asks for.
    pub lease: Duration,
    /// Renewals do not extend the lease beyond this epoch millisecond.
    pub latest_end: Option<u64>,
    /// DynamoDB's clock in the last response of this call. `None` where the response did not show it.
    pub server: Option<ServerTime>,
}

/// DynamoDB's clock, as a response showed it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServerTime {
    /// Both clocks of this process, read before the request was sent.
    pub sent: Instants,
    /// Epoch milliseconds, rounded down to a second.
    pub millis: u64,
}

/// By how much DynamoDB's clock may be ahead of what a response shows.
const SERVER_TIME_MILLIS: u64 = 1000;

impl Now {
    /// Whether the last response proves that the wall clock showed `written` at `started` although DynamoDB's clock was
    /// ahead of that by more than the allowed skew.
    pub(super) fn found_behind(&self, started: Instants, written: u64, bounds: &ClockBounds) -> bool {
        let allowed = millis_rounded_up(self.instants.longest_since(started)).saturating_add(skew_millis(bounds));
        self.server.is_some_and(|server| server.millis > written.saturating_add(allowed))
    }

    /// How long after `started` a lease lasts that was written at `written`, as `ends_at_ms`.
    ///
    /// A wall clock that is behind writes an end that is too early. Others take the lock over when the allowed skew
    /// has passed since then. So a holder does not rely on its lease any longer, where DynamoDB's clock is as late as
    /// the last response allows. An allowed skew of less than a second does not cover the second to which a response
    /// is exact. Then this is too late by the rest of that second.
    pub(super) fn until_end(&self, started: Instants, written: u64, ends_at_ms: u64, bounds: &ClockBounds) -> Duration {
        let by_own_clock = ends_at_ms.saturating_sub(written);
        let by_dynamodb = self.server.map_or(u64::MAX, |server| {
            let since_started = millis_rounded_down(server.sent.shortest_since(started));
            let until_takeover = ends_at_ms.saturating_add(skew_millis(bounds).saturating_sub(SERVER_TIME_MILLIS));
            until_takeover.saturating_add(since_started).saturating_sub(server.millis)
        });
        Duration::from_millis(by_own_clock.min(by_dynamodb))
    }
}

/// By how much others allow for a difference of wall clocks. They may use the default where this client does not use
/// its wall clock against them.
fn skew_millis(bounds: &ClockBounds) -> u64 {
    millis_rounded_up(bounds.allowed_skew())
}

/// A reading of the wall clock, and whether it may prove that another holder is dead.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WallClock {
    /// Epoch milliseconds. Never earlier than the end of a lease that the same client has released. Otherwise a Claim
    /// within the same millisecond would look like a delayed copy.
    pub millis: u64,
    /// The time to write on a row, with which others compare their clocks: `millis`, but never earlier than the local
    /// clock. So a wrong correction cannot make a living holder look dead.
    pub written: u64,
    /// The time from which the end of a lease counts: `written`, but never earlier than the latest time that the last
    /// response allows. So a clock that is behind cannot make a living holder look dead either.
    pub latest: u64,
    /// Whether this clock may prove that another holder is dead.
    pub trusted: bool,
}

#[cfg(test)]
mod tests {
    use super::super::clock_bounds::DEFAULT_SKEW;
    use super::*;

    #[test]
    fn a_holder_whose_clock_is_behind_relies_on_its_lease_only_until_others_may_take_it() {
        let bounds = |skew| ClockBounds::default().with_max_clock_skew(Some(Duration::from_millis(skew)));
        // DynamoDB's clock was up to a second ahead of what it shows.
        let server = ServerTime { sent: Instants::default(), millis: 10_000 };
        let now = Now { server: Some(server), ..Now::default() };
        let left = |skew, ends| now.until_end(Instants::default(), 7_000, ends, &bounds(skew)).as_millis();
        // By its own clock, 4 s are left. Others take over at 11 s and the skew, when DynamoDB may be at 11 s already.
        assert_eq!([2_000, 1_500, 1_000].map(|skew| left(skew, 11_000)), [2_000, 1_500, 1_000]);
        // No skew of less than a second covers the second to which DynamoDB's clock is shown.
        assert_eq!([900, 0].map(|skew| left(skew, 11_000)), [1_000, 1_000]);
        // A client that does not use its wall clock against others does not know what they allow, and they may use the default.
        let without = ClockBounds::default().with_max_clock_skew(None);
        // By its own clock, which is far behind, 9 s are left.
        assert_eq!(now.until_end(Instants::default(), 2_000, 11_000, &without), DEFAULT_SKEW);
    }
}
