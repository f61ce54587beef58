//! Lost responses: each request once, with both kinds of polling.

use super::{ENGINE, FREE, document, nth_write_lost, options, run, scene, states};
use crate::scene::PATIENCE;
use lambda_lock_asl::{Options, Poll};
use lambda_lock_local::authorize::{Call, Fate};
use lambda_lock_local::states::Definition;
use serde_json::json;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

#[tokio::test]
async fn a_claim_without_a_response_is_recognised_as_this_execution_s_own() {
    let Some(scene) = scene().await else { return };
    for (key, poll) in [("looks", Poll::Look), ("claims", Poll::Claim)] {
        scene.sample.proxy.decide(nth_write_lost(1));
        // Nobody can wait for the end of such a lease.
        let machine = Definition::new(document(&Options { lease: PATIENCE * 10, ..options(poll) }));
        let execution = scene.engine.execute(key, &machine, &json!({ "key": key })).await.unwrap();
        let end = scene.engine.until_end(&execution, PATIENCE).await.unwrap();
        assert_eq!(end.status, "SUCCEEDED", "{key}: {end:?}");
        let expected = ["Lock", "Look", "Decide", "Take", "FirstStep", "Renew", "SecondStep", "Unlock"];
        assert_eq!(states(&scene, &execution).await, expected, "{key}");
        assert_eq!(scene.counter(key).await, (1, [execution.arn].into()));
    }
}

#[tokio::test]
async fn a_renewal_or_a_release_without_a_response_is_repeated() {
    let Some(scene) = scene().await else { return };
    for (key, nth) in [("renew", 2), ("release", 3)] {
        scene.sample.proxy.decide(nth_write_lost(nth));
        let (execution, error) = run(&scene, key, Poll::Look, key).await;
        assert_eq!(error, None, "{key}");
        assert_eq!(states(&scene, &execution).await, FREE, "{key}");
        assert!(scene.lock(key).await.released, "{key}");
    }
}

/// Refuses the first writes of the state machines.
fn first_writes_throttled(writes: u32) -> impl Fn(&Call) -> Fate + Send + Sync {
    let so_far = AtomicU32::new(0);
    move |call| {
        let is_write = call.caller == ENGINE && call.needs[0].action == "dynamodb:UpdateItem";
        if is_write && so_far.fetch_add(1, Ordering::SeqCst) < writes { Fate::Throttled } else { Fate::Answered }
    }
}

#[tokio::test]
async fn claims_that_fail_wait_between_each_other_and_are_given_up_after_seven() {
    let Some(scene) = scene().await else { return };
    let again = ["Look", "Decide", "WaitForHolder", "LockAgain"];

    scene.sample.proxy.decide(first_writes_throttled(3));
    let (execution, error) = run(&scene, "some", Poll::Claim, "k").await;
    assert_eq!(error, None);
    let expected = [&["Lock"][..], &again, &again, &again, &FREE[1..]].concat();
    assert_eq!(states(&scene, &execution).await, expected);

    scene.sample.proxy.decide(first_writes_throttled(u32::MAX));
    let began = Instant::now();
    let (execution, error) = run(&scene, "all", Poll::Claim, "k").await;
    assert_eq!(error.as_deref(), Some("DynamoDB.ThrottlingException"));
    assert!(began.elapsed() >= Duration::from_secs(6), "{:?}", began.elapsed());
    let states = states(&scene, &execution).await;
    assert_eq!(states.iter().filter(|state| state.starts_with("Lock")).count(), 7, "{states:?}");
    assert_eq!(states.last().unwrap(), "Failed");

    let _other = scene.locks().acquire("held").lease(PATIENCE).try_once().await.unwrap();
    let (execution, error) = run(&scene, "held", Poll::Claim, "held").await;
    assert_eq!(error.as_deref(), Some("DynamoDB.ThrottlingException"));
    let states = super::states(&scene, &execution).await;
    assert_eq!(states.iter().filter(|state| state.starts_with("Lock")).count(), 7, "{states:?}");
}
