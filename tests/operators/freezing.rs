//! A lock that an operator freezes and thaws.

use crate::LEASE;
use lambda_lock::once::Started;
use lambda_lock::{Budget, ErrorKind, LockClient, Tried, operator::ThawOutcome};
use lambda_lock_testkit::{Fault, Table, acquired, case, granted, millis, secs};
use serde_json::json;
use tokio::time::sleep;

const WHY: &str = "a migration, ticket 4711";

/// Why a try for this lock was refused.
async fn refused(locks: &LockClient, key: &str) -> Option<String> {
    match locks.acquire(key).lease(LEASE).try_once().await.unwrap() {
        Tried::Granted(lock) => panic!("granted: {lock:?}"),
        Tried::Refused(held) => held.freeze_reason,
    }
}

#[tokio::test(start_paused = true)]
async fn the_holder_of_a_frozen_lock_may_finish_and_nobody_is_granted_it_then() {
    let table = Table::new();
    let (operator, other) = (table.process(), table.process().locks("other"));
    let mut lock = acquired(&table.process().locks("holder"), LEASE).await;
    let client = operator.locks("operator");

    client.operator().freeze("k", WHY).await.unwrap();

    assert_eq!(operator.take_operations(), ["GetItem", "UpdateItem"]);
    assert_eq!(refused(&other, "k").await.as_deref(), Some(WHY), "held");
    lock.checkpoint().await.unwrap();
    let token = lock.fencing_token();
    lock.release().await.unwrap();
    assert!(table.is_released("k"));
    assert_eq!(refused(&other, "k").await.as_deref(), Some(WHY), "free");
    let shown = client.operator().peek("k").await.unwrap().unwrap();
    assert_eq!(shown.freeze_reason.as_deref(), Some(WHY));
    assert!(shown.freeze_changed_at.is_some() && shown.attributes.is_empty());

    operator.take_sent();
    assert_eq!(client.operator().thaw("k").await.unwrap(), ThawOutcome::Thawed);

    assert_eq!(operator.take_operations(), ["GetItem", "UpdateItem"]);
    assert_eq!(client.operator().peek("k").await.unwrap().unwrap().freeze_reason, None);
    let next = acquired(&other, LEASE).await;
    assert!(next.fencing_token() > token);
}

#[tokio::test(start_paused = true)]
async fn a_freeze_between_the_look_and_the_takeover_is_respected() {
    for released in [false, true] {
        let _case = case(format!("released: {released}"));
        let table = Table::new();
        let client = table.process().locks("operator");
        // A row of the Java client, free or dead, is taken over by the version that was seen.
        table.put_java_row("k", "00000000-0000-0000-0000-000000000001", LEASE);
        if released {
            table.set("k", json!({ "isReleased": { "S": "1" } }));
        }
        let process = table.process();
        let other = process.locks("other");
        let observation = match other.acquire("k").lease(LEASE).try_once().await.unwrap() {
            Tried::Refused(held) => Some(held.observation.and_waited(LEASE * 2)),
            Tried::Granted(lock) => {
                lock.release().await.unwrap();
                table.put_java_row("k", "00000000-0000-0000-0000-000000000002", LEASE);
                table.set("k", json!({ "isReleased": { "S": "1" } }));
                None
            }
        };
        // Its takeover is under way while the operator freezes.
        process.next([Fault::Slow(millis(1)), Fault::Slow(millis(600))]);
        let mut call = other.acquire("k").lease(LEASE);
        if let Some(observation) = observation {
            call = call.observation(observation);
        }
        let freeze = async {
            tokio::time::sleep(millis(200)).await;
            client.operator().freeze("k", WHY).await.unwrap();
        };
        let (tried, ()) = tokio::join!(call.try_once(), freeze);
        let held = tried.unwrap();
        assert_eq!(held.refused().unwrap().freeze_reason.as_deref(), Some(WHY));
    }
}

#[tokio::test(start_paused = true)]
async fn an_acquire_waits_until_the_lock_is_thawed_or_its_time_is_over() {
    let table = Table::new();
    let client = table.process().locks("operator");
    client.operator().freeze("k", WHY).await.unwrap();
    let process = table.process();
    let waiters = process.locks("waiter");
    let budget = || process.budget(secs(20)).reserve(secs(5));

    let error = waiters.acquire("k").within(&budget()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Held);
    assert!(error.to_string().contains(&format!("frozen by an operator ({WHY:?})")), "{error}");
    assert!(error.refusal().unwrap().retry_after >= secs(10));
    let (writes, reads) = process.take_writes_and_reads();
    assert!(writes == 1 && (10..120).contains(&reads), "{writes} writes and {reads} reads in 15 s");

    let thaw = async {
        tokio::time::sleep(secs(4)).await;
        client.operator().thaw("k").await.unwrap();
    };
    let budget = budget();
    let (lock, _) = tokio::join!(waiters.acquire("k").within(&budget), thaw);
    lock.unwrap().release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn the_holder_reclaims_a_frozen_lock_until_it_has_released_it() {
    let table = Table::new();
    let (client, other) = (table.process().locks("operator"), table.process().locks("other"));
    let process = table.process();
    let holders = process.locks("holder");
    let first = granted(holders.acquire("k").owner("task").lease(LEASE).try_once()).await;
    client.operator().freeze("k", WHY).await.unwrap();

    let again = granted(holders.acquire("k").owner("task").reclaim_own().lease(LEASE).try_once()).await;
    assert!(again.fencing_token() > first.fencing_token());
    assert_eq!(refused(&other, "k").await.as_deref(), Some(WHY));
    process.take_sent();
    let saved = holders.reclaim(again.save()).lease(LEASE).await.unwrap().save();
    assert_eq!(process.take_operations(), ["UpdateItem"], "as of a lock that is not frozen");
    let same = other.resume(saved.clone()).await.unwrap();
    same.release().await.unwrap();

    let tried = holders.acquire("k").owner("task").reclaim_own().lease(LEASE).try_once().await.unwrap();
    assert_eq!(tried.refused().unwrap().freeze_reason.as_deref(), Some(WHY), "nobody holds it any more");
    let error = holders.reclaim(saved.clone()).lease(LEASE).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Held, "{error}");
    client.operator().thaw("k").await.unwrap();
    let _ = holders.reclaim(saved).lease(LEASE).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_lock_that_nobody_had_can_be_frozen() {
    let table = Table::new();
    let (client, other) = (table.process().locks("operator"), table.process().locks("other"));
    client.operator().freeze("k", WHY).await.unwrap();
    assert_eq!(refused(&other, "k").await.as_deref(), Some(WHY));
    let shown = client.operator().peek("k").await.unwrap().unwrap();
    assert!(shown.released && shown.fencing_token.is_none(), "{shown:?}");
    client.operator().thaw("k").await.unwrap();
    let lock = acquired(&other, LEASE).await;
    assert!(lock.fencing_token() > 1, "counted from the clock");
}

#[tokio::test(start_paused = true)]
async fn a_freeze_of_a_frozen_lock_changes_its_reason_and_a_thaw_of_another_nothing() {
    let table = Table::new();
    let process = table.process();
    let locks = process.locks("operator");
    locks.operator().freeze("k", "one").await.unwrap();
    locks.operator().freeze("k", "two").await.unwrap();
    assert_eq!(locks.operator().peek("k").await.unwrap().unwrap().freeze_reason.as_deref(), Some("two"));
    locks.operator().thaw("k").await.unwrap();
    process.take_sent();
    assert_eq!(locks.operator().thaw("k").await.unwrap(), ThawOutcome::NotFrozen);
    assert_eq!(locks.operator().thaw("never").await.unwrap(), ThawOutcome::NotFrozen);
    assert_eq!(process.take_operations(), ["GetItem", "UpdateItem", "GetItem"]);
}

#[tokio::test(start_paused = true)]
async fn a_lock_that_was_granted_since_it_was_seen_free_is_left_alone() {
    let table = Table::new();
    let operator = table.process();
    let client = operator.locks("operator");
    acquired(&client, LEASE).await.release().await.unwrap();
    let seen = client.operator().peek("k").await.unwrap();
    let lock = acquired(&table.process().locks("holder"), LEASE).await;
    operator.take_sent();

    assert!(!client.operator().freeze_seen("k", seen.as_ref(), WHY).await.unwrap());

    assert_eq!(operator.take_operations(), ["GetItem"]);
    let seen = client.operator().peek("k").await.unwrap();
    lock.release().await.unwrap();
    assert!(client.operator().freeze_seen("k", seen.as_ref(), WHY).await.unwrap(), "its holder has finished");
}

/// The operator got no response, so the request is still under way.
#[tokio::test(start_paused = true)]
async fn a_change_that_arrives_after_the_next_one_was_answered_is_refused() {
    let table = Table::new();
    let (lost, process) = (table.process(), table.process());
    let (first, second) = (lost.locks("operator"), process.locks("operator"));
    acquired(&second, LEASE).await.release().await.unwrap();
    // Each change has to be refused by a row that is already as the next operator wants it.
    lost.next(std::iter::once(Fault::None).chain(std::iter::repeat_n(Fault::RequestLost, 50)));
    first.operator().freeze("k", WHY).await.unwrap_err();
    let freeze = lost.take_sent().pop().unwrap();
    assert_eq!(second.operator().thaw("k").await.unwrap(), ThawOutcome::NotFrozen);
    assert!(!table.replay(&freeze));

    second.operator().freeze("k", WHY).await.unwrap();
    lost.clear();
    lost.next(std::iter::once(Fault::None).chain(std::iter::repeat_n(Fault::RequestLost, 50)));
    first.operator().thaw("k").await.unwrap_err();
    let thaw = lost.take_sent().pop().unwrap();
    second.operator().freeze("k", WHY).await.unwrap();
    assert!(!table.replay(&thaw));
}

#[tokio::test(start_paused = true)]
async fn a_late_copy_of_a_freeze_or_of_a_thaw_changes_nothing() {
    let table = Table::new();
    let process = table.process();
    let (client, other) = (process.locks("operator"), table.process().locks("other"));
    let _ = acquired(&other, LEASE).await.save();
    let write_of = |process: &lambda_lock_testkit::Process| process.take_sent().pop().unwrap();
    client.operator().freeze("k", WHY).await.unwrap();
    let freeze = write_of(&process);
    assert!(!table.replay(&freeze), "frozen");
    // Clocks that stand still or are set back make no difference.
    process.clock.jump_wall(-60_000);
    client.operator().thaw("k").await.unwrap();
    let thaw = write_of(&process);
    assert!(!table.replay(&freeze) && !table.replay(&thaw), "thawed");
    client.operator().freeze("k", "again").await.unwrap();
    assert!(!table.replay(&freeze) && !table.replay(&thaw), "frozen again");
    assert_eq!(refused(&other, "k").await.as_deref(), Some("again"));
}

#[tokio::test(start_paused = true)]
async fn two_operators_who_freeze_and_thaw_at_once_leave_what_the_last_of_them_did() {
    for round in 0..100 {
        let table = Table::new();
        let (one, two) = (table.process(), table.process());
        let (freezes, thaws) = (one.locks("one"), two.locks("two"));
        freezes.operator().freeze("k", "before").await.unwrap();
        one.next([Fault::Slow(millis(round % 7)), Fault::Slow(millis(round % 5))]);
        two.next([Fault::Slow(millis(round % 3)), Fault::Slow(millis(round % 11))]);
        let (frozen, thawed) = tokio::join!(freezes.operator().freeze("k", WHY), thaws.operator().thaw("k"));
        frozen.unwrap();
        assert_eq!(thawed.unwrap(), ThawOutcome::Thawed, "round {round}");
        // Whichever came last was sent on the row that the other had written.
        let reason = thaws.operator().peek("k").await.unwrap().unwrap().freeze_reason;
        assert!(reason.is_none() || reason.as_deref() == Some(WHY), "round {round}: {reason:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_frozen_lock_refuses_its_set_and_a_frozen_place_is_not_used() {
    let table = Table::new();
    let (client, locks) = (table.process().locks("operator"), table.process().locks("me"));
    client.operator().freeze("b", WHY).await.unwrap();
    let Tried::Refused(blocked) = locks.acquire_all(["a", "b"]).lease(LEASE).try_once().await.unwrap() else {
        panic!("granted")
    };
    assert_eq!(blocked.len(), 1);
    assert_eq!(blocked[0].freeze_reason.as_deref(), Some(WHY));
    let budget = Budget::lasting(secs(1));
    let error = locks.acquire_all(["a", "b"]).within(&budget).await.unwrap_err();
    assert!(error.to_string().starts_with("the lock b is frozen by an operator"), "{error}");
    assert!(table.row("a").is_none());
    client.operator().freeze("a", WHY).await.unwrap();
    let error = locks.acquire_all(["a", "b"]).within(&Budget::lasting(secs(1))).await.unwrap_err().to_string();
    assert!(error.starts_with("the locks a and b are held, and "), "{error}");
    assert!(error.contains(&format!("is frozen by an operator ({WHY:?})")), "{error}");

    let semaphore = locks.semaphore("s", 2);
    client.operator().freeze("s/0", WHY).await.unwrap();
    let permit = semaphore.acquire().lease(LEASE).try_once().await.unwrap().granted().unwrap();
    assert_eq!(permit.place().unwrap(), 1);
    let full = semaphore.acquire().lease(LEASE).try_once().await.unwrap();
    assert!(full.granted().is_none());
    permit.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_freeze_keeps_the_row_of_a_table_with_a_ttl() {
    let table = Table::new();
    let locks = table.process().builder().owner("me").ttl_attribute("expiresAt").build().unwrap();
    acquired(&locks, LEASE).await.release().await.unwrap();
    assert!(table.row("k").unwrap().get("expiresAt").is_some());
    locks.operator().freeze("k", WHY).await.unwrap();
    assert!(
        table.row("k").unwrap()["expiresAt"]["S"].as_str().unwrap().starts_with(WHY),
        "DynamoDB deletes no row by a text"
    );
    locks.operator().thaw("k").await.unwrap();
    acquired(&locks, LEASE).await.release().await.unwrap();
    assert!(table.row("k").unwrap().get("expiresAt").is_some());
}

#[tokio::test(start_paused = true)]
async fn the_holder_of_the_largest_row_that_can_be_frozen_renews_and_releases_it() {
    let mut outcomes = Vec::new();
    for reason in (1..1_000).step_by(49) {
        let _case = case(format!("a reason of {reason} bytes"));
        let table = Table::new();
        let locks = table.process().builder().owner("me").ttl_attribute("expiresAt").build().unwrap();
        let largest = vec![7; 400 * 1024 - 1024 - "k".len() - "me/12345678".len()];
        let mut lock = granted(locks.acquire("k").lease(LEASE).data(largest).try_once()).await;

        let frozen = locks.operator().freeze("k", &"r".repeat(reason)).await.map_err(|error| error.kind());

        lock.checkpoint().await.unwrap();
        lock.release().await.unwrap();
        outcomes.push(frozen);
    }
    assert_eq!(outcomes.first(), Some(&Ok(())));
    assert_eq!(outcomes.last(), Some(&Err(ErrorKind::InvalidRequest)));
}

#[tokio::test(start_paused = true)]
async fn what_is_no_lock_cannot_be_frozen() {
    let table = Table::new();
    let locks = table.process().locks("me");
    let long = "r".repeat(2049);
    for (key, reason, named) in
        [("k", "", "reason"), ("k", long.as_str(), "reason"), ("", WHY, "key"), ("once/w", WHY, "idempotent work")]
    {
        let error = locks.operator().freeze(key, reason).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidRequest);
        assert!(error.to_string().contains(named), "{error}");
    }
    assert_eq!(locks.operator().thaw("once/w").await.unwrap_err().kind(), ErrorKind::InvalidRequest);
    table.put(json!({ "key": { "S": "odd" }, "ownerName": { "S": "me" } }));
    let row = table.row("odd");
    assert_eq!(locks.operator().freeze("odd", WHY).await.unwrap_err().kind(), ErrorKind::InvalidRecord);
    assert_eq!(locks.operator().thaw("odd").await.unwrap_err().kind(), ErrorKind::InvalidRecord);
    assert_eq!(table.row("odd"), row);
}

#[tokio::test(start_paused = true)]
async fn a_reason_that_somebody_wrote_by_hand_counts_and_can_be_thawed() {
    let table = Table::new();
    let locks = table.process().locks("me");
    acquired(&locks, LEASE).await.release().await.unwrap();
    table.set("k", json!({ "freezeReason": { "S": "by hand" } }));
    assert_eq!(refused(&locks, "k").await.as_deref(), Some("by hand"));
    assert_eq!(locks.operator().thaw("k").await.unwrap(), ThawOutcome::Thawed);
    let _ = acquired(&locks, LEASE).await;
}

#[tokio::test(start_paused = true)]
async fn locks_behind_a_prefix_are_frozen_and_idempotent_work_behind_it_is_not() {
    let table = Table::new();
    let all = table.process().locks("operator");
    let blue = all.prefixed("blue/").unwrap();
    blue.operator().freeze("k", WHY).await.unwrap();
    assert_eq!(refused(&all, "blue/k").await.as_deref(), Some(WHY));
    all.operator().thaw("blue/k").await.unwrap();
    acquired(&blue, LEASE).await.release().await.unwrap();

    assert_eq!(blue.operator().freeze("once/w", WHY).await.unwrap_err().kind(), ErrorKind::InvalidRequest);
    assert_eq!(blue.operator().thaw("once/w").await.unwrap_err().kind(), ErrorKind::InvalidRequest);
    assert!(table.row("blue/once/w").is_none());
    let Started::Attempt(attempt) = blue.once("w").lease(LEASE).start::<u32>().await.unwrap() else { panic!("done") };
    let row = table.row("blue/once/w");
    let error = all.operator().freeze("blue/once/w", WHY).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidRecord, "only its row tells what it is");
    assert!(error.to_string().contains("of idempotent work"), "{error}");
    assert_eq!(table.row("blue/once/w"), row);
    attempt.complete(&1_u32).await.unwrap();
    all.operator().freeze("blue/once/w", WHY).await.unwrap_err();
}

/// Both read the row before either wrote it, and their clocks show the same millisecond.
#[tokio::test(start_paused = true)]
async fn two_operators_in_one_millisecond_do_not_take_the_change_of_the_other_for_their_own() {
    for thaws_last in [false, true] {
        let _case = case(format!("thaws last: {thaws_last}"));
        let table = Table::new();
        let (one, two) = (table.process(), table.process());
        let (freezes, thaws) = (one.locks("one"), two.locks("two"));
        freezes.operator().freeze("k", "before").await.unwrap();
        one.take_sent();
        one.next([Fault::None, Fault::Slow(millis(if thaws_last { 5 } else { 9 }))]);
        two.next([Fault::None, Fault::Slow(millis(if thaws_last { 9 } else { 5 }))]);

        let (frozen, thawed) = tokio::join!(freezes.operator().freeze("k", WHY), thaws.operator().thaw("k"));

        frozen.unwrap();
        thawed.unwrap();
        let operations = [one.take_operations(), two.take_operations()].map(|sent| sent.len());
        assert!(operations.contains(&4), "the slower one has to look again: {operations:?}");
        let reason = thaws.operator().peek("k").await.unwrap().unwrap().freeze_reason;
        assert_eq!(reason.as_deref(), (!thaws_last).then_some(WHY), "what was answered last counts");
    }
}

/// The holder of a set is the holder of each of its locks.
#[tokio::test(start_paused = true)]
async fn the_holder_of_a_set_reclaims_it_while_one_of_its_locks_is_frozen() {
    let table = Table::new();
    let (client, process) = (table.process().locks("operator"), table.process());
    let locks = process.locks("holder");
    let set = locks.acquire_all(["a", "b"]).owner("task").lease(LEASE).try_once().await.unwrap().granted().unwrap();
    client.operator().freeze("b", WHY).await.unwrap();
    process.take_sent();

    let saved = locks.reclaim_all(set.save()).lease(LEASE).await.unwrap().save();
    assert_eq!(process.take_operations(), ["TransactWriteItems"], "as if it were not frozen");
    let again = locks.acquire_all(["a", "b"]).owner("task").reclaim_own().lease(LEASE).try_once().await.unwrap();
    let again = again.granted().unwrap();
    assert_eq!(locks.resume_all(saved).await.unwrap_err().kind(), ErrorKind::Lost);
    again.release().await.unwrap();

    let tried = locks.acquire_all(["a", "b"]).owner("task").reclaim_own().lease(LEASE).try_once().await.unwrap();
    assert!(tried.granted().is_none(), "nobody holds it any more");
    let other = client.acquire("a").lease(LEASE).try_once();
    let other = granted(other).await;
    let Tried::Refused(_) = locks.acquire_all(["a", "b"]).lease(LEASE).try_once().await.unwrap() else {
        panic!("granted")
    };
    let error = locks.acquire_all(["a", "b"]).within(&Budget::lasting(millis(500))).await.unwrap_err();
    assert_eq!(error.refusals().len(), 2);
    other.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_broken_lock_stays_frozen() {
    let table = Table::new();
    let (client, other) = (table.process().locks("operator"), table.process().locks("other"));
    let mut lock = acquired(&table.process().locks("holder"), LEASE).await;
    client.operator().freeze("k", WHY).await.unwrap();
    let seen = client.operator().peek("k").await.unwrap().unwrap();
    client.operator().break_lock("k", &seen, "its host is gone").await.unwrap();
    assert!(lock.checkpoint().await.unwrap_err().is_lost());
    assert_eq!(refused(&other, "k").await.as_deref(), Some(WHY));
    client.operator().thaw("k").await.unwrap();
    assert!(acquired(&other, LEASE).await.fencing_token() > lock.fencing_token());
}

/// A freeze races with an acquire of a free lock. Either the acquire was first and holds the lock, or it is refused.
#[tokio::test(start_paused = true)]
async fn a_freeze_and_an_acquire_at_once_leave_one_holder_or_none() {
    let (mut held, mut refusals) = (0, 0);
    let table = Table::new();
    let (one, two) = (table.process(), table.process());
    let (client, callers) = (one.locks("operator"), two.locks("caller"));
    for round in 0..1000 {
        one.next([Fault::Slow(millis(round % 5)), Fault::Slow(millis(round % 7))]);
        two.next([Fault::Slow(millis(1 + round % 13))]);
        let budget = Budget::lasting(secs(30));
        let (frozen, tried) = tokio::join!(
            client.operator().freeze("k", WHY),
            callers.acquire("k").within(&budget).try_once().into_future()
        );
        frozen.unwrap();
        match tried.unwrap() {
            Tried::Granted(mut lock) => {
                held += 1;
                lock.checkpoint().await.unwrap();
                assert_eq!(refused(&client, "k").await.as_deref(), Some(WHY));
                lock.release().await.unwrap();
            }
            Tried::Refused(seen) => {
                refusals += 1;
                assert_eq!(seen.freeze_reason.as_deref(), Some(WHY), "round {round}");
            }
        }
        assert!(table.is_released("k"));
        client.operator().thaw("k").await.unwrap();
    }
    assert!(held > 50 && refusals > 50, "{held} held, {refusals} refused");
}

/// Its first request arrives when the row is another one.
#[tokio::test(start_paused = true)]
async fn a_freeze_whose_first_request_had_no_response_is_unknown_whatever_comes_next() {
    let table = Table::new();
    let operator = table.process();
    let lock = acquired(&table.process().locks("holder"), LEASE).await;
    let denied = vec![Fault::error("AccessDeniedException"); 9];
    operator.next([Fault::None, Fault::ArrivesLate(secs(5)), Fault::None].into_iter().chain(denied));
    let client = operator.locks("operator");
    let freezes = client.operator().freeze("k", WHY);

    let (frozen, released) = tokio::join!(freezes.into_future(), async {
        sleep(millis(500)).await;
        table.delete("k");
        lock.release().await
    });

    released.unwrap();
    let error = frozen.unwrap_err();
    assert!(error.is_unknown(), "{error}");
    let _ = acquired(&table.process().locks("next"), LEASE).await.save();
    sleep(secs(5)).await;
    assert_eq!(refused(&table.process().locks("other"), "k").await.as_deref(), Some(WHY));
}
