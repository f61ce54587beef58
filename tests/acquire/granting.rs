//! Which rows are taken, and what is in them afterwards.

use crate::LEASE;
use lambda_lock::LockKey;
use lambda_lock_testkit::{ROUND_TRIP, Table, acquired, granted, millis, secs};
use serde_json::json;
use tokio::time::sleep;

#[tokio::test(start_paused = true)]
async fn a_missing_row_is_acquired_and_reads_as_peers_expect() {
    let table = Table::new();
    let process = table.process();
    let now = process.clock.wall_millis();
    let lock = acquired(&process.locks("me"), LEASE).await;

    let row = table.row("k").unwrap();
    assert!(row["ownerName"]["S"].as_str().unwrap().starts_with("me/"), "{row}");
    assert_eq!(row["leaseDuration"], json!({"S": "20000"}));
    assert_eq!(row["leaseEndsAt"], json!({"N": (now + 20_000).to_string()}));
    assert_eq!(row["fencingToken"], json!({"N": lock.fencing_token().to_string()}));
    assert!(row["recordVersionNumber"]["S"].as_str().unwrap().starts_with("ll1-"));
    assert_eq!(row.as_object().unwrap().len(), 6, "nothing else is written: {row}");
    assert!(lock.fencing_token() > now, "the first token comes from the clock");
    lock.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_released_row_is_acquired_with_the_next_token() {
    let table = Table::new();
    let locks = table.process().locks("me");
    let first = acquired(&locks, LEASE).await;
    let token = first.fencing_token();

    first.release().await.unwrap();
    assert_eq!(table.attribute("k", "isReleased").as_deref(), Some("1"));

    let second = acquired(&locks, LEASE).await;
    assert_eq!(second.fencing_token(), token + 1);
    assert!(!table.is_released("k"));
    second.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_deleted_row_is_acquired_and_its_token_still_grows() {
    let table = Table::new();
    let locks = table.process().locks("me");
    let first = acquired(&locks, LEASE).await;
    let token = first.fencing_token();

    first.release().await.unwrap();
    table.delete("k");

    sleep(millis(5)).await;
    let second = acquired(&locks, LEASE).await;
    assert!(second.fencing_token() > token);
    second.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_refusal_names_the_holder_and_the_end_of_its_lease() {
    let table = Table::new();
    let (one, two) = (table.process(), table.process());
    let lock = acquired(&one.locks("one"), LEASE).await;
    sleep(secs(5)).await;

    let refused = two.locks("two").acquire("k").lease(LEASE).try_once().await.unwrap();

    let held = refused.refused().unwrap();
    assert!(held.holder.starts_with("one/"), "{held:?}");
    assert_eq!(held.lease_ends_at, lock.lease_ends_at());
    // After two round trips fifteen seconds of the lease are left. The clock skew of two seconds is added.
    assert_eq!(held.retry_after, millis(17_001) - 2 * ROUND_TRIP);
    assert_eq!(two.take_operations(), ["UpdateItem"]);
    lock.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_retried_task_gets_its_own_lock_again_with_a_larger_token() {
    let table = Table::new();
    let (first_run, retry) = (table.process(), table.process());
    let owner = "execution-1";
    let mut first = granted(first_run.locks("1").acquire("k").lease(LEASE).owner(owner).try_once()).await;

    let refused = retry.locks("2").acquire("k").lease(LEASE).owner(owner).try_once().await.unwrap();
    assert!(refused.granted().is_none(), "only if asked for");

    retry.take_sent();
    let again = granted(retry.locks("2").acquire("k").lease(LEASE).owner(owner).reclaim_own().try_once()).await;
    assert_eq!(retry.take_operations(), ["UpdateItem", "UpdateItem"]);
    assert_eq!(again.fencing_token(), first.fencing_token() + 1);
    assert!(first.checkpoint().await.unwrap_err().is_lost());

    let other = retry.locks("3").acquire("k").lease(LEASE).owner("execution-2").reclaim_own().try_once().await.unwrap();
    assert_eq!(other.refused().unwrap().holder, owner);
    again.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn the_same_owner_text_on_a_peers_row_is_another_holder() {
    let table = Table::new();
    table.put_java_row("k", "v1", LEASE);
    let locks = table.process().locks("a-java-host");

    assert!(
        locks
            .acquire("k")
            .lease(LEASE)
            .owner("a-java-host")
            .reclaim_own()
            .try_once()
            .await
            .unwrap()
            .granted()
            .is_none()
    );
}

#[tokio::test(start_paused = true)]
async fn composite_keys_do_not_collide() {
    let table = Table::with_keys(&["pk", "sk"]);
    let process = table.process();
    let locks = process.builder().key_attribute("pk").sort_key_attribute("sk").owner("me").build().unwrap();
    let one = granted(locks.acquire(("a", "bc")).lease(LEASE).try_once()).await;

    let two = granted(locks.acquire(("ab", "c")).lease(LEASE).try_once()).await;

    assert_eq!(one.key(), &LockKey::from(("a", "bc")));
    assert!(locks.acquire(("a", "bc")).lease(LEASE).try_once().await.unwrap().granted().is_none());
    one.release().await.unwrap();
    two.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn the_row_names_a_workflow_only_while_it_holds_the_lock() {
    let table = Table::new();
    let locks = table.process().locks("me");
    let mut lock = granted(locks.acquire("k").lease(LEASE).workflow("arn:1").try_once()).await;

    lock.checkpoint().await.unwrap();
    assert_eq!(table.attribute("k", "workflow").as_deref(), Some("arn:1"));
    lock.release().await.unwrap();
    assert_eq!(table.attribute("k", "workflow"), None);

    // The workflow of a dead holder is removed when another caller takes the lock over.
    let dead = granted(locks.acquire("k").lease(LEASE).workflow("arn:2").try_once()).await;
    let _ = dead.save();
    sleep(secs(23)).await;

    let next = acquired(&locks, LEASE).await;
    assert_eq!(table.attribute("k", "workflow"), None);
    next.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn ttl_is_written_by_every_write_and_lies_after_the_retention() {
    let table = Table::new();
    let process = table.process();
    let locks = process.builder().ttl_attribute("expiresAt").ttl_retention(secs(3600)).build().unwrap();
    // Counts from the moment before each request.
    let seconds = |after: u64| Some((process.clock.wall_millis().div_ceil(1000) + after).to_string());
    let expected = seconds(20 + 3600);

    let mut lock = acquired(&locks, LEASE).await;
    assert_eq!(table.attribute("k", "expiresAt"), expected);

    sleep(secs(7)).await;
    let expected = seconds(20 + 3600);

    lock.checkpoint().await.unwrap();
    assert_eq!(table.attribute("k", "expiresAt"), expected);

    sleep(secs(7)).await;
    let expected = seconds(3600);

    lock.release().await.unwrap();
    assert_eq!(table.attribute("k", "expiresAt"), expected);
}
