//! Saved locks and observations. Whatever their JSON is, they are refused or can be used.

use crate::versions::GRANTS;
use crate::{fuzz, leases, versions};
use lambda_lock::{Observation, SavedLock};
use lambda_lock_protocol::{Dialect, Instants, Lease, Schema, Settings, Version};
use proptest::prelude::*;
use serde_json::{Map, Number, Value, json};
use std::time::{Duration, UNIX_EPOCH};

/// Any JSON number, including one that is neither a `u64` nor an `f64`.
pub(crate) fn numbers() -> impl Strategy<Value = Value> {
    prop_oneof![
        any::<u64>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(|float| Number::from_f64(float).map_or(Value::Null, Value::Number)),
        prop::sample::select(vec![
            json!(0),
            json!(-0.0),
            json!(1e-9),
            json!(1e300),
            json!(u64::MAX),
            json!(7.5),
            json!(300)
        ]),
    ]
}

fn anything() -> impl Strategy<Value = Value> {
    prop_oneof![
        numbers(),
        any::<bool>().prop_map(Value::from),
        "\\PC{0,20}".prop_map(Value::from),
        leases::texts().prop_map(Value::from),
        prop::sample::select(vec![json!(null), json!([]), json!({}), json!(["ll1-"])]),
    ]
}

/// An object with these fields. Each one is usually valid, sometimes anything, and sometimes missing.
fn object(fields: Vec<(&'static str, BoxedStrategy<Value>)>) -> impl Strategy<Value = Value> {
    let fields: Vec<_> = fields
        .into_iter()
        .map(|(name, usual)| {
            let value = prop_oneof![12 => usual.prop_map(Some), 1 => anything().prop_map(Some), 1 => Just(None)];
            (Just(name), value)
        })
        .collect();
    fields.prop_map(|fields| {
        let there = fields.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?)));
        Value::Object(there.collect::<Map<_, _>>())
    })
}

fn version() -> BoxedStrategy<Value> {
    // Most of them of a time that has come.
    let stamp = prop_oneof![4 => "00[0-9a-f]{26}", 1 => "[0-9a-f]{28}"];
    let ours = ("[0-9a-f]{32}", stamp).prop_map(|(grant, stamp)| format!("ll1-{grant}-{stamp}"));
    prop_oneof![4 => ours.boxed(), 1 => versions::nearly().boxed()].prop_map(Value::from).boxed()
}

pub(crate) fn tokens() -> impl Strategy<Value = Value> {
    let usual = |value: Value| Just(value).boxed();
    object(vec![
        ("key", usual(json!("k"))),
        ("owner", usual(json!("me"))),
        ("version", version()),
        ("fencingToken", prop_oneof![any::<u64>().prop_map(Value::from), numbers()].boxed()),
        ("leaseSeconds", prop_oneof![Just(json!(300)), numbers()].boxed()),
        ("leaseEndsAt", prop_oneof![any::<u64>().prop_map(Value::from), numbers()].boxed()),
        (
            "commit",
            prop::sample::select(vec![json!(null), json!("applied"), json!({"sent": "0199d6a4c80012ef"})]).boxed(),
        ),
    ])
}

fn now() -> Instants {
    Instants::new(Duration::from_secs(1), UNIX_EPOCH + Duration::from_secs(1_800_000_000))
}

#[test]
fn a_saved_lock_is_refused_or_is_the_same_when_it_is_saved_again() {
    fuzz(2000, (tokens(), any::<bool>()), |(json, go)| {
        let Ok(token) = serde_json::from_value::<SavedLock>(json.clone()) else { return Ok(()) };
        // No method of a saved lock panics.
        let (_, _, _) = (token.lease(), token.lease_ends_at(), format!("{token:?}"));
        prop_assert_eq!(
            serde_json::from_value::<SavedLock>(serde_json::to_value(&token).unwrap()).unwrap(),
            token.clone()
        );
        let dialect = if go { Dialect::Go } else { Dialect::Java };
        let settings = Settings { schema: Schema { dialect, ..Schema::default() }, ..Settings::default() };
        let holding = match token.holding(now(), &settings) {
            Ok(holding) => holding,
            Err(invalid) => {
                prop_assert!(invalid.to_string().len() < 1000, "{} bytes of text", invalid.to_string().len());
                return Ok(());
            }
        };
        prop_assert_eq!(Version::parse(token.version()), Some(holding.newest));
        prop_assert!(Lease::check(holding.lease.duration()).is_ok());
        prop_assert_eq!(Lease::parse(holding.lease.text()), Some(holding.lease.clone()));
        prop_assert_eq!(
            holding.validity.remaining(now()),
            Duration::ZERO,
            "it believes in nothing before it is renewed"
        );
        let again = SavedLock::of(&holding);
        prop_assert_eq!(
            (again.key(), again.owner(), again.version(), again.fencing_token(), again.commit()),
            (token.key(), token.owner(), token.version(), token.fencing_token(), token.commit())
        );
        // An end that no clock within the bounds can have written is not kept.
        let latest = UNIX_EPOCH + now().wall + holding.lease.duration() + Duration::from_secs(3);
        prop_assert!(again.lease_ends_at().is_some_and(|ends| ends <= latest));
        prop_assert!(token.lease_ends_at().is_none_or(|ends| again.lease_ends_at().is_some_and(|again| again <= ends)));
        // A lease is rounded up to whole milliseconds.
        prop_assert!(again.lease() + Duration::from_micros(1) >= token.lease());
        prop_assert!(again.lease() <= token.lease() + Duration::from_micros(1001));
        Ok(())
    });
}

#[test]
fn saved_locks_that_were_once_read_wrongly() {
    let version = format!("ll1-{}-0000ffffffffffffffffffffffff", GRANTS[0]);
    for (lease, ends) in [(json!(31_622_400), json!(u64::MAX)), (json!(1e-9), json!(0)), (json!(5e-324), json!(1))] {
        let json = json!({ "key": "k", "owner": "me", "version": version, "fencingToken": u64::MAX,
            "leaseSeconds": lease, "leaseEndsAt": ends });
        let token: SavedLock = serde_json::from_value(json).unwrap();
        let _ = (token.lease_ends_at(), token.holding(now(), &Settings::default()));
    }
}

#[test]
fn an_observation_is_refused_or_can_be_used() {
    let millis = || prop_oneof![any::<u64>().prop_map(Value::from), numbers()].boxed();
    let seen = || vec![("version", version()), ("leaseMillis", millis()), ("unchangedForMillis", millis())];
    let turns =
        object(vec![("served", millis()), ("left", any::<bool>().prop_map(Value::from).boxed()), ("lost", millis())]);
    let in_line = object([seen(), vec![("ticket", millis()), ("turns", turns.boxed())]].concat());
    fuzz(1000, (prop_oneof![object(seen()), in_line], any::<u64>()), |(json, waited)| {
        let Ok(seen) = serde_json::from_value::<Observation>(json.clone()) else { return Ok(()) };
        let again = serde_json::to_value(&seen).unwrap();
        // Where there is no place in line, nothing is written.
        prop_assert!(again == json || json.to_string().contains("null"), "{again}");
        prop_assert_eq!(&serde_json::from_value::<Observation>(again).unwrap(), &seen);
        let before = seen.unchanged_for();
        let after = seen.and_waited(Duration::from_millis(waited));
        let sum = u128::from(waited) + before.as_millis();
        prop_assert_eq!(after.unchanged_for().as_millis(), sum.min(u128::from(u64::MAX)));
        let _ = (after.lease(), after.version());
        Ok(())
    });
}
