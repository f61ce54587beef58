//! Commits that are cut: the caller's writes are applied once or not at all, and no caller is told otherwise.

use crate::world::{Arrival, Fault, Shared, drive, faults};
use crate::{acquired, ends_well, learnt};
use aws_sdk_dynamodb::types::{AttributeValue, Put, TransactWriteItem};
use lambda_lock::{CommitOutcome, ErrorKind};

/// One of the caller's writes. The world counts how often it was applied.
pub(crate) fn write() -> TransactWriteItem {
    let put = Put::builder().table_name("work").item("key", AttributeValue::S("k".to_owned())).build().unwrap();
    TransactWriteItem::builder().put(put).build()
}

#[test]
fn a_commit_cut_anywhere_is_applied_once_or_not_at_all_and_reports_which() {
    for fault in faults() {
        let shared = Shared::new();
        let mut lock = acquired(&shared, "me");
        shared.fails(fault);
        let committed = learnt(fault, drive(&shared, lock.commit([write()]).into_future()));
        let what = format!("{fault:?}: {committed:?}");
        let written = shared.world().written;
        assert!(written <= 1, "{what}: applied {written} times");
        shared.fails(Fault::default());
        match committed {
            Some(()) => assert_eq!(written, 1, "{what}"),
            None => match drive(&shared, async { lock.resolve_commit().await }).unwrap() {
                Ok(CommitOutcome::Applied) => assert_eq!(written, 1, "{what}"),
                Ok(CommitOutcome::NotApplied) => assert_eq!(written, 0, "{what}"),
                Ok(_) => panic!("{what}: the outcome is unknown after only one fault"),
                // It was dropped before there was a commit to resolve.
                Err(error) => {
                    assert!(written == 0 && error.kind() == ErrorKind::InvalidRequest, "{what}: {error}");
                }
            },
        }
        // A resolved commit stays resolved, and a commit that was not applied can be sent again.
        shared.arrives(Arrival::AfterRepetition);
        assert_eq!(shared.world().written, written, "{what}: applied afterwards");
        if written == 0 {
            drive(&shared, lock.commit([write()]).into_future()).unwrap().unwrap();
            assert_eq!(shared.world().written, 1, "{what}");
        }
        ends_well(&shared, Some(&lock), lock.fencing_token(), &what);
    }
}

#[test]
fn a_commit_and_release_cut_anywhere_is_applied_once_or_not_at_all() {
    for fault in faults() {
        let shared = Shared::new();
        let lock = acquired(&shared, "me");
        let fencing = lock.fencing_token();
        shared.fails(fault);
        let committed = learnt(fault, drive(&shared, lock.commit_and_release([write()]).into_future()));
        let what = format!("{fault:?}: {committed:?}");
        let written = shared.world().written;
        match committed {
            Some(()) => assert!(written == 1 && shared.held().is_none(), "{what}"),
            None => assert!(written == 0 || written == 1 && shared.held().is_none(), "{what}: applied {written} times"),
        }
        ends_well(&shared, None, fencing, &what);
    }
}
