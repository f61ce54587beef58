//! What the crate sends and decides in the same situation: its own operations, run by steps.

use super::node::Scene;
use crate::options::Options;
use lambda_lock_protocol::SavedLock;
use lambda_lock_protocol::{
    AcquireOptions, Acquired, Action, Answer, AttributesChange, DataChange, Driven, Expression, Failure, Instants,
    Item, LockKey, Now, Observation, Queueing, Reclaim, ReleaseOptions, Request, Schema, Sent, Settings, Step, Steps,
    Value, WallClock, Written, acquire, release, renew,
};
use serde_json::{Value as Json, json};
use std::time::Duration;

pub(super) const EXECUTION: &str = "arn:aws:states:eu-central-1:123456789012:execution:machine:run";
pub(super) const TABLE: &str = "locks";
pub(super) const KEY: &str = "customer-7";
pub(super) const SORT_KEY: &str = "invoice-12";
/// Random bytes. The first eight become the digits of a stamp.
const RANDOM: [u8; 16] = [0x5e, 0x0c, 0xa7, 3, 4, 5, 6, 7, 0x88, 9, 10, 11, 12, 13, 14, 0xff];

/// What the crate does after it has seen a row.
#[derive(Debug)]
pub(super) enum Decision {
    Claims,
    Takes(Request),
    /// It waits until the holder can be dead. The version was seen unchanged for this long.
    Waits {
        retry_after: Duration,
        unchanged: Duration,
    },
    Refuses,
}

fn owner() -> String {
    format!("{EXECUTION}/0")
}

fn instants(millis: u64) -> Instants {
    Instants { monotonic: Duration::from_millis(millis), wall: Duration::from_millis(millis) }
}

fn now(options: &Options, millis: u64) -> Now {
    Now {
        instants: instants(millis),
        wall: WallClock { millis, written: millis, latest: millis, trusted: true },
        wait_left: Duration::ZERO,
        time_left: Duration::from_secs(10),
        lease: options.lease,
        latest_end: None,
        server: None,
    }
}

fn lock_key(options: &Options) -> LockKey {
    LockKey::new(KEY, options.sort_key.as_ref().map(|_| SORT_KEY.to_owned()))
}

fn acquiring(options: &Options, observation: Option<Observation>) -> Steps<Result<Acquired, Failure>> {
    let settings = options.settings().unwrap();
    let wanted = AcquireOptions {
        key: lock_key(options),
        owner: owner(),
        workflow: Some(EXECUTION.to_owned()),
        data: DataChange::Keep,
        attributes: AttributesChange::Keep,
        reclaim: Reclaim::SameOwner,
        queueing: Queueing::Ignored,
        observation,
        commit: None,
    };
    Steps::new(move |mut port: Driven| async move { acquire(&mut port, &settings, wanted).await })
}

fn sent<T: std::fmt::Debug>(step: Step<T>) -> Request {
    match step {
        Step::Send(Sent::Write(request)) => request,
        other => panic!("the crate sends nothing: {other:?}"),
    }
}

/// The first request of an acquire.
pub(super) fn claim(options: &Options, millis: u64) -> Request {
    sent(acquiring(options, None).step(now(options, millis), || RANDOM))
}

/// What the crate does at this time with a row that refused its Claim.
pub(super) fn decision(options: &Options, millis: u64, row: Option<Item>, observed: Option<Observation>) -> Decision {
    let mut steps = acquiring(options, observed);
    // Earlier, so that the next attempt has the stamp of its own time.
    sent(steps.step(now(options, millis - 1_000), || RANDOM));
    steps.answered(instants(millis), Answer::Written(Written::Refused(row.clone())));
    let mut step = steps.step(now(options, millis), || RANDOM);
    if row.is_none() {
        // The row is gone. The crate looks once more.
        while let Step::Wait(_) = step {
            step = steps.step(now(options, millis), || RANDOM);
        }
        assert!(matches!(step, Step::Send(Sent::Read(_))), "{step:?}");
        steps.answered(instants(millis), Answer::Read(None));
        step = steps.step(now(options, millis), || RANDOM);
    }
    match step {
        Step::Send(Sent::Write(request)) => match request.action {
            Action::Claim { .. } => Decision::Claims,
            _ => Decision::Takes(request),
        },
        Step::Done(Ok(Acquired::Held(seen))) => {
            Decision::Waits { retry_after: seen.retry_after, unchanged: seen.observation.unchanged_for() }
        }
        Step::Done(Err(Failure::InvalidRecord(_))) => Decision::Refuses,
        other => panic!("{other:?}"),
    }
}

/// The request that renews what a state machine keeps as `$lock`.
pub(super) fn renewal(options: &Options, millis: u64, lock: &Json) -> Request {
    let settings = options.settings().unwrap();
    let saved: SavedLock = serde_json::from_value(lock.clone()).unwrap();
    let mut holding = saved.holding(instants(millis), &settings).unwrap();
    let mut steps = Steps::new(move |mut port: Driven| async move {
        renew(&mut port, &settings, &mut holding, &DataChange::Keep).await
    });
    sent(steps.step(now(options, millis), || RANDOM))
}

/// The request that releases what a state machine keeps as `$lock`.
pub(super) fn releasing(options: &Options, millis: u64, lock: &Json) -> Request {
    let settings = options.settings().unwrap();
    let saved: SavedLock = serde_json::from_value(lock.clone()).unwrap();
    let holding = saved.holding(instants(millis), &settings).unwrap();
    let mut steps = Steps::new(move |mut port: Driven| async move {
        release(&mut port, &settings, &holding, ReleaseOptions::default()).await
    });
    sent(steps.step(now(options, millis), || RANDOM))
}

/// A request as it is sent to DynamoDB, but for what it returns.
pub(super) fn as_sent(options: &Options, request: &Request) -> Json {
    let schema: Schema = options.settings().unwrap().schema;
    let Expression { update, condition, names, values, .. } = Expression::of(request, &schema);
    let mut key = json!({ schema.key_attribute.as_str(): { "S": request.key.key() } });
    if let (Some(name), Some(sort_key)) = (&schema.sort_key_attribute, request.key.sort_key()) {
        key[name] = json!({ "S": sort_key });
    }
    let values: serde_json::Map<_, _> =
        values.iter().map(|(name, value)| ((*name).to_owned(), attribute(value))).collect();
    let mut sent = json!({
        "TableName": TABLE, "Key": key, "ConditionExpression": condition, "UpdateExpression": update,
        "ExpressionAttributeValues": values,
    });
    if !names.is_empty() {
        let names: serde_json::Map<_, _> =
            names.iter().map(|(name, attribute)| ((*name).to_owned(), json!(attribute))).collect();
        sent["ExpressionAttributeNames"] = names.into();
    }
    sent
}

/// What a state machine sees that sends this request: the same clock, and the random digits of its version.
pub(super) fn scene_of(sent: &Json, millis: u64, bindings: Json) -> Scene {
    let version = sent["ExpressionAttributeValues"][":rvn"]["S"].as_str().unwrap_or_default();
    let mut parts = version.splitn(3, '-').skip(1);
    let (grant, stamp) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    let digits = format!("00000000-0000-4000-{}", dashed_after(4, stamp.get(12..).unwrap_or_default()));
    // A new grant draws its own digits first.
    let anew = sent["ExpressionAttributeValues"].get(":owner").is_some();
    let uuids = anew.then(|| grant.to_owned()).into_iter().chain([digits]).collect();
    Scene { bindings, millis, uuids }
}

fn dashed_after(length: usize, text: &str) -> String {
    text.split_at_checked(length).map_or_else(String::new, |(start, end)| format!("{start}-{end}"))
}

/// The settings of these options.
pub(super) fn settings(options: &Options) -> Settings {
    options.settings().unwrap()
}

fn attribute(value: &Value) -> Json {
    match value {
        Value::S(text) => json!({ "S": text }),
        Value::N(number) => json!({ "N": number }),
        other => panic!("no request of a state machine has {other:?}"),
    }
}

/// A row as the crate reads it.
pub(super) fn item(row: &Json) -> Item {
    let fields = row.as_object().unwrap().iter();
    fields
        .map(|(name, value)| {
            let (kind, value) = value.as_object().unwrap().iter().next().unwrap();
            let value = match kind.as_str() {
                "S" => Value::S(value.as_str().unwrap().to_owned()),
                "N" => Value::N(value.as_str().unwrap().to_owned()),
                _ => Value::Other("BOOL"),
            };
            (name.clone(), value)
        })
        .collect()
}
