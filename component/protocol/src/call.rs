//! One call that the host drives: clocks and responses go in, requests and pauses come out.

use crate::bindings::exports::lambda_lock::lock::decisions::{self, Clocks, Next, Sending};
use crate::convert::millis;
use crate::request::{answer, read, rendered};
use crate::shared::Shared;
use lambda_lock_protocol::{
    Acquired, Failure, Instants, Now, Record, Released, Returns, Sent, Step, Steps, WallClock, millis_rounded_up,
};
use std::rc::Rc;
use std::time::Duration;

/// The number of random bytes that each step needs.
const RANDOM: usize = 32;
/// After the end of the caller's time, one last request may take this long: the request that releases what an acquire
/// of unknown outcome may have acquired.
const LAST_REQUEST: Duration = Duration::from_millis(250);
/// The number of request timeouts that a call may spend on faults.
const TIMEOUTS_PER_CALL: u32 = 3;
/// The host rounds its clocks down to milliseconds.
const ROUNDING: Duration = Duration::from_millis(1);

/// The caller's terms for the time of a call and for the lease.
pub(crate) struct Terms {
    pub(crate) wait: Duration,
    pub(crate) lease: Duration,
    pub(crate) latest_end: Option<u64>,
}

impl Terms {
    /// Terms of a call that neither waits for another holder nor needs a lease.
    pub(crate) fn none() -> Self {
        Self { wait: Duration::ZERO, lease: Duration::ZERO, latest_end: None }
    }
}

/// The result of an operation.
pub(crate) enum Ended {
    Acquired(Result<Acquired, Failure>),
    Renewed(Result<(), Failure>),
    Released(Result<Released, Failure>),
    Peeked(Result<Option<Record>, Failure>),
}

pub(crate) struct Call {
    shared: Rc<Shared>,
    steps: Steps<Ended>,
    terms: Terms,
    started: Option<Instants>,
    returns: Returns,
    end: End,
}

/// The state of a call.
enum End {
    Open,
    Reached(Ended),
    /// The host gave too few random bytes.
    Random(usize),
    Taken,
}

/// Why there is no verdict.
pub(crate) enum NoVerdict {
    Open,
    Random(usize),
    Taken,
}

impl Call {
    pub(crate) fn new(shared: Rc<Shared>, steps: Steps<Ended>, terms: Terms) -> Self {
        Self { shared, steps, terms, started: None, returns: Returns::Nothing, end: End::Open }
    }

    pub(crate) fn step(&mut self, now: Clocks, random: &[u8]) -> Next {
        if !matches!(self.end, End::Open) {
            return Next::Done;
        }
        if random.len() < RANDOM {
            self.end = End::Random(random.len());
            return Next::Done;
        }
        let instants = instants(&now);
        let passed = instants.longest_since(*self.started.get_or_insert(instants));
        let answers = self.terms.wait.max(self.shared.request_timeout * TIMEOUTS_PER_CALL);
        let time_left = answers.saturating_sub(passed);
        let now = Now {
            instants,
            wall: WallClock { millis: now.wall, written: now.wall, latest: now.wall, trusted: now.wall_is_right },
            wait_left: self.terms.wait.saturating_sub(passed),
            time_left,
            lease: self.terms.lease,
            latest_end: self.terms.latest_end,
            server: None,
        };
        let mut random = Random { bytes: random.to_vec(), drawn: 0 };
        let step = self.steps.step(now, move || random.draw());
        match step {
            Step::Wait(pause) => Next::Wait(millis_rounded_up(pause)),
            Step::Done(verdict) => {
                self.end = End::Reached(verdict);
                Next::Done
            }
            Step::Send(sent) => {
                let (request, returns) = match sent {
                    Sent::Write(request) => rendered(&request, &self.shared),
                    Sent::Read(key) => (read(&key, &self.shared), Returns::Nothing),
                    // The calls of this world are about one lock each, and send nothing of the kind.
                    Sent::Transaction(_) | Sent::ReadAll(_) => {
                        self.end = End::Taken;
                        return Next::Done;
                    }
                };
                self.returns = returns;
                let patience = self.shared.request_timeout.min(time_left.max(LAST_REQUEST));
                Next::Send(Sending { request, patience: millis(patience) })
            }
        }
    }

    pub(crate) fn answered(&mut self, after: Clocks, given: decisions::Answer) {
        if matches!(self.end, End::Open) {
            // Rounded up, so that the observation does not begin before the response.
            self.steps.answered(latest_moment(&after), answer(given, self.returns));
        }
    }

    /// Returns the result of the call, once.
    pub(crate) fn verdict(&mut self) -> Result<Ended, NoVerdict> {
        match std::mem::replace(&mut self.end, End::Taken) {
            End::Reached(verdict) => Ok(verdict),
            End::Random(given) => Err(NoVerdict::Random(given)),
            End::Taken => Err(NoVerdict::Taken),
            End::Open => {
                self.end = End::Open;
                Err(NoVerdict::Open)
            }
        }
    }
}

pub(crate) fn instants(clocks: &Clocks) -> Instants {
    Instants { monotonic: Duration::from_millis(clocks.monotonic), wall: Duration::from_millis(clocks.wall) }
}

/// The clocks rounded up instead of down. The result is no earlier than the time at which they were read.
pub(crate) fn latest_moment(clocks: &Clocks) -> Instants {
    let Instants { monotonic, wall } = instants(clocks);
    Instants { monotonic: monotonic + ROUNDING, wall: wall + ROUNDING }
}

/// The host's random bytes, sixteen at a time. Draws after the second repeat the bytes. That is harmless: each step has
/// new ones, so no other copy of the grant draws them.
struct Random {
    bytes: Vec<u8>,
    drawn: usize,
}

impl Random {
    fn draw(&mut self) -> [u8; 16] {
        let from = self.drawn;
        self.drawn += 16;
        std::array::from_fn(|index| {
            self.bytes.get((from + index) % self.bytes.len().max(1)).copied().unwrap_or_default()
        })
    }
}
