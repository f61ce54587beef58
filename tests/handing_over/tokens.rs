//! Saved locks, and calls that use them.

use crate::LEASE;
use lambda_lock::{Error, ErrorKind, LockClient, ReleaseOutcome, SavedLock};
use lambda_lock_testkit::{Fault, Table, acquired, case, granted, secs};
use serde_json::json;
use tokio::time::sleep;

/// A call on a saved lock.
#[derive(Clone, Copy, Debug)]
enum Elsewhere {
    Resume,
    Reclaim,
    Release,
    ReleaseOfTheOwner,
    ReleaseOfTheWorkflow,
}

impl Elsewhere {
    const ALL: [Elsewhere; 5] = [
        Elsewhere::Resume,
        Elsewhere::Reclaim,
        Elsewhere::Release,
        Elsewhere::ReleaseOfTheOwner,
        Elsewhere::ReleaseOfTheWorkflow,
    ];

    async fn call(self, locks: &LockClient, token: SavedLock) -> Result<(), Error> {
        match self {
            Elsewhere::Resume => locks.resume(token).await.map(drop),
            Elsewhere::Reclaim => locks.reclaim(token).lease(LEASE).await.map(drop),
            Elsewhere::Release => locks.release(token).await.map(drop),
            Elsewhere::ReleaseOfTheOwner => locks.release(token).or_later_grant_of_owner().await.map(drop),
            Elsewhere::ReleaseOfTheWorkflow => locks.release_workflow("k", "arn:1").await.map(drop),
        }
    }

    /// Returns how many requests it sends before its first write.
    fn reads_first(self) -> usize {
        usize::from(matches!(self, Elsewhere::ReleaseOfTheWorkflow))
    }
}

#[tokio::test(start_paused = true)]
async fn a_saved_lock_is_json_that_step_functions_can_carry() {
    let table = Table::new();
    let process = table.process();
    let now = process.clock.wall_millis();

    let token = acquired(&process.locks("me"), LEASE).await.save();

    let json = serde_json::to_string(&token).unwrap();
    let version = table.attribute("k", "recordVersionNumber").unwrap();
    assert_eq!(
        json,
        format!(
            r#"{{"key":"k","owner":"{}","version":"{version}","fencingToken":{},"leaseSeconds":20.0,"leaseEndsAt":{}}}"#,
            token.owner(),
            now + 1,
            now + 20_000
        )
    );
    let back: SavedLock = serde_json::from_str(&json).unwrap();
    assert_eq!(back, token);
}

#[tokio::test(start_paused = true)]
async fn a_resumed_lock_is_the_same_grant_with_one_request() {
    let table = Table::new();
    let (one, two) = (table.process(), table.process());
    let lock = acquired(&one.locks("one"), LEASE).await;
    let fencing_token = lock.fencing_token();
    let token = lock.save();
    sleep(secs(10)).await;

    let mut lock = two.locks("two").resume(token.clone()).await.unwrap();
    assert_eq!(two.take_operations(), ["UpdateItem"]);
    assert_eq!(lock.fencing_token(), fencing_token);
    assert!(lock.owner().starts_with("one/"), "{lock:?}");
    assert_eq!(table.attribute("k", "leaseDuration").as_deref(), Some("20000"));

    lock.checkpoint().await.unwrap();
    lock.release().await.unwrap();
    assert!(two.locks("two").resume(token).await.unwrap_err().is_lost(), "released is over for all copies");
}

#[tokio::test(start_paused = true)]
async fn tokens_that_were_tampered_with_are_refused_before_any_request() {
    let table = Table::new();
    let process = table.process();
    let locks = process.locks("me");
    let token = serde_json::to_value(acquired(&locks, LEASE).await.save()).unwrap();
    process.take_sent();

    for (field, value) in [
        ("key", json!("")),
        ("owner", json!("")),
        ("version", json!("b2c6a6e2-37cb-4bd9-9cdd-1b0f0d1f9c3e")),
        ("leaseSeconds", json!(0)),
        ("leaseSeconds", json!(-1)),
        ("leaseSeconds", json!(1e12)),
        ("sortKey", json!("a table without sort key")),
    ] {
        let _case = case(format!("{field}: {value}"));
        let mut changed = token.clone();
        changed[field] = value.clone();

        let changed: SavedLock = serde_json::from_value(changed).unwrap();

        for error in [
            locks.resume(changed.clone()).await.map(drop).unwrap_err(),
            locks.release(changed.clone()).await.map(drop).unwrap_err(),
        ] {
            assert_eq!(error.kind(), ErrorKind::InvalidRequest, "{error}");
        }
    }
    assert!(process.take_sent().is_empty());

    let mut unknown = token.clone();
    unknown["surprise"] = json!(1);
    assert!(serde_json::from_value::<SavedLock>(unknown).is_err());
}

#[tokio::test(start_paused = true)]
async fn a_call_elsewhere_whose_first_attempt_had_no_response_never_reports_that_nothing_was_applied() {
    for call in Elsewhere::ALL {
        for first in [Fault::NeverAnswers, Fault::AnswerLost, Fault::BlackHole] {
            for refusal in ["ThrottlingException", "TransactionConflictException"] {
                let _case = case(format!("{call:?}, {first:?}, then {refusal}"));
                let table = Table::new();
                let (one, two) = (table.process(), table.process());
                let lock = one.locks("one").acquire("k").lease(LEASE).workflow("arn:1").try_once().await.unwrap();
                let token = lock.granted().unwrap().save();
                two.next(vec![Fault::None; call.reads_first()]);
                two.next([first.clone()]);
                two.next(vec![Fault::error(refusal); 500]);

                let error = call.call(&two.locks("two"), token).await.unwrap_err();

                assert!(error.is_unknown(), "{error}");
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_lock_keeps_its_workflow_through_every_hand_over() {
    let table = Table::new();
    let locks = table.process().locks("me");
    let lock = granted(locks.acquire("k").lease(LEASE).workflow("arn:1").try_once()).await;

    let token = locks.resume(lock.save()).await.unwrap().save();
    assert_eq!(token.workflow(), Some("arn:1"));

    let lock = locks.reclaim(token).lease(LEASE).await.unwrap();

    assert_eq!(lock.to_saved().workflow(), Some("arn:1"));
    assert_eq!(table.attribute("k", "workflow").as_deref(), Some("arn:1"));
    assert_eq!(locks.release_workflow("k", "arn:1").await.unwrap(), ReleaseOutcome::Released);
    let _ = lock.save();
}
