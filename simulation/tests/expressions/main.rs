//! The same requests, evaluated purely, on the embedded DynamoDB and on AWS's DynamoDB Local: the same
//! outcome, the same items returned and the same rows left behind, on sequences made up at random.
//!
//! What is known to differ, and why nothing here depends on it:
//!
//! * A transaction is repeated with the same token and the same content, but with the names in its JSON in
//!   another order: they come out of hash maps. AWS documents that a token with other *parameters* is an
//!   `IdempotentParameterMismatchException`, and says nothing of their order. Both engines here take it for
//!   the same transaction, as DynamoDB did when LocalStack held its own test against it
//!   (github.com/localstack/localstack/pull/6596); older versions of DynamoDB Local did not. Where it is
//!   refused, a commit says that its outcome is unknown, and the next renewal settles it.
//! * A token whose transaction was refused or cancelled may be used again: both engines look at the
//!   conditions anew. AWS documents it only of requests that were completed. This crate never does it.
//! * Two writes on one item: DynamoDB refuses the request as a whole (documented); DynamoDB Local looks at
//!   the conditions first. Not made up here; nothing is applied either way.
//! * Each engine words its messages its own way: only codes are compared.

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
/// Sequences that go on beside each other: each has rows of its own.
const AT_ONCE: u64 = 8;

/// The names on the rows: with a TTL attribute in every third sequence.
fn names(seed: u64) -> Schema {
    let ttl = Ttl { attribute: "expiresAt".to_owned(), retention: Duration::from_secs(2) };
    Schema { ttl: seed.is_multiple_of(3).then_some(ttl), ..Schema::default() }
}

/// How often what came out, over all sequences.
type Outcomes = BTreeMap<String, usize>;

/// One sequence, on all engines; each operation must come out the same everywhere.
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

/// What was asked for, and how it ended.
fn summary(operation: &Operation, outcome: &Outcome) -> String {
    let repeated = if operation.repeats { "repeated, " } else { "" };
    // What a later call of a settled work gets: its claim is refused, and brings the outcome.
    let replays = matches!(operation.request.action, Action::Claim { .. })
        && outcome.row.iter().any(|(name, _)| name == schema::OUTCOME)
        && outcome.what == "refused, a row";
    let what = if replays { "replays" } else { outcome.what.as_str() };
    format!("{} {repeated}{what}", operation.name())
}

/// Some times as long as it takes on a busy machine.
const LONGEST_RUN: Duration = Duration::from_secs(900);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_mean_the_same_everywhere() {
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
    // Sequences in which something never happens show nothing of it.
    for (what, at_least) in OFTEN {
        let often = outcomes.get(*what).copied().unwrap_or_default();
        assert!(often >= *at_least, "{what}: {often} times, of {outcomes:#?}");
    }
}

/// What must have been seen, and how often at least.
const OFTEN: &[(&str, usize)] = &[];
