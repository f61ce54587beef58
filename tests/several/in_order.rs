//! Locks that are acquired one after the other, by the order of their keys.

use crate::{blocked, held_by_another, operations, released};
use lambda_lock::{Budget, Error, ErrorKind};
use lambda_lock_testkit::{Fault, Process, Table, case, ends_within, granted, millis, secs};
use serde_json::json;
use std::time::Duration;
use tokio::time::{Instant, sleep};

fn budget(process: &Process, lasting: Duration) -> Budget {
    process.budget(lasting).reserve(secs(0))
}

#[tokio::test(start_paused = true)]
async fn free_locks_are_acquired_by_one_request_each_in_the_order_of_their_keys() {
    let table = Table::new();
    let process = table.process();
    let locks = process.locks("me");

    let set = locks.acquire_all(["c", "a", "b"]).within(&budget(&process, secs(30))).in_order().await.unwrap();

    assert_eq!(operations(&process), ["UpdateItem"; 3]);
    assert_eq!(set.keys().map(|key| key.key()).collect::<Vec<_>>(), ["a", "b", "c"]);
    for key in ["a", "b", "c"] {
        assert_eq!(set.fencing_token_of(key), Some(table.number(key, "fencingToken")));
    }
    assert_eq!(set.fencing_token_of("d"), None);
    set.release().await.unwrap();
    assert_eq!(released(&table, &["a", "b", "c"]), [true; 3]);
}

#[tokio::test(start_paused = true)]
async fn it_holds_and_renews_what_it_has_while_it_waits_for_the_next() {
    let table = Table::new();
    let process = table.process();
    let locks = process.locks("me");
    let other = held_by_another(&table, "b").await;
    let acquire = locks.acquire_all(["a", "b", "c"]).lease(secs(6)).within(&budget(&process, secs(40))).in_order();

    let (set, ()) = tokio::join!(acquire, async {
        for _ in 0..20 {
            sleep(secs(1)).await;
            let refused = table.process().locks("third").acquire("a").lease(secs(1)).try_once().await.unwrap();
            assert!(refused.refused().is_some(), "a is held, and its lease never ends");
            assert_eq!(table.row("c"), None);
        }
        other.release().await.unwrap();
    });
    let set = set.unwrap();

    assert!(set.remaining() > secs(2), "no lock of it is nearly over: {:?}", set.remaining());
    let renewals = operations(&process).iter().filter(|operation| *operation == "UpdateItem").count();
    assert!(renewals < 30, "{renewals} writes in 20 s");
    set.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_refusal_names_the_lock_and_gives_the_others_back() {
    let table = Table::new();
    let process = table.process();
    let other = held_by_another(&table, "b").await;
    let acquire = process.locks("me").acquire_all(["a", "b"]).within(&budget(&process, secs(2))).in_order().await;
    let error = acquire.unwrap_err();
    assert_eq!((blocked(&error), error.refusal().unwrap().holder.as_str()), (vec!["b".to_owned()], "other"));
    assert_eq!(released(&table, &["a", "b"]), [true, false]);
    let writes = operations(&process).iter().filter(|operation| *operation == "UpdateItem").count();
    // Among them are two renewals, one for each third of the lease, and a place in line that is taken and given up.
    assert!(writes <= 7, "{writes} writes");
    other.release().await.unwrap();

    table.put(json!({"key": {"S": "z"}, "title": {"S": "not a lock"}}));
    let error =
        process.locks("me").acquire_all(["a", "z"]).within(&budget(&process, secs(9))).in_order().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidRecord, "{error:?}");
    assert!(table.is_released("a"));
}

#[tokio::test(start_paused = true)]
async fn when_a_lock_is_lost_meanwhile_it_begins_anew() {
    let table = Table::new();
    let process = table.process();
    let other = held_by_another(&table, "b").await;
    let locks = process.locks("me");
    let acquire = locks.acquire_all(["a", "b"]).lease(secs(6)).within(&budget(&process, secs(60))).in_order();

    let (set, ()) = tokio::join!(acquire, async {
        sleep(secs(1)).await;
        table.delete("a");
        sleep(secs(3)).await;
        assert!(table.row("a").is_some(), "it has begun anew, although b is still held");
        table.delete("a");
        let thief = granted(table.process().locks("thief").acquire("a").lease(secs(5)).try_once()).await;
        sleep(secs(4)).await;
        thief.release().await.unwrap();
        other.release().await.unwrap();
    });
    let mut set = set.unwrap();

    set.checkpoint().await.unwrap();
    set.release().await.unwrap();
    assert_eq!(released(&table, &["a", "b"]), [true; 2]);
}

#[tokio::test(start_paused = true)]
async fn callers_in_order_do_not_block_each_other_for_ever() {
    let table = Table::new();
    let one = async |keys: [&'static str; 3]| {
        let process = table.process();
        let locks = process.locks("me");
        for _ in 0..10 {
            let acquire = locks.acquire_all(keys).within(&budget(&process, secs(600))).in_order();
            let done: Result<(), Error> = acquire
                .await
                .unwrap()
                .run(async |_| {
                    sleep(millis(20)).await;
                    Ok(())
                })
                .await;
            done.unwrap();
        }
    };
    tokio::join!(one(["a", "b", "c"]), one(["c", "b", "a"]), one(["b", "c", "d"]), one(["d", "a", "c"]));
    assert_eq!(released(&table, &["a", "b", "c", "d"]), [true; 4]);
}

#[tokio::test(start_paused = true)]
async fn a_set_in_order_is_renewed_committed_and_lost_as_one_together() {
    let table = Table::new();
    let process = table.process();
    let locks = process.locks("me");
    let acquire = locks.acquire_all(["a", "b"]).lease(secs(9)).within(&budget(&process, secs(300)));
    let mut set = acquire.in_order().await.unwrap();
    set.commit([lambda_lock_testkit::counted("o-1")]).await.unwrap();
    set.checkpoint().await.unwrap();
    sleep(secs(100)).await;
    granted(table.process().locks("other").acquire("a").lease(secs(60)).try_once()).await.save();
    let error = set.checkpoint().await.unwrap_err();
    assert!(error.is_lost() && error.to_string().contains("the lock a"), "{error}");
    assert!(table.is_released("b"));
}

#[tokio::test(start_paused = true)]
async fn an_unknown_outcome_ends_the_call_and_gives_the_others_back() {
    let table = Table::new();
    let process = table.process();
    let faults = [vec![Fault::None], vec![Fault::BlackHole; 3]].concat();
    process.next(faults);
    let error =
        process.locks("me").acquire_all(["a", "b"]).within(&budget(&process, secs(2))).in_order().await.unwrap_err();
    assert!(error.is_unknown() && error.to_string().contains("the lock b"), "{error}");
    assert!(table.is_released("a"));
}

#[tokio::test(start_paused = true)]
async fn a_renewal_of_what_it_has_does_not_interrupt_the_watch_on_a_dead_holder() {
    let table = Table::new();
    let process = table.process();
    let locks = process.locks("me");
    table.put_java_row("b", "a version", secs(20));
    let began = tokio::time::Instant::now();
    let acquire = locks.acquire_all(["a", "b"]).lease(secs(6)).within(&budget(&process, secs(60))).in_order();

    let set = acquire.await.unwrap();

    // Its lease, and how much slower its clock may run.
    assert!(began.elapsed() > secs(20) && began.elapsed() < millis(21_500), "{:?}", began.elapsed());
    set.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_call_that_cannot_give_a_lock_back_says_which_one_may_be_held() {
    let table = Table::new();
    let process = table.process();
    let _other = held_by_another(&table, "b").await;
    let network = process.clone();
    let brown_out = tokio::spawn(async move {
        sleep(millis(1_900)).await;
        network.next(vec![Fault::BlackHole; 100]);
    });

    let acquire = process.locks("me").acquire_all(["a", "b"]).within(&budget(&process, secs(2))).in_order().await;

    brown_out.await.unwrap();
    let error = acquire.unwrap_err();
    assert!(error.is_unknown() && error.to_string().contains("the lock a "), "{error}");
    let cause = std::error::Error::source(&error).map(ToString::to_string);
    assert!(cause.as_deref().is_some_and(|cause| cause.contains("the lock b is held")), "{cause:?}");
    assert_eq!(released(&table, &["a", "b"]), [false; 2]);
}

#[tokio::test(start_paused = true)]
async fn what_it_gives_back_takes_no_longer_than_its_budget() {
    let table = Table::new();
    std::mem::forget(held_by_another(&table, "b").await);
    let process = table.process();
    let budget = process.budget(secs(2)).reserve(secs(0));
    let began = Instant::now();
    // The lock a is acquired. From then on there is no response about it.
    process.next_of("a", [vec![Fault::None], vec![Fault::BlackHole; 40]].concat());

    let error = process.locks("me").acquire_all(["a", "b"]).within(&budget).in_order().await.unwrap_err();

    assert_eq!(error.may_be_held().len(), 1, "{error}");
    // The last request of a call may take a quarter of a second. A request timeout is a second.
    assert!(began.elapsed() <= secs(2) + millis(300), "{:?}", began.elapsed());
}

/// Callers that hold `b` in turn, each for this long, one after the other without a pause.
async fn busy_line(table: &Table, callers: u64, turn: Duration, until: Instant) {
    for index in 0..callers {
        let process = table.process();
        tokio::spawn(async move {
            let locks = process.locks("busy");
            sleep(millis(37 * index)).await;
            while Instant::now() < until {
                let acquire = locks.acquire("b").within(&budget(&process, secs(900))).lease(secs(20)).in_turn();
                let lock = acquire.await.unwrap();
                sleep(turn).await;
                lock.release().await.unwrap();
            }
        });
    }
    sleep(turn * 10).await;
}

#[tokio::test(start_paused = true)]
async fn behind_a_line_it_is_granted_its_second_lock_in_its_turn_however_short_its_lease_is() {
    // A turn, the lease of the locks in order, and the budget.
    for (turn, lease, lasting) in
        [(secs(1), secs(6), secs(120)), (secs(1), secs(3), secs(120)), (secs(12), secs(60), secs(900))]
    {
        let table = Table::new();
        busy_line(&table, 6, turn, Instant::now() + turn * 40).await;
        let process = table.process();
        let locks = process.locks("me");
        let acquire = locks.acquire_all(["a", "b"]).lease(lease).within(&budget(&process, lasting)).in_order();

        let set = ends_within(turn * 9, acquire).await.unwrap();

        set.release().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn it_renews_what_it_has_long_before_the_lease_ends() {
    let table = Table::new();
    let process = table.process();
    let other = held_by_another(&table, "b").await;
    let locks = process.locks("me");
    let acquire = locks.acquire_all(["a", "b"]).lease(secs(20)).within(&budget(&process, secs(120))).in_order();

    let (set, ()) = tokio::join!(acquire, async {
        for _ in 0..500 {
            sleep(millis(100)).await;
            let left = table.number("a", "leaseEndsAt").saturating_sub(process.clock.wall_millis());
            assert!(left > 10_000, "{left} ms are left of the lease of 20 s");
        }
        other.release().await.unwrap();
    });

    set.unwrap().release().await.unwrap();
    let renewals = operations(&process).iter().filter(|operation| *operation == "UpdateItem").count();
    assert!(renewals < 16, "{renewals} writes in 50 s");
}

#[tokio::test(start_paused = true)]
async fn an_outage_that_is_much_shorter_than_the_lease_costs_nothing_whenever_it_comes() {
    for begins in [millis(100), secs(3), secs(5), millis(6_400), secs(9), secs(13), millis(18_500)] {
        let table = Table::new();
        let process = table.process();
        let other = held_by_another(&table, "b").await;
        let locks = process.locks("me");
        let acquire = locks.acquire_all(["a", "b"]).lease(secs(20)).within(&budget(&process, secs(120))).in_order();
        let thief = table.process();
        let (set, stolen, ()) = tokio::join!(
            acquire,
            async {
                sleep(secs(1)).await;
                let thieves = thief.locks("thief");
                thieves.acquire("a").within(&budget(&thief, secs(40))).lease(secs(5)).await.is_ok()
            },
            async {
                sleep(begins).await;
                process.next(vec![Fault::BlackHole; 60]);
                sleep(secs(4)).await;
                process.clear();
                sleep(secs(25)).await;
                other.release().await.unwrap();
            }
        );
        assert!(!stolen, "a was lost by an outage of 4 s that began after {begins:?}");
        set.unwrap().release().await.unwrap();
    }
}

/// While it waits and while its work is kept alive.
#[tokio::test(start_paused = true)]
async fn a_renewal_that_fails_is_followed_by_the_next_one_soon() {
    for waits in [true, false] {
        let table = Table::new();
        let process = table.process();
        let other = if waits { Some(held_by_another(&table, "b").await) } else { None };
        let locks = process.locks("me");
        let acquire = locks.acquire_all(["a", "b"]).lease(secs(60)).within(&budget(&process, secs(300))).in_order();
        let kept = async {
            let mut set = acquire.await.unwrap();
            set.keep_alive(sleep(secs(if waits { 1 } else { 40 }))).await.unwrap();
            set.release().await.unwrap();
        };
        let ((), ()) = tokio::join!(kept, async {
            sleep(secs(19)).await;
            process.next(vec![Fault::BlackHole; 60]);
            sleep(secs(5)).await;
            process.clear();
            sleep(secs(4)).await;
            let left = table.number("a", "leaseEndsAt").saturating_sub(process.clock.wall_millis());
            assert!(left > 50_000, "{left} ms are left of the lease of 60 s, waits: {waits}");
            if let Some(other) = other {
                other.release().await.unwrap();
            }
        });
    }
}

#[tokio::test(start_paused = true)]
async fn it_never_says_lost() {
    // Before and after its time is over, and where nothing tells it before its last renewal.
    for (breaks_at, lasting, frees_b, is_stolen) in [
        (2, 12, false, false),
        (2, 12, false, true),
        (11, 12, false, false),
        (11, 12, true, false),
        (2, 12, true, true),
        (5, 6, true, true),
    ] {
        let table = Table::new();
        let process = table.process();
        let other = held_by_another(&table, "b").await;
        let locks = process.locks("me");
        let acquire = locks.acquire_all(["a", "b"]).lease(secs(20)).within(&budget(&process, secs(lasting))).in_order();
        let (set, ()) = tokio::join!(ends_within(secs(lasting + 5), acquire), async {
            sleep(secs(breaks_at)).await;
            let seen = locks.operator().peek("a").await.unwrap().unwrap();
            locks.operator().break_lock("a", &seen, "test").await.unwrap();
            if is_stolen {
                let _ = granted(table.process().locks("thief").acquire("a").lease(secs(60)).try_once()).await.save();
            }
            if frees_b {
                sleep(secs(lasting - breaks_at) - millis(100)).await;
                other.release().await.unwrap();
            }
        });
        if let Err(error) = set {
            assert!(!error.is_lost(), "{breaks_at} of {lasting} s, b is freed: {frees_b}: {error}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn clocks_within_their_bounds_lose_nothing_while_it_waits() {
    let table = Table::new();
    let process = table.process();
    process.set_latency(millis(400));
    let thief = table.process();
    thief.clock.jump_wall(1_900);
    let other = held_by_another(&table, "b").await;
    let locks = process.locks("me");
    let acquire = locks.acquire_all(["a", "b"]).lease(secs(4)).within(&budget(&process, secs(120))).in_order();
    let (set, stolen, ()) = tokio::join!(
        acquire,
        async {
            sleep(secs(2)).await;
            let thieves = thief.locks("thief");
            thieves.acquire("a").within(&budget(&thief, secs(45))).lease(secs(5)).await.is_ok()
        },
        async {
            sleep(secs(55)).await;
            other.release().await.unwrap();
        }
    );
    assert!(!stolen);
    set.unwrap().release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_pause_of_the_process_that_costs_no_lock_does_not_end_the_call() {
    for at in (0..20).map(|step| millis(1_800 + 50 * step)) {
        let _case = lambda_lock_testkit::case(format!("paused after {at:?}"));
        let table = Table::new();
        let process = table.process();
        process.set_latency(millis(400));
        let other = held_by_another(&table, "b").await;
        let locks = process.locks("me");
        let acquire = locks.acquire_all(["a", "b"]).lease(secs(6)).within(&budget(&process, secs(300))).in_order();
        let (set, ()) = tokio::join!(acquire, async {
            sleep(at).await;
            // Longer than the lease. A renewal may be on its way.
            tokio::time::advance(secs(8)).await;
            sleep(secs(5)).await;
            other.release().await.unwrap();
        });
        set.unwrap().release().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_slow_renewal_of_one_lock_does_not_delay_those_of_another() {
    let table = Table::new();
    let process = table.process();
    let locks = process.builder().request_timeout(secs(10)).build().unwrap();
    let other = held_by_another(&table, "c").await;
    let acquire = locks.acquire_all(["a", "b", "c"]).lease(secs(3)).within(&budget(&process, secs(120))).in_order();
    let thief = table.process();
    let (set, stolen, ()) = tokio::join!(
        acquire,
        async {
            sleep(secs(1)).await;
            let thieves = thief.locks("thief");
            thieves.acquire("b").within(&budget(&thief, secs(20))).lease(secs(5)).await.is_ok()
        },
        async {
            sleep(millis(500)).await;
            process.next_of("a", vec![Fault::Slow(secs(5)); 3]);
            sleep(secs(25)).await;
            other.release().await.unwrap();
        }
    );
    assert!(!stolen, "b was lost");
    set.unwrap().release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_slow_renewal_after_the_last_grant_does_not_end_the_call() {
    // A lock that has no response for long, and one that the others wait for in vain meanwhile.
    for (timeout, fault, lasting) in [(secs(1), Fault::BlackHole, 12), (secs(20), Fault::Slow(secs(8)), 12)] {
        let _case = case(format!("{fault:?}"));
        let table = Table::new();
        let process = table.process();
        let locks = process.builder().request_timeout(timeout).build().unwrap();
        let other = held_by_another(&table, "b").await;
        let acquire = locks.acquire_all(["a", "b"]).lease(secs(6)).within(&budget(&process, secs(120))).in_order();
        let (set, ()) = tokio::join!(acquire, async {
            sleep(secs(1)).await;
            process.next_of("a", vec![fault; 60]);
            sleep(secs(7)).await;
            other.release().await.unwrap();
            sleep(secs(lasting - 8)).await;
            process.clear();
        });
        let set = set.unwrap();
        assert!(!set.remaining().is_zero());
        set.release().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn after_the_last_grant_it_does_not_ask_again_for_a_lock_that_has_become_something_else() {
    let table = Table::new();
    let process = table.process();
    let other = held_by_another(&table, "c").await;
    let locks = process.locks("me");
    let acquire = locks.acquire_all(["a", "b", "c"]).lease(secs(6)).within(&budget(&process, secs(300))).in_order();
    let (set, ()) = tokio::join!(ends_within(secs(30), acquire), async {
        sleep(secs(1)).await;
        process.next_of("a", vec![Fault::BlackHole; 300]);
        sleep(millis(5_500)).await;
        table.put(json!({"key": {"S": "b"}, "title": {"S": "not a lock"}}));
        sleep(millis(1_500)).await;
        other.release().await.unwrap();
    });
    let error = set.unwrap_err();
    // The row of b is no lock record, so nobody holds b.
    assert!(error.is_unknown() && error.to_string().contains("the lock a may"), "{error}");
    assert_eq!(error.may_be_held(), ["a".into()]);
    let cause = std::error::Error::source(&error).map(ToString::to_string);
    assert!(cause.as_deref().is_some_and(|cause| cause.contains("not a lock record")), "{cause:?}");
}

#[tokio::test(start_paused = true)]
async fn when_a_lock_is_lost_meanwhile_it_does_not_hurry_a_table_that_throttles() {
    let table = Table::new();
    let process = table.process();
    let _other = held_by_another(&table, "b").await;
    let locks = process.locks("me");
    let acquire = locks.acquire_all(["a", "b"]).lease(secs(6)).within(&budget(&process, secs(20))).in_order();
    let (_, ()) = tokio::join!(acquire, async {
        sleep(secs(1)).await;
        table.delete("a");
        process.next_of("b", vec![Fault::throttled(); 1_000]);
    });
    let requests = operations(&process).len();
    assert!(requests < 200, "{requests} requests in 20 s");
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_ends_before_its_renewals_have_responses_is_said_to_be_too_short() {
    for waits in [false, true] {
        let _case = case(format!("it waits for another holder: {waits}"));
        let table = Table::new();
        let process = table.process();
        if waits {
            held_by_another(&table, "b").await.save();
        }
        let began = Instant::now();
        process.next(vec![Fault::Slow(millis(120)); 1_000]);
        let locks = process.locks("me");
        let acquire = locks.acquire_all(["a", "b"]).lease(millis(100)).within(&budget(&process, secs(30))).in_order();

        let error = acquire.await.unwrap_err();

        assert!(
            error.kind() == ErrorKind::OutOfTime && error.to_string().contains("too short for the lock"),
            "{error}"
        );
        assert!(error.needed() > error.remaining() && began.elapsed() < secs(3), "{error} after {:?}", began.elapsed());
        let requests = operations(&process).len();
        assert!(requests < 25, "{requests} requests");
        assert!(table.is_released("a"));
    }
}

#[tokio::test(start_paused = true)]
async fn keys_that_differ_in_their_sort_keys_alone_have_one_order_for_all_callers() {
    let table = Table::with_keys(&["pk", "sk"]);
    let process = table.process();
    let locks = process.builder().key_attribute("pk").sort_key_attribute("sk").build().unwrap();
    for given in [["1", "2", "3"], ["3", "2", "1"], ["2", "3", "1"]] {
        let keys = given.map(|sort_key| ("p", sort_key));
        let set = locks.acquire_all(keys).within(&budget(&process, secs(30))).in_order().await.unwrap();
        let order: Vec<_> = set.keys().map(|key| key.sort_key().unwrap().to_owned()).collect();
        assert_eq!(order, ["1", "2", "3"], "given as {given:?}");
        set.release().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn when_it_begins_anew_it_goes_on_watching_the_dead_holder_that_it_has_seen() {
    let table = Table::new();
    let process = table.process();
    let locks = process.locks("me");
    table.put_java_row("b", "a version", secs(20));
    let began = Instant::now();
    let acquire = locks.acquire_all(["a", "b"]).lease(secs(6)).within(&budget(&process, secs(60))).in_order();

    let (set, ()) = tokio::join!(acquire, async {
        sleep(secs(10)).await;
        table.delete("a");
    });

    assert!(began.elapsed() < secs(22), "its lease of 20 s was waited for anew: {:?}", began.elapsed());
    set.unwrap().release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn when_a_lock_is_lost_and_the_wait_is_over_it_does_not_begin_anew() {
    let table = Table::new();
    let process = table.process();
    let other = held_by_another(&table, "b").await;
    let locks = process.builder().request_timeout(secs(5)).build().unwrap();
    let budget = process.budget(secs(60)).reserve(secs(50));
    let acquire = locks.acquire_all(["a", "b"]).lease(secs(9)).within(&budget).in_order();

    let (set, ()) = tokio::join!(acquire, async {
        sleep(secs(8)).await;
        table.delete("a");
        // The call learns that b is free, and that it has it, when its wait is over.
        process.next_of("b", vec![Fault::SlowBothWays(millis(100), millis(2_000)); 9]);
        other.release().await.unwrap();
    });

    let error = set.unwrap_err();
    assert!(error.is_unknown() && error.may_be_held().is_empty(), "{error}: {:?}", error.may_be_held());
    assert_eq!((table.row("a"), table.is_released("b")), (None, true));
}

#[tokio::test(start_paused = true)]
async fn each_of_its_locks_has_the_owner_and_the_workflow_and_the_owner_reclaims_its_own() {
    let table = Table::new();
    let process = table.process();
    let locks = process.locks("me");
    let budget = budget(&process, secs(5));
    let acquire =
        |owner: &str| locks.acquire_all(["a", "b"]).within(&budget).lease(secs(60)).owner(owner).workflow("arn:1");
    let first = acquire("task-1").in_order().await.unwrap();
    for key in ["a", "b"] {
        let seen = ["ownerName", "workflow"].map(|name| table.attribute(key, name).unwrap());
        assert_eq!(seen, ["task-1", "arn:1"]);
    }
    let tokens = ["a", "b"].map(|key| first.fencing_token_of(key).unwrap());
    std::mem::forget(first);

    let again = ends_within(secs(1), acquire("task-1").reclaim_own().in_order()).await.unwrap();

    assert!(["a", "b"].map(|key| again.fencing_token_of(key).unwrap()) > tokens);
    let error = acquire("task-2").reclaim_own().in_order().await.unwrap_err();
    assert!(error.is_held(), "{error}");
    again.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn it_is_returned_with_at_least_half_of_each_lease_left() {
    let table = Table::new();
    let process = table.process();
    let other = held_by_another(&table, "b").await;
    let locks = process.locks("me");
    let acquire = locks.acquire_all(["a", "b"]).lease(secs(21)).within(&budget(&process, secs(120))).in_order();

    let (set, ()) = tokio::join!(acquire, async {
        sleep(secs(1)).await;
        // No renewal of a has a response before b is granted.
        process.next_of("a", vec![Fault::BlackHole; 300]);
        sleep(secs(12)).await;
        other.release().await.unwrap();
        while table.is_released("b") {
            sleep(millis(1)).await;
        }
        process.clear();
    });

    let set = set.unwrap();
    assert!(set.remaining() >= secs(10), "{:?} are left of 20 s", set.remaining());
    set.release().await.unwrap();
}
