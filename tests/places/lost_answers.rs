//! Requests without a response: no call takes two places, and none stays behind.

use crate::{LEASE, held_by_others};
use lambda_lock_testkit::{Fault, Table, case, secs};

#[tokio::test(start_paused = true)]
async fn a_call_that_never_hears_ends_as_unknown_within_its_budget() {
    let table = Table::new();
    let process = table.process();
    process.next(vec![Fault::BlackHole; 50]);
    let began = tokio::time::Instant::now();
    let budget = process.budget(secs(2)).reserve(secs(0));
    let error = process.locks("me").semaphore("gateway", 4).acquire().within(&budget).await.unwrap_err();
    assert!(error.is_unknown() && error.to_string().contains("gateway"), "{error:?}");
    assert!(began.elapsed() < secs(3), "{:?}", began.elapsed());
    // It has left one place after the other.
    let bodies: String = process.take_sent().into_iter().map(|sent| sent.body).collect();
    let asked: Vec<String> =
        (0..4).map(|place| format!("gateway/{place}")).filter(|key| bodies.contains(key)).collect();
    assert_eq!(error.may_be_held().iter().map(|key| key.key().to_owned()).collect::<Vec<_>>(), asked);
}

/// It has asked for no place, so it may hold none.
#[tokio::test(start_paused = true)]
async fn a_call_whose_looks_have_no_response_and_that_asked_for_no_place_holds_none() {
    let table = Table::new();
    held_by_others(&table, 0..2).await;
    let process = table.process();
    let locks = process.locks("me");
    let budget = || process.budget(secs(5)).reserve(secs(0));

    // Refused at the first place, and without a response to its looks. Then without a response to its first look.
    for (before, reclaims) in [(vec![Fault::None], false), (vec![], true)] {
        process.next([before, vec![Fault::BlackHole; 100]].concat());
        let acquire = locks.semaphore("gateway", 2).acquire().within(&budget()).owner("me");
        let acquire = if reclaims { acquire.reclaim_own() } else { acquire };
        let error = acquire.await.unwrap_err();
        process.clear();

        assert!(error.is_unknown() && error.may_be_held().is_empty(), "{error:?}");
        assert!(error.to_string().starts_with("the lock gateway was not read"), "{error}");
    }
}

/// The request may be applied after everything else, whatever became of the release. It would be refused then only if the
/// clocks of all callers agreed.
#[tokio::test(start_paused = true)]
async fn a_call_without_a_place_that_left_one_of_unknown_outcome_does_not_say_that_all_places_are_held() {
    for fault in [Fault::None, Fault::throttled(), Fault::BlackHole, Fault::Says(500, "")] {
        let _case = case(format!("{fault:?}"));
        let table = Table::new();
        held_by_others(&table, 0..3).await;
        let process = table.process();
        process.next([Fault::NeverAnswers]);
        let error = process.locks("me").semaphore("gateway", 3).acquire().lease(LEASE).try_once().await.unwrap_err();
        assert!(error.is_unknown(), "{error:?}");
        let requests = process.take_operations();
        assert_eq!(requests.last().map(String::as_str), Some("UpdateItem"), "the release");
        let before = vec![Fault::None; requests.len() - 2];
        process.next([vec![Fault::NeverAnswers], before, vec![fault; 50]].concat());
        let error = process.locks("me").semaphore("gateway", 3).acquire().lease(LEASE).try_once().await.unwrap_err();
        assert!(error.is_unknown(), "{error:?}");
    }
}
