//! `watch`, `history` and `timeline`: what happened to a lock.

use crate::beside::service;
use crate::golden::{assert_golden, coloured, golden, golden_coloured};
use crate::place::{Ended, LEASE, Place, TABLE, end, end_of, interrupt};
use lambda_lock::Budget;
use lambda_lock::once::Started;
use lambda_lock_local::{CountingProxy, LocalDynamoDb};
use lambda_lock_testkit::{soon, soon_so};
use lambda_lock_timeline::{Change, Event};
use serde_json::{Value, json};
use std::process::Stdio;
use std::time::{Duration, Instant, SystemTime};
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout};

/// A `watch` that runs, and what it has printed so far.
pub(crate) struct Watcher {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
    printed: String,
    _proxy: CountingProxy,
}

impl Watcher {
    /// Starts a watch of these keys, or of all, and waits until it has looked.
    pub(crate) async fn start(place: &Place, keys: &[&str], more: &[&str], colours: bool) -> Self {
        let proxy = CountingProxy::start(place.local.endpoint()).await.unwrap();
        let mut command = if colours { coloured(place, &[]) } else { place.command() };
        command.env("AWS_ENDPOINT_URL_DYNAMODB", proxy.endpoint());
        let interval: &[&str] = if more.contains(&"--interval") { &[] } else { &["--interval", "100ms"] };
        command.arg("watch").args(interval).args(keys).args(more);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        // The first look is over when the second one has begun.
        let (a_look, mut looks) = (keys.len().max(1) as u64, 0);
        soon_so("a watch has looked", async || {
            looks += proxy
                .take()
                .requests
                .iter()
                .filter(|(name, _)| ["GetItem", "Scan"].contains(&name.as_str()))
                .map(|(_, count)| count)
                .sum::<u64>();
            looks > a_look
        })
        .await;
        Self { child, lines, printed: String::new(), _proxy: proxy }
    }

    /// Waits until it tells the next event.
    pub(crate) async fn tells(&mut self) {
        let line = soon("a watch tells what happened", self.lines.next_line()).await.unwrap().unwrap();
        self.printed += &format!("{line}\n");
    }

    /// What it has told when it is interrupted.
    pub(crate) async fn ended(mut self) -> Ended {
        interrupt(&self.child);
        while let Some(line) = soon("a watch ends", self.lines.next_line()).await.unwrap() {
            self.printed += &format!("{line}\n");
        }
        Ended { out: self.printed, ..end_of(self.child).await }
    }
}

async fn all_tell(watchers: &mut [Watcher]) {
    for watcher in watchers {
        watcher.tells().await;
    }
}

pub(crate) fn events(printed: &str) -> Vec<(Change, String)> {
    let events = printed.lines().map(|line| serde_json::from_str::<Event>(line).unwrap());
    events.map(|event| (event.change, event.holder)).collect()
}

/// A lock that is renewed, released, acquired by somebody who dies, taken over, broken, frozen and thawed. Nothing more
/// happens before all watchers have told what happened.
async fn story(place: &Place, watchers: &mut [Watcher]) {
    let locks = place.locks("test");
    let mut first = place.held("k", "a").await;
    all_tell(watchers).await;
    first.checkpoint().await.unwrap();
    all_tell(watchers).await;
    first.release().await.unwrap();
    all_tell(watchers).await;
    let dies = locks.acquire("k").owner("b").lease(Duration::from_secs(1)).try_once().await.unwrap();
    let _ = dies.granted().unwrap().save();
    all_tell(watchers).await;
    let _third =
        place.locks("c").acquire("k").owner("c").lease(LEASE).within(&Budget::lasting(LEASE)).await.unwrap().save();
    all_tell(watchers).await;
    let again = locks.acquire("k").owner("c").reclaim_own().lease(LEASE).try_once().await.unwrap();
    let _ = again.granted().unwrap().save();
    all_tell(watchers).await;
    let seen = locks.operator().peek("k").await.unwrap().unwrap();
    locks.operator().break_lock("k", &seen, "c is gone").await.unwrap();
    all_tell(watchers).await;
    locks.operator().freeze("k", "a migration").await.unwrap();
    all_tell(watchers).await;
    locks.operator().thaw("k").await.unwrap();
    all_tell(watchers).await;
}

/// A watch does not see how the same holder got another grant.
fn told_by_watch() -> Vec<(Change, String)> {
    let mut told = told();
    told[5].0 = Change::Granted;
    told
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
    let mut watchers = [
        Watcher::start(&place, &["k"], &["--json"], false).await,
        Watcher::start(&place, &[], &["--json"], false).await,
        Watcher::start(&place, &["k", "other"], &[], false).await,
        Watcher::start(&place, &["k"], &[], true).await,
    ];
    // They tell first what is held.
    watchers[1].tells().await;
    watchers[2].tells().await;
    story(&place, &mut watchers).await;
    let [one, all, text, colours] = watchers.map(Watcher::ended);
    let (one, all, text, colours) = tokio::join!(one, all, text, colours);
    assert_eq!(events(&one.out), told_by_watch());
    let mut of_all = vec![(Change::Held, "o".to_owned())];
    of_all.extend(told_by_watch());
    assert_eq!(events(&all.out), of_all);
    assert_golden("watch", &text);
    assert_golden("watch-colours", &colours);
    assert_golden("watch-json", &one);

    let drawn = place.run_with(&["timeline", "--columns", "60"], &one.out).await.done();
    assert!(drawn.contains("k a  █") && drawn.contains('░'), "{drawn}");
    assert!(place.run_with(&["timeline", "--svg"], &one.out).await.done().starts_with("<svg"));
    assert_golden("timeline-nonsense", &place.run_with(&["timeline"], "hello\n").await);
}

/// A table with a stream that has these images.
pub(crate) async fn with_stream(images: &str) -> Place {
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
    story(&place, &mut []).await;
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
    let mut watch = Watcher::start(&place, &[], &["--json"], false).await;
    let locks = place.locks("test");
    let Started::Attempt(attempt) = locks.once("order-9").owner("a").lease(LEASE).start::<()>().await.unwrap() else {
        panic!("it has an outcome");
    };
    watch.tells().await;
    attempt.complete(&()).await.unwrap();
    watch.tells().await;
    let printed = watch.ended().await.out;
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

/// The answers of DynamoDB about a row, and about the open shard behind a closed one, which are listed in any order, with a quiet one
/// before them. After so many empty answers the shard has the grant of a lock.
fn with_empty_answers(body: &str, row: &Value, empty: u32) -> (u16, String) {
    let shard = |id: &str, parent: Option<&str>| {
        let end = (id == "parent").then_some("1");
        json!({ "ShardId": id, "ParentShardId": parent, "SequenceNumberRange": { "StartingSequenceNumber": "1", "EndingSequenceNumber": end } })
    };
    let record = |new: &Value, old: &Value| {
        let change =
            json!({ "Keys": { "key": { "S": "k" } }, "NewImage": new, "OldImage": old, "SequenceNumber": "1" });
        json!({ "eventName": "MODIFY", "dynamodb": change })
    };
    let mut before = row.clone();
    before["isReleased"] = json!({ "S": "1" });
    let records = |records: Value, next: Option<String>| json!({ "Records": records, "NextShardIterator": next });
    let asked: Value = serde_json::from_str(body).unwrap();
    let answer = match (asked["ShardId"].as_str(), asked["ShardIterator"].as_str()) {
        (Some(shard), _) => json!({ "ShardIterator": format!("{shard}/0") }),
        (_, Some("parent/0")) => records(json!([record(&before, &json!({}))]), None),
        (_, Some(iterator)) => {
            let (shard, count) = iterator.split_once('/').unwrap();
            let count: u32 = count.parse().unwrap();
            let come = if shard == "open" && count == empty { json!([record(row, &before)]) } else { json!([]) };
            records(come, Some(format!("{shard}/{}", count + 1)))
        }
        _ if asked.get("Key").is_some() => json!({ "Item": row }),
        _ if asked.get("StreamArn").is_some() => {
            json!({ "StreamDescription": { "Shards": [shard("quiet", None), shard("open", Some("parent")), shard("parent", None)] } })
        }
        _ => {
            let stream = json!({ "StreamEnabled": true, "StreamViewType": "NEW_AND_OLD_IMAGES" });
            json!({ "Table": { "LatestStreamArn": "arn:of:the:stream", "StreamSpecification": stream } })
        }
    };
    (200, answer.to_string())
}

/// Where the row cannot be read for now, nobody knows whether its last change has come.
#[tokio::test(flavor = "multi_thread")]
async fn a_history_whose_row_cannot_be_read_for_now_does_not_end_as_if_it_were_whole() {
    let place = Place::new().await;
    let endpoint = service(|body| match serde_json::from_str::<Value>(body).unwrap().get("Key") {
        Some(_) => (500, String::new()),
        None => with_empty_answers(body, &json!({}), u32::MAX),
    })
    .await;
    let history = end(place.command().env("AWS_ENDPOINT_URL_DYNAMODB", &endpoint).args(["history", "k"])).await;
    assert_eq!(history.code(), 69, "{history:?}");
}

/// Another lock of the table is renewed again and again, so the open shard is never silent.
#[tokio::test(flavor = "multi_thread")]
async fn a_history_ends_also_on_a_table_where_something_is_always_written() {
    let place = Place::new().await;
    let endpoint = service(|body| {
        let asked: Value = serde_json::from_str(body).unwrap();
        let is_open = asked["ShardIterator"].as_str().is_some_and(|iterator| iterator.starts_with("open"));
        if asked.get("Key").is_some() {
            return (200, "{}".to_owned());
        }
        if !is_open {
            return with_empty_answers(body, &json!({}), u32::MAX);
        }
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs();
        let change =
            json!({ "Keys": { "key": { "S": "other" } }, "SequenceNumber": "2", "ApproximateCreationDateTime": now });
        let records = json!([{ "eventName": "MODIFY", "dynamodb": change }]);
        (200, json!({ "Records": records, "NextShardIterator": "open/1" }).to_string())
    })
    .await;
    let history = end(place.command().env("AWS_ENDPOINT_URL_DYNAMODB", &endpoint).args(["history", "k"])).await;
    assert!(history.status.success(), "{history:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn history_reads_on_beyond_empty_answers_and_says_where_it_gives_up() {
    let place = Place::new().await;
    let lock = place.held("k", "a").await.save();
    let get = async || {
        let key = aws_sdk_dynamodb::types::AttributeValue::S("k".to_owned());
        place.local.client().get_item().table_name(TABLE).key("key", key).send().await.unwrap().item.unwrap()
    };
    let row: serde_json::Map<_, _> = get()
        .await
        .into_iter()
        .map(|(name, value)| {
            let value =
                value.as_s().map_or_else(|_| json!({ "N": value.as_n().unwrap() }), |text| json!({ "S": text }));
            (name, value)
        })
        .collect();
    let history = async |empty| {
        let row = Value::Object(row.clone());
        let endpoint = service(move |body| with_empty_answers(body, &row, empty)).await;
        end(place.command().env("AWS_ENDPOINT_URL_DYNAMODB", &endpoint).args(["history", "k", "--json"])).await
    };
    let begun = Instant::now();
    let all = async { (history(30).await, begun.elapsed()) };
    let ((all, took), given_up) = tokio::join!(all, history(u32::MAX));
    // A quiet shard has no silence of its own.
    assert!(took < Duration::from_secs(25), "{took:?}");
    let story = [(Change::Released, "a".to_owned()), (Change::Granted, "a".to_owned())];
    assert_eq!(events(&all.done()), story);
    assert_eq!((given_up.code(), events(&given_up.out)), (69, story[..1].to_vec()), "{given_up:?}");
    assert!(given_up.err.contains("the last change of the lock is missing"), "{given_up:?}");
    drop(lock);
}
