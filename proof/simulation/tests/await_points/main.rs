//! Every call is cut at every point where it waits. The call's future is dropped there, as by a crash or a
//! cancellation. Each of its requests is lost before or after it was applied, or arrives after the end.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a helper of a test may stop it")]

mod commits;
mod works;
mod world;

use lambda_lock::{Error, Lock, ReleaseOutcome, Tried};
use lambda_lock_protocol::Version;
use std::time::Duration;
use world::{Arrival, Fault, Shared, drive, faults};

const LEASE: Duration = Duration::from_secs(10);
/// After this time anybody may acquire the lock of a caller that was cut: its lease, and a little more than
/// `max_clock_skew`.
const OVER: Duration = Duration::from_millis(12_001);

fn acquired(shared: &Shared, owner: &str) -> Lock {
    let answer = drive(shared, async { shared.locks(owner).acquire("k").lease(LEASE).try_once().await });
    match answer {
        Some(Ok(Tried::Granted(lock))) => lock,
        other => panic!("{owner}: {other:?}"),
    }
}

/// What the caller learnt. It learns nothing if its call was dropped or if no response arrives any more. A call
/// recovers from one lost message, and never reports a held lock as lost.
fn learnt<T>(fault: Fault, answer: Option<Result<T, Error>>) -> Option<T> {
    match answer? {
        Ok(answer) => Some(answer),
        Err(error) if fault.for_good && error.is_unknown() => None,
        Err(error) => panic!("{fault:?}: {error}"),
    }
}

/// The row agrees with this guard, and nobody else can acquire the lock.
fn is_held_by(guard: &Lock, shared: &Shared, what: &str) {
    assert!(!guard.remaining().is_zero(), "{what}");
    let (version, token) = shared.held().unwrap_or_else(|| panic!("{what}: the guard is valid, but the row is free"));
    assert_eq!(token, guard.fencing_token(), "{what}");
    assert_eq!(Version::parse(guard.to_saved().version()).unwrap().grant, version.grant, "{what}");
    let other = drive(shared, async { shared.locks("other").acquire("k").lease(LEASE).try_once().await });
    assert!(matches!(other, Some(Ok(Tried::Refused(_)))), "{what}: {other:?}");
}

/// What must hold after any fault, whatever the call returned. `tokens`: the largest token so far.
fn ends_well(shared: &Shared, guard: Option<&Lock>, tokens: u64, what: &str) {
    shared.fails(Fault::default());
    if let Some(guard) = guard {
        is_held_by(guard, shared, what);
    }
    // Everything that was left behind ends with its lease, like the lease of a dead holder.
    shared.world().now += OVER;
    let next = drive(shared, async { shared.locks("next").acquire("k").lease(LEASE).try_once().await });
    let Some(Ok(Tried::Granted(next))) = next else { panic!("{what}: the lock is still held: {next:?}") };
    assert!(next.fencing_token() > tokens, "{what}: {} after {tokens}", next.fencing_token());
    assert!(guard.is_none_or(|guard| guard.remaining().is_zero()), "{what}");
    let written = shared.world().written;
    shared.arrives(Arrival::UnderAnother);
    is_held_by(&next, shared, what);
    drive(shared, next.release().into_future()).unwrap().unwrap();
    shared.arrives(Arrival::AfterAnother);
    assert_eq!(shared.held(), None, "{what}: a late request acquired the lock");
    assert_eq!(shared.world().written, written, "{what}: a late request applied a write");
}

#[test]
fn an_acquire_cut_anywhere_leaves_no_more_than_a_dead_holder() {
    // A new row, a released row, and a row of a dead holder.
    for (prepared, name) in [(0, "no row"), (1, "released"), (2, "dead")] {
        for fault in faults() {
            let shared = Shared::new();
            let mut tokens = 0;
            if prepared > 0 {
                let earlier = acquired(&shared, "earlier");
                tokens = earlier.fencing_token();
                match prepared {
                    1 => drop(drive(&shared, earlier.release().into_future())),
                    _ => shared.world().now += OVER,
                }
            }
            let what = format!("{name}, {fault:?}");
            shared.fails(fault);
            let locks = shared.locks("me");
            let answer = learnt(fault, drive(&shared, async { locks.acquire("k").lease(LEASE).try_once().await }));
            let guard = answer.map(|answer| {
                answer.granted().unwrap_or_else(|| panic!("{what}: held, although no other caller exists"))
            });
            assert!(guard.as_ref().is_none_or(|guard| guard.fencing_token() > tokens), "{what}");
            let tokens = guard.as_ref().map_or(tokens, Lock::fencing_token);
            ends_well(&shared, guard.as_ref(), tokens, &what);
        }
    }
}

#[test]
fn a_renewal_cut_anywhere_leaves_a_guard_that_agrees_with_the_row() {
    for fault in faults() {
        let shared = Shared::new();
        let mut lock = acquired(&shared, "me");
        shared.world().now += LEASE / 3;
        let before = lock.remaining();
        shared.fails(fault);
        let renewed = learnt(fault, drive(&shared, async { lock.checkpoint().await }));
        let what = format!("{fault:?}: {renewed:?}");
        match renewed {
            Some(()) => assert!(lock.remaining() > before, "{what}"),
            None => assert!(lock.remaining() <= before, "{what}: the guard was extended without a response"),
        }
        // The lock can still be used.
        shared.fails(Fault::default());
        drive(&shared, async { lock.checkpoint().await }).unwrap().unwrap();
        shared.arrives(Arrival::AfterRepetition);
        ends_well(&shared, Some(&lock), lock.fencing_token(), &what);
    }
}

#[test]
fn a_release_cut_anywhere_can_be_repeated_from_the_saved_lock_or_the_lease_ends() {
    for repeats in [true, false] {
        for fault in faults() {
            let shared = Shared::new();
            let lock = acquired(&shared, "me");
            let (token, fencing) = (lock.to_saved(), lock.fencing_token());
            shared.fails(fault);
            let released = learnt(fault, drive(&shared, lock.release().into_future()));
            let what = format!("{fault:?}: {released:?}");
            if let Some(outcome) = released {
                assert_eq!(outcome, ReleaseOutcome::Released, "{what}");
                assert_eq!(shared.held(), None, "{what}");
            }
            if repeats {
                shared.fails(Fault::default());
                let again = drive(&shared, shared.locks("me").release(token).into_future()).unwrap().unwrap();
                assert_eq!(again, ReleaseOutcome::Released, "{what}");
                shared.arrives(Arrival::AfterRepetition);
                assert_eq!(shared.held(), None, "{what}");
            }
            ends_well(&shared, None, fencing, &what);
        }
    }
}

#[test]
fn a_saved_lock_can_still_be_used_after_a_resume_or_reclaim_cut_anywhere() {
    for reclaims in [false, true] {
        for fault in faults() {
            let shared = Shared::new();
            let token = acquired(&shared, "me").save();
            let fencing = token.fencing_token();
            let locks = shared.locks("next state");
            let go_on = async |token| match reclaims {
                true => locks.reclaim(token).lease(LEASE).await,
                false => locks.resume(token).await,
            };
            shared.fails(fault);
            let taken = learnt(fault, drive(&shared, go_on(token.clone())));
            let what = format!("reclaims: {reclaims}, {fault:?}: {taken:?}");
            let guard = taken.unwrap_or_else(|| {
                shared.fails(Fault::default());
                // This also holds if the reclaim that was cut was applied, because the owner is the same.
                drive(&shared, go_on(token)).unwrap().unwrap_or_else(|error| panic!("{what}: then {error}"))
            });
            shared.arrives(Arrival::AfterRepetition);
            assert!(guard.fencing_token() > fencing || !reclaims, "{what}");
            ends_well(&shared, Some(&guard), guard.fencing_token(), &what);
        }
    }
}
