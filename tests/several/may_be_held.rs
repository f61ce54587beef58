//! A call for several locks that does not know what became of some of them names all of these, and no others.

use crate::{LEASE, acquired, may_be_held, released};
use lambda_lock::{ErrorKind, SavedLockChain};
use lambda_lock_testkit::{Fault, Process, Table, case, granted, secs};
use tokio::time::sleep;

/// DynamoDB does not respond about these locks from now on.
fn is_silent_about(process: &Process, keys: &[&str]) {
    for key in keys {
        process.next_of(key, vec![Fault::BlackHole; 40]);
    }
}

#[tokio::test(start_paused = true)]
async fn an_acquire_in_order_names_the_lock_that_it_asked_for_and_those_that_it_could_not_give_back() {
    let table = Table::new();
    let process = table.process();
    let budget = process.budget(secs(30));
    process.next(vec![Fault::None; 3]);
    process.next(vec![Fault::BlackHole; 300]);

    let acquire = process.locks("me").acquire_all(["a", "b", "c", "d"]).within(&budget).in_order().await;

    let error = acquire.unwrap_err();
    assert!(error.is_unknown() && error.to_string().contains("the locks a, b, c and d may or may not"), "{error}");
    assert_eq!(may_be_held(&error), ["a", "b", "c", "d"]);

    // The locks that it gave back are not named.
    process.clear();
    process.next(vec![Fault::None; 2]);
    is_silent_about(&process, &["g"]);
    let acquire = process.locks("me").acquire_all(["e", "f", "g"]).within(&budget).in_order().await;
    let error = acquire.unwrap_err();
    assert!(error.is_unknown(), "{error}");
    assert_eq!((may_be_held(&error), released(&table, &["e", "f"])), (vec!["g"], vec![true; 2]));
}

#[tokio::test(start_paused = true)]
async fn an_acquire_together_has_them_all_where_its_text_has_not() {
    let table = Table::new();
    let process = table.process();
    process.next(vec![Fault::BlackHole; 60]);
    let keys = ["a", "b", "c", "d", "e", "f", "g"];
    let error = process.locks("me").try_acquire_all(keys).lease(LEASE).await.unwrap_err();
    assert!(error.is_unknown() && error.to_string().contains("and 2 more"), "{error}");
    assert_eq!(may_be_held(&error), keys);
}

#[tokio::test(start_paused = true)]
async fn a_checkpoint_a_release_and_a_resume_name_each_lock_of_unknown_outcome() {
    for what in ["checkpoint", "release", "resume"] {
        let _case = case(what);
        let table = Table::new();
        let process = table.process();
        let locks = process.locks("me");
        let budget = process.budget(secs(60)).reserve(secs(0));
        let mut chain = locks.acquire_all(["a", "b", "c"]).within(&budget).in_order().await.unwrap();
        is_silent_about(&process, &["a", "c"]);

        let error = match what {
            "checkpoint" => chain.checkpoint().await.unwrap_err(),
            "release" => chain.release().await.unwrap_err(),
            _ => locks.resume_chain(chain.save()).await.unwrap_err(),
        };

        assert!(error.is_unknown() && error.to_string().contains("the locks a and c may or may not"), "{error}");
        assert_eq!(may_be_held(&error), ["a", "c"]);
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_worth_more_to_the_caller_hides_no_lock_of_unknown_outcome() {
    for what in ["checkpoint", "release", "resume"] {
        let _case = case(what);
        let table = Table::new();
        let process = table.process();
        let locks = process.locks("me");
        let mut set = acquired(&locks, ["a", "b", "c"]).await;
        process.next_of("b", [Fault::error("AccessDeniedException")]);
        is_silent_about(&process, &["a", "c"]);

        let error = match what {
            "checkpoint" => set.checkpoint().await.unwrap_err(),
            "release" => set.release().await.unwrap_err(),
            _ => locks.resume_all(set.save()).await.unwrap_err(),
        };

        assert!(error.is_denied() && error.to_string().contains("the locks a and c may be held"), "{error}");
        assert_eq!(may_be_held(&error), ["a", "c"]);
    }
}

#[tokio::test(start_paused = true)]
async fn when_a_lock_is_lost_those_that_could_not_be_given_back_are_named() {
    for is_resumed in [false, true] {
        let table = Table::new();
        let process = table.process();
        let locks = process.locks("me");
        let mut set = acquired(&locks, ["a", "b", "c"]).await;
        sleep(secs(100)).await;
        granted(table.process().locks("other").try_acquire("b").lease(secs(60))).await.save();
        // Its renewal gets a response, and its release does not.
        process.next_of("a", [vec![Fault::None], vec![Fault::BlackHole; 40]].concat());

        let error = if is_resumed {
            locks.resume_all(set.save()).await.unwrap_err()
        } else {
            set.checkpoint().await.unwrap_err()
        };

        assert!(error.is_lost() && error.to_string().contains("the lock b is no longer ours"), "{error}");
        assert_eq!((may_be_held(&error), released(&table, &["a", "c"])), (vec!["a"], vec![false, true]));
    }
}

#[tokio::test(start_paused = true)]
async fn a_commit_of_unknown_outcome_has_all_of_its_locks() {
    let table = Table::new();
    let process = table.process();
    let mut set = acquired(&process.locks("me"), ["a", "b"]).await;
    process.next(vec![Fault::BlackHole; 40]);
    let error = set.commit([lambda_lock_testkit::counted("o-1")]).await.unwrap_err();
    assert_eq!((error.kind(), may_be_held(&error)), (ErrorKind::Unknown, vec!["a", "b"]));
    process.clear();
    let saved: SavedLockChain = serde_json::from_value(serde_json::to_value(set.save()).unwrap()).unwrap();
    process.locks("me").resume_chain(saved).await.unwrap().release().await.unwrap();
}
