//! Sends the same random requests to the pure evaluation, the embedded DynamoDB and AWS's DynamoDB Local. The outcomes,
//! the returned items and the rows afterwards must be the same.
//!
//! Known differences, and why nothing here depends on them:
//!
//! * A transaction is repeated with the same token and the same content, but the names in its JSON have another order,
//!   because they come from hash maps. AWS documents that a token with other *parameters* is an
//!   `IdempotentParameterMismatchException`, and does not mention their order. Both engines here accept it as the same
//!   transaction. DynamoDB did so too when LocalStack compared its own test with it
//!   (github.com/localstack/localstack/pull/6596). Older versions of DynamoDB Local did not. If it is refused, a commit
//!   reports that its outcome is unknown, and the next renewal settles it.
//! * A token whose transaction was refused or cancelled may be used again: both engines evaluate the conditions again.
//!   AWS documents this only for requests that were completed. This crate never does it.
//! * Two writes on one item: DynamoDB refuses the whole request (documented), and DynamoDB Local evaluates the
//!   conditions first. This test does not generate such requests. Nothing is applied in both cases.
//! * Each engine has its own error messages, so only codes are compared.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a helper of a test may stop it")]

mod engine;
mod evaluation;
mod requests;
mod writes;

use engine::Engine;
use evaluation::{Evaluation, Outcome};
use fastrand::Rng;
use lambda_lock::protocol::{Action, Schema, Ttl, schema};
use lambda_lock_local::{DynamoDbLocal, LocalDynamoDb, client};
use requests::{Operation, Sequence};
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::timeout;

const SEQUENCES: u64 = 1_000;
const LONGEST: usize = 30;
/// The number of sequences that run at the same time. Each has rows of its own.
const AT_ONCE: u64 = 8;

/// The attribute names of the rows. Every third sequence has a TTL attribute.
fn names(seed: u64) -> Schema {
    let ttl = Ttl { attribute: "expiresAt".to_owned(), retention: Duration::from_secs(2) };
    Schema { ttl: seed.is_multiple_of(3).then_some(ttl), ..Schema::default() }
}

/// How often each outcome occurred in all sequences.
type Outcomes = BTreeMap<String, usize>;

/// Runs one sequence on all engines. Each operation must have the same outcome everywhere.
async fn run(seed: u64, engines: &[Engine], outcomes: &mut Outcomes) {
    let mut rng = Rng::with_seed(seed);
    let schema = names(seed);
    let mut sequence = Sequence::new(seed);
    let mut evaluation = Evaluation::new(schema.clone());
    for number in 0..rng.usize(1..=LONGEST) {
        let operation = sequence.next(evaluation.row(&sequence.key), &mut rng);
        let expected = evaluation.apply(&operation);
        for engine in engines {
            let found = engine.apply(&operation, &schema).await;
            assert_eq!(expected, found, "{}, sequence {seed}, operation {number}: {operation:#?}", engine.name);
        }
        *outcomes.entry(summary(&operation, &expected)).or_default() += 1;
    }
    for engine in engines {
        let found = engine.row(&sequence.key).await;
        assert_eq!(evaluation.row(&sequence.key).cloned().map(evaluation::sorted), found, "{}, {seed}", engine.name);
        for id in &sequence.work {
            let found = engine.work(id).await;
            assert_eq!(evaluation.work(id), found, "{}, sequence {seed}, {id}", engine.name);
        }
    }
}

/// The operation and its outcome as text.
fn summary(operation: &Operation, outcome: &Outcome) -> String {
    let repeated = if operation.repeats { "repeated, " } else { "" };
    // A later call of settled work: its Claim is refused, and the row contains the outcome.
    let replays = matches!(operation.request.action, Action::Claim { .. })
        && outcome.row.iter().any(|(name, _)| name == schema::OUTCOME)
        && outcome.what == "refused, a row";
    let what = if replays { "replays" } else { outcome.what.as_str() };
    format!("{} {repeated}{what}", operation.name())
}

/// Several times as long as the test takes on a busy machine.
const LONGEST_RUN: Duration = Duration::from_secs(900);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_engines_and_the_evaluation_give_the_same_outcomes() {
    timeout(LONGEST_RUN, all_sequences()).await.unwrap();
}

async fn all_sequences() {
    let embedded = LocalDynamoDb::in_memory().await.unwrap();
    let by_aws = DynamoDbLocal::start().await.unwrap();
    let mut endpoints = vec![("embedded", embedded.endpoint().to_owned())];
    endpoints.extend(by_aws.as_ref().map(|by_aws| ("DynamoDB Local", by_aws.endpoint().to_owned())));
    for (_, endpoint) in &endpoints {
        engine::create_tables(&client(endpoint)).await;
    }
    let mut beside = JoinSet::new();
    for first in 0..AT_ONCE {
        let engines: Vec<_> = endpoints.iter().map(|(name, endpoint)| Engine::new(name, endpoint)).collect();
        beside.spawn(async move {
            let mut outcomes = Outcomes::new();
            for seed in (first..SEQUENCES).step_by(AT_ONCE as usize) {
                run(seed, &engines, &mut outcomes).await;
            }
            outcomes
        });
    }
    let mut outcomes = Outcomes::new();
    for (what, often) in beside.join_all().await.into_iter().flatten() {
        *outcomes.entry(what).or_default() += often;
    }
    // An outcome that never occurs is not tested.
    for (what, at_least) in OFTEN {
        let often = outcomes.get(*what).copied().unwrap_or_default();
        assert!(often >= *at_least, "{what}: {often} times, of {outcomes:#?}");
    }
}

/// Outcomes that must occur, with their minimum number.
const OFTEN: &[(&str, usize)] = &[];
