//! Releasing: which locks are released, and which are left alone.

use crate::LEASE;
use lambda_lock::ReleaseOutcome;
use lambda_lock_testkit::{Fault, Table, acquired, case, granted, millis, secs};
use serde_json::json;
use std::time::Duration;
use tokio::time::sleep;

#[tokio::test(start_paused = true)]
async fn releasing_a_stolen_lock_leaves_the_new_owners_row_untouched_and_says_so() {
    let table = Table::new();
    let (one, two) = (table.process(), table.process());
    let lock = acquired(&one.locks("one"), LEASE).await;
    sleep(secs(30)).await;

    let other = acquired(&two.locks("two"), LEASE).await;

    let row = table.row("k");
    assert_eq!(lock.release().await.unwrap(), ReleaseOutcome::AlreadyGone);
    assert_eq!(table.row("k"), row);
    other.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_expired_lock_that_no_caller_took_can_be_released() {
    let table = Table::new();
    let lock = acquired(&table.process().locks("me"), LEASE).await;

    sleep(secs(300)).await;

    assert_eq!(lock.release().await.unwrap(), ReleaseOutcome::Released);
    assert!(table.is_released("k"));
}

#[tokio::test(start_paused = true)]
async fn a_double_release_is_harmless() {
    let table = Table::new();
    let process = table.process();
    let locks = process.locks("me");

    let lock = acquired(&locks, LEASE).await;
    let token = lock.to_saved();
    assert_eq!(lock.release().await.unwrap(), ReleaseOutcome::Released);
    assert_eq!(locks.release(token.clone()).await.unwrap(), ReleaseOutcome::Released);

    let next = acquired(&locks, LEASE).await;
    assert_eq!(locks.release(token.clone()).await.unwrap(), ReleaseOutcome::AlreadyGone);
    assert!(!table.is_released("k"));

    next.release().await.unwrap();
    table.delete("k");
    assert_eq!(locks.release(token).await.unwrap(), ReleaseOutcome::AlreadyGone);
}

#[tokio::test(start_paused = true)]
async fn a_release_delayed_in_flight_does_not_end_a_lock_that_was_resumed_elsewhere() {
    for is_saved in [false, true] {
        let _case = case(format!("released from its saved lock: {is_saved}"));
        let table = Table::new();
        let (one, two) = (table.process(), table.process());
        let mut lock = acquired(&one.locks("one"), LEASE).await;
        let handed_over = lock.to_saved();
        // One's clock is ahead, and its renewal never arrives. One has sent a stamp that is newer than every stamp
        // that the row will have, but it has not *seen* that stamp there. The saved lock has the stamp too.
        one.set_date_offset(None);
        one.clock.jump_wall(60_000);
        one.next([Fault::BlackHole, Fault::BlackHole, Fault::BlackHole]);

        assert!(lock.checkpoint().await.unwrap_err().is_unknown());

        one.next([Fault::ArrivesLate(secs(8)), Fault::BlackHole, Fault::BlackHole]);
        let released = if is_saved {
            let saved = serde_json::from_value(serde_json::to_value(lock.save()).unwrap()).unwrap();
            one.locks("one").release(saved).await
        } else {
            lock.release().await
        };
        assert!(released.unwrap_err().is_unknown());

        let mut resumed = two.locks("two").resume(handed_over).await.unwrap();

        sleep(secs(10)).await;
        assert!(!table.is_released("k"), "the late release found a version that it did not know");

        resumed.checkpoint().await.unwrap();
        resumed.release().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_lock_whose_budget_is_spent_is_released_although_a_request_is_lost() {
    let table = Table::new();
    let process = table.process();
    let budget = process.budget(secs(5));
    let lock = process.locks("me").acquire("k").within(&budget).await.unwrap();

    sleep(secs(6)).await;
    assert_eq!(budget.remaining(), Some(Duration::ZERO));

    process.next([Fault::RequestLost]);
    assert_eq!(lock.release().await.unwrap(), ReleaseOutcome::Released);
    assert!(table.is_released("k"));
}

#[tokio::test(start_paused = true)]
async fn no_release_ends_the_grant_of_another_client_whose_attributes_look_like_ours() {
    let table = Table::new();
    let locks = table.process().locks("me");
    let acquire = locks.acquire("k").lease(LEASE).owner("the same").workflow("arn:1").try_once();
    let lock = granted(acquire).await;
    // Go's client copies attributes that it does not know.
    table.set("k", json!({"recordVersionNumber": {"S": "b2c6a6e2-37cb-4bd9-9cdd-1b0f0d1f9c3e"}}));

    let released = locks.release(lock.save()).or_later_grant_of_owner().await;

    assert_eq!(released.unwrap(), ReleaseOutcome::AlreadyGone);
    assert_eq!(locks.release_workflow("k", "arn:1").await.unwrap(), ReleaseOutcome::AlreadyGone);
    assert!(!table.is_released("k"));
}

/// A release ends the lease at least a millisecond after its grant, which may be later than the present time of
/// the clock. A client that acquires again at once must not be refused because of that.
#[tokio::test(start_paused = true)]
async fn after_any_kind_of_release_the_same_client_acquires_again_with_one_request() {
    for way in ["release", "commit and release", "token", "workflow"] {
        for (latency, set_back) in [(Duration::ZERO, 0), (Duration::ZERO, 7), (millis(2), 10)] {
            let _case = case(format!("{way}, {latency:?} each way, the clock {set_back} ms back"));
            let table = Table::new();
            let process = table.process();
            process.set_latency(latency);
            let locks = process.locks("me");
            for round in 0..5 {
                let set_back = if round == 0 { set_back } else { 0 };

                let lock = granted(locks.acquire("k").lease(LEASE).workflow("arn:1").try_once()).await;

                assert_eq!(process.take_operations(), ["UpdateItem"]);

                process.clock.jump_wall(-set_back);
                match way {
                    "release" => drop(lock.release().await.unwrap()),
                    "commit and release" => lock.commit_and_release([]).await.unwrap(),
                    "token" => drop(locks.release(lock.save()).await.unwrap()),
                    _ => {
                        let _ = lock.save();
                        locks.release_workflow("k", "arn:1").await.unwrap();
                    }
                }
                process.take_sent();
            }
        }
    }
}
