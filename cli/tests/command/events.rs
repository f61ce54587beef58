//! `watch`, `history` and `timeline`: what happened to a lock.

use crate::golden::{assert_golden, coloured, golden, golden_coloured};
use crate::place::{Ended, LEASE, Place, TABLE, end};
use lambda_lock::once::Started;
use lambda_lock_local::LocalDynamoDb;
use lambda_lock_timeline::{Change, Event};
use serde_json::json;
use std::process::Stdio;
use std::time::Duration;
use tokio::time::sleep;

/// Longer than between two looks.
const A_WHILE: Duration = Duration::from_millis(400);

fn events(printed: &str) -> Vec<(Change, String)> {
    let events = printed.lines().map(|line| serde_json::from_str::<Event>(line).unwrap());
    events.map(|event| (event.change, event.holder)).collect()
}

/// A lock that is renewed, released, acquired by somebody who dies, taken over, broken, frozen and thawed.
async fn story(place: &Place) {
    let locks = place.locks("test");
    let mut first = place.held("k", "a").await;
    sleep(A_WHILE).await;
    first.checkpoint().await.unwrap();
    sleep(A_WHILE).await;
    first.release().await.unwrap();
    sleep(A_WHILE).await;
    let dies = locks.try_acquire("k").owner("b").lease(Duration::from_secs(1)).await.unwrap();
    let _ = dies.granted().unwrap().save();
    sleep(Duration::from_millis(3_300)).await;
    let _third = place.held("k", "c").await.save();
    sleep(A_WHILE).await;
    let again = locks.try_acquire("k").owner("c").reclaim_own().lease(LEASE).await.unwrap();
    let _ = again.granted().unwrap().save();
    sleep(A_WHILE).await;
    let seen = locks.peek("k").await.unwrap().unwrap().version;
    locks.break_lock("k", &seen, "c is gone").await.unwrap();
    sleep(A_WHILE).await;
    locks.freeze("k", "a migration").await.unwrap();
    sleep(A_WHILE).await;
    locks.thaw("k").await.unwrap();
    sleep(A_WHILE).await;
}

fn told() -> Vec<(Change, String)> {
    let story = [
        (Change::Granted, "a"),
        (Change::Renewed, "a"),
        (Change::Released, "a"),
        (Change::Granted, "b"),
        (Change::TakenOver, "c"),
        (Change::TakenOver, "c"),
        (Change::Broken, "c"),
        (Change::Frozen, "c"),
        (Change::Thawed, "c"),
    ];
    story.map(|(change, holder)| (change, holder.to_owned())).into()
}

#[tokio::test(flavor = "multi_thread")]
async fn watch_tells_what_changes_of_one_lock_and_of_all() {
    let place = Place::new().await;
    let _other = place.held("other", "o").await.save();
    let watch = |arguments: &[&str]| {
        let mut command = place.command();
        command.args(["watch", "--interval", "100ms", "--for", "8s"]).args(arguments);
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let (one, all, text) = (watch(&["k", "--json"]), watch(&["--json"]), watch(&["k", "other"]));
    let mut colours = coloured(&place, &["watch", "k", "--interval", "100ms", "--for", "8s"]);
    let colours = tokio::spawn(async move { end(&mut colours).await });
    sleep(Duration::from_millis(500)).await;
    story(&place).await;
    let [one, all, text] = [one, all, text].map(|child| async { child.wait_with_output().await.unwrap() });
    let (one, all, text) = tokio::join!(one, all, text);
    let one = String::from_utf8(one.stdout).unwrap();
    assert_eq!(events(&one), told());
    let mut of_all = vec![(Change::Held, "o".to_owned())];
    of_all.extend(told());
    assert_eq!(events(&String::from_utf8(all.stdout).unwrap()), of_all);
    let text = Ended { status: text.status, out: String::from_utf8(text.stdout).unwrap(), err: String::new() };
    assert_golden("watch", &text);
    assert_golden("watch-colours", &colours.await.unwrap());
    assert_golden("watch-json", &Ended { out: one.clone(), ..text });

    let drawn = place.run_with(&["timeline", "--columns", "60"], &one).await.done();
    assert!(drawn.contains("k a  █") && drawn.contains('░'), "{drawn}");
    assert!(place.run_with(&["timeline", "--svg"], &one).await.done().starts_with("<svg"));
    assert_golden("timeline-nonsense", &place.run_with(&["timeline"], "hello\n").await);
}

/// A table with a stream that has these images.
async fn with_stream(images: &str) -> Place {
    let local = LocalDynamoDb::in_memory().await.unwrap();
    let table = json!({
        "TableName": TABLE,
        "AttributeDefinitions": [{ "AttributeName": "key", "AttributeType": "S" }],
        "KeySchema": [{ "AttributeName": "key", "KeyType": "HASH" }],
        "BillingMode": "PAY_PER_REQUEST",
        "StreamSpecification": { "StreamEnabled": true, "StreamViewType": images },
    });
    local.create_tables(&[table]).await.unwrap();
    Place { local }
}

#[tokio::test(flavor = "multi_thread")]
async fn history_tells_the_same_from_the_tables_stream() {
    let place = with_stream("NEW_AND_OLD_IMAGES").await;
    let _other = place.held("other", "o").await.save();
    story(&place).await;
    let printed = place.run(&["history", "k", "--json"]).await.done();
    assert_eq!(events(&printed), told());
    assert_golden("history", &place.run(&["history", "k"]).await);
    golden(&place, "history-json", &["history", "k", "--json"]).await;
    golden_coloured(&place, "history", &["history", "k"]).await;
    assert_golden("history-nothing", &place.run(&["history", "nobody"]).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn idempotent_work_is_settled_and_not_deleted() {
    let place = Place::new().await;
    let mut watch = place.command();
    watch.args(["watch", "--interval", "100ms", "--for", "3s", "--json"]).stdout(Stdio::piped());
    let watch = watch.spawn().unwrap();
    sleep(Duration::from_millis(500)).await;
    let locks = place.locks("test");
    let Started::Attempt(attempt) = locks.once("order-9").owner("a").lease(LEASE).start::<()>().await.unwrap() else {
        panic!("it has an outcome");
    };
    sleep(A_WHILE).await;
    attempt.complete(&()).await.unwrap();
    place.held("k", "b").await.release().delete_row().await.unwrap();
    let printed = String::from_utf8(watch.wait_with_output().await.unwrap().stdout).unwrap();
    assert_eq!(events(&printed), [(Change::Granted, "a".to_owned()), (Change::Settled, "a".to_owned())]);
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_stream_it_is_said_how_to_switch_it_on() {
    let place = Place::new().await;
    assert_golden("history-without-a-stream", &place.run(&["history", "k"]).await);
}

/// DynamoDB refuses to change the images of a stream that is on.
#[tokio::test(flavor = "multi_thread")]
async fn with_a_stream_of_other_images_it_is_said_that_it_must_be_switched_off_first() {
    let place = with_stream("NEW_IMAGE").await;
    assert_golden("history-other-images", &place.run(&["history", "k"]).await);
}
