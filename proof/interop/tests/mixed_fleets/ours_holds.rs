//! Our client holds the lock. It renews, releases and dies.

use crate::fleet::{Fleet, LONG, SHORT, granted};
use lambda_lock::ReleaseOutcome;
use lambda_lock_interop::Why;
use std::time::{Duration, Instant};

pub(crate) async fn our_lock_is_refused_to_a_peer_which_reads_its_holder(fleet: Fleet) {
    let mut peer = fleet.peer("theirs", SHORT).await;
    let mut lock = granted(&fleet.locks("our-function"), "k", LONG).await;

    assert_eq!(peer.try_acquire("k").await.unwrap().unwrap_err().why, Why::Held);
    let seen = peer.read("k").await.unwrap().unwrap();
    assert!(seen.owner.starts_with("our-function/"), "{seen:?}");
    let version = fleet.attribute("k", "recordVersionNumber").await;
    // If the peer's library returns them at all.
    assert!(seen.version.is_none() || seen.version == version, "{seen:?}");
    assert!(seen.lease_millis.is_none_or(|lease| Duration::from_millis(lease) == LONG), "{seen:?}");

    lock.checkpoint().await.unwrap();
    assert_eq!(peer.try_acquire("k").await.unwrap().unwrap_err().why, Why::Held);
    lock.release().await.unwrap();
}

pub(crate) async fn our_renewals_keep_a_waiting_peer_waiting(fleet: Fleet) {
    let mut lock = granted(&fleet.locks("ours"), "k", SHORT).await;
    let mut peer = fleet.peer("theirs", LONG).await;
    let waiter = tokio::spawn(async move {
        let acquired = peer.wait_for("k", Duration::from_secs(60)).await.unwrap();
        (acquired, peer)
    });
    for _ in 0..10 {
        tokio::time::sleep(SHORT / 4).await;
        assert!(!waiter.is_finished(), "the peer took the lock although we renew");
        lock.checkpoint().await.unwrap();
    }
    lock.release().await.unwrap();
    let (acquired, mut peer) = waiter.await.unwrap();
    assert_eq!(acquired.unwrap().owner, "theirs");
    peer.release("k", false).await.unwrap().unwrap();
}

pub(crate) async fn a_peer_acquires_what_we_released_whether_its_row_stayed_or_was_deleted(fleet: Fleet) {
    let mut peer = fleet.peer("theirs", LONG).await;
    let ours = fleet.locks("ours");
    for delete in [false, true] {
        let lock = granted(&ours, "k", LONG).await;
        assert_eq!(lock.release().await.unwrap(), ReleaseOutcome::Released);
        if delete {
            fleet.delete_released("k").await;
        }
        assert_eq!(fleet.row("k").await.is_none(), delete);
        // Java checks that the attribute is present. Go takes only a row in which it has this
        // value.
        assert_eq!(fleet.attribute("k", "isReleased").await, (!delete).then(|| "1".to_owned()));

        peer.try_acquire("k").await.unwrap().unwrap();
        assert_eq!(fleet.attribute("k", "ownerName").await.unwrap(), "theirs");
        assert!(ours.acquire("k").lease(LONG).try_once().await.unwrap().refused().is_some());
        peer.release("k", false).await.unwrap().unwrap();
    }
}

const KEYS: [&str; 3] = ["renewed late", "released late", "resumed late"];

pub(crate) async fn a_peer_takes_over_when_we_die_and_we_learn_that_the_lock_is_lost(fleet: Fleet) {
    let mut peer = fleet.peer("theirs", LONG).await;
    let ours = fleet.locks("ours");
    let mut renewed_late = granted(&ours, "renewed late", SHORT).await;
    // The peers wait for exactly a lease, and their clocks may run faster than ours.
    assert!(renewed_late.remaining() <= SHORT.mul_f64(1.0 / 1.05), "{:?}", renewed_late.remaining());
    let released_late = granted(&ours, "released late", SHORT).await;
    let written_down = granted(&ours, "resumed late", SHORT).await.save();
    let began = Instant::now();
    for key in KEYS {
        peer.wait_for(key, Duration::from_secs(30)).await.unwrap().unwrap();
        assert!(began.elapsed() >= SHORT, "{:?}", began.elapsed());
        // This must be true as soon as the peer has the first lock.
        assert!(renewed_late.remaining().is_zero(), "a peer has the lock while our guard still relies on it");
    }
    let lost = renewed_late.checkpoint().await.unwrap_err();
    assert!(lost.is_lost(), "{lost}");
    assert_eq!(released_late.release().await.unwrap(), ReleaseOutcome::AlreadyGone);
    let lost = ours.resume(written_down).await.unwrap_err();
    assert!(lost.is_lost(), "{lost}");
    for key in KEYS {
        assert_eq!(fleet.attribute(key, "ownerName").await.unwrap(), "theirs");
        peer.renew(key).await.unwrap().unwrap();
        peer.release(key, false).await.unwrap().unwrap();
    }
}
