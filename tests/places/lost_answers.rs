//! Requests without a response: no call takes two places, and none stays behind.

use crate::{LEASE, granted, held_by_others};
use lambda_lock_testkit::{Fault, Table, case, secs};

fn held(table: &Table, places: usize) -> usize {
    let is_held = |place: &usize| {
        let key = format!("gateway/{place}");
        table.row(&key).is_some() && !table.is_released(&key)
    };
    (0..places).filter(is_held).count()
}

#[tokio::test(start_paused = true)]
async fn a_place_of_unknown_outcome_is_read_before_another_one_is_tried() {
    for fault in Fault::applied_unheard().into_iter().chain(Fault::not_applied()) {
        let _case = case(format!("{fault:?}"));
        let table = Table::new();
        let process = table.process();
        process.next([fault]);
        let permit = granted(process.locks("me").semaphore("gateway", 9).try_acquire().lease(LEASE)).await;
        assert_eq!(process.take_operations()[..2], ["UpdateItem", "GetItem"]);
        assert_eq!(held(&table, 9), 1);
        permit.release().await.unwrap();
        assert_eq!(held(&table, 9), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_place_that_is_left_is_released_before_the_call_ends() {
    let table = Table::new();
    held_by_others(&table, 0..3).await;
    let process = table.process();
    let locks = process.locks("me");
    // The first place is held. Nobody hears of its refusal, and the row shows another holder.
    process.next([Fault::NeverAnswers]);
    let permit = granted(locks.semaphore("gateway", 4).try_acquire().lease(LEASE)).await;
    let sent = process.sent();
    let tried: Vec<_> =
        sent.iter().filter(|sent| sent.operation == "UpdateItem").map(|sent| sent.body.clone()).collect();
    let first = tried[0].split("gateway/").nth(1).unwrap()[..1].to_owned();
    if permit.place().to_string() != first {
        let releases =
            tried.iter().filter(|body| body.contains(&format!("gateway/{first}")) && body.contains("SET isReleased"));
        assert_eq!(releases.count(), 2, "at once, and at the end of the call: {tried:#?}");
    }
    assert_eq!(held(&table, 4), 4);
    permit.release().await.unwrap();
}

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
        let error = process.locks("me").semaphore("gateway", 3).try_acquire().lease(LEASE).await.unwrap_err();
        assert!(error.is_unknown(), "{error:?}");
        let requests = process.take_operations();
        assert_eq!(requests.last().map(String::as_str), Some("UpdateItem"), "the release");
        let before = vec![Fault::None; requests.len() - 2];
        process.next([vec![Fault::NeverAnswers], before, vec![fault; 50]].concat());
        let error = process.locks("me").semaphore("gateway", 3).try_acquire().lease(LEASE).await.unwrap_err();
        assert!(error.is_unknown(), "{error:?}");
    }
}
