//! Callers with different settings on one table: what one leaves in a row costs no other its lock.

use lambda_lock::once::Started;
use lambda_lock::{Error, ErrorKind, LockClient, Tried, operator::ThawOutcome};
use lambda_lock_testkit::{Process, Table, case, granted, secs};
use std::time::Duration;
use tokio::time::sleep;

const LEASE: Duration = secs(20);
const DAY: Duration = secs(24 * 3600);
/// The name that another client uses.
const OTHER: &str = "deleteAt";

fn with_ttl(process: &Process, name: &str) -> LockClient {
    process.builder().owner("with").ttl_attribute(name).build().unwrap()
}

/// A row that a client with this TTL attribute has used.
async fn used_with(table: &Table, key: &str, name: &str) {
    granted(with_ttl(&table.process(), name).acquire(key).lease(LEASE).try_once()).await.release().await.unwrap();
    assert!(table.attribute(key, name).is_some());
}

fn is_refused(error: &Error) {
    assert_eq!(error.kind(), ErrorKind::InvalidRecord);
    let text = error.to_string();
    assert!(text.contains(r#"client whose TTL attribute is "deleteAt""#), "{text}");
    assert!(text.contains("give all clients of the table the same TTL attribute"), "{text}");
}

#[tokio::test(start_paused = true)]
async fn a_client_without_the_ttl_attribute_and_one_with_it_never_hold_one_lock() {
    let table = Table::new();
    let with = with_ttl(&table.process(), "expiresAt");
    granted(with.acquire("k").lease(LEASE).try_once()).await.release().await.unwrap();
    let expires = table.number("k", "expiresAt");
    let process = table.process();
    let without = process.locks("without");
    sleep(7 * DAY - secs(100)).await;
    let mut first = granted(without.acquire("k").lease(secs(600)).try_once()).await;
    sleep(secs(200)).await;
    first.checkpoint().await.unwrap();

    assert!(expires < process.clock.wall_millis() / 1000, "the first client's TTL is over");
    // DynamoDB deletes rows whose TTL has passed.
    if table.attribute("k", "expiresAt").is_some() {
        table.delete("k");
    }

    assert!(with.acquire("k").lease(LEASE).try_once().await.unwrap().granted().is_none(), "two holders");
    assert!(first.remaining() > secs(300));
}

#[tokio::test(start_paused = true)]
async fn no_way_to_hold_a_row_leaves_the_ttl_of_others_in_it() {
    let table = Table::new();
    for key in ["claimed", "dead", "resumed", "in a set", "in order", "gateway/0"] {
        used_with(&table, key, "expiresAt").await;
    }
    let dead = with_ttl(&table.process(), "expiresAt");
    drop(granted(dead.acquire("dead").lease(secs(1)).try_once()).await);
    let saved = granted(dead.acquire("resumed").lease(secs(600)).try_once()).await.save();
    sleep(LEASE).await;

    let process = table.process();
    let (locks, budget) = (process.locks("without"), process.budget(secs(60)).reserve(secs(0)));
    let gone = |key: &str| assert_eq!(table.attribute(key, "expiresAt"), None, "{key}");

    let another = granted(with_ttl(&table.process(), OTHER).acquire("claimed").lease(LEASE).try_once()).await;
    gone("claimed");
    another.release().await.unwrap();
    table.delete("claimed");
    used_with(&table, "claimed", "expiresAt").await;
    drop(granted(locks.acquire("claimed").lease(LEASE).try_once()).await);
    gone("claimed");
    drop(granted(locks.acquire("dead").lease(LEASE).try_once()).await);
    gone("dead");
    drop(locks.resume(saved).lease(secs(600)).await.unwrap());
    gone("resumed");
    let set = locks.acquire_all(["in a set", "new"]).lease(LEASE).try_once().await.unwrap();
    let Tried::Granted(set) = set else { panic!("{set:?}") };
    gone("in a set");
    set.release().await.unwrap();
    drop(locks.acquire_all(["in order", "new"]).lease(LEASE).within(&budget).in_order().await.unwrap().save());
    gone("in order");
    drop(locks.semaphore("gateway", 1).acquire().lease(LEASE).try_once().await.unwrap().granted().unwrap());
    gone("gateway/0");
}

#[tokio::test(start_paused = true)]
async fn a_ttl_attribute_of_another_name_is_refused_before_anybody_relies_on_the_lock() {
    let table = Table::new();
    used_with(&table, "k", OTHER).await;
    used_with(&table, "held", OTHER).await;
    let saved = granted(with_ttl(&table.process(), OTHER).acquire("held").lease(secs(600)).try_once()).await.save();
    let (row, held) = (table.row("k"), table.row("held"));

    for name in [None, Some("expiresAt"), Some("goneAt")] {
        let _case = case(name.unwrap_or("none"));
        let process = table.process();
        let locks = name.map_or_else(|| process.locks("without"), |name| with_ttl(&process, name));
        let budget = process.budget(secs(60)).reserve(secs(0));
        is_refused(&locks.acquire("k").lease(LEASE).try_once().await.unwrap_err());
        is_refused(&locks.acquire("k").lease(LEASE).within(&budget).await.unwrap_err());
        is_refused(&locks.acquire_all(["k", "new"]).lease(LEASE).try_once().await.unwrap_err());
        is_refused(&locks.operator().freeze("k", "a deployment").await.unwrap_err());
        is_refused(&locks.resume(saved.clone()).lease(secs(600)).await.unwrap_err());
        assert!(locks.operator().peek("k").await.unwrap().is_some(), "who only looks is not refused");
    }

    assert_eq!((table.row("k"), table.row("held")), (row, held), "nothing was written");
    assert_eq!(table.row("new"), None);
    used_with(&table, "k", OTHER).await;
}

#[tokio::test(start_paused = true)]
async fn a_release_by_a_client_with_another_ttl_attribute_writes_none_beside_the_first() {
    let table = Table::new();
    let holder =
        granted(with_ttl(&table.process(), OTHER).acquire("k").lease(LEASE).workflow("arn:1").try_once()).await;
    let row = table.row("k");

    is_refused(&with_ttl(&table.process(), "goneAt").release_workflow("k", "arn:1").await.unwrap_err());
    assert_eq!(table.row("k"), row);

    // It writes nothing that is refused, so the lock becomes free.
    table.process().locks("cleaner").release_workflow("k", "arn:1").await.unwrap();
    assert!(table.is_released("k"));
    drop(holder);
}

#[tokio::test(start_paused = true)]
async fn idempotent_work_keeps_no_ttl_of_others() {
    let table = Table::new();
    for name in ["expiresAt", OTHER] {
        let _case = case(name);
        let key = format!("order of {name}");
        let row = format!("once/{key}");
        let with = with_ttl(&table.process(), name);
        let started = with.once(key.clone()).keep_for(DAY).lease(LEASE).start::<u8>().await.unwrap();
        let Started::Attempt(first) = started else { panic!("{started:?}") };
        drop(first);
        sleep(2 * LEASE).await;

        let without = table.process().locks("without");
        let started = without.once(key).keep_for(30 * DAY).lease(LEASE).start::<u8>().await;

        if name == OTHER {
            is_refused(&started.unwrap_err());
        } else {
            assert!(matches!(started.unwrap(), Started::Attempt(_)));
            assert_eq!(table.attribute(&row, name), None);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_frozen_lock_has_no_ttl_whoever_holds_it() {
    let table = Table::new();
    for (name, freezer) in [("expiresAt", None), ("expiresAt", Some("expiresAt")), (OTHER, Some(OTHER))] {
        let _case = case(format!("{name}, frozen by {freezer:?}"));
        let holders = with_ttl(&table.process(), name);
        let mut lock = granted(holders.acquire("k").lease(LEASE).try_once()).await;
        let process = table.process();
        let freezer = freezer.map_or_else(|| process.locks("operator"), |name| with_ttl(&process, name));
        let never_expires = |when: &str| {
            let ttl = table.row("k").unwrap().get(name).cloned();
            assert!(ttl.as_ref().is_none_or(|ttl| ttl.get("N").is_none()), "{when}: {ttl:?}");
        };

        freezer.operator().freeze("k", "a deployment").await.unwrap();
        never_expires("frozen");
        lock.renew().await.unwrap();
        never_expires("renewed");
        lock.release().await.unwrap();
        never_expires("released");

        freezer.operator().thaw("k").await.unwrap();
        granted(holders.acquire("k").lease(LEASE).try_once()).await.release().await.unwrap();
        assert!(table.row("k").unwrap()[name].get("N").is_some(), "the next grant counts again");
        table.delete("k");
    }
}

#[tokio::test(start_paused = true)]
async fn an_additional_attribute_never_is_the_ttl_of_others() {
    let locks = Table::new().process().locks("me");

    let error = locks.acquire("k").lease(LEASE).attribute("expiresAt", 5).try_once().await.unwrap_err();

    assert_eq!(error.kind(), ErrorKind::InvalidRequest);
    assert!(error.to_string().contains(r#"cannot be called "expiresAt""#), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_holder_learns_at_its_next_renewal_that_its_lock_was_broken_whoever_has_it_now() {
    for name in [None, Some("expiresAt"), Some(OTHER)] {
        let _case = case(name.unwrap_or("none"));
        let table = Table::new();
        let mut lock = granted(table.process().locks("without").acquire("k").lease(secs(90)).try_once()).await;
        let process = table.process();
        let next = name.map_or_else(|| process.locks("none"), |name| with_ttl(&process, name));
        let seen = next.operator().peek("k").await.unwrap().unwrap();
        next.operator().break_lock("k", &seen, "a mistake").await.unwrap();
        let second = granted(next.acquire("k").lease(secs(90)).try_once()).await;

        let began = tokio::time::Instant::now();
        let error = lock.keep_alive(sleep(secs(80))).await.expect_err("it worked beside the next holder for 80 s");

        assert!(error.is_lost(), "{error}");
        assert!(began.elapsed() < secs(40), "{:?}", began.elapsed());
        assert!(second.remaining() > secs(40));
    }
}

/// A thaw writes no TTL.
#[tokio::test(start_paused = true)]
async fn who_froze_a_lock_can_thaw_it_whatever_ttl_its_holder_has() {
    let table = Table::new();
    let operators = table.process().locks("operator");
    let saved = granted(table.process().locks("holder").acquire("k").lease(LEASE).try_once()).await.save();
    operators.operator().freeze("k", "migration").await.unwrap();
    let lock = with_ttl(&table.process(), OTHER).resume(saved).await.unwrap();

    assert_eq!(operators.operator().thaw("k").await.unwrap(), ThawOutcome::Thawed);

    assert_eq!(operators.operator().peek("k").await.unwrap().unwrap().freeze_reason, None);
    drop(lock);
}

#[tokio::test(start_paused = true)]
async fn a_lock_whose_release_is_refused_because_of_anothers_ttl_may_be_held() {
    let table = Table::new();
    let saved = granted(with_ttl(&table.process(), OTHER).acquire("k").lease(LEASE).try_once()).await.save();

    let error = with_ttl(&table.process(), "goneAt").release(saved).await.unwrap_err();

    assert_eq!(error.kind(), ErrorKind::InvalidRecord, "{error}");
    assert_eq!(error.may_be_held().iter().map(|key| key.key()).collect::<Vec<_>>(), ["k"]);
    assert!(!table.is_released("k"));
}
