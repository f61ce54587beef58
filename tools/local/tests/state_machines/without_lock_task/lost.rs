//! Lost responses: each request once.

use super::{FREE, document, nth_write_lost, options, run, scene, states};
use crate::scene::PATIENCE;
use lambda_lock_asl::Options;
use lambda_lock_local::states::Definition;
use serde_json::json;

#[tokio::test]
async fn a_claim_without_a_response_is_recognised_as_this_execution_s_own() {
    let Some(scene) = scene().await else { return };
    scene.sample.proxy.decide(nth_write_lost(1));
    // Nobody can wait for the end of such a lease.
    let machine = Definition::new(document(&Options { lease: PATIENCE * 10, ..options() }));
    let execution = scene.engine.execute("k", &machine, &json!({ "key": "k" })).await.unwrap();
    let end = scene.engine.until_end(&execution, PATIENCE).await.unwrap();
    assert_eq!(end.status, "SUCCEEDED", "{end:?}");
    let expected = ["Lock", "Look", "Decide", "Take", "FirstStep", "Renew", "SecondStep", "Unlock"];
    assert_eq!(states(&scene, &execution).await, expected);
    assert_eq!(scene.counter("k").await, (1, [execution.arn].into()));
}

#[tokio::test]
async fn a_renewal_or_a_release_without_a_response_is_repeated() {
    let Some(scene) = scene().await else { return };
    for (key, nth) in [("renew", 2), ("release", 3)] {
        scene.sample.proxy.decide(nth_write_lost(nth));
        let (execution, error) = run(&scene, key, key).await;
        assert_eq!(error, None, "{key}");
        assert_eq!(states(&scene, &execution).await, FREE, "{key}");
        assert!(scene.lock(key).await.released, "{key}");
    }
}
