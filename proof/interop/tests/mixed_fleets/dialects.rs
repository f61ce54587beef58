//! The two dialects of a lease: Java's milliseconds and Go's durations.

use crate::fleet::{Fleet, LONG, granted};
use lambda_lock::{Dialect, LockClient};
use lambda_lock_interop::{Language, Why};

fn of_the_other(fleet: &Fleet) -> LockClient {
    let dialect = if fleet.language == Language::Go { Dialect::Java } else { Dialect::Go };
    fleet.builder("ours").dialect(dialect).build().unwrap()
}

/// Returns the error of a peer that cannot read a lease.
pub(crate) fn cannot_read(language: Language) -> &'static str {
    if language == Language::Go { "cannot parse lease duration" } else { "NumberFormatException" }
}

pub(crate) async fn a_row_in_the_others_dialect_is_an_error_to_a_peer_and_stays_as_it_is(fleet: Fleet) {
    let mut held = Some(granted(&of_the_other(&fleet), "k", LONG).await);
    let mut peer = fleet.peer("theirs", LONG).await;
    for released in [false, true] {
        let row = fleet.row("k").await;
        for refusal in [peer.try_acquire("k").await.unwrap(), peer.read("k").await.unwrap()] {
            let refusal = refusal.unwrap_err();
            assert_eq!(refusal.why, Why::Failed, "released={released}: {refusal}");
            assert!(refusal.error.contains(cannot_read(fleet.language)), "{refusal}");
        }
        assert_eq!(fleet.row("k").await, row);
        if let Some(lock) = held.take() {
            lock.release().await.unwrap();
        }
    }
    // Our client makes the row readable again, because it writes the peer's dialect.
    granted(&fleet.locks("ours"), "k", LONG).await.release().await.unwrap();
    peer.try_acquire("k").await.unwrap().unwrap();
}

pub(crate) async fn both_dialects_are_read_by_us_whichever_we_write(fleet: Fleet) {
    let mut peer = fleet.peer("theirs", LONG).await;
    for ours in [fleet.locks("ours"), of_the_other(&fleet)] {
        peer.try_acquire("k").await.unwrap().unwrap();
        let tried = ours.acquire("k").lease(LONG).try_once().await.unwrap();
        assert_eq!(tried.refused().unwrap().observation.lease(), LONG);
        peer.release("k", false).await.unwrap().unwrap();
        granted(&ours, "k", LONG).await.release().await.unwrap();
        fleet.delete_released("k").await;
    }
}
