//! Work under a lock is not polled after the end of its lease, and its result reports what happened to the
//! lock.

use crate::{Polled, SHORT_BELIEVED, SHORT_LEASE};
use lambda_lock::{Error, ErrorKind, Lock};
use lambda_lock_testkit::{Fault, ROUND_TRIP, Table, acquired, ends_within, millis, secs};
use serde_json::json;
use std::sync::{Arc, Mutex};
use tokio::time::{Instant, sleep};

#[tokio::test(start_paused = true)]
async fn work_under_a_lock_is_dropped_when_its_lease_ends_and_the_lock_is_released() {
    let table = Table::new();
    let process = table.process();
    let (locks, budget) = (process.locks("me"), process.budget(secs(60)));
    let (polled, started) = (Polled::new(), Instant::now());

    let answer: Result<(), Error> = locks
        .acquire("k")
        .lease(SHORT_LEASE)
        .within(&budget)
        .await
        .unwrap()
        .run(async |_| {
            polled.clone().work().await;
            Ok(())
        })
        .await;

    let error = answer.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::CutShort, "{error}");
    assert!(error.to_string().contains("was released"), "{error}");
    assert!(polled.last() <= started + SHORT_BELIEVED && polled.last() > started + SHORT_BELIEVED - millis(20));
    assert!(table.is_released("k"));
}

#[tokio::test(start_paused = true)]
async fn work_under_a_lock_may_run_as_long_as_it_renews_in_time() {
    let table = Table::new();
    let process = table.process();
    let (locks, budget) = (process.locks("me"), process.budget(secs(60)));

    let answer: Result<u32, Error> = locks
        .acquire("k")
        .lease(SHORT_LEASE)
        .within(&budget)
        .await
        .unwrap()
        .run(async |lock| {
            for _ in 0..10 {
                sleep(millis(1_500)).await;
                lock.checkpoint().await?;
            }
            lock.keep_alive(sleep(secs(10))).await?;
            Ok(7)
        })
        .await;

    assert_eq!(answer.unwrap(), 7);
}

#[tokio::test(start_paused = true)]
async fn work_under_a_lock_is_not_polled_by_a_thawed_process_whose_lease_has_ended() {
    let table = Table::new();
    let process = table.process();
    let (locks, budget) = (process.locks("me"), process.budget(secs(60)));
    let polled = Polled::new();
    let mut thawed = None;

    let answer: Result<(), Error> = locks
        .acquire("k")
        .lease(SHORT_LEASE)
        .within(&budget)
        .await
        .unwrap()
        .run(async |_| {
            process.clock.jump_wall(60_000);
            thawed = Some(Instant::now());
            tokio::task::yield_now().await;
            polled.clone().busy().await;
            Ok(())
        })
        .await;

    assert_eq!(answer.unwrap_err().kind(), ErrorKind::CutShort);
    assert!(polled.last() <= thawed.unwrap());
}

#[tokio::test(start_paused = true)]
async fn work_without_cut_continues_after_the_end_of_the_lease() {
    let table = Table::new();
    let process = table.process();
    let (locks, budget) = (process.locks("me"), process.budget(secs(60)));

    let lock = locks.acquire("k").lease(SHORT_LEASE).within(&budget).await.unwrap();
    let answer: Result<bool, Error> = lock
        .run_without_cut(async |lock| {
            sleep(secs(10)).await;
            let expired = lock.remaining().is_zero();
            lock.checkpoint().await?;
            Ok(expired)
        })
        .await;

    assert!(answer.unwrap(), "the guard says so all the same");
}

#[tokio::test(start_paused = true)]
async fn work_that_ended_well_under_a_lock_that_was_lost_is_an_error() {
    let table = Table::new();
    let (one, two) = (table.process(), table.process());
    let budget = one.budget(secs(60));

    let answer: Result<(), Error> = one
        .locks("one")
        .with_lock("k", &budget, async |_| {
            // An operator deletes the row.
            table.delete("k");
            let _ = acquired(&two.locks("two"), SHORT_LEASE).await.save();
            Ok(())
        })
        .await;

    let error = answer.unwrap_err();
    assert!(error.is_lost() && error.to_string().contains("the work succeeded"), "{error}");
    assert!(!table.is_released("k"), "two's lock is left alone");
}

#[tokio::test(start_paused = true)]
async fn a_release_whose_answer_was_lost_does_not_make_good_work_an_error() {
    let table = Table::new();
    let (one, two) = (table.process(), table.process());
    let budget = one.budget(secs(60));
    let locks = one.locks("one");
    let work = locks.with_lock("k", &budget, async |_| {
        // The release is applied and its response is lost. Two acquires the lock before the release is
        // repeated.
        one.next([Fault::NeverAnswers]);
        Ok::<_, Error>(7)
    });
    let rival = async {
        sleep(ROUND_TRIP).await;
        let lock = two.locks("two").acquire("k").within(&two.budget(secs(60))).await.unwrap();
        let _ = lock.save();
    };

    let (answer, ()) = tokio::join!(work, rival);

    assert_eq!(answer.unwrap(), 7);
}

#[tokio::test(start_paused = true)]
async fn work_that_ignores_the_loss_of_its_lock_is_not_polled() {
    let table = Table::new();
    let process = table.process();
    let (locks, budget) = (process.locks("me"), process.budget(secs(60)));
    let polled = Polled::new();
    let (work, lost) = (polled.clone(), Arc::new(Mutex::new(None)));

    let answer: Result<(), Error> = locks
        .acquire("k")
        .lease(SHORT_LEASE)
        .within(&budget)
        .await
        .unwrap()
        .run(async |lock| {
            let stolen = locks.reclaim(lock.to_saved()).lease(secs(30)).await?;
            assert!(lock.checkpoint().await.unwrap_err().is_lost());
            *lost.lock().unwrap() = Some(Instant::now());
            work.clone().work().await;
            stolen.release().await.map(|_| ())
        })
        .await;

    let error = answer.unwrap_err();
    assert!(error.is_lost(), "{error}");
    assert!(polled.last() <= lost.lock().unwrap().unwrap(), "polled after its lock was lost");
}

/// The work has found the loss itself, so no release has to find it.
#[tokio::test(start_paused = true)]
async fn work_that_hides_the_loss_of_its_lock_fails_without_a_release() {
    let table = Table::new();
    let process = table.process();
    let budget = process.budget(secs(60));
    let work = async |lock: &mut Lock| {
        table.delete("k");
        assert!(lock.checkpoint().await.unwrap_err().is_lost());
        Ok::<_, Error>("hidden")
    };

    let answer = process.locks("me").with_lock("k", &budget, work).await;

    assert!(answer.unwrap_err().is_lost());
    assert_eq!(process.take_operations(), ["UpdateItem", "UpdateItem", "GetItem"], "granted, refused, looked");
}

#[tokio::test(start_paused = true)]
async fn idle_work_that_has_renewed_is_dropped_when_its_new_lease_ends() {
    let table = Table::new();
    let process = table.process();
    let (locks, budget) = (process.locks("me"), process.budget(secs(60)));
    let started = Instant::now();

    let run = locks.acquire("k").lease(SHORT_LEASE).within(&budget).await.unwrap().run(async |lock| {
        sleep(secs(1)).await;
        lock.checkpoint().await?;
        std::future::pending().await
    });
    let answer: Result<(), Error> = ends_within(secs(60), run).await;

    assert_eq!(answer.unwrap_err().kind(), ErrorKind::CutShort);
    let ended = started.elapsed();
    assert!(ended > secs(1) + SHORT_BELIEVED && ended < secs(1) + SHORT_BELIEVED + ROUND_TRIP * 4, "{ended:?}");
}

/// It waits for something else, which may take much longer than the lock.
#[tokio::test(start_paused = true)]
async fn idle_work_that_has_found_the_loss_of_its_lock_is_dropped_at_once() {
    let table = Table::new();
    let process = table.process();
    let budget = process.budget(secs(900));
    let work = async |lock: &mut Lock| {
        table.delete("k");
        let (checked, ()) = tokio::join!(lock.checkpoint(), sleep(secs(600)));
        checked
    };

    let started = Instant::now();
    let answer = process.locks("me").with_lock("k", &budget, work).await;

    assert!(answer.unwrap_err().is_lost());
    assert!(started.elapsed() < secs(1), "{:?}", started.elapsed());
}

/// A row that is no lock record shows no grant, so no error says that the lock may be held.
#[tokio::test(start_paused = true)]
async fn a_row_that_is_no_lock_record_is_held_by_nobody_also_after_work_that_was_cut() {
    let table = Table::new();
    let process = table.process();
    let (locks, budget) = (process.locks("me"), process.budget(secs(60)));

    let cut = locks.acquire("k").lease(SHORT_LEASE).within(&budget).await.unwrap().run(async |_| {
        table.set("k", json!({"fencingToken": {"S": "none"}, "recordVersionNumber": {"S": "another"}}));
        std::future::pending::<Result<(), Error>>().await
    });
    let error = ends_within(secs(60), cut).await.unwrap_err();

    assert_eq!(error.kind(), ErrorKind::CutShort, "{error}");
    assert!(error.may_be_held().is_empty() && !error.to_string().contains("may be held"), "{error}");
}
