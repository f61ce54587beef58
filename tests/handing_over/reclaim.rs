//! Reclaiming: a new grant for the same owner, which fences off the earlier one.

use crate::LEASE;
use lambda_lock_testkit::{Table, acquired, secs};
use tokio::time::sleep;

#[tokio::test(start_paused = true)]
async fn a_reclaimed_lock_fences_off_the_earlier_copies() {
    let table = Table::new();
    let (one, two) = (table.process(), table.process());
    let mut lock = acquired(&one.locks("one"), LEASE).await;
    let token = lock.to_saved();

    let mut reclaimed = two.locks("two").reclaim(token.clone()).lease(LEASE).await.unwrap();
    assert_eq!(two.take_operations(), ["UpdateItem"]);
    assert_eq!(reclaimed.fencing_token(), lock.fencing_token() + 1);
    assert!(reclaimed.owner().starts_with("one/"), "the owner goes with the token");
    assert!(lock.checkpoint().await.unwrap_err().is_lost());

    // The owner counts too. A second reclaim of the old saved lock gets the newer grant.
    let again = two.locks("two").reclaim(token).lease(LEASE).await.unwrap();
    assert!(reclaimed.checkpoint().await.unwrap_err().is_lost());
    again.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_lock_that_another_caller_was_granted_cannot_be_reclaimed() {
    let table = Table::new();
    let locks = table.process().locks("service");
    let token = acquired(&locks, LEASE).await.save();
    sleep(secs(30)).await;
    // Another task of the same client.
    let mut other = acquired(&locks, LEASE).await;

    assert!(locks.reclaim(token.clone()).lease(LEASE).await.unwrap_err().is_lost());
    other.checkpoint().await.unwrap();
    other.release().await.unwrap();
    assert!(locks.reclaim(token.clone()).lease(LEASE).await.unwrap_err().is_lost(), "nor after that one's release");

    table.delete("k");
    assert!(locks.reclaim(token).lease(LEASE).await.unwrap_err().is_lost(), "nor when nobody knows");
}
