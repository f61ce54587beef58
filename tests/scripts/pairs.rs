//! Two faults in one call, and in two calls of one guard: each pair, and a sample of longer scripts. Nobody else has the lock, so
//! nothing may be said to be lost, and what is said of the outcome has to be true also when late copies have arrived.

use crate::{CALLS, Call, LEASE, conflict, started};
use lambda_lock::once::Started;
use lambda_lock::{CommitOutcome, Error, ErrorKind, ReleaseOutcome, Tried};
use lambda_lock_testkit::{Fault, Process, Table, acquired, case, counted, millis, secs};
use tokio::time::sleep;

/// Longer than the lease, and than DynamoDB recognises a transaction for.
const LATE: std::time::Duration = secs(11 * 60);

fn faults(call: Call) -> Vec<Fault> {
    let mut faults = vec![
        Fault::None,
        Fault::RequestLost,
        Fault::AnswerLost,
        Fault::NeverAnswers,
        Fault::BlackHole,
        Fault::ArrivesLate(secs(2)),
        Fault::ArrivesLate(secs(8 * 60)),
        Fault::ArrivesTwice(millis(300)),
        Fault::ArrivesTwice(secs(8 * 60)),
        Fault::Slow(millis(900)),
        Fault::failure_after_apply(),
        Fault::throttled(),
        conflict(call),
    ];
    if call.is_transaction() {
        faults.push(Fault::Limbo);
    }
    faults
}

/// What the call said of its outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Said {
    Applied,
    NotApplied,
    Unknown,
}

fn said(answer: &Result<(), Error>) -> Said {
    match answer.as_ref().map_err(Error::kind) {
        Ok(()) => Said::Applied,
        Err(ErrorKind::Unavailable) => Said::NotApplied,
        Err(ErrorKind::Unknown) => Said::Unknown,
        Err(_) => panic!("{answer:?}"),
    }
}

/// What became of the call, by its rows and by what the next caller is told.
async fn assert_true(call: Call, said: Said, table: &Table) {
    let effects = table.attribute("effect", "applied");
    match said {
        _ if !call.is_transaction() => {}
        Said::Applied => assert_eq!(effects.as_deref(), Some("1")),
        Said::NotApplied => assert_eq!(effects, None),
        Said::Unknown => assert!(effects.as_deref().is_none_or(|count| count == "1"), "{effects:?}"),
    }
    if matches!((call, said), (Call::Acquire | Call::Start, Said::NotApplied)) {
        assert_eq!((table.row("k"), table.row("once/k")), (None, None));
    }
    let next = table.process().locks("next");
    match call {
        Call::Start => assert!(matches!(started(&next).await.unwrap(), Started::Attempt(_))),
        Call::Complete | Call::CompleteWith => {
            let is_done = matches!(started(&next).await.unwrap(), Started::Replayed(1));
            match said {
                Said::Applied => assert!(is_done),
                Said::NotApplied => assert!(!is_done),
                Said::Unknown if call.is_transaction() => assert_eq!(is_done, effects.is_some()),
                Said::Unknown => {}
            }
        }
        _ => match next.acquire("k").lease(LEASE).try_once().await.unwrap() {
            Tried::Granted(lock) => assert_eq!(lock.release().await.unwrap(), ReleaseOutcome::Released),
            Tried::Refused(refusal) => panic!("the lease of {} is over", refusal.holder),
        },
    }
}

/// Makes the call after a renewal, each with its script, and checks what they say.
async fn run(call: Call, renewal: Vec<Fault>, script: Vec<Fault>) {
    let table = Table::new();
    let process: Process = table.process();
    let locks = process.locks("me");
    let outcome = if matches!(call, Call::Renew | Call::Release | Call::Commit | Call::CommitAndRelease) {
        let mut lock = acquired(&locks, LEASE).await;
        process.next(renewal);
        // Late copies of the renewal meet the call.
        sleep(secs(1)).await;
        let renewed = said(&lock.checkpoint().await);
        assert!(renewed != Said::Applied || lock.remaining() > secs(50), "{:?}", lock.remaining());
        process.clear();
        process.next(script);
        match call {
            Call::Renew => said(&lock.checkpoint().await),
            Call::Release => said(&lock.release().await.map(|outcome| assert_eq!(outcome, ReleaseOutcome::Released))),
            Call::Commit => {
                let committed = said(&lock.commit([counted("effect")]).await);
                process.clear();
                match committed {
                    Said::Unknown => match lock.resolve_commit().await.unwrap() {
                        CommitOutcome::Applied => Said::Applied,
                        CommitOutcome::NotApplied => Said::NotApplied,
                        _ => Said::Unknown,
                    },
                    known => known,
                }
            }
            _ => said(&lock.commit_and_release([counted("effect")]).await),
        }
    } else {
        let before = call.prepare(&locks).await;
        process.next(script);
        said(&call.make(&locks, before).await)
    };
    process.clear();
    sleep(LATE).await;
    assert_true(call, outcome, &table).await;
}

#[tokio::test(start_paused = true)]
async fn whatever_two_faults_meet_one_call_what_it_says_is_true() {
    for call in CALLS {
        for first in faults(call) {
            for second in faults(call) {
                // Then all is well, or no request succeeds any more.
                for rest in [vec![], vec![Fault::throttled(); 100]] {
                    let script = [vec![first.clone(), second.clone()], rest].concat();
                    let _case = case(format!("{call:?}: {:?}, {} in all", &script[..2], script.len()));
                    run(call, Vec::new(), script).await;
                }
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn whatever_meets_a_renewal_and_then_the_next_call_of_its_guard_what_that_says_is_true() {
    for call in [Call::Renew, Call::Release, Call::Commit, Call::CommitAndRelease] {
        for renewal in faults(Call::Renew) {
            for fault in faults(call) {
                let _case = case(format!("{call:?}: {fault:?}, after a renewal with {renewal:?}"));
                // Each request of the renewal meets it, until its time is over.
                run(call, vec![renewal.clone(); 60], vec![fault]).await;
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn whatever_meets_a_renewal_and_the_next_call_of_its_guard_for_longer_what_that_says_is_true() {
    let mut rng = fastrand::Rng::with_seed(7);
    for number in 0..500 {
        let call = CALLS[rng.usize(..CALLS.len())];
        let mut draw = |call, longest| {
            let mut faults = faults(call);
            // The requests after a call that has failed are no transactions.
            faults.retain(|fault| !matches!(fault, Fault::Limbo));
            (0..rng.usize(..=longest)).map(|_| faults[rng.usize(..faults.len())].clone()).collect::<Vec<_>>()
        };
        let (renewal, script) = (draw(Call::Renew, 4), draw(call, 8));
        let _case = case(format!("{number}: {call:?}: {script:?}, after a renewal with {renewal:?}"));
        run(call, renewal, script).await;
    }
}
