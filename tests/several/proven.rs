//! Locks in order: what the call has is proven to be its own while it waits, and before anybody works with it.

use crate::{blocked, held_by_another, operations, released};
use lambda_lock::{Error, Lock, LockClient, LockSet, ReleaseOutcome};
use lambda_lock_testkit::{Fault, Process, Table, case, ends_within, granted, millis, secs};
use std::cell::Cell;
use std::time::Duration;
use tokio::time::{Instant, sleep};

async fn broken(client: &LockClient, key: &str) {
    let seen = client.operator().peek(key).await.unwrap().unwrap();
    assert_eq!(client.operator().break_lock(key, &seen, "stuck").await.unwrap(), ReleaseOutcome::Released);
}

async fn taken_by_thief(table: &Table, key: &str, lease: Duration) -> Lock {
    granted(table.process().locks("thief").acquire(key).lease(lease).owner("thief").try_once()).await
}

/// A lock that is held for very long.
async fn held_long(table: &Table, key: &str) -> Lock {
    granted(table.process().locks("other").acquire(key).lease(secs(3_600)).owner("other").try_once()).await
}

async fn until_granted(table: &Table, key: &str) {
    while table.is_released(key) {
        sleep(millis(1)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn no_work_begins_with_a_lock_that_an_operator_freed_minutes_ago() {
    // The budget of a Lambda function of 15 minutes: its lease covers it, or is as long as it, or nearly so.
    for lease in [None, Some(secs(850)), Some(secs(900)), Some(secs(60))] {
        for is_break in [true, false] {
            let _case = case(format!("lease {lease:?}, broken: {is_break}"));
            let table = Table::new();
            let process = table.process();
            let (locks, operator) = (process.locks("me"), table.process().locks("operator"));
            let other = held_long(&table, "b").await;
            let budget = process.budget(secs(900));
            let acquire = locks.acquire_all(["a", "b"]).workflow("arn:1").within(&budget);
            let acquire = lease.into_iter().fold(acquire, |acquire, lease| acquire.lease(lease)).in_order();
            let thief_works = Cell::new(false);
            let (worked, token) = tokio::join!(
                async {
                    let work = async |set: &mut LockSet| {
                        assert!(!thief_works.get(), "two work with a at once");
                        Ok::<_, Error>(set.fencing_token_of("a").unwrap())
                    };
                    acquire.await?.run(work).await
                },
                async {
                    sleep(secs(10)).await;
                    if is_break {
                        broken(&operator, "a").await;
                    } else {
                        operator.release_workflow("a", "arn:1").await.unwrap();
                    }
                    let thief = taken_by_thief(&table, "a", secs(600)).await;
                    thief_works.set(true);
                    sleep(secs(380)).await;
                    other.release().await.unwrap();
                    sleep(secs(30)).await;
                    thief_works.set(false);
                    let token = thief.fencing_token();
                    thief.release().await.unwrap();
                    token
                }
            );
            assert!(worked.unwrap() > token);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_lock_is_renewed_each_third_of_a_lease_that_no_renewal_extends_or_shortens() {
    let table = Table::new();
    let process = table.process();
    let other = held_long(&table, "b").await;
    let locks = process.locks("me");
    let budget = process.budget(secs(300)).reserve(secs(60));
    let acquire = locks.acquire_all(["a", "b"]).within(&budget).in_order();
    let (set, ()) = tokio::join!(acquire, async {
        sleep(secs(1)).await;
        let [version, end] = ["recordVersionNumber", "leaseEndsAt"].map(|name| table.attribute("a", name).unwrap());
        let mut versions = vec![version];
        for _ in 0..220 {
            sleep(secs(1)).await;
            assert_eq!(table.attribute("a", "leaseEndsAt").as_ref(), Some(&end));
            versions.extend(table.attribute("a", "recordVersionNumber"));
            versions.dedup();
        }
        // Of 300 s, renewed after 100 and 200 s.
        assert_eq!(versions.len(), 3);
        other.release().await.unwrap();
    });
    let set = set.unwrap();
    assert!(set.remaining() >= budget.remaining().unwrap(), "{:?} of {budget:?}", set.remaining());
    set.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn the_third_counts_from_the_last_renewal_also_when_it_goes_on_to_the_next_lock() {
    let table = Table::new();
    let process = table.process();
    let others = [held_by_another(&table, "b").await, held_by_another(&table, "c").await];
    let locks = process.locks("me");
    let acquire = locks.acquire_all(["a", "b", "c"]).lease(secs(30)).within(&process.budget(secs(200))).in_order();
    let (set, ()) = tokio::join!(acquire, async {
        for other in others {
            for _ in 0..80 {
                sleep(millis(100)).await;
                let left = table.number("a", "leaseEndsAt") - process.clock.wall_millis();
                assert!(left > 20_000, "{left} ms are left of the lease of 30 s");
            }
            other.release().await.unwrap();
        }
    });
    set.unwrap().release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn keep_alive_counts_the_third_from_the_last_renewal() {
    let table = Table::new();
    let process = table.process();
    let other = held_long(&table, "b").await;
    let locks = process.locks("me");
    let began = Instant::now();
    let acquire = locks.acquire_all(["a", "b"]).within(&process.budget(secs(900))).in_order();
    let (worked, ()) =
        tokio::join!(async { acquire.await?.run(async |set| set.keep_alive(sleep(secs(500))).await).await }, async {
            sleep(secs(10)).await;
            broken(&table.process().locks("operator"), "a").await;
            sleep(secs(240)).await;
            other.release().await.unwrap();
        });
    let error = worked.unwrap_err();
    assert!(error.is_lost() && began.elapsed() < secs(310), "{error} after {:?}", began.elapsed());
    assert_eq!(released(&table, &["a", "b"]), [true; 2]);
}

#[tokio::test(start_paused = true)]
async fn steps_that_are_kept_alive_one_after_the_other_are_renewed_in_time_and_no_more_often() {
    let table = Table::new();
    let process = table.process();
    let locks = process.locks("me");
    // The steps are shorter than a response takes, or longer.
    for (step, steps) in [(millis(50), 6_000), (secs(5), 60)] {
        let mut lock = locks.acquire("a").within(&process.budget(secs(400))).await.unwrap();
        process.take_sent();
        process.next(vec![Fault::Slow(millis(100)); 1_000]);
        for _ in 0..steps {
            lock.keep_alive(sleep(step)).await.unwrap();
        }
        process.clear();
        let renewals = process.take_sent().len();
        assert!((2..=4).contains(&renewals), "{renewals} requests in 300 s for steps of {step:?}");
        lock.release().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_lock_whose_renewals_had_no_response_is_renewed_before_the_work_begins() {
    for lease in [None, Some(secs(60))] {
        let _case = case(format!("lease: {lease:?}"));
        let table = Table::new();
        let process = table.process();
        let other = held_long(&table, "b").await;
        let locks = process.locks("me");
        let budget = process.budget(secs(60)).reserve(secs(10));
        let acquire = locks.acquire_all(["a", "b"]).within(&budget);
        let acquire = lease.into_iter().fold(acquire, |acquire, lease| acquire.lease(lease)).in_order();
        let (set, token) = tokio::join!(acquire, async {
            sleep(secs(10)).await;
            broken(&table.process().locks("operator"), "a").await;
            let thief = taken_by_thief(&table, "a", secs(120)).await;
            process.next_of("a", vec![Fault::BlackHole; 300]);
            sleep(secs(13)).await;
            other.release().await.unwrap();
            until_granted(&table, "b").await;
            process.clear();
            sleep(secs(5)).await;
            let token = thief.fencing_token();
            thief.release().await.unwrap();
            token
        });
        let set = set.unwrap();
        assert!(set.fencing_token_of("a").unwrap() > token);
        set.release().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_lock_that_becomes_old_while_another_one_is_renewed_is_renewed_too() {
    let table = Table::new();
    let process = table.process();
    let other = held_long(&table, "c").await;
    let locks = process.builder().request_timeout(secs(20)).build().unwrap();
    let acquire = locks.acquire_all(["a", "b", "c"]).lease(secs(31)).within(&process.budget(secs(400))).in_order();
    let (set, ()) = tokio::join!(acquire, async {
        sleep(secs(1)).await;
        // Its renewal after 10 s has its response 12 s later. That of b has one at once, and is 12 s old by then.
        process.next_of("a", [Fault::Slow(secs(12))]);
        sleep(millis(9_100)).await;
        other.release().await.unwrap();
        until_granted(&table, "c").await;
        process.next_of("a", [Fault::Slow(secs(12))]);
    });
    let left: Vec<_> = set.unwrap().into_locks().into_iter().map(|lock| (lock.remaining(), lock.save()).0).collect();
    assert!(left[1..].iter().all(|left| *left >= secs(29)), "{left:?}");
}

#[tokio::test(start_paused = true)]
async fn its_last_renewals_end_within_the_time_of_the_call() {
    for (timeout, longest) in [(secs(1), millis(7_300)), (secs(5), millis(20_300))] {
        let _case = case(format!("request timeout {timeout:?}"));
        let table = Table::new();
        let process = table.process();
        let other = held_by_another(&table, "b").await;
        let locks = process.builder().request_timeout(timeout).build().unwrap();
        let budget = process.budget(secs(90)).reserve(secs(84));
        let began = Instant::now();
        let acquire = locks.acquire_all(["a", "b"]).lease(secs(6)).within(&budget).in_order();
        let (set, ()) = tokio::join!(acquire, async {
            sleep(millis(500)).await;
            process.next_of("a", vec![Fault::BlackHole; 300]);
            sleep(millis(5_300)).await;
            other.release().await.unwrap();
        });
        let error = set.unwrap_err();
        assert!(error.is_unknown() && began.elapsed() <= longest, "{error} after {:?}", began.elapsed());
    }
}

/// So many renewals in a row that are applied, but whose responses come after the end of a lease of 1 s.
fn late(renewals: usize) -> Vec<Fault> {
    vec![Fault::Slow(millis(1_500)); renewals]
}

/// Waits for `b` with a lease of 1 s for each lock.
async fn with_short_leases(process: &Process, meanwhile: impl Future<Output = ()>) -> Result<(), Error> {
    let locks = process.builder().request_timeout(secs(2)).build().unwrap();
    let acquire = locks.acquire_all(["a", "b"]).lease(secs(1)).within(&process.budget(secs(200))).in_order();
    let (set, ()) = tokio::join!(ends_within(secs(100), acquire), meanwhile);
    set?.release().await.map(drop)
}

#[tokio::test(start_paused = true)]
async fn renewals_that_come_too_late_but_not_in_a_row_do_not_end_the_wait() {
    let table = Table::new();
    let process = table.process();
    let other = held_by_another(&table, "b").await;
    let acquired = with_short_leases(&process, async {
        sleep(millis(100)).await;
        process.next_of("a", [late(4), vec![Fault::None], late(4)].concat());
        sleep(secs(20)).await;
        other.release().await.unwrap();
    });
    acquired.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn renewals_that_come_too_late_but_not_in_a_row_do_not_end_the_call_after_the_last_grant() {
    let table = Table::new();
    let process = table.process();
    let other = held_by_another(&table, "b").await;
    let acquired = with_short_leases(&process, async {
        sleep(millis(100)).await;
        process.next_of("a", vec![Fault::BlackHole; 300]);
        sleep(secs(5)).await;
        other.release().await.unwrap();
        until_granted(&table, "b").await;
        process.clear();
        // Three without a response are one renewal.
        process.next_of("a", [late(4), vec![Fault::BlackHole; 3], late(4)].concat());
    });
    acquired.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn where_its_wait_is_over_it_names_the_lock_that_it_could_not_get_whatever_became_of_the_others() {
    let table = Table::new();
    let process = table.process();
    let other = held_by_another(&table, "b").await;
    let locks = process.builder().request_timeout(secs(5)).build().unwrap();
    let budget = process.budget(secs(60)).reserve(secs(50));
    let acquire = locks.acquire_all(["a", "b"]).lease(millis(1_500)).within(&budget).in_order();
    let (set, ()) = tokio::join!(acquire, async {
        sleep(secs(9)).await;
        // It is looking at b when it learns that a is lost, and has the response when its wait is over.
        process.next_of("b", vec![Fault::Slow(millis(1_500)); 9]);
        sleep(millis(300)).await;
        table.delete("a");
    });
    let error = set.unwrap_err();
    assert!(error.is_held() && blocked(&error) == ["b"], "{error}");
    assert_eq!(table.row("a"), None);
    other.release().await.unwrap();
    assert!(operations(&process).len() < 100);
}
