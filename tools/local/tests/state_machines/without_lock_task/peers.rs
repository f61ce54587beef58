//! Rows of clients in Java and Go, and rows that are no lock records.

use super::{options, put, run, scene, states};
use crate::scene::PATIENCE;
use lambda_lock_local::states::Definition;
use serde_json::{Value, json};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

const VERSION: &str = "b2c6a6e2-37cb-4bd9-9cdd-1b0f0d1f9c3e";

fn peer(lease: &str, version: &str) -> Value {
    json!({ "ownerName": { "S": "peer" }, "leaseDuration": { "S": lease }, "recordVersionNumber": { "S": version } })
}

#[tokio::test]
async fn a_dead_peer_is_watched_for_its_lease_and_then_taken_over() {
    let Some(scene) = scene().await else { return };
    for (key, lease) in [("java", "2000"), ("go", "1.5s")] {
        put(&scene, key, &peer(lease, VERSION)).await;
        let began = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as u64;
        let (execution, error) = run(&scene, key, key).await;
        assert_eq!(error, None);
        let entered = states(&scene, &execution).await;
        // Whole seconds are waited: 2.1 s and 1.575 s.
        let looks = if key == "java" { 3 } else { 2 };
        assert_eq!(entered.iter().filter(|state| *state == "WaitForHolder").count(), looks, "{entered:?}");
        assert!(entered.contains(&"Take".to_owned()), "{entered:?}");
        assert!(scene.lock(key).await.fencing_token >= Some(began), "a peer's row tells nothing of the last token");
    }
}

#[tokio::test]
async fn a_living_peer_is_waited_for_and_its_token_never_falls_back() {
    let Some(scene) = scene().await else { return };
    put(&scene, "k", &peer("2000", "beat")).await;
    let machine = Definition::new(super::document(&options()));
    let execution = scene.engine.execute("waits", &machine, &json!({ "key": "k" })).await.unwrap();
    for beat in 0..5 {
        tokio::time::sleep(Duration::from_millis(900)).await;
        put(&scene, "k", &peer("2000", &format!("beat-{beat}"))).await;
    }
    assert!(scene.engine.end(&execution).await.unwrap().is_none(), "longer than two leases");
    let mut released = peer("2000", "last");
    released["isReleased"] = json!({ "S": "1" });
    released["fencingToken"] = json!({ "N": "100000000000000" });
    put(&scene, "k", &released).await;
    let end = scene.engine.until_end(&execution, PATIENCE).await.unwrap();
    assert_eq!(end.status, "SUCCEEDED", "{end:?}");
    assert_eq!(scene.lock("k").await.fencing_token, Some(100_000_000_000_001));
}

#[tokio::test]
async fn a_row_that_is_no_lock_record_fails_the_execution_and_is_left_alone() {
    let Some(scene) = scene().await else { return };
    put(&scene, "odd", &peer("soon", VERSION)).await;
    let (execution, error) = run(&scene, "odd", "odd").await;
    assert_eq!(error.as_deref(), Some("InvalidRecord"));
    assert_eq!(states(&scene, &execution).await, ["Lock", "Look", "Decide", "InvalidRecord"]);
    assert!(scene.locks().operator().peek("odd").await.is_err(), "still no lock record");

    put(&scene, "account", &json!({ "balance": { "N": "5" } })).await;
    let (_, error) = run(&scene, "account", "account").await;
    assert_eq!(error.as_deref(), Some("InvalidRecord"));
}

/// JSONata and JavaScript keep numbers as `f64`. What they do to a larger token is done here. Whoever hands on `lock` as it is also
/// hands on its digits.
#[tokio::test]
async fn a_token_that_was_rounded_is_that_of_the_lock_by_its_digits_alone() {
    let Some(scene) = scene().await else { return };
    let cases = [
        ("exact", 1_u64 << 52, true, None),
        ("rounded", 1 << 53, true, None),
        ("cut", 1 << 53, false, Some("LockLost")),
    ];
    for (key, last, with_digits, expected) in cases {
        let mut released = peer("2000", "last");
        released["isReleased"] = json!({ "S": "1" });
        released["fencingToken"] = json!({ "N": last.to_string() });
        put(&scene, key, &released).await;
        let acquire = json!({ "action": "acquire", "key": key, "owner": "me", "leaseSeconds": 60 });
        let mut lock = scene.sample.ask("lock-task", &acquire).await.unwrap()["lock"].clone();
        assert_eq!(lock["fencingToken"], last + 1);

        lock["fencingToken"] = json!((last + 1) as f64 as u64);
        if !with_digits {
            lock.as_object_mut().unwrap().remove("exactFencingToken");
        }
        let renew = json!({ "action": "renew", "lock": lock, "leaseSeconds": 60 });
        let renewed = scene.sample.ask("lock-task", &renew).await;

        assert_eq!(renewed.err().map(|error| error.0).as_deref(), expected, "{key}");
        assert!(!scene.lock(key).await.released, "{key}");
    }
}
