//! A lock that an operator breaks.

use crate::LEASE;
use lambda_lock::once::Started;
use lambda_lock::{Budget, Error, ErrorKind, ReleaseOutcome};
use lambda_lock_testkit::{Fault, Table, acquired, case, granted, millis, peeked};
use tokio::time::sleep;

#[tokio::test(start_paused = true)]
async fn a_broken_lock_is_free_and_its_holder_learns_that_it_lost_it() {
    let table = Table::new();
    let (holder, operator) = (table.process(), table.process());
    let mut lock = granted(holder.locks("holder").acquire("k").lease(LEASE).workflow("arn:1").try_once()).await;
    let client = operator.locks("operator");
    let seen = peeked(&client, "k").await;
    operator.take_sent();

    assert_eq!(client.operator().break_lock("k", &seen, "its host is gone").await.unwrap(), ReleaseOutcome::Released);

    assert_eq!(operator.take_operations(), ["UpdateItem"]);
    assert!(table.is_released("k"));
    assert_eq!(table.attribute("k", "workflow"), None);
    assert!(lock.checkpoint().await.unwrap_err().is_lost());
    let next = acquired(&client, LEASE).await;
    assert!(next.fencing_token() > lock.fencing_token());
    let row = client.operator().peek("k").await.unwrap().unwrap();
    assert_eq!(row.break_reason.as_deref(), Some("its host is gone"), "it stays for those who read the row later");
    assert!(row.attributes.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_late_copy_of_its_acquire_does_not_undo_the_break_of_an_operator_whose_clock_is_behind() {
    let table = Table::new();
    let (holder, operator) = (table.process(), table.process());
    let _lock = acquired(&holder.locks("holder"), LEASE).await;
    let sent = holder.take_sent();
    operator.clock.jump_wall(-400);
    let client = operator.locks("operator");
    client.operator().break_lock("k", &peeked(&client, "k").await, "its host is gone").await.unwrap();
    assert!(!table.replay(&sent[0]));
    assert!(table.is_released("k"));
}

#[tokio::test(start_paused = true)]
async fn whoever_releases_a_lock_that_was_broken_learns_that_it_was_lost() {
    let table = Table::new();
    let (holder, client) = (table.process(), table.process().locks("operator"));
    let holders = holder.locks("holder");
    let before = acquired(&holders, LEASE).await.save();
    let mut lock = holders.resume(before.clone()).await.unwrap();
    lock.checkpoint().await.unwrap();
    let after = lock.save();
    client.operator().break_lock("k", &peeked(&client, "k").await, "its host is gone").await.unwrap();
    // As often as it asks, also with what it saved before a renewal, and where it cannot read.
    for saved in [&after, &before, &after] {
        assert_eq!(holders.release(saved.clone()).await.unwrap(), ReleaseOutcome::AlreadyGone);
    }
    assert!(holder.take_operations().iter().all(|operation| operation != "GetItem"));
    assert!(table.is_released("k"));
    // A release that is repeated is none of a broken lock, also where the one before was broken.
    let next = acquired(&holders, LEASE).await.save();
    for _ in 0..2 {
        assert_eq!(holders.release(next.clone()).await.unwrap(), ReleaseOutcome::Released);
    }
}

/// The row of its grant proves that no release came before the break.
#[tokio::test(start_paused = true)]
async fn work_whose_lock_was_broken_has_lost_it_also_where_its_release_had_no_response_at_first() {
    for fault in Fault::not_applied().into_iter().map(Some).chain([None]) {
        let _case = case(format!("{fault:?}"));
        let table = Table::new();
        let (holder, client) = (table.process(), table.process().locks("operator"));
        let holders = holder.locks("holder");
        let budget = Budget::lasting(LEASE);
        let work = holders.acquire("k").lease(LEASE).within(&budget).await.unwrap().run(async |_| {
            client.operator().break_lock("k", &peeked(&client, "k").await, "its host is gone").await?;
            holder.next(fault);
            Ok::<_, Error>(())
        });
        let ended = work.await.unwrap_err();
        assert!(ended.is_lost(), "{ended}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_lock_that_was_released_meanwhile_is_free_and_says_nothing_of_a_break() {
    let table = Table::new();
    let locks = table.process().locks("me");
    let lock = acquired(&locks, LEASE).await;
    let seen = peeked(&locks, "k").await;
    lock.release().await.unwrap();

    assert_eq!(locks.operator().break_lock("k", &seen, "too late").await.unwrap(), ReleaseOutcome::Released);

    assert_eq!(locks.operator().peek("k").await.unwrap().unwrap().break_reason, None);
}

#[tokio::test(start_paused = true)]
async fn a_late_copy_of_a_break_changes_nothing() {
    let table = Table::new();
    let (holder, operator) = (table.process(), table.process());
    let holders = holder.locks("holder");
    let lock = acquired(&holders, LEASE).await;
    let client = operator.locks("operator");
    let seen = peeked(&client, "k").await;
    operator.take_sent();
    client.operator().break_lock("k", &seen, "gone").await.unwrap();
    let sent = operator.take_sent();
    let _ = lock.save();

    assert!(!table.replay(&sent[0]), "while the lock is free");
    let mut next = acquired(&holders, LEASE).await;
    assert!(!table.replay(&sent[0]), "while the next holder has it");
    next.checkpoint().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_attempt_at_idempotent_work_can_be_seen_and_broken() {
    let table = Table::new();
    let locks = table.process().locks("me");
    let once = || locks.once("order-9").owner("host-a").lease(LEASE);
    let Started::Attempt(attempt) = once().start::<()>().await.unwrap() else { panic!("it has an outcome") };
    let seen = peeked(&locks, "once/order-9").await;
    assert_eq!(seen.holder, "host-a");

    assert_eq!(locks.operator().break_lock("once/order-9", &seen, "gone").await.unwrap(), ReleaseOutcome::Released);

    let Started::Attempt(next) = once().start::<()>().await.unwrap() else { panic!("it has an outcome") };
    assert!(attempt.complete(&()).await.unwrap_err().is_lost());
    next.complete(&()).await.unwrap();
    assert!(locks.operator().peek("once/order-9").await.unwrap().is_none(), "work that has an outcome is no lock");
}

#[tokio::test(start_paused = true)]
async fn a_break_needs_a_reason_and_a_key() {
    let table = Table::new();
    let locks = table.process().locks("me");
    acquired(&locks, LEASE).await.release().await.unwrap();
    let (long, seen) = ("r".repeat(2049), peeked(&locks, "k").await);
    for (key, reason, named) in [("k", "", "reason"), ("k", long.as_str(), "reason"), ("", "gone", "key")] {
        let error = locks.operator().break_lock(key, &seen, reason).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidRequest);
        assert!(error.to_string().contains(named), "{error}");
    }
}

/// Renewals and releases race with breaks. Never are both applied, and nobody else's lock is broken.
#[tokio::test(start_paused = true)]
async fn a_break_and_a_renewal_or_a_release_are_never_both_applied() {
    let (mut broken, mut renewed, mut released, mut late, mut lost) = (0, 0, 0, 0, 0);
    let table = Table::new();
    let (holder, operator) = (table.process(), table.process());
    for round in 0..1000 {
        table.delete("k");
        let mut lock = acquired(&holder.locks("holder"), LEASE).await;
        let client = operator.locks("operator");
        let seen = peeked(&client, "k").await;
        // Both requests are under way at once, and reach the table in either order.
        holder.next([Fault::Slow(millis(1 + round % 7))]);
        operator.next([Fault::Slow(millis(1 + round % 5 * if round % 2 == 0 { 1 } else { 3 }))]);
        let breaking = client.operator().break_lock("k", &seen, "gone");
        if round % 2 == 0 {
            let (renewal, outcome) = tokio::join!(async { lock.checkpoint().await }, breaking);
            let is_broken = outcome.unwrap() == ReleaseOutcome::Released;
            assert_eq!(renewal.is_err(), is_broken, "round {round}");
            assert_eq!(table.is_released("k"), is_broken, "round {round}");
            if is_broken {
                broken += 1
            } else {
                renewed += 1
            }
            let _ = lock.save();
        } else {
            let next = async {
                let outcome = lock.release().await.unwrap();
                sleep(millis(round % 3)).await;
                (outcome, acquired(&holder.locks("the next"), LEASE).await)
            };
            let ((outcome, mut next), other) = tokio::join!(next, breaking);
            next.checkpoint().await.unwrap();
            assert_eq!(table.attribute("k", "ownerName").as_deref(), Some(next.owner()), "round {round}");
            let other = other.unwrap();
            // A holder whose release came after the break learns that it was lost.
            lost += u32::from(outcome == ReleaseOutcome::AlreadyGone);
            assert!(outcome == ReleaseOutcome::Released || other == ReleaseOutcome::Released, "round {round}");
            // What the next holder got stays, also where the break came after its grant.
            match other {
                ReleaseOutcome::Released => released += 1,
                ReleaseOutcome::AlreadyGone => late += 1,
            }
        }
    }
    assert!(broken > 50 && renewed > 50, "{broken} broken, {renewed} renewed");
    assert!(released > 50 && late > 50, "{released} before the next grant, {late} after it");
    assert!(lost > 50 && lost < released, "{lost} broken before their release, {released} before the next grant");
}

#[tokio::test(start_paused = true)]
async fn a_broken_java_holder_learns_it_at_its_next_heartbeat() {
    let table = Table::new();
    let process = table.process();
    let locks = process.locks("operator");
    for lost in [false, true] {
        let _case = case(if lost { "the response is lost" } else { "broken" });
        table.put_java_row("k", "java-1", LEASE);
        let seen = peeked(&locks, "k").await;
        process.next(lost.then_some(Fault::AnswerLost));

        assert_eq!(
            locks.operator().break_lock("k", &seen, "its host is gone").await.unwrap(),
            ReleaseOutcome::Released
        );

        assert!(table.is_released("k"));
        // What AmazonDynamoDBLockClient.sendHeartbeat sends.
        let heartbeat = serde_json::json!({
            "TableName": "locks", "Key": {"key": {"S": "k"}},
            "ConditionExpression": "attribute_exists(#k) AND ownerName = :owner AND recordVersionNumber = :rvn",
            "UpdateExpression": "SET recordVersionNumber = :next, leaseDuration = :lease",
            "ExpressionAttributeNames": {"#k": "key"},
            "ExpressionAttributeValues": {
                ":owner": {"S": "a-java-host"}, ":rvn": {"S": "java-1"}, ":next": {"S": "java-2"}, ":lease": {"S": "20000"},
            },
        });
        assert_ne!(table.carry_out("UpdateItem", &heartbeat.to_string()).0, 200, "its heart beats on");
        acquired(&locks, LEASE).await.release().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_break_keeps_the_ttl_of_idempotent_work() {
    let table = Table::new();
    let process = table.process();
    let locks = process.builder().owner("me").ttl_attribute("expiresAt").ttl_retention(LEASE).build().unwrap();
    let started = locks.once("order").keep_for(1_000 * LEASE).lease(LEASE).start::<u8>().await.unwrap();
    let Started::Attempt(attempt) = started else { panic!("{started:?}") };
    let seen = peeked(&locks, "once/order").await;

    assert_eq!(locks.operator().break_lock("once/order", &seen, "gone").await.unwrap(), ReleaseOutcome::Released);

    assert!(table.number("once/order", "expiresAt") * 1000 >= table.number("once/order", "keptUntilAt"));
    drop(attempt);
}
