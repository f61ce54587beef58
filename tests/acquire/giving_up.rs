//! Giving up in line: a caller says that nobody needs to wait for it any more.

use crate::LEASE;
use crate::line::How::{BetweenCalls, InTurn, OutOfTurn, Usual};
use crate::line::{GRACE, in_line, stage, tickets, turn, waits};
use lambda_lock::ErrorKind;
use lambda_lock_testkit::{Fault, Table, acquired, case, millis, secs};
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

/// The tickets of those who have given up. DynamoDB has no empty set.
fn left(table: &Table) -> Vec<u64> {
    let row = table.row("k").unwrap();
    let Some(list) = row.get("leftTickets") else { return Vec::new() };
    let mut left: Vec<u64> =
        list["NS"].as_array().unwrap().iter().map(|one| one.as_str().unwrap().parse().unwrap()).collect();
    assert!(!left.is_empty());
    left.sort_unstable();
    left
}

/// Two in line. The first one's time is over after three seconds, and the lock is released three seconds later.
#[tokio::test(start_paused = true)]
async fn who_gives_up_says_so_and_the_next_one_gets_the_free_lock_at_once() {
    for (how, last_request, is_told) in [
        (InTurn, Fault::None, true),
        (Usual, Fault::None, true),
        (InTurn, Fault::AnswerLost, true),
        // Otherwise it is waited for as one that is gone.
        (InTurn, Fault::throttled(), false),
        (InTurn, Fault::RequestLost, false),
        (BetweenCalls, Fault::None, false),
    ] {
        let _case = case(format!("{how:?}, {last_request:?}"));
        let (table, [holder, one, two, ..]) = stage();
        let lock = acquired(&holder.locks("holder"), LEASE).await;
        let gives_up = waits(&one, how, secs(3));
        sleep(millis(500)).await;
        let next = in_line(&two);
        sleep(millis(2_499)).await;
        // The last look comes before.
        one.next([Fault::None, last_request]);
        let error = gives_up.await.unwrap().unwrap_err();
        let held = error.refusal().unwrap();
        let expected = if how == BetweenCalls { (Some(1), 2) } else { (None, 1) };
        assert_eq!((held.observation.ticket(), held.waiting), expected);
        assert_eq!(left(&table), &[1][..usize::from(is_told)]);

        sleep(secs(3)).await;
        lock.release().await.unwrap();
        let released = Instant::now();
        let lock = turn(next).await;
        let elapsed = released.elapsed();
        let expected = if is_told { Duration::ZERO..millis(280) } else { GRACE..GRACE + millis(700) };
        assert!(expected.contains(&elapsed), "{elapsed:?}");
        assert_eq!((tickets(&table), left(&table)), ((2, 2), vec![]));
        lock.release().await.unwrap();
    }
}

/// The lock is released while the first one in line still has half a second, but no request of it has a response any more.
#[tokio::test(start_paused = true)]
async fn who_fails_before_a_free_lock_says_so_too() {
    for (fault, kind, is_told) in [
        (Fault::throttled(), ErrorKind::Unavailable, true),
        (Fault::RequestLost, ErrorKind::Unknown, true),
        (Fault::throttled(), ErrorKind::Unavailable, false),
        (Fault::RequestLost, ErrorKind::Unknown, false),
    ] {
        let _case = case(format!("{fault:?}, is told: {is_told}"));
        let (table, [holder, one, two, ..]) = stage();
        let lock = acquired(&holder.locks("holder"), LEASE).await;
        let fails = waits(&one, InTurn, secs(3));
        sleep(millis(500)).await;
        let next = in_line(&two);
        sleep(secs(2)).await;
        lock.release().await.unwrap();
        let released = Instant::now();
        // It still sees that the lock is free.
        one.next(std::iter::once(Fault::None).chain(vec![fault; 100]));
        sleep(millis(490)).await;
        if is_told {
            one.clear();
        }
        assert_eq!(fails.await.unwrap().unwrap_err().kind(), kind);
        assert_eq!(left(&table), &[1][..usize::from(is_told)]);
        one.clear();
        let lock = turn(next).await;
        let elapsed = released.elapsed();
        let expected = if is_told { millis(490)..millis(1_100) } else { GRACE..GRACE + millis(700) };
        assert!(expected.contains(&elapsed), "{elapsed:?}");
        lock.release().await.unwrap();
    }
}

/// Many at the same moment.
#[tokio::test(start_paused = true)]
async fn after_all_have_given_up_whoever_comes_is_granted_the_lock_at_once() {
    for (how, callers) in [(InTurn, 1), (Usual, 1), (InTurn, 3), (Usual, 3), (InTurn, 100), (Usual, 40)] {
        let _case = case(format!("{how:?}, {callers}"));
        let (table, [holder, other, rest @ ..]) = stage();
        let lock = acquired(&holder.locks("holder"), LEASE).await;
        let give_up = rest.iter().cycle().take(callers).map(|process| waits(process, how, secs(2))).collect::<Vec<_>>();
        for caller in give_up {
            assert!(caller.await.unwrap().unwrap_err().is_held());
        }
        assert_eq!(left(&table), (1..=callers as u64).collect::<Vec<_>>());
        lock.release().await.unwrap();

        let lock = acquired(&other.locks("other"), LEASE).await;

        // A Claim that is refused, and a Take.
        assert_eq!(other.take_operations(), ["UpdateItem", "UpdateItem"]);
        let callers = callers as u64;
        assert_eq!((tickets(&table), left(&table)), ((callers, callers), vec![]));
        lock.release().await.unwrap();
        acquired(&other.locks("other"), LEASE).await.release().await.unwrap();
        assert_eq!(other.take_operations().len(), 3, "there is no line any more");
    }
}

#[tokio::test(start_paused = true)]
async fn whoever_comes_after_all_have_given_up_passes_nobody_who_has_just_joined() {
    let (table, [holder, one, other, ..]) = stage();
    let lock = acquired(&holder.locks("holder"), LEASE).await;
    assert!(waits(&one, InTurn, secs(2)).await.unwrap().unwrap_err().is_held());
    lock.release().await.unwrap();
    // Its Claim shows that the first one has left. Its Take is late.
    other.next([Fault::None, Fault::Slow(millis(50))]);
    let locks = other.locks("other");
    let tried = tokio::spawn(async move { locks.acquire("k").lease(LEASE).try_once().await });
    sleep(millis(20)).await;
    table.set("k", json!({"lastTicket": {"N": "2"}}));

    let tried = tried.await.unwrap().unwrap();

    assert!(tried.refused().is_some_and(|held| held.left_to_line && held.waiting == 1), "{tried:?}");
    assert_eq!((tickets(&table), left(&table)), ((2, 0), vec![1]));
}

#[tokio::test(start_paused = true)]
async fn the_requests_of_a_wait_that_is_given_up() {
    for (how, wait, writes, most_reads) in [
        // Claim, Join and Leave. The pauses grow to a quarter of a second.
        (InTurn, secs(3), 3, 24),
        (Usual, secs(3), 3, 26),
        (BetweenCalls, secs(3), 2, 24),
        // Without a ticket there is none to give up.
        (Usual, millis(900), 1, 12),
        (OutOfTurn, secs(3), 1, 26),
    ] {
        let _case = case(format!("{how:?}, {wait:?}"));
        let (table, [holder, one, ..]) = stage();
        let lock = acquired(&holder.locks("holder"), LEASE).await;
        assert!(waits(&one, how, wait).await.unwrap().unwrap_err().is_held());
        let sent = one.take_sent();
        let reads = sent.iter().filter(|sent| sent.operation == "GetItem").count();
        assert_eq!(sent.len() - reads, writes);
        assert!((most_reads / 2..=most_reads).contains(&reads), "{reads} reads");
        lock.release().await.unwrap();
        if writes == 3 {
            acquired(&one.locks("one"), LEASE).await.release().await.unwrap();
            assert!(!table.replay(sent.last().unwrap()), "a late copy comes to nothing");
            assert_eq!((tickets(&table), left(&table)), ((1, 1), vec![]));
        }
    }
}

/// Most of them give up. Otherwise their tickets would keep the lock from everybody for seconds after each release.
#[tokio::test(start_paused = true)]
async fn callers_with_short_patience_leave_a_lock_in_use() {
    for (how, patience) in [(Usual, 300), (Usual, 1_200), (InTurn, 1_200), (Usual, 3_000), (InTurn, 3_000)] {
        let (table, processes) = stage();
        let granted = Arc::new(AtomicU32::new(0));
        let mut callers = JoinSet::new();
        for caller in 0..600 {
            let (process, granted) = (processes[caller % processes.len()].clone(), Arc::clone(&granted));
            callers.spawn(async move {
                let Ok(lock) = waits(&process, how, millis(patience)).await.unwrap() else { return };
                granted.fetch_add(1, Ordering::Relaxed);
                sleep(millis(200)).await;
                lock.release().await.unwrap();
            });
            sleep(millis(100)).await;
        }
        while callers.join_next().await.is_some() {}
        // One holder after the other could have it 300 times in that minute.
        let granted = granted.load(Ordering::Relaxed);
        assert!(granted >= 200, "{how:?}, {patience} ms: {granted} grants, {} tickets", tickets(&table).0);
    }
}
