//! Clocks of three parties that share a key: state machines without a function, whose clock is wrong, and `lock-task` and a
//! caller of the crate, whose clocks are right. As long as no two of them differ by more than the allowed skew, nobody gets
//! a lock before the lease of its holder has ended. Clocks that differ by more can give a lock to two, of which the fence
//! lets one write.

use super::{document, machine, options, scene};
use crate::scene::{LEASE, PATIENCE, Scene, definition};
use lambda_lock::{Budget, Lock};
use lambda_lock_asl::Options;
use lambda_lock_local::states::{Before, Definition, Execution, Held, Instead};
use serde_json::{Value, json};
use std::time::{Duration, SystemTime};

/// Less than the allowed skew in the tests, which is 300 ms.
const LITTLE: i64 = 250;
/// How long before the end of a lease the next party sets out.
const COMES_EARLY: Duration = Duration::from_millis(LITTLE as u64);
/// More than the allowed skew.
const MUCH: i64 = 1_500;

/// The same state machine where Step Functions has another clock.
fn with_clock(machine: Definition, ahead_millis: i64) -> Definition {
    machine.replacing("$millis()", &format!("($millis() + {ahead_millis})"))
}

/// The time of the right clock when one that is ahead by this much shows `shown`.
fn by_the_right_clock(shown: SystemTime, ahead_millis: i64) -> SystemTime {
    let by = Duration::from_millis(ahead_millis.unsigned_abs());
    if ahead_millis < 0 { shown + by } else { shown - by }
}

/// An execution that is at work in its first step.
struct AtWork {
    execution: Execution,
    held: Held,
    /// When its lease began and ends by the right clock: from then on others may have the lock.
    granted: SystemTime,
    ends: SystemTime,
}

impl AtWork {
    /// Executes the sample with this clock until it has the lock and has begun its first step, which is held back.
    async fn begun(scene: &Scene, name: &str, ahead_millis: i64, key: &str) -> Self {
        Self::begun_by(scene, name, &with_clock(machine(), ahead_millis), ahead_millis, key).await
    }

    /// The same for a state machine whose rows have the time of a clock that is ahead by this much.
    async fn begun_by(scene: &Scene, name: &str, machine: &Definition, ahead_millis: i64, key: &str) -> Self {
        let of_execution = format!(":{name}");
        let of_step = move |_: &str, request: &Value| {
            request["step"] == "read"
                && request["writer"].as_str().is_some_and(|writer| writer.ends_with(&of_execution))
        };
        let mut held = scene.router.hold(Before::Request, of_step);
        let execution = scene.engine.execute(name, machine, &json!({ "key": key })).await.unwrap();
        held.until(1).await;
        let ends = by_the_right_clock(scene.lock(key).await.lease_ends_at.unwrap(), ahead_millis);
        Self { execution, held, granted: ends - LEASE, ends }
    }

    /// Lets it go on, and returns the name of its error if it fails.
    async fn ended(self, scene: &Scene) -> Option<String> {
        drop(self.held);
        let end = scene.engine.until_end(&self.execution, PATIENCE).await.unwrap();
        end.error.filter(|_| end.status != "SUCCEEDED")
    }
}

/// Who holds a lock and does not release it.
#[derive(Clone, Copy, Debug)]
enum Party {
    /// A state machine without a function, whose clock is ahead by so many milliseconds.
    Machine(i64),
    LockTask,
    Crate,
}

/// These parties get a lock one after the other, each from one that keeps it. In the end everybody but the last one has
/// lost it.
async fn one_after_the_other(scene: &Scene, parties: Vec<Party>) {
    let key = &format!("{parties:?}").replace(|c: char| !c.is_ascii_alphanumeric() && c != '-', "");
    let (mut executions, mut before): (Vec<AtWork>, Option<SystemTime>) = (Vec::new(), None);
    for (number, party) in parties.iter().enumerate() {
        let name = &format!("{key}-{number}");
        if let Some(before) = before {
            // Its first request comes when one of the clocks already shows the end, and the right one does not.
            let until = (before - COMES_EARLY).duration_since(SystemTime::now()).unwrap_or_default();
            tokio::time::sleep(until).await;
        }
        let (granted, ends) = if let Party::Crate = party {
            let lock = acquired(scene, key).await;
            (SystemTime::now(), lock.lease_ends_at().unwrap())
        } else {
            let at_work = match *party {
                Party::Machine(ahead) => AtWork::begun(scene, name, ahead, key).await,
                _ => AtWork::begun_by(scene, name, &definition("exclusive-work"), 0, key).await,
            };
            let times = (at_work.granted, at_work.ends);
            executions.push(at_work);
            times
        };
        if let Some(before) = before {
            assert!(granted >= before, "{name}, {party:?}: {:?} early", before.duration_since(granted));
        }
        before = Some(ends);
    }
    let last = executions.pop().unwrap();
    for before in executions {
        assert!(before.ended(scene).await.is_some(), "{key}: it has lost the lock");
    }
    // Its step may fail because processors are busy.
    assert_ne!(last.ended(scene).await.as_deref(), Some("LockLost"), "{key}");
    assert!(scene.counter(key).await.0 <= 1, "{key}");
}

async fn acquired(scene: &Scene, key: &str) -> Lock {
    let budget = Budget::lasting(PATIENCE).reserve(Duration::ZERO);
    scene.locks().acquire(key).lease(LEASE).within(&budget).await.unwrap()
}

#[tokio::test]
async fn clocks_that_differ_by_less_than_the_skew_give_no_lock_to_two() {
    use Party::{Crate, LockTask, Machine};
    let Some(scene) = scene().await else { return };
    let (scene, ahead, behind) = (&scene, Machine(LITTLE), Machine(-LITTLE));
    // Together they differ by less than the skew.
    let both = vec![Machine(-LITTLE / 2), Machine(LITTLE / 2), Machine(-LITTLE / 2)];
    // Nobody is late because a process has to start.
    let warm_up = || scene.warm_up();
    tokio::join!(warm_up(), warm_up(), warm_up(), warm_up());
    tokio::join!(
        one_after_the_other(scene, vec![ahead, LockTask, Crate, ahead]),
        one_after_the_other(scene, vec![ahead, Crate, LockTask, ahead]),
        one_after_the_other(scene, vec![behind, LockTask, Crate, behind]),
        one_after_the_other(scene, vec![behind, Crate, LockTask, behind]),
        one_after_the_other(scene, both),
    );
}

#[tokio::test]
async fn a_clock_that_is_further_ahead_takes_a_lock_too_early_and_the_fence_refuses_the_earlier_holder() {
    let Some(scene) = scene().await else { return };
    let mut lock = acquired(&scene, "k").await;
    let (token, ends) = (lock.fencing_token(), lock.lease_ends_at().unwrap());

    // So far that its first look finds the holder dead.
    let next = AtWork::begun(&scene, "next", LEASE.as_millis() as i64, "k").await;

    assert!(next.granted < ends, "this is what the skew has to rule out");
    assert!(scene.lock("k").await.fencing_token > Some(token));
    let execution = next.execution.clone();
    assert_eq!(next.ended(&scene).await, None);
    assert!(lock.checkpoint().await.unwrap_err().is_lost(), "the earlier holder is told, should it ask");
    let late = json!({ "step": "add", "counter": "k", "fencingToken": token, "writer": "the crate" });
    assert_eq!(scene.sample.ask("sample-work", &late).await.unwrap_err().0, "LockLost");
    assert_eq!(scene.counter("k").await, (1, [execution.arn].into()));
}

#[tokio::test]
async fn a_clock_that_is_further_behind_loses_its_lock_too_early_and_learns_it_from_its_renewal() {
    let Some(scene) = scene().await else { return };
    let holder = AtWork::begun(&scene, "holds", -MUCH, "k").await;

    let lock = acquired(&scene, "k").await;

    assert!(SystemTime::now() < holder.ends, "this is what the skew has to rule out");
    assert_eq!(holder.ended(&scene).await.as_deref(), Some("LockLost"));
    let row = scene.lock("k").await;
    assert_eq!((row.released, row.fencing_token), (false, Some(lock.fencing_token())), "it must not release this lock");
    assert_eq!(scene.counter("k").await.0, 0);
}

/// The state that waits for the end of the lease has another clock than what wrote it.
#[tokio::test]
async fn a_lock_that_is_left_to_its_lease_is_kept_by_a_clock_that_is_ahead() {
    let Some(scene) = scene().await else { return };
    scene.router.instead(|function, _| (function == "sample-work").then_some(Instead::Failure("Sandbox.Timedout")));
    // As in the definitions with lock-task.
    let skew = Duration::from_secs(2);
    let without_lock_task = Definition::new(document(&Options { max_clock_skew: skew, ..options() }));
    let with_lock_task = definition("exclusive-work");
    let left = async |key: &str, machine: &Definition, ahead: i64| {
        let mut document = machine.document().clone();
        let waiting = &mut document["States"]["LeftToItsLease"];
        *waiting = with_clock(Definition::new(waiting.take()), ahead).document().clone();
        let execution = scene.engine.execute(key, &Definition::new(document), &json!({ "key": key })).await.unwrap();
        let end = scene.engine.until_end(&execution, PATIENCE).await.unwrap();
        assert_eq!(end.error.as_deref(), Some("Sandbox.Timedout"), "{key}: {end:?}");
        let row = scene.lock(key).await;
        let is_over = SystemTime::now() >= row.lease_ends_at.unwrap();
        assert!(!row.released && is_over, "{key}: lock-cleaner would release it too early");
    };
    tokio::join!(
        left("with", &with_lock_task, MUCH),
        left("without", &without_lock_task, MUCH),
        left("behind", &without_lock_task, -MUCH),
    );
}
