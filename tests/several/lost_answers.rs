//! Transactions without a response: the same one is sent again, and nothing stays behind.

use crate::{BELIEVED, LEASE, acquired, content, operations, released};
use lambda_lock::Tried;
use lambda_lock_testkit::{Fault, Table, case, millis, secs};
use tokio::time::{Instant, sleep, timeout};

#[tokio::test(start_paused = true)]
async fn a_grant_that_is_found_after_half_of_its_lease_is_renewed_first() {
    let table = Table::new();
    let process = table.process();
    let locks = process.builder().request_timeout(secs(12)).build().unwrap();
    process.next([Fault::NeverAnswers]);

    let set = locks.acquire_all(["a", "b"]).lease(LEASE).try_once().await.unwrap().granted().unwrap();

    assert_eq!(operations(&process), ["TransactWriteItems", "TransactWriteItems", "UpdateItem", "UpdateItem"]);
    assert!(set.remaining() > BELIEVED - millis(100), "{:?}", set.remaining());
    set.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_late_grant_that_was_lost_meanwhile_is_of_unknown_outcome_and_its_rest_is_given_back() {
    let table = Table::new();
    let process = table.process();
    let locks = process.builder().request_timeout(secs(30)).build().unwrap();
    process.next([Fault::NeverAnswers]);
    let (got, ()) = tokio::join!(locks.acquire_all(["a", "b"]).lease(LEASE).try_once(), async {
        sleep(secs(28)).await;
        lambda_lock_testkit::granted(table.process().locks("other").acquire("b").lease(secs(60)).try_once())
            .await
            .save();
    });
    let error = got.unwrap_err();
    assert!(error.is_unknown(), "{error:?}");
    assert_eq!(released(&table, &["a", "b"]), [true, false]);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_ends_without_knowing_releases_what_it_may_have_got() {
    let table = Table::new();
    let process = table.process();
    // All of the transactions are applied, but nobody hears of it.
    process.next([Fault::NeverAnswers, Fault::NeverAnswers, Fault::NeverAnswers]);

    let error = process.locks("me").acquire_all(["a", "b"]).lease(LEASE).try_once().await.unwrap_err();

    assert!(error.is_unknown() && error.to_string().contains("the locks a and b may or may not"), "{error}");
    assert_eq!(released(&table, &["a", "b"]), [true; 2]);
}

#[tokio::test(start_paused = true)]
async fn the_release_of_many_locks_does_not_go_on_long_after_the_budget() {
    let table = Table::new();
    let process = table.process();
    process.next(vec![Fault::BlackHole; 60]);
    let keys: Vec<String> = (0..25).map(|index| format!("k-{index}")).collect();

    let began = tokio::time::Instant::now();
    let budget = process.budget(secs(2)).reserve(secs(0));
    let error = process.locks("me").acquire_all(keys).within(&budget).await.unwrap_err();

    assert!(error.is_unknown(), "{error:?}");
    assert!(began.elapsed() < millis(2400), "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_late_copy_of_an_applied_transaction_is_refused() {
    let table = Table::new();
    let process = table.process();
    let set = acquired(&process.locks("me"), ["a", "b"]).await;
    let sent = process.take_sent().remove(0);
    set.release().await.unwrap();
    let mut copy = content(&sent);
    copy["ClientRequestToken"] = "another-token-as-if-it-were-forgotten".into();
    let (status, body) = table.carry_out("TransactWriteItems", &copy.to_string());
    assert_eq!(status, 400, "{body}");
    assert_eq!(released(&table, &["a", "b"]), [true; 2]);
    let refused = process.locks("me").acquire_all(["a", "b"]).lease(LEASE).try_once().await.unwrap();
    assert!(matches!(refused, Tried::Granted(_)));
}

#[tokio::test(start_paused = true)]
async fn a_transaction_that_dynamodb_recovers_after_five_seconds_is_granted() {
    for budget in [None, Some(20)] {
        let _case = case(format!("budget: {budget:?}"));
        let table = Table::new();
        let process = table.process();
        let locks = process.locks("me");
        process.next([Fault::Limbo]);

        let granted = match budget {
            None => locks.acquire_all(["a", "b"]).lease(LEASE).try_once().await,
            Some(budget) => locks.acquire_all(["a", "b"]).within(&process.budget(secs(budget))).try_once().await,
        };

        let Ok(Tried::Granted(set)) = granted else { panic!("not granted: {granted:?}") };
        let sent = process.take_sent();
        let first = content(&sent[0]);
        assert!(sent.iter().filter(|sent| sent.operation == "TransactWriteItems").all(|again| content(again) == first));
        assert!(sent.len() <= 7, "{} requests", sent.len());
        set.release().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn an_acquire_that_meets_a_transaction_in_progress_leaves_the_reserve_of_its_budget_to_the_work() {
    for kind in ["a set, tried", "a set, waited for", "in order", "one lock, tried", "one lock, waited for"] {
        let _case = case(kind);
        let table = Table::new();
        let (process, other) = (table.process(), table.process());
        let locks = process.locks("me");
        let budget = process.budget(secs(12)).reserve(secs(8));
        // The transaction is this call's own, or somebody else's.
        if kind.starts_with("a set") {
            process.next([Fault::Limbo]);
        } else {
            other.next([Fault::Limbo]);
            let others = other.locks("other");
            timeout(millis(100), others.acquire_all(["a", "b"]).lease(LEASE).try_once().into_future())
                .await
                .unwrap_err();
        }
        let began = Instant::now();

        let error = match kind {
            "a set, tried" => locks.acquire_all(["a", "b"]).within(&budget).try_once().await.map(|_| ()),
            "a set, waited for" => locks.acquire_all(["a", "b"]).within(&budget).await.map(|_| ()),
            "in order" => locks.acquire_all(["a", "b"]).within(&budget).in_order().await.map(|_| ()),
            "one lock, tried" => locks.acquire("a").within(&budget).try_once().await.map(|_| ()),
            _ => locks.acquire("a").within(&budget).await.map(|_| ()),
        }
        .unwrap_err();

        // Four seconds, and a last request that releases what may have been granted.
        assert!(began.elapsed() <= millis(4_400), "{error} after {:?}", began.elapsed());
    }
}
