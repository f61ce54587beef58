//! The list of scenarios. The name of each scenario is the promise that it checks.

mod acquire;
mod errors;
mod fencing;
mod handing_over;
mod holding;
mod line;
mod lost_answers;
mod several;

use crate::native::Native;
use crate::plays::Player;
use crate::stage::Stage;
use crate::subject::{Ask, BoxFuture, Subject, World};
use anyhow::Context;
use std::time::{Duration, Instant};

/// One promise, and how to check it.
pub struct Scenario {
    /// The promise.
    pub name: &'static str,
    /// Whether only the world `client` makes this promise.
    pub of_clients_only: bool,
    play: for<'a> fn(&'a Scene<'a>) -> BoxFuture<'a, anyhow::Result<()>>,
}

impl std::fmt::Debug for Scenario {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

/// What a scenario plays with.
pub(crate) struct Scene<'a> {
    pub(crate) stage: &'a Stage,
    /// The player under test.
    pub(crate) subject: Player<'a>,
    /// Another player that uses the crate itself.
    pub(crate) native: Player<'a>,
    /// The key of this scenario's lock.
    pub(crate) key: &'a str,
    under_test: &'a dyn Subject,
}

impl Scene<'_> {
    /// The subject, opened again as another caller or on another table.
    pub(crate) async fn reopened(&self, caller: &str, table: &str) -> anyhow::Result<Player<'_>> {
        Player::opened(self.stage, self.under_test, caller, table).await
    }
}

/// Whether this caller is the owner: by its own name, or by its name with the suffix that the crate adds for each
/// acquire.
fn is_by(owner: &str, caller: &str) -> bool {
    owner.strip_prefix(caller).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Makes the list from modules that name each of their functions once.
macro_rules! scenarios {
    ($($module:ident: { $($name:ident),* $(,)? } $(+ of_clients_only { $($only:ident),* $(,)? })?)*) => {
        [
            $($(Scenario { name: stringify!($name), of_clients_only: false, play: |scene| Box::pin($module::$name(scene)) },)*
            $($(Scenario { name: stringify!($only), of_clients_only: true, play: |scene| Box::pin($module::$only(scene)) },)*)?)*
        ]
    };
}

/// All scenarios in the order in which they are played.
pub fn all() -> Vec<Scenario> {
    Vec::from(scenarios! {
        acquire: {
            a_free_lock_takes_one_request_to_acquire_and_one_to_release,
            a_lock_held_by_a_native_holder_is_refused_and_says_by_whom_and_until_when,
            a_native_contender_is_refused_while_the_subject_holds,
            a_waiter_gets_the_lock_soon_after_a_native_holder_released_it,
            waiting_ends_within_the_budget_and_says_who_holds,
            native_and_subject_take_turns_and_no_increment_is_lost,
            no_increment_is_lost_while_answers_are_lost_under_contention,
            tokens_grow_across_all_clients,
            a_dead_native_holder_is_replaced_after_its_lease,
            a_dead_subject_is_replaced_by_a_native_contender,
            observations_of_two_calls_together_prove_a_holder_dead,
            a_frozen_lock_is_refused_with_the_reason_until_it_is_thawed,
            a_retried_task_gets_its_own_lock_again_with_a_larger_token,
            the_lease_covers_the_budget_its_grace_and_the_drift,
        }
        line: {
            those_in_line_are_granted_the_lock_in_the_order_of_their_tickets,
            in_turn_a_caller_takes_its_ticket_at_its_first_look,
            a_free_lock_is_left_to_those_in_line_but_not_out_of_turn,
        }
        holding: {
            a_holder_relies_on_less_than_its_lease,
            a_renewal_takes_one_request_and_keeps_the_token,
            a_renewal_after_a_takeover_says_lost_and_stays_lost,
            an_expired_lease_is_renewed_while_no_other_caller_was_granted_the_lock,
            data_is_kept_and_replaced_by_renewals_and_the_next_holder,
            a_peek_tells_a_held_a_released_and_a_missing_row_apart,
        } + of_clients_only {
            a_step_that_the_lease_does_not_cover_is_refused,
            a_spent_budget_is_refused_without_a_request,
        }
        handing_over: {
            a_native_lock_is_resumed_by_the_subject_as_the_same_grant,
            the_subjects_lock_is_resumed_by_a_native_client_as_the_same_grant,
            a_reclaimed_lock_fences_off_the_native_copy,
            a_saved_lock_that_was_taken_over_cannot_be_resumed_or_reclaimed,
            releasing_a_stolen_lock_leaves_the_new_owner_alone_and_says_so,
            a_release_is_harmless_to_repeat,
            a_later_grant_of_the_same_owner_is_released_only_if_asked_for,
            cleaning_up_after_a_workflow_frees_its_lock_and_no_other,
            a_deleted_row_is_gone_and_the_next_token_still_grows,
        }
        fencing: {
            a_condition_check_lets_writes_through_while_the_lock_is_ours,
            a_condition_check_refuses_writes_after_a_takeover_by_a_native_client,
        }
        several: {} + of_clients_only {
            several_locks_are_granted_with_one_token_larger_than_each_before,
            several_locks_of_which_some_are_held_are_refused_with_each_of_these_and_leave_nothing_behind,
            several_locks_are_waited_for_together_and_in_order,
            a_lost_lock_of_several_is_named_and_the_others_are_free,
            several_locks_are_handed_over_as_the_same_grant,
            condition_checks_refuse_writes_when_one_of_several_locks_is_not_ours,
            what_an_earlier_refusal_of_several_saw_is_continued,
            what_cannot_work_for_several_locks_is_refused_before_any_request,
            at_most_as_many_permits_are_granted_as_there_are_places,
            a_permit_is_waited_for,
            a_retried_task_gets_its_own_several_locks_and_its_own_place_again,
        }
        lost_answers: {
            a_lost_answer_is_recognised_as_our_own_grant,
            a_lost_request_is_asked_again,
            a_grant_recognised_late_is_renewed_before_it_is_reported,
            a_renewal_whose_answer_was_lost_is_not_lost,
            a_release_whose_answer_was_lost_is_released,
            an_answer_lost_before_a_native_holder_came_is_unknown_and_not_held,
            nothing_gets_through_at_all,
            throttling_is_waited_out,
            throttling_that_outlasts_the_time_is_unavailable_and_nothing_was_applied,
        }
        errors: {
            what_cannot_work_is_refused_before_any_request,
            a_row_that_is_no_lock_record_is_reported_and_left_alone,
            a_missing_table_says_so,
            missing_permissions_say_so,
            a_saved_lock_that_was_tampered_with_is_refused,
        }
    })
}

/// The result of one scenario.
#[derive(Debug)]
pub struct Played {
    /// The name of the scenario.
    pub name: &'static str,
    /// `None`: the scenario does not apply to this subject's world.
    pub result: Option<anyhow::Result<()>>,
    /// The duration of the scenario.
    pub took: Duration,
}

/// Plays the scenarios whose names contain a text, one after the other.
///
/// # Errors
/// If the stage cannot be set. Failures of scenarios are in the returned list.
pub async fn play(subject: &dyn Subject, only: &str) -> anyhow::Result<Vec<Played>> {
    let stage = Stage::set().await?;
    let native = Native::default();
    // The first request of a process that has just started can take longer than a request may.
    for player in [Player::subject(&stage, subject).await?, Player::native(&stage, &native).await?] {
        let _ = player.ask(Ask::Peek { key: "warm".to_owned() }).await?;
    }
    let mut played = Vec::new();
    for scenario in all().iter().filter(|scenario| scenario.name.contains(only)) {
        let started = Instant::now();
        let result = if scenario.of_clients_only && subject.world() != World::Client {
            None
        } else {
            Some(one(scenario, &stage, subject, &native).await.with_context(|| scenario.name))
        };
        played.push(Played { name: scenario.name, result, took: started.elapsed() });
    }
    Ok(played)
}

async fn one(scenario: &Scenario, stage: &Stage, subject: &dyn Subject, native: &Native) -> anyhow::Result<()> {
    stage.clear();
    let scene = Scene {
        stage,
        subject: Player::subject(stage, subject).await?,
        native: Player::native(stage, native).await?,
        key: scenario.name,
        under_test: subject,
    };
    (scenario.play)(&scene).await
}
