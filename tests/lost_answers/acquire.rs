//! An acquire whose response was lost recognises its own grant, or leaves no lock held.

use crate::LEASE;
use lambda_lock_testkit::{Fault, Table, acquired, case, millis};
use tokio::time::sleep;

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
async fn a_grant_recognised_late_is_renewed_before_it_is_reported() {
    let table = Table::new();
    let process = table.process();
    process.next([Fault::NeverAnswers]);

    let lock = process.locks("me").acquire("k").lease(millis(1500)).try_once().await.unwrap();

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

        let error = process.locks("me").acquire("k").lease(millis(1500)).try_once().await.unwrap_err();

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

    let error = locks.acquire("k").lease(lease).try_once().await.unwrap_err();
    assert!(error.is_unknown(), "{error}");
    assert_eq!(one.take_operations(), ["UpdateItem", "GetItem", "UpdateItem"]);

    let other = takeover.await.unwrap();
    assert!(locks.acquire("k").lease(lease).try_once().await.unwrap().granted().is_none());
    other.release().await.unwrap();

    acquired(&locks, lease).await.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_grant_recognised_late_whose_renewal_is_denied_may_be_held() {
    let table = Table::new();
    let process = table.process();
    let denied = vec![Fault::error("AccessDeniedException"); 9];
    process.next([Fault::NeverAnswers, Fault::None].into_iter().chain(denied));

    let error = process.locks("me").acquire("k").lease(millis(1500)).try_once().await.unwrap_err();

    assert!(error.is_unknown(), "{error}");
    let cause = std::error::Error::source(&error).map(ToString::to_string);
    assert!(cause.as_deref().is_some_and(|cause| cause.contains("denied")), "{cause:?}");
    assert_eq!((error.may_be_held().len(), table.is_released("k")), (1, false));

    // Where the release that follows is applied, nothing is held.
    let process = table.process();
    process.next_of("n", [Fault::NeverAnswers, Fault::None, Fault::error("AccessDeniedException")]);
    let error = process.locks("me").acquire("n").lease(millis(1500)).try_once().await.unwrap_err();
    assert!(error.is_unknown(), "{error}");
    assert_eq!((error.may_be_held().len(), table.is_released("n")), (0, true));
}
