//! Waiting in line: who is granted the lock next, what a turn costs, and what becomes of tickets that nobody comes for.

use crate::LEASE;
use lambda_lock::Lock;
use lambda_lock_testkit::{Fault, Process, ROUND_TRIP, Table, acquired, case, granted, millis, secs, until};
use serde_json::json;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Instant, sleep};

/// Waits in line for the lock in the background, and returns its name and the lock.
fn waiting(process: &Process, name: &'static str) -> JoinHandle<(&'static str, Lock)> {
    let (locks, budget) = (process.locks(name), process.budget(secs(600)).reserve(secs(1)));
    tokio::spawn(async move { (name, locks.acquire("k").within(&budget).lease(LEASE).in_turn().await.unwrap()) })
}

/// The same without a word about the line.
fn waiting_by_default(process: &Process) -> JoinHandle<Lock> {
    let (locks, budget) = (process.locks("waiter"), process.budget(secs(600)).reserve(secs(1)));
    tokio::spawn(async move { locks.acquire("k").within(&budget).lease(LEASE).await.unwrap() })
}

/// The last ticket, 0 where none was ever given.
fn last_ticket(table: &Table) -> u64 {
    table.attribute("k", "lastTicket").map_or(0, |last| last.parse().unwrap())
}

/// A table, and five processes.
fn stage() -> (Table, [Process; 5]) {
    let table = Table::new();
    let processes = [(); 5].map(|()| table.process());
    (table, processes)
}

/// Turns of two callers that take this long each, so that the row tells for how long holders hold the lock.
async fn with_known_times(holder: &Process, one: &Process, turn: Duration) {
    for _ in 0..6 {
        let lock = acquired(&holder.locks("holder"), LEASE).await;
        let waiter = waiting(one, "one");
        sleep(turn).await;
        lock.release().await.unwrap();
        let (_, lock) = waiter.await.unwrap();
        sleep(turn).await;
        lock.release().await.unwrap();
    }
}

fn tickets(table: &Table) -> (u64, u64) {
    (table.number("k", "lastTicket"), table.number("k", "servedTicket"))
}

#[tokio::test(start_paused = true)]
async fn those_in_line_are_granted_the_lock_in_the_order_in_which_they_came() {
    let (table, [holder, one, two, three, four]) = stage();
    let lock = acquired(&holder.locks("holder"), LEASE).await;
    let mut line = Vec::new();
    for (process, name) in [(&one, "one"), (&two, "two"), (&three, "three"), (&four, "four")] {
        line.push(waiting(process, name));
        sleep(millis(100)).await;
    }
    assert_eq!(tickets(&table), (4, 0));
    sleep(secs(2)).await;
    lock.release().await.unwrap();

    for (waiter, name) in line.into_iter().zip(["one", "two", "three", "four"]) {
        let (granted, lock) = waiter.await.unwrap();
        assert_eq!(granted, name);
        sleep(millis(700)).await;
        lock.release().await.unwrap();
    }
    assert_eq!(tickets(&table), (4, 4));
}

#[tokio::test(start_paused = true)]
async fn by_default_a_ticket_is_taken_behind_a_holder_of_25_ms_and_soon_behind_a_new_one() {
    for (held_for, at_first) in [(millis(30), 1), (Duration::ZERO, 0)] {
        let (table, [holder, waiter, ..]) = stage();
        let lock = acquired(&holder.locks("holder"), LEASE).await;
        sleep(held_for).await;
        let waiter = waiting_by_default(&waiter);
        sleep(ROUND_TRIP * 5 / 2).await;
        assert_eq!(last_ticket(&table), at_first, "{held_for:?}");
        sleep(millis(400)).await;
        assert_eq!(last_ticket(&table), 1, "{held_for:?}");
        lock.release().await.unwrap();
        waiter.await.unwrap().release().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn by_default_a_ticket_is_taken_at_once_where_holders_usually_hold_the_lock_for_long() {
    for (turn, taken) in [(millis(800), 1), (millis(30), 0)] {
        let (table, [holder, one, waiter, ..]) = stage();
        with_known_times(&holder, &one, turn).await;
        let before = last_ticket(&table);
        let lock = acquired(&holder.locks("holder"), LEASE).await;
        let waiter = waiting_by_default(&waiter);
        sleep(ROUND_TRIP * 5 / 2).await;
        assert_eq!(last_ticket(&table) - before, taken, "{turn:?}");
        lock.release().await.unwrap();
        waiter.await.unwrap().release().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn by_default_no_ticket_is_taken_behind_fast_holders_for_a_second() {
    let (table, [holder, process, ..]) = stage();
    drop(acquired(&holder.locks("holder"), LEASE).await.save());
    let waiter = waiting_by_default(&process);
    let began = Instant::now();
    for turn in 0.. {
        // Each look finds another holder, who has just been granted the lock.
        let ends = process.clock.wall_millis() + 20_000;
        let token = 1_760_000_000_001_u64 + turn;
        table.set("k", json!({"fencingToken": {"N": token.to_string()}, "leaseEndsAt": {"N": ends.to_string()}}));
        sleep(millis(1)).await;
        if last_ticket(&table) > 0 {
            break;
        }
        assert!(began.elapsed() < secs(2), "nobody is passed for longer");
    }
    assert!(began.elapsed() >= secs(1), "{:?}", began.elapsed());
    waiter.abort();
}

#[tokio::test(start_paused = true)]
async fn behind_a_holder_of_the_usual_time_a_turn_takes_one_request_for_the_ticket_and_no_look() {
    let (table, [holder, one, ..]) = stage();
    with_known_times(&holder, &one, millis(800)).await;
    assert_eq!(table.number("k", "heldMillis") / 100, 8);

    let lock = acquired(&holder.locks("holder"), LEASE).await;
    one.take_sent();
    let waiter = waiting(&one, "one");
    sleep(millis(800)).await;
    lock.release().await.unwrap();
    let released = Instant::now();
    let (_, lock) = waiter.await.unwrap();
    assert!(released.elapsed() <= ROUND_TRIP * 5, "{:?}", released.elapsed());
    lock.release().await.unwrap();
    // Claim, ticket, a look or a Claim in turn or two, and the release.
    let sent = one.take_operations();
    assert!(sent.len() <= 6, "{sent:?}");
}

#[tokio::test(start_paused = true)]
async fn a_lock_that_nobody_waits_for_has_no_line_and_costs_two_requests() {
    let (table, [process, ..]) = stage();
    let lock = acquired(&process.locks("one"), LEASE).await;
    lock.release().await.unwrap();
    assert_eq!(process.take_operations(), ["UpdateItem", "UpdateItem"]);
    for name in ["lastTicket", "servedTicket", "heldMillis", "heldSpread"] {
        assert_eq!(table.attribute("k", name), None, "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_try_leaves_a_free_lock_to_those_in_line() {
    let (table, [holder, one, other, ..]) = stage();
    let lock = acquired(&holder.locks("holder"), LEASE).await;
    let waiter = waiting(&one, "one");
    sleep(secs(1)).await;
    // The waiter is on its way to its next look, and the lock is free.
    table.set("k", json!({"isReleased": {"S": "1"}, "leaseEndsAt": {"N": other.clock.wall_millis().to_string()}}));

    let tried = other.locks("other").try_acquire("k").lease(LEASE).await.unwrap();

    let held = tried.held().expect("it is refused");
    assert_eq!(held.waiting, 1);
    assert!(held.retry_after <= secs(4) + millis(1), "{:?}", held.retry_after);
    drop(lock);
    let (_, lock) = waiter.await.unwrap();
    lock.release().await.unwrap();
    granted(other.locks("other").try_acquire("k").lease(LEASE)).await.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_refused_caller_does_not_count_itself_among_those_who_wait() {
    let (_, [holder, one, other, ..]) = stage();
    let lock = acquired(&holder.locks("holder"), LEASE).await;
    let refused = async |process: &Process| {
        let budget = process.budget(secs(4)).reserve(Duration::ZERO);
        let refused = process.locks("caller").acquire("k").within(&budget).lease(LEASE).in_turn().await.unwrap_err();
        (refused.held().unwrap().observation.ticket().is_some(), refused.to_string())
    };
    let (has_ticket, said) = refused(&one).await;
    assert!(has_ticket && !said.contains("in line"), "{said}");
    let (has_ticket, said) = refused(&other).await;
    assert!(has_ticket && said.contains("and 1 caller waits in line"), "{said}");
    // In whole milliseconds: no text has more digits than anybody needs.
    let digits = said.rsplit("at most ").next().unwrap().trim_end_matches('s').rsplit('.').next().unwrap();
    assert!(digits.len() <= 3, "{said}");
    lock.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_ticket_that_nobody_comes_for_keeps_others_from_the_lock_once_and_for_two_seconds() {
    let (table, [holder, gone, other, ..]) = stage();
    let lock = acquired(&holder.locks("holder"), LEASE).await;
    let waiter = waiting(&gone, "gone");
    sleep(secs(1)).await;
    waiter.abort();
    lock.release().await.unwrap();
    assert_eq!(tickets(&table), (1, 0));

    let refused = other.locks("other").try_acquire("k").lease(LEASE).await.unwrap();
    assert!(refused.held().is_some_and(|held| held.waiting == 1), "{refused:?}");
    // Clocks may differ by two seconds.
    sleep(secs(4) + millis(100)).await;
    granted(other.locks("other").try_acquire("k").lease(LEASE)).await.release().await.unwrap();

    assert_eq!(tickets(&table), (1, 1), "the release says that nobody waits");
    granted(other.locks("other").try_acquire("k").lease(LEASE)).await.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_waiter_that_is_gone_is_passed_after_its_slot() {
    let (table, [holder, gone, next, last, _]) = stage();
    let lock = acquired(&holder.locks("holder"), LEASE).await;
    let waiter = waiting(&gone, "gone");
    sleep(millis(100)).await;
    let (next, last) = (waiting(&next, "next"), {
        sleep(millis(100)).await;
        waiting(&last, "last")
    });
    sleep(millis(800)).await;
    waiter.abort();
    let released = Instant::now();
    lock.release().await.unwrap();

    let (_, lock) = next.await.unwrap();
    assert!(released.elapsed() <= millis(1_900), "{:?}", released.elapsed());
    assert_eq!(tickets(&table), (3, 2), "the ticket of the one that is gone is passed");
    lock.release().await.unwrap();
    last.await.unwrap().1.release().await.unwrap();
    assert_eq!(tickets(&table), (3, 3));
}

#[tokio::test(start_paused = true)]
async fn who_acquires_out_of_turn_does_not_look_at_the_line() {
    let (table, [holder, one, other, ..]) = stage();
    let lock = acquired(&holder.locks("holder"), LEASE).await;
    let waiter = waiting(&one, "one");
    sleep(secs(1)).await;
    table.set("k", json!({"isReleased": {"S": "1"}, "leaseEndsAt": {"N": other.clock.wall_millis().to_string()}}));
    let passes = granted(other.locks("other").try_acquire("k").lease(LEASE).out_of_turn()).await;
    drop(lock);
    assert_eq!(tickets(&table), (1, 0));
    passes.release().await.unwrap();
    assert_eq!(tickets(&table), (1, 0), "it knows nothing of those in line, so they are still in it");
    waiter.await.unwrap().1.release().await.unwrap();
}

/// Its attributes make a Claim of others a Take.
#[tokio::test(start_paused = true)]
async fn whoever_takes_a_deserted_lock_ends_the_line_with_its_grant() {
    let (table, [holder, gone, other, ..]) = stage();
    let lock = granted(holder.locks("holder").try_acquire("k").lease(LEASE).attribute("job", "nightly")).await;
    let waiter = waiting(&gone, "gone");
    sleep(secs(1)).await;
    waiter.abort();
    lock.release().await.unwrap();
    sleep(secs(4) + millis(100)).await;

    let lock = granted(other.locks("other").try_acquire("k").lease(LEASE)).await;

    assert_eq!(tickets(&table), (1, 1));
    drop(lock);
}

#[tokio::test(start_paused = true)]
async fn a_holder_reclaims_its_own_lock_whoever_is_in_line() {
    let (_table, [holder, one, ..]) = stage();
    let locks = holder.locks("holder");
    let task = || locks.try_acquire("k").lease(LEASE).owner("task").reclaim_own();
    let first = granted(task()).await;
    let waiter = waiting(&one, "one");
    sleep(secs(1)).await;

    let second = granted(task()).await;
    let third = locks.reclaim(second.save()).lease(LEASE).await.unwrap();

    assert!(third.fencing_token() > first.fencing_token());
    third.release().await.unwrap();
    waiter.await.unwrap().1.release().await.unwrap();
    drop(first);
}

#[tokio::test(start_paused = true)]
async fn a_dead_holder_is_taken_over_by_the_first_in_line() {
    for by_wall_clock in [true, false] {
        let _case = case(format!("by wall clock: {by_wall_clock}"));
        let (table, [holder, one, two, other, _]) = stage();
        let _ = granted(holder.locks("dead").try_acquire("k").lease(secs(3))).await.save();
        let in_line = |process: &Process, name: &'static str| {
            let builder = process.builder().owner(name);
            let builder = if by_wall_clock { builder } else { builder.without_wall_clock_takeover() };
            let (locks, budget) = (builder.build().unwrap(), process.budget(secs(600)).reserve(secs(1)));
            tokio::spawn(async move { locks.acquire("k").within(&budget).lease(LEASE).in_turn().await.unwrap() })
        };
        let first = in_line(&one, "first");
        sleep(millis(100)).await;
        let second = in_line(&two, "second");
        let lock = first.await.unwrap();
        let newcomer = other.locks("other").try_acquire("k").lease(LEASE).await.unwrap();
        assert!(newcomer.held().is_some_and(|held| held.waiting == 1), "{newcomer:?}");
        assert_eq!(tickets(&table), (2, 1));
        lock.release().await.unwrap();
        second.await.unwrap().release().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn tickets_of_a_row_that_was_deleted_or_that_another_client_wrote_are_void() {
    for deleted in [true, false] {
        let _case = case(format!("deleted: {deleted}"));
        let (table, [holder, one, ..]) = stage();
        let lock = acquired(&holder.locks("holder"), LEASE).await;
        let waiter = waiting(&one, "one");
        sleep(secs(1)).await;
        if deleted {
            table.delete("k");
        } else {
            table.put_java_row("k", "v1", secs(1));
        }
        let (_, next) = waiter.await.unwrap();
        assert_eq!(table.attribute("k", "servedTicket").filter(|_| deleted), None);
        next.release().await.unwrap();
        drop(lock);
    }
}

#[tokio::test(start_paused = true)]
async fn who_had_a_ticket_takes_a_new_one_when_the_counters_are_gone() {
    let (table, [holder, one, other, ..]) = stage();
    let lock = acquired(&holder.locks("holder"), LEASE).await;
    let waiter = waiting(&one, "one");
    sleep(millis(200)).await;
    assert_eq!(tickets(&table), (1, 0));
    table.delete("k");
    let next = acquired(&other.locks("other"), LEASE).await;
    sleep(secs(3)).await;
    assert_eq!(tickets(&table), (1, 0));
    next.release().await.unwrap();
    waiter.await.unwrap().1.release().await.unwrap();
    drop(lock);
}

/// When a row is deleted, or another client has dropped the counters, they begin again. An old ticket may then seem to be
/// next, although it was not given.
#[tokio::test(start_paused = true)]
async fn a_claim_in_turn_is_applied_once_and_only_with_a_ticket_that_was_given() {
    let (table, [holder, one, ..]) = stage();
    with_known_times(&holder, &one, millis(800)).await;
    let sent = one.take_sent();
    let claim = sent.iter().rfind(|sent| sent.body.contains("servedTicket = :before")).expect("a Claim in turn");
    let set = |last: u64, served: u64, released: u64| {
        let [last, served, ends] = [last, served, released].map(|number| json!({ "N": number.to_string() }));
        let released = json!({"S": "1"});
        table
            .set("k", json!({"lastTicket": last, "servedTicket": served, "leaseEndsAt": ends, "isReleased": released}));
    };
    let (last, served) = tickets(&table);
    assert_eq!((last, served), (6, 6));

    assert!(!table.replay(claim), "it was served");
    set(5, 5, 1_000);
    assert!(!table.replay(claim), "the ticket was not given");
    set(6, 5, u64::MAX / 2);
    assert!(!table.replay(claim), "a late copy, after a newer release");
    set(6, 5, 1_000);
    assert!(table.replay(claim));
}

/// Counters that no client of this crate writes.
#[tokio::test(start_paused = true)]
async fn impossible_counters_delay_callers_and_keep_nobody_from_the_lock() {
    let most = u64::MAX.to_string();
    for (last, served) in
        [("5", None), ("0", None), ("3", Some("9")), (most.as_str(), Some("0")), (&most, Some(&*most))]
    {
        for released in [true, false] {
            let _case = case(format!("{last}, {served:?}, released: {released}"));
            let (table, [holder, one, two, ..]) = stage();
            let _ = granted(holder.locks("dead").try_acquire("k").lease(secs(1))).await.save();
            table.set("k", json!({"lastTicket": {"N": last}, "heldMillis": {"N": most}, "heldSpread": {"N": most}}));
            if let Some(served) = served {
                table.set("k", json!({"servedTicket": {"N": served}}));
            }
            if released {
                table.set("k", json!({"isReleased": {"S": "1"}}));
            }
            let started = Instant::now();
            let budget = one.budget(secs(60)).reserve(secs(1));
            let lock = one.locks("one").acquire("k").within(&budget).lease(LEASE).in_turn().await.unwrap();
            lock.release().await.unwrap();
            assert!(started.elapsed() < secs(12), "{:?}", started.elapsed());
            let writes = one.take_counts().remove("UpdateItem").unwrap_or_default();
            assert!(writes <= 12, "{writes} writes, {last} {served:?} {released}");
            drop(two);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_was_passed_is_granted_the_lock_soon_whoever_comes() {
    let (table, [holder, one, passed, ..]) = stage();
    with_known_times(&holder, &one, millis(500)).await;
    let lock = acquired(&holder.locks("holder"), LEASE).await;
    let passed = waiting(&passed, "passed");
    sleep(millis(20)).await;
    let (last, _) = tickets(&table);
    table.set("k", json!({"servedTicket": {"N": last.to_string()}}));
    // Newcomers keep the lock busy, and one of them is always the first in line.
    let newcomers = [(); 3].map(|()| {
        let process = table.process();
        tokio::spawn(async move {
            loop {
                let lock = waiting(&process, "newcomer").await.unwrap().1;
                sleep(millis(500)).await;
                lock.release().await.unwrap();
            }
        })
    });
    sleep(millis(480)).await;
    lock.release().await.unwrap();
    let released = Instant::now();
    let (_, lock) = passed.await.unwrap();
    assert!(released.elapsed() < secs(4), "{:?}", released.elapsed());
    for newcomer in newcomers {
        newcomer.abort();
    }
    lock.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn when_the_first_in_line_is_gone_the_next_one_comes_within_slots_and_not_within_turns() {
    let (_table, [holder, gone, next, ..]) = stage();
    with_known_times(&holder, &gone, millis(500)).await;
    let lock = acquired(&holder.locks("holder"), LEASE).await;
    let dies = waiting(&gone, "gone");
    sleep(millis(50)).await;
    let next = waiting(&next, "next");
    sleep(millis(50)).await;
    dies.abort();
    sleep(millis(400)).await;
    lock.release().await.unwrap();
    let released = Instant::now();
    let (_, lock) = next.await.unwrap();
    assert!(released.elapsed() < millis(350), "{:?}", released.elapsed());
    lock.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_lock_that_is_frozen_and_has_a_line_is_looked_at_as_seldom_as_any_frozen_lock() {
    let (_table, [holder, one, two, ..]) = stage();
    with_known_times(&holder, &one, millis(500)).await;
    let locks = holder.locks("holder");
    let lock = acquired(&locks, LEASE).await;
    let line = [waiting(&one, "one"), waiting(&two, "two")];
    sleep(millis(100)).await;
    locks.freeze("k", "a migration").await.unwrap();
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
    locks.thaw("k").await.unwrap();
    for waiter in line {
        waiter.await.unwrap().1.release().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn the_first_in_line_finds_a_lock_that_is_released_much_earlier_than_usual() {
    let (table, [holder, one, ..]) = stage();
    with_known_times(&holder, &one, millis(500)).await;
    let lock = acquired(&holder.locks("holder"), secs(900)).await;
    table.set("k", json!({"heldMillis": {"N": "240000"}, "heldSpread": {"N": "1000"}}));
    let waiter = waiting(&one, "one");
    sleep(secs(1)).await;
    let released = Instant::now();
    lock.release().await.unwrap();
    waiter.await.unwrap().1.release().await.unwrap();
    assert!(released.elapsed() <= secs(61), "{:?}", released.elapsed());
}

#[tokio::test(start_paused = true)]
async fn behind_holders_whose_times_vary_the_first_in_line_is_passed_by_nobody() {
    for after in [3, 7, 12, 20] {
        let (table, [holder, one, two, ..]) = stage();
        with_known_times(&holder, &one, millis(500)).await;
        let lock = acquired(&holder.locks("holder"), secs(900)).await;
        table.set("k", json!({"heldMillis": {"N": "100000"}, "heldSpread": {"N": "60000"}}));
        let first = waiting(&one, "one");
        sleep(millis(100)).await;
        let second = waiting(&two, "two");
        sleep(secs(after)).await;
        let released = Instant::now();
        lock.release().await.unwrap();
        let (_, lock) = first.await.unwrap();
        assert!(released.elapsed() < secs(1), "{:?}", released.elapsed());
        lock.release().await.unwrap();
        second.await.unwrap().1.release().await.unwrap();
        assert_eq!(table.number("k", "servedTicket"), table.number("k", "lastTicket"));
    }
}

/// Callers with clients of their own come at once. Returns the tickets in the order in which they were served, and the times
/// from the release of the one to the grant of the next.
async fn burst(random: u64, work: Duration, in_turn: bool) -> (Vec<u64>, Vec<Duration>) {
    fastrand::seed(random);
    let table = Table::new();
    let turns = Arc::new(Mutex::new(Vec::new()));
    let mut callers = JoinSet::new();
    for _ in 0..8 {
        let (process, table, turns) = (table.process(), table.clone(), Arc::clone(&turns));
        process.set_latency(millis(5));
        callers.spawn(async move {
            let (locks, budget) = (process.locks("caller"), process.budget(secs(600)).reserve(secs(1)));
            let acquire = locks.acquire("k").within(&budget).lease(LEASE);
            let lock = if in_turn { acquire.in_turn().await } else { acquire.await }.unwrap();
            let served = table.attribute("k", "servedTicket").map_or(0, |ticket| ticket.parse().unwrap());
            let granted = Instant::now();
            sleep(work).await;
            turns.lock().unwrap().push((served, granted, Instant::now()));
            lock.release().await.unwrap();
        });
    }
    callers.join_all().await;
    let turns = Arc::into_inner(turns).unwrap().into_inner().unwrap();
    let hand_overs = turns.windows(2).map(|turns| turns[1].1.duration_since(turns[0].2)).collect();
    (turns.into_iter().map(|turn| turn.0).collect(), hand_overs)
}

/// The row of a new lock does not tell how long turns take.
#[tokio::test(start_paused = true)]
async fn in_a_burst_on_a_new_lock_nobody_in_line_is_passed_and_most_come_soon_after_a_release() {
    for work in [100, 270, 300, 400, 500, 700].map(millis) {
        for (in_turn, bursts) in [(true, 24), (false, 8)] {
            let mut hand_overs = Vec::new();
            for random in 0..bursts {
                let (served, times) = burst(random, work, in_turn).await;
                assert_eq!(served, [0, 1, 2, 3, 4, 5, 6, 7], "{random}, {work:?}, in turn: {in_turn}");
                hand_overs.extend(times);
            }
            hand_overs.sort();
            let median = hand_overs[hand_overs.len() / 2];
            assert!(median < millis(25), "{work:?}, in turn: {in_turn}: {median:?}");
        }
    }
}

/// Otherwise their tickets would keep the lock from everybody for seconds after each release.
#[tokio::test(start_paused = true)]
async fn callers_that_cannot_be_served_in_time_take_no_ticket() {
    let (table, processes) = stage();
    let granted = Arc::new(AtomicUsize::new(0));
    let mut callers = JoinSet::new();
    for caller in 0..600 {
        let (process, granted) = (processes[caller % processes.len()].clone(), Arc::clone(&granted));
        callers.spawn(async move {
            let (locks, budget) = (process.locks("caller"), process.budget(millis(300)));
            let Ok(lock) = locks.acquire("k").within(&budget).lease(LEASE).await else { return };
            granted.fetch_add(1, Ordering::Relaxed);
            sleep(millis(200)).await;
            lock.release().await.unwrap();
        });
        sleep(millis(100)).await;
    }
    while callers.join_next().await.is_some() {}
    // One holder after the other could have it 300 times in that minute.
    let granted = granted.load(Ordering::Relaxed);
    assert!(granted >= 240, "{granted} grants, {} tickets", table.number("k", "lastTicket"));
}

#[tokio::test(start_paused = true)]
async fn a_wall_clock_that_is_set_back_keeps_nobody_from_a_free_lock() {
    let (_table, [holder, gone, other, ..]) = stage();
    let lock = acquired(&holder.locks("holder"), LEASE).await;
    let dies = waiting(&gone, "gone");
    sleep(millis(100)).await;
    let waiter = waiting(&other, "other");
    sleep(millis(300)).await;
    dies.abort();
    other.take_sent();
    lock.release().await.unwrap();
    let released = Instant::now();
    until("the other one looks", || !other.take_sent().is_empty()).await;
    sleep(millis(10)).await;
    other.clock.jump_wall(-300_000);
    waiter.await.unwrap().1.release().await.unwrap();
    assert!(released.elapsed() < secs(5), "{:?}", released.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_late_holder_is_looked_at_by_reads() {
    let (_table, [holder, one, ..]) = stage();
    with_known_times(&holder, &one, millis(500)).await;
    let lock = acquired(&holder.locks("holder"), secs(600)).await;
    let waiter = waiting(&one, "one");
    sleep(millis(600)).await;
    one.take_sent();
    sleep(secs(60)).await;
    let counts = one.take_counts();
    assert!(counts.get("UpdateItem").copied().unwrap_or_default() <= 5, "{counts:?}");
    assert!((200..=300).contains(&counts["GetItem"]), "{counts:?}");
    lock.release().await.unwrap();
    waiter.await.unwrap().1.release().await.unwrap();
}

/// Where holders hold the lock for regular times, a look before the usual time is mostly a request too many.
#[tokio::test(start_paused = true)]
async fn the_first_in_line_looks_before_the_usual_time_only_where_the_times_vary() {
    for (spread, least, most) in [("400", 0, 270), ("200", 340, 370)] {
        let (table, [holder, one, ..]) = stage();
        with_known_times(&holder, &one, millis(500)).await;
        let lock = acquired(&holder.locks("holder"), LEASE).await;
        table.set("k", json!({"heldMillis": {"N": "1000"}, "heldSpread": {"N": spread}}));
        let waiter = waiting(&one, "one");
        sleep(millis(650)).await;
        let released = Instant::now();
        lock.release().await.unwrap();
        waiter.await.unwrap().1.release().await.unwrap();
        let elapsed = released.elapsed();
        assert!((millis(least)..millis(most)).contains(&elapsed), "{spread}: {elapsed:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_first_in_line_is_there_when_a_holder_takes_the_usual_time() {
    for spread in ["0", "200", "300", "600"] {
        for random in 0..8 {
            fastrand::seed(random);
            let (table, [holder, one, ..]) = stage();
            with_known_times(&holder, &one, millis(500)).await;
            holder.set_latency(millis(5));
            one.set_latency(millis(5));
            let lock = acquired(&holder.locks("holder"), LEASE).await;
            table.set("k", json!({"heldMillis": {"N": "1000"}, "heldSpread": {"N": spread}}));
            let waiter = waiting(&one, "one");
            // The time of a holder counts from before its request.
            sleep(millis(994)).await;
            let released = Instant::now();
            lock.release().await.unwrap();
            waiter.await.unwrap().1.release().await.unwrap();
            assert!(released.elapsed() < millis(50), "{spread}, {random}: {:?}", released.elapsed());
        }
    }
}

/// As the first request on a new connection.
#[tokio::test(start_paused = true)]
async fn one_slow_response_makes_nobody_late_afterwards() {
    for (spread, slow, late) in [("20", 200, 0), ("20", 400, 0), ("150", 400, 0), ("20", 200, 40), ("20", 400, 40)] {
        for random in 0..4 {
            fastrand::seed(random);
            let (table, [holder, one, two, ..]) = stage();
            with_known_times(&holder, &one, millis(500)).await;
            [&holder, &one, &two].into_iter().for_each(|process| process.set_latency(millis(5)));
            let lock = acquired(&holder.locks("holder"), LEASE).await;
            table.set("k", json!({"heldMillis": {"N": "1000"}, "heldSpread": {"N": spread}}));
            one.next([Fault::Slow(millis(slow))]);
            let first = waiting(&one, "one");
            sleep(millis(slow + 100)).await;
            let second = waiting(&two, "two");
            sleep(millis(894 - slow + late)).await;
            let released = Instant::now();
            lock.release().await.unwrap();
            let (_, lock) = first.await.unwrap();
            assert!(released.elapsed() < millis(80), "{spread}, {slow}, {late}, {random}: {:?}", released.elapsed());
            lock.release().await.unwrap();
            second.await.unwrap().1.release().await.unwrap();
        }
    }
}

/// Its place counts for more than its connection.
#[tokio::test(start_paused = true)]
async fn a_slow_response_costs_no_place_far_behind() {
    for slow_ones in [[400, 0], [150, 0], [0, 300]] {
        for random in 0..3 {
            fastrand::seed(random);
            let (_table, processes) = stage();
            with_known_times(&processes[0], &processes[1], millis(500)).await;
            processes.iter().for_each(|process| process.set_latency(millis(5)));
            let served = Arc::new(Mutex::new(Vec::new()));
            let mut callers = JoinSet::new();
            for caller in 0..12 {
                let process = if caller == 5 { &processes[0] } else { &processes[1 + caller % 4] };
                if caller == 5 {
                    process.next(slow_ones.map(|slow| if slow == 0 { Fault::None } else { Fault::Slow(millis(slow)) }));
                }
                let (locks, budget, served) =
                    (process.locks("caller"), process.budget(secs(60)).reserve(secs(1)), Arc::clone(&served));
                callers.spawn(async move {
                    let lock = locks.acquire("k").within(&budget).lease(LEASE).in_turn().await.unwrap();
                    served.lock().unwrap().push(caller);
                    sleep(millis(500)).await;
                    lock.release().await.unwrap();
                });
                // So that its ticket is the sixth, although one of its requests is slow.
                sleep(millis(if caller == 5 { 420 } else { 5 })).await;
            }
            callers.join_all().await;
            let served = served.lock().unwrap().clone();
            assert_eq!(served[5], 5, "{slow_ones:?}, {random}: {served:?}");
        }
    }
}

/// Whatever somebody has written into the row by hand.
#[tokio::test(start_paused = true)]
async fn no_row_makes_a_caller_in_line_look_without_a_pause() {
    let forever = u64::MAX.to_string();
    let year = (366_u64 * 24 * 60 * 60 * 1_000).to_string();
    for (lease, end) in
        [("20000", None), ("20000", Some("0")), ("31622400000", Some("future")), (&*forever, Some("future"))]
    {
        for token in [true, false] {
            for mean in ["0", "20", "31622399999", &year, &forever] {
                for spread in ["0", "100", &forever] {
                    let (table, [holder, one, ..]) = stage();
                    one.set_latency(millis(5));
                    let _lock = acquired(&holder.locks("holder"), secs(600)).await;
                    let waiter = waiting(&one, "one");
                    sleep(millis(50)).await;
                    let mut row = table.row("k").unwrap();
                    row["leaseDuration"] = json!({"S": lease});
                    row["heldMillis"] = json!({"N": mean});
                    row["heldSpread"] = json!({"N": spread});
                    match end {
                        Some("0") => row["leaseEndsAt"] = json!({"N": "0"}),
                        Some(_) => {}
                        None => drop(row.as_object_mut().unwrap().remove("leaseEndsAt")),
                    }
                    if !token {
                        row.as_object_mut().unwrap().remove("fencingToken");
                    }
                    table.put(row);
                    one.take_sent();
                    sleep(secs(4)).await;
                    let sent = one.take_sent().len();
                    assert!(sent < 40, "{lease}, {end:?}, {token}, {mean}, {spread}: {sent} in 4 s");
                    waiter.abort();
                }
            }
        }
    }
}

/// One time alone does not tell that times are regular.
#[tokio::test(start_paused = true)]
async fn behind_the_second_holder_in_line_the_next_one_is_there_soon_however_long_the_first_one_took() {
    for held in [60_000, 60_001, 60_002, 60_003].map(millis) {
        let (table, [holder, one, two, three, _]) = stage();
        let lock = acquired(&holder.locks("holder"), LEASE).await;
        let (locks, budget) = (one.locks("one"), one.budget(secs(600)).reserve(secs(1)));
        let first = tokio::spawn(async move {
            let lock = locks.acquire("k").within(&budget).lease(secs(300)).in_turn().await.unwrap();
            sleep(held).await;
            lock.release().await.unwrap();
        });
        sleep(millis(100)).await;
        lock.release().await.unwrap();
        sleep(secs(1)).await;
        let second = waiting(&two, "two");
        first.await.unwrap();
        let (_, lock) = second.await.unwrap();
        let times = ["heldMillis", "heldSpread"].map(|name| table.attribute("k", name));
        let third = waiting(&three, "three");
        sleep(secs(1)).await;
        let released = Instant::now();
        lock.release().await.unwrap();
        third.await.unwrap().1.release().await.unwrap();
        assert!(released.elapsed() < secs(1), "{held:?}, {times:?}: {:?}", released.elapsed());
    }
}

#[tokio::test(start_paused = true)]
async fn a_free_lock_that_is_left_to_the_line_is_not_said_to_be_held_by_who_held_it_last() {
    let table = Table::new();
    let process = table.process();
    let locks = process.locks("me");
    let lock = granted(locks.try_acquire("k").owner("task").lease(secs(20))).await;
    let gone = table.process().locks("gone").try_acquire("k").lease(secs(5)).between_calls().await.unwrap();
    assert!(gone.held().is_some_and(|held| !held.left_to_line), "the lock is held");
    lock.release().await.unwrap();

    let budget = process.budget(millis(300)).reserve(secs(0));
    let error = locks.acquire("k").owner("task").reclaim_own().within(&budget).await.unwrap_err();
    assert!(error.held().unwrap().left_to_line);
    assert!(error.to_string().contains("the lock k is held by nobody, and left to the callers"), "{error}");
    let chain = locks.acquire_all(["j", "k"]).owner("task").within(&process.budget(millis(300)).reserve(secs(0)));
    let error = chain.in_order().await.unwrap_err();
    assert!(error.to_string().contains("the lock k is held by nobody, and left to the callers"), "{error}");

    // A dead holder's lock is nobody's either.
    let _dead = locks.try_acquire("d").owner("task").lease(secs(5)).await.unwrap();
    let _ = table.process().locks("gone").try_acquire("d").lease(secs(5)).between_calls().await.unwrap();
    sleep(millis(7_100)).await;
    let refused = locks.try_acquire("d").lease(secs(5)).await.unwrap();
    assert!(refused.held().unwrap().left_to_line);
}
