//! Renewals keep the grant and its token, and never shorten a lease.

use crate::{BELIEVED, LEASE};
use lambda_lock::ReleaseOutcome;
use lambda_lock_testkit::{Fault, ROUND_TRIP, Table, acquired, case, millis, secs};
use std::time::{Duration, UNIX_EPOCH};
use tokio::time::sleep;

#[tokio::test(start_paused = true)]
async fn a_checkpoint_renews_with_one_request_and_keeps_grant_and_token() {
    let table = Table::new();
    let process = table.process();
    let mut lock = acquired(&process.locks("me"), LEASE).await;
    let (token, version) = (lock.fencing_token(), table.attribute("k", "recordVersionNumber").unwrap());
    process.take_sent();
    sleep(secs(15)).await;

    lock.checkpoint().await.unwrap();

    assert_eq!(process.take_operations(), ["UpdateItem"]);
    assert_eq!(lock.remaining(), BELIEVED - ROUND_TRIP);
    assert_eq!(lock.fencing_token(), token);
    let renewed = table.attribute("k", "recordVersionNumber").unwrap();
    assert_eq!(renewed[..36], version[..36], "the same grant");
    assert!(renewed > version, "a newer stamp");
    lock.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_renewal_after_a_takeover_says_lost_and_stays_lost() {
    let table = Table::new();
    let (one, two) = (table.process(), table.process());
    let mut lock = acquired(&one.locks("one"), LEASE).await;
    sleep(secs(30)).await;

    let other = acquired(&two.locks("two"), LEASE).await;
    let row = table.row("k");
    assert!(lock.checkpoint().await.unwrap_err().is_lost());
    assert_eq!(lock.remaining(), Duration::ZERO);
    assert!(lock.ensure_remaining(millis(1)).is_err());

    one.take_sent();
    assert!(lock.checkpoint().await.unwrap_err().is_lost());
    assert!(one.take_sent().is_empty(), "once lost, nothing is asked any more");
    assert_eq!(lock.release().await.unwrap(), ReleaseOutcome::AlreadyGone);
    assert_eq!(table.row("k"), row, "the new owner's row is untouched");
    other.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_renewal_lengthens_the_lease_and_never_shortens_it() {
    let table = Table::new();
    let mut lock = acquired(&table.process().locks("me"), LEASE).await;

    lock.renew().lease(secs(60)).await.unwrap();
    assert_eq!(table.attribute("k", "leaseDuration").as_deref(), Some("60000"));

    lock.renew().lease(secs(1)).await.unwrap();
    assert_eq!(table.attribute("k", "leaseDuration").as_deref(), Some("60000"));

    lock.checkpoint().await.unwrap();
    assert_eq!(table.attribute("k", "leaseDuration").as_deref(), Some("60000"));
    lock.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_renewal_for_a_shorter_lease_whose_answer_was_lost_shortens_nothing() {
    let faults = [
        Fault::AnswerLost,
        Fault::NeverAnswers,
        Fault::failure_after_apply(),
        Fault::RequestLost,
        Fault::ArrivesLate(secs(5)),
    ];
    for fault in faults {
        let _case = case(format!("{fault:?}"));
        let table = Table::new();
        let (one, two) = (table.process(), table.process());
        let mut lock = acquired(&one.locks("one"), LEASE).await;
        one.next(vec![fault.clone(); 20]);

        let error = lock.renew().lease(secs(1)).await.unwrap_err();
        assert!(error.is_unknown(), "{error}");
        // The holder still relies on its earlier lease, and other callers do too.
        let believed = lock.remaining();
        assert!(believed > secs(16), "{believed:?}");

        sleep(believed - millis(1)).await;
        assert!(!lock.remaining().is_zero());

        let tried = two.locks("two").acquire("k").lease(LEASE).try_once().await.unwrap();
        assert!(tried.granted().is_none(), "granted to two holders");
        assert_eq!(table.attribute("k", "leaseDuration").as_deref(), Some("21000"));
        one.clear();
        lock.release().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_renewal_that_arrives_late_does_not_shorten_a_lease_that_was_lengthened_meanwhile() {
    let table = Table::new();
    let (one, two) = (table.process(), table.process());
    let mut lock = acquired(&one.locks("one"), LEASE).await;
    // The copy's clock is ahead. Its renewal has a newer version and a later end than any renewal of one.
    two.set_date_offset(None);
    two.clock.jump_wall(600_000);
    two.next([Fault::ArrivesLate(secs(10)), Fault::BlackHole, Fault::BlackHole]);

    assert!(two.locks("two").resume(lock.to_saved()).await.unwrap_err().is_unknown());

    lock.renew().lease(secs(63)).await.unwrap();
    let renewed = table.row("k");

    sleep(secs(10)).await;
    assert_eq!(table.row("k"), renewed, "it knows only the lease that there was before");
    lock.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn the_end_of_the_lease_never_moves_back() {
    let table = Table::new();
    let process = table.process();
    process.set_date_offset(None);
    let mut lock = acquired(&process.locks("me"), LEASE).await;
    let ends = table.attribute("k", "leaseEndsAt");
    process.clock.jump_wall(-5_000);

    lock.checkpoint().await.unwrap();

    assert_eq!(table.attribute("k", "leaseEndsAt"), ends);
    lock.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_renewal_knows_the_end_that_the_renewal_before_it_wrote() {
    let table = Table::new();
    let process = table.process();
    process.set_date_offset(None);
    let mut lock = acquired(&process.locks("me"), LEASE).await;
    sleep(secs(10)).await;
    lock.checkpoint().await.unwrap();
    let ends = table.number("k", "leaseEndsAt");
    assert_eq!(lock.lease_ends_at(), Some(UNIX_EPOCH + millis(ends)));
    process.clock.jump_wall(-5_000);
    process.take_sent();

    lock.checkpoint().await.unwrap();

    assert_eq!(process.take_operations(), ["UpdateItem"], "not refused by its own end");
    assert_eq!(table.number("k", "leaseEndsAt"), ends);
    lock.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn two_copies_that_renew_in_the_same_millisecond_never_write_the_same_version() {
    let table = Table::new();
    let (one, two) = (table.process(), table.process());
    // Without this they would not be in the same millisecond.
    one.set_latency(Duration::ZERO);
    two.set_latency(Duration::ZERO);
    let lock = acquired(&one.locks("one"), LEASE).await;
    let copy = lock.to_saved();
    let mut a = one.locks("one").resume(copy.clone()).await.unwrap();
    let first = table.attribute("k", "recordVersionNumber").unwrap();

    let b = two.locks("two").resume(copy).await.unwrap();

    let second = table.attribute("k", "recordVersionNumber").unwrap();
    assert_ne!(first, second);
    assert_ne!(first[first.len() - 16..], second[second.len() - 16..], "the random digits differ");

    a.checkpoint().await.unwrap();
    let _ = (b.save(), lock.save());
    a.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_renewal_after_one_that_changed_the_lease_takes_one_request_too() {
    const LONGER: Duration = secs(63);
    for changed_by in ["a renewal", "a renewal and a commit", "a resume", "a copy elsewhere"] {
        let _case = case(changed_by);
        let table = Table::new();
        let process = table.process();
        let locks = process.locks("me");
        let mut lock = acquired(&locks, LEASE).await;
        match changed_by {
            "a resume" => lock = locks.resume(lock.save()).lease(LONGER).await.unwrap(),
            "a copy elsewhere" => {
                let other = table.process().locks("other");
                let _ = other.resume(lock.to_saved()).lease(LONGER).await.unwrap().save();
                lock.checkpoint().await.unwrap();
            }
            _ => lock.renew().lease(LONGER).await.unwrap(),
        }
        if changed_by == "a renewal and a commit" {
            lock.commit([]).await.unwrap();
        }
        process.take_sent();

        for _ in 0..3 {
            lock.checkpoint().await.unwrap();

            assert_eq!(process.take_writes_and_reads(), (1, 0));
            assert_eq!(table.attribute("k", "leaseDuration").as_deref(), Some("63000"));
            // 63 s / 1.05
            assert_eq!(lock.remaining(), secs(60) - ROUND_TRIP);
        }
        lock.commit([]).await.unwrap();
        assert_eq!(process.take_operations(), ["TransactWriteItems"]);
        lock.release().await.unwrap();
        assert_eq!(process.take_writes_and_reads(), (1, 0));
    }
}
