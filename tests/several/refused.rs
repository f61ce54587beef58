//! Locks that others hold: none of the set is granted, and the refusal names them.

use crate::{LEASE, acquired, blocked, cancelled, conflict, held_by_another, operations};
use lambda_lock::{ErrorKind, LockSet, Refusal, Tried};
use lambda_lock_testkit::{Fault, Table, case, secs};
use serde_json::json;
use tokio::time::sleep;

#[tokio::test(start_paused = true)]
async fn a_refusal_names_each_held_lock_and_writes_nothing() {
    let table = Table::new();
    let process = table.process();
    let locks = process.locks("me");
    let (long, short) = (held_by_another(&table, "b").await, {
        let other = table.process().locks("short");
        lambda_lock_testkit::granted(other.acquire("c").lease(secs(5)).owner("short").try_once()).await
    });

    let Tried::Refused(refused) = locks.acquire_all(["a", "b", "c"]).lease(LEASE).try_once().await.unwrap() else {
        panic!("two of them are held")
    };

    assert_eq!(operations(&process), ["TransactWriteItems"]);
    let named: Vec<_> = refused.iter().map(|one| (one.key.key(), one.holder.as_str())).collect();
    assert_eq!(named, [("b", "other"), ("c", "short")]);
    assert!(refused[0].retry_after > secs(60) && refused[1].retry_after < secs(10), "{refused:?}");
    assert_eq!(table.row("a"), None);

    let budget = process.budget(secs(1)).reserve(secs(0));
    let error = locks.acquire_all(["a", "b", "c"]).within(&budget).await.unwrap_err();
    assert_eq!(blocked(&error), ["b", "c"]);
    assert_eq!(error.refusal().unwrap().holder, "other", "all have to be free: the last one decides");
    let text = error.to_string();
    assert!(text.contains("the locks b and c are held, b by \"other\"") && text.contains("looks in a row"), "{text}");
    let one_look = process.budget(secs(0)).reserve(secs(0));
    let text = locks.acquire_all(["a", "b", "c"]).within(&one_look).lease(LEASE).await.unwrap_err().to_string();
    assert!(text.contains("are held") && !text.contains("looks in a row"), "{text}");
    assert_eq!(table.row("a"), None);
    long.release().await.unwrap();
    short.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_observation_of_each_lock_counts_in_the_next_call() {
    let table = Table::new();
    let process = table.process();
    let locks = process.builder().without_wall_clock_takeover().build().unwrap();
    std::mem::forget(held_by_another(&table, "a").await);
    std::mem::forget(held_by_another(&table, "b").await);
    let refused = |granted: Tried<LockSet, Vec<Refusal>>| match granted {
        Tried::Refused(blocked) => blocked,
        Tried::Granted(_) => panic!("both are held"),
    };
    let first = refused(locks.acquire_all(["a", "b"]).lease(LEASE).try_once().await.unwrap());
    sleep(secs(100)).await;
    let fresh = refused(locks.acquire_all(["a", "b"]).lease(LEASE).try_once().await.unwrap());
    assert_eq!(fresh.len(), 2, "each call observes anew");

    let seen = first.into_iter().map(|one| (one.key, one.observation.and_waited(secs(100))));
    let set =
        locks.acquire_all(["a", "b"]).lease(LEASE).observations(seen).try_once().await.unwrap().granted().unwrap();
    set.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn only_conflicts_are_no_proof_that_anybody_holds_a_lock() {
    for faults in
        [vec![conflict(); 200], vec![cancelled(&["None", "ThrottlingError"]); 200], vec![Fault::throttled(); 200]]
    {
        let _case = case(format!("{:?}", faults[0]));
        let table = Table::new();
        let process = table.process();
        process.next(faults);
        let budget = process.budget(secs(2)).reserve(secs(0));

        let error = process.locks("me").acquire_all(["a", "b"]).within(&budget).await.unwrap_err();

        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
        assert!(blocked(&error).is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn rows_that_a_refusal_does_not_bring_are_read() {
    let table = Table::new();
    let process = table.process();
    let locks = process.locks("me");
    let other = held_by_another(&table, "b").await;
    process.next([cancelled(&["None", "ConditionalCheckFailed"])]);

    let refused = locks.acquire_all(["a", "b"]).lease(LEASE).try_once().await.unwrap();

    assert!(matches!(refused, Tried::Refused(blocked) if blocked.len() == 1));
    assert_eq!(operations(&process), ["TransactWriteItems", "BatchGetItem"]);
    other.release().await.unwrap();

    // A row that is deleted between the transaction and the look.
    process.next([cancelled(&["ConditionalCheckFailed", "None"])]);
    let set = acquired(&locks, ["c", "d"]).await;
    assert_eq!(operations(&process), ["TransactWriteItems", "BatchGetItem", "TransactWriteItems"]);
    set.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn keys_that_dynamodb_leaves_unprocessed_are_read_again() {
    let table = Table::new();
    let process = table.process();
    let other = held_by_another(&table, "b").await;
    let unprocessed = json!({
        "Responses": {"locks": []},
        "UnprocessedKeys": {"locks": {"ConsistentRead": true, "Keys": [{"key": {"S": "b"}}]}},
    });
    let unprocessed = Fault::Says(200, Box::leak(unprocessed.to_string().into_boxed_str()));
    process.next([cancelled(&["None", "ConditionalCheckFailed"]), unprocessed]);

    let refused = process.locks("me").acquire_all(["a", "b"]).lease(LEASE).try_once().await.unwrap();

    assert!(matches!(refused, Tried::Refused(blocked) if blocked[0].key.key() == "b"));
    assert_eq!(operations(&process), ["TransactWriteItems", "BatchGetItem", "BatchGetItem"]);
    other.release().await.unwrap();
}
