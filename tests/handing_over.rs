//! Handing a lock over, and giving it back: tokens, resume, reclaim and every way to release.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a helper of a test may stop it")]

use lambda_lock::{Error, Lock, LockClient, LockToken, ReleaseOutcome};
use lambda_lock_testkit::{Fault, Table};
use serde_json::json;
use std::time::Duration;

const LEASE: Duration = Duration::from_secs(20);

fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

async fn acquired(locks: &LockClient) -> Lock {
    locks.try_acquire("k").lease(LEASE).await.unwrap().granted().unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_token_is_json_that_step_functions_can_carry() {
    let table = Table::new();
    let process = table.process();
    let now = process.clock.wall_millis();
    let token = acquired(&process.locks("me")).await.into_token();
    let json = serde_json::to_value(&token).unwrap();
    assert_eq!(
        json,
        json!({
            "key": "k",
            "owner": token.owner(),
            "version": table.attribute("k", "recordVersionNumber").unwrap(),
            "fencingToken": now + 1,
            "leaseSeconds": 20.0,
            "leaseEndsAt": now + 20_000,
        })
    );
    let back: LockToken = serde_json::from_value(json).unwrap();
    assert_eq!(back, token);
}

#[tokio::test(start_paused = true)]
async fn a_resumed_lock_is_the_same_grant_with_one_request() {
    let table = Table::new();
    let (one, two) = (table.process(), table.process());
    let lock = acquired(&one.locks("one")).await;
    let fencing_token = lock.fencing_token();
    let token = lock.into_token();
    tokio::time::sleep(secs(10)).await;
    let mut lock = two.locks("two").resume(token.clone()).await.unwrap();
    assert_eq!(two.take_operations(), ["UpdateItem"]);
    assert_eq!(lock.fencing_token(), fencing_token);
    assert!(lock.owner().starts_with("one/"), "{lock:?}");
    assert_eq!(table.attribute("k", "leaseDuration").as_deref(), Some("20000"));
    lock.checkpoint().await.unwrap();
    lock.release().await.unwrap();
    assert!(two.locks("two").resume(token).await.unwrap_err().is_lost(), "released is over for all copies");
}

#[tokio::test(start_paused = true)]
async fn a_token_of_a_lock_that_was_taken_over_cannot_be_resumed() {
    let table = Table::new();
    let locks = table.process().locks("me");
    let token = acquired(&locks).await.into_token();
    tokio::time::sleep(secs(30)).await;
    let other = acquired(&locks).await;
    assert!(locks.resume(token).await.unwrap_err().is_lost());
    other.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_reclaimed_lock_fences_off_the_earlier_copies() {
    let table = Table::new();
    let (one, two) = (table.process(), table.process());
    let mut lock = acquired(&one.locks("one")).await;
    let token = lock.token();
    let mut reclaimed = two.locks("two").reclaim(token.clone()).lease(LEASE).await.unwrap();
    assert_eq!(two.take_operations(), ["UpdateItem"]);
    assert_eq!(reclaimed.fencing_token(), lock.fencing_token() + 1);
    assert!(reclaimed.owner().starts_with("one/"), "the owner goes with the token");
    assert!(lock.checkpoint().await.unwrap_err().is_lost());
    // The owner counts too: a second reclaim of the old token gets the newer grant.
    let again = two.locks("two").reclaim(token).lease(LEASE).await.unwrap();
    assert!(reclaimed.checkpoint().await.unwrap_err().is_lost());
    again.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_lock_renewed_since_its_token_was_written_is_reclaimed_with_two_requests() {
    let table = Table::new();
    let (one, two) = (table.process(), table.process());
    let mut lock = acquired(&one.locks("one")).await;
    let token = lock.token();
    lock.checkpoint().await.unwrap();
    let reclaimed = two.locks("two").reclaim(token).lease(LEASE).await.unwrap();
    assert_eq!(two.take_operations(), ["UpdateItem", "UpdateItem"]);
    reclaimed.release().await.unwrap();
    let _ = lock.into_token();
}

#[tokio::test(start_paused = true)]
async fn a_lock_that_somebody_else_was_granted_cannot_be_reclaimed() {
    let table = Table::new();
    let (one, two) = (table.process(), table.process());
    let token = acquired(&one.locks("one")).await.into_token();
    tokio::time::sleep(secs(30)).await;
    let other = acquired(&two.locks("two")).await;
    let locks = one.locks("one");
    assert!(locks.reclaim(token.clone()).lease(LEASE).await.unwrap_err().is_lost());
    other.release().await.unwrap();
    assert!(locks.reclaim(token.clone()).lease(LEASE).await.unwrap_err().is_lost(), "nor after that one's release");
    table.delete("k");
    assert!(locks.reclaim(token).lease(LEASE).await.unwrap_err().is_lost(), "nor when nobody knows");
}

#[tokio::test(start_paused = true)]
async fn a_reclaim_whose_answer_was_lost_is_recognised() {
    let table = Table::new();
    let (one, two) = (table.process(), table.process());
    let token = acquired(&one.locks("one")).await.into_token();
    two.next([Fault::AnswerLost]);
    let lock = two.locks("two").reclaim(token).lease(LEASE).await.unwrap();
    assert_eq!(two.take_operations(), ["UpdateItem", "GetItem"]);
    lock.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn releasing_a_stolen_lock_leaves_the_new_owners_row_untouched_and_says_so() {
    let table = Table::new();
    let (one, two) = (table.process(), table.process());
    let lock = acquired(&one.locks("one")).await;
    tokio::time::sleep(secs(30)).await;
    let other = acquired(&two.locks("two")).await;
    let row = table.row("k");
    assert_eq!(lock.release().await.unwrap(), ReleaseOutcome::AlreadyGone);
    assert_eq!(table.row("k"), row);
    other.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn releasing_an_expired_lock_that_nobody_took_works() {
    let table = Table::new();
    let lock = acquired(&table.process().locks("me")).await;
    tokio::time::sleep(secs(300)).await;
    assert_eq!(lock.release().await.unwrap(), ReleaseOutcome::Released);
    assert!(table.attribute("k", "isReleased").is_some());
}

#[tokio::test(start_paused = true)]
async fn a_double_release_is_harmless() {
    let table = Table::new();
    let process = table.process();
    let locks = process.locks("me");
    let lock = acquired(&locks).await;
    let token = lock.token();
    assert_eq!(lock.release().await.unwrap(), ReleaseOutcome::Released);
    assert_eq!(locks.release(token.clone()).await.unwrap(), ReleaseOutcome::Released);
    let next = acquired(&locks).await;
    assert_eq!(locks.release(token.clone()).await.unwrap(), ReleaseOutcome::AlreadyGone);
    assert_eq!(table.attribute("k", "isReleased"), None);
    next.release().delete_row().await.unwrap();
    assert_eq!(locks.release(token).await.unwrap(), ReleaseOutcome::AlreadyGone);
}

#[tokio::test(start_paused = true)]
async fn a_release_delayed_in_flight_does_not_end_a_lock_that_was_resumed_elsewhere() {
    let table = Table::new();
    let (one, two) = (table.process(), table.process());
    let mut lock = acquired(&one.locks("one")).await;
    let handed_over = lock.token();
    // One's clock runs ahead, and its renewal never arrives: it has sent a stamp that is newer than
    // anything that will be on the row, but it has not *seen* it there.
    one.set_date_offset(None);
    one.clock.jump_wall(60_000);
    one.next([Fault::BlackHole, Fault::BlackHole, Fault::BlackHole]);
    assert!(lock.checkpoint().await.unwrap_err().is_unknown());
    one.next([Fault::ArrivesLate(secs(8)), Fault::BlackHole, Fault::BlackHole]);
    assert!(lock.release().await.unwrap_err().is_unknown());

    let mut resumed = two.locks("two").resume(handed_over).await.unwrap();
    tokio::time::sleep(secs(10)).await;
    assert_eq!(table.attribute("k", "isReleased"), None, "the late release found a version that it did not know");
    resumed.checkpoint().await.unwrap();
    resumed.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_later_grant_of_the_same_owner_is_released_only_if_asked_for() {
    let table = Table::new();
    let locks = table.process().locks("step");
    // The first run's answer was lost on its way to Step Functions; the retry acquired again.
    let acquire = || locks.try_acquire("k").lease(LEASE).owner("step").reclaim_own();
    let first = acquire().await.unwrap().granted().unwrap().into_token();
    let retry = acquire().await.unwrap().granted().unwrap();
    assert_eq!(locks.release(first.clone()).await.unwrap(), ReleaseOutcome::AlreadyGone);
    assert_eq!(table.attribute("k", "isReleased"), None);
    let released = locks.release(first.clone()).or_later_grant_of_owner().await.unwrap();
    assert_eq!(released, ReleaseOutcome::Released);
    assert!(table.attribute("k", "isReleased").is_some());
    // Releasing what is already released is released again.
    let released = locks.release(first.clone()).or_later_grant_of_owner().await.unwrap();
    assert_eq!(released, ReleaseOutcome::Released);
    let _ = retry.into_token();

    let other = table.process().locks("another step");
    let theirs = acquired(&other).await;
    let released = locks.release(first).or_later_grant_of_owner().await.unwrap();
    assert_eq!(released, ReleaseOutcome::AlreadyGone);
    theirs.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn cleaning_up_after_a_workflow_frees_its_locks_and_no_others() {
    let table = Table::new();
    let process = table.process();
    let locks = process.locks("me");
    let mut lock = locks.try_acquire("k").lease(LEASE).workflow("arn:1").await.unwrap().granted().unwrap();
    assert_eq!(locks.release_workflow("k", "arn:2").await.unwrap(), ReleaseOutcome::AlreadyGone);
    assert_eq!(table.attribute("k", "isReleased"), None);
    process.take_sent();
    assert_eq!(locks.release_workflow("k", "arn:1").await.unwrap(), ReleaseOutcome::Released);
    assert_eq!(process.take_operations(), ["GetItem", "UpdateItem"]);
    assert!(lock.checkpoint().await.unwrap_err().is_lost());
    assert_eq!(locks.release_workflow("k", "arn:1").await.unwrap(), ReleaseOutcome::AlreadyGone);
    assert_eq!(locks.release_workflow("never locked", "arn:1").await.unwrap(), ReleaseOutcome::AlreadyGone);
}

#[tokio::test(start_paused = true)]
async fn cleaning_up_spares_the_owners_it_is_told_to_spare() {
    let table = Table::new();
    let locks = table.process().locks("me");
    let again =
        locks.try_acquire("k").lease(LEASE).owner("arn:1/1").workflow("arn:1").await.unwrap().granted().unwrap();
    let clean_up = |spared: &'static str| locks.release_workflow("k", "arn:1").sparing_owners(move |it| it == spared);
    assert_eq!(clean_up("arn:1/1").await.unwrap(), ReleaseOutcome::AlreadyGone);
    assert_eq!(table.attribute("k", "isReleased"), None);
    assert_eq!(clean_up("arn:1/0").await.unwrap(), ReleaseOutcome::Released);
    let _ = again.into_token();
}

#[tokio::test(start_paused = true)]
async fn cleaning_up_counts_a_release_whose_answer_was_lost() {
    let table = Table::new();
    let process = table.process();
    let locks = process.locks("me");
    let lock = locks.try_acquire("k").lease(LEASE).workflow("arn:1").await.unwrap().granted().unwrap();
    process.next([Fault::None, Fault::AnswerLost]);
    assert_eq!(locks.release_workflow("k", "arn:1").await.unwrap(), ReleaseOutcome::Released);
    let _ = lock.into_token();
}

#[tokio::test(start_paused = true)]
async fn cleaning_up_reads_again_when_a_renewal_came_in_between() {
    let table = Table::new();
    let (one, cleaner) = (table.process(), table.process());
    let mut lock = one.locks("one").try_acquire("k").lease(LEASE).workflow("arn:1").await.unwrap().granted().unwrap();
    cleaner.next([Fault::None].into_iter().chain(vec![Fault::Slow(Duration::from_millis(50)); 3]));
    let locks = cleaner.locks("cleaner");
    let cleaning = tokio::spawn(async move { locks.release_workflow("k", "arn:1").await });
    // Renewals keep changing the version under the cleaner, until it has been refused twice.
    let mut sent = 0;
    while sent < 3 {
        lock.checkpoint().await.unwrap();
        tokio::time::sleep(Duration::from_millis(1)).await;
        sent += cleaner.take_sent().len();
    }
    assert_eq!(cleaning.await.unwrap().unwrap(), ReleaseOutcome::Released);
    assert!(table.attribute("k", "isReleased").is_some());
    let _ = lock.into_token();
}

#[tokio::test(start_paused = true)]
async fn data_is_kept_replaced_and_removed_by_acquire_renewal_and_release() {
    let table = Table::new();
    let locks = table.process().locks("me");
    let acquire = || locks.try_acquire("k").lease(LEASE);

    let mut lock = acquire().data("one").await.unwrap().granted().unwrap();
    assert_eq!(lock.data(), Some(&b"one"[..]));
    lock.checkpoint().await.unwrap();
    lock.release().await.unwrap();
    let mut lock = acquire().await.unwrap().granted().unwrap();
    assert_eq!(lock.data(), Some(&b"one"[..]), "what the last holder left");

    lock.renew().data("two").await.unwrap();
    lock.release().await.unwrap();
    let lock = acquire().await.unwrap().granted().unwrap();
    assert_eq!(lock.data(), Some(&b"two"[..]));

    lock.release().data("three").await.unwrap();
    let mut lock = acquire().await.unwrap().granted().unwrap();
    assert_eq!(lock.data(), Some(&b"three"[..]));

    lock.renew().remove_data().await.unwrap();
    lock.release().await.unwrap();
    let lock = acquire().data("four").await.unwrap().granted().unwrap();
    lock.release().remove_data().await.unwrap();
    let lock = acquire().await.unwrap().granted().unwrap();
    assert_eq!(lock.data(), None);
    lock.release().data("five").await.unwrap();
    let lock = acquire().remove_data().await.unwrap().granted().unwrap();
    assert_eq!(lock.data(), None);
    lock.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn data_carries_progress_across_a_takeover() {
    let table = Table::new();
    let locks = table.process().locks("me");
    let mut lock = acquired(&locks).await;
    lock.renew().data("step 2 of 3").await.unwrap();
    let _ = lock.into_token();
    tokio::time::sleep(secs(30)).await;
    let lock = acquired(&locks).await;
    assert_eq!(lock.data(), Some(&b"step 2 of 3"[..]));
    lock.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn tokens_that_were_tampered_with_are_refused_before_any_request() {
    let table = Table::new();
    let process = table.process();
    let locks = process.locks("me");
    let token = serde_json::to_value(acquired(&locks).await.into_token()).unwrap();
    process.take_sent();
    for (field, value) in [
        ("key", json!("")),
        ("owner", json!("")),
        ("version", json!("b2c6a6e2-37cb-4bd9-9cdd-1b0f0d1f9c3e")),
        ("leaseSeconds", json!(0)),
        ("leaseSeconds", json!(-1)),
        ("leaseSeconds", json!(1e12)),
        ("sortKey", json!("a table without sort key")),
    ] {
        let mut changed = token.clone();
        changed[field] = value.clone();
        let changed: LockToken = serde_json::from_value(changed).unwrap();
        for error in [
            locks.resume(changed.clone()).await.map(drop).unwrap_err(),
            locks.release(changed.clone()).await.map(drop).unwrap_err(),
        ] {
            assert!(matches!(error.kind(), lambda_lock::ErrorKind::InvalidRequest), "{field} {value}: {error}");
        }
    }
    assert!(process.take_sent().is_empty());
    let mut unknown = token.clone();
    unknown["surprise"] = json!(1);
    assert!(serde_json::from_value::<LockToken>(unknown).is_err());
}

/// A call on a lock that was written down.
#[derive(Clone, Copy, Debug)]
enum Elsewhere {
    Resume,
    Reclaim,
    Release,
    ReleaseOfTheOwner,
    ReleaseThatDeletes,
    ReleaseOfTheWorkflow,
}

impl Elsewhere {
    const ALL: [Elsewhere; 6] = [
        Elsewhere::Resume,
        Elsewhere::Reclaim,
        Elsewhere::Release,
        Elsewhere::ReleaseOfTheOwner,
        Elsewhere::ReleaseThatDeletes,
        Elsewhere::ReleaseOfTheWorkflow,
    ];

    async fn call(self, locks: &LockClient, token: LockToken) -> Result<(), Error> {
        match self {
            Elsewhere::Resume => locks.resume(token).await.map(drop),
            Elsewhere::Reclaim => locks.reclaim(token).lease(LEASE).await.map(drop),
            Elsewhere::Release => locks.release(token).await.map(drop),
            Elsewhere::ReleaseOfTheOwner => locks.release(token).or_later_grant_of_owner().await.map(drop),
            Elsewhere::ReleaseThatDeletes => locks.release(token).delete_row().await.map(drop),
            Elsewhere::ReleaseOfTheWorkflow => locks.release_workflow("k", "arn:1").await.map(drop),
        }
    }

    /// How many requests it sends before its first write.
    fn reads_first(self) -> usize {
        usize::from(matches!(self, Elsewhere::ReleaseOfTheWorkflow))
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_elsewhere_whose_first_attempt_nobody_heard_of_never_says_that_nothing_was_applied() {
    for call in Elsewhere::ALL {
        for first in [Fault::NeverAnswers, Fault::AnswerLost, Fault::BlackHole] {
            for refusal in ["ThrottlingException", "TransactionConflictException"] {
                let table = Table::new();
                let (one, two) = (table.process(), table.process());
                let lock = one.locks("one").try_acquire("k").lease(LEASE).workflow("arn:1").await.unwrap();
                let token = lock.granted().unwrap().into_token();
                two.next(vec![Fault::None; call.reads_first()]);
                two.next([first.clone()]);
                two.next(vec![Fault::error(refusal); 500]);
                let error = call.call(&two.locks("two"), token).await.unwrap_err();
                assert!(error.is_unknown(), "{call:?}, {first:?}, then {refusal}: {error}");
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn cleaning_up_says_already_gone_when_the_holder_itself_was_faster() {
    // Also where the answer to a first read was lost: a read changes nothing.
    for reads in [vec![Fault::None], vec![Fault::AnswerLost, Fault::None]] {
        let table = Table::new();
        let (one, cleaner) = (table.process(), table.process());
        let lock = one.locks("one").try_acquire("k").lease(LEASE).workflow("arn:1").await.unwrap().granted().unwrap();
        // Between the cleaner's read and the arrival of its write, the holder gives the lock back: the row keeps its
        // version.
        let requests = reads.len() + 1;
        cleaner.next(reads.into_iter().chain([Fault::Slow(Duration::from_millis(500))]));
        let locks = cleaner.locks("cleaner");
        let cleaning = tokio::spawn(async move { locks.release_workflow("k", "arn:1").await });
        tokio::time::sleep(Duration::from_millis(100)).await;
        assert_eq!(lock.release().await.unwrap(), ReleaseOutcome::Released);
        let free = table.row("k");
        assert_eq!(cleaning.await.unwrap().unwrap(), ReleaseOutcome::AlreadyGone);
        assert_eq!(cleaner.take_sent().len(), requests);
        assert_eq!(table.row("k"), free);
    }
}

#[tokio::test(start_paused = true)]
async fn a_copy_whose_clock_is_ahead_does_not_keep_the_lock_from_being_renewed_or_released() {
    for then in ["renewed", "committed", "released", "released after a renewal that was cut off"] {
        let table = Table::new();
        let (one, two) = (table.process(), table.process());
        let mut lock = acquired(&one.locks("one")).await;
        two.set_date_offset(None);
        two.clock.jump_wall(60_000);
        let _ = two.locks("two").resume(lock.token()).await.unwrap().into_token();
        one.take_sent();
        let requests = match then {
            "renewed" => {
                lock.checkpoint().await.unwrap();
                // Refused once, by a version that is newer than the clock.
                assert_eq!(one.take_sent().len(), 2, "{then}");
                lock.checkpoint().await.unwrap();
                1
            }
            "committed" => {
                lock.commit([]).await.unwrap();
                2
            }
            "released" => {
                assert_eq!(lock.release().await.unwrap(), ReleaseOutcome::Released);
                assert_eq!(one.take_sent().len(), 2, "{then}");
                continue;
            }
            _ => {
                one.next([Fault::None, Fault::BlackHole, Fault::BlackHole, Fault::BlackHole]);
                assert!(lock.checkpoint().await.unwrap_err().is_unknown());
                one.clear();
                one.take_sent();
                0
            }
        };
        assert_eq!(one.take_sent().len(), requests, "{then}");
        assert_eq!(lock.release().await.unwrap(), ReleaseOutcome::Released);
        assert_eq!(one.take_sent().len(), 1, "{then}: what is on the row is known by now");
    }
}

#[tokio::test(start_paused = true)]
async fn a_lock_whose_budget_is_spent_is_released_although_a_request_is_lost() {
    let table = Table::new();
    let process = table.process();
    let budget = process.budget(secs(5));
    let lock = process.locks("me").acquire("k").within(&budget).await.unwrap();
    tokio::time::sleep(secs(6)).await;
    assert_eq!(budget.remaining(), Some(Duration::ZERO));
    process.next([Fault::RequestLost]);
    assert_eq!(lock.release().await.unwrap(), ReleaseOutcome::Released);
    assert!(table.attribute("k", "isReleased").is_some());
}

#[tokio::test(start_paused = true)]
async fn a_workflows_lock_stays_the_workflows_through_every_hand_over() {
    let table = Table::new();
    let locks = table.process().locks("me");
    let lock = locks.try_acquire("k").lease(LEASE).workflow("arn:1").await.unwrap().granted().unwrap();
    let token = locks.resume(lock.into_token()).await.unwrap().into_token();
    assert_eq!(token.workflow(), Some("arn:1"));

    let lock = locks.reclaim(token).lease(LEASE).await.unwrap();

    assert_eq!(lock.token().workflow(), Some("arn:1"));
    assert_eq!(table.attribute("k", "workflow").as_deref(), Some("arn:1"));
    assert_eq!(locks.release_workflow("k", "arn:1").await.unwrap(), ReleaseOutcome::Released);
    let _ = lock.into_token();
}

#[tokio::test(start_paused = true)]
async fn no_release_ends_the_grant_of_another_client_whose_attributes_look_like_ours() {
    let table = Table::new();
    let locks = table.process().locks("me");
    let acquire = locks.try_acquire("k").lease(LEASE).owner("the same").workflow("arn:1");
    let lock = acquire.await.unwrap().granted().unwrap();
    // Go's client copies attributes that it does not know.
    table.set("k", json!({"recordVersionNumber": {"S": "b2c6a6e2-37cb-4bd9-9cdd-1b0f0d1f9c3e"}}));

    let released = locks.release(lock.into_token()).or_later_grant_of_owner().await;

    assert_eq!(released.unwrap(), ReleaseOutcome::AlreadyGone);
    assert_eq!(locks.release_workflow("k", "arn:1").await.unwrap(), ReleaseOutcome::AlreadyGone);
    assert_eq!(table.attribute("k", "isReleased"), None);
}

#[tokio::test(start_paused = true)]
async fn a_deletion_that_finds_no_row_has_released_nothing() {
    let table = Table::new();
    let lock = acquired(&table.process().locks("me")).await;
    table.delete("k");
    assert_eq!(lock.release().delete_row().await.unwrap(), ReleaseOutcome::AlreadyGone);
}
