//! The requests of several locks have one time together, however many there are.

use lambda_lock::{Error, ErrorKind, LockClient, LockSet};
use lambda_lock_testkit::{Fault, Process, Table, case, millis, secs};
use tokio::time::{Instant, sleep};

/// As many as one call may have. Eight at once are under way.
fn keys() -> Vec<String> {
    (0..25).map(|index| format!("k-{index:02}")).collect()
}

async fn held(locks: &LockClient, process: &Process) -> Result<LockSet, Error> {
    locks.acquire_all(keys()).within(&process.budget(secs(120)).reserve(secs(0))).in_order().await
}

#[tokio::test(start_paused = true)]
async fn a_checkpoint_a_release_and_a_resume_take_three_request_timeouts_and_last_requests_in_an_outage() {
    for what in ["checkpoint", "release", "resume", "release of saved locks"] {
        let _case = case(what);
        let table = Table::new();
        let process = table.process();
        let locks = process.locks("me");
        let mut set = held(&locks, &process).await.unwrap();
        process.next(vec![Fault::BlackHole; 1_000]);
        let began = Instant::now();

        let error = match what {
            "checkpoint" => set.checkpoint().await.unwrap_err(),
            "release" => set.release().await.unwrap_err(),
            "resume" => locks.resume_all(set.save()).await.unwrap_err(),
            _ => {
                let saved = lambda_lock::SavedLockSet::from_locks(set.save().locks().to_vec());
                locks.release_all(saved).await.unwrap_err()
            }
        };

        assert!(error.is_unknown(), "{error:?}");
        assert!(began.elapsed() <= millis(3_800), "{:?}", began.elapsed());
        assert_eq!(error.may_be_held().len(), 25);
    }
}

#[tokio::test(start_paused = true)]
async fn an_acquire_in_order_that_gives_many_locks_back_in_an_outage_leaves_the_reserve() {
    let table = Table::new();
    let process = table.process();
    let _other = crate::held_by_another(&table, "k-24").await;
    let began = Instant::now();
    let locks = process.locks("me");
    let acquire = locks.acquire_all(keys()).within(&process.budget(secs(40)).reserve(secs(30))).in_order();

    let (set, ()) = tokio::join!(acquire, async {
        sleep(millis(9_500)).await;
        process.next(vec![Fault::BlackHole; 1_000]);
    });

    let error = set.unwrap_err();
    assert!(error.is_unknown() && error.may_be_held().len() >= 24, "{error:?}");
    // Ten seconds, a last request, and one response for those that are given back.
    assert!(began.elapsed() <= millis(12_200), "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn an_acquire_in_order_of_many_locks_whose_answers_are_slow_leaves_the_reserve() {
    let table = Table::new();
    let process = table.process();
    process.next(vec![Fault::Slow(millis(900)); 1_000]);
    let began = Instant::now();

    let budget = process.budget(secs(60)).reserve(secs(60));
    let acquire = process.locks("me").acquire_all(keys()).within(&budget).in_order().await;

    assert!(acquire.unwrap_err().is_unknown());
    assert!(began.elapsed() <= secs(5), "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn an_acquire_in_order_asks_for_no_further_lock_when_its_time_is_over() {
    // Answers that a last request would wait for, also where the first lock is granted just before the wait ends.
    for (answer, keys_asked) in [50, 150, 240].into_iter().flat_map(|answer| [(answer, 5), (answer, 25)]) {
        let _case = case(format!("{keys_asked} keys, an answer after {answer} ms"));
        let table = Table::new();
        let process = table.process();
        let keys = &keys()[..keys_asked];
        let other = crate::held_by_another(&table, "k-00").await;
        process.next(vec![Fault::Slow(millis(answer)); 1_000]);
        let budget = process.budget(secs(10)).reserve(secs(5));
        let locks = process.locks("me");
        let (set, ()) = tokio::join!(locks.acquire_all(keys.to_vec()).within(&budget).in_order(), async {
            sleep(millis(4_700)).await;
            other.release().await.unwrap();
        });

        // One answer, one for the place in line that is given up, and one for what is given back, eight at once.
        assert!(budget.remaining().unwrap() >= millis(4_200), "{:?} is left", budget.remaining());
        if let Err(error) = set {
            assert!(error.kind() == ErrorKind::OutOfTime && error.to_string().contains("asked for"), "{error}");
            assert!(error.needed() >= error.remaining() && error.may_be_held().is_empty(), "{error:?}");
            assert!(
                keys.iter().all(|key| table.row(key).is_none() || table.is_released(key)),
                "a lock was left behind"
            );
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_acquire_in_order_ends_with_its_budget_however_long_its_lease_is() {
    for (lasting, lease) in [(secs(2), None), (secs(3), Some(secs(20))), (secs(4), None), (secs(4), Some(secs(20)))] {
        let _case = case(format!("a budget of {lasting:?}, a lease of {lease:?}"));
        let table = Table::new();
        let process = table.process();
        process.next(vec![Fault::Slow(millis(230)); 1_000]);
        let budget = process.budget(lasting);
        let began = Instant::now();
        let locks = process.locks("me");
        let acquire = locks.acquire_all(keys()).within(&budget);
        let acquire = lease.into_iter().fold(acquire, |acquire, lease| acquire.lease(lease));

        let error = acquire.in_order().await.unwrap_err();

        assert!(error.kind() == ErrorKind::OutOfTime && error.to_string().contains("were not asked for"), "{error}");
        // One answer, and those to the releases: thirteen locks, eight at once.
        assert!(began.elapsed() <= lasting.min(secs(3)) + millis(800), "{:?}", began.elapsed());
        assert!(keys().iter().all(|key| table.row(key).is_none() || table.is_released(key)), "a lock was left behind");
    }
}

#[tokio::test(start_paused = true)]
async fn an_acquire_in_order_without_time_to_wait_is_granted_free_locks() {
    let table = Table::new();
    let process = table.process();
    process.next(vec![Fault::Slow(millis(100)); 1_000]);
    let budget = process.budget(secs(10)).reserve(secs(10));
    let set = process.locks("me").acquire_all(keys()).within(&budget).in_order().await.unwrap();
    assert_eq!(set.keys().count(), 25);
    set.release().await.unwrap();
}
