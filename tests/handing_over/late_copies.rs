//! A network may deliver a request again, long after its sender has finished. After a lock was released, no copy
//! of a request of its holder acquires it again. This holds for every way to release it, and for every clock.

use crate::LEASE;
use lambda_lock::{Lock, ReleaseOutcome, SavedLock};
use lambda_lock_testkit::{Fault, Process, Sent, Table, acquired, case, granted, millis, secs};
use tokio::time::{Instant, sleep};

const WORKFLOW: &str = "arn:aws:states:eu-central-1:123456789012:execution:orders:1";
/// The owner of the lock, in all of its grants.
const OWNER: &str = "one task";

/// What happened before the lock is released.
#[derive(Clone, Copy, Debug)]
enum Before {
    /// The lock was acquired with one request.
    Acquired,
    /// The second attempt of the acquire was sent and never arrived. The first one was applied late.
    AcquiredByAnEarlierAttempt,
    /// As before, and the lock was renewed since.
    AcquiredByAnEarlierAttemptAndRenewed,
    /// The same owner had an earlier grant and released it.
    AcquiredAgain,
}

/// Who releases the lock, and how.
#[derive(Clone, Copy, Debug)]
enum GivenBack {
    ByItsGuard,
    WithACommit,
    /// Another process releases it from the saved lock.
    FromItsToken,
    /// Another process releases it from a saved lock of an earlier grant of the same owner.
    FromAnEarlierToken,
    ByCleaningUpItsWorkflow,
}

impl GivenBack {
    /// Returns whether this release can know of all requests that were sent for the lock.
    fn knows_of(self, before: Before) -> bool {
        match (self, before) {
            (GivenBack::FromAnEarlierToken, before) => matches!(before, Before::AcquiredAgain),
            // The attempt that never arrived is not visible in the row.
            (GivenBack::ByCleaningUpItsWorkflow, Before::AcquiredByAnEarlierAttempt) => false,
            _ => true,
        }
    }
}

/// A process whose clock is not corrected.
fn process(table: &Table) -> Process {
    let process = table.process();
    process.set_date_offset(None);
    process
}

async fn granted_to_owner(process: &Process) -> Lock {
    let locks = process.locks("client");
    granted(locks.acquire("k").lease(LEASE).owner(OWNER).workflow(WORKFLOW).try_once()).await
}

/// Returns a lock with this history, and the saved lock of the grant before it.
async fn held(process: &Process, before: Before) -> (Lock, Option<SavedLock>) {
    match before {
        Before::Acquired => (granted_to_owner(process).await, None),
        Before::AcquiredByAnEarlierAttempt | Before::AcquiredByAnEarlierAttemptAndRenewed => {
            process.next([Fault::ArrivesLate(millis(1500)), Fault::None, Fault::BlackHole]);
            let mut lock = granted_to_owner(process).await;
            let operations: Vec<String> = process.sent().into_iter().map(|sent| sent.operation).collect();
            assert_eq!(operations, ["UpdateItem", "GetItem", "UpdateItem", "GetItem"]);
            if matches!(before, Before::AcquiredByAnEarlierAttemptAndRenewed) {
                lock.checkpoint().await.unwrap();
            }
            (lock, None)
        }
        Before::AcquiredAgain => {
            let first = granted_to_owner(process).await;
            let token = first.to_saved();
            first.release().await.unwrap();
            sleep(millis(100)).await;
            (granted_to_owner(process).await, Some(token))
        }
    }
}

async fn give_back(how: GivenBack, lock: Lock, earlier: Option<SavedLock>, by: &Process) {
    let locks = by.locks("client");
    let released = match how {
        GivenBack::ByItsGuard => lock.release().await,
        GivenBack::WithACommit => lock.commit_and_release([]).await.map(|()| ReleaseOutcome::Released),
        GivenBack::FromItsToken => locks.release(lock.save()).await,
        GivenBack::FromAnEarlierToken => {
            let _ = lock.save();
            locks.release(earlier.unwrap()).or_later_grant_of_owner().await
        }
        GivenBack::ByCleaningUpItsWorkflow => {
            let _ = lock.save();
            locks.release_workflow("k", WORKFLOW).await
        }
    };
    assert_eq!(released.unwrap(), ReleaseOutcome::Released, "{how:?}");
}

#[tokio::test(start_paused = true)]
async fn after_a_release_no_copy_of_an_earlier_request_takes_the_lock_again() {
    use {Before::*, GivenBack::*};
    for before in [Acquired, AcquiredByAnEarlierAttempt, AcquiredByAnEarlierAttemptAndRenewed, AcquiredAgain] {
        for how in [ByItsGuard, WithACommit, FromItsToken, FromAnEarlierToken, ByCleaningUpItsWorkflow] {
            // The releasing process has the right time, or its clock is a minute behind.
            for behind in [0, 60_000] {
                if !how.knows_of(before) {
                    continue;
                }
                let _case = case(format!("{before:?}, {how:?}, {behind} ms behind"));
                let table = Table::new();
                let (holder, other) = (process(&table), process(&table));
                let (lock, earlier) = held(&holder, before).await;
                let by = if matches!(how, ByItsGuard | WithACommit) { &holder } else { &other };
                by.clock.jump_wall(-behind);

                give_back(how, lock, earlier, by).await;

                let free = table.row("k").unwrap();
                assert_eq!(free["isReleased"]["S"], "1");
                let sent: Vec<Sent> = holder.take_sent().into_iter().chain(other.take_sent()).collect();
                assert!(sent.len() >= 2);
                for copy in sent {
                    table.replay(&copy);
                    assert_eq!(table.row("k").unwrap(), free, "applied again: {copy:?}");
                }
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn after_an_acquire_was_given_up_no_copy_of_its_attempts_takes_the_lock() {
    // Which attempt was applied without a response, until the time is over.
    let scripts: [(&str, Vec<Fault>); 3] = [
        ("the first", vec![Fault::NeverAnswers, Fault::BlackHole, Fault::BlackHole]),
        ("the second", vec![Fault::RequestLost, Fault::None, Fault::NeverAnswers, Fault::BlackHole, Fault::BlackHole]),
        (
            "the first, after the second was sent",
            vec![Fault::ArrivesLate(millis(1500)), Fault::None, Fault::BlackHole, Fault::BlackHole],
        ),
    ];
    for (applied, script) in scripts {
        for behind in [0, 60_000] {
            let _case = case(format!("{applied} was applied, the clock is {behind} ms behind"));
            let table = Table::new();
            let process = process(&table);
            // The row exists already, because a missing row refuses no Claim.
            granted_to_owner(&process).await.release().await.unwrap();
            sleep(millis(100)).await;
            process.take_sent();
            process.next(script.clone());
            let clock = process.clock.clone();
            let set_back = tokio::spawn(async move {
                sleep(millis(1800)).await;
                clock.jump_wall(-behind);
            });
            let started = Instant::now();

            let error = process.locks("client").acquire("k").lease(LEASE).try_once().await.unwrap_err();

            assert!(error.is_unknown(), "{error}");
            assert!(started.elapsed() <= millis(3_250), "{:?}", started.elapsed());

            set_back.await.unwrap();
            process.clear();
            let free = table.row("k").unwrap();
            assert_eq!(free.get("isReleased").map(|mark| &mark["S"]), Some(&"1".into()), "{free}");
            for copy in process.take_sent() {
                table.replay(&copy);
                assert_eq!(table.row("k").unwrap(), free, "applied again: {copy:?}");
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_late_copy_of_a_takeover_is_refused_after_the_holder_has_released() {
    let table = Table::new();
    let (one, two) = (table.process(), table.process());
    let holder = acquired(&one.locks("one"), secs(3)).await;
    let token = holder.to_saved();
    sleep(secs(10)).await;
    // The holder is observed for a whole lease and taken over. The request takes long.
    let locks = two.builder().without_wall_clock_takeover().build().unwrap();
    let seen = locks.acquire("k").lease(LEASE).try_once().await.unwrap().refused().unwrap().observation.clone();
    two.next([Fault::None, Fault::ArrivesLate(secs(30)), Fault::BlackHole, Fault::BlackHole]);

    let tried = locks.acquire("k").lease(LEASE).observation(seen.and_waited(secs(10))).try_once().await;
    assert!(tried.unwrap_err().is_unknown());

    holder.release().await.unwrap();
    let released = table.row("k");
    sleep(secs(40)).await;

    assert_eq!(table.row("k"), released, "granted to a call that has ended");
    assert_eq!(token.fencing_token().to_string(), table.attribute("k", "fencingToken").unwrap());
}
