//! The rows of Python's client have another schema. Neither client takes the other's rows for its own, and
//! a fleet moves in steps.

use crate::fleet::{Fleet, LONG, SHORT};
use lambda_lock::{Budget, ErrorKind, LockClient, LockKey};
use lambda_lock_interop::Why;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use tokio::task::JoinSet;

/// The key under which Python's client keeps the lock "k" by default.
fn theirs() -> LockKey {
    LockKey::new("k", Some("-".to_owned()))
}

/// The key under which we keep it, in the same table.
fn ours() -> LockKey {
    LockKey::new("k", Some("lambda-lock".to_owned()))
}

pub(crate) async fn a_row_of_python_is_no_lock_record_and_is_left_as_it_is(fleet: Fleet) {
    let mut peer = fleet.peer("theirs", SHORT).await;
    peer.try_acquire("k").await.unwrap().unwrap();
    let locks = fleet.locks("ours");

    tokio::time::sleep(SHORT * 2).await;
    let budget = Budget::lasting(Duration::from_secs(5)).reserve(Duration::ZERO);
    let refused = locks.acquire(theirs()).within(&budget).lease(LONG).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::InvalidRecord, "{refused}");
    assert!(refused.to_string().contains("recordVersionNumber"), "{refused}");
    peer.renew("k").await.unwrap().unwrap();
    peer.release("k", true).await.unwrap().unwrap();

    // Our row is no lock record for Python's client, which also leaves it alone.
    let mut lock = locks.acquire(theirs()).lease(LONG).try_once().await.unwrap().granted().unwrap();
    let refusal = peer.wait_for("k", Duration::from_secs(1)).await.unwrap().unwrap_err();
    assert_eq!(refusal.why, Why::Failed, "{refusal}");
    assert!(refusal.error.contains("owner_name"), "{refusal}");
    lock.checkpoint().await.unwrap();
    lock.release().await.unwrap();
}

pub(crate) async fn both_locks_live_in_one_table_under_two_sort_keys(fleet: Fleet) {
    let mut peer = fleet.peer("theirs", LONG).await;
    peer.try_acquire("k").await.unwrap().unwrap();
    let mut lock = fleet.locks("ours").acquire(ours()).lease(LONG).try_once().await.unwrap().granted().unwrap();
    peer.renew("k").await.unwrap().unwrap();
    lock.checkpoint().await.unwrap();
    peer.release("k", true).await.unwrap().unwrap();
    lock.checkpoint().await.unwrap();
    lock.release().await.unwrap();
}

/// Counts the callers that work at the same time. The steps of the migration must keep it at one.
#[derive(Clone, Default)]
struct Inside(Arc<AtomicU32>);

impl Inside {
    async fn work(&self) {
        assert_eq!(self.0.fetch_add(1, Ordering::SeqCst), 0, "two callers at once");
        tokio::time::sleep(Duration::from_millis(5)).await;
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

async fn within(locks: &LockClient, inside: &Inside) {
    let budget = Budget::lasting(Duration::from_secs(60)).reserve(Duration::from_secs(1));
    let lock = locks.acquire(ours()).within(&budget).lease(LONG).await.unwrap();
    inside.work().await;
    lock.release().await.unwrap();
}

/// The callers of a fleet before the move, or after the last step.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Others {
    OnlyPythons,
    OnlyOurs,
}

async fn let_in(fleet: &Fleet, others: Others) {
    let inside = Inside::default();
    let mut callers = JoinSet::new();
    for number in 0..2 {
        let (fleet, inside) = (fleet.clone(), inside.clone());
        callers.spawn(async move {
            let locks = fleet.locks(&format!("both {number}"));
            let mut peer = fleet.peer(&format!("both {number}"), LONG).await;
            for _ in 0..10 {
                // All callers must acquire in this order: the old lock first.
                peer.wait_for("k", Duration::from_secs(60)).await.unwrap().unwrap();
                within(&locks, &inside).await;
                peer.release("k", true).await.unwrap().unwrap();
            }
        });
    }
    let (fleet, inside) = (fleet.clone(), inside.clone());
    callers.spawn(async move {
        let locks = fleet.locks("other");
        let mut peer = fleet.peer("other", LONG).await;
        for _ in 0..10 {
            if others == Others::OnlyOurs {
                within(&locks, &inside).await;
            } else {
                peer.wait_for("k", Duration::from_secs(60)).await.unwrap().unwrap();
                inside.work().await;
                peer.release("k", true).await.unwrap().unwrap();
            }
        }
    });
    callers.join_all().await;
}

pub(crate) async fn callers_that_hold_both_locks_let_callers_of_either_in_one_at_a_time(fleet: Fleet) {
    let_in(&fleet, Others::OnlyPythons).await;
    let_in(&fleet, Others::OnlyOurs).await;
}
