//! One guard for several locks: renewals, the end of the earliest lease, and what is lost.

use crate::{BELIEVED, LEASE, acquired, operations, released};
use lambda_lock::{Error, ErrorKind, Lock, LockClient, LockSet, ReleaseAllOutcome, SavedLockSet};
use lambda_lock_testkit::{Fault, ROUND_TRIP, Table, case, counted, ends_within, granted, millis, secs};
use std::time::{Duration, UNIX_EPOCH};
use tokio::time::{Instant, sleep};

/// Somebody takes this lock over, after its lease has ended.
async fn taken(table: &Table, key: &str) {
    let other = table.process().locks("other");
    granted(other.acquire(key).lease(secs(60)).try_once()).await.save();
}

#[tokio::test(start_paused = true)]
async fn a_checkpoint_renews_each_lock_at_once() {
    let table = Table::new();
    let process = table.process();
    let mut set = acquired(&process.locks("me"), ["a", "b", "c"]).await;
    operations(&process);
    sleep(secs(15)).await;
    let began = Instant::now();

    set.checkpoint().await.unwrap();

    assert_eq!(began.elapsed(), ROUND_TRIP, "all are under way at the same time");
    assert_eq!(operations(&process), ["UpdateItem"; 3]);
    assert_eq!(set.remaining(), BELIEVED - ROUND_TRIP);
    set.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn the_set_is_ours_only_as_long_as_each_of_its_locks() {
    let table = Table::new();
    let process = table.process();
    let mut set = acquired(&process.locks("me"), ["a", "b"]).await;
    sleep(secs(15)).await;
    // One of the renewals never arrives.
    process.next([Fault::BlackHole, Fault::None, Fault::BlackHole, Fault::BlackHole, Fault::BlackHole]);

    let error = set.checkpoint().await.unwrap_err();

    assert!(error.is_unknown(), "{error:?}");
    let remaining = set.remaining();
    assert!(remaining < secs(5) && !remaining.is_zero(), "{remaining:?}");
    assert_eq!(set.ensure_remaining(secs(6)).unwrap_err().kind(), ErrorKind::OutOfTime);
    process.clear();
    set.checkpoint().await.unwrap();
    assert!(set.remaining() > secs(19));
    set.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn when_one_lock_is_lost_the_guard_is_over_and_the_others_are_released() {
    let table = Table::new();
    let process = table.process();
    let mut set = acquired(&process.locks("me"), ["a", "b", "c"]).await;
    sleep(secs(100)).await;
    taken(&table, "b").await;

    let error = set.checkpoint().await.unwrap_err();

    assert!(error.is_lost() && error.to_string().contains("the lock b is no longer ours"), "{error}");
    assert_eq!(released(&table, &["a", "b", "c"]), [true, false, true]);
    assert!(set.remaining().is_zero());
    operations(&process);
    assert!(set.checkpoint().await.unwrap_err().is_lost());
    assert!(set.commit([]).await.unwrap_err().is_lost());
    assert!(set.condition_checks().unwrap_err().is_lost());
    assert!(operations(&process).is_empty(), "no request follows");
    let owner = table.attribute("b", "ownerName").unwrap();
    assert!(set.release().await.is_ok());
    assert_eq!(table.attribute("b", "ownerName").unwrap(), owner);
    assert!(!table.is_released("b"));
}

#[tokio::test(start_paused = true)]
async fn all_lost_locks_are_named() {
    let table = Table::new();
    let mut set = acquired(&table.process().locks("me"), ["a", "b", "c"]).await;
    sleep(secs(100)).await;
    taken(&table, "a").await;
    taken(&table, "c").await;
    let error = set.checkpoint().await.unwrap_err();
    assert!(error.to_string().contains("the locks a and c are no longer ours"), "{error}");
    assert!(table.is_released("b"));
}

#[tokio::test(start_paused = true)]
async fn a_watch_of_a_set_wakes_for_the_first_of_its_leases_that_ends() {
    for (first, second) in [(Fault::BlackHole, Fault::None), (Fault::None, Fault::BlackHole)] {
        let table = Table::new();
        let process = table.process();
        let started = Instant::now();
        let mut set = acquired(&process.locks("me"), ["a", "b"]).await;
        let watch = set.watch();
        sleep(secs(15)).await;
        process.next([first, second, Fault::BlackHole, Fault::BlackHole, Fault::BlackHole]);
        set.checkpoint().await.unwrap_err();
        process.clear();
        assert_eq!(watch.remaining(), set.remaining());

        let near = async {
            ends_within(secs(60), watch.nearing_end(secs(1))).await;
            Instant::now()
        };
        let end = async {
            ends_within(secs(60), watch.ended()).await;
            Instant::now()
        };
        assert_eq!(tokio::join!(near, end), (started + BELIEVED - secs(1), started + BELIEVED));
        assert!(!watch.is_lost(), "ended is not lost");

        // A renewal of both is seen by the watch that there was before.
        set.checkpoint().await.unwrap();
        assert_eq!(watch.remaining(), BELIEVED - ROUND_TRIP);
        set.release().await.unwrap();
        assert_eq!(watch.remaining(), Duration::ZERO);
    }
}

#[tokio::test(start_paused = true)]
async fn a_watch_of_a_set_says_that_one_of_its_locks_is_lost() {
    for gone in ["a", "b", "c"] {
        let table = Table::new();
        let mut set = acquired(&table.process().locks("me"), ["a", "b", "c"]).await;
        let watch = set.watch();
        table.delete(gone);

        set.checkpoint().await.unwrap_err();

        assert!(watch.is_lost(), "{gone}");
        assert_eq!(watch.remaining(), Duration::ZERO);
        ends_within(millis(1), watch.nearing_end(secs(1))).await;
        ends_within(millis(1), watch.ended()).await;
    }
}

#[tokio::test(start_paused = true)]
async fn keep_alive_renews_all_locks_while_the_work_runs() {
    let table = Table::new();
    let process = table.process();
    let mut set = acquired(&process.locks("me"), ["a", "b"]).await;
    operations(&process);

    set.keep_alive(sleep(secs(60))).await.unwrap();

    let sent = operations(&process);
    assert!(sent.len() >= 2 * 8 && sent.len().is_multiple_of(2), "{}", sent.len());
    assert!(set.remaining() > secs(10));
    set.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn keep_alive_stops_the_work_when_one_lock_is_lost() {
    let table = Table::new();
    let process = table.process();
    let mut set = acquired(&process.locks("me"), ["a", "b"]).await;
    let (done, ()) = tokio::join!(set.keep_alive(sleep(secs(60))), async {
        sleep(secs(3)).await;
        table.delete("b");
    });
    assert!(done.unwrap_err().is_lost());
    assert!(table.is_released("a"));
}

#[tokio::test(start_paused = true)]
async fn a_release_names_the_locks_that_were_gone() {
    let table = Table::new();
    let set = acquired(&table.process().locks("me"), ["a", "b"]).await;
    sleep(secs(100)).await;
    taken(&table, "b").await;

    let ReleaseAllOutcome::AlreadyGone(gone) = set.release().await.unwrap() else { panic!("b is gone") };

    assert_eq!(gone, ["b".into()]);
    assert_eq!(released(&table, &["a", "b"]), [true, false]);
}

#[tokio::test(start_paused = true)]
async fn a_release_that_fails_for_one_lock_releases_the_others() {
    let table = Table::new();
    let process = table.process();
    let set = acquired(&process.locks("me"), ["a", "b", "c"]).await;
    process.next([Fault::None, Fault::error("AccessDeniedException")]);
    let error = set.release().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Denied, "{error:?}");
    assert_eq!(released(&table, &["a", "b", "c"]).iter().filter(|is| **is).count(), 2);
}

#[tokio::test(start_paused = true)]
async fn run_of_a_set_releases_after_success_and_after_an_error() {
    let table = Table::new();
    let process = table.process();
    let locks = process.locks("me");
    let budget = process.budget(secs(30));
    let token = locks
        .acquire_all(["a", "b"])
        .within(&budget)
        .await
        .unwrap()
        .run(async |set| Ok::<_, Error>(set.fencing_token().unwrap()))
        .await
        .unwrap();
    assert_eq!((released(&table, &["a", "b"]), table.number("a", "fencingToken")), (vec![true; 2], token));

    let failed = locks
        .acquire_all(["a", "b"])
        .within(&budget)
        .await
        .unwrap()
        .run(async |_| Err::<(), Box<dyn std::error::Error>>("no".into()))
        .await;
    assert_eq!(failed.unwrap_err().to_string(), "no");
    assert_eq!(released(&table, &["a", "b"]), [true; 2]);
}

#[tokio::test(start_paused = true)]
async fn run_of_a_set_stops_work_whose_lease_ends_and_says_what_became_of_the_locks() {
    let table = Table::new();
    let process = table.process();
    let locks = process.locks("me");
    let work = locks.acquire_all(["a", "b"]).lease(secs(5)).within(&process.budget(secs(30)));
    let began = Instant::now();

    let error = work
        .await
        .unwrap()
        .run(async |_| {
            sleep(secs(20)).await;
            Ok::<_, Error>(())
        })
        .await
        .unwrap_err();

    assert!(error.kind() == ErrorKind::CutShort && error.to_string().contains("the locks a and b"), "{error}");
    assert!(began.elapsed() < millis(5100), "{:?}", began.elapsed());
    assert_eq!(released(&table, &["a", "b"]), [true; 2]);
}

#[tokio::test(start_paused = true)]
async fn work_is_stopped_when_the_first_of_the_leases_ends() {
    let table = Table::new();
    let process = table.process();
    let locks = process.locks("me");
    let work = locks.acquire_all(["a", "b"]).lease(secs(10)).within(&process.budget(secs(60)));
    let began = Instant::now();
    let worked = work.await.unwrap().run(async |set| {
        sleep(secs(6)).await;
        // One of the two renewals never arrives.
        process.next([Fault::None, Fault::BlackHole, Fault::BlackHole, Fault::BlackHole, Fault::BlackHole]);
        assert!(set.checkpoint().await.unwrap_err().is_unknown());
        process.clear();
        sleep(secs(20)).await;
        Ok::<_, Error>(())
    });

    assert_eq!(worked.await.unwrap_err().kind(), ErrorKind::CutShort);

    assert!(began.elapsed() < secs(10), "{:?}", began.elapsed());
    assert_eq!(released(&table, &["a", "b"]), [true; 2]);
}

#[tokio::test(start_paused = true)]
async fn run_of_a_set_reports_a_lock_that_was_lost_before_the_end() {
    let table = Table::new();
    let process = table.process();
    let locks = process.locks("me");
    let budget = process.budget(secs(30));
    let lost = locks.acquire_all(["a", "b"]).within(&budget).await.unwrap().run(async |_| {
        table.delete("b");
        taken(&table, "b").await;
        Ok::<_, Error>(())
    });
    let error = lost.await.unwrap_err();
    assert!(error.is_lost() && error.to_string().contains("the lock b was lost before the work finished"), "{error}");
    assert!(table.is_released("a"));
}

#[tokio::test(start_paused = true)]
async fn a_checkpoint_that_is_dropped_while_it_releases_the_rest_releases_it_when_it_is_called_again() {
    let table = Table::new();
    let process = table.process();
    let mut set = acquired(&process.locks("me"), ["a", "b"]).await;
    sleep(secs(100)).await;
    taken(&table, "b").await;
    // Both renewals arrive, and the release of a does not.
    process.next([Fault::None, Fault::None, Fault::BlackHole]);
    assert!(tokio::time::timeout(millis(300), set.checkpoint()).await.is_err());
    assert_eq!(released(&table, &["a", "b"]), [false; 2]);
    process.clear();
    operations(&process);

    for _ in 0..2 {
        let error = set.checkpoint().await.unwrap_err();
        assert!(error.is_lost() && error.to_string().contains("the lock b"), "{error}");
    }
    assert_eq!(released(&table, &["a", "b"]), [true, false]);
    assert_eq!(operations(&process), ["UpdateItem"], "once is enough");
}

#[tokio::test(start_paused = true)]
async fn work_that_drops_a_checkpoint_which_finds_a_lost_lock_leaves_none_of_the_rest_held() {
    let table = Table::new();
    let process = table.process();
    let locks = process.locks("me");
    let budget = process.budget(secs(500)).reserve(secs(0));
    let worked: Result<(), Error> = locks
        .acquire_all(["a", "b"])
        .within(&budget)
        .await
        .unwrap()
        .run(async |set| {
            locks.release(set.to_saved().locks()[1].clone()).await?;
            process.next([Fault::None, Fault::None, Fault::BlackHole]);
            assert!(tokio::time::timeout(millis(300), set.checkpoint()).await.is_err());
            process.clear();
            Ok(())
        })
        .await;
    assert!(worked.unwrap_err().is_lost());
    assert_eq!(released(&table, &["a", "b"]), [true; 2]);
}

#[tokio::test(start_paused = true)]
async fn a_slow_request_of_one_lock_does_not_delay_those_of_the_others() {
    let table = Table::new();
    let process = table.process();
    let keys: Vec<String> = (0..20).map(|index| format!("k-{index}")).collect();
    let budget = process.budget(secs(60));
    let mut set = process.locks("me").acquire_all(keys).within(&budget).await.unwrap();
    for is_release in [false, true] {
        process.take_sent();
        process.next_of("k-0", [Fault::Slow(millis(800))]);
        if is_release {
            set.release().await.unwrap();
            break;
        }
        set.checkpoint().await.unwrap();
        let sent = process.take_sent();
        assert_eq!(sent.len(), 20);
        assert!(sent[19].at - sent[0].at < millis(100), "{:?}", sent[19].at - sent[0].at);
    }
    let sent = process.take_sent();
    assert!(sent[19].at - sent[0].at < millis(100), "{:?}", sent[19].at - sent[0].at);
}

/// A set of locks with these leases, the shortest first.
async fn with_leases<const N: usize>(locks: &LockClient, leases: [(&str, Duration); N]) -> LockSet {
    let mut saved = Vec::new();
    for (key, lease) in leases {
        saved.push(granted(locks.acquire(key).owner("me").lease(lease).try_once()).await.save());
    }
    locks.resume_all(SavedLockSet::from_locks(saved)).await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn keep_alive_renews_for_the_shortest_of_the_leases() {
    let table = Table::new();
    let process = table.process();
    let mut set = with_leases(&process.locks("me"), [("a", secs(3)), ("b", secs(60))]).await;
    // Not by the work itself, which is not polled after its lease.
    let (kept, ()) = tokio::join!(set.keep_alive(sleep(secs(30))), async {
        for _ in 0..290 {
            sleep(millis(100)).await;
            // After a third of it, and not when it is nearly over.
            let left = table.number("a", "leaseEndsAt") - process.clock.wall_millis();
            assert!(left > 1_500, "{left} ms are left of the lease of a");
        }
    });
    kept.unwrap();
    set.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_commit_renews_each_lock_for_its_own_lease() {
    let table = Table::new();
    let process = table.process();
    let mut set = with_leases(&process.locks("me"), [("a", secs(10)), ("b", secs(60))]).await;
    sleep(secs(5)).await;

    set.commit([counted("o-1")]).await.unwrap();

    let left = |key| table.number(key, "leaseEndsAt") - process.clock.wall_millis();
    assert!((9_000..=10_000).contains(&left("a")) && left("b") > 59_000, "{} and {} ms", left("a"), left("b"));
    let remaining: Vec<Duration> = set.into_locks().into_iter().map(|lock| (lock.remaining(), lock.save()).0).collect();
    assert!(remaining[0] > secs(9) && remaining[1] > secs(56), "{remaining:?}");
}

#[tokio::test(start_paused = true)]
async fn keep_alive_sends_one_renewal_of_each_lock_after_the_budget() {
    let table = Table::new();
    let process = table.process();
    let locks = process.locks("me");
    let budget = process.budget(secs(30));
    let mut set = locks.acquire_all(["a", "b"]).lease(secs(20)).within(&budget).await.unwrap();
    let work = async {
        sleep(secs(12)).await;
        process.take_sent();
        // The process is frozen until long after the end.
        tokio::time::advance(secs(60)).await;
        sleep(secs(600)).await;
    };

    let error = set.keep_alive(work).await.unwrap_err();

    assert_eq!(error.kind(), ErrorKind::OutOfTime, "{error}");
    assert_eq!(operations(&process), ["UpdateItem"; 2]);
    set.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_lock_that_may_have_been_given_back_is_not_relied_on() {
    let table = Table::new();
    let process = table.process();
    let mut set = acquired(&process.locks("me"), ["a", "b"]).await;
    sleep(secs(100)).await;
    taken(&table, "b").await;
    // The renewal of a gets its response. Its release is applied, and has none.
    process.next_of("a", [vec![Fault::None], vec![Fault::NeverAnswers; 9]].concat());

    assert!(set.checkpoint().await.unwrap_err().is_lost());

    assert!(table.is_released("a"));
    for lock in set.into_locks() {
        assert!(lock.remaining().is_zero(), "{} is relied on for {:?}", lock.key().key(), lock.remaining());
    }
}

/// The time of a call is that of the budget, whatever the set has become meanwhile.
#[tokio::test(start_paused = true)]
async fn what_becomes_of_a_set_keeps_to_its_budget() {
    for what in ["together", "in order", "resumed", "reclaimed", "apart"] {
        let _case = case(what.to_owned());
        let table = Table::new();
        let process = table.process();
        let locks = process.locks("me");
        let budget = process.budget(secs(20)).reserve(secs(0));
        let acquire = || locks.acquire_all(["a", "b"]).lease(secs(60)).within(&budget);
        let mut set = match what {
            "in order" => acquire().in_order().await.unwrap(),
            _ => acquire().await.unwrap(),
        };
        match what {
            "resumed" => set = locks.resume_all(set.save()).within(&budget).await.unwrap(),
            "reclaimed" => set = locks.reclaim_all(set.save()).lease(secs(60)).within(&budget).await.unwrap(),
            _ => {}
        }
        sleep(budget.remaining().unwrap() - millis(700)).await;
        process.next(vec![Fault::BlackHole; 100]);

        let began = Instant::now();
        if what == "apart" {
            let mut apart = set.into_locks();
            apart[1].checkpoint().await.unwrap_err();
            apart.into_iter().for_each(|lock| _ = lock.save());
        } else {
            set.checkpoint().await.unwrap_err();
            let _ = set.save();
        }
        // The last request of a call may take a quarter of a second.
        assert!(began.elapsed() <= millis(950), "{:?}", began.elapsed());
    }
}

#[tokio::test(start_paused = true)]
async fn a_set_of_several_leases_ends_with_the_first_and_renews_each_for_its_own() {
    for leases in [[30, 60], [60, 30]] {
        let _case = case(format!("{leases:?}"));
        let table = Table::new();
        let process = table.process();
        let locks = process.locks("me");
        let mut held = Vec::new();
        for (key, lease) in ["a", "b"].into_iter().zip(leases) {
            held.push(locks.acquire(key).owner("task").lease(secs(lease)).try_once().await.unwrap().granted().unwrap());
        }
        let saved = SavedLockSet::from_locks(held.into_iter().map(|lock: Lock| lock.save()).collect());
        let mut set = locks.resume_all(saved).await.unwrap();
        let ends = ["a", "b"].map(|key| table.number(key, "leaseEndsAt"));
        assert_eq!(set.lease_ends_at(), Some(UNIX_EPOCH + millis(*ends.iter().min().unwrap())));

        operations(&process);
        set.keep_alive(sleep(secs(25))).await.unwrap();
        // A third of the shorter lease after the last renewal.
        assert_eq!(operations(&process).len(), 2 * 2);

        set.commit([]).await.unwrap();
        let written = ["a", "b"].map(|key| table.number(key, "leaseDuration"));
        assert_eq!(written, leases.map(|lease| lease * 1_000), "no commit changes how long a lease is");
        set.release().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_saved_set_is_reclaimed_for_its_workflow() {
    let table = Table::new();
    let process = table.process();
    let locks = process.locks("me");
    let acquire = locks.acquire_all(["a", "b"]).lease(secs(30)).workflow("execution 7");
    let saved = acquire.try_once().await.unwrap().granted().unwrap().save();
    let set = locks.reclaim_all(saved).lease(secs(30)).await.unwrap();
    for key in ["a", "b"] {
        assert_eq!(table.attribute(key, "workflow").as_deref(), Some("execution 7"), "{key}");
    }
    set.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn work_that_is_cut_short_says_that_not_all_locks_were_released() {
    let table = Table::new();
    let process = table.process();
    let locks = process.locks("me");
    let budget = process.budget(secs(60));
    let set = locks.acquire_all(["a", "b"]).lease(secs(5)).within(&budget).await.unwrap();
    let cut: Result<(), Error> = set
        .run(async |_| {
            process.next_of("b", vec![Fault::error("AccessDeniedException"); 10]);
            std::future::pending().await
        })
        .await;
    let text = cut.unwrap_err().to_string();
    assert!(text.contains("not all were released") && text.contains("the lock b may be held"), "{text}");
}

/// More at once would be a burst that a table throttles.
#[tokio::test(start_paused = true)]
async fn eight_requests_of_a_set_are_under_way_at_once() {
    let table = Table::new();
    let process = table.process();
    let keys: Vec<String> = (0..17).map(|number| format!("k{number}")).collect();
    let mut set = process.locks("me").acquire_all(keys).lease(LEASE).try_once().await.unwrap().granted().unwrap();

    let began = Instant::now();
    set.checkpoint().await.unwrap();
    assert_eq!(began.elapsed(), 3 * ROUND_TRIP, "8, 8 and 1");
    set.release().await.unwrap();
    assert_eq!(began.elapsed(), 6 * ROUND_TRIP);
}
