//! Waiting in line between calls: the place is kept, and the release tells whose turn it is.

use crate::LEASE;
use lambda_lock::{Acquire, ErrorKind, Lock, LockClient, Observation, Refusal, ReleaseOutcome, Tried};
use lambda_lock_testkit::{Fault, Process, Table, acquired, granted, millis, secs};
use serde_json::json;
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// A table, and four processes.
fn stage() -> (Table, [Process; 4]) {
    let table = Table::new();
    let processes = [(); 4].map(|()| table.process());
    (table, processes)
}

/// Asks for the lock, and takes a place in line.
async fn asks(locks: &LockClient) -> Refusal {
    refused(locks.acquire("k").lease(LEASE).between_calls().try_once().await.unwrap())
}

/// Asks again with what the last refusal showed.
async fn asks_again(locks: &LockClient, seen: &Observation) -> Tried<Lock> {
    locks.acquire("k").lease(LEASE).between_calls().observation(seen.clone()).try_once().await.unwrap()
}

fn refused(tried: Tried<Lock>) -> Refusal {
    match tried {
        Tried::Granted(lock) => panic!("granted with token {}", lock.fencing_token()),
        Tried::Refused(held) => held,
    }
}

fn tickets(table: &Table) -> (u64, u64) {
    (table.number("k", "lastTicket"), table.number("k", "servedTicket"))
}

#[tokio::test(start_paused = true)]
async fn a_place_in_line_is_one_write_more_and_is_brought_back_by_one_look() {
    let (table, [holder, one, two, _]) = stage();
    let lock = acquired(&holder.locks("holder"), LEASE).await;
    let first = asks(&one.locks("one")).await;
    assert_eq!((one.take_operations(), first.observation.ticket()), (vec!["UpdateItem".to_owned(); 2], Some(1)));
    let second = asks(&two.locks("two")).await;
    assert_eq!((second.observation.ticket(), second.waiting), (Some(2), 2));
    assert_eq!(table.number("k", "lastSleeper"), 2);

    // A look before its turn is one read, and takes no other place.
    one.take_operations();
    let again = refused(asks_again(&one.locks("one"), &first.observation).await);
    assert_eq!((one.take_operations(), again.observation.ticket()), (vec!["GetItem".to_owned()], Some(1)));
    assert_eq!(tickets(&table), (2, 0));

    lock.release().await.unwrap();
    let early = refused(asks_again(&two.locks("two"), &second.observation).await);
    assert!(early.retry_after <= millis(5_501), "{:?}", early.retry_after);
    let lock = asks_again(&one.locks("one"), &again.observation).await.granted().unwrap();
    assert_eq!((one.take_operations(), tickets(&table)), (vec!["GetItem".to_owned(), "UpdateItem".to_owned()], (2, 1)));
    lock.release().await.unwrap();
    asks_again(&two.locks("two"), &early.observation).await.granted().unwrap().release().await.unwrap();
    assert_eq!(tickets(&table), (2, 2));
}

#[tokio::test(start_paused = true)]
async fn who_finds_the_lock_free_takes_no_place() {
    let (table, [one, ..]) = stage();
    for _ in 0..2 {
        granted(one.locks("one").acquire("k").lease(LEASE).between_calls().try_once()).await.release().await.unwrap();
    }
    assert_eq!(table.attribute("k", "lastTicket"), None);
}

#[tokio::test(start_paused = true)]
async fn a_release_tells_whose_turn_it_is_while_somebody_sleeps() {
    let (table, [holder, one, ..]) = stage();
    let (locks, sleeper) = (holder.locks("holder"), one.locks("one"));
    let lock = acquired(&locks, LEASE).await;
    assert_eq!(lock.release().with_sleeper().await.unwrap(), (ReleaseOutcome::Released, None));

    let lock = acquired(&locks, LEASE).await;
    let held = asks(&sleeper).await;
    let saved = lock.save();
    // The second time its caller has died before it could wake anybody.
    for _ in 0..2 {
        holder.take_operations();
        let (outcome, next) = locks.release(saved.clone()).with_sleeper().await.unwrap();
        let next = next.unwrap();
        assert_eq!((outcome, next.key.key(), next.ticket, next.last), (ReleaseOutcome::Released, "k", 1, 1));
        assert_eq!(holder.take_operations().len(), 1);
    }
    let row = locks.operator().peek("k").await.unwrap().unwrap();
    assert!(row.is_turn_of(1), "{row:?}");
    let lock = asks_again(&sleeper, &held.observation).await.granted().unwrap();
    assert!(!locks.operator().peek("k").await.unwrap().unwrap().is_turn_of(1), "it is held");
    assert_eq!(lock.release().with_sleeper().await.unwrap().1, None, "nobody sleeps any more");
    assert_eq!(tickets(&table), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn whose_turn_it_is() {
    let (table, [holder, ..]) = stage();
    let locks = holder.locks("holder");
    acquired(&locks, LEASE).await.release().await.unwrap();
    let is_turn = async |ticket| locks.operator().peek("k").await.unwrap().unwrap().is_turn_of(ticket);
    assert!(is_turn(7).await, "there is no line, so the ticket means nothing");
    table.set("k", json!({ "lastTicket": { "N": "9" }, "servedTicket": { "N": "4" } }));
    for (ticket, expected) in [(0, true), (4, true), (5, true), (6, false), (9, false), (10, true), (u64::MAX, true)] {
        assert_eq!(is_turn(ticket).await, expected, "{ticket}");
    }
    table.set("k", json!({ "freezeReason": { "S": "a deployment" } }));
    assert!(!is_turn(5).await);
}

/// Whoever has no place is not woken by others, so it must not go to sleep. And whoever keeps its ticket in vain must not be told
/// to look again and again.
#[tokio::test(start_paused = true)]
async fn who_has_a_place() {
    let (table, [holder, one, ..]) = stage();
    let locks = holder.locks("holder");
    let lock = acquired(&locks, LEASE).await;
    let has_place = async |ticket| locks.operator().peek("k").await.unwrap().unwrap().has_place(ticket);
    assert!(!has_place(7).await, "there is no line");
    table.set("k", json!({ "lastTicket": { "N": "9" }, "servedTicket": { "N": "4" } }));
    for (ticket, expected) in [(0, false), (4, false), (5, true), (9, true), (10, false), (u64::MAX, false)] {
        assert_eq!(has_place(ticket).await, expected, "{ticket}");
    }
    // As long as a peer holds the lock, the ticket is kept.
    table.set("k", json!({ "recordVersionNumber": { "S": "a peer's" } }));
    let observation =
        asks_again(&one.locks("one"), &asks(&one.locks("one")).await.observation.with_ticket(Some(9))).await;
    assert_eq!(refused(observation).observation.ticket(), Some(9));
    for ticket in [4, 9, 10] {
        assert!(has_place(ticket).await, "{ticket}");
    }
    lock.release().await.unwrap();
}

/// A lock that is frozen and free is granted to nobody, so those who sleep must not come back for it with a ticket that was passed.
#[tokio::test(start_paused = true)]
async fn a_place_that_was_passed_is_given_up_while_the_lock_is_frozen() {
    let (table, [holder, one, ..]) = stage();
    let locks = holder.locks("holder");
    let lock = acquired(&locks, LEASE).await;
    let first = asks(&one.locks("one")).await;
    lock.release().await.unwrap();
    table.set("k", json!({ "servedTicket": { "N": "1" } }));
    locks.operator().freeze("k", "a deployment").await.unwrap();
    let frozen = refused(asks_again(&one.locks("one"), &first.observation).await);
    assert_eq!((frozen.observation.ticket(), tickets(&table)), (None, (1, 1)));
}

#[tokio::test(start_paused = true)]
async fn the_releases_of_a_workflow_and_of_several_locks_tell_it_too() {
    let (_, [holder, one, ..]) = stage();
    let (locks, sleeper) = (holder.locks("holder"), one.locks("one"));
    let _ = granted(locks.acquire("k").lease(LEASE).workflow("arn").try_once()).await.save();
    let held = asks(&sleeper).await;
    let (outcome, next) = locks.release_workflow("k", "arn").with_sleeper().await.unwrap();
    assert_eq!((outcome, next.unwrap().ticket), (ReleaseOutcome::Released, 1));
    asks_again(&sleeper, &held.observation).await.granted().unwrap().release().await.unwrap();

    let set = locks.acquire_all(["j", "k"]).lease(LEASE).within(&holder.budget(LEASE)).await.unwrap();
    let held = asks(&sleeper).await;
    let (outcome, next) = set.release().with_sleepers().await;
    assert!(outcome.is_ok());
    assert_eq!(next.iter().map(|next| (next.key.key(), next.ticket)).collect::<Vec<_>>(), [("k", 2)]);

    // Also where another lock of the set was not released.
    asks_again(&sleeper, &held.observation).await.granted().unwrap().release().await.unwrap();
    let set = locks.acquire_all(["j", "k"]).lease(LEASE).within(&holder.budget(LEASE)).await.unwrap();
    asks(&sleeper).await;
    holder.next_of("j", vec![Fault::error("AccessDeniedException"); 9]);
    let (outcome, next) = set.release().with_sleepers().await;
    assert_eq!(outcome.unwrap_err().kind(), ErrorKind::Denied);
    assert_eq!(next.len(), 1, "{next:?}");
}

/// Nobody wakes its caller for that ticket.
#[tokio::test(start_paused = true)]
async fn a_place_that_was_passed_is_given_up_for_another_one_while_the_lock_is_held() {
    let (table, [holder, one, two, _]) = stage();
    let lock = acquired(&holder.locks("holder"), LEASE).await;
    let first = asks(&one.locks("one")).await;
    table.set("k", json!({ "servedTicket": { "N": "1" } }));
    let again = refused(asks_again(&one.locks("one"), &first.observation).await);
    assert_eq!((again.observation.ticket(), tickets(&table)), (Some(2), (2, 1)));
    // Where it finds the lock free, it passes.
    let second = asks(&two.locks("two")).await;
    table.set("k", json!({ "servedTicket": { "N": "2" } }));
    lock.release().await.unwrap();
    let lock = asks_again(&one.locks("one"), &again.observation).await.granted().unwrap();
    assert_eq!((second.observation.ticket(), tickets(&table)), (Some(3), (3, 2)));
    drop(lock);
}

/// A call that does not wait sees too little of the time for which the lock is free.
#[tokio::test(start_paused = true)]
async fn a_sleeper_behind_one_that_does_not_come_is_granted_the_lock_at_its_next_look() {
    for dies in [false, true] {
        let (table, [holder, one, two, _]) = stage();
        let lock = acquired(&holder.locks("holder"), secs(20)).await;
        asks(&one.locks("one")).await;
        let (locks, mut seen) = (two.locks("two"), asks(&two.locks("two")).await);
        if dies {
            let _ = lock.save();
        } else {
            lock.release().await.unwrap();
        }
        let came = Instant::now();
        let mut looks = 0;
        let lock = loop {
            looks += 1;
            match asks_again(&locks, &seen.observation).await {
                Tried::Granted(lock) => break lock,
                Tried::Refused(held) => seen = held,
            }
            let pause = Duration::from_secs(seen.retry_after.as_millis().div_ceil(1000) as u64).max(secs(1));
            sleep(pause).await;
            seen.observation = seen.observation.clone().and_waited(pause);
        };
        assert_eq!(tickets(&table), (2, 2), "its own ticket is served");
        lock.release().await.unwrap();
        let most = if dies { secs(28) } else { secs(7) };
        assert!(came.elapsed() <= most && looks <= 4, "{dies}: {:?}, {looks} looks", came.elapsed());
    }
}

/// How a caller asks behind those who are gone. Each of its calls is too short to see that nobody comes.
#[derive(Clone, Copy, Debug)]
enum Asks {
    BetweenCalls,
    Once,
    InTurnForThreeSeconds,
}

impl Asks {
    async fn ask(self, process: &Process, seen: Option<Observation>) -> Result<Lock, Refusal> {
        let (locks, budget) = (process.locks("waits"), process.budget(secs(3)));
        let tried = match self {
            Asks::InTurnForThreeSeconds => {
                let acquire = locks.acquire("k").lease(LEASE).within(&budget).in_turn();
                let acquired = seen.into_iter().fold(acquire, Acquire::observation).await;
                return acquired.map_err(|error| error.refusal().unwrap().clone());
            }
            Asks::BetweenCalls => locks.acquire("k").lease(LEASE).between_calls(),
            Asks::Once => locks.acquire("k").lease(LEASE),
        };
        match seen.into_iter().fold(tried, Acquire::observation).try_once().await.unwrap() {
            Tried::Granted(lock) => Ok(lock),
            Tried::Refused(held) => Err(held),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn grants_out_of_turn_keep_the_lock_from_nobody_who_brings_what_it_has_seen() {
    for asks_so in [Asks::BetweenCalls, Asks::Once, Asks::InTurnForThreeSeconds] {
        for every in [1_000, 1_500, 4_000, 5_300] {
            let (_, [holder, gone, process, other]) = stage();
            let lock = acquired(&holder.locks("holder"), LEASE).await;
            for _ in 0..4 {
                asks(&gone.locks("gone")).await;
            }
            lock.release().await.unwrap();
            let out_of_turn = tokio::spawn(async move {
                loop {
                    sleep(millis(every - 100)).await;
                    let tried = other.locks("other").acquire("k").lease(LEASE).out_of_turn().try_once().await.unwrap();
                    sleep(millis(100)).await;
                    if let Some(lock) = tried.granted() {
                        lock.release().await.unwrap();
                    }
                }
            });
            let (begun, mut seen) = (Instant::now(), None);
            let lock = loop {
                let held = match asks_so.ask(&process, seen).await {
                    Ok(lock) => break lock,
                    Err(held) => held,
                };
                assert!(begun.elapsed() < secs(180), "{asks_so:?} beside a grant every {every} ms: {held:?}");
                sleep(held.retry_after.max(millis(250))).await;
                seen = Some(held.observation);
            };
            out_of_turn.abort();
            lock.release().await.unwrap();
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_place_is_kept_whatever_happens_to_a_request() {
    let lost = Fault::applied_unheard().into_iter().chain(Fault::not_applied()).chain([Fault::throttled()]);
    for fault in lost {
        let (table, [holder, one, ..]) = stage();
        let lock = acquired(&holder.locks("holder"), LEASE).await;
        let held = asks(&one.locks("one")).await;
        lock.release().await.unwrap();
        one.next([fault.clone()]);
        let lock = asks_again(&one.locks("one"), &held.observation).await.granted();
        let lock = lock.unwrap_or_else(|| panic!("{fault:?}"));
        assert_eq!(tickets(&table), (1, 1), "{fault:?}");
        lock.release().await.unwrap();
    }
}

/// Tickets that were never given, or that were given in a line that is over.
#[tokio::test(start_paused = true)]
async fn a_ticket_that_nobody_was_given_harms_nobody() {
    for ticket in [0, 1, 2, 3, 9, u64::MAX - 1, u64::MAX] {
        let (table, [holder, one, two, _]) = stage();
        let lock = acquired(&holder.locks("holder"), LEASE).await;
        let first = asks(&two.locks("two")).await;
        let made_up = first.observation.clone().with_ticket(Some(ticket));
        let held = refused(asks_again(&one.locks("one"), &made_up).await);
        assert!(held.observation.ticket().is_some(), "{ticket}");
        lock.release().await.unwrap();
        let mut seen = first.observation;
        let locks = two.locks("two");
        let came = Instant::now();
        let lock = loop {
            match asks_again(&locks, &seen).await {
                Tried::Granted(lock) => break lock,
                Tried::Refused(held) => seen = held.observation,
            }
            sleep(secs(1)).await;
        };
        assert!(came.elapsed() < secs(2), "{ticket}: {:?}", came.elapsed());
        lock.release().await.unwrap();
        assert!(table.number("k", "servedTicket") <= table.number("k", "lastTicket"));
    }
}

#[tokio::test(start_paused = true)]
async fn a_caller_of_an_earlier_version_is_given_no_ticket_and_reads_every_other_observation() {
    let (_, [holder, one, ..]) = stage();
    let _lock = acquired(&holder.locks("holder"), LEASE).await;
    let plain = refused(one.locks("one").acquire("k").lease(LEASE).try_once().await.unwrap()).observation;
    let json = serde_json::to_value(&plain).unwrap();
    assert_eq!(json.as_object().unwrap().keys().collect::<Vec<_>>(), ["leaseMillis", "unchangedForMillis", "version"]);
    let with_place = asks(&one.locks("one")).await.observation;
    let json = serde_json::to_value(&with_place).unwrap();
    assert_eq!(json["ticket"], 1);
    assert_eq!(serde_json::from_value::<Observation>(json).unwrap(), with_place);
}

#[tokio::test(start_paused = true)]
async fn the_keys_of_wake_items_are_no_locks() {
    let table = Table::new();
    let locks = table.process().locks("me");
    for locks in [&locks, &locks.prefixed("blue/").unwrap()] {
        let error = locks.acquire("wake/k/1").lease(LEASE).try_once().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidRequest);
    }
    assert!(locks.prefixed("wake/").is_err() && locks.prefixed("wake/blue/").is_err());
    assert!(locks.prefixed("blue/").unwrap().prefixed("wake/").is_ok());
}

/// A retried task may release a grant that it has released already under a later name.
#[tokio::test(start_paused = true)]
async fn a_release_that_finds_the_lock_free_tells_whose_turn_it_is_too() {
    let (_, [holder, one, ..]) = stage();
    let locks = holder.locks("holder");
    let grant = async || locks.acquire("k").lease(LEASE).owner("me").try_once().await.unwrap().granted().unwrap();
    let first = grant().await.save();
    locks.release(first.clone()).await.unwrap();
    let second = grant().await;
    asks(&one.locks("one")).await;
    second.release().await.unwrap();
    let (outcome, sleeper) = locks.release(first).or_later_grant_of_owner().with_sleeper().await.unwrap();
    assert_eq!(outcome, lambda_lock::ReleaseOutcome::Released);
    assert_eq!(sleeper.map(|sleeper| (sleeper.ticket, sleeper.last)), Some((1, 1)));
}

#[tokio::test(start_paused = true)]
async fn who_acquires_out_of_turn_brings_no_ticket() {
    let (_, [holder, one, ..]) = stage();
    let _lock = acquired(&holder.locks("holder"), LEASE).await;
    let locks = one.locks("one");
    let seen = asks(&locks).await.observation;
    let again = locks.acquire("k").lease(LEASE).out_of_turn().observation(seen).try_once().await.unwrap();
    assert_eq!(refused(again).observation.ticket(), None);
}
