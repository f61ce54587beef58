//! Runs the protocol's own operations. A future cannot be copied, so an operation is started again with the same
//! inputs.

use super::state::{Call, Input, KEYS, print_of};
use super::{Asking, EPOCH, LEASE, SETTINGS, TICK};
use lambda_lock_protocol::{
    self as protocol, AcquireAllOptions, AcquireOptions, Acquired, AcquiredAll, AttributesChange, DataChange,
    FailedAcquire, Failure, Holding, Instants, LockKey, Now, Queueing, Reclaim, ReleaseOptions, Released, Sent, Step,
    Steps, WallClock, WantedLock,
};
use std::time::Duration;

/// The clocks of a caller. The first caller's wall clock is half a tick behind, and those of the others half a tick ahead.
pub(super) fn instants(caller: usize, now: u8) -> Instants {
    let ticks = TICK * u32::from(now);
    let off = if caller == 0 { TICK / 2 } else { TICK * 3 / 2 };
    Instants { monotonic: ticks, wall: Duration::from_millis(EPOCH) + ticks + off }
}

fn options(asking: Asking, caller: usize, key: usize) -> AcquireOptions {
    AcquireOptions {
        key: LockKey::from(KEYS[key]),
        owner: owner(caller),
        workflow: None,
        data: DataChange::Keep,
        attributes: AttributesChange::default(),
        reclaim: Reclaim::Nobody,
        queueing: if asking == Asking::InLine { Queueing::AtOnce } else { Queueing::Ignored },
        observation: None,
        commit: None,
    }
}

fn options_for_all(caller: usize) -> AcquireAllOptions {
    let lock =
        |key: &str| WantedLock { key: LockKey::from(key), reclaim: Reclaim::Nobody, observation: None, commit: None };
    let locks = KEYS.iter().map(|key| lock(key)).collect();
    AcquireAllOptions { locks, owner: owner(caller), workflow: None, keeps_attributes: false }
}

pub(super) fn owner(caller: usize) -> String {
    format!("caller {caller}")
}

/// How the versions of the grant begin that this call of this caller asks for: see the random bytes in `drive`.
pub(super) fn grant_of(caller: usize, serial: u8) -> String {
    format!("ll1-{serial:02x}0001{:02x}", caller + 1)
}

/// The next step of a call.
pub(super) enum Next {
    Sends(Sent),
    Pauses,
    Acquired(Result<Acquired, Failure>),
    AcquiredAll(Result<AcquiredAll, FailedAcquire>),
    /// With what the holder knows afterwards.
    Renewed(Vec<Result<(), Failure>>, Vec<Holding>),
    Released(Vec<Result<Released, Failure>>),
}

/// Starts an operation again with the inputs that it had, and returns its next step and a fingerprint. Two operations
/// with the same inputs have the same fingerprint.
pub(super) fn replay(
    asking: Asking,
    caller: usize,
    serial: u8,
    call: Call,
    held: &[Holding],
    inputs: &[Input],
) -> (Next, u64) {
    let print = print_of(&(held, inputs));
    let mut held = held.to_vec();
    let steps = match call {
        Call::Acquire(key) => Steps::new(move |mut port| async move {
            Next::Acquired(protocol::acquire(&mut port, &SETTINGS, options(asking, caller, key)).await)
        }),
        Call::AcquireAll => Steps::new(move |mut port| async move {
            Next::AcquiredAll(protocol::acquire_all(&mut port, &SETTINGS, options_for_all(caller)).await)
        }),
        Call::Renew => Steps::new(|mut port| async move {
            let mut renewed = Vec::new();
            // One lost lock ends the guard. The leases free the others.
            for holding in &mut held {
                if !renewed.contains(&Err(Failure::Lost)) {
                    renewed.push(protocol::renew(&mut port, &SETTINGS, holding, &DataChange::Keep).await);
                }
            }
            Next::Renewed(renewed, held)
        }),
        Call::Release => Steps::new(|mut port| async move {
            let mut released = Vec::new();
            for holding in &held {
                released.push(protocol::release(&mut port, &SETTINGS, holding, ReleaseOptions::default()).await);
            }
            Next::Released(released)
        }),
    };
    (drive(steps, asking, caller, serial, inputs), print)
}

fn drive(mut steps: Steps<Next>, asking: Asking, caller: usize, serial: u8, inputs: &[Input]) -> Next {
    let mut last = Next::Pauses;
    let mut requests = 0;
    for input in inputs {
        match input {
            Input::Answer(now, answer) => steps.answered(instants(caller, *now), answer.clone()),
            Input::Step(now) => {
                let now = instants(caller, *now);
                let left = if requests < asking.requests() { Duration::from_secs(10) } else { Duration::ZERO };
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
                    Step::Send(sent) => Next::Sends(sent),
                    Step::Wait(_) => Next::Pauses,
                    Step::Done(next) => next,
                };
                if let Next::Sends(_) = last {
                    requests += 1;
                }
            }
        }
    }
    last
}
