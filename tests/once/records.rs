//! Records: their wire format, how long they count, and rows that are no records.

use crate::{DAY, LEASE, ORDER, ROW, attempt, once, replayed};
use lambda_lock::ErrorKind;
use lambda_lock_testkit::{EPOCH_SECONDS, Fault, ROUND_TRIP, Table, case, granted, millis, secs};
use serde_json::{Value, json};
use tokio::time::sleep;

#[tokio::test(start_paused = true)]
async fn the_record_follows_its_wire_format() {
    let table = Table::new();
    let locks = table.process().builder().owner("me").ttl_attribute("expiresAt").build().unwrap();

    let first = attempt(once(&locks).payload(&ORDER).keep_for(secs(3600))).await;
    let (token, now) = (first.fencing_token(), EPOCH_SECONDS * 1000);
    let open = table.row(ROW).unwrap();
    assert!(open["recordVersionNumber"]["S"].as_str().unwrap().starts_with("ll1-"));
    assert_eq!(open["attempts"]["N"], "1");
    assert_eq!(open["firstSeenAt"]["N"], now.to_string());
    assert_eq!(open["keptUntilAt"]["N"], (now + 21_000 + 3_600_000).to_string());
    assert_eq!(open["expiresAt"]["N"], (EPOCH_SECONDS + 21 + 3600).to_string());
    assert_eq!(open["payloadHash"]["S"].as_str().unwrap().len(), 64);
    assert!(open.get("onceState").is_none());

    // Each request arrives at a whole second.
    sleep(secs(10) - ROUND_TRIP).await;
    let mut first = first;

    first.renew().data("half way").await.unwrap();
    assert_eq!(table.attribute(ROW, "keptUntilAt").unwrap(), (now + 31_000 + 3_600_000).to_string());
    assert_eq!(table.attribute(ROW, "expiresAt").unwrap(), (EPOCH_SECONDS + 31 + 3600).to_string());

    sleep(secs(2) - ROUND_TRIP).await;
    first.complete(&json!([1])).await.unwrap();
    let settled = table.row(ROW).unwrap();
    assert!(settled["recordVersionNumber"]["S"].as_str().unwrap().starts_with("lo1-"));
    assert_eq!((&settled["onceState"]["S"], &settled["outcome"]["S"]), (&json!("done"), &json!("[1]")));
    assert_eq!(settled["outcomeAt"]["N"], (now + 12_000).to_string());
    assert_eq!(settled["keptUntilAt"]["N"], (now + 12_000 + 3_600_000).to_string());
    assert_eq!(settled["expiresAt"]["N"], (EPOCH_SECONDS + 12 + 3600).to_string());
    assert_eq!(settled["fencingToken"]["N"], token.to_string());
    for gone in ["leaseDuration", "leaseEndsAt", "isReleased", "data", "workflow"] {
        assert!(settled.get(gone).is_none(), "{gone}");
    }
    assert_eq!((&settled["attempts"], &settled["payloadHash"]), (&open["attempts"], &open["payloadHash"]));
}

#[tokio::test(start_paused = true)]
async fn a_client_s_prefix_comes_before_the_namespace_and_clients_with_different_prefixes_do_not_meet() {
    let table = Table::new();
    let locks = table.process().locks("me");
    let (blue, red) = (locks.prefixed("blue/").unwrap(), locks.prefixed("red/").unwrap());

    attempt(once(&blue)).await.complete(&1).await.unwrap();
    let theirs = attempt(once(&red)).await;

    assert_eq!(theirs.key(), &"red/once/order-42".into());
    theirs.give_back().await.unwrap();
    attempt(once(&locks)).await.complete(&2).await.unwrap();
    assert_eq!((replayed(once(&blue)).await, replayed(once(&locks)).await), (json!(1), json!(2)));
    assert!(table.row("blue/once/order-42").is_some() && table.row(ROW).is_some());

    assert_eq!(blue.once("order-42").status().await.unwrap().unwrap().attempts, 1);
    attempt(once(&red)).await.fail("no").await.unwrap();
    let failed_before = once(&red).start::<Value>().await.map(drop).unwrap_err();
    assert!(failed_before.to_string().contains("the work red/order-42 failed"), "{failed_before}");
    let nameless = blue.once("").lease(LEASE).start::<Value>().await.map(drop).unwrap_err();
    assert_eq!(nameless.kind(), ErrorKind::InvalidRequest, "{nameless}");
}

mod a_record_whose_time_is_over_is_as_if_it_had_never_been {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn of_a_failure() {
        check(true).await;
    }

    #[tokio::test(start_paused = true)]
    async fn of_a_result() {
        check(false).await;
    }

    async fn check(failed: bool) {
        let table = Table::new();
        let process = table.process();
        let locks = process.locks("me");
        let first = attempt(once(&locks).payload(&ORDER).keep_for(secs(60))).await;
        let token = first.fencing_token();
        if failed {
            first.fail(&1).await.unwrap()
        } else {
            first.complete(&1).await.unwrap()
        }
        let again = || once(&locks).payload(&json!("another payload")).keep_for(secs(60));

        sleep(secs(61)).await;
        assert!(again().start::<Value>().await.is_err(), "clocks disagree, so it counts a little longer");

        sleep(secs(2)).await;
        process.take_sent();

        let anew = attempt(again()).await;
        assert_eq!(process.take_operations(), ["UpdateItem", "UpdateItem"], "refused claim, take");
        assert_eq!(anew.number(), 1);
        assert!(anew.fencing_token() > token, "but for the fencing token");
        assert_ne!(anew.first_seen_at(), None);
        for gone in ["onceState", "outcome", "outcomeAt", "isReleased"] {
            assert_eq!(table.attribute(ROW, gone), None, "{gone}");
        }

        anew.complete(&2).await.unwrap();
        assert_eq!(replayed(again()).await, 2);
    }
}

#[tokio::test(start_paused = true)]
async fn an_open_record_whose_time_is_over_is_forgotten_too_but_not_while_it_is_held() {
    let table = Table::new();
    let locks = table.process().locks("me");
    let short = || once(&locks).payload(&ORDER).keep_for(secs(1));
    let mut first = attempt(short()).await;
    first.renew().data("progress").await.unwrap();

    // A caller that keeps records for less time than the lease still cannot disturb a living
    // holder.
    sleep(secs(20)).await;
    assert!(short().start::<Value>().await.unwrap_err().is_held());

    first.give_back().await.unwrap();
    sleep(secs(30)).await;

    let anew = attempt(once(&locks).payload(&json!("another payload"))).await;
    assert_eq!((anew.number(), anew.data()), (1, None));

    anew.give_back().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_plain_lock_and_an_idempotent_work_never_take_each_others_rows() {
    let table = Table::new();
    let process = table.process();
    let locks = process.locks("me");

    for error in [
        locks.acquire(ROW).lease(LEASE).try_once().await.unwrap_err(),
        locks.release_workflow(ROW, "arn").await.unwrap_err(),
    ] {
        assert!(error.kind() == ErrorKind::InvalidRequest && error.to_string().contains("once/"), "{error}");
    }

    let open = attempt(once(&locks)).await;
    assert!(locks.resume(open.to_saved()).await.is_err());
    assert!(locks.release(open.to_saved()).await.is_err());
    assert!(locks.reclaim(open.to_saved()).lease(LEASE).await.is_err());

    // A lock with the same name has another row, and can be held at the same time as the work.
    let lock = granted(locks.acquire("order-42").lease(LEASE).try_once()).await;
    open.complete(&1).await.unwrap();
    lock.release().await.unwrap();

    // This holds even without the key prefix: a plain Claim of a settled record is refused at any
    // time.
    process.take_sent();
    let other = granted(locks.acquire("other").lease(LEASE).try_once()).await;
    let mut claim = process.take_sent().remove(0);
    claim.body = claim.body.replace(r#"{"S":"other"}"#, r#"{"S":"once/order-42"}"#);

    sleep(DAY * 30).await;
    let before = table.row(ROW);
    assert!(!table.replay(&claim));
    assert_eq!(table.row(ROW), before);
    drop(other);

    // A Claim of idempotent work is refused by the free row of a plain lock.
    attempt(locks.once("third").lease(LEASE)).await.give_back().await.unwrap();
    let mut claim = process.take_sent().remove(0);

    claim.body = claim.body.replace("once/third", "order-42");
    assert!(!table.replay(&claim));
}

#[tokio::test(start_paused = true)]
async fn a_row_that_is_no_record_of_a_work_is_left_as_it_is() {
    let table = Table::new();
    let locks = table.process().locks("me");
    let plain = granted(locks.acquire("plain").lease(LEASE).try_once()).await;
    plain.release().await.unwrap();
    let mut released = table.row("plain").unwrap();
    released["key"] = json!({"S": ROW});
    let done = {
        attempt(locks.once("done").lease(LEASE)).await.complete(&1).await.unwrap();
        let mut done = table.row("once/done").unwrap();
        done["key"] = json!({"S": ROW});
        done
    };
    let with = |name: &str, value: Value| {
        let mut row = done.clone();
        row[name] = value;
        row
    };
    for (row, attribute) in [
        (json!({"key": {"S": ROW}, "text": {"S": "somebody else's"}}), "attempts"),
        (released, "attempts"),
        (with("attempts", json!({"S": "1"})), "attempts"),
        (with("firstSeenAt", json!({"N": "-1"})), "firstSeenAt"),
        (with("keptUntilAt", json!({"NULL": true})), "keptUntilAt"),
        (with("payloadHash", json!({"N": "1"})), "payloadHash"),
        (with("onceState", json!({"S": "perhaps"})), "onceState"),
        (with("outcome", json!({"B": "eA=="})), "outcome"),
        (with("outcomeAt", json!({"S": "soon"})), "outcomeAt"),
    ] {
        let _case = case(attribute);
        table.put(row.clone());

        for error in [once(&locks).start::<Value>().await.unwrap_err(), once(&locks).status().await.unwrap_err()] {
            assert_eq!(error.kind(), ErrorKind::InvalidRecord, "{error}");
            assert!(error.to_string().contains(attribute) && error.to_string().contains(ROW), "{error}");
        }
        assert_eq!(table.row(ROW), Some(row));
    }
}

#[tokio::test(start_paused = true)]
async fn a_table_with_a_sort_key_keeps_its_sort_key() {
    let table = Table::with_keys(&["pk", "sk"]);
    let locks = table.process().builder().key_attribute("pk").sort_key_attribute("sk").build().unwrap();
    let work = || locks.once(("order", "42")).lease(LEASE);

    attempt(work()).await.complete_with(&1, []).await.unwrap();

    assert_eq!(replayed(work()).await, 1);

    attempt(locks.once(("order", "43")).lease(LEASE)).await.give_back().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn wrong_dates_do_not_make_a_result_expire_early() {
    let table = Table::new();
    let process = table.process();
    let locks = process.locks("me");
    process.set_date_offset(Some(-3600));
    for _ in 0..2 {
        locks.operator().peek("another").await.unwrap();
    }
    let attempt = attempt(once(&locks).keep_for(secs(100))).await;
    let now = process.clock.wall_millis();

    attempt.complete(&json!("done")).await.unwrap();

    let kept = table.number(ROW, "keptUntilAt");
    assert!(kept >= now + 100_000, "until {} ms from then", kept as i64 - now as i64);
}

#[tokio::test(start_paused = true)]
async fn every_read_of_a_record_is_consistent() {
    let table = Table::new();
    let process = table.process();
    let locks = process.locks("me");
    once(&locks).status().await.unwrap();
    process.next([Fault::AnswerLost]);
    let first = attempt(once(&locks)).await;

    let waited = locks.once("order-42").within(&process.budget(secs(4))).start::<Value>().await;
    assert!(waited.unwrap_err().is_held());

    first.complete(&1).await.unwrap();
    let reads: Vec<_> = process.take_sent().into_iter().filter(|sent| sent.operation == "GetItem").collect();
    assert!(reads.len() >= 5, "{}", reads.len());
    for read in reads {
        let body: Value = serde_json::from_str(&read.body).unwrap();
        assert_eq!(body["ConsistentRead"], true, "{body}");
    }
}

#[tokio::test(start_paused = true)]
async fn with_a_ttl_no_record_is_kept_for_less_than_clocks_may_differ() {
    let table = Table::new();
    let process = table.process();
    let with = process.builder().ttl_attribute("expiresAt").max_clock_skew(secs(3)).build().unwrap();
    let without = process.builder().max_clock_skew(secs(3)).build().unwrap();

    let error = once(&with).keep_for(millis(2_999)).start::<Value>().await.unwrap_err();

    assert!(error.kind() == ErrorKind::InvalidRequest && error.to_string().contains("at least 3s"), "{error}");
    assert!(process.take_sent().is_empty());
    attempt(once(&with).keep_for(secs(3))).await.complete(&1).await.unwrap();
    attempt(without.once("another").lease(LEASE).keep_for(secs(0))).await.complete(&1).await.unwrap();
}
