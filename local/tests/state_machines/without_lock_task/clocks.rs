//! A state machine and a caller of the crate whose clocks differ.

use super::{document, options, scene};
use crate::scene::{LEASE, PATIENCE, SKEW, Scene};
use lambda_lock::{Budget, Lock};
use lambda_lock_asl::Poll;
use lambda_lock_local::states::Definition;
use serde_json::json;
use std::time::{Duration, SystemTime};

/// Almost all of the skew that is allowed.
const WITHIN: i64 = SKEW.as_millis() as i64 - 50;
const FAR: i64 = 60_000;

/// The sample whose clock shows this many milliseconds more than that of the crate's callers.
fn with_clock(ahead: i64) -> Definition {
    let text = document(&options(Poll::Look)).to_string();
    assert!(text.contains("$millis()"));
    Definition::new(serde_json::from_str(&text.replace("$millis()", &format!("($millis() + {ahead})"))).unwrap())
}

async fn acquire(scene: &Scene, key: &str) -> Lock {
    let budget = Budget::lasting(PATIENCE).reserve(Duration::ZERO);
    scene.locks().acquire(key).lease(LEASE).within(&budget).await.unwrap()
}

#[tokio::test]
async fn within_the_allowed_skew_nobody_takes_a_lease_that_has_not_ended() {
    let Some(scene) = scene().await else { return };
    for (key, ahead) in [("ahead", WITHIN), ("behind", -WITHIN)] {
        // The machine comes after a holder of the crate that has died.
        let dead = acquire(&scene, key).await;
        let mut held = scene.hold_step("read");
        let execution = scene.engine.execute(key, &with_clock(ahead), &json!({ "key": key })).await.unwrap();
        held.until(1).await;
        assert!(SystemTime::now() > dead.lease_ends_at().unwrap(), "{key}: the machine was too early");

        // The crate comes after the machine, which is stopped in its first step.
        let on_row = scene.lock(key).await.lease_ends_at.unwrap();
        let error = Duration::from_millis(ahead.unsigned_abs());
        let end = if ahead > 0 { on_row - error } else { on_row + error };
        scene.engine.stop(&execution).await.unwrap();
        drop(held);
        let lock = acquire(&scene, key).await;
        assert!(SystemTime::now() > end, "{key}: the crate was too early");
        assert!(lock.fencing_token() > dead.fencing_token());
        lock.release().await.unwrap();
    }
}

#[tokio::test]
async fn beyond_the_allowed_skew_two_may_hold_a_lock_and_the_first_one_is_told() {
    let Some(scene) = scene().await else { return };

    // A machine whose clock is far ahead takes a lock whose holder lives.
    let mut living = acquire(&scene, "ahead").await;
    let execution = scene.engine.execute("ahead", &with_clock(FAR), &json!({ "key": "ahead" })).await.unwrap();
    let end = scene.engine.until_end(&execution, PATIENCE).await.unwrap();
    assert_eq!(end.status, "SUCCEEDED", "{end:?}");
    assert!(living.remaining() > Duration::ZERO, "this test was too slow to show anything");
    assert!(living.checkpoint().await.unwrap_err().is_lost());

    // The lease of a machine whose clock is far behind is over when it begins.
    let mut held = scene.hold_step("read");
    let execution = scene.engine.execute("behind", &with_clock(-FAR), &json!({ "key": "behind" })).await.unwrap();
    held.until(1).await;
    let lock = acquire(&scene, "behind").await;
    drop(held);
    let end = scene.engine.until_end(&execution, PATIENCE).await.unwrap();
    assert_eq!(end.error.as_deref(), Some("LockLost"), "{end:?}");
    assert_eq!(scene.counter("behind").await.0, 0, "it has written nothing");
    lock.release().await.unwrap();
}
