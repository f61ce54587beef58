//! Random events and rows. `LAMBDA_LOCK_FUZZ=20` draws twenty times as many as usual.

use super::{Function, acquire, trusting, waker, with};
use crate::deps::Deps;
use crate::handler::handler;
use aws_sdk_dynamodb::types::AttributeValue;
use lambda_lock_functions::Failure;
use lambda_lock_functions::test_support::{TABLE, context, event, locks_answered};
use lambda_runtime::LambdaEvent;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestCaseError, TestRunner};
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use std::fmt::Debug;

/// The error names that a caller may get, see `docs/errors.md`.
const ERRORS: [&str; 5] = ["LockHeld", "LockLost", "InvalidRequest", "InvalidRecord", "LockTableError"];
/// The largest response that Step Functions accepts from a task, in bytes.
const MAX_ANSWER_BYTES: usize = 256 * 1024;
/// The largest `data` in a response, in bytes.
const MAX_DATA_BYTES: usize = 32 * 1024;

/// Draws this many cases, times the factor in the environment. Reports the smallest case that fails.
#[track_caller]
fn fuzz<S: Strategy>(cases: u32, strategy: S, check: impl Fn(S::Value) -> Result<(), TestCaseError>)
where
    S::Value: Debug,
{
    let times = std::env::var("LAMBDA_LOCK_FUZZ").map_or(1, |times| times.parse().unwrap());
    // Writes no file of seeds: a case that was found is added to the source in a readable form.
    let config = Config { cases: cases * times, failure_persistence: None, ..Config::default() };
    if let Err(found) = TestRunner::new(config).run(&strategy, check) {
        panic!("{found}");
    }
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

/// A function without permissions. Each valid request ends as `LockTableError`.
fn refused() -> Deps {
    Deps {
        locks: locks_answered(400, "AccessDeniedException"),
        sort_key: false,
        per_tenant: false,
        max_clock_skew: None,
        trust: trusting(),
        waker: waker(),
    }
}

fn is_short(failure: &Failure) -> Result<(), TestCaseError> {
    let (bytes, known) = (failure.message().len(), ERRORS.contains(&failure.error_type()));
    prop_assert!(known, "{}", failure);
    // A message may contain a whole key or owner of up to 2,048 bytes.
    prop_assert!(bytes < 3000, "a message of {} bytes", bytes);
    Ok(())
}

/// A field: its name, its value, and whether the value is valid.
type Field = (&'static str, Option<Value>, bool);

/// A field that is required or optional.
fn field(
    name: &'static str,
    required: bool,
    right: BoxedStrategy<Value>,
    wrong: BoxedStrategy<Value>,
) -> BoxedStrategy<Field> {
    let missing = if required { 1 } else { 10 };
    prop_oneof![
        20 => right.prop_map(move |value| (name, Some(value), true)),
        1 => wrong.prop_map(move |value| (name, Some(value), false)),
        missing => Just((name, None, !required)),
    ]
    .boxed()
}

fn one_of(values: Vec<Value>) -> BoxedStrategy<Value> {
    prop::sample::select(values).boxed()
}

fn no_text() -> BoxedStrategy<Value> {
    one_of(vec![json!(null), json!(7), json!(true), json!([]), json!({}), json!(["k"])])
}

fn name(field_name: &'static str, required: bool) -> BoxedStrategy<Field> {
    let right = "\\PC{1,300}".prop_map(Value::from).boxed();
    let long = (2049..300_000_usize).prop_map(|bytes| Value::from("x".repeat(bytes)));
    field(field_name, required, right, prop_oneof![no_text(), long.boxed(), Just(json!("")).boxed()].boxed())
}

fn seconds(name: &'static str, required: bool, least: f64, most: f64) -> BoxedStrategy<Field> {
    let right = (0.0..1.0).prop_map(move |part: f64| json!(least + (most - least) * part * part * part));
    let edges = one_of(vec![json!(least), json!(most), json!(least.max(1.0) as u64)]);
    let wrong = one_of(vec![
        json!(-1),
        json!(-1e-300),
        json!(1e20),
        json!(f64::MAX),
        json!(u64::MAX),
        json!("300"),
        json!(null),
        json!([]),
    ]);
    field(name, required, prop_oneof![right.boxed(), edges].boxed(), wrong)
}

fn whole(name: &'static str) -> BoxedStrategy<Field> {
    // Larger numbers with a fraction of zero are not read exactly.
    let float = (0..900_000_000_000_000_u64).prop_map(|whole| json!(whole as f64));
    let right = prop_oneof![any::<u64>().prop_map(Value::from), float].boxed();
    field(name, true, right, one_of(vec![json!(-1), json!(0.5), json!(1e300), json!("7"), json!(null), json!(-0.5)]))
}

fn object(fields: Vec<BoxedStrategy<Field>>) -> BoxedStrategy<(Value, Vec<String>)> {
    let collect = |fields: Vec<Field>| {
        let wrong = fields.iter().filter(|(_, _, right)| !right).map(|(name, ..)| (*name).to_owned()).collect();
        let there = fields.into_iter().filter_map(|(name, value, _)| Some((name.to_owned(), value?)));
        (Value::Object(there.collect::<Map<_, _>>()), wrong)
    };
    fields.prop_map(collect).boxed()
}

fn text(name: &'static str) -> BoxedStrategy<Field> {
    field(name, false, "\\PC{0,300}".prop_map(Value::from).boxed(), no_text())
}

fn attributes() -> BoxedStrategy<Field> {
    let value = prop_oneof![any::<i64>().prop_map(Value::from), "\\PC{0,40}".prop_map(Value::from)];
    // Names that begin with an underscore are not the lock's own.
    let right = prop::collection::btree_map("_[^,]{0,40}", value, 0..20);
    let right = right.prop_map(|given| Value::Object(given.into_iter().collect())).boxed();
    let wrong = one_of(vec![json!(null), json!("a"), json!([]), json!({"a": null}), json!({"a": "x".repeat(5000)})]);
    field("attributes", false, right, wrong)
}

fn unknown() -> BoxedStrategy<Field> {
    let wrong = prop_oneof![no_text(), (0..300_000_usize).prop_map(|bytes| Value::from("x".repeat(bytes))).boxed()];
    prop_oneof![30 => Just(("colour", None, true)), 1 => wrong.prop_map(|value| ("colour", Some(value), false))].boxed()
}

/// The longest lease that a request may ask for.
const MAX_ASKED: f64 = 86_400.0;
/// The longest lease that a lock may have.
const MAX_HELD: f64 = 31_622_400.0;

fn lease(longest: f64) -> BoxedStrategy<Field> {
    seconds("leaseSeconds", true, 1e-9, longest)
}

fn lock() -> BoxedStrategy<(Value, Vec<String>)> {
    let version = ("[0-9a-f]{32}", "00[0-9a-f]{26}").prop_map(|(grant, stamp)| json!(format!("ll1-{grant}-{stamp}")));
    let no_version = prop_oneof![no_text(), "(ll1-)?[0-9a-fg-]{0,72}".prop_map(Value::from).boxed()];
    let version = field("version", true, version.boxed(), no_version.boxed());
    let fields = vec![
        name("key", true),
        name("owner", true),
        version,
        whole("fencingToken"),
        lease(MAX_HELD),
        whole("leaseEndsAt"),
        text("data"),
        unknown(),
    ];
    object(fields)
}

/// An event, and the names of its wrong fields.
fn events() -> BoxedStrategy<(Value, Vec<String>)> {
    let asks = vec![
        name("key", true),
        name("owner", true),
        lease(MAX_ASKED),
        seconds("waitSeconds", false, 0.0, 1e15),
        field(
            "whenHeld",
            false,
            one_of(vec![json!("fail"), json!("report"), json!("failWithReport")]),
            one_of(vec![json!("ignore"), json!(null)]),
        ),
        text("data"),
        attributes(),
        name("execution", false),
        unknown(),
    ];
    let with_action = |action: &'static str| {
        move |(mut request, wrong): (Value, Vec<String>)| {
            request["action"] = action.into();
            (request, wrong)
        }
    };
    let holds = |action: &'static str, fields: Vec<BoxedStrategy<Field>>| {
        (lock(), object(fields)).prop_map(move |((lock, wrong_in_lock), (mut request, mut wrong))| {
            request["action"] = action.into();
            request["lock"] = lock;
            wrong.extend(wrong_in_lock.iter().map(|name| format!("lock.{name}")));
            (request, wrong)
        })
    };
    prop_oneof![
        2 => object(asks).prop_map(with_action("acquire")),
        1 => holds("renew", vec![lease(MAX_ASKED), unknown()]),
        1 => holds("release", vec![unknown()]),
    ]
    .boxed()
}

#[test]
fn an_event_is_refused_by_the_name_of_a_wrong_field_or_sent_to_dynamodb() {
    let (runtime, deps) = (runtime(), refused());
    fuzz(1000, events(), |(request, wrong)| {
        let failure = runtime.block_on(handler(event(&request, 5.0), &deps)).unwrap_err();
        is_short(&failure)?;
        let message: String = failure.message().chars().take(200).collect();
        if message.contains("a template that was not resolved") {
            return Ok(());
        }
        prop_assert_eq!(failure.error_type() == "InvalidRequest", !wrong.is_empty(), "{} {:?}", message, wrong);
        prop_assert!(
            wrong.is_empty() || wrong.iter().any(|name| message.starts_with(name.as_str())),
            "{} {:?}",
            message,
            wrong
        );
        Ok(())
    });
}

/// JSON as text, with numbers in any notation and repeated fields.
fn texts() -> impl Strategy<Value = String> {
    let number = "-?(0|[1-9][0-9]{0,40})(\\.[0-9]{1,40})?([eE][+-]?[0-9]{1,5})?";
    let value = prop_oneof![
        3 => number,
        1 => prop::sample::select(vec!["null", "true", "\"ll1-\"", "\"\\ud800\"", "\"\\u0000\"", "[[[[]]]]", "{}", "\"report\""])
            .prop_map(str::to_owned),
        1 => "\"[a-z0-9-]{0,40}\"",
        1 => (1..127_usize).prop_map(|depth| format!("{}{}", "[".repeat(depth), "]".repeat(depth))),
    ];
    let names = vec![
        "key",
        "owner",
        "leaseSeconds",
        "waitSeconds",
        "whenHeld",
        "maxRetryAfterSeconds",
        "data",
        "attributes",
        "execution",
        "observation",
        "waitedSeconds",
        "lock",
        "sortKey",
        "reclaim",
    ];
    let field = (prop::sample::select(names), value).prop_map(|(name, value)| format!("{name:?}:{value}"));
    let action = prop::sample::select(vec!["acquire", "renew", "release", "peek", ""]);
    let lease = prop_oneof![Just(String::new()), number.prop_map(|number| format!(",\"leaseSeconds\":{number}"))];
    (action, lease, prop::collection::vec(field, 0..5)).prop_map(|(action, lease, fields)| {
        let more: String = fields.iter().map(|field| format!(",{field}")).collect();
        format!("{{\"action\":\"{action}\",\"key\":\"k\",\"owner\":\"me\"{lease}{more}}}")
    })
}

#[test]
fn no_json_text_breaks_the_function() {
    let (runtime, deps) = (runtime(), refused());
    let check = |text: String| {
        let Ok(raw) = RawValue::from_string(text) else { return Ok(()) };
        let failure = runtime.block_on(handler(LambdaEvent::new(raw, context(5.0)), &deps)).unwrap_err();
        is_short(&failure)
    };
    fuzz(1000, texts(), check);
    fuzz(300, "\\PC{0,40}", check);
    // A field with a long name.
    check(format!(
        "{{\"action\":\"acquire\",\"key\":\"k\",\"owner\":\"me\",\"leaseSeconds\":1,\"{}\":1}}",
        "x".repeat(100_000)
    ))
    .unwrap();
}

/// A row. Any attribute may be long, of another type, or a number that is not whole.
fn rows() -> impl Strategy<Value = Vec<(&'static str, AttributeValue)>> {
    let text = |texts: Vec<&'static str>| {
        let usual = prop::sample::select(texts).prop_map(|text| AttributeValue::S(text.to_owned()));
        let long = (100..60_000_usize).prop_map(|bytes| AttributeValue::S("x".repeat(bytes)));
        prop_oneof![12 => usual.boxed(), 1 => long.boxed(), 1 => Just(AttributeValue::Bool(true)).boxed()]
    };
    let number = || {
        let numbers =
            vec!["0", "7", "7.5", "-3", "1E30", "18446744073709551614", "18446744073709551615", "1800000000000"];
        let usual = prop::sample::select(numbers).prop_map(|number| AttributeValue::N(number.to_owned()));
        let nines = AttributeValue::N("9".repeat(38));
        prop_oneof![12 => usual.boxed(), 1 => Just(nines).boxed(), 1 => Just(AttributeValue::S("7".to_owned())).boxed()]
    };
    let versions = vec!["v1", "ll1-odd", "ll1-", "ll1-0123456789ab4def8123456789abcdef-01a31848b8000000000000000001"];
    let leases =
        vec!["20000", "20s", "0", "340282366920938463463374607431768211.999us", "18446744073709551615", "soon"];
    let data =
        prop::sample::select(vec![0, 7, MAX_DATA_BYTES - 1, MAX_DATA_BYTES, MAX_DATA_BYTES + 1, 100_000, 150_000]);
    let data = data.prop_map(|bytes| AttributeValue::B(vec![b'x'; bytes].into()));
    let there = |name, value: BoxedStrategy<AttributeValue>| prop_oneof![5 => value.prop_map(move |value| Some((name, value))), 1 => Just(None)];
    (
        text(versions).prop_map(|value| ("recordVersionNumber", value)),
        text(vec!["me", "other"]).prop_map(|value| ("ownerName", value)),
        text(leases).prop_map(|value| ("leaseDuration", value)),
        prop::option::of(Just(("isReleased", AttributeValue::S("1".to_owned())))),
        there("data", data.boxed()),
        there("fencingToken", number().boxed()),
        there("leaseEndsAt", number().boxed()),
        there("workflow", text(vec!["arn"]).boxed()),
    )
        .prop_map(|all| {
            [vec![all.0, all.1, all.2], [all.3, all.4, all.5, all.6, all.7].into_iter().flatten().collect()].concat()
        })
}

async fn put(function: &Function, row: &[(&'static str, AttributeValue)]) {
    let mut put = function.server.client().put_item().table_name(TABLE);
    put = put.item("key", AttributeValue::S("customer-7".to_owned()));
    for (name, value) in row {
        put = put.item(*name, value.clone());
    }
    put.send().await.unwrap();
}

/// Tries to acquire the lock of this row, with an error or with a report when it is held.
async fn ask(
    function: &Function,
    row: &[(&'static str, AttributeValue)],
    when_held: &str,
) -> Result<(), TestCaseError> {
    put(function, row).await;
    let request = with(acquire("asker"), json!({ "whenHeld": when_held }));
    let answer = match function.call(request).await {
        Ok(answer) => answer,
        Err(failure) => {
            is_short(&failure)?;
            prop_assert!(["LockHeld", "InvalidRecord"].contains(&failure.error_type()), "{}", failure);
            return Ok(());
        }
    };
    let bytes = answer.to_string().len();
    prop_assert!(bytes <= MAX_ANSWER_BYTES, "an answer of {} bytes", bytes);
    if answer["acquired"] != json!(true) {
        return Ok(());
    }
    let data = row.iter().find_map(|(name, value)| value.as_b().ok().filter(|_| *name == "data"));
    let short = data.map(|data| data.as_ref()).filter(|data| data.len() <= MAX_DATA_BYTES);
    let answered = answer["lock"].get("data").and_then(Value::as_str).map(str::as_bytes);
    prop_assert_eq!(answered.map(<[u8]>::len), short.map(<[u8]>::len), "bytes of data");
    let omitted = answer.to_string().contains("\"dataOmitted\":true");
    prop_assert_eq!(omitted, data.is_some() && short.is_none(), "dataOmitted is wrong");
    let released = function.call(json!({ "action": "release", "lock": answer["lock"] })).await;
    prop_assert_eq!(released.unwrap(), json!({ "released": true }));
    Ok(())
}

#[test]
fn the_response_is_short_and_reports_what_is_wrong_for_any_row() {
    let runtime = runtime();
    let function = runtime.block_on(Function::start());
    let when_held = prop::sample::select(vec!["fail", "report", "failWithReport"]);
    fuzz(60, (rows(), when_held), |(row, when_held)| runtime.block_on(ask(&function, &row, when_held)));
}

#[tokio::test]
async fn a_payload_of_any_size_never_makes_the_response_too_large_for_step_functions() {
    let function = Function::start().await;
    for bytes in [0, MAX_DATA_BYTES, MAX_DATA_BYTES + 1, 390_000] {
        let row = [
            ("recordVersionNumber", AttributeValue::S("v1".to_owned())),
            ("ownerName", AttributeValue::S("other".to_owned())),
            ("leaseDuration", AttributeValue::S("20000".to_owned())),
            ("isReleased", AttributeValue::S("1".to_owned())),
            ("data", AttributeValue::B(vec![0xff; bytes].into())),
        ];
        put(&function, &row).await;
        let answer = function.answer(acquire("asker")).await;
        assert!(answer.to_string().len() <= MAX_ANSWER_BYTES, "{} bytes", answer.to_string().len());
        assert_eq!(
            function.answer(json!({ "action": "release", "lock": answer["lock"] })).await,
            json!({ "released": true })
        );
    }
}
