//! A call for several locks that does not know what became of some of them names all of these, and no others.

use crate::{LEASE, acquired, cancelled, may_be_held, released};
use lambda_lock::{Error, ErrorKind, SavedLockSet};
use lambda_lock_testkit::{Fault, Process, Table, case, counted, granted, millis, secs};
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
    let error = process.locks("me").acquire_all(keys).lease(LEASE).try_once().await.unwrap_err();
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
        let mut set = locks.acquire_all(["a", "b", "c"]).within(&budget).in_order().await.unwrap();
        is_silent_about(&process, &["a", "c"]);

        let error = match what {
            "checkpoint" => set.checkpoint().await.unwrap_err(),
            "release" => set.release().await.unwrap_err(),
            _ => locks.resume_all(set.save()).await.unwrap_err(),
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

        assert!(
            error.kind() == ErrorKind::Denied && error.to_string().contains("the locks a and c may be held"),
            "{error}"
        );
        // A release that was refused leaves its lock held. After the others, the guard or the saved lock still has it.
        let refused = if what == "release" { &["a", "b", "c"][..] } else { &["a", "c"] };
        assert_eq!(may_be_held(&error), refused);
    }
}

#[tokio::test(start_paused = true)]
async fn an_unknown_outcome_of_one_lock_says_more_than_a_throttled_request_of_another() {
    for keys in [["a", "b"], ["b", "a"]] {
        let table = Table::new();
        let process = table.process();
        let mut set = acquired(&process.locks("me"), ["a", "b"]).await;
        process.next_of(keys[0], vec![Fault::throttled(); 400]);
        is_silent_about(&process, &[keys[1]]);

        let error = set.checkpoint().await.unwrap_err();

        assert!(error.is_unknown(), "{error}");
        assert_eq!(may_be_held(&error), [keys[1]]);
        process.clear();
        set.release().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_asked_of_a_set_that_was_found_lost_names_those_that_could_not_be_given_back() {
    let table = Table::new();
    let process = table.process();
    let mut set = acquired(&process.locks("me"), ["a", "b", "c"]).await;
    sleep(secs(100)).await;
    granted(table.process().locks("other").acquire("b").lease(secs(60)).try_once()).await.save();
    process.next_of("a", [vec![Fault::None], vec![Fault::BlackHole; 40]].concat());
    assert!(set.checkpoint().await.unwrap_err().is_lost());

    for error in [set.commit([]).await.unwrap_err(), set.condition_checks().unwrap_err()] {
        assert!(error.is_lost(), "{error}");
        assert_eq!(may_be_held(&error), ["a"]);
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
        granted(table.process().locks("other").acquire("b").lease(secs(60)).try_once()).await.save();
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
    let saved: SavedLockSet = serde_json::from_value(serde_json::to_value(set.save()).unwrap()).unwrap();
    process.locks("me").resume_all(saved).await.unwrap().release().await.unwrap();
}

/// Another grant has this lock, and the guard does not know.
async fn is_taken(table: &Table, key: &str) {
    table.delete(key);
    granted(table.process().locks("other").acquire(key).lease(secs(60)).try_once()).await.save();
}

#[tokio::test(start_paused = true)]
async fn whatever_ends_a_guard_names_the_locks_that_it_could_not_give_back() {
    for what in
        ["commit_and_release", "cancelled", "too many writes", "run", "run after lost", "cut short", "lost twice"]
    {
        let _case = case(what);
        let table = Table::new();
        let process = table.process();
        let locks = process.locks("me");
        let mut set = acquired(&locks, ["a", "b", "c"]).await;
        let is_lost = !matches!(what, "cancelled" | "too many writes" | "cut short");
        let ready = async || {
            if is_lost {
                is_taken(&table, "b").await;
            }
            is_silent_about(&process, &["a", "c"]);
        };
        let error = match what {
            "commit_and_release" => {
                is_taken(&table, "b").await;
                process.next([Fault::None]);
                process.next(vec![Fault::BlackHole; 40]);
                set.commit_and_release([counted("o-1")]).await.unwrap_err()
            }
            "cancelled" => {
                process.next([cancelled(&["ConditionalCheckFailed", "None", "None", "None"])]);
                is_silent_about(&process, &["a", "c"]);
                set.commit_and_release([counted("o-1")]).await.unwrap_err()
            }
            "too many writes" => {
                ready().await;
                let many = (0..99).map(|index| counted(&format!("o-{index}")));
                set.commit_and_release(many).await.unwrap_err()
            }
            "lost twice" => {
                is_taken(&table, "b").await;
                for key in ["a", "c"] {
                    process.next_of(key, [vec![Fault::None], vec![Fault::BlackHole; 40]].concat());
                }
                assert!(set.checkpoint().await.unwrap_err().is_lost());
                set.checkpoint().await.unwrap_err()
            }
            _ => {
                set.release().await.unwrap();
                let budget = process.budget(secs(60));
                let acquire = locks.acquire_all(["a", "b", "c"]).lease(LEASE).within(&budget).in_order();
                let done: Result<(), Error> = acquire
                    .await
                    .unwrap()
                    .run(async |set| {
                        if what == "run after lost" {
                            is_taken(&table, "b").await;
                            for key in ["a", "c"] {
                                process.next_of(key, [vec![Fault::None], vec![Fault::BlackHole; 40]].concat());
                            }
                            assert!(set.checkpoint().await.unwrap_err().is_lost());
                        } else {
                            ready().await;
                        }
                        if what == "cut short" {
                            sleep(secs(40)).await;
                        }
                        Ok(())
                    })
                    .await;
                done.unwrap_err()
            }
        };

        assert!(error.is_lost() == is_lost && error.to_string().contains("the locks a and c may be held"), "{error}");
        assert_eq!((may_be_held(&error), released(&table, &["a", "c"])), (vec!["a", "c"], vec![false; 2]));
    }
}

#[tokio::test(start_paused = true)]
async fn a_commit_and_release_of_unknown_outcome_names_no_lock_that_it_gave_back() {
    for left in [&[][..], &["d"][..]] {
        let _case = case(format!("left: {left:?}"));
        let table = Table::new();
        let process = table.process();
        let set = acquired(&process.locks("me"), ["c", "d"]).await;
        process.next(vec![Fault::BlackHole; 3]);

        let (committed, ()) = tokio::join!(set.commit_and_release([counted("o-1")]), async {
            sleep(millis(500)).await;
            is_silent_about(&process, left);
        });

        let error = committed.unwrap_err();
        let said = error.to_string();
        assert!(error.is_unknown() && said.contains("may or may not have been applied"), "{said}");
        assert!(!said.contains("resolve_commit") && said.contains("look at what it would have written"), "{said}");
        assert_eq!(may_be_held(&error), left);
        assert_eq!(released(&table, &["c", "d"]), [true, left.is_empty()]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_release_that_is_refused_names_the_locks_that_stay_held() {
    for (fault, kind) in
        [(Fault::throttled(), ErrorKind::Unavailable), (Fault::error("AccessDeniedException"), ErrorKind::Denied)]
    {
        let _case = case(format!("{kind:?}"));
        let table = Table::new();
        let process = table.process();
        let locks = process.locks("me");
        let refuse = |keys: &[&str]| keys.iter().for_each(|key| process.next_of(key, vec![fault.clone(); 300]));
        let set = acquired(&locks, ["a", "b", "c"]).await;
        refuse(&["a", "b"]);
        let error = set.release().await.unwrap_err();
        assert_eq!((error.kind(), may_be_held(&error)), (kind, vec!["a", "b"]));
        assert_eq!(released(&table, &["a", "b", "c"]), [false, false, true]);

        let lock = granted(locks.acquire("d").lease(LEASE).try_once()).await;
        refuse(&["d"]);
        let error = lock.release().await.unwrap_err();
        assert_eq!((error.kind(), may_be_held(&error)), (kind, vec!["d"]));
    }
}
