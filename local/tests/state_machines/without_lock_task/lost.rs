//! Lost responses: each request once, with both kinds of polling.

use super::{FREE, nth_write_lost, run, scene, states};
use lambda_lock_asl::Poll;
use std::time::{Duration, Instant};

/// How long a retry may take: its pause is one second at most, and two processors are busy.
const PATIENCE: Duration = Duration::from_secs(4);

#[tokio::test]
async fn a_claim_without_a_response_is_recognised_as_this_execution_s_own() {
    let Some(scene) = scene().await else { return };
    for (key, poll) in [("looks", Poll::Look), ("claims", Poll::Claim)] {
        scene.sample.proxy.decide(nth_write_lost(1));
        let began = Instant::now();
        let (execution, error) = run(&scene, key, poll, key).await;
        assert_eq!(error, None);
        let expected = ["Lock", "Look", "Decide", "Take", "FirstStep", "Renew", "SecondStep", "Unlock"];
        assert_eq!(states(&scene, &execution).await, expected, "{key}");
        assert!(began.elapsed() < PATIENCE, "no lease is waited for: {:?}", began.elapsed());
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
