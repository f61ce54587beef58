//! Locks that an operator froze: who waits, and who goes on.

use super::{machine, options, put, scene, states};
use crate::scene::{LEASE, PATIENCE, Scene};
use lambda_lock_asl::Options;
use lambda_lock_local::states::{Definition, Execution};
use lambda_lock_testkit::soon_so;
use serde_json::{Value, json};
use std::time::Duration;

const WHY: &str = "a migration, ticket 4711";

/// How often the execution has waited for the lock.
async fn waits(scene: &Scene, execution: &Execution) -> usize {
    states(scene, execution).await.iter().filter(|state| *state == "WaitForHolder").count()
}

/// Begins an execution, which waits until the lock is thawed, and then works.
async fn waits_until_it_is_thawed(scene: &Scene, name: &str, definition: &Definition, key: &str) -> Execution {
    let execution = scene.engine.execute(name, definition, &json!({ "key": key })).await.unwrap();
    tokio::time::sleep(Duration::from_millis(3_500)).await;
    assert!(scene.engine.end(&execution).await.unwrap().is_none(), "{name}");
    assert_eq!(scene.counter(key).await.0, 0, "{name}");
    // It neither spins nor sleeps for longer than its poll.
    assert!((2..=4).contains(&waits(scene, &execution).await), "{name}: {:?}", states(scene, &execution).await);
    scene.locks().operator().thaw(key).await.unwrap();
    let end = scene.engine.until_end(&execution, PATIENCE).await.unwrap();
    assert_eq!((end.status.as_str(), scene.counter(key).await.0), ("SUCCEEDED", 1), "{name}: {end:?}");
    execution
}

#[tokio::test]
async fn a_frozen_lock_is_waited_for_by_looks_until_it_is_thawed() {
    let Some(scene) = scene().await else { return };
    let locks = scene.locks();
    let (free, dead, peers) = ("free", "dead", "peers");
    locks.operator().freeze(free, WHY).await.unwrap();
    let _ = locks.acquire(dead).lease(Duration::from_millis(50)).try_once().await.unwrap().granted().unwrap().save();
    locks.operator().freeze(dead, WHY).await.unwrap();
    let peer: Value = json!({
        "ownerName": { "S": "peer" }, "leaseDuration": { "S": "1000" }, "recordVersionNumber": { "S": "beat" },
    });
    put(&scene, peers, &peer).await;
    locks.operator().freeze(peers, WHY).await.unwrap();
    let definition = machine();
    tokio::join!(
        waits_until_it_is_thawed(&scene, free, &definition, free),
        waits_until_it_is_thawed(&scene, dead, &definition, dead),
        waits_until_it_is_thawed(&scene, peers, &definition, peers),
    );
}

/// It renews and releases the lock that it holds, and nobody is granted it then.
#[tokio::test]
async fn an_execution_that_holds_a_lock_finishes_after_a_freeze() {
    let Some(scene) = scene().await else { return };
    let slow = super::slow("k", LEASE / 4);
    let execution = scene.engine.execute("holder", &machine(), &slow).await.unwrap();
    let is_held = async || scene.locks().operator().peek("k").await.unwrap().is_some_and(|lock| !lock.released);
    soon_so("it holds the lock", is_held).await;
    scene.locks().operator().freeze("k", WHY).await.unwrap();
    let end = scene.engine.until_end(&execution, PATIENCE).await.unwrap();
    assert_eq!(end.status, "SUCCEEDED", "{end:?}");
    let lock = scene.locks().operator().peek("k").await.unwrap().unwrap();
    assert_eq!((lock.released, lock.freeze_reason.as_deref()), (true, Some(WHY)));
}

/// A response that was lost does not keep the holder from its lock.
#[tokio::test]
async fn an_execution_takes_its_own_lock_that_was_frozen_meanwhile() {
    let Some(scene) = scene().await else { return };
    let locks = scene.locks();
    let definition = Definition::new(super::document(&Options { owner: "'me'".to_owned(), ..options() }));
    let held = locks.acquire("k").owner("me").lease(PATIENCE).try_once().await.unwrap().granted().unwrap();
    locks.operator().freeze("k", WHY).await.unwrap();
    let execution = scene.engine.execute("again", &definition, &json!({ "key": "k" })).await.unwrap();
    let end = scene.engine.until_end(&execution, PATIENCE).await.unwrap();
    assert_eq!(end.status, "SUCCEEDED", "{end:?}");
    assert!(states(&scene, &execution).await.contains(&"Take".to_owned()));
    let lock = locks.operator().peek("k").await.unwrap().unwrap();
    assert!(
        lock.released && lock.freeze_reason.is_some() && lock.fencing_token > Some(held.fencing_token()),
        "{lock:?}"
    );
}
