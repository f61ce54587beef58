//! Additional attributes: a row has those of its grant, and no others of ours.

use crate::LEASE;
use lambda_lock::{Attribute, DataChange, ErrorKind, LockClient};
use lambda_lock_testkit::{Fault, Table, acquired, case, counted, granted, millis, secs};
use serde_json::json;
use std::collections::BTreeMap;
use tokio::time::sleep;

/// The names of a row that this crate wrote and that nobody gave additional attributes.
const PLAIN: [&str; 6] = ["fencingToken", "key", "leaseDuration", "leaseEndsAt", "ownerName", "recordVersionNumber"];

fn names(table: &Table) -> Vec<String> {
    let mut names: Vec<_> = table.row("k").unwrap().as_object().unwrap().keys().cloned().collect();
    names.sort_unstable();
    names
}

async fn shown(locks: &LockClient) -> BTreeMap<String, Attribute> {
    locks.operator().peek("k").await.unwrap().unwrap().attributes
}

fn pairs<const N: usize>(pairs: [(&str, Attribute); N]) -> BTreeMap<String, Attribute> {
    pairs.map(|(name, value)| (name.to_owned(), value)).into()
}

#[tokio::test(start_paused = true)]
async fn a_row_has_the_attributes_of_its_grant_until_the_next_grant() {
    let table = Table::new();
    let process = table.process();
    let locks = process.locks("me");
    let nightly = || locks.acquire("k").lease(LEASE).attribute("job", "nightly").attribute("shard", 5);

    let mut lock = granted(nightly().try_once()).await;
    assert_eq!(process.take_operations(), ["UpdateItem"]);
    let row = table.row("k").unwrap();
    assert_eq!((&row["job"], &row["shard"]), (&json!({"S": "nightly"}), &json!({"N": "5"})));
    let expected = pairs([("job", "nightly".into()), ("shard", 5.into())]);
    assert_eq!(shown(&locks).await, expected);

    // They are kept by everything that is no grant.
    lock.checkpoint().await.unwrap();
    lock.renew().data("half").await.unwrap();
    lock.commit([counted("work")]).await.unwrap();
    let lock = locks.resume(lock.save()).await.unwrap();
    lock.commit_and_release([counted("work")]).await.unwrap();
    assert!(table.is_released("k"));
    assert_eq!(shown(&locks).await, expected);
    process.take_sent();

    // Other values of the same names cost nothing.
    let lock = granted(nightly().attribute("shard", "six").try_once()).await;
    assert_eq!(process.take_operations(), ["UpdateItem"]);
    lock.release().await.unwrap();
    assert_eq!(shown(&locks).await, pairs([("job", "nightly".into()), ("shard", "six".into())]));
    process.take_sent();

    // Other names take one more write. A name that is given again stays.
    let lock = granted(locks.acquire("k").lease(LEASE).attributes([("shard", 6), ("zone", 1)]).try_once()).await;
    assert_eq!(process.take_operations(), ["UpdateItem", "UpdateItem"]);
    lock.release().await.unwrap();
    assert_eq!(shown(&locks).await, pairs([("shard", 6.into()), ("zone", 1.into())]));
    assert_eq!(table.attribute("k", "job"), None);
    process.take_sent();

    let lock = granted(locks.acquire("k").lease(LEASE).data(DataChange::Remove).try_once()).await;
    assert_eq!(process.take_operations(), ["UpdateItem", "UpdateItem"]);
    assert_eq!(names(&table), PLAIN, "nothing is left of them");
    lock.release().await.unwrap();
    process.take_sent();
    acquired(&locks, LEASE).await.release().await.unwrap();
    assert_eq!(process.take_operations(), ["UpdateItem", "UpdateItem"], "one to acquire, one to release");
}

#[tokio::test(start_paused = true)]
async fn a_grant_without_attributes_writes_what_it_wrote_before_there_were_any() {
    let table = Table::new();
    let process = table.process();

    let lock = acquired(&process.locks("me"), LEASE).await;

    assert_eq!(process.take_operations(), ["UpdateItem"]);
    assert_eq!(names(&table), PLAIN);
    lock.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_grant_that_is_told_to_keeps_the_attributes_of_the_last_one() {
    let table = Table::new();
    let process = table.process();
    let locks = process.locks("me");
    granted(locks.acquire("k").lease(LEASE).attribute("job", "nightly").try_once()).await.release().await.unwrap();
    process.take_sent();

    let lock = granted(locks.acquire("k").lease(LEASE).keep_attributes().try_once()).await;

    assert_eq!(process.take_operations(), ["UpdateItem"]);
    assert_eq!(shown(&locks).await, pairs([("job", "nightly".into())]));
    lock.release().await.unwrap();
    acquired(&locks, LEASE).await.release().await.unwrap();
    assert_eq!(table.attribute("k", "job"), None, "they are still listed, so that a later grant removes them");
}

#[tokio::test(start_paused = true)]
async fn the_attributes_of_a_dead_holder_are_replaced_with_its_grant() {
    for by_wall_clock in [true, false] {
        let _case = case(format!("by wall clock: {by_wall_clock}"));
        let table = Table::new();
        let process = table.process();
        let locks = process.locks("dead");
        let _ = granted(locks.acquire("k").lease(secs(1)).attribute("job", "nightly").try_once()).await.save();
        let builder = process.builder();
        let builder = if by_wall_clock { builder } else { builder.without_wall_clock_takeover() };
        let next = builder.build().unwrap();
        sleep(secs(5)).await;
        process.take_sent();

        let lock = next.acquire("k").within(&process.budget(secs(30))).attribute("zone", "a").await.unwrap();

        let writes = process.take_counts()["UpdateItem"];
        // Who waits until the holder is dead takes a ticket.
        let tickets = usize::from(!by_wall_clock);
        assert_eq!(writes - tickets, 2, "the first write shows the names, and the last one removes them");
        assert_eq!(shown(&next).await, pairs([("zone", "a".into())]));
        assert_eq!(table.attribute("k", "job"), None);
        lock.release().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_grant_whose_answer_was_lost_has_its_attributes_and_no_others() {
    let table = Table::new();
    let process = table.process();
    let locks = process.locks("me");
    granted(locks.acquire("k").lease(LEASE).attribute("job", "nightly").try_once()).await.release().await.unwrap();
    process.take_sent();
    // The Claim is refused, and the answer to the Take is lost.
    process.next([Fault::None, Fault::AnswerLost]);

    let lock = granted(locks.acquire("k").lease(LEASE).attribute("zone", "a").try_once()).await;

    assert_eq!(process.take_operations(), ["UpdateItem", "UpdateItem", "GetItem"]);
    assert_eq!(shown(&locks).await, pairs([("zone", "a".into())]));
    assert_eq!(table.attribute("k", "job"), None);
    lock.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_reclaim_keeps_the_attributes() {
    let table = Table::new();
    let process = table.process();
    let locks = process.locks("me");
    let saved = granted(locks.acquire("k").lease(LEASE).attribute("job", "nightly").try_once()).await.save();
    process.take_sent();

    let saved = locks.reclaim(saved).lease(LEASE).await.unwrap().save();
    assert_eq!(process.take_operations(), ["UpdateItem"]);
    assert_eq!(shown(&locks).await, pairs([("job", "nightly".into())]));
    locks.release(saved).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_refused_call_is_shown_the_attributes_of_the_holder_with_one_request() {
    let table = Table::new();
    let process = table.process();
    let locks = process.locks("me");
    let lock = granted(locks.acquire("k").lease(LEASE).attribute("job", "nightly").try_once()).await;
    process.take_sent();

    let tried = locks.acquire("k").lease(LEASE).attribute("zone", "a").try_once().await.unwrap();

    assert_eq!(process.take_operations(), ["UpdateItem"]);
    let held = tried.refused().unwrap();
    assert_eq!(held.attributes, pairs([("job", "nightly".into())]));
    assert!(
        !format!("{held:?} {:?}", locks.operator().peek("k").await).contains("nightly"),
        "they do not get into logs"
    );
    lock.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn attributes_of_others_are_shown_under_their_grant_and_stay_under_ours() {
    let table = Table::new();
    table.put_java_row("k", "v1", millis(100));
    table.set("k", json!({"team": {"S": "billing"}, "size": {"N": "7"}, "tags": {"SS": ["a"]}}));
    let process = table.process();
    let locks = process.builder().ttl_attribute("size").build().unwrap();

    assert_eq!(shown(&locks).await, pairs([("team", "billing".into())]), "without the TTL and types of no use here");

    let lock =
        locks.acquire("k").within(&process.budget(secs(30))).lease(LEASE).attribute("job", "nightly").await.unwrap();
    assert_eq!(shown(&locks).await, pairs([("job", "nightly".into())]));
    lock.release().await.unwrap();
    acquired(&locks, LEASE).await.release().await.unwrap();

    let row = table.row("k").unwrap();
    assert_eq!((&row["team"], &row["tags"]), (&json!({"S": "billing"}), &json!({"SS": ["a"]})));
    assert_eq!(row.get("job"), None);
    assert_eq!(shown(&locks).await, pairs([]));
}

#[tokio::test(start_paused = true)]
async fn attributes_that_cannot_be_stored_are_refused_before_any_request() {
    let table = Table::with_keys(&["pk", "sk"]);
    let process = table.process();
    let builder = process.builder().key_attribute("pk").sort_key_attribute("sk").ttl_attribute("expiresAt");
    let locks = builder.build().unwrap();
    let acquire = || locks.acquire(("k", "s")).lease(LEASE);
    let reserved = ["pk", "sk", "expiresAt", "ownerName", "isReleased", "workflow", "attributeNames", "outcome"];
    let large = "x".repeat(400 * 1024 - 1000);
    let many = (0..21).map(|number| (format!("a{number}"), number));

    let mut refused: Vec<_> =
        reserved.map(|name| (acquire().attribute(name, 1), format!("cannot be called {name:?}"))).into();
    refused.extend([
        (acquire().attribute("", 1), "1 to 255 bytes".to_owned()),
        (acquire().attribute("n".repeat(256), 1), "1 to 255 bytes".to_owned()),
        (acquire().attribute("a,b", 1), "without a comma".to_owned()),
        (acquire().attribute("n", f64::NAN), "not a number that DynamoDB stores".to_owned()),
        (acquire().attributes(many), "at most 20".to_owned()),
        (acquire().attribute("n", 1).keep_attributes(), "one or the other".to_owned()),
        (acquire().attribute("n", large.as_str()), "at most 409600 bytes".to_owned()),
        (acquire().attribute("n", &large[..300_000]).data(&large[..110_000]), "at most 409600 bytes".to_owned()),
    ]);
    for (request, text) in refused {
        let error = request.try_once().await.unwrap_err();
        assert!(
            error.kind() == ErrorKind::InvalidRequest && error.to_string().contains(&text),
            "{error} does not say: {text}"
        );
    }
    assert!(process.take_sent().is_empty());

    // The most that is allowed, on a row that has the most to remove.
    let twenty = |letter: char| (0..20).map(move |number| (format!("{}{number}", letter.to_string().repeat(250)), 1));
    for letter in ['a', 'b'] {
        granted(acquire().attributes(twenty(letter)).try_once()).await.release().await.unwrap();
    }
    assert_eq!(locks.operator().peek(("k", "s")).await.unwrap().unwrap().attributes.len(), 20);
    let key = json!({"pk": {"S": "k"}, "sk": {"S": "s"}});
    let found = table.call("GetItem", &json!({"TableName": "locks", "Key": key}));
    let left = found["Item"].as_object().unwrap().keys().filter(|name| name.len() > 200);
    assert_eq!(left.count(), 20);
}

/// They are behind placeholders, so none of them is read as a part of an expression.
#[tokio::test(start_paused = true)]
async fn any_name_without_a_comma_can_be_written_and_removed() {
    let table = Table::new();
    let locks = table.process().locks("me");
    let given = pairs([
        ("#a0", "".into()),
        (":a0", Attribute::Number(format!("-0.{}", "9".repeat(38)))),
        ("a.b[0]", Attribute::Number("9.9E125".to_owned())),
        ("size", Attribute::Number("1e-130".to_owned())),
        ("SET", 0.1.into()),
        ("recordversionnumber", "\u{0}".into()),
        ("schlüssel 🔑", "\u{10ffff}".into()),
        (" ", u64::MAX.into()),
        ("\"", i64::MIN.into()),
        ("data2", "data".into()),
    ]);

    granted(locks.acquire("k").lease(LEASE).attributes(given.clone()).try_once()).await.release().await.unwrap();

    let row = table.row("k").unwrap();
    for (name, value) in &given {
        let written = &row[name];
        match value {
            Attribute::Text(text) => assert_eq!(written["S"], *text, "{name}"),
            _ => assert!(written["N"].is_string(), "{name}: {written}"),
        }
    }
    assert_eq!(shown(&locks).await.len(), given.len());
    acquired(&locks, LEASE).await.release().await.unwrap();
    let mut released = PLAIN.to_vec();
    released.push("isReleased");
    released.sort_unstable();
    assert_eq!(names(&table), released);
}

#[tokio::test(start_paused = true)]
async fn a_list_of_names_that_somebody_wrote_harms_neither_the_record_nor_the_caller() {
    let table = Table::new();
    let locks = table.process().locks("me");
    acquired(&locks, LEASE).await.release().await.unwrap();
    let listed = "key,job,,ownerName,job,recordVersionNumber,fencingToken,missing";
    table.set("k", json!({"attributeNames": {"S": listed}, "job": {"S": "nightly"}}));

    let lock = acquired(&locks, LEASE).await;

    assert_eq!(names(&table), PLAIN);
    lock.release().await.unwrap();
    table.set("k", json!({"attributeNames": {"S": "a,".repeat(21)}}));
    let row = table.row("k");
    let error = locks.acquire("k").lease(LEASE).try_once().await.unwrap_err();
    assert_eq!(error.invalid_attribute(), Some("attributeNames"), "{error}");
    assert_eq!(table.row("k"), row);
}
