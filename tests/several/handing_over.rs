//! A set as data: resumed, reclaimed, or of no use any more.

use crate::{LEASE, acquired, operations, released, tokens};
use lambda_lock::{CommitOutcome, ErrorKind, LockSet, ReleaseAllOutcome, SavedLockSet};
use lambda_lock_testkit::{Fault, Table, case, counted, granted, millis, secs};
use serde_json::json;
use tokio::time::{Instant, sleep};

#[tokio::test(start_paused = true)]
async fn a_saved_set_is_resumed_with_its_token_by_one_write_for_each_lock() {
    let table = Table::new();
    let set = acquired(&table.process().locks("me"), ["a", "b"]).await;
    let token = set.fencing_token().unwrap();
    let json = serde_json::to_string(&set.save()).unwrap();
    assert!(json.starts_with("{\"locks\":[{\"key\":\"a\","), "{json}");
    let saved: SavedLockSet = serde_json::from_str(&json).unwrap();

    let process = table.process();
    let next = process.locks("next").resume_all(saved).within(&process.budget(secs(9))).await.unwrap();

    assert_eq!(operations(&process), ["UpdateItem"; 2]);
    assert_eq!((next.fencing_token(), tokens(&table, &["a", "b"])), (Some(token), vec![token; 2]));
    next.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_set_of_which_a_lock_is_lost_cannot_be_resumed_and_its_rest_is_released() {
    let table = Table::new();
    let saved = acquired(&table.process().locks("me"), ["a", "b", "c"]).await.save();
    sleep(secs(100)).await;
    granted(table.process().locks("other").acquire("b").lease(secs(60)).try_once()).await.save();

    let error = table.process().locks("next").resume_all(saved).await.unwrap_err();

    assert!(error.is_lost() && error.to_string().contains("the lock b"), "{error}");
    assert_eq!(released(&table, &["a", "b", "c"]), [true, false, true]);
}

#[tokio::test(start_paused = true)]
async fn a_lock_whose_resume_fails_is_released_too_when_others_are_lost_and_all_lost_ones_are_named() {
    let table = Table::new();
    let saved = acquired(&table.process().locks("me"), ["a", "b", "c", "d"]).await.save();
    sleep(secs(100)).await;
    for lost in ["b", "d"] {
        granted(table.process().locks("other").acquire(lost).lease(secs(60)).try_once()).await.save();
    }
    let process = table.process();
    process.next([Fault::error("AccessDeniedException")]);

    let resumed = process.locks("next").resume_all(saved).within(&process.budget(secs(9))).await;

    let error = resumed.unwrap_err();
    assert!(error.is_lost() && error.to_string().contains("the locks b and d"), "{error}");
    assert_eq!(released(&table, &["a", "b", "c", "d"]), [true, false, true, false]);
}

#[tokio::test(start_paused = true)]
async fn a_release_of_no_locks_or_too_many_is_refused() {
    let table = Table::new();
    let process = table.process();
    let locks = process.locks("me");
    let lock = acquired(&locks, ["a"]).await.save().locks()[0].clone();
    process.take_sent();
    for count in [0, 26] {
        let error = locks.release_all(SavedLockSet::from_locks(vec![lock.clone(); count])).await.unwrap_err();
        assert!(error.kind() == ErrorKind::InvalidRequest && error.to_string().contains("1 to 25 locks"), "{error}");
    }
    assert!(operations(&process).is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_resume_that_fails_keeps_the_saved_set_and_its_budget() {
    let table = Table::new();
    let saved = acquired(&table.process().locks("me"), ["a", "b"]).await.save();
    let process = table.process();
    let locks = process.locks("next");
    process.next(vec![Fault::BlackHole; 40]);
    let began = tokio::time::Instant::now();

    let error = locks.resume_all(saved.clone()).within(&process.budget(secs(1))).await.unwrap_err();

    assert!(error.is_unknown(), "{error:?}");
    assert!(began.elapsed() < millis(1400), "{:?}", began.elapsed());
    assert_eq!(released(&table, &["a", "b"]), [false; 2]);
    process.clear();
    locks.resume_all(saved).within(&process.budget(secs(9))).await.unwrap().release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_reclaim_takes_all_locks_with_a_larger_token_and_fences_the_saved_ones_off() {
    let table = Table::new();
    let process = table.process();
    let locks = process.locks("me");
    let mut first = acquired(&locks, ["a", "b"]).await;
    let (saved, token) = (first.to_saved(), first.fencing_token());
    process.take_sent();

    let second = locks.reclaim_all(saved.clone()).lease(LEASE).await.unwrap();

    assert_eq!(operations(&process), ["TransactWriteItems"]);
    assert!(second.fencing_token() > token && second.owner() == first.owner());
    let error = first.commit([counted("o-1")]).await.unwrap_err();
    assert!(error.is_lost(), "{error}");
    second.release().await.unwrap();

    // A retried task finds a later grant of the same owner.
    let third = locks.reclaim_all(saved).lease(LEASE).await.unwrap();
    assert_eq!(released(&table, &["a", "b"]), [false; 2]);
    third.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_reclaim_after_a_renewal_or_of_a_lost_lock() {
    let table = Table::new();
    let process = table.process();
    let locks = process.locks("me");
    let mut first = acquired(&locks, ["a", "b"]).await;
    let saved = first.to_saved();
    first.checkpoint().await.unwrap();
    process.take_sent();
    let second = locks.reclaim_all(saved.clone()).lease(LEASE).await.unwrap();
    assert_eq!(operations(&process), ["TransactWriteItems"; 2], "the version was another one");
    std::mem::forget((first, second));

    sleep(secs(100)).await;
    granted(table.process().locks("other").acquire("b").lease(secs(60)).try_once()).await.save();
    let before = table.row("a");
    let error = locks.reclaim_all(saved).lease(LEASE).await.unwrap_err();
    assert!(error.is_lost() && error.to_string().contains("the lock b is no longer ours"), "{error}");
    assert_eq!(table.row("a"), before, "nothing was taken");
}

#[tokio::test(start_paused = true)]
async fn locks_that_were_not_acquired_together_are_no_set() {
    let table = Table::new();
    let process = table.process();
    let locks = process.locks("me");
    let (a, b) = (acquired(&locks, ["a"]).await, {
        sleep(secs(1)).await;
        acquired(&locks, ["b"]).await
    });
    let both: Vec<_> = a.save().locks().iter().chain(b.save().locks()).cloned().collect();
    process.take_sent();
    let error = locks.resume_all(SavedLockSet::from_locks(both.clone())).await.unwrap_err();
    assert!(
        error.kind() == ErrorKind::InvalidRequest && error.to_string().contains("several owners or workflows"),
        "{error}"
    );
    let of = async |key, workflow| {
        let set = locks.acquire_all([key]).lease(LEASE).owner("task").workflow(workflow).try_once().await.unwrap();
        set.granted().unwrap().save().locks()[0].clone()
    };
    let two_workflows = vec![of("e", "arn:1").await, of("f", "arn:2").await];
    process.take_sent();
    let error = locks.resume_all(SavedLockSet::from_locks(two_workflows)).await.unwrap_err();
    assert!(
        error.kind() == ErrorKind::InvalidRequest && error.to_string().contains("several owners or workflows"),
        "{error}"
    );
    let none = SavedLockSet::from_locks(Vec::new());
    assert_eq!(locks.resume_all(none.clone()).await.unwrap_err().kind(), ErrorKind::InvalidRequest);
    assert_eq!(locks.reclaim_all(none).lease(LEASE).await.unwrap_err().kind(), ErrorKind::InvalidRequest);
    assert!(operations(&process).is_empty());

    let budget = process.budget(secs(30)).reserve(secs(0));
    let set = locks.acquire_all(["c", "d"]).within(&budget).owner("task").in_order().await.unwrap();
    let tokens = [set.fencing_token_of("c"), set.fencing_token_of("d")];
    let set = locks.resume_all(set.save()).await.unwrap();
    assert_eq!([set.fencing_token_of("c"), set.fencing_token_of("d")], tokens);
    set.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_saved_set_is_released_resumed_and_reclaimed_however_it_was_acquired() {
    for in_order in [false, true] {
        let _case = case(format!("in order: {in_order}"));
        let table = Table::new();
        let process = table.process();
        let (locks, budget) = (process.locks("me"), process.budget(secs(60)).reserve(secs(0)));
        let request = || locks.acquire_all(["a", "b"]).within(&budget).lease(LEASE);
        // So that their rows do not have the same token.
        granted(locks.acquire("b").lease(LEASE).try_once()).await.release().await.unwrap();
        table.set("b", json!({"fencingToken": {"N": "9000000000000000000"}}));
        let set = if in_order { request().in_order().await } else { request().await }.unwrap();
        assert_eq!(set.fencing_token().is_none(), in_order);
        let of = |set: &LockSet| ["a", "b"].map(|key| set.fencing_token_of(key).unwrap());
        let first = of(&set);

        let resumed = locks.resume_all(set.save()).await.unwrap();
        assert_eq!(of(&resumed), first);
        let reclaimed = locks.reclaim_all(resumed.save()).lease(LEASE).await.unwrap();
        let second = of(&reclaimed);
        assert!(second[0] == second[1] && second[0] > first[0].max(first[1]), "{second:?} after {first:?}");
        assert_eq!(locks.release_all(reclaimed.save()).await.unwrap(), ReleaseAllOutcome::Released);
        assert_eq!(released(&table, &["a", "b"]), [true; 2]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_reclaim_goes_by_the_tokens_of_the_rows_and_not_by_what_was_saved() {
    let table = Table::new();
    let process = table.process();
    let locks = process.locks("me");
    let mut saved = serde_json::to_value(acquired(&locks, ["a", "b"]).await.save()).unwrap();
    let token = saved["locks"][0]["fencingToken"].as_u64().unwrap();
    // A larger token would make the rows unusable.
    saved["locks"][1]["fencingToken"] = json!(u64::MAX - 2);
    process.take_sent();

    let set = locks.reclaim_all(serde_json::from_value(saved).unwrap()).lease(LEASE).await.unwrap();

    assert_eq!(operations(&process), ["TransactWriteItems"]);
    let next = set.fencing_token().unwrap();
    assert!((token + 1..token + 100_000).contains(&next), "{next} after {token}");
    set.release().await.unwrap();

    table.set("b", json!({"fencingToken": {"N": "9000000000000000000"}}));
    let saved = acquired(&locks, ["a", "b"]).await.save();
    process.take_sent();
    let set = locks.reclaim_all(saved).lease(LEASE).await.unwrap();
    assert_eq!(operations(&process), ["TransactWriteItems"; 2], "the row has a token that is ahead of the clock");
    assert_eq!(set.fencing_token(), Some(9_000_000_000_000_000_002));
    set.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn where_one_saved_lock_is_invalid_nothing_is_sent_for_the_others() {
    for (attribute, wrong) in [
        ("version", json!("of another client")),
        ("leaseSeconds", json!(-1.0)),
        ("key", json!("")),
        ("owner", json!("")),
    ] {
        let table = Table::new();
        let process = table.process();
        let locks = process.locks("me");
        let mut saved = serde_json::to_value(acquired(&locks, ["a", "b", "c"]).await.save()).unwrap();
        saved["locks"][1][attribute] = wrong;
        process.take_sent();
        let set = || serde_json::from_value::<SavedLockSet>(saved.clone()).unwrap();

        for (call, error) in [
            ("resume_all", locks.resume_all(set()).await.unwrap_err()),
            ("reclaim_all", locks.reclaim_all(set()).lease(LEASE).await.unwrap_err()),
            ("release_all", locks.release_all(set()).await.unwrap_err()),
        ] {
            assert_eq!(error.kind(), ErrorKind::InvalidRequest, "{call} with another {attribute}: {error:?}");
        }
        assert!(operations(&process).is_empty(), "{attribute}");
        assert_eq!(released(&table, &["a", "c"]), [false; 2]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_reclaim_keeps_the_attributes_of_the_rows() {
    let table = Table::new();
    let process = table.process();
    let locks = process.locks("me");
    let lock = granted(locks.acquire("a").lease(LEASE).attribute("job", "nightly").try_once()).await;
    let saved = SavedLockSet::from_locks(vec![lock.save()]);

    let set = locks.reclaim_all(saved).lease(LEASE).await.unwrap();

    assert_eq!(table.attribute("a", "job").as_deref(), Some("nightly"));
    set.release().await.unwrap();
    // They are still listed, so the next grant removes them.
    acquired(&locks, ["a"]).await.release().await.unwrap();
    assert_eq!(table.attribute("a", "job"), None);
}

#[tokio::test(start_paused = true)]
async fn a_release_of_a_saved_set_keeps_to_its_time() {
    let table = Table::new();
    let process = table.process();
    let locks = process.locks("me");
    let saved = acquired(&locks, ["a", "b"]).await.save();
    process.next(vec![Fault::BlackHole; 100]);
    let began = Instant::now();

    let error = locks.release_all(saved).within(&process.budget(millis(400))).await.unwrap_err();

    assert!(error.is_unknown(), "{error}");
    // The last request of a call may take a quarter of a second. Without this budget it would be three seconds.
    assert!(began.elapsed() <= millis(650), "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_release_of_a_saved_set_frees_a_later_grant_of_its_owner_only_if_it_is_asked_to() {
    let table = Table::new();
    let locks = table.process().locks("me");
    let acquire = || locks.acquire_all(["a", "b"]).lease(LEASE).owner("task").reclaim_own().try_once();
    let first = acquire().await.unwrap().granted().unwrap().save();
    let _second = acquire().await.unwrap().granted().unwrap().save();

    let left_alone = locks.release_all(first.clone()).await.unwrap();
    assert_eq!(left_alone, ReleaseAllOutcome::AlreadyGone(vec!["a".into(), "b".into()]));
    assert_eq!(released(&table, &["a", "b"]), [false; 2]);
    let freed = locks.release_all(first).or_later_grant_of_owner().await.unwrap();
    assert_eq!((freed, released(&table, &["a", "b"])), (ReleaseAllOutcome::Released, vec![true; 2]));
}

/// Whoever goes on with a set must not send the writes of its last commit again before it knows what became of them. One lock of a
/// set is enough to know that.
#[tokio::test(start_paused = true)]
async fn a_commit_of_unknown_outcome_is_handed_over_with_its_set() {
    for (how, with_commit) in [("resumed", ["a", "b"]), ("resumed", ["b", "b"]), ("reclaimed", ["a", "b"])] {
        let _case = case(format!("{how}, known of {with_commit:?}"));
        let table = Table::new();
        let process = table.process();
        let locks = process.locks("me");
        let mut set = acquired(&locks, ["a", "b"]).await;
        let before = set.to_saved();
        process.next(vec![Fault::AnswerLost; 100]);
        assert!(set.commit([counted("o-1")]).await.unwrap_err().is_unknown());
        process.clear();
        let after = set.save();
        let of = |index: usize, key| if with_commit.contains(&key) { &after } else { &before }.locks()[index].clone();
        let saved = SavedLockSet::from_locks(vec![of(0, "a"), of(1, "b")]);

        let mut set = match how {
            "resumed" => locks.resume_all(saved).await.unwrap(),
            _ => locks.reclaim_all(saved).lease(LEASE).await.unwrap(),
        };

        let error = set.commit([counted("o-1")]).await.unwrap_err();
        assert!(
            error.kind() == ErrorKind::InvalidRequest && error.to_string().contains("ask resolve_commit first"),
            "{error}"
        );
        assert_eq!(set.resolve_commit().await.unwrap(), CommitOutcome::Applied);
        set.release().await.unwrap();
    }
}

/// Locks of which each was committed under by itself make a set, whose commits are not one transaction.
#[tokio::test(start_paused = true)]
async fn saved_locks_of_different_commits_resolve_to_what_holds_for_all_of_them() {
    let applied = || vec![Fault::AnswerLost; 100];
    let lost = || vec![Fault::BlackHole; 100];
    for (faults, is_untold, expected) in [
        ([lost(), applied()], true, CommitOutcome::Indeterminate),
        ([lost(), applied()], false, CommitOutcome::Indeterminate),
        ([applied(), lost()], false, CommitOutcome::Indeterminate),
        ([applied(), applied()], false, CommitOutcome::Applied),
        ([lost(), lost()], false, CommitOutcome::NotApplied),
    ] {
        for how in ["resumed", "reclaimed"] {
            let _case = case(format!("{how}: {:?}, the second is untold: {is_untold}", [&faults[0][0], &faults[1][0]]));
            let table = Table::new();
            let process = table.process();
            let locks = process.locks("me");
            let mut saved = Vec::new();
            let apart = acquired(&locks, ["a", "b"]).await.into_locks();
            for ((mut lock, faults), effect) in apart.into_iter().zip(faults.clone()).zip(["o-a", "o-b"]) {
                let copy = lock.to_saved();
                process.next(faults);
                assert!(lock.commit([counted(effect)]).await.unwrap_err().is_unknown());
                process.clear();
                if is_untold && effect == "o-b" {
                    std::mem::forget(locks.resume(copy).await.unwrap());
                }
                saved.push(lock.save());
            }
            let saved = SavedLockSet::from_locks(saved);
            let mut set = match how {
                "resumed" => locks.resume_all(saved).await.unwrap(),
                _ => locks.reclaim_all(saved).lease(LEASE).await.unwrap(),
            };

            assert_eq!(set.resolve_commit().await.unwrap(), expected);
            set.release().await.unwrap();
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_saved_version_of_a_time_that_has_not_come_yet_is_refused_before_anything_is_written() {
    for (ahead, is_refused) in
        [(secs(24 * 60 * 60 - 60), false), (secs(24 * 60 * 60 + 60), true), (secs(1 << 40), true)]
    {
        let _case = case(format!("{ahead:?}"));
        let table = Table::new();
        let process = table.process();
        let locks = process.locks("me");
        let mut saved = serde_json::to_value(acquired(&locks, ["a", "b"]).await.save()).unwrap();
        let version = saved["locks"][1]["version"].as_str().unwrap().to_owned();
        let (before, stamp) = version.split_at(version.len() - 28);
        let millis = u64::from_str_radix(&stamp[..12], 16).unwrap() + ahead.as_millis() as u64;
        let millis = millis.min(0xffff_ffff_ffff);
        saved["locks"][1]["version"] = json!(format!("{before}{millis:012x}{}", &stamp[12..]));
        let set = || serde_json::from_value::<SavedLockSet>(saved.clone()).unwrap();
        process.take_sent();

        for (call, error) in [
            ("release_all", locks.release_all(set()).await.err()),
            ("release", locks.release(set().locks()[1].clone()).await.err()),
            ("resume", locks.resume(set().locks()[1].clone()).await.err()),
        ] {
            let refused = error.as_ref().filter(|error| error.kind() == ErrorKind::InvalidRequest);
            let says_why = refused.is_some_and(|error| error.to_string().contains("a time that has not come yet"));
            assert_eq!(says_why, is_refused, "{call}: {error:?}");
        }
        assert_eq!(released(&table, &["b"]), [!is_refused]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_resume_has_the_lease_that_was_asked_for_also_within_a_budget() {
    let table = Table::new();
    let process = table.process();
    let locks = process.locks("me");
    let budget = process.budget(secs(300));
    let saved = granted(locks.acquire("k").lease(LEASE).try_once()).await.save();
    let resumed = locks.resume(saved).within(&budget).lease(secs(60)).await.unwrap();
    assert_eq!(table.number("k", "leaseDuration"), 60_000);
    resumed.release().await.unwrap();
}

/// What is told of a set stands also beside the error of another lock, and the releases keep to the budget.
#[tokio::test(start_paused = true)]
async fn what_was_not_resumed_beside_a_lost_lock_is_released_within_the_budget_and_named() {
    let table = Table::new();
    let process = table.process();
    let locks = process.locks("me");
    let saved = acquired(&locks, ["a", "b"]).await.save();
    sleep(secs(100)).await;
    granted(table.process().locks("other").acquire("b").lease(secs(60)).try_once()).await.save();
    process.next_of("a", vec![Fault::BlackHole; 100]);
    let began = Instant::now();

    let error = locks.resume_all(saved).within(&process.budget(millis(400))).await.unwrap_err();

    assert!(error.is_lost(), "{error}");
    assert_eq!(error.may_be_held().iter().map(|key| key.key()).collect::<Vec<_>>(), ["a"]);
    // The resume, and a last request of the release, which may take a quarter of a second.
    assert!(began.elapsed() <= millis(400 + 250 + 50), "{:?}", began.elapsed());
}
