//! A process in its snapshot.

use crate::scene::{LONG, NAME, Scene, answer, begin};
use lambda_lock_local::ContainerCredentials;
use serde_json::json;
use std::time::Duration;

#[tokio::test]
async fn a_process_waits_in_its_snapshot_until_it_is_restored() {
    const IN_THE_SNAPSHOT: Duration = Duration::from_millis(300);
    let credentials = ContainerCredentials::start().await.unwrap();
    let [uri, token] = credentials.variables();
    let scene = Scene::with(
        LONG,
        &[
            ("LOCK_TABLE", "locks"),
            ("AWS_LAMBDA_INITIALIZATION_TYPE", "snap-start"),
            (&uri.0, &uri.1),
            (&token.0, &token.1),
        ],
    )
    .await;

    let invoked = begin(&scene, json!({ "key": "k" }));
    let environment = scene.lambda.snapshot(NAME).await;
    tokio::time::sleep(IN_THE_SNAPSHOT).await;
    assert!(!invoked.is_finished());
    scene.lambda.restore(environment).unwrap();
    let invocation = invoked.await.unwrap();

    answer(&invocation);
    assert!(invocation.cold_start && invocation.init > Some(IN_THE_SNAPSHOT), "{invocation:?}");
    assert!(scene.lambda.restore(environment).is_err(), "it is restored once");
    assert!(!scene.invoke(json!({ "key": "k" })).await.cold_start);
}
