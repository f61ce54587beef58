//! What becomes of the lock in a durable execution, on an embedded DynamoDB and the SDK's own runner. The runner drives the
//! production code of the SDK in memory, and can lose checkpoints. It does not let time pass, and neither does a test
//! that does not say so.

use aws_durable_execution_sdk::test_util::{LocalRunner, TestResult};
use aws_durable_execution_sdk::{BoxError, DurableContext};
use durable_lock::with_lock;
use lambda_lock::{Lock, LockClient, SavedLock};
use lambda_lock_testkit::{Fault, Process, Table, granted};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const KEY: &str = "customer-7";
const LEASE: Duration = Duration::from_secs(60);

/// The work of a step that does nothing: the fencing token.
async fn token(lock: Lock) -> Result<(u64, Lock), BoxError> {
    Ok((lock.fencing_token(), lock))
}

/// Two steps with a wait between them. Returns the fencing tokens: as acquired, and of each step.
async fn two_steps(ctx: DurableContext, locks: LockClient) -> Result<Vec<u64>, BoxError> {
    with_lock(&ctx, &locks, KEY, LEASE, async |lock| {
        let acquired = lock.fencing_token();
        let first = lock.step("first", token).await?;
        ctx.wait(Duration::from_secs(30)).await?;
        let second = lock.step("second", token).await?;
        Ok(vec![acquired, first, second])
    })
    .await
}

async fn run(runner: LocalRunner, process: &Process) -> TestResult<Vec<u64>> {
    let locks = process.locks("durable");
    runner.run(move |_: (), ctx| two_steps(ctx, locks.clone()), ()).await
}

/// How often an operation was tried before it ended.
fn retries<T>(result: &TestResult<T>, name: &str) -> u32 {
    let operation = result.operations().iter().find(|operation| operation.name() == Some(name));
    operation.unwrap_or_else(|| panic!("there is no operation {name}")).attempt()
}

fn is_increasing(tokens: &[u64]) -> bool {
    tokens.is_sorted_by(|earlier, later| earlier < later)
}

#[tokio::test(start_paused = true)]
async fn a_free_lock_is_held_across_the_wait_and_released_at_the_end() {
    let table = Table::new();
    let process = table.process();
    let (locks, seen) = (process.locks("durable"), Arc::new(Mutex::new(Vec::new())));
    let (rows, notes) = (table.clone(), Arc::clone(&seen));
    let handler = move |_: (), ctx: DurableContext| {
        let (locks, rows, notes) = (locks.clone(), rows.clone(), Arc::clone(&notes));
        async move {
            let execution = ctx.execution_arn().to_owned();
            if let Some(owner) = rows.attribute(KEY, "ownerName") {
                let workflow = rows.attribute(KEY, "workflow");
                let is_ours = owner.starts_with(&format!("{execution}/")) && workflow == Some(execution);
                notes.lock().unwrap().push(is_ours && !rows.is_released(KEY));
            }
            two_steps(ctx, locks).await
        }
    };

    let result = LocalRunner::new().run(handler, ()).await;

    assert!(is_increasing(result.output().unwrap()), "{:?}", result.output());
    assert_eq!(*seen.lock().unwrap(), [true], "at the start of the invocation after the wait");
    assert!(table.is_released(KEY));
    assert_eq!(process.take_operations(), ["UpdateItem"; 4], "acquire, two steps, release");
    let names: Vec<_> = result.operations().iter().filter_map(|operation| operation.name()).collect();
    assert_eq!(names, ["owner of customer-7", "lock customer-7", "first", "second", "unlock customer-7"]);
}

/// A lease of 20 s is over after 21 s, because clocks may differ by 5 %. No clock moves here: the recorded pauses prove it.
#[tokio::test(start_paused = true)]
async fn a_dead_holder_is_proven_by_the_recorded_pauses_alone() {
    let table = Table::new();
    let process = table.process();
    table.put_java_row(KEY, "v1", Duration::from_secs(20));

    let result = run(LocalRunner::new(), &process).await;

    assert!(result.is_success(), "{:?}", result.error_message());
    assert_eq!(retries(&result, "lock customer-7"), 3, "pauses of 10, 10 and 1 s");
    assert!(table.is_released(KEY));
}

#[tokio::test(start_paused = true)]
async fn a_grant_that_was_not_recorded_is_reclaimed_by_the_replay() {
    let table = Table::new();
    let process = table.process();
    // Recorded: the start and the end of the owner's step, the start of the look. Lost: the end of the look.
    let runner = LocalRunner::new().fail_checkpoints_after_retryable(3, 1);

    let result = run(runner, &process).await;

    assert!(is_increasing(result.output().unwrap()), "{:?}", result.error_message());
    assert_eq!(retries(&result, "lock customer-7"), 0, "it did not wait for itself");
    assert!(table.is_released(KEY));
    assert_eq!(process.take_operations(), ["UpdateItem"; 6], "two grants, of which the second takes two writes");
}

#[tokio::test(start_paused = true)]
async fn a_step_that_fails_for_good_leaves_no_lock_behind() {
    let table = Table::new();
    let locks = table.process().locks("durable");
    let handler = move |_: (), ctx: DurableContext| {
        let locks = locks.clone();
        async move {
            with_lock(&ctx, &locks, KEY, LEASE, async |lock| {
                // Each attempt has a grant of its own, none of which is recorded.
                lock.step("doomed", |_lock| async { Err::<((), Lock), BoxError>("no".into()) }).await
            })
            .await
        }
    };

    let result = LocalRunner::new().run(handler, ()).await;

    assert!(result.is_failure());
    assert!(retries(&result, "doomed") > 0, "the step was retried");
    assert!(table.is_released(KEY));
}

#[tokio::test(start_paused = true)]
async fn an_acquire_without_an_answer_is_tried_again_in_the_next_look() {
    let table = Table::new();
    let process = table.process();
    process.next([Fault::NeverAnswers, Fault::BlackHole, Fault::BlackHole, Fault::BlackHole]);

    let result = run(LocalRunner::new(), &process).await;

    assert!(result.is_success(), "{:?}", result.error_message());
    assert_eq!(retries(&result, "lock customer-7"), 1);
    assert!(table.is_released(KEY));
}

#[tokio::test(start_paused = true)]
async fn a_step_that_runs_twice_fences_its_first_attempt_off() {
    let table = Table::new();
    let process = table.process();
    let locks = process.locks("durable");
    let attempts = Arc::new(Mutex::new(Vec::<SavedLock>::new()));
    let notes = Arc::clone(&attempts);
    let handler = move |_: (), ctx: DurableContext| {
        let (locks, notes) = (locks.clone(), Arc::clone(&notes));
        async move {
            with_lock(&ctx, &locks, KEY, LEASE, async |lock| {
                let (locks, notes) = (locks.clone(), Arc::clone(&notes));
                let work = move |lock: Lock| {
                    let (locks, notes) = (locks.clone(), Arc::clone(&notes));
                    async move {
                        let first = notes.lock().unwrap().first().cloned();
                        notes.lock().unwrap().push(lock.to_saved());
                        let Some(first) = first else { return Ok((None, lock)) };
                        Ok((Some(locks.resume(first).await.is_err_and(|error| error.is_lost())), lock))
                    }
                };
                lock.step("first", work).await
            })
            .await
        }
    };
    // Recorded: the owner, the lock, the start of the step. Lost: its end.
    let runner = LocalRunner::new().fail_checkpoints_after_retryable(5, 1);

    let result = runner.run(handler, ()).await;

    assert_eq!(result.output(), Some(&Some(true)), "the first attempt still has the lock");
    let tokens: Vec<_> = attempts.lock().unwrap().iter().map(SavedLock::fencing_token).collect();
    assert!(tokens.len() == 2 && is_increasing(&tokens), "{tokens:?}");
    assert!(table.is_released(KEY));
}

#[tokio::test(start_paused = true)]
async fn a_pause_longer_than_the_lease_ends_in_lost_if_somebody_else_came() {
    let table = Table::new();
    let (process, other) = (table.process(), table.process());
    let (locks, next) = (process.locks("durable"), other.locks("the next"));
    let handler = move |_: (), ctx: DurableContext| {
        let (locks, next) = (locks.clone(), next.clone());
        async move {
            with_lock(&ctx, &locks, KEY, LEASE, async |lock| {
                ctx.wait(Duration::from_secs(3600)).await?;
                // In the invocation after the wait.
                tokio::time::advance(Duration::from_secs(3600)).await;
                let _ = granted(next.acquire(KEY).lease(LEASE).try_once()).await.save();
                lock.step("late", token).await
            })
            .await
        }
    };

    let result = LocalRunner::new().run(handler, ()).await;

    assert!(result.error_message().unwrap().contains("no longer ours"), "{:?}", result.error_message());
    assert_eq!(retries(&result, "late"), 0, "a retry cannot help");
    assert_eq!(table.attribute(KEY, "ownerName").unwrap().split('/').next(), Some("the next"));
    assert!(!table.is_released(KEY));
}
