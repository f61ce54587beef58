//! Tasks in one process. Each one has its own lock client and connections.

use crate::LONGEST;
use crate::accidents::Accidents;
use crate::stage::{COUNTERS, LOCKS, Stage};
use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::error::SdkError;
use aws_sdk_dynamodb::operation::update_item::{UpdateItemError, UpdateItemOutput};
use aws_sdk_dynamodb::types::{AttributeValue, ReturnValue};
use lambda_lock::{Budget, ErrorKind, LockClient};
use lambda_lock_local::client;
use lambda_lock_testkit::{ends_within, rounds};
use std::time::Duration;
use tokio::task::JoinSet;

const TASKS: u64 = 64;
/// How often each task adds one. `.ci/nightly` has fifty rounds.
const ROUNDS: u64 = 6;
/// One of this many requests has each kind of accident. It is rare, because so many tasks send many
/// requests.
pub(crate) const RARE: usize = 150;
/// How late a copy arrives at most: longer than the lease and the skew, so that some meet the next holder.
pub(crate) const LATEST: Duration = Duration::from_millis(4500);
/// So long that a holder can rely on it where a request takes a second, as on a busy machine.
pub(crate) const LEASE: Duration = Duration::from_secs(3);
pub(crate) const SKEW: Duration = Duration::from_millis(300);
/// No request waits for longer than this. Only those without an answer reach it, and a busy machine answers sooner.
pub(crate) const PATIENCE: Duration = Duration::from_secs(1);

/// Returns how many increments were applied, as the tasks report, how many there should be, and the value of the counter.
pub(crate) async fn contend(accidents: Option<&Accidents>) -> [u64; 3] {
    let rounds = rounds(ROUNDS);
    let stage = Stage::new(accidents).await;
    let endpoint = if accidents.is_some() { stage.proxy.endpoint() } else { stage.dynamodb.endpoint() };
    let mut tasks = JoinSet::new();
    for number in 0..TASKS {
        let builder = LockClient::builder(client(endpoint), LOCKS).owner(format!("task {number}"));
        let locks = builder.max_clock_skew(SKEW).request_timeout(PATIENCE).build().unwrap();
        tasks.spawn(add(rounds, locks, client(stage.dynamodb.endpoint())));
    }
    let told = ends_within(LONGEST, tasks.join_all()).await.into_iter().sum();
    if accidents.is_some() {
        // Waits until late requests have arrived.
        tokio::time::sleep(LATEST).await;
    }
    [told, TASKS * rounds, stage.count("k").await]
}

async fn add(rounds: u64, locks: LockClient, dynamodb: Client) -> u64 {
    let mut applied = 0;
    while applied < rounds {
        let budget = Budget::lasting(LONGEST).reserve(Duration::from_secs(1));
        let lock = match locks.acquire("k").within(&budget).lease(LEASE).await {
            Ok(lock) => lock,
            // A retry is safe whatever the outcome of this call was.
            Err(error) if matches!(error.kind(), ErrorKind::Unknown | ErrorKind::Unavailable) => continue,
            Err(error) => panic!("{error}"),
        };
        applied += u64::from(increment(&dynamodb, "k", lock.fencing_token()).await);
        // If the release fails, the lease frees the lock.
        let _ = lock.release().await;
    }
    applied
}

/// Reads the counter and writes it plus one, so that two holders at once would lose an increment. The read raises the
/// fence too. Returns `false` if the counter has seen a larger token.
pub(crate) async fn increment(dynamodb: &Client, counter: &str, token: u64) -> bool {
    let update = || {
        dynamodb
            .update_item()
            .table_name(COUNTERS)
            .key("id", AttributeValue::S(counter.to_owned()))
            .condition_expression("attribute_not_exists(lastToken) OR lastToken <= :token")
            .expression_attribute_values(":token", AttributeValue::N(token.to_string()))
    };
    let read = update().update_expression("SET lastToken = :token").return_values(ReturnValue::AllNew).send().await;
    let Some(row) = unless_refused(read) else { return false };
    let count: u64 = row.attributes().unwrap().get("count").map_or(0, |count| count.as_n().unwrap().parse().unwrap());
    let write = update()
        .update_expression("SET #count = :count, lastToken = :token")
        .expression_attribute_names("#count", "count")
        .expression_attribute_values(":count", AttributeValue::N((count + 1).to_string()));
    unless_refused(write.send().await).is_some()
}

fn unless_refused(sent: Result<UpdateItemOutput, SdkError<UpdateItemError>>) -> Option<UpdateItemOutput> {
    match sent.map_err(SdkError::into_service_error) {
        Ok(answer) => Some(answer),
        Err(error) if error.is_conditional_check_failed_exception() => None,
        Err(error) => panic!("{error:?}"),
    }
}
