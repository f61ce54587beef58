//! Waiting in line: who takes a ticket, who is granted the lock next, and when those who do not come are passed.

use crate::LEASE;
use lambda_lock::{Error, Lock};
use lambda_lock_testkit::{Process, ROUND_TRIP, Table, acquired, case, granted, millis, secs, until};
use serde_json::{Value, json};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Instant, sleep, timeout};

/// For how long a free lock is left to one ahead, beside the time until the next look.
pub(crate) const GRACE: Duration = millis(2_000);
/// For how long a released lock is left to others by callers that ask once: the difference of two clocks, and the longest grace.
const DESERTED: Duration = millis(5_500);

/// What a caller says about the line.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum How {
    Usual,
    InTurn,
    BetweenCalls,
    OutOfTurn,
}
use How::{BetweenCalls, InTurn, OutOfTurn, Usual};

/// A caller that waits in the background.
pub(crate) type Waiter = JoinHandle<Result<Lock, Error>>;

/// Waits for the lock, for this long at most.
pub(crate) fn waits(process: &Process, how: How, wait: Duration) -> Waiter {
    let (locks, budget) = (process.locks("waiter"), process.budget(wait).reserve(Duration::ZERO));
    tokio::spawn(async move {
        let acquire = locks.acquire("k").within(&budget).lease(LEASE);
        let acquire = match how {
            Usual => acquire,
            InTurn => acquire.in_turn(),
            BetweenCalls => acquire.between_calls(),
            OutOfTurn => acquire.out_of_turn(),
        };
        acquire.await
    })
}

/// Waits in line for longer than any test needs.
pub(crate) fn in_line(process: &Process) -> Waiter {
    waits(process, InTurn, secs(600))
}

/// The lock of a caller that is granted it.
pub(crate) async fn turn(waiter: Waiter) -> Lock {
    waiter.await.unwrap().unwrap()
}

async fn takes_its_turn(waiter: Waiter) {
    turn(waiter).await.release().await.unwrap();
}

/// A table, and five processes.
pub(crate) fn stage() -> (Table, [Process; 5]) {
    let table = Table::new();
    let processes = [(); 5].map(|()| table.process());
    (table, processes)
}

/// The last ticket and the last one that was served, 0 where none was ever given.
pub(crate) fn tickets(table: &Table) -> (u64, u64) {
    let number = |name| table.attribute("k", name).map_or(0, |number| number.parse().unwrap());
    (number("lastTicket"), number("servedTicket"))
}

#[tokio::test(start_paused = true)]
async fn those_in_line_are_granted_the_lock_in_the_order_of_their_tickets() {
    let (table, [holder, rest @ ..]) = stage();
    let lock = acquired(&holder.locks("holder"), LEASE).await;
    let mut line = Vec::new();
    for process in &rest {
        line.push(in_line(process));
        sleep(millis(100)).await;
    }
    assert_eq!(tickets(&table), (4, 0));
    sleep(secs(2)).await;
    lock.release().await.unwrap();
    for (ticket, waiter) in (1..).zip(line) {
        let lock = turn(waiter).await;
        assert_eq!(tickets(&table), (4, ticket));
        sleep(millis(700)).await;
        lock.release().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn who_takes_a_ticket_behind_a_holder_and_when() {
    for (how, wait, at_the_first_look, soon) in [
        (Usual, secs(60), 0, 1),
        (Usual, millis(990), 0, 0),
        (InTurn, secs(60), 1, 1),
        (InTurn, millis(1_010), 1, 1),
        (InTurn, millis(990), 0, 0),
        (BetweenCalls, millis(100), 1, 1),
        (OutOfTurn, secs(60), 0, 0),
    ] {
        let _case = case(format!("{how:?}, {wait:?}"));
        let (table, [holder, waiter, ..]) = stage();
        let _lock = acquired(&holder.locks("holder"), LEASE).await;
        let waiter = waits(&waiter, how, wait);
        sleep(ROUND_TRIP * 5 / 2).await;
        assert_eq!(tickets(&table).0, at_the_first_look);
        sleep(millis(200)).await;
        assert_eq!(tickets(&table).0, soon);
        waiter.abort();
    }
}

#[tokio::test(start_paused = true)]
async fn behind_fast_holders_a_ticket_is_taken_after_a_second_where_a_second_is_left() {
    for (wait, taken) in [(secs(60), 1), (millis(1_900), 0)] {
        let _case = case(format!("{wait:?}"));
        let (table, [holder, process, ..]) = stage();
        drop(acquired(&holder.locks("holder"), LEASE).await.save());
        let waiter = waits(&process, Usual, wait);
        let began = Instant::now();
        for turn in 0..1_800 {
            // Each look finds another holder.
            let version = format!("ll1-{turn:032x}-0199d6a4c8000123456789abcdef");
            table.set("k", json!({"recordVersionNumber": {"S": version}}));
            sleep(millis(1)).await;
            if tickets(&table).0 > 0 {
                assert!(began.elapsed() >= secs(1), "{:?}", began.elapsed());
                break;
            }
        }
        assert_eq!(tickets(&table).0, taken);
        waiter.abort();
    }
}

#[tokio::test(start_paused = true)]
async fn a_lock_that_nobody_waits_for_has_no_line_and_costs_two_requests() {
    let (table, [process, ..]) = stage();
    acquired(&process.locks("one"), LEASE).await.release().await.unwrap();
    assert_eq!(process.take_operations(), ["UpdateItem", "UpdateItem"]);
    for name in ["lastTicket", "servedTicket", "lastSleeper", "leftTickets"] {
        assert_eq!(table.attribute("k", name), None, "{name}");
    }
}

/// What rows had before.
#[tokio::test(start_paused = true)]
async fn whoever_takes_a_ticket_removes_the_hold_times_of_old_rows() {
    for how in [Usual, InTurn, BetweenCalls] {
        let (table, [holder, one, ..]) = stage();
        let _lock = acquired(&holder.locks("holder"), LEASE).await;
        table.set("k", json!({"heldMillis": {"N": "480000"}, "heldSpread": {"N": "2000"}}));
        let waiter = waits(&one, how, secs(60));
        sleep(millis(200)).await;
        assert_eq!(
            (tickets(&table).0, ["heldMillis", "heldSpread"].map(|name| table.attribute("k", name))),
            (1, [None, None])
        );
        waiter.abort();
    }
}

#[tokio::test(start_paused = true)]
async fn a_try_leaves_a_free_lock_to_those_in_line() {
    let (table, [holder, one, other, ..]) = stage();
    let lock = acquired(&holder.locks("holder"), LEASE).await;
    let waiter = in_line(&one);
    sleep(secs(1)).await;
    // Nobody was given these.
    table.set("k", json!({"leftTickets": {"NS": ["2", "3", "99"]}}));
    // The waiter is on its way to its next look.
    lock.release().await.unwrap();

    let tried = other.locks("other").acquire("k").lease(LEASE).try_once().await.unwrap();

    let held = tried.refused().expect("it is refused");
    assert_eq!((held.waiting, held.observation.ticket(), tickets(&table)), (1, None, (1, 0)));
    assert!(held.retry_after <= DESERTED + millis(1), "{:?}", held.retry_after);
    takes_its_turn(waiter).await;
    acquired(&other.locks("other"), LEASE).await.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_refused_caller_does_not_count_itself_among_those_who_wait() {
    for how in [InTurn, BetweenCalls] {
        let (_, [holder, one, waiter, ..]) = stage();
        let lock = acquired(&holder.locks("holder"), LEASE).await;
        let refused = async || waits(&one, how, secs(2)).await.unwrap().unwrap_err().to_string();
        let said = refused().await;
        assert!(!said.contains("in line"), "{said}");
        let waiter = in_line(&waiter);
        let said = refused().await;
        // Who keeps its place between its calls and has forgotten it is one more.
        let others = if how == InTurn { "and 1 caller waits in line" } else { "and 2 callers wait in line" };
        assert!(said.contains(others), "{said}");
        // In whole milliseconds: no text has more digits than anybody needs.
        let digits = said.rsplit("at most ").next().unwrap().trim_end_matches('s').rsplit('.').next().unwrap();
        assert!(digits.len() <= 3, "{said}");
        lock.release().await.unwrap();
        takes_its_turn(waiter).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_ticket_that_nobody_comes_for_keeps_those_who_try_from_the_lock_once_and_for_seconds() {
    let (table, [holder, gone, other, ..]) = stage();
    let lock = acquired(&holder.locks("holder"), LEASE).await;
    let waiter = in_line(&gone);
    sleep(secs(1)).await;
    waiter.abort();
    lock.release().await.unwrap();
    let tries = async || other.locks("other").acquire("k").lease(LEASE).try_once().await.unwrap();

    for pause in [Duration::ZERO, DESERTED - millis(100)] {
        sleep(pause).await;
        let refused = tries().await;
        assert!(refused.refused().is_some_and(|held| held.waiting == 1), "{refused:?}");
    }
    sleep(millis(200)).await;
    let lock = tries().await.granted().unwrap();

    assert_eq!(tickets(&table), (1, 1), "the grant ends the line");
    lock.release().await.unwrap();
    tries().await.granted().unwrap().release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_waiter_that_is_gone_is_passed_after_its_grace() {
    let (table, [holder, gone, next, last, _]) = stage();
    let lock = acquired(&holder.locks("holder"), LEASE).await;
    let gone = in_line(&gone);
    sleep(millis(100)).await;
    let next = in_line(&next);
    sleep(millis(100)).await;
    let last = in_line(&last);
    sleep(millis(800)).await;
    gone.abort();
    lock.release().await.unwrap();
    let released = Instant::now();

    let lock = turn(next).await;
    // The grace counts from its first look.
    assert!((GRACE..GRACE + millis(700)).contains(&released.elapsed()), "{:?}", released.elapsed());
    assert_eq!(tickets(&table), (3, 2), "the ticket of the one that is gone is passed");
    lock.release().await.unwrap();
    takes_its_turn(last).await;
    assert_eq!(tickets(&table), (3, 3));
}

#[tokio::test(start_paused = true)]
async fn who_acquires_out_of_turn_does_not_look_at_the_line() {
    let (table, [holder, one, other, ..]) = stage();
    let lock = acquired(&holder.locks("holder"), LEASE).await;
    let waiter = in_line(&one);
    sleep(secs(1)).await;
    lock.release().await.unwrap();
    let passes = granted(other.locks("other").acquire("k").lease(LEASE).out_of_turn().try_once()).await;
    assert_eq!(tickets(&table), (1, 0));
    passes.release().await.unwrap();
    assert_eq!(tickets(&table), (1, 0), "it knows nothing of those in line, so they are still in it");
    takes_its_turn(waiter).await;
}

#[tokio::test(start_paused = true)]
async fn a_holder_reclaims_its_own_lock_whoever_is_in_line() {
    let (_table, [holder, one, ..]) = stage();
    let locks = holder.locks("holder");
    let task = || locks.acquire("k").lease(LEASE).owner("task").reclaim_own().try_once();
    let first = granted(task()).await;
    let waiter = in_line(&one);
    sleep(secs(1)).await;

    let second = granted(task()).await;
    let third = locks.reclaim(second.save()).lease(LEASE).await.unwrap();

    assert!(third.fencing_token() > first.fencing_token());
    third.release().await.unwrap();
    takes_its_turn(waiter).await;
}

#[tokio::test(start_paused = true)]
async fn a_dead_holder_is_taken_over_by_the_first_in_line() {
    for by_wall_clock in [true, false] {
        let _case = case(format!("by wall clock: {by_wall_clock}"));
        let (table, [holder, one, two, other, _]) = stage();
        let _ = granted(holder.locks("dead").acquire("k").lease(secs(3)).try_once()).await.save();
        let in_line = |process: &Process, name: &'static str| {
            let builder = process.builder().owner(name);
            let builder = if by_wall_clock { builder } else { builder.without_wall_clock_takeover() };
            let (locks, budget) = (builder.build().unwrap(), process.budget(secs(600)).reserve(secs(1)));
            tokio::spawn(async move { locks.acquire("k").within(&budget).lease(LEASE).in_turn().await })
        };
        let first = in_line(&one, "first");
        sleep(millis(100)).await;
        let second = in_line(&two, "second");
        let lock = turn(first).await;
        let newcomer = other.locks("other").acquire("k").lease(LEASE).try_once().await.unwrap();
        assert!(newcomer.refused().is_some_and(|held| held.waiting == 1), "{newcomer:?}");
        assert_eq!(tickets(&table), (2, 1));
        lock.release().await.unwrap();
        takes_its_turn(second).await;
    }
}

#[tokio::test(start_paused = true)]
async fn tickets_of_a_row_that_was_deleted_or_that_another_client_wrote_are_void() {
    for deleted in [true, false] {
        let _case = case(format!("deleted: {deleted}"));
        let (table, [holder, one, ..]) = stage();
        let _lock = acquired(&holder.locks("holder"), LEASE).await;
        let waiter = in_line(&one);
        sleep(secs(1)).await;
        if deleted {
            table.delete("k");
        } else {
            table.put_java_row("k", "v1", secs(1));
        }
        let next = turn(waiter).await;
        assert_eq!(table.attribute("k", "servedTicket"), None);
        next.release().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn who_had_a_ticket_takes_a_new_one_when_the_counters_are_gone() {
    let (table, [holder, one, other, ..]) = stage();
    let _lock = acquired(&holder.locks("holder"), LEASE).await;
    let waiter = in_line(&one);
    sleep(millis(200)).await;
    assert_eq!(tickets(&table), (1, 0));
    table.delete("k");
    let next = acquired(&other.locks("other"), LEASE).await;
    sleep(secs(3)).await;
    assert_eq!(tickets(&table), (1, 0));
    next.release().await.unwrap();
    takes_its_turn(waiter).await;
}

/// What somebody may have written instead of the tickets of those who have given up.
fn hostile_lists() -> Vec<Value> {
    let all = (1..=5_000).map(|ticket| ticket.to_string()).collect::<Vec<_>>();
    let of_another_type =
        [json!({"S": "1 2"}), json!({"N": "1"}), json!({"L": [{"N": "1"}]}), json!({"SS": ["1", "2"]})];
    let sets =
        [json!(all), json!(["1"]), json!(["2"]), json!(["301", "302", "999"]), json!(["-1", "7", "1.5", "1E+30"])];
    sets.into_iter().map(|set| json!({"NS": set})).chain(of_another_type).collect()
}

/// A line that no client of this crate writes.
#[tokio::test(start_paused = true)]
async fn impossible_lines_delay_callers_and_keep_nobody_from_the_lock() {
    let most = u64::MAX.to_string();
    let (most, none) = (most.as_str(), Value::Null);
    let counters = [("5", None), ("0", None), ("3", Some("9")), (most, Some("0")), (most, Some(most))];
    let lists = hostile_lists();
    let lists = lists.iter().map(|left| ("300", Some("0"), left));
    for (last, served, left) in counters.map(|(last, served)| (last, served, &none)).into_iter().chain(lists) {
        for released in [true, false] {
            let what = left.to_string().chars().take(60).collect::<String>();
            let _case = case(format!("{last}, {served:?}, {what}, released: {released}"));
            let (table, [holder, one, ..]) = stage();
            let _ = granted(holder.locks("dead").acquire("k").lease(secs(1)).try_once()).await.save();
            table.set("k", json!({"lastTicket": {"N": last}}));
            if let Some(served) = served {
                table.set("k", json!({"servedTicket": {"N": served}}));
            }
            if !left.is_null() {
                table.set("k", json!({"leftTickets": left}));
            }
            if released {
                table.set("k", json!({"isReleased": {"S": "1"}}));
            }
            let started = Instant::now();
            // One that gives up writes into that line too.
            match waits(&holder, InTurn, millis(1_500)).await.unwrap() {
                Ok(lock) => drop(lock.release().await.unwrap()),
                Err(error) => assert!(error.is_held(), "{error}"),
            }
            takes_its_turn(in_line(&one)).await;
            assert!(started.elapsed() < secs(14), "{:?}", started.elapsed());
            let writes = one.take_counts().remove("UpdateItem").unwrap_or_default();
            assert!(writes <= 12, "{writes} writes");
        }
    }
}

/// Nobody leaves the lock to it for ever: callers out of turn are granted the lock before the time for which it is left is over.
#[tokio::test(start_paused = true)]
async fn behind_one_that_is_gone_a_caller_has_its_turn_beside_callers_out_of_turn() {
    for pause in [200, 500, 1_000, 1_900] {
        let _case = case(format!("{pause}"));
        let (_table, [holder, gone, one, other, ..]) = stage();
        let lock = acquired(&holder.locks("holder"), LEASE).await;
        let gone = in_line(&gone);
        sleep(millis(100)).await;
        gone.abort();
        let waiter = in_line(&one);
        sleep(millis(100)).await;
        lock.release().await.unwrap();
        let traffic = tokio::spawn(async move {
            loop {
                sleep(millis(pause)).await;
                let lock = turn(waits(&other, OutOfTurn, secs(60))).await;
                sleep(millis(50)).await;
                lock.release().await.unwrap();
            }
        });
        timeout(secs(30), takes_its_turn(waiter)).await.expect("its turn comes");
        traffic.abort();
    }
}

/// Nor does a ticket that somebody else has listed as given up.
#[tokio::test(start_paused = true)]
async fn a_caller_that_was_passed_is_granted_the_lock_soon_whoever_comes() {
    for passed_by in [json!({"servedTicket": {"N": "1"}}), json!({"leftTickets": {"NS": ["1"]}})] {
        let (table, [holder, passed, newcomers @ ..]) = stage();
        let lock = acquired(&holder.locks("holder"), LEASE).await;
        let passed = in_line(&passed);
        sleep(millis(20)).await;
        table.set("k", passed_by);
        // They keep the lock busy, and one of them is always the first in line.
        let newcomers = newcomers.map(|process| {
            tokio::spawn(async move {
                loop {
                    let lock = turn(in_line(&process)).await;
                    sleep(millis(500)).await;
                    lock.release().await.unwrap();
                }
            })
        });
        sleep(millis(480)).await;
        lock.release().await.unwrap();
        let released = Instant::now();
        takes_its_turn(passed).await;
        assert!(released.elapsed() < secs(4), "{:?}", released.elapsed());
        newcomers.iter().for_each(JoinHandle::abort);
    }
}

#[tokio::test(start_paused = true)]
async fn a_lock_that_is_frozen_and_has_a_line_is_looked_at_as_seldom_as_any_frozen_lock() {
    let (_table, [holder, one, two, ..]) = stage();
    let locks = holder.locks("holder");
    let lock = acquired(&locks, LEASE).await;
    let line = [in_line(&one), in_line(&two)];
    sleep(millis(100)).await;
    locks.operator().freeze("k", "a migration").await.unwrap();
    lock.release().await.unwrap();
    sleep(secs(5)).await;
    one.take_sent();
    two.take_sent();
    sleep(secs(60)).await;
    for process in [&one, &two] {
        let counts = process.take_counts();
        assert_eq!(counts.get("UpdateItem"), None);
        assert!(counts["GetItem"] <= 600, "{counts:?}");
    }
    locks.operator().thaw("k").await.unwrap();
    for waiter in line {
        takes_its_turn(waiter).await;
    }
}

#[tokio::test(start_paused = true)]
async fn the_first_in_line_is_there_soon_after_a_release_however_long_the_lock_was_held() {
    for (held, most) in [(100, 60), (400, 130), (1_000, 280), (10_000, 280), (240_000, 280)] {
        let (_table, [holder, one, ..]) = stage();
        let lock = acquired(&holder.locks("holder"), secs(900)).await;
        let waiter = in_line(&one);
        sleep(millis(held)).await;
        lock.release().await.unwrap();
        let released = Instant::now();
        takes_its_turn(waiter).await;
        assert!(released.elapsed() < millis(most), "{held}: {:?}", released.elapsed());
    }
}

#[tokio::test(start_paused = true)]
async fn behind_a_holder_who_stays_the_first_in_line_looks_often_the_next_less_and_the_others_seldom() {
    let table = Table::new();
    let _lock = acquired(&table.process().locks("holder"), secs(600)).await;
    let line = [(); 6].map(|()| table.process());
    for process in &line {
        let _waiter = in_line(process);
        sleep(millis(100)).await;
    }
    sleep(secs(60)).await;
    line.iter().for_each(|process| drop(process.take_sent()));
    sleep(secs(60)).await;
    // Four times a second, five times in two seconds, and every five seconds.
    let (next, others) = (147..=160, 12..=13);
    let expected = [230..=255, next.clone(), next.clone(), next, others.clone(), others];
    for (place, (process, expected)) in line.iter().zip(expected).enumerate() {
        let counts = process.take_counts();
        assert_eq!(counts.keys().collect::<Vec<_>>(), ["GetItem"]);
        assert!(expected.contains(&counts["GetItem"]), "{place}: {counts:?}");
    }
}

/// Whatever somebody has written into the row by hand.
#[tokio::test(start_paused = true)]
async fn no_row_makes_a_caller_in_line_look_without_a_pause() {
    let forever = u64::MAX.to_string();
    let ends = [("20000", false), ("20000", true), ("31622400000", true), (&*forever, true)];
    for (lease, ends) in ends {
        for token in [true, false] {
            for left in hostile_lists() {
                let what = left.to_string().chars().take(60).collect::<String>();
                let _case = case(format!("{lease}, ends: {ends}, token: {token}, {what}"));
                let (table, [holder, one, ..]) = stage();
                one.set_latency(millis(5));
                let _lock = acquired(&holder.locks("holder"), secs(600)).await;
                let waiter = in_line(&one);
                sleep(millis(50)).await;
                let mut row = table.row("k").unwrap();
                row["leaseDuration"] = json!({"S": lease});
                row["leftTickets"] = left;
                for (name, _) in [("leaseEndsAt", ends), ("fencingToken", token)].iter().filter(|(_, stays)| !stays) {
                    row.as_object_mut().unwrap().remove(*name);
                }
                table.put(row);
                one.take_sent();
                sleep(secs(4)).await;
                let sent = one.take_sent().len();
                assert!((10..40).contains(&sent), "{sent} in 4 s");
                waiter.abort();
            }
        }
    }
}

/// Callers with clients of their own come at once. Returns the tickets in the order in which they were served, and the times
/// from the response to the release of the one to that to the grant of the next.
async fn burst(random: u64, work: Duration, how: How) -> (Vec<u64>, Vec<Duration>) {
    fastrand::seed(random);
    let table = Table::new();
    let turns = Arc::new(Mutex::new(Vec::new()));
    let mut callers = JoinSet::new();
    for _ in 0..8 {
        let (process, table, turns) = (table.process(), table.clone(), Arc::clone(&turns));
        process.set_latency(millis(5));
        callers.spawn(async move {
            let lock = turn(waits(&process, how, secs(600))).await;
            let (served, granted) = (tickets(&table).1, Instant::now());
            sleep(work).await;
            lock.release().await.unwrap();
            turns.lock().unwrap().push((served, granted, Instant::now()));
        });
    }
    callers.join_all().await;
    let turns = Arc::into_inner(turns).unwrap().into_inner().unwrap();
    let hand_overs = turns.windows(2).map(|turns| turns[1].1.duration_since(turns[0].2)).collect();
    (turns.into_iter().map(|turn| turn.0).collect(), hand_overs)
}

#[tokio::test(start_paused = true)]
async fn in_a_burst_nobody_in_line_is_passed_and_most_come_soon_after_a_release() {
    for work in [100, 300, 500, 700, 2_000].map(millis) {
        for how in [InTurn, Usual] {
            let mut hand_overs = Vec::new();
            for random in 0..10 {
                let (served, times) = burst(random, work, how).await;
                assert_eq!(served, [0, 1, 2, 3, 4, 5, 6, 7], "{random}, {work:?}, {how:?}");
                hand_overs.extend(times);
            }
            hand_overs.sort();
            let median = hand_overs[hand_overs.len() / 2];
            // A look and a Take, and half of a pause of the first in line.
            assert!(median <= millis(50).max(work / 10) + millis(10), "{work:?}, {how:?}: {median:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_wall_clock_that_is_set_back_keeps_nobody_from_a_free_lock() {
    let (_table, [holder, gone, other, ..]) = stage();
    let lock = acquired(&holder.locks("holder"), LEASE).await;
    let gone = in_line(&gone);
    sleep(millis(100)).await;
    let waiter = in_line(&other);
    sleep(millis(300)).await;
    gone.abort();
    other.take_sent();
    lock.release().await.unwrap();
    let released = Instant::now();
    until("the other one looks", || !other.take_sent().is_empty()).await;
    sleep(millis(10)).await;
    other.clock.jump_wall(-300_000);
    takes_its_turn(waiter).await;
    assert!(released.elapsed() < secs(3), "{:?}", released.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_free_lock_that_is_left_to_the_line_is_not_said_to_be_held_by_who_held_it_last() {
    let table = Table::new();
    let process = table.process();
    let locks = process.locks("me");
    let lock = granted(locks.acquire("k").owner("task").lease(secs(20)).try_once()).await;
    let gone = table.process().locks("gone").acquire("k").lease(secs(5)).between_calls().try_once().await.unwrap();
    assert!(gone.refused().is_some_and(|held| !held.left_to_line), "the lock is held");
    lock.release().await.unwrap();

    let budget = process.budget(millis(300)).reserve(secs(0));
    let error = locks.acquire("k").owner("task").reclaim_own().within(&budget).await.unwrap_err();
    assert!(error.refusal().unwrap().left_to_line);
    assert!(error.to_string().contains("the lock k is held by nobody, and left to the callers"), "{error}");
    let chain = locks.acquire_all(["j", "k"]).owner("task").within(&process.budget(millis(300)).reserve(secs(0)));
    let error = chain.in_order().await.unwrap_err();
    assert!(error.to_string().contains("the lock k is held by nobody, and left to the callers"), "{error}");

    // A dead holder's lock is nobody's either.
    let _dead = locks.acquire("d").owner("task").lease(secs(5)).try_once().await.unwrap();
    let _ = table.process().locks("gone").acquire("d").lease(secs(5)).between_calls().try_once().await.unwrap();
    sleep(millis(7_100)).await;
    let refused = locks.acquire("d").lease(secs(5)).try_once().await.unwrap();
    assert!(refused.refused().unwrap().left_to_line);
}
