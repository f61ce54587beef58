//! Every call runs with the same scripts of HTTP, through the real SDK client. The tests check the exact requests of
//! each call, and its result.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a helper of a test may stop it")]

mod pairs;

use lambda_lock::once::{Attempt, Started};
use lambda_lock::{Error, ErrorKind, Lock, LockClient, ReleaseOutcome};
use lambda_lock_testkit::{Fault, Process, Table, acquired, case, counted, millis, secs};
use std::time::Duration;

const LEASE: Duration = secs(60);

/// A call, in the order of the columns below.
#[derive(Clone, Copy, Debug)]
enum Call {
    Acquire,
    Renew,
    Release,
    Commit,
    CommitAndRelease,
    /// Starts idempotent work.
    Start,
    /// Stores the result of idempotent work, alone.
    Complete,
    /// Stores the result of idempotent work, with a write.
    CompleteWith,
}

const CALLS: [Call; 8] = [
    Call::Acquire,
    Call::Renew,
    Call::Release,
    Call::Commit,
    Call::CommitAndRelease,
    Call::Start,
    Call::Complete,
    Call::CompleteWith,
];

/// What a call needs before it starts.
enum Before {
    Nothing,
    Held(Lock),
    Begun(Attempt),
}

impl Call {
    async fn prepare(self, locks: &LockClient) -> Before {
        match self {
            Call::Acquire | Call::Start => Before::Nothing,
            Call::Complete | Call::CompleteWith => match started(locks).await.unwrap() {
                Started::Attempt(attempt) => Before::Begun(attempt),
                Started::Replayed(result) => panic!("it was done before: {result}"),
            },
            _ => Before::Held(acquired(locks, LEASE).await),
        }
    }

    async fn make(self, locks: &LockClient, before: Before) -> Result<(), Error> {
        match (self, before) {
            (Call::Acquire, _) => {
                locks.acquire("k").lease(LEASE).try_once().await.map(|tried| drop(tried.granted().unwrap()))
            }
            (Call::Start, _) => started(locks).await.map(drop),
            (Call::Renew, Before::Held(mut lock)) => lock.checkpoint().await,
            (Call::Release, Before::Held(lock)) => {
                lock.release().await.map(|outcome| assert_eq!(outcome, ReleaseOutcome::Released))
            }
            (Call::Commit, Before::Held(mut lock)) => lock.commit([counted("effect")]).await,
            (Call::CommitAndRelease, Before::Held(lock)) => lock.commit_and_release([counted("effect")]).await,
            (Call::Complete, Before::Begun(attempt)) => attempt.complete(&1).await,
            (Call::CompleteWith, Before::Begun(attempt)) => attempt.complete_with(&1, [counted("effect")]).await,
            _ => unreachable!(),
        }
    }

    fn is_transaction(self) -> bool {
        matches!(self, Call::Commit | Call::CommitAndRelease | Call::CompleteWith)
    }

    /// Asserts that the row shows that the call was applied once.
    fn assert_applied_once(self, table: &Table) {
        let attribute = |key: &str, name: &str| table.attribute(key, name);
        match self {
            Call::Acquire | Call::Renew | Call::Commit => assert_eq!(attribute("k", "isReleased"), None),
            Call::Release | Call::CommitAndRelease => assert!(attribute("k", "isReleased").is_some()),
            Call::Start => assert_eq!(attribute("once/k", "attempts").as_deref(), Some("1")),
            Call::Complete | Call::CompleteWith => {
                assert_eq!(attribute("once/k", "onceState").as_deref(), Some("done"));
            }
        }
        if self.is_transaction() {
            assert_eq!(attribute("effect", "applied").as_deref(), Some("1"));
        }
    }
}

async fn started(locks: &LockClient) -> Result<Started<u32>, Error> {
    locks.once("k").lease(LEASE).start().await
}

/// Another transaction has the row for a moment.
fn conflict(call: Call) -> Fault {
    if !call.is_transaction() {
        return Fault::error("TransactionConflictException");
    }
    const BODY: &str = r#"{"__type":"com.amazonaws.dynamodb.v20120810#TransactionCanceledException","message":"scripted",
        "CancellationReasons":[{"Code":"None"},{"Code":"TransactionConflict"}]}"#;
    Fault::Says(400, BODY)
}

/// Returns the requests of a call with a script: `u` for `UpdateItem`, `g` for `GetItem`, `t` for `TransactWriteItems`.
async fn requests(call: Call, script: Vec<Fault>) -> (String, Result<(), Error>, Table) {
    let table = Table::new();
    let process: Process = table.process();
    let locks = process.locks("me");
    let before = call.prepare(&locks).await;
    process.take_sent();
    process.next(script);
    let said = call.make(&locks, before).await;
    let letter = |operation: &String| match operation.as_str() {
        "UpdateItem" => 'u',
        "GetItem" => 'g',
        "TransactWriteItems" => 't',
        other => panic!("{other}"),
    };
    (process.take_operations().iter().map(letter).collect(), said, table)
}

/// A script, and the requests of each call with it.
type Line = (&'static str, fn(Call) -> Vec<Fault>, [&'static str; 8]);

#[rustfmt::skip]
const ANSWERED: [Line; 13] = [
    //                                                                  acquire renew  release commit commit+r start  complete complete with
    ("nothing happens", |_| vec![],                                     ["u",   "u",   "u",    "t",   "t",     "u",   "u",     "t"]),
    ("answered slowly", |_| vec![Fault::Slow(SLOW)],                    ["u",   "u",   "u",    "t",   "t",     "u",   "u",     "t"]),
    ("the `Date` header is early", |_| vec![Fault::DateOff(-3600)],     ["u",   "u",   "u",    "t",   "t",     "u",   "u",     "t"]),
    ("the `Date` header is late", |_| vec![Fault::DateOff(3600)],       ["uu",  "uu",  "u",    "tu",  "t",     "uu",  "u",     "t"]),
    ("the answer is lost", |_| vec![Fault::AnswerLost],                 ["ug",  "uu",  "uu",   "tt",  "tt",    "ug",  "uu",    "tt"]),
    ("500 after it was applied", |_| vec![Fault::failure_after_apply()],["ug",  "uu",  "uu",   "tt",  "tt",    "ug",  "uu",    "tt"]),
    ("a body that breaks off", |_| vec![Fault::applied_with_broken_answer()],
                                                                        ["ug",  "uu",  "uu",   "tt",  "tt",    "ug",  "uu",    "tt"]),
    ("applied, and a timeout", |_| vec![Fault::NeverAnswers],           ["ug",  "uu",  "uu",   "tt",  "tt",    "ug",  "uu",    "tt"]),
    ("a reset before it arrived", |_| vec![Fault::RequestLost],         ["ugu", "uu",  "uu",   "tt",  "tt",    "ugu", "uu",    "tt"]),
    ("a timeout before it arrived", |_| vec![Fault::BlackHole],         ["ugu", "uu",  "uu",   "tt",  "tt",    "ugu", "uu",    "tt"]),
    ("a proxy answers", |_| vec![Fault::Says(400, "<html>no</html>")],  ["ugu", "uu",  "uu",   "tt",  "tt",    "ugu", "uu",    "tt"]),
    ("throttled three times", |_| vec![Fault::throttled(); 3],          ["uuuu","uuuu","uuuu", "tttt","tttt",  "uuuu","uuuu",  "tttt"]),
    ("a conflict with a transaction", |call| vec![conflict(call)],      ["uu",  "uu",  "uu",   "tt",  "tt",    "uu",  "uu",    "tt"]),
];

/// No request gets a response. These are the requests until the time is over, and those that release the lock.
#[rustfmt::skip]
const NEVER: [Line; 2] = [
    ("nothing arrives", |_| vec![Fault::BlackHole; 20],                 ["uggu","uuu", "uuu",  "ttt", "tttuuu","uggu","uuuuuu","tttuuu"]),
    ("all arrives, nothing is answered", |_| vec![Fault::NeverAnswers; 20],
                                                                        ["uggu","uuu", "uuu",  "ttt", "tttuuu","uggu","uuuuuu","tttuuu"]),
];

/// Shorter than the request timeout of one second.
const SLOW: Duration = millis(900);

#[tokio::test(start_paused = true)]
async fn every_call_takes_exactly_these_requests_and_is_applied_once() {
    for (script, faults, expected) in ANSWERED {
        for (call, expected) in CALLS.into_iter().zip(expected) {
            let _case = case(format!("{call:?}, {script}"));

            let (requests, said, table) = requests(call, faults(call)).await;

            said.unwrap();
            assert_eq!(requests, expected);
            call.assert_applied_once(&table);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn every_call_that_is_never_answered_says_unknown_after_exactly_these_requests() {
    for (script, faults, expected) in NEVER {
        for (call, expected) in CALLS.into_iter().zip(expected) {
            let _case = case(format!("{call:?}, {script}"));

            let (requests, said, _) = requests(call, faults(call)).await;

            let error = said.unwrap_err();
            assert!(error.is_unknown(), "{error}");
            assert_eq!(requests, expected);
        }
    }
}

/// Returns the fault of a call's first request, and the fault of this many requests after it.
fn unheard(first: Fault, then: Fault, times: usize) -> Vec<Fault> {
    std::iter::once(first).chain(std::iter::repeat_n(then, times)).collect()
}

/// Returns the ways in which DynamoDB temporarily refuses this call.
fn refusals_for_now(call: Call) -> [Fault; 2] {
    [Fault::throttled(), conflict(call)]
}

#[tokio::test(start_paused = true)]
async fn a_call_whose_first_attempt_had_no_response_never_reports_that_nothing_was_applied() {
    for call in CALLS {
        for first in [Fault::NeverAnswers, Fault::AnswerLost, Fault::BlackHole] {
            for refusal in refusals_for_now(call) {
                let _case = case(format!("{call:?}, {first:?}, then {refusal:?}"));

                let (_, said, _) = requests(call, unheard(first.clone(), refusal, 500)).await;

                let error = said.unwrap_err();
                assert!(error.is_unknown(), "{error}");
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_temporarily_refused_until_its_time_is_over_reports_that_nothing_was_applied() {
    for call in CALLS {
        for refusal in refusals_for_now(call) {
            let _case = case(format!("{call:?}, {refusal:?}"));

            let (_, said, _) = requests(call, vec![refusal; 500]).await;

            let error = said.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_whose_first_attempt_had_no_response_is_applied_once_however_often_it_is_throttled() {
    for call in CALLS {
        for first in [Fault::NeverAnswers, Fault::AnswerLost, Fault::BlackHole, Fault::RequestLost] {
            for refusal in refusals_for_now(call) {
                for times in 1..4 {
                    let _case = case(format!("{call:?}, {first:?}, then {times} times {refusal:?}"));

                    let (_, said, table) = requests(call, unheard(first.clone(), refusal.clone(), times)).await;

                    said.unwrap();
                    call.assert_applied_once(&table);
                }
            }
        }
    }
}
