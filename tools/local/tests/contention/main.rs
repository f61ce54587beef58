//! Many processes, tasks in one process, or functions in several Regions contend for one lock on a real server
//! over connections that break. The counter that the lock guards is exact. Without the fence, and with the
//! same accidents, it is not.
//!
//! The accidents follow from a seed, which is printed. `CONTENTION_SEED` draws the same plan again. The
//! results do not depend on the seed: each kind of accident happens once in a fixed number of requests,
//! holders are paused where the test says so, and every count must be exact in all cases.

#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that cannot go on fails")]
#![allow(clippy::disallowed_methods, reason = "the accidents run in the background")]

mod accidents;
mod processes;
mod regions;
mod several;
mod stage;
mod tasks;

use processes::{PAUSES, PROCESSES, ROUNDS, contend, contend_with_a_clock_behind};

/// How long a crowd may take. It is many times what it takes on a busy machine.
const LONGEST: std::time::Duration = std::time::Duration::from_secs(3600);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn processes_over_a_bad_connection_count_exactly_and_paused_ones_are_refused() {
    let run = contend(&[]).await;
    run.accidents.assert_all_happened(5);
    assert_eq!(run.told, PROCESSES * (ROUNDS + PAUSES), "each increment is reported once; {}", run.accidents);
    assert_eq!(run.counted, run.told, "{}", run.accidents);
    assert_eq!(run.overwritten, 0, "{}", run.accidents);
    assert_eq!(run.refused_while_held, 0, "nobody else had the lock; {}", run.accidents);
    assert!(run.refused >= PAUSES, "each paused holder's late write is refused: {}; {}", run.refused, run.accidents);
}

/// The control experiment: a test that cannot fail proves nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_the_fence_the_same_accidents_lose_increments() {
    let run = contend(&["--unfenced"]).await;
    run.accidents.assert_all_happened(5);
    assert_eq!(run.refused, 0, "there is no fence; {}", run.accidents);
    assert!(run.overwritten >= PAUSES, "each paused holder writes late: {}; {}", run.overwritten, run.accidents);
    assert!(run.counted + PAUSES <= run.told, "{} counted, {} told; {}", run.counted, run.told, run.accidents);
}

/// What a holder reads is what it writes on: nobody with an older token writes in between.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_late_write_is_refused_when_the_next_holder_has_only_read() {
    assert_eq!(processes::a_write_between_the_read_and_the_write_of_the_next_holder().await, [2, 1, 2]);
}

/// The grant that the first request writes ends an hour ago for everybody else.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_whose_wall_clock_is_an_hour_behind_holds_its_first_lock_alone() {
    assert_eq!(contend_with_a_clock_behind("3600").await, (2, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sixty_four_tasks_on_a_real_server_count_exactly() {
    let [told, asked, counted] = tasks::contend(None).await;

    assert_eq!((told, counted), (asked, asked));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sixty_four_tasks_on_a_real_server_over_bad_connections_count_exactly() {
    let accidents = accidents::Accidents::new(tasks::RARE, tasks::LATEST);

    let [told, asked, counted] = tasks::contend(Some(&accidents)).await;

    assert_eq!((told, counted), (asked, asked), "{accidents}");
    accidents.assert_all_happened(5);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sets_chains_and_single_callers_over_bad_connections_count_exactly() {
    let accidents = accidents::Accidents::new(several::RARE, tasks::LATEST);
    several::contend(&accidents).await;
    accidents.assert_all_happened(3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_more_than_n_are_inside_over_bad_connections_with_dead_holders_and_while_n_changes() {
    let accidents = accidents::Accidents::new(several::RARE, tasks::LATEST);
    several::crowd(&accidents, &[3, 2, 5]).await;
    accidents.assert_all_happened(3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn functions_in_three_regions_count_exactly_while_one_region_is_cut_off_and_comes_back() {
    let run = regions::contend().await;
    for (counted, told) in &run.counts {
        assert_eq!(counted, told);
    }
    run.the_lock_of_the_holder_that_was_cut_off_was_not_taken_before_its_lease_was_over();
    run.nobody_was_granted_a_lock_where_no_other_region_is_reached();
    run.nobody_waited_too_long();
    assert!(run.refusals.conflicts > 0 && run.refusals.isolated > 0, "{:?}", run.refusals);
}
