//! Commit under several locks: the caller's writes and those of all locks in one transaction.

use crate::{BELIEVED, acquired, cancelled, operations, released};
use lambda_lock::{CommitOutcome, ErrorKind};
use lambda_lock_testkit::{Fault, ROUND_TRIP, Table, applied, case, counted, granted, millis, secs};
use tokio::time::{sleep, timeout};

#[tokio::test(start_paused = true)]
async fn a_commit_applies_the_writes_and_renews_all_locks_by_one_request() {
    let table = Table::new();
    let process = table.process();
    let mut set = acquired(&process.locks("me"), ["a", "b"]).await;
    operations(&process);
    sleep(secs(15)).await;

    set.commit([counted("o-1"), counted("o-2")]).await.unwrap();

    assert_eq!(operations(&process), ["TransactWriteItems"]);
    assert_eq!((applied(&table, "o-1"), applied(&table, "o-2")), (1, 1));
    assert_eq!(set.remaining(), BELIEVED - ROUND_TRIP);
    set.commit_and_release([counted("o-1")]).await.unwrap();
    assert_eq!(operations(&process), ["TransactWriteItems"]);
    assert_eq!((applied(&table, "o-1"), released(&table, &["a", "b"])), (2, vec![true; 2]));
}

#[tokio::test(start_paused = true)]
async fn a_holder_that_lost_one_lock_writes_nothing() {
    for release in [false, true] {
        let _case = case(format!("release: {release}"));
        let table = Table::new();
        let process = table.process();
        let mut set = acquired(&process.locks("me"), ["a", "b", "c"]).await;
        sleep(secs(100)).await;
        granted(table.process().locks("other").acquire("c").lease(secs(60)).try_once()).await.save();

        let error = if release {
            set.commit_and_release([counted("o-1")]).await.unwrap_err()
        } else {
            let error = set.commit([counted("o-1")]).await.unwrap_err();
            assert!(set.remaining().is_zero());
            error
        };

        assert!(error.is_lost() && error.to_string().contains("the lock c is no longer ours"), "{error}");
        assert_eq!(applied(&table, "o-1"), 0);
        assert_eq!(released(&table, &["a", "b", "c"]), [true, true, false]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_commit_of_unknown_outcome_is_settled_by_any_of_the_rows() {
    for (fault, outcome, count) in
        [(Fault::NeverAnswers, CommitOutcome::Applied, 1), (Fault::BlackHole, CommitOutcome::NotApplied, 0)]
    {
        let _case = case(format!("{outcome:?}"));
        let table = Table::new();
        let process = table.process();
        let mut set = acquired(&process.locks("me"), ["a", "b"]).await;
        process.next([fault.clone(), fault.clone(), fault]);
        let error = set.commit([counted("o-1")]).await.unwrap_err();
        assert!(error.is_unknown() && error.to_string().contains("resolve_commit"), "{error}");
        assert!(
            set.commit([counted("o-1")]).await.unwrap_err().kind() == ErrorKind::InvalidRequest,
            "not while it may be applied twice"
        );

        assert_eq!(set.resolve_commit().await.unwrap(), outcome);

        assert_eq!(applied(&table, "o-1"), count);
        assert_eq!(set.resolve_commit().await.unwrap_err().kind(), ErrorKind::InvalidRequest);
        set.commit([counted("o-1")]).await.unwrap();
        assert_eq!(applied(&table, "o-1"), count + 1);
        set.release().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn writes_that_dynamodb_refuses_are_named_and_the_locks_stay_held() {
    let table = Table::new();
    let process = table.process();
    let mut set = acquired(&process.locks("me"), ["a", "b"]).await;
    process.next([cancelled(&["None", "ConditionalCheckFailed", "None", "None"])]);

    let error = set.commit([counted("o-1"), counted("o-2")]).await.unwrap_err();

    assert!(error.is_cancelled() && error.failed_writes()[0].index == 1, "{error:?}");
    assert!(error.to_string().contains("the locks a and b were still ours"), "{error}");
    set.checkpoint().await.unwrap();
    set.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn invalid_commits_send_no_request() {
    let table = Table::new();
    let process = table.process();
    let mut set = acquired(&process.locks("me"), ["a", "b"]).await;
    process.take_sent();
    let many = (0..99).map(|index| counted(&format!("o-{index}")));
    let error = set.commit(many).await.unwrap_err();
    assert!(error.kind() == ErrorKind::InvalidRequest && error.to_string().contains("give up to 98"), "{error}");
    let error = set.commit([counted("b")]).await.unwrap_err();
    assert!(
        error.kind() == ErrorKind::InvalidRequest && error.to_string().contains("the row of the lock b itself"),
        "{error}"
    );
    assert!(operations(&process).is_empty());
    set.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn condition_checks_refuse_a_transaction_when_one_lock_is_lost() {
    let table = Table::new();
    let process = table.process();
    let set = acquired(&process.locks("me"), ["a", "b"]).await;
    let write = async |id: &str| {
        let transaction = process.dynamodb().transact_write_items().transact_items(counted(id));
        let checks = set.condition_checks().unwrap();
        checks.into_iter().fold(transaction, |all, check| all.transact_items(check)).send().await
    };
    assert!(write("o-1").await.is_ok());
    sleep(secs(100)).await;
    granted(table.process().locks("other").acquire("b").lease(secs(60)).try_once()).await.save();
    assert!(write("o-2").await.is_err());
    assert_eq!((applied(&table, "o-1"), applied(&table, "o-2")), (1, 0));
    set.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_refused_commit_names_all_locks_that_are_lost() {
    let table = Table::new();
    let process = table.process();
    let mut set = acquired(&process.locks("me"), ["a", "b", "c"]).await;
    sleep(secs(100)).await;
    for key in ["a", "c"] {
        granted(table.process().locks("other").acquire(key).lease(secs(60)).try_once()).await.save();
    }

    let error = set.commit([counted("o-1")]).await.unwrap_err();

    assert!(error.is_lost() && error.to_string().contains("the locks a and c are no longer ours"), "{error}");
    assert_eq!(released(&table, &["a", "b", "c"]), [false, true, false]);
}

#[tokio::test(start_paused = true)]
async fn a_row_that_a_copy_has_written_since_does_not_hide_the_outcome_of_the_others() {
    let table = Table::new();
    let process = table.process();
    let mut set = acquired(&process.locks("me"), ["a", "b"]).await;
    let copy = set.to_saved().locks()[0].clone();
    process.next([Fault::NeverAnswers, Fault::NeverAnswers, Fault::NeverAnswers]);
    assert!(set.commit([counted("o-1")]).await.unwrap_err().is_unknown());
    let copy = table.process().locks("me").resume(copy).lease(secs(40)).await.unwrap();

    assert_eq!(set.resolve_commit().await.unwrap(), CommitOutcome::Applied);

    std::mem::forget(copy);
    set.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn the_outcome_is_told_by_a_lock_that_is_still_held_when_another_one_is_lost() {
    for (fault, outcome, count) in
        [(Fault::NeverAnswers, CommitOutcome::Applied, 1), (Fault::BlackHole, CommitOutcome::NotApplied, 0)]
    {
        let _case = case(format!("{outcome:?}"));
        let table = Table::new();
        let process = table.process();
        let mut set = acquired(&process.locks("me"), ["a", "b"]).await;
        process.next([fault.clone(), fault.clone(), fault]);
        assert!(set.commit([counted("o-1")]).await.unwrap_err().is_unknown());
        table.delete("a");
        granted(table.process().locks("other").acquire("a").lease(secs(60)).try_once()).await.save();

        assert_eq!(set.resolve_commit().await.unwrap(), outcome);

        assert_eq!(applied(&table, "o-1"), count);
        assert!(set.checkpoint().await.unwrap_err().is_lost());
        assert_eq!(released(&table, &["a", "b"]), [false, true]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_transaction_that_dynamodb_recovers_after_five_seconds_is_committed_once() {
    for release in [false, true] {
        let _case = case(format!("release: {release}"));
        let table = Table::new();
        let process = table.process();
        let mut set = acquired(&process.locks("me"), ["a", "b"]).await;
        process.next([Fault::Limbo]);

        if release {
            set.commit_and_release([counted("o-1")]).await.unwrap();
        } else {
            set.commit([counted("o-1")]).await.unwrap();
        }

        assert_eq!((applied(&table, "o-1"), released(&table, &["a", "b"])), (1, vec![release; 2]));
    }
}

#[tokio::test(start_paused = true)]
async fn resolve_commit_waits_until_dynamodb_is_done_with_the_transaction() {
    let table = Table::new();
    let process = table.process();
    let mut set = acquired(&process.locks("me"), ["a", "b"]).await;
    process.next([Fault::Limbo]);
    timeout(millis(100), set.commit([counted("o-1")])).await.unwrap_err();

    assert_eq!(set.resolve_commit().await.unwrap(), CommitOutcome::Applied);
    assert_eq!(applied(&table, "o-1"), 1);
}

#[tokio::test(start_paused = true)]
async fn a_resolve_commit_without_a_response_leaves_the_outcome_to_the_next_one() {
    for (fault, outcome, count) in
        [(Fault::NeverAnswers, CommitOutcome::Applied, 1), (Fault::BlackHole, CommitOutcome::NotApplied, 0)]
    {
        let _case = case(format!("{outcome:?}"));
        let table = Table::new();
        let process = table.process();
        let mut set = acquired(&process.locks("me"), ["a", "b"]).await;
        process.next([fault.clone(), fault.clone(), fault]);
        assert!(set.commit([counted("o-1")]).await.unwrap_err().is_unknown());
        process.next(vec![Fault::BlackHole; 60]);

        assert!(set.resolve_commit().await.unwrap_err().is_unknown());

        process.clear();
        assert!(
            set.commit([counted("o-2")]).await.unwrap_err().kind() == ErrorKind::InvalidRequest,
            "it is still to be resolved"
        );
        assert_eq!(set.resolve_commit().await.unwrap(), outcome);
        assert_eq!((applied(&table, "o-1"), applied(&table, "o-2")), (count, 0));
        set.release().await.unwrap();
    }
}
