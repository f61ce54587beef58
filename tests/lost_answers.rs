//! The real SDK client under scripted HTTP: what is said after answers were lost, late, broken or
//! refused, and exactly how many requests that takes.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a helper of a test may stop it")]

use lambda_lock::{ErrorKind, Lock, LockClient, ReleaseOutcome};
use lambda_lock_testkit::{Fault, Process, ROUND_TRIP, Table};
use std::time::Duration;

const LEASE: Duration = Duration::from_secs(20);

fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

async fn acquired(locks: &LockClient) -> Lock {
    locks.try_acquire("k").lease(LEASE).await.unwrap().granted().unwrap()
}

/// Faults after which the write *was* applied, though nobody said so.
fn applied_unheard() -> [Fault; 5] {
    [
        Fault::AnswerLost,
        Fault::NeverAnswers,
        Fault::failure_after_apply(),
        Fault::AppliedButSays(200, r#"{"Attributes": {"#),
        Fault::AppliedButSays(503, ""),
    ]
}

/// Faults after which it was not.
fn not_applied() -> [Fault; 4] {
    [Fault::RequestLost, Fault::BlackHole, Fault::Says(500, ""), Fault::Says(400, "<html>a proxy</html>")]
}

#[tokio::test(start_paused = true)]
async fn a_lost_answer_is_recognised_as_our_own_grant() {
    for fault in applied_unheard() {
        let table = Table::new();
        let process = table.process();
        process.next([fault.clone()]);
        let lock = acquired(&process.locks("me")).await;
        assert_eq!(process.take_operations(), ["UpdateItem", "GetItem"], "{fault:?}");
        assert_eq!(Some(lock.fencing_token().to_string()), table.attribute("k", "fencingToken"));
        lock.release().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn an_empty_answer_with_status_200_is_no_answer() {
    let table = Table::new();
    let process = table.process();
    process.next([Fault::AppliedButSays(200, "")]);
    let mut lock = acquired(&process.locks("me")).await;
    assert_eq!(process.take_operations(), ["UpdateItem", "GetItem"]);
    process.next([Fault::AppliedButSays(200, "{}")]);
    lock.checkpoint().await.unwrap();
    assert_eq!(process.take_operations(), ["UpdateItem", "UpdateItem"]);
    lock.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_lost_request_is_asked_again_as_a_new_attempt() {
    for fault in not_applied() {
        let table = Table::new();
        let process = table.process();
        process.next([fault.clone()]);
        let lock = acquired(&process.locks("me")).await;
        let sent = process.take_sent();
        let operations: Vec<_> = sent.iter().map(|sent| sent.operation.as_str()).collect();
        assert_eq!(operations, ["UpdateItem", "GetItem", "UpdateItem"], "{fault:?}");
        assert_ne!(sent[0].body, sent[2].body, "an attempt is never sent twice");
        lock.release().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn the_grant_of_a_recognised_attempt_counts_from_before_it_was_sent() {
    let table = Table::new();
    let process = table.process();
    process.next([Fault::NeverAnswers, Fault::Slow(Duration::from_millis(500))]);
    let lock = acquired(&process.locks("me")).await;
    // One second until the first request was given up, half a second for the second.
    let believed = Duration::from_nanos(20_000_000_000 * 1000 / 1050);
    assert_eq!(lock.remaining(), believed - Duration::from_millis(1500) - ROUND_TRIP);
    lock.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_earlier_attempt_that_turns_out_to_be_the_applied_one_keeps_its_own_start() {
    let table = Table::new();
    let process = table.process();
    // The first Claim lands after 1.5 s, when the second one has been sent and lost.
    let late = Duration::from_millis(1500);
    process.next([Fault::ArrivesLate(late), Fault::None, Fault::RequestLost, Fault::Slow(Duration::from_millis(600))]);
    let lock = acquired(&process.locks("me")).await;
    assert_eq!(process.take_operations(), ["UpdateItem", "GetItem", "UpdateItem", "GetItem"]);
    let believed = Duration::from_nanos(20_000_000_000 * 1000 / 1050);
    assert!(lock.remaining() <= believed - Duration::from_millis(1600), "{:?}", lock.remaining());
    lock.release().await.unwrap();
}

/// The answer of an acquire is lost, and before anybody looks, whoever cleans up after its workflow frees the lock.
#[tokio::test(start_paused = true)]
async fn a_grant_that_was_freed_before_it_was_recognised_is_not_handed_out() {
    let seen_by = [
        // The read that asks what became of the first attempt.
        ("a read", vec![Fault::NeverAnswers]),
        // The second attempt, which is refused by what the first one left: it arrived after the read.
        (
            "a refused attempt",
            vec![Fault::ArrivesLate(Duration::from_millis(1100)), Fault::None, Fault::Slow(Duration::from_millis(400))],
        ),
    ];
    for (what, faults) in seen_by {
        for workflow in [true, false] {
            let table = Table::new();
            let (one, cleaner) = (table.process(), table.process());
            one.next(faults.clone());
            let locks = one.locks("one");
            let call = tokio::spawn(async move {
                let acquire = locks.try_acquire("k").lease(LEASE).owner("task");
                if workflow { acquire.workflow("arn:1").await } else { acquire.await }
            });
            let freed_at = Duration::from_millis(if what == "a read" { 500 } else { 1200 });
            tokio::time::sleep(freed_at).await;
            let locks = cleaner.locks("cleaner");
            let freed = if workflow {
                locks.release_workflow("k", "arn:1").await
            } else {
                // Or somebody to whom the name of its owner is known.
                let token = serde_json::json!({"key": "k", "owner": "task", "fencingToken": 1, "leaseSeconds": 20.0,
                    "version": "ll1-00000000000040008000000000000000-0000000000000000", "leaseEndsAt": 0});
                locks.release(serde_json::from_value(token).unwrap()).or_later_grant_of_owner().await
            };
            assert_eq!(freed.unwrap(), ReleaseOutcome::Released, "{what}");
            let free = table.row("k");
            let error = call.await.unwrap().expect_err("a lock that is free is nobody's");
            assert!(error.is_unknown(), "{what}: {error}");
            assert_eq!(table.attribute("k", "isReleased").as_deref(), Some("1"), "{what}: {free:?}");
            // Whoever comes next gets it with one request.
            let next = table.process();
            acquired(&next.locks("next")).await.release().await.unwrap();
            assert_eq!(next.take_operations(), ["UpdateItem", "UpdateItem"], "{what}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_grant_recognised_late_is_renewed_before_it_is_reported() {
    let table = Table::new();
    let process = table.process();
    process.next([Fault::NeverAnswers]);
    let lock = process.locks("me").try_acquire("k").lease(Duration::from_millis(1500)).await.unwrap();
    let lock = lock.granted().unwrap();
    assert_eq!(process.take_operations(), ["UpdateItem", "GetItem", "UpdateItem"]);
    assert!(lock.remaining() > Duration::from_millis(1400), "{:?}", lock.remaining());
    lock.release().await.unwrap();
}

/// Found by the simulation: it was reported as unavailable, "nothing was applied", and stayed taken.
#[tokio::test(start_paused = true)]
async fn a_grant_recognised_late_that_cannot_be_renewed_is_given_back_and_said_to_be_unknown() {
    for brown_out in [Fault::error("ThrottlingException"), Fault::RequestLost] {
        let table = Table::new();
        let process = table.process();
        // For as long as the renewal has time; the release that follows has its own.
        process.next([Fault::NeverAnswers, Fault::None].into_iter().chain(vec![brown_out; 100]));
        let network = process.clone();
        let end_of_brown_out = tokio::spawn(async move {
            tokio::time::sleep(Duration::from_millis(4_500)).await;
            network.clear();
        });
        let error = process.locks("me").try_acquire("k").lease(Duration::from_millis(1500)).await.unwrap_err();
        end_of_brown_out.await.unwrap();
        assert!(error.is_unknown(), "{error}");
        assert!(table.attribute("k", "isReleased").is_some(), "nobody is blocked by what was given up");
    }
}

/// Found by processes that contend over a bad connection: an acquire said "lost", on which callers stop.
#[tokio::test(start_paused = true)]
async fn a_grant_recognised_late_that_another_takes_before_it_is_renewed_was_never_held_and_is_asked_for_again() {
    let table = Table::new();
    let (one, two) = (table.process(), table.process());
    let lease = Duration::from_millis(1200);
    // Recognised after a second; by the time its renewal arrives, somebody else has taken over.
    one.next([Fault::NeverAnswers, Fault::None, Fault::Slow(Duration::from_millis(600))]);
    let takeover = tokio::spawn(async move {
        tokio::time::sleep(Duration::from_millis(1400)).await;
        let locks = two.builder().owner("two").max_clock_skew(Duration::from_millis(100)).build().unwrap();
        locks.try_acquire("k").lease(LEASE).await.unwrap().granted().unwrap()
    });
    let locks = one.locks("one");
    let error = locks.try_acquire("k").lease(lease).await.unwrap_err();
    assert!(error.is_unknown(), "{error}");
    assert_eq!(one.take_operations(), ["UpdateItem", "GetItem", "UpdateItem"]);
    let other = takeover.await.unwrap();
    assert!(locks.try_acquire("k").lease(lease).await.unwrap().granted().is_none());
    other.release().await.unwrap();
    locks.try_acquire("k").lease(lease).await.unwrap().granted().unwrap().release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_renewal_whose_answer_was_lost_is_not_lost() {
    for fault in applied_unheard().into_iter().chain(not_applied()) {
        let table = Table::new();
        let process = table.process();
        let mut lock = acquired(&process.locks("me")).await;
        process.take_sent();
        process.next([fault.clone()]);
        lock.checkpoint().await.unwrap_or_else(|error| panic!("{fault:?}: {error}"));
        assert_eq!(process.take_operations(), ["UpdateItem", "UpdateItem"], "{fault:?}");
        assert_eq!(lock.release().await.unwrap(), ReleaseOutcome::Released);
    }
}

#[tokio::test(start_paused = true)]
async fn a_release_whose_answer_was_lost_is_released() {
    for fault in applied_unheard().into_iter().chain(not_applied()) {
        // A release asks for nothing back, so an unreadable 200 is the only answer that stays unread.
        let table = Table::new();
        let process = table.process();
        let lock = acquired(&process.locks("me")).await;
        process.take_sent();
        process.next([fault.clone()]);
        assert_eq!(lock.release().await.unwrap(), ReleaseOutcome::Released, "{fault:?}");
        assert_eq!(process.take_operations(), ["UpdateItem", "UpdateItem"], "{fault:?}");
        assert!(table.attribute("k", "isReleased").is_some());
    }
}

#[tokio::test(start_paused = true)]
async fn a_deletion_whose_answer_was_lost_is_released() {
    for fault in [Fault::AnswerLost, Fault::RequestLost] {
        let table = Table::new();
        let process = table.process();
        let lock = acquired(&process.locks("me")).await;
        process.next([fault]);
        assert_eq!(lock.release().delete_row().await.unwrap(), ReleaseOutcome::Released);
        assert_eq!(table.row("k"), None);
    }
}

#[tokio::test(start_paused = true)]
async fn a_release_after_a_renewal_that_was_applied_unheard_takes_one_more_request() {
    let table = Table::new();
    let process = table.process();
    let mut lock = acquired(&process.locks("me")).await;
    process.next([Fault::NeverAnswers, Fault::BlackHole, Fault::BlackHole]);
    assert!(lock.checkpoint().await.unwrap_err().is_unknown());
    process.take_sent();
    assert_eq!(lock.release().await.unwrap(), ReleaseOutcome::Released);
    assert_eq!(process.take_operations(), ["UpdateItem", "UpdateItem"]);
}

#[tokio::test(start_paused = true)]
async fn an_acquire_that_is_given_up_cleans_up_and_says_unknown() {
    let table = Table::new();
    let process = table.process();
    // Applied unheard, then nothing gets through until the time is over but the last request.
    process.next([Fault::NeverAnswers, Fault::BlackHole, Fault::BlackHole]);
    let error = process.locks("me").try_acquire("k").lease(LEASE).await.unwrap_err();
    assert!(error.is_unknown(), "{error}");
    assert_eq!(process.take_operations(), ["UpdateItem", "GetItem", "GetItem", "UpdateItem"]);
    assert!(table.attribute("k", "isReleased").is_some(), "nobody is blocked by what was given up");
    // The clean-up was answered, which explains nothing: the cause is what came before it.
    let cause = std::error::Error::source(&error).map(ToString::to_string).unwrap_or_default();
    assert!(cause.contains("no answer within"), "{cause}");
    acquired(&table.process().locks("next")).await.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_copy_of_an_attempt_that_was_cleaned_up_is_refused_even_if_the_clock_was_set_back() {
    let table = Table::new();
    let process = table.process();
    process.set_date_offset(None);
    process.next([Fault::NeverAnswers, Fault::BlackHole, Fault::BlackHole]);
    let locks = process.locks("me");
    let attempt = tokio::spawn(async move { locks.try_acquire("k").lease(LEASE).await.map(drop) });
    tokio::time::sleep(secs(1)).await;
    process.clock.jump_wall(-60_000);
    assert!(attempt.await.unwrap().unwrap_err().is_unknown());
    assert!(table.attribute("k", "isReleased").is_some());
    assert!(!table.replay(&process.take_sent()[0]), "the release is newer than the Claim");
}

#[tokio::test(start_paused = true)]
async fn a_given_up_attempt_that_lands_after_all_is_refused_by_its_cleanup() {
    let table = Table::new();
    let (one, two) = (table.process(), table.process());
    acquired(&two.locks("two")).await.release().await.unwrap();
    tokio::time::sleep(secs(1)).await;
    // The Claim arrives six seconds late; two acquires and releases in between.
    one.next([Fault::ArrivesLate(secs(6)), Fault::BlackHole, Fault::BlackHole]);
    assert!(one.locks("one").try_acquire("k").lease(LEASE).await.unwrap_err().is_unknown());
    acquired(&two.locks("two")).await.release().await.unwrap();
    tokio::time::sleep(secs(10)).await;
    assert!(table.attribute("k", "ownerName").unwrap().starts_with("two/"), "the late copy was refused");
}

#[tokio::test(start_paused = true)]
async fn after_an_unknown_attempt_a_lock_held_by_another_is_unknown_and_not_held() {
    let table = Table::new();
    let (one, two) = (table.process(), table.process());
    let lock = acquired(&one.locks("one")).await;
    two.next([Fault::ArrivesLate(secs(2))]);
    // The Peek shows somebody else's row, but our first attempt may still be on its way.
    let error = two.locks("two").try_acquire("k").lease(LEASE).await.unwrap_err();
    assert!(error.is_unknown(), "{error}");
    lock.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn nothing_gets_through_at_all() {
    let table = Table::new();
    let process = table.process();
    let mut lock = acquired(&process.locks("me")).await;
    let token = lock.token();
    process.take_sent();
    let started = tokio::time::Instant::now();
    process.next(vec![Fault::BlackHole; 9]);
    assert!(lock.checkpoint().await.unwrap_err().is_unknown());
    assert!(started.elapsed() <= secs(4), "{:?}", started.elapsed());
    assert!(!lock.remaining().is_zero(), "what the guard believed, it may go on believing");
    assert!(lock.release().await.unwrap_err().is_unknown());
    assert_eq!(process.take_sent().len(), 6);

    // A release can be repeated from the token.
    process.take_sent();
    process.next(vec![]);
    tokio::time::sleep(secs(1)).await;
    let locks = table.process().locks("me");
    assert_eq!(locks.release(token).await.unwrap(), ReleaseOutcome::Released);
}

#[tokio::test(start_paused = true)]
async fn where_writes_fail_and_reads_are_answered_attempts_are_paced() {
    let table = Table::new();
    let process = table.process();
    for _ in 0..500 {
        process.next([Fault::Says(500, ""), Fault::None]);
    }
    let started = tokio::time::Instant::now();
    assert!(process.locks("me").try_acquire("k").lease(LEASE).await.unwrap_err().is_unknown());
    assert!(started.elapsed() >= secs(3), "{:?}", started.elapsed());
    let requests = process.take_sent().len();
    assert!(requests < 40, "{requests} requests in three seconds");
}

#[tokio::test(start_paused = true)]
async fn throttling_is_waited_out_within_the_callers_time() {
    for code in ["ProvisionedThroughputExceededException", "ThrottlingException", "RequestLimitExceeded"] {
        let table = Table::new();
        let process = table.process();
        process.next(vec![Fault::error(code); 4]);
        let mut lock = acquired(&process.locks("me")).await;
        assert_eq!(process.take_sent().len(), 5, "{code}");
        process.next(vec![Fault::error(code); 3]);
        lock.checkpoint().await.unwrap();
        process.next(vec![Fault::error(code); 3]);
        assert_eq!(lock.release().await.unwrap(), ReleaseOutcome::Released);
    }
}

#[tokio::test(start_paused = true)]
async fn throttling_that_outlasts_the_callers_time_is_unavailable_and_nothing_was_applied() {
    let table = Table::new();
    let process = table.process();
    process.next(vec![Fault::error("ThrottlingException"); 200]);
    let started = tokio::time::Instant::now();
    let error = process.locks("me").try_acquire("k").lease(LEASE).await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Unavailable), "{error}");
    assert!(started.elapsed() >= secs(3) && started.elapsed() < secs(4), "{:?}", started.elapsed());
    assert!(std::error::Error::source(&error).is_some(), "the SDK's own error is kept");
    assert_eq!(table.row("k"), None);
}

#[tokio::test(start_paused = true)]
async fn throttling_after_an_attempt_of_unknown_outcome_is_unknown() {
    let table = Table::new();
    let process = table.process();
    let mut lock = acquired(&process.locks("me")).await;
    process.next([Fault::NeverAnswers]);
    process.next(vec![Fault::error("ThrottlingException"); 200]);
    assert!(lock.checkpoint().await.unwrap_err().is_unknown());
    let _ = lock.into_token();
}

#[tokio::test(start_paused = true)]
async fn a_transaction_that_holds_the_row_for_an_instant_is_waited_out() {
    let table = Table::new();
    let process = table.process();
    process.next([Fault::error("TransactionConflictException")]);
    let mut lock = acquired(&process.locks("me")).await;
    assert_eq!(process.take_operations(), ["UpdateItem", "UpdateItem"]);
    process.next([Fault::error("TransactionConflictException")]);
    lock.checkpoint().await.unwrap();
    process.next([Fault::error("TransactionConflictException")]);
    assert_eq!(lock.release().await.unwrap(), ReleaseOutcome::Released);
}

#[tokio::test(start_paused = true)]
async fn throttling_and_lost_connections_while_waiting_are_retried_within_the_budget() {
    let table = Table::new();
    let (one, two) = (table.process(), table.process());
    let lock = acquired(&one.locks("one")).await;
    let (locks, budget) = (two.locks("two"), two.budget(secs(100)));
    two.next([Fault::None]);
    for _ in 0..4 {
        two.next([Fault::error("ThrottlingException"), Fault::RequestLost, Fault::BlackHole, Fault::Says(503, "")]);
    }
    let waiter = tokio::spawn(async move { locks.acquire("k").within(&budget).await });
    tokio::time::sleep(secs(10)).await;
    lock.release().await.unwrap();
    waiter.await.unwrap().unwrap().release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn polls_that_stay_unanswered_do_not_hide_who_holds_the_lock() {
    let table = Table::new();
    let (one, two) = (table.process(), table.process());
    let lock = one.locks("one").try_acquire("k").lease(secs(600)).await.unwrap().granted().unwrap();
    two.next([Fault::None]);
    two.next(vec![Fault::RequestLost; 500]);
    let error = two.locks("two").acquire("k").within(&two.budget(secs(10))).await.unwrap_err();
    assert_eq!(error.held().unwrap().holder, lock.owner(), "no attempt of ours is open: {error}");
    lock.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_duplicate_that_arrives_after_the_release_changes_nothing() {
    let table = Table::new();
    let (one, two) = (table.process(), table.process());
    let locks = one.locks("one");
    one.next([Fault::ArrivesTwice(secs(5))]);
    let mut lock = acquired(&locks).await;
    one.next([Fault::ArrivesTwice(secs(5))]);
    lock.checkpoint().await.unwrap();
    one.next([Fault::ArrivesTwice(secs(5))]);
    lock.release().await.unwrap();
    let next = acquired(&two.locks("two")).await;
    let before = table.row("k");
    tokio::time::sleep(secs(10)).await;
    assert_eq!(table.row("k"), before, "copies of claim, renewal and release were all refused");
    next.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_delayed_copy_of_a_claim_is_refused_by_a_newer_release() {
    let table = Table::new();
    let process = table.process();
    acquired(&process.locks("one")).await.release().await.unwrap();
    process.next([Fault::ArrivesTwice(secs(5))]);
    acquired(&process.locks("one")).await.release().await.unwrap();
    let released = table.row("k");
    tokio::time::sleep(secs(10)).await;
    assert_eq!(table.row("k"), released);
}

#[tokio::test(start_paused = true)]
async fn one_claim_applied_twice_around_another_holder_does_not_make_the_first_one_current() {
    let table = Table::new();
    let (one, two) = (table.process(), table.process());
    let mut first = acquired(&one.locks("one")).await;
    let claim = one.take_sent().remove(0);
    first.checkpoint().await.unwrap();
    let token = first.token();
    // Another holder, whose clock is a minute behind, comes and goes: by that clock before the first one
    // asked. So a copy of the first one's request finds a lock that was free when it was asked for.
    two.set_date_offset(None);
    two.clock.jump_wall(-60_000);
    let budget = two.budget(secs(40)).reserve(secs(1));
    let second = two.locks("two").acquire("k").within(&budget).await.unwrap();
    let newer = second.fencing_token();
    second.release().await.unwrap();
    assert!(table.replay(&claim), "applied again");
    assert_eq!(table.attribute("k", "fencingToken"), Some((newer + 1).to_string()));

    assert!(first.checkpoint().await.unwrap_err().is_lost(), "the row carries our grant, but not our token");
    let locks = one.locks("one");
    assert_eq!(locks.release(token).await.unwrap(), ReleaseOutcome::AlreadyGone);
    assert_eq!(table.attribute("k", "isReleased"), None);
}

#[tokio::test(start_paused = true)]
async fn what_the_deployment_lacks_is_said_and_not_retried() {
    type IsKind = fn(&ErrorKind) -> bool;
    let denied: IsKind = |kind| matches!(kind, ErrorKind::Denied);
    let missing: IsKind = |kind| matches!(kind, ErrorKind::Table);
    let invalid: IsKind = |kind| matches!(kind, ErrorKind::InvalidRequest);
    for (code, is_kind) in [
        ("AccessDeniedException", denied),
        ("ExpiredTokenException", denied),
        ("UnrecognizedClientException", denied),
        ("ResourceNotFoundException", missing),
        ("ItemCollectionSizeLimitExceededException", invalid),
    ] {
        let table = Table::new();
        let process = table.process();
        let locks = process.locks("me");
        process.next([Fault::error(code)]);
        let error = locks.try_acquire("k").lease(LEASE).await.unwrap_err();
        let expected = if code.starts_with("Item") { 2 } else { 1 };
        assert!(is_kind(error.kind()), "{code}: {error}");
        assert_eq!(process.take_sent().len(), expected, "{code}");

        let mut lock = acquired(&locks).await;
        process.take_sent();
        process.next([Fault::error(code), Fault::error(code), Fault::error(code)]);
        assert!(is_kind(lock.checkpoint().await.unwrap_err().kind()), "{code}");
        assert!(is_kind(locks.peek("k").await.unwrap_err().kind()), "{code}");
        assert!(is_kind(lock.release().await.unwrap_err().kind()), "{code}");
        assert_eq!(process.take_sent().len(), 3, "{code}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_expired_identity_after_an_unknown_attempt_is_still_unknown() {
    let table = Table::new();
    let process: Process = table.process();
    process.next([Fault::NeverAnswers, Fault::error("ExpiredTokenException"), Fault::error("ExpiredTokenException")]);
    let error = process.locks("me").try_acquire("k").lease(LEASE).await.unwrap_err();
    assert!(error.is_unknown(), "{error}");
    assert!(format!("{:?}", std::error::Error::source(&error)).contains("ExpiredToken"), "{error:?}");
}

#[tokio::test(start_paused = true)]
async fn an_acquire_that_gives_up_frees_what_any_of_its_attempts_got_also_when_the_clock_was_set_back() {
    let table = Table::new();
    let process = table.process();
    let locks = process.locks("me");
    process.next([Fault::ArrivesLate(Duration::from_millis(1_500)), Fault::None]);
    process.next([Fault::BlackHole, Fault::BlackHole]);
    let clock = process.clock.clone();
    let back = tokio::spawn(async move {
        tokio::time::sleep(Duration::from_millis(500)).await;
        clock.jump_wall(-1_800);
    });

    let error = locks.try_acquire("k").lease(Duration::from_secs(20)).await.unwrap_err();

    back.await.unwrap();
    assert!(error.is_unknown(), "{error}");
    assert!(table.attribute("k", "isReleased").is_some(), "{:?}", table.row("k"));
}

#[tokio::test(start_paused = true)]
async fn a_failure_of_the_server_is_no_refusal_whatever_code_it_names() {
    for code in ["AccessDeniedException", "ThrottlingException", "ValidationException"] {
        let table = Table::new();
        let process = table.process();
        let Fault::Says(_, body) = Fault::error(code) else { panic!("a scripted answer") };
        process.next([Fault::AppliedButSays(500, body)]);
        let lock = process.locks("me").try_acquire("k").lease(Duration::from_secs(20)).await.unwrap().granted();
        lock.unwrap_or_else(|| panic!("{code}")).release().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_look_that_is_not_answered_does_not_make_an_unanswered_write_known() {
    let denied = || vec![Fault::error("ExpiredTokenException"); 10];
    let table = Table::new();
    let process = table.process();
    let mut lock =
        process.locks("me").try_acquire("k").lease(Duration::from_secs(20)).await.unwrap().granted().unwrap();
    // Applied and not heard; refused without a row; the look is not heard; then the credentials are over.
    process.next([Fault::AnswerLost, Fault::error("ConditionalCheckFailedException"), Fault::RequestLost]);
    process.next(denied());
    let error = lock.checkpoint().await.unwrap_err();
    assert!(error.is_unknown(), "{error}");

    process.clear();
    const REASONS: &str = r#"{"__type":"com.amazonaws.dynamodb.v20120810#TransactionCanceledException","message":"x",
        "CancellationReasons":[{"Code":"ConditionalCheckFailed"}]}"#;
    process.next([Fault::AnswerLost, Fault::Says(400, REASONS), Fault::RequestLost]);
    process.next(denied());
    let error = lock.commit([]).await.unwrap_err();
    assert!(error.is_unknown(), "{error}");
    process.clear();
    assert_eq!(lock.settle_commit().await.unwrap(), lambda_lock::CommitOutcome::Applied);
    lock.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_answer_without_the_token_that_was_asked_for_leaves_nothing_taken() {
    let table = Table::new();
    let process = table.process();
    const BODY: &str = r#"{"Attributes":{"key":{"S":"k"},"ownerName":{"S":"me"},"leaseDuration":{"S":"20000"},
        "recordVersionNumber":{"S":"ll1-00000000000000000000000000000000-0000000000000000"},"leaseEndsAt":{"N":"1"}}}"#;
    process.next([Fault::AppliedButSays(200, BODY)]);
    process.next(vec![Fault::BlackHole; 3]);

    let error = process.locks("me").try_acquire("k").lease(Duration::from_secs(20)).await.unwrap_err();

    assert!(error.is_unknown(), "{error}");
    assert!(table.attribute("k", "isReleased").is_some());
}
