//! An acquire whose response was lost recognises its own grant, or leaves no lock held.

use crate::LEASE;
use lambda_lock::ReleaseOutcome;
use lambda_lock_testkit::{Fault, ROUND_TRIP, Table, acquired, case, millis, secs};
use std::time::Duration;
use tokio::time::sleep;

#[tokio::test(start_paused = true)]
async fn a_lost_answer_is_recognised_as_our_own_grant() {
    for fault in Fault::applied_unheard() {
        let _case = case(format!("{fault:?}"));
        let table = Table::new();
        let process = table.process();
        process.next([fault.clone()]);

        let lock = acquired(&process.locks("me"), LEASE).await;

        assert_eq!(process.take_operations(), ["UpdateItem", "GetItem"]);
        assert_eq!(Some(lock.fencing_token().to_string()), table.attribute("k", "fencingToken"));
        lock.release().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn an_empty_answer_with_status_200_counts_as_no_answer() {
    let table = Table::new();
    let process = table.process();
    process.next([Fault::AppliedButSays(200, "")]);

    let mut lock = acquired(&process.locks("me"), LEASE).await;
    assert_eq!(process.take_operations(), ["UpdateItem", "GetItem"]);

    process.next([Fault::AppliedButSays(200, "{}")]);
    lock.checkpoint().await.unwrap();
    assert_eq!(process.take_operations(), ["UpdateItem", "UpdateItem"]);
    lock.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_lost_request_is_retried_as_a_new_attempt() {
    for fault in Fault::not_applied() {
        let _case = case(format!("{fault:?}"));
        let table = Table::new();
        let process = table.process();
        process.next([fault.clone()]);
        let lock = acquired(&process.locks("me"), LEASE).await;
        let sent = process.take_sent();

        let operations: Vec<_> = sent.iter().map(|sent| sent.operation.as_str()).collect();

        assert_eq!(operations, ["UpdateItem", "GetItem", "UpdateItem"]);
        assert_ne!(sent[0].body, sent[2].body, "an attempt is never sent twice");
        lock.release().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn the_grant_of_a_recognised_attempt_counts_from_before_it_was_sent() {
    let table = Table::new();
    let process = table.process();
    process.next([Fault::NeverAnswers, Fault::Slow(millis(500))]);

    let lock = acquired(&process.locks("me"), LEASE).await;

    // The first request was given up after one second, the second one after half a second.
    let believed = Duration::from_nanos(20_000_000_000 * 1000 / 1050);
    assert_eq!(lock.remaining(), believed - millis(1500) - ROUND_TRIP);
    lock.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_earlier_attempt_that_turns_out_to_be_the_applied_one_keeps_its_own_start() {
    let table = Table::new();
    let process = table.process();
    // The first Claim arrives after 1.5 s. By then the second one has been sent and lost.
    let late = millis(1500);
    process.next([Fault::ArrivesLate(late), Fault::None, Fault::RequestLost, Fault::Slow(millis(600))]);

    let lock = acquired(&process.locks("me"), LEASE).await;

    assert_eq!(process.take_operations(), ["UpdateItem", "GetItem", "UpdateItem", "GetItem"]);
    let believed = Duration::from_nanos(20_000_000_000 * 1000 / 1050);
    assert!(lock.remaining() <= believed - millis(1600), "{:?}", lock.remaining());
    lock.release().await.unwrap();
}

/// The response to an acquire is lost. Before any read, the clean-up of its workflow releases the lock.
#[tokio::test(start_paused = true)]
async fn a_grant_that_was_released_before_it_was_recognised_is_not_returned() {
    let seen_by = [
        // The read that finds out whether the first attempt was applied.
        ("a read", vec![Fault::NeverAnswers]),
        // The second attempt. It is refused because of the first one, which arrived after the read.
        ("a refused attempt", vec![Fault::ArrivesLate(millis(1100)), Fault::None, Fault::Slow(millis(400))]),
    ];
    for (what, faults) in seen_by {
        for workflow in [true, false] {
            let _case = case(format!("seen by {what}, workflow: {workflow}"));
            let table = Table::new();
            let (one, cleaner) = (table.process(), table.process());
            one.next(faults.clone());
            let locks = one.locks("one");
            let call = tokio::spawn(async move {
                let acquire = locks.try_acquire("k").lease(LEASE).owner("task");
                if workflow { acquire.workflow("arn:1").await } else { acquire.await }
            });
            let freed_at = millis(if what == "a read" { 500 } else { 1200 });
            sleep(freed_at).await;
            let locks = cleaner.locks("cleaner");

            let freed = if workflow {
                locks.release_workflow("k", "arn:1").await
            } else {
                // Or a caller that knows the name of its owner.
                let token = serde_json::json!({"key": "k", "owner": "task", "fencingToken": 1, "leaseSeconds": 20.0,
                    "version": "ll1-00000000000040008000000000000000-0000000000000000000000000000", "leaseEndsAt": 0});
                locks.release(serde_json::from_value(token).unwrap()).or_later_grant_of_owner().await
            };
            assert_eq!(freed.unwrap(), ReleaseOutcome::Released);

            let free = table.row("k");
            let error = call.await.unwrap().expect_err("a lock that is free is nobody's");
            assert!(error.is_unknown(), "{error}");
            assert_eq!(table.attribute("k", "isReleased").as_deref(), Some("1"), "{free:?}");

            // The next caller gets the lock with one request.
            let next = table.process();
            acquired(&next.locks("next"), LEASE).await.release().await.unwrap();
            assert_eq!(next.take_operations(), ["UpdateItem", "UpdateItem"]);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_grant_recognised_late_is_renewed_before_it_is_reported() {
    let table = Table::new();
    let process = table.process();
    process.next([Fault::NeverAnswers]);

    let lock = process.locks("me").try_acquire("k").lease(millis(1500)).await.unwrap();

    let lock = lock.granted().unwrap();
    assert_eq!(process.take_operations(), ["UpdateItem", "GetItem", "UpdateItem"]);
    assert!(lock.remaining() > millis(1400), "{:?}", lock.remaining());
    lock.release().await.unwrap();
}

/// Found by the simulation: the call reported "nothing was applied", but the lock stayed held.
#[tokio::test(start_paused = true)]
async fn a_grant_recognised_late_that_cannot_be_renewed_is_released_and_reported_as_unknown() {
    for brown_out in [Fault::throttled(), Fault::RequestLost] {
        let _case = case(format!("{brown_out:?}"));
        let table = Table::new();
        let process = table.process();
        // The fault lasts while the renewal has time. The release that follows has its own time.
        process.next([Fault::NeverAnswers, Fault::None].into_iter().chain(vec![brown_out; 100]));
        let network = process.clone();
        let end_of_brown_out = tokio::spawn(async move {
            sleep(millis(4_500)).await;
            network.clear();
        });

        let error = process.locks("me").try_acquire("k").lease(millis(1500)).await.unwrap_err();

        end_of_brown_out.await.unwrap();
        assert!(error.is_unknown(), "{error}");
        assert!(table.is_released("k"), "nobody is blocked by what was given up");
    }
}

/// Found by processes that contend over a bad connection: an acquire returned `Lost`, which tells callers to stop.
#[tokio::test(start_paused = true)]
async fn a_grant_recognised_late_that_another_takes_before_it_is_renewed_was_never_held_and_is_asked_for_again() {
    let table = Table::new();
    let (one, two) = (table.process(), table.process());
    let lease = millis(1200);
    // The grant is recognised after a second. Before its renewal arrives, another caller has taken the lock over.
    one.next([Fault::NeverAnswers, Fault::None, Fault::Slow(millis(600))]);
    let takeover = tokio::spawn(async move {
        sleep(millis(1400)).await;
        let locks = two.builder().owner("two").max_clock_skew(millis(100)).build().unwrap();
        acquired(&locks, LEASE).await
    });
    let locks = one.locks("one");

    let error = locks.try_acquire("k").lease(lease).await.unwrap_err();
    assert!(error.is_unknown(), "{error}");
    assert_eq!(one.take_operations(), ["UpdateItem", "GetItem", "UpdateItem"]);

    let other = takeover.await.unwrap();
    assert!(locks.try_acquire("k").lease(lease).await.unwrap().granted().is_none());
    other.release().await.unwrap();

    acquired(&locks, lease).await.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_answer_without_the_token_leaves_no_lock_held() {
    let table = Table::new();
    let process = table.process();
    const BODY: &str = r#"{"Attributes":{"key":{"S":"k"},"ownerName":{"S":"me"},"leaseDuration":{"S":"20000"},
        "recordVersionNumber":{"S":"ll1-00000000000000000000000000000000-0000000000000000000000000000"},"leaseEndsAt":{"N":"1"}}}"#;
    process.next([Fault::AppliedButSays(200, BODY)]);
    process.next(vec![Fault::BlackHole; 3]);

    let error = process.locks("me").try_acquire("k").lease(secs(20)).await.unwrap_err();

    assert!(error.is_unknown(), "{error}");
    assert!(table.is_released("k"));
}

#[tokio::test(start_paused = true)]
async fn a_grant_recognised_late_whose_renewal_is_denied_may_be_held() {
    let table = Table::new();
    let process = table.process();
    let denied = vec![Fault::error("AccessDeniedException"); 9];
    process.next([Fault::NeverAnswers, Fault::None].into_iter().chain(denied));

    let error = process.locks("me").try_acquire("k").lease(millis(1500)).await.unwrap_err();

    assert!(error.is_unknown(), "{error}");
    let cause = std::error::Error::source(&error).map(ToString::to_string);
    assert!(cause.as_deref().is_some_and(|cause| cause.contains("denied")), "{cause:?}");
    assert_eq!((error.may_be_held().len(), table.is_released("k")), (1, false));

    // Where the release that follows is applied, nothing is held.
    let process = table.process();
    process.next_of("n", [Fault::NeverAnswers, Fault::None, Fault::error("AccessDeniedException")]);
    let error = process.locks("me").try_acquire("n").lease(millis(1500)).await.unwrap_err();
    assert!(error.is_unknown(), "{error}");
    assert_eq!((error.may_be_held().len(), table.is_released("n")), (0, true));
}
