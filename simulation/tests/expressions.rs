//! The same requests, evaluated purely, on the embedded DynamoDB and on AWS's DynamoDB Local: the same
//! outcome, and the same item returned, on sequences made up at random.

#![allow(clippy::unwrap_used, reason = "a helper of a test may stop it")]

use aws_sdk_dynamodb::Client;
use fastrand::Rng;
use lambda_lock::LockClient;
use lambda_lock::protocol::{
    Action, Answer, DataChange, Dialect, Grant, Item, Lease, LockKey, NewGrant, NextToken, Rejection, Request, Schema,
    Scope, Stamp, Value, Version,
};
use lambda_lock::simulation::{Network, Real};
use lambda_lock_local::{DynamoDbLocal, LocalDynamoDb, client};
use lambda_lock_simulation::Rows;
use std::time::Duration;

const SEQUENCES: u64 = 1_000;
const LONGEST: usize = 30;

fn version(rng: &mut Rng) -> Version {
    Version { grant: Grant::from_random([rng.u8(1..4); 16]), stamp: Stamp::after(None, rng.u64(1000..1006), 7) }
}

fn lease(rng: &mut Rng) -> Lease {
    Lease::new(Duration::from_millis(rng.u64(1..4) * 100), Dialect::Java)
}

fn data(rng: &mut Rng) -> DataChange {
    match rng.u8(..4) {
        0 => DataChange::Set(vec![rng.u8(..)]),
        1 => DataChange::Remove,
        _ => DataChange::Keep,
    }
}

fn grant(rng: &mut Rng) -> NewGrant {
    NewGrant {
        version: version(rng),
        owner: "me".into(),
        lease: lease(rng),
        now: rng.u64(1000..1006),
        ends: rng.u64(1000..1010),
        data: data(rng),
        workflow: rng.bool().then(|| "arn".into()),
        once: None,
    }
}

/// Of few values, so that conditions hold about as often as not.
fn request(key: &LockKey, row: Option<&Item>, rng: &mut Rng) -> Request {
    let text = |name: &str| match row.and_then(|row| row.get(name)) {
        Some(Value::S(text) | Value::N(text)) => Some(text.clone()),
        _ => None,
    };
    let seen = text("recordVersionNumber").filter(|_| rng.u8(..4) > 0);
    // Mostly the grant and the token that are there.
    let own = seen.as_deref().and_then(Version::parse);
    let there = text("fencingToken").and_then(|token| token.parse().ok()).filter(|_| rng.u8(..8) > 0);
    let token = there.unwrap_or_else(|| rng.u64(1000..1008));
    let mut current = version(rng);
    current.grant = own.map_or(current.grant, |own| own.grant);
    let scope = match rng.u8(..4) {
        0 => Scope::Exactly {
            version: seen.clone().unwrap_or_else(|| "a peer's".to_owned()),
            workflow: rng.bool().then(|| "arn".into()),
        },
        _ => Scope::Mine { grant: current.grant, up_to: current.stamp, token: rng.bool().then_some(token) },
    };
    let action = match rng.u8(..10) {
        0..2 => Action::Claim { grant: grant(rng), trusted: rng.bool().then(|| rng.u64(1000..1010)) },
        2..4 => Action::Take {
            seen: seen.unwrap_or_else(|| version(rng).to_string()),
            token: if rng.bool() { NextToken::FromRow } else { NextToken::Exactly(rng.u64(1000..1008)) },
            grant: grant(rng),
        },
        4..7 => Action::Renew {
            version: current,
            token,
            known_lease: lease(rng),
            lease: lease(rng),
            ends: rng.u64(1000..1012),
            data: data(rng),
            keep: None,
        },
        7 => Action::Release { scope, ends: rng.u64(1000..1010), data: data(rng), keep: None },
        8 => Action::Delete { scope },
        _ => Action::Peek,
    };
    Request::alone(key.clone(), action)
}

/// Attributes have no order, and error texts are everybody's own.
fn comparable(answer: Answer) -> (String, Vec<(String, Value)>) {
    let sorted = |item: Item| {
        let mut list: Vec<_> = item.iter().map(|(name, value)| (name.to_owned(), value.clone())).collect();
        list.sort_by(|one, other| one.0.cmp(&other.0));
        list
    };
    match answer {
        Answer::Applied(item) => ("applied".to_owned(), sorted(item)),
        Answer::Refused(row) => (format!("refused, a row: {}", row.is_some()), row.map(sorted).unwrap_or_default()),
        Answer::Found(row) => (format!("found, a row: {}", row.is_some()), row.map(sorted).unwrap_or_default()),
        Answer::Rejected(Rejection::Invalid(_)) => ("invalid".to_owned(), Vec::new()),
        other => (format!("{other:?}"), Vec::new()),
    }
}

async fn table(dynamodb: Client, schema: &Schema) -> Real {
    LockClient::builder(dynamodb.clone(), "locks").build().unwrap().create_table().await.unwrap();
    Real::new(dynamodb, "locks", schema.clone())
}

#[tokio::test]
async fn requests_mean_the_same_everywhere() {
    let schema = Schema::default();
    let embedded = LocalDynamoDb::in_memory().await.unwrap();
    let mut others = vec![("embedded", table(client(embedded.endpoint()), &schema).await)];
    let by_aws = DynamoDbLocal::start().await.unwrap();
    if let Some(dynamodb) = &by_aws {
        others.push(("DynamoDB Local", table(client(dynamodb.endpoint()), &schema).await));
    }
    let mut rows = Rows::new(schema);
    let mut outcomes = std::collections::BTreeMap::<String, usize>::new();
    for seed in 0..SEQUENCES {
        let mut rng = Rng::with_seed(seed);
        let key = LockKey::from(format!("sequence {seed}"));
        for _ in 0..rng.usize(1..=LONGEST) {
            let request = request(&key, rows.get(&key), &mut rng);
            let evaluated = comparable(rows.apply(&request));
            for (name, other) in &others {
                let theirs = comparable(other.send(request.clone(), &[]).await.answer);
                assert_eq!(evaluated, theirs, "{name}, sequence {seed}: {request:#?}");
            }
            *outcomes.entry(evaluated.0).or_default() += 1;
        }
    }
    for outcome in ["applied", "refused, a row: true", "refused, a row: false", "found, a row: true"] {
        assert!(outcomes.get(outcome).is_some_and(|often| *often > 200), "{outcomes:?}");
    }
}
