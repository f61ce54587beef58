//! The demo. Real processes contend for one lock. One of them is killed and one is stopped, and the counter that the
//! lock guards is still exact. Then functions use locks as Lambda runs them, and orders are charged exactly once.

mod clock;
mod counter;
mod crew;
mod functions;
mod gateway;
mod ledger;
mod message;
mod orders;
mod requests;
mod screen;
mod several;
mod stage;
mod story;
mod timeline;
mod verdict;
mod worker;

pub(crate) use worker::{WorkerOptions, work};

use anyhow::{Context, bail};
use clap::Args;
use counter::{Counter, Fence};
use crew::Crew;
use lambda_lock::{LockClient, LockClientBuilder};
use lambda_lock_local::{LocalDynamoDb, client};
use stage::Stage;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;
use story::Story;

/// Short, so that the takeover from a dead holder can be watched.
const LEASE: Duration = Duration::from_millis(1200);
/// Short, because all processes of the demo read the same clock.
const MAX_CLOCK_SKEW: Duration = Duration::from_millis(200);
const LOCK_TABLE: &str = "locks";
const LOCK_KEY: &str = "the-counter";

/// Watch processes contend for one lock while one of them is killed and another one is stopped.
///
/// Several real processes share an embedded DynamoDB. Each of them acquires the same lock, reads a counter, adds one
/// and writes it back. Without exclusion, increments would be lost.
///
/// First all processes contend for the lock. Then one holder is killed (SIGKILL) during its work, and another process
/// takes the lock over when its lease has ended. Then one holder is stopped (SIGSTOP) for longer than its lease. It is
/// continued (SIGCONT) only after a newer holder has written. Its late write has its old fencing token and is refused.
/// A timeline shows who waited for the lock, held it, lost it and took it over.
///
/// Then functions run under a Runtime API that keeps deadlines. lock-task tells a second owner who holds the lock.
/// lock-cleaner releases the lock of an execution that was aborted. The next invocation takes over the lock of a
/// function that was killed at its deadline. At last orders are charged: one by a function that crashes after the
/// payment gateway has charged, and others from a queue that also has a message which is not an order. Then amounts move between
/// accounts, and callers share a gateway that takes three calls at once, while processes are killed. Cargo builds the
/// functions first.
///
/// The exit code is 0 when the counter is exact, the late write was refused, the locks of killed holders were taken
/// over, every order was charged once, no amount was lost, and the gateway never had too many calls. It is 1 when not, and 2 when the demo could not run.
#[derive(Args, Debug)]
pub(crate) struct Options {
    /// How many processes contend. One of them will be killed.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u64).range(3..=16))]
    workers: u64,

    /// How many times each process adds one before the accidents begin.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=100))]
    rounds: u64,

    /// Also draw the timeline into this file, as an SVG. The record that it is drawn from is written beside it (.jsonl), for
    /// lambda-lock timeline.
    #[arg(long, value_name = "FILE")]
    timeline: Option<PathBuf>,

    /// Write without the condition on the fencing token, to show what happens then.
    #[arg(long, hide = true)]
    unfenced: bool,
}

/// Plays the demo.
pub(crate) async fn run(options: Options) -> anyhow::Result<ExitCode> {
    tokio::select! {
        played = play(options) => played,
        // The error drops the workers, which ends even a stopped one.
        _ = tokio::signal::ctrl_c() => bail!("interrupted"),
    }
}

async fn play(options: Options) -> anyhow::Result<ExitCode> {
    let built = functions::prepare().await?;
    let dynamodb = LocalDynamoDb::in_memory().await?;
    let counter = Counter::new(client(dynamodb.endpoint()), Fence::of(&options));
    counter.create_table().await?;
    lock_client(client(dynamodb.endpoint()))
        .build()?
        .operator()
        .create_table()
        .await
        .context("the lock table could not be created")?;

    let crew = Crew::start(dynamodb.endpoint(), &options)?;
    let mut story = Story::new(crew);
    story.opening(&options).await?;
    story.contention(options.rounds).await?;
    let takeover = story.a_holder_is_killed().await?;
    let late_write = story.a_holder_is_stopped().await?;
    let (ledger, timeline, screen) = story.end();
    timeline::show(&timeline.events(), options.timeline.as_deref())?;

    let stage = Stage::new(&screen, &built, &dynamodb).await?;
    let act = functions::Act::begin(&stage).await?;
    let second_owner = act.a_second_owner_is_told().await?;
    let clean_up = act.an_execution_ends_without_releasing().await?;
    let deadline = act.a_function_is_killed_at_its_deadline().await?;

    let act = orders::Act::begin(&stage).await?;
    let crash = act.a_function_crashes_after_the_charge().await?;
    let delivered = act.a_queue_is_delivered().await?;

    let act = several::Act::begin(&stage).await?;
    let (moved, called) = tokio::try_join!(act.amounts_are_moved(), act.a_gateway_is_called())?;

    let increments = verdict::Increments {
        expected: verdict::expected_increments(&options),
        told: ledger.applied(),
        counted: counter.value().await?,
    };
    Ok(verdict::Verdict {
        increments,
        takeover,
        late_write,
        second_owner,
        clean_up,
        deadline,
        crash,
        delivered,
        moved,
        called,
    }
    .pronounce(&ledger))
}

/// Returns the builder of the lock client for the parent and for the workers.
fn lock_client(dynamodb: aws_sdk_dynamodb::Client) -> LockClientBuilder {
    LockClient::builder(dynamodb, LOCK_TABLE).max_clock_skew(MAX_CLOCK_SKEW)
}
