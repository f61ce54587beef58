//! A peer holds the lock. It renews, releases and dies.

use crate::fleet::{Fleet, LONG, SHORT, granted, requests, waited_for};
use lambda_lock::ReleaseOutcome;
use lambda_lock_interop::Why;
use std::time::{Duration, Instant};

pub(crate) async fn a_peers_lock_is_refused_to_us_and_its_holder_named(fleet: Fleet) {
    let mut peer = fleet.peer("their-host", Duration::from_secs(20)).await;
    peer.try_acquire("k").await.unwrap().unwrap();

    let (ours, proxy) = fleet.counted().await;
    let tried = ours.acquire("k").lease(LONG).try_once().await.unwrap();
    let held = tried.refused().expect("granted while a peer holds the lock");
    assert_eq!(requests(&proxy.take()), [("UpdateItem", 1)]);
    assert_eq!(held.holder, "their-host");
    assert_eq!(held.observation.lease(), Duration::from_secs(20));
    // A lease and the clock drift, from now on.
    assert!(held.retry_after <= Duration::from_secs(21) && held.retry_after > Duration::from_secs(20), "{held:?}");

    let row = ours.operator().peek("k").await.unwrap().unwrap();
    assert_eq!((row.holder.as_str(), row.lease_ends_at), ("their-host", None));
}

pub(crate) async fn a_peer_that_renews_keeps_its_lock_and_one_that_dies_is_taken_over_by_observation(fleet: Fleet) {
    let mut peer = fleet.renewing_peer("theirs", SHORT).await;
    peer.try_acquire("k").await.unwrap().unwrap();
    let ours = fleet.locks("ours");
    let waiter = tokio::spawn(async move { (waited_for(&ours, "k").await, Instant::now()) });
    tokio::time::sleep(SHORT * 5 / 2).await;
    assert!(!waiter.is_finished(), "our client took the lock although the peer renews");

    peer.die().await.unwrap();
    let died = Instant::now();
    let (lock, taken) = waiter.await.unwrap();
    let took = taken.duration_since(died);
    // The peer is dead a lease and the clock drift after its last renewal. That renewal was up to a
    // quarter of the lease ago. One poll, one request and delays of a busy machine are added.
    let least = SHORT.mul_f64(1.05) - SHORT / 4 - Duration::from_millis(250);
    assert!(took >= least && took <= SHORT.mul_f64(1.05) + Duration::from_secs(1), "{took:?}");
    assert_eq!(lock.release().await.unwrap(), ReleaseOutcome::Released);
}

pub(crate) async fn a_row_that_a_peer_released_costs_two_requests_and_one_that_it_deleted_costs_one(fleet: Fleet) {
    let mut peer = fleet.peer("theirs", LONG).await;
    let (ours, proxy) = fleet.counted().await;
    for (delete, expected) in [(false, 2), (true, 1)] {
        peer.try_acquire("k").await.unwrap().unwrap();
        peer.release("k", delete).await.unwrap().unwrap();
        assert_eq!(fleet.row("k").await.is_none(), delete);
        proxy.take();
        let lock = granted(&ours, "k", LONG).await;
        assert_eq!(requests(&proxy.take()), [("UpdateItem", expected)], "delete={delete}");
        lock.release().await.unwrap();
    }
}

pub(crate) async fn a_peer_that_was_taken_over_can_neither_renew_nor_release_our_lock(fleet: Fleet) {
    let mut peer = fleet.peer("theirs", SHORT).await;
    peer.try_acquire("k").await.unwrap().unwrap();
    let mut lock = waited_for(&fleet.locks("ours"), "k").await;

    assert_eq!(peer.renew("k").await.unwrap().unwrap_err().why, Why::Lost);
    assert_eq!(peer.release("k", false).await.unwrap().unwrap_err().why, Why::Lost);
    lock.checkpoint().await.unwrap();
    assert_eq!(lock.release().await.unwrap(), ReleaseOutcome::Released);
}
