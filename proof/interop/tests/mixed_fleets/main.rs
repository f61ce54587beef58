//! Our client and other clients share a table. Each one holds, renews, releases and dies, and the others
//! understand its rows.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that cannot go on fails")]

mod carried;
mod counter;
mod dialects;
mod fleet;
mod in_line;
mod ours_holds;
mod peer_holds;
mod python;

use crate::fleet::{Promise, keep};
use lambda_lock_interop::Language::{self, Go, Java, Python};
use lambda_lock_local::{DynamoDbLocal, LocalDynamoDb};
use std::sync::Arc;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

/// How many promises run at a time on DynamoDB Local. Most of them wait for leases, but each one starts a
/// process or two.
const AT_ONCE: usize = 4;

/// Makes each promise a test on the embedded DynamoDB. All of them together are one test on DynamoDB Local.
macro_rules! promises {
    ($($module:ident::$promise:ident, with $languages:expr;)*) => {
        $(#[tokio::test(flavor = "multi_thread")]
        async fn $promise() {
            let dynamodb = LocalDynamoDb::in_memory().await.unwrap();
            keep(dynamodb.endpoint(), stringify!($promise), |fleet| Box::pin($module::$promise(fleet)), $languages).await;
        })*

        const PROMISES: &[(&str, Promise, &[Language])] =
            &[$((stringify!($promise), |fleet| Box::pin($module::$promise(fleet)), $languages)),*];
    };
}

promises! {
    peer_holds::a_peers_lock_is_refused_to_us_and_its_holder_named, with &[Java, Go];
    peer_holds::a_peer_that_renews_keeps_its_lock_and_one_that_dies_is_taken_over_by_observation, with &[Java, Go];
    peer_holds::a_row_that_a_peer_released_costs_two_requests_and_one_that_it_deleted_costs_one, with &[Java, Go];
    peer_holds::a_peer_that_was_taken_over_can_neither_renew_nor_release_our_lock, with &[Java, Go];
    ours_holds::our_lock_is_refused_to_a_peer_which_reads_its_holder, with &[Java, Go];
    ours_holds::our_renewals_keep_a_waiting_peer_waiting, with &[Java, Go];
    ours_holds::a_peer_acquires_what_we_released_whether_its_row_stayed_or_was_deleted, with &[Java, Go];
    ours_holds::a_peer_takes_over_when_we_die_and_we_learn_that_the_lock_is_lost, with &[Java, Go];
    carried::data_is_carried_both_ways, with &[Java, Go];
    carried::a_peers_own_attributes_outlive_our_grants, with &[Java, Go];
    carried::our_attributes_are_dropped_by_java_and_copied_by_go, with &[Java, Go];
    carried::our_additional_attributes_are_read_by_a_peer_and_end_with_our_next_grant, with &[Java, Go];
    carried::a_frozen_lock_is_granted_to_a_peer_and_is_frozen_to_us_unless_java_dropped_the_freeze, with &[Java, Go];
    carried::our_token_grows_after_a_peer_wrote_the_row, with &[Java, Go];
    carried::an_old_token_that_a_peer_wrote_back_does_not_make_ours_smaller, with &[Go];
    in_line::two_in_line_whom_a_peer_passes_get_the_lock_one_after_the_other, with &[Java, Go];
    in_line::a_line_counts_in_our_row_and_not_in_one_that_a_peer_wrote, with &[Java, Go];
    dialects::a_row_in_the_others_dialect_is_an_error_to_a_peer_and_stays_as_it_is, with &[Java, Go];
    dialects::both_dialects_are_read_by_us_whichever_we_write, with &[Java, Go];
    counter::a_hundred_acquisitions_shared_with_one_peer_count_exactly, with &[Java, Go];
    counter::two_hundred_acquisitions_by_three_languages_count_exactly, with &[Java];
    python::a_row_of_python_is_no_lock_record_and_is_left_as_it_is, with &[Python];
    python::both_locks_live_in_one_table_under_two_sort_keys, with &[Python];
    python::callers_that_hold_both_locks_let_callers_of_either_in_one_at_a_time, with &[Python];
}

#[tokio::test(flavor = "multi_thread")]
async fn every_promise_is_kept_on_dynamodb_local() {
    let Some(dynamodb) = DynamoDbLocal::start().await.unwrap() else { return };
    let dynamodb = Arc::new(dynamodb);
    let at_once = Arc::new(Semaphore::new(AT_ONCE));
    let mut kept = JoinSet::new();
    for (name, promise, languages) in PROMISES {
        let (dynamodb, at_once) = (Arc::clone(&dynamodb), Arc::clone(&at_once));
        kept.spawn(async move {
            let _turn = at_once.acquire().await.unwrap();
            keep(dynamodb.endpoint(), name, *promise, languages).await;
        });
    }
    kept.join_all().await;
}
