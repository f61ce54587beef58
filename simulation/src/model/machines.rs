//! The protocol's own machines, made anew from what they were told, as they cannot be copied.

use super::state::{Call, Input, print_of};
use super::{EPOCH, LEASE, REQUESTS, SETTINGS, TICK};
use lambda_lock::protocol::{
    AcquireVerdict, Acquisition, DataChange, Holding, LockKey, Machine, Moment, Reclaim, ReleaseVerdict, Releasing,
    RenewVerdict, Renewal, Request, Step, Tick, WallClock, Wanted,
};
use std::fmt::Debug;
use std::time::Duration;

/// The clocks of a caller: the second one's wall clock is half a tick ahead, the first one's half behind.
pub(super) fn moment(caller: usize, now: u8) -> Moment {
    let ticks = TICK * u32::from(now);
    let off = if caller == 0 { TICK / 2 } else { TICK * 3 / 2 };
    Moment { monotonic: ticks, wall: Duration::from_millis(EPOCH) + ticks + off }
}

fn wanted(caller: usize) -> Wanted {
    Wanted {
        key: LockKey::from("k"),
        owner: format!("caller {caller}"),
        workflow: None,
        data: DataChange::Keep,
        reclaim: Reclaim::Nobody,
        observation: None,
        commit: None,
    }
}

/// How a call went on.
pub(super) enum Next {
    Sends(Request),
    Pauses,
    Acquired(AcquireVerdict),
    Renewed(RenewVerdict),
    Released(ReleaseVerdict),
}

/// Makes a machine anew from what it was told, and answers what it does after that.
pub(super) fn replay(
    caller: usize,
    serial: u8,
    call: Call,
    held: Option<&Holding>,
    inputs: &[Input],
) -> (Next, u64, Option<Holding>) {
    match (call, held.cloned()) {
        (Call::Renew, Some(mut holding)) => {
            let (step, print) = drive(Renewal::new(&SETTINGS, &mut holding, DataChange::Keep), caller, serial, inputs);
            let print = print ^ print_of(&holding);
            (step.map_or_else(|other| other, Next::Renewed), print, Some(holding))
        }
        (Call::Release, Some(holding)) => {
            let (step, print) = drive(Releasing::mine(&SETTINGS, &holding), caller, serial, inputs);
            (step.map_or_else(|other| other, Next::Released), print, None)
        }
        _ => {
            let (step, print) = drive(Acquisition::new(&SETTINGS, wanted(caller)), caller, serial, inputs);
            (step.map_or_else(|other| other, Next::Acquired), print, None)
        }
    }
}

fn drive<M: Machine + Debug>(
    mut machine: M,
    caller: usize,
    serial: u8,
    inputs: &[Input],
) -> (Result<M::Verdict, Next>, u64) {
    let mut last = None;
    let mut requests = 0;
    for input in inputs {
        match input {
            Input::Answer(now, answer) => machine.answered(moment(caller, *now), answer.clone()),
            Input::Step(now) => {
                let now = moment(caller, *now);
                let left = if requests < REQUESTS { Duration::from_secs(10) } else { Duration::ZERO };
                let drawn = std::cell::Cell::new(0);
                let random = || {
                    drawn.set(drawn.get() + 1);
                    let mut bytes = [caller as u8 + 1; 16];
                    (bytes[0], bytes[1], bytes[2]) = (serial, requests as u8, drawn.get());
                    bytes
                };
                let tick = Tick {
                    now,
                    wall: WallClock {
                        millis: now.wall.as_millis() as u64,
                        written: now.wall.as_millis() as u64,
                        trusted: true,
                    },
                    wait_left: left,
                    time_left: left,
                    lease: LEASE,
                    latest_end: None,
                    random: &random,
                };
                let step = machine.step(&tick);
                requests += usize::from(matches!(step, Step::Send(_)));
                last = Some(step);
            }
        }
    }
    let print = print_of(&machine);
    let next = match last {
        Some(Step::Done(verdict)) => Ok(verdict),
        Some(Step::Send(request)) => Err(Next::Sends(request)),
        _ => Err(Next::Pauses),
    };
    (next, print)
}
