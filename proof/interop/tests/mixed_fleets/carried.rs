//! What a row passes from one holder to the next: the payload, other attributes, and our fencing
//! token.

use crate::fleet::{Fleet, LONG, granted};
use lambda_lock::DataChange;
use lambda_lock_interop::Language;
use serde_json::json;

pub(crate) async fn data_is_carried_both_ways(fleet: Fleet) {
    let mut peer = fleet.peer("theirs", LONG).await;
    let ours = fleet.locks("ours");

    // The peer gets our payload, and keeps it if it has none of its own.
    let mut lock = ours.acquire("k").lease(LONG).data("erste Hälfte").try_once().await.unwrap().granted().unwrap();
    assert_eq!(peer.read("k").await.unwrap().unwrap().data.unwrap(), "erste Hälfte");
    lock.renew().data("zweite Hälfte").await.unwrap();
    lock.release().await.unwrap();
    assert_eq!(peer.try_acquire("k").await.unwrap().unwrap().data.unwrap(), "zweite Hälfte");
    peer.release("k", false).await.unwrap().unwrap();
    let lock = granted(&ours, "k", LONG).await;
    assert_eq!(lock.data(), Some("zweite Hälfte".as_bytes()));
    lock.release().await.unwrap();

    // We get the peer's payload when we acquire.
    peer.acquire("k", json!({"data": "von drüben", "replaceData": true})).await.unwrap().unwrap();
    peer.renew("k").await.unwrap().unwrap();
    peer.release("k", false).await.unwrap().unwrap();
    let lock = granted(&ours, "k", LONG).await;
    assert_eq!(lock.data(), Some("von drüben".as_bytes()));
    lock.release().await.unwrap();

    // A payload that we remove is gone for the peer too.
    let lock = ours.acquire("k").lease(LONG).data(DataChange::Remove).try_once().await.unwrap().granted().unwrap();
    assert_eq!(peer.read("k").await.unwrap().unwrap().data, None);
    lock.release().await.unwrap();
}

pub(crate) async fn a_peers_own_attributes_outlive_our_grants(fleet: Fleet) {
    let mut peer = fleet.peer("theirs", LONG).await;
    let attributes = json!({"tenant": "acme", "expiresAt": "1790000000"});
    peer.acquire("k", json!({ "attributes": attributes })).await.unwrap().unwrap();
    peer.release("k", false).await.unwrap().unwrap();

    let mut lock = granted(&fleet.locks("ours"), "k", LONG).await;
    lock.checkpoint().await.unwrap();
    lock.release().await.unwrap();
    assert_eq!(fleet.attribute("k", "tenant").await.unwrap(), "acme");
    // It may be the table's TTL, by which DynamoDB would delete the row while we hold it.
    assert_eq!(fleet.attribute("k", "expiresAt").await, None);
    // A peer acquires without naming the attributes. Go keeps them, and Java writes a new row.
    let kept = fleet.language == Language::Go;
    let seen = peer.try_acquire("k").await.unwrap().unwrap();
    assert_eq!(seen.attributes.contains_key("tenant"), kept);
    assert_eq!(fleet.attribute("k", "tenant").await.is_some(), kept);
}

pub(crate) async fn our_additional_attributes_are_read_by_a_peer_and_end_with_our_next_grant(fleet: Fleet) {
    let mut peer = fleet.peer("theirs", LONG).await;
    let ours = fleet.locks("ours");
    let request = ours.acquire("k").lease(LONG).attribute("job", "nightly").attribute("shard", 5).try_once();
    let mut lock = request.await.unwrap().granted().unwrap();
    lock.checkpoint().await.unwrap();
    let seen = peer.read("k").await.unwrap().unwrap();
    assert_eq!((seen.attributes["job"].as_str(), seen.attributes["shard"].as_str()), ("nightly", "5"));
    lock.release().await.unwrap();

    // We are shown those of the peer. Go keeps ours beside them.
    peer.acquire("k", json!({"attributes": {"tenant": "acme"}})).await.unwrap().unwrap();
    let tried = ours.acquire("k").lease(LONG).try_once().await.unwrap();
    let shown = &tried.refused().unwrap().attributes;
    assert_eq!(shown.get("tenant"), Some(&"acme".into()));
    assert_eq!(shown.contains_key("job"), fleet.language == Language::Go);
    peer.release("k", false).await.unwrap().unwrap();

    // Our next grant removes ours, also those that Go copied, and leaves the peer's.
    let lock = granted(&ours, "k", LONG).await;
    for name in ["job", "shard", "attributeNames"] {
        assert_eq!(fleet.attribute("k", name).await, None, "{name}");
    }
    assert_eq!(fleet.attribute("k", "tenant").await.unwrap(), "acme");
    assert!(ours.operator().peek("k").await.unwrap().unwrap().attributes.is_empty());
    lock.release().await.unwrap();
}

/// Returns which of our attributes are still in the row after a peer acquired the lock.
async fn left_of_ours(fleet: &Fleet, options: serde_json::Value) -> Vec<&'static str> {
    let ours = fleet.builder("ours").ttl_attribute("expiresAt").build().unwrap();
    let asked = ours.acquire("k").lease(LONG).workflow("arn:workflow").data("payload").try_once();
    asked.await.unwrap().granted().unwrap().release().await.unwrap();

    let mut peer = fleet.peer("theirs", LONG).await;
    peer.acquire("k", options).await.unwrap().unwrap();
    let row = fleet.row("k").await.unwrap();
    let left = ["fencingToken", "leaseEndsAt", "expiresAt", "data"];
    let left = left.into_iter().filter(|name| row.contains_key(*name)).collect();
    peer.release("k", false).await.unwrap().unwrap();
    left
}

pub(crate) async fn our_attributes_are_dropped_by_java_and_copied_by_go(fleet: Fleet) {
    let left = left_of_ours(&fleet, json!({})).await;
    if fleet.language == Language::Go {
        return assert_eq!(left, ["fencingToken", "leaseEndsAt", "expiresAt", "data"]);
    }
    assert_eq!(left, ["data"]);
    // An option of the Java client keeps the attributes.
    let left = left_of_ours(&fleet, json!({"update": true})).await;
    assert_eq!(left, ["fencingToken", "leaseEndsAt", "expiresAt", "data"]);
}

pub(crate) async fn a_frozen_lock_is_granted_to_a_peer_and_is_frozen_to_us_unless_java_dropped_the_freeze(
    fleet: Fleet,
) {
    let ours = fleet.locks("ours");
    granted(&ours, "k", LONG).await.release().await.unwrap();
    ours.operator().freeze("k", "a migration").await.unwrap();
    let mut peer = fleet.peer("theirs", LONG).await;
    // Peers do not know frozen locks.
    peer.try_acquire("k").await.unwrap().unwrap();
    peer.renew("k").await.unwrap().unwrap();
    peer.release("k", false).await.unwrap().unwrap();
    let tried = ours.acquire("k").lease(LONG).try_once().await.unwrap();
    let reason = tried.refused().and_then(|held| held.freeze_reason.clone());
    if fleet.language == Language::Java {
        assert!(tried.granted().is_some());
        return;
    }
    assert_eq!(reason.as_deref(), Some("a migration"));
    ours.operator().thaw("k").await.unwrap();
    granted(&ours, "k", LONG).await.release().await.unwrap();
}

pub(crate) async fn our_token_grows_after_a_peer_wrote_the_row(fleet: Fleet) {
    let mut peer = fleet.peer("theirs", LONG).await;
    let ours = fleet.locks("ours");
    let mut newest = 0;
    for delete in [false, false, true, false] {
        let lock = granted(&ours, "k", LONG).await;
        assert!(lock.fencing_token() > newest, "{} after {newest}", lock.fencing_token());
        newest = lock.fencing_token();
        lock.release().await.unwrap();
        peer.try_acquire("k").await.unwrap().unwrap();
        peer.renew("k").await.unwrap().unwrap();
        peer.release("k", delete).await.unwrap().unwrap();
    }
    let lock = granted(&ours, "k", LONG).await;
    assert!(lock.fencing_token() > newest);
    lock.release().await.unwrap();
}

/// A waiting Go client writes back the attributes that it saw first, even if they are old by then.
pub(crate) async fn an_old_token_that_a_peer_wrote_back_does_not_make_ours_smaller(fleet: Fleet) {
    let ours = fleet.locks("ours");
    let lock = granted(&ours, "k", LONG).await;
    let first = lock.fencing_token();
    let mut peer = fleet.peer("theirs", LONG).await;
    // The peer sees the first token, and then waits for three seconds. That is longer than all of our
    // calls below.
    let waiter = tokio::spawn(async move {
        let acquired = peer.acquire("k", json!({"waitMillis": 60_000, "pollMillis": 3000})).await.unwrap();
        (acquired, peer)
    });
    tokio::time::sleep(std::time::Duration::from_millis(500)).await;
    lock.release().await.unwrap();
    let mut newest = first;
    for _ in 0..20 {
        let lock = granted(&ours, "k", LONG).await;
        newest = lock.fencing_token();
        lock.release().await.unwrap();
    }
    assert!(newest >= first + 20);

    let (acquired, mut peer) = waiter.await.unwrap();
    acquired.unwrap();
    let turned_back: u64 = fleet.attribute("k", "fencingToken").await.unwrap().parse().unwrap();
    assert_eq!(turned_back, first, "the peer did not write the old token back: {turned_back}");
    peer.release("k", false).await.unwrap().unwrap();
    let lock = granted(&ours, "k", LONG).await;
    assert!(lock.fencing_token() > newest, "{} after {newest}", lock.fencing_token());
    lock.release().await.unwrap();
}
