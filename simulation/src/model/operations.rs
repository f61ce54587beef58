//! Runs the protocol's own operations. A future cannot be copied, so an operation is started again with the same
//! inputs.

use super::state::{Call, Input, print_of};
use super::{EPOCH, LEASE, REQUESTS, SETTINGS, TICK};
use lambda_lock::protocol::{
    self, AcquireOptions, Acquired, AttributesChange, DataChange, Failure, Holding, Instants, LockKey, Now, Reclaim,
    ReleaseOptions, Released, Request, Step, Steps, WallClock,
};
use std::time::Duration;

/// The clocks of a caller. The second caller's wall clock is half a tick ahead, the first caller's half a tick behind.
pub(super) fn instants(caller: usize, now: u8) -> Instants {
    let ticks = TICK * u32::from(now);
    let off = if caller == 0 { TICK / 2 } else { TICK * 3 / 2 };
    Instants { monotonic: ticks, wall: Duration::from_millis(EPOCH) + ticks + off }
}

fn options(caller: usize) -> AcquireOptions {
    AcquireOptions {
        key: LockKey::from("k"),
        owner: format!("caller {caller}"),
        workflow: None,
        data: DataChange::Keep,
        attributes: AttributesChange::default(),
        reclaim: Reclaim::Nobody,
        observation: None,
        commit: None,
    }
}

/// The next step of a call.
pub(super) enum Next {
    Sends(Request),
    Pauses,
    Acquired(Result<Acquired, Failure>),
    /// With what the holder knows afterwards.
    Renewed(Result<(), Failure>, Holding),
    Released(Result<Released, Failure>),
}

/// Starts an operation again with the inputs that it had, and returns its next step and a fingerprint. Two operations
/// with the same inputs have the same fingerprint.
pub(super) fn replay(caller: usize, serial: u8, call: Call, held: Option<&Holding>, inputs: &[Input]) -> (Next, u64) {
    let print = print_of(&(held, inputs));
    let steps = match (call, held.cloned()) {
        (Call::Renew, Some(mut holding)) => Steps::new(|mut port| async move {
            let renewed = protocol::renew(&mut port, &SETTINGS, &mut holding, &DataChange::Keep).await;
            Next::Renewed(renewed, holding)
        }),
        (Call::Release, Some(holding)) => Steps::new(|mut port| async move {
            Next::Released(protocol::release(&mut port, &SETTINGS, &holding, ReleaseOptions::default()).await)
        }),
        _ => Steps::new(move |mut port| async move {
            Next::Acquired(protocol::acquire(&mut port, &SETTINGS, options(caller)).await)
        }),
    };
    (drive(steps, caller, serial, inputs), print)
}

fn drive(mut steps: Steps<Next>, caller: usize, serial: u8, inputs: &[Input]) -> Next {
    let mut last = Next::Pauses;
    let mut requests = 0;
    for input in inputs {
        match input {
            Input::Answer(now, answer) => steps.answered(instants(caller, *now), answer.clone()),
            Input::Step(now) => {
                let now = instants(caller, *now);
                let left = if requests < REQUESTS { Duration::from_secs(10) } else { Duration::ZERO };
                let millis = now.wall.as_millis() as u64;
                let now = Now {
                    instants: now,
                    wall: WallClock { millis, written: millis, latest: millis, trusted: true },
                    wait_left: left,
                    time_left: left,
                    lease: LEASE,
                    latest_end: None,
                    server: None,
                };
                let mut drawn = 0;
                let random = move || {
                    drawn += 1;
                    let mut bytes = [caller as u8 + 1; 16];
                    (bytes[0], bytes[1], bytes[2]) = (serial, requests as u8, drawn);
                    bytes
                };
                last = match steps.step(now, random) {
                    Step::Send(request) => {
                        requests += 1;
                        Next::Sends(request)
                    }
                    Step::SendTogether(mut together) => {
                        requests += 1;
                        Next::Sends(together.remove(0))
                    }
                    Step::Wait(_) => Next::Pauses,
                    Step::ReadAll(_) => panic!("a single lock reads its own row only"),
                    Step::Done(next) => next,
                };
            }
        }
    }
    last
}
