//! A set waits for all of its locks, and holds nothing meanwhile.

use crate::{acquired, blocked, held_by_another, operations};
use lambda_lock_testkit::{Table, granted, millis, secs};
use tokio::time::{Instant, sleep};

#[tokio::test(start_paused = true)]
async fn it_reads_while_it_waits_and_is_granted_when_all_are_free() {
    let table = Table::new();
    let process = table.process();
    let locks = process.locks("me");
    let (a, b) = (held_by_another(&table, "a").await, held_by_another(&table, "b").await);
    let budget = process.budget(secs(30)).reserve(secs(0));

    let (set, ()) = tokio::join!(locks.acquire_all(["a", "b", "c"]).within(&budget), async {
        sleep(secs(2)).await;
        a.release().await.unwrap();
        sleep(secs(2)).await;
        assert_eq!(table.row("c"), None, "nothing is held meanwhile");
        let single = granted(table.process().locks("single").acquire("a").lease(secs(1)).try_once()).await;
        single.release().await.unwrap();
        b.release().await.unwrap();
    });
    let set = set.unwrap();

    let sent = operations(&process);
    let writes: Vec<usize> = (0..sent.len()).filter(|index| sent[*index] == "TransactWriteItems").collect();
    assert_eq!(writes, [0, sent.len() - 1], "{sent:?}");
    assert!(sent[1..sent.len() - 1].iter().all(|operation| operation == "BatchGetItem"), "{sent:?}");
    assert!(sent.len() < 4000 / 125 + 8, "{} requests", sent.len());
    set.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn it_takes_over_when_the_last_holder_is_dead() {
    let table = Table::new();
    let process = table.process();
    let locks = process.locks("me");
    let other = table.process().locks("other");
    for (key, lease) in [("a", secs(5)), ("b", secs(9))] {
        std::mem::forget(granted(other.acquire(key).lease(lease).try_once()).await);
    }
    let began = Instant::now();

    let budget = process.budget(secs(30)).reserve(secs(0));
    let set = locks.acquire_all(["a", "b"]).within(&budget).await.unwrap();

    // The longer lease, and how much slower the holder's clock may run.
    assert!(began.elapsed() > millis(9450) && began.elapsed() < millis(9600), "{:?}", began.elapsed());
    set.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn two_sets_that_share_a_lock_are_granted_one_after_the_other() {
    let table = Table::new();
    let first = acquired(&table.process().locks("one"), ["a", "b"]).await;
    let process = table.process();
    let locks = process.locks("two");
    let error = locks.acquire_all(["b", "c"]).within(&process.budget(secs(2)).reserve(secs(0))).await.unwrap_err();
    assert_eq!(blocked(&error), ["b"]);

    let budget = process.budget(secs(20)).reserve(secs(0));
    let (second, released) = tokio::join!(locks.acquire_all(["b", "c"]).within(&budget), first.release());
    released.unwrap();
    second.unwrap().release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_refusal_behind_a_frozen_lock_does_not_advise_to_wait_in_order() {
    for is_frozen in [false, true] {
        let table = Table::new();
        let process = table.process();
        let locks = process.locks("me");
        let _others = (held_by_another(&table, "a").await, held_by_another(&table, "b").await);
        if is_frozen {
            locks.operator().freeze("b", "an audit").await.unwrap();
        }
        let budget = process.budget(secs(2)).reserve(secs(0));

        let error = locks.acquire_all(["a", "b"]).within(&budget).await.unwrap_err();

        assert_eq!(
            (blocked(&error), error.to_string().contains("in_order")),
            (vec!["a".into(), "b".into()], !is_frozen)
        );
    }
}
