//! What a call says of its outcome: only what is known, and never that ours is somebody else's.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a helper of a test may stop it")]

use aws_sdk_dynamodb::types::{AttributeValue, Put, TransactWriteItem};
use lambda_lock::{CommitOutcome, ErrorKind, Lock, LockClient, LockToken, ReleaseOutcome};
use lambda_lock_testkit::{Fault, Table};
use serde_json::json;
use std::future::IntoFuture;
use std::time::Duration;
use tokio::time::Instant;

const LEASE: Duration = Duration::from_secs(20);

fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

async fn acquired(locks: &LockClient) -> Lock {
    locks.try_acquire("k").lease(LEASE).await.unwrap().granted().unwrap()
}

fn refused() -> Fault {
    Fault::error("ConditionalCheckFailedException")
}

fn throttled() -> Vec<Fault> {
    vec![Fault::error("ThrottlingException"); 200]
}

/// A write of the caller's that is applied each time that it is asked for, and counted.
fn counted(key: &str) -> TransactWriteItem {
    let update = aws_sdk_dynamodb::types::Update::builder()
        .table_name("locks")
        .key("key", AttributeValue::S(key.to_owned()))
        .update_expression("ADD applied :one")
        .expression_attribute_values(":one", AttributeValue::N("1".to_owned()))
        .build()
        .unwrap();
    TransactWriteItem::builder().update(update).build()
}

/// A write of the caller's whose condition never holds.
fn hopeless() -> TransactWriteItem {
    let put = Put::builder()
        .table_name("locks")
        .item("key", AttributeValue::S("never".to_owned()))
        .condition_expression("attribute_exists(no_such_attribute)")
        .build()
        .unwrap();
    TransactWriteItem::builder().put(put).build()
}

fn applied(table: &Table, key: &str) -> u32 {
    table.attribute(key, "applied").map_or(0, |count| count.parse().unwrap())
}

#[tokio::test(start_paused = true)]
async fn a_reclaim_never_says_lost_while_the_lock_is_the_callers() {
    let table = Table::new();
    let (one, two) = (table.process(), table.process());
    let mut lock = acquired(&one.locks("one")).await;
    let token = lock.token();
    lock.checkpoint().await.unwrap();
    // The first Take is refused by the renewed version; the second one is throttled until the time is over.
    two.next([Fault::None]);
    two.next(throttled());

    let error = two.locks("two").reclaim(token).lease(LEASE).await.unwrap_err();

    assert!(matches!(error.kind(), ErrorKind::Unavailable), "{error}");
    two.clear();
    lock.checkpoint().await.unwrap();
    lock.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_reclaims_its_own_lock_is_never_told_that_it_is_held_by_itself() {
    let table = Table::new();
    let (one, two) = (table.process(), table.process());
    let acquire =
        |locks: LockClient| async move { locks.try_acquire("k").lease(LEASE).owner("step-1").reclaim_own().await };
    let lock = acquire(one.locks("one")).await.unwrap().granted().unwrap();
    // The Claim is refused by the caller's own row; the Take is throttled until the time is over.
    two.next([Fault::None]);
    two.next(throttled());

    let error = acquire(two.locks("two")).await.unwrap_err();

    assert!(matches!(error.kind(), ErrorKind::Unavailable), "{error}");
    lock.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_rejected_repetition_does_not_hide_that_the_first_attempt_may_have_been_applied() {
    for code in ["ExpiredTokenException", "AccessDeniedException", "ValidationException", "ResourceNotFoundException"] {
        let table = Table::new();
        let process = table.process();
        let locks = process.locks("me");
        let mut lock = acquired(&locks).await;
        let faults = || [Fault::AnswerLost, Fault::error(code)];

        process.next(faults());
        let renewed = lock.checkpoint().await.unwrap_err();
        process.clear();
        process.next(faults());
        let committed = lock.commit([counted("o-1")]).await.unwrap_err();
        process.clear();
        assert_eq!(lock.settle_commit().await.unwrap(), CommitOutcome::Applied, "{code}");
        process.next(faults());
        let released = lock.release().await.unwrap_err();
        process.clear();
        process.next(faults());
        let acquired = locks.try_acquire("k").lease(LEASE).await.unwrap_err();

        for (call, error) in [("renew", renewed), ("commit", committed), ("release", released), ("acquire", acquired)] {
            assert!(error.is_unknown(), "{call}, {code}: {error}");
            assert!(std::error::Error::source(&error).is_some(), "{call}, {code}: the cause is told");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_refusal_without_a_row_is_looked_into_and_does_not_go_round_in_circles() {
    let table = Table::new();
    let process = table.process();
    process.next(vec![refused(); 100_000]);
    let started = Instant::now();

    let error = process.locks("me").try_acquire("k").lease(LEASE).await.unwrap_err();

    assert!(matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Unknown), "{error}");
    assert!(process.take_sent().len() < 40, "it pauses");
    assert!(started.elapsed() <= secs(4), "{:?}", started.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_refusal_without_a_row_is_no_loss_of_a_lock_that_is_ours() {
    let table = Table::new();
    let process = table.process();
    let mut lock = acquired(&process.locks("me")).await;

    process.next([refused()]);
    lock.checkpoint().await.unwrap();
    process.next([refused()]);
    let token = lock.token();
    process.locks("me").resume(token.clone()).await.unwrap().into_token();
    process.next([refused()]);
    let lock = process.locks("me").reclaim(token).lease(LEASE).await.unwrap();
    process.next([refused()]);

    lock.release().await.unwrap();
    assert!(table.attribute("k", "isReleased").is_some());
}

#[tokio::test(start_paused = true)]
async fn a_lock_written_down_with_a_commit_of_unknown_outcome_is_not_committed_twice() {
    for applies in [true, false] {
        let table = Table::new();
        let (one, two) = (table.process(), table.process());
        let mut lock = acquired(&one.locks("one")).await;
        one.next(vec![if applies { Fault::NeverAnswers } else { Fault::BlackHole }; 200]);
        assert!(lock.commit([counted("o-1")]).await.unwrap_err().is_unknown());
        let json = serde_json::to_string(&lock.into_token()).unwrap();
        let token: LockToken = serde_json::from_str(&json).unwrap();

        let mut lock = two.locks("two").resume(token).await.unwrap();
        let error = lock.commit([counted("o-1")]).await.unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::InvalidRequest), "not before the first one is settled: {error}");
        let outcome = lock.settle_commit().await.unwrap();

        assert_eq!(outcome, if applies { CommitOutcome::Applied } else { CommitOutcome::NotApplied });
        assert_eq!(applied(&table, "o-1"), u32::from(applies));
        lock.release().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_reclaimed_lock_still_tells_what_became_of_the_commit_before() {
    for applies in [true, false] {
        let table = Table::new();
        let (one, two) = (table.process(), table.process());
        let mut lock = acquired(&one.locks("one")).await;
        one.next(vec![if applies { Fault::NeverAnswers } else { Fault::BlackHole }; 200]);
        assert!(lock.commit([counted("o-1")]).await.unwrap_err().is_unknown());

        let mut lock = two.locks("two").reclaim(lock.into_token()).lease(LEASE).await.unwrap();
        assert!(lock.commit([counted("o-1")]).await.is_err(), "not before the first one is settled");

        let outcome = lock.settle_commit().await.unwrap();
        assert_eq!(outcome, if applies { CommitOutcome::Applied } else { CommitOutcome::NotApplied });
        lock.commit([counted("o-2")]).await.unwrap();
        lock.release().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_transaction_cancelled_with_the_locks_row_unseen_says_nothing_of_the_lock() {
    let table = Table::new();
    let (one, two) = (table.process(), table.process());
    let mut lock = acquired(&one.locks("one")).await;
    tokio::time::sleep(secs(60)).await;
    let theirs = acquired(&two.locks("two")).await;
    const REASONS: &str = r#"{"__type":"com.amazonaws.dynamodb.v20120810#TransactionCanceledException","message":"x",
        "CancellationReasons":[{"Code":"ConditionalCheckFailed","Message":"y"},{"Code":"TransactionConflict"}]}"#;
    one.next([Fault::Says(400, REASONS)]);

    let error = lock.commit([counted("o-1")]).await.unwrap_err();

    assert!(error.is_lost(), "{error}");
    assert_eq!(applied(&table, "o-1"), 0);
    theirs.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_lock_is_released_without_data_that_does_not_fit_and_the_error_says_so() {
    let table = Table::new();
    let process = table.process();
    let lock = acquired(&process.locks("me")).await;
    process.take_sent();

    let error = lock.release().data(vec![0; 400 * 1024]).await.unwrap_err();

    assert!(matches!(error.kind(), ErrorKind::InvalidRequest), "{error}");
    assert!(error.to_string().contains("was released, but without its data"), "{error}");
    assert_eq!(process.take_operations(), ["UpdateItem"]);
    assert!(table.attribute("k", "isReleased").is_some());
    assert_eq!(table.attribute("k", "data"), None);
}

#[tokio::test(start_paused = true)]
async fn a_lock_of_a_holder_with_a_long_name_is_released_without_data_that_does_not_fit_beside_the_name() {
    let table = Table::new();
    let locks = table.process().locks("me");
    let acquire = locks.try_acquire("k").lease(LEASE).owner("o".repeat(2048));
    let lock = acquire.await.unwrap().granted().unwrap();

    let error = lock.release().data(vec![0; 400 * 1024 - 2048]).await.unwrap_err();

    assert!(error.to_string().contains("was released, but without its data"), "{error}");
    assert!(table.attribute("k", "isReleased").is_some());
}

#[tokio::test(start_paused = true)]
async fn a_lock_is_released_without_data_that_does_not_fit_beside_what_others_have_stored_in_its_row() {
    let table = Table::new();
    let lock = acquired(&table.process().locks("me")).await;
    table.set("k", json!({"note": {"S": "n".repeat(5000)}}));

    let error = lock.release().data(vec![0; 400 * 1024 - 3000]).await.unwrap_err();

    assert!(error.to_string().contains("was released, but without its data"), "{error}");
    assert!(table.attribute("k", "isReleased").is_some());
}

#[tokio::test(start_paused = true)]
async fn a_release_that_came_too_late_does_not_say_that_it_released_whatever_became_of_its_data() {
    let table = Table::new();
    let lock = acquired(&table.process().locks("me")).await;
    tokio::time::sleep(secs(60)).await;
    let other = acquired(&table.process().locks("other")).await;

    let gone = lock.release().data(vec![0; 400 * 1024]).await;

    assert!(matches!(gone, Ok(ReleaseOutcome::AlreadyGone)), "{gone:?}");
    other.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn beside_a_rival_that_is_always_faster_a_call_ends_with_its_time() {
    let table = Table::new();
    let (one, two) = (table.process(), table.process());
    let locks = one.locks("rival");
    acquired(&locks).await.release().await.unwrap();
    // Each request of ours finds a row that was released in the future, and another one each time.
    two.set_latency(Duration::from_millis(4));
    let rival = tokio::spawn({
        let table = table.clone();
        async move {
            for turn in 0_u64.. {
                let version = format!("ll1-{:032x}-{:016x}", turn, 0x0199_d6a4_c800_0000_u64 + turn);
                table.set("k", json!({"recordVersionNumber": {"S": version}, "leaseEndsAt": {"N": "1900000000000"}}));
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        }
    });
    let started = Instant::now();

    let error = two.locks("me").acquire("k").within(&two.budget(Duration::from_millis(200))).await.unwrap_err();

    rival.abort();
    assert!(matches!(error.kind(), ErrorKind::Unavailable), "{error}");
    assert!(started.elapsed() <= Duration::from_millis(260), "{:?}", started.elapsed());
    assert!(two.take_sent().len() < 30);
}

#[tokio::test(start_paused = true)]
async fn a_transaction_that_is_sent_again_is_the_same_to_the_last_byte() {
    for _ in 0..10 {
        let table = Table::new();
        let process = table.process();
        let mut lock = acquired(&process.locks("me")).await;
        process.take_sent();
        process.next([Fault::RequestLost, Fault::RequestLost]);

        lock.commit([counted("o-1"), counted("o-2")]).await.unwrap();

        let sent = process.take_sent();
        assert_eq!(sent.len(), 3);
        assert!(sent.iter().all(|each| each.body == sent[0].body), "{sent:#?}");
        lock.release().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_commit_is_not_applied_over_its_own_version() {
    let table = Table::new();
    let process = table.process();
    let mut lock = acquired(&process.locks("me")).await;
    process.take_sent();
    lock.commit([counted("o-1")]).await.unwrap();
    let commit = process.take_sent().remove(0);
    // DynamoDB has forgotten the token: to it, the copy is a transaction like any other.
    let mut forgotten: serde_json::Value = serde_json::from_str(&commit.body).unwrap();
    forgotten["ClientRequestToken"] = json!("0123456789abcdef0123456789abcdef");

    let (status, _) = table.carry_out(&commit.operation, &forgotten.to_string());

    assert_eq!((status, applied(&table, "o-1")), (400, 1));
    lock.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_refusal_heard_when_the_token_is_forgotten_does_not_prove_that_nothing_was_applied() {
    const REASONS: &str = r#"{"__type":"com.amazonaws.dynamodb.v20120810#TransactionCanceledException","message":"x",
        "CancellationReasons":[{"Code":"None"},{"Code":"ConditionalCheckFailed","Item":{"key":{"S":"k"},
        "ownerName":{"S":"another"},"leaseDuration":{"S":"20000"},"fencingToken":{"N":"1900000000000"},
        "recordVersionNumber":{"S":"ll1-00000000000040008000000000000000-01a3185c5000af96"}}}]}"#;
    let table = Table::new();
    let process = table.process();
    let mut lock = acquired(&process.locks("me")).await;
    process.set_latency(Duration::from_millis(50));
    process.next([Fault::AnswerLost, Fault::Says(400, REASONS)]);
    // The process is frozen while it repeats the request, for longer than DynamoDB remembers a transaction.
    process.take_sent();
    let freeze = async {
        let mut sent = 0;
        while sent < 2 {
            tokio::time::sleep(Duration::from_millis(1)).await;
            sent += process.take_sent().len();
        }
        process.clock.jump_wall(660_000);
    };

    let (committed, ()) = tokio::join!(lock.commit([counted("o-1")]).into_future(), freeze);

    assert!(committed.as_ref().unwrap_err().is_unknown(), "{committed:?}");
    assert_eq!(lock.settle_commit().await.unwrap(), CommitOutcome::Indeterminate);
    assert_eq!(applied(&table, "o-1"), 1);
    lock.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_late_copy_of_a_takeover_is_refused_after_the_holder_has_released() {
    let table = Table::new();
    let (one, two) = (table.process(), table.process());
    let holder = one.locks("one").try_acquire("k").lease(secs(3)).await.unwrap().granted().unwrap();
    let token = holder.token();
    tokio::time::sleep(secs(10)).await;
    // Watched for a whole lease, the holder is taken over; the request is on its way for long.
    let locks = two.builder().without_wall_clock_takeover().build().unwrap();
    let seen = locks.try_acquire("k").lease(LEASE).await.unwrap().held().unwrap().observation.clone();
    two.next([Fault::None, Fault::ArrivesLate(secs(30)), Fault::BlackHole, Fault::BlackHole]);
    let tried = locks.try_acquire("k").lease(LEASE).observation(seen.and_waited(secs(10))).await;
    assert!(tried.unwrap_err().is_unknown());

    holder.release().await.unwrap();
    let released = table.row("k");
    tokio::time::sleep(secs(40)).await;

    assert_eq!(table.row("k"), released, "granted to a call that has ended");
    assert_eq!(token.fencing_token().to_string(), table.attribute("k", "fencingToken").unwrap());
}

#[tokio::test(start_paused = true)]
async fn a_reclaim_does_not_take_the_live_lock_of_another_task_of_the_same_client() {
    let table = Table::new();
    let process = table.process();
    let locks = process.locks("service");
    let a = locks.try_acquire("k").lease(secs(3)).await.unwrap().granted().unwrap().into_token();
    tokio::time::sleep(secs(60)).await;
    let mut b = acquired(&locks).await;

    let error = locks.reclaim(a).lease(LEASE).await.unwrap_err();

    assert!(error.is_lost(), "{error}");
    b.checkpoint().await.unwrap();
    b.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn what_can_never_be_told_of_a_commit_is_an_outcome_and_no_answer_is_an_error() {
    let table = Table::new();
    let process = table.process();
    let mut lock = acquired(&process.locks("me")).await;
    process.next(vec![Fault::NeverAnswers; 3]);
    assert!(lock.commit([counted("o-1")]).await.unwrap_err().is_unknown());
    process.clear();
    // No answer again: ask again, as often as it takes.
    for _ in 0..3 {
        process.next(vec![Fault::BlackHole; 10]);
        assert!(lock.settle_commit().await.unwrap_err().is_unknown());
        process.clear();
    }
    let copy = table.process().locks("me").resume(lock.token()).await.unwrap();
    assert_eq!(lock.settle_commit().await.unwrap(), CommitOutcome::Indeterminate);
    let _ = copy.into_token();
    lock.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_commit_whose_write_was_refused_finds_out_by_itself_that_nothing_was_applied() {
    let table = Table::new();
    let process = table.process();
    let budget = process.budget(secs(60));
    let locks = process.locks("me");
    let mut lock = locks.try_acquire("k").lease(LEASE).within(&budget).await.unwrap().granted().unwrap();
    // The first copy is lost; the second is cancelled; the answer of the Renew that makes sure is lost as well.
    process.next([Fault::RequestLost, Fault::None, Fault::AnswerLost]);

    let error = lock.commit([hopeless()]).await.unwrap_err();

    assert!(matches!(error.kind(), ErrorKind::Cancelled(_)), "{error}");
    lock.commit([counted("o-1")]).await.unwrap();
    assert_eq!(applied(&table, "o-1"), 1);
    lock.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn missing_credentials_and_a_missing_region_are_denied_at_once_and_by_name() {
    use aws_sdk_dynamodb::config::{BehaviorVersion, Config, Credentials, Region};
    let (region, credentials) =
        (Region::new("eu-central-1"), Credentials::new("AKIDEXAMPLE", "secret", None, None, "test"));
    for (region, credentials, names) in [(Some(region), None, "auth"), (None, Some(credentials), "egion")] {
        let process = Table::new().process();
        let http = process.dynamodb().config().http_client().unwrap();
        let config = Config::builder().behavior_version(BehaviorVersion::latest()).http_client(http).region(region);
        let config = credentials.into_iter().fold(config, |config, some| config.credentials_provider(some)).build();
        let clock = process.clock.shared();
        let from_client = LockClient::builder(aws_sdk_dynamodb::Client::from_conf(config.clone()), "locks");
        let from_conf = LockClient::builder_from_conf(config, "locks");
        for builder in [from_client, from_conf] {
            let locks = builder.clock(clock.clone()).build().unwrap();
            let started = Instant::now();

            let error = locks.try_acquire("k").lease(LEASE).await.unwrap_err();

            assert!(matches!(error.kind(), ErrorKind::Denied), "{error}");
            assert!(error.to_string().contains(names), "{error}");
            assert_eq!(started.elapsed(), Duration::ZERO, "{error}");
            assert!(process.take_sent().is_empty());
        }
    }
}
