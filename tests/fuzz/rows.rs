//! Random rows, in which any attribute may be missing, of a wrong type, or have an unlikely value. Also a
//! second way to read rows, for comparison.

use crate::numbers::Decimal;
use crate::versions::{self, GRANTS};
use crate::{Checked, fuzz, leases};
use lambda_lock_protocol::schema::{
    DATA, ENDS, FREEZE_CHANGED_AT, FREEZE_REASON, LEASE, OWNER, RELEASED, TOKEN, VERSION, WORKFLOW,
};
use lambda_lock_protocol::{Item, Lease, Record, Schema, Value, Version};
use proptest::prelude::*;
use serde_json::{Value as Json, json};
use std::collections::BTreeMap;
use std::fmt;

/// An attribute of a row that does not exist yet. Some values count from the time at which the row is put.
#[derive(Clone)]
pub(crate) struct Sketch(pub(crate) Vec<(&'static str, Attribute)>);

#[derive(Clone, Debug)]
pub(crate) enum Attribute {
    Text(String),
    Number(String),
    Numbers(Vec<String>),
    /// A number: the present time in epoch milliseconds, plus this.
    FromNow(i64),
    /// A version of ours: this grant, this many milliseconds after now, and these digits.
    Ours(usize, i64, u64),
    Bytes(&'static [u8]),
    Other(&'static str),
}

/// A row to put.
#[derive(Clone)]
pub(crate) struct Row(pub(crate) BTreeMap<&'static str, Value>);

impl Sketch {
    pub(crate) fn at(&self, now: u64) -> Row {
        let value = |attribute: &Attribute| match attribute {
            Attribute::Text(text) => Value::S(text.clone()),
            Attribute::Number(number) => Value::N(number.clone()),
            Attribute::Numbers(numbers) => Value::Ns(numbers.clone()),
            Attribute::FromNow(millis) => Value::N(now.saturating_add_signed(*millis).to_string()),
            Attribute::Ours(grant, millis, digits) => Value::S(version(*grant, now, *millis, *digits)),
            Attribute::Bytes(bytes) => Value::B(bytes.to_vec()),
            Attribute::Other(name) => Value::Other(name),
        };
        Row(self.0.iter().map(|(name, attribute)| (*name, value(attribute))).collect())
    }
}

pub(crate) fn version(grant: usize, now: u64, millis: i64, digits: u64) -> String {
    let millis = now.saturating_add_signed(millis) & 0xffff_ffff_ffff;
    format!("ll1-{}-{millis:012x}{digits:016x}", GRANTS[grant])
}

// The output is short, even if a text in the row is long.
impl fmt::Debug for Sketch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shortened = |attribute: &Attribute| match attribute {
            Attribute::Text(text) if text.len() > 100 => {
                format!("Text({:?}… of {} bytes)", text.chars().take(40).collect::<String>(), text.len())
            }
            other => format!("{other:?}"),
        };
        f.debug_map().entries(self.0.iter().map(|(name, attribute)| (*name, shortened(attribute)))).finish()
    }
}

impl Row {
    pub(crate) fn item(&self) -> Item {
        self.0.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect()
    }

    /// Returns the row in DynamoDB's JSON, with this key.
    pub(crate) fn json(&self, key: &str) -> Json {
        let mut json = json!({ "key": { "S": key } });
        for (name, value) in &self.0 {
            json[*name] = match value {
                Value::S(text) => json!({ "S": text }),
                Value::N(number) => json!({ "N": number }),
                Value::B(bytes) => json!({ "B": base64(bytes) }),
                Value::Ns(numbers) => json!({ "NS": numbers }),
                Value::Other("BOOL") => json!({ "BOOL": false }),
                Value::Other("NULL") => json!({ "NULL": true }),
                Value::Other("M") => json!({ "M": {} }),
                Value::Other("L") => json!({ "L": [] }),
                Value::Other(_) => json!({ "SS": ["1"] }),
            };
        }
        json
    }

    /// Returns the same row with its numbers in DynamoDB's notation.
    pub(crate) fn as_spelled(&self, json: &Json) -> Self {
        let spelled = |name: &str, value: &Value| match value {
            Value::N(_) => Value::N(json[name]["N"].as_str().unwrap().to_owned()),
            other => other.clone(),
        };
        Row(self.0.iter().map(|(name, value)| (*name, spelled(name, value))).collect())
    }

    pub(crate) fn number(&self, name: &str) -> Option<Decimal> {
        match self.0.get(name) {
            Some(Value::N(number)) => Some(Decimal::of(number)),
            _ => None,
        }
    }

    pub(crate) fn text(&self, name: &str) -> Option<&str> {
        match self.0.get(name) {
            Some(Value::S(text)) => Some(text),
            _ => None,
        }
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    pub(crate) fn is_ours(&self) -> bool {
        self.text(VERSION).is_some_and(|version| version.starts_with("ll1-"))
    }

    /// Returns which attributes prevent the row from being a lock record.
    pub(crate) fn wrong(&self) -> Vec<&'static str> {
        let mut wrong = Vec::new();
        for name in [VERSION, OWNER] {
            wrong.extend(self.text(name).is_none().then_some(name));
        }
        wrong.extend(self.text(LEASE).and_then(Lease::parse).is_none().then_some(LEASE));
        for name in [RELEASED, WORKFLOW, FREEZE_REASON] {
            wrong.extend((self.has(name) && self.text(name).is_none()).then_some(name));
        }
        wrong.extend((self.has(DATA) && !matches!(self.0[DATA], Value::B(_))).then_some(DATA));
        wrong.extend(self.wrong_numbers(&[TOKEN, ENDS, FREEZE_CHANGED_AT]));
        // No larger token can follow this one.
        let last = self.number(TOKEN).and_then(|token| token.as_u64()) == Some(u64::MAX);
        wrong.extend(last.then_some(TOKEN));
        wrong
    }

    /// Returns which of these attributes are present but are not whole numbers that fit.
    pub(crate) fn wrong_numbers(&self, names: &[&'static str]) -> Vec<&'static str> {
        let wrong = |name: &&&str| self.has(name) && self.number(name).and_then(|number| number.as_u64()).is_none();
        names.iter().filter(wrong).copied().collect()
    }
}

fn base64(bytes: &[u8]) -> &'static str {
    match bytes {
        b"" => "",
        b"step 2" => "c3RlcCAy",
        _ => "////",
    }
}

pub(crate) const BYTES: [&[u8]; 3] = [b"", b"step 2", &[0xff; 3]];

fn other() -> impl Strategy<Value = Attribute> {
    let numbers = Just(Attribute::Numbers(vec!["1".to_owned()]));
    prop_oneof![5 => prop::sample::select(vec!["BOOL", "NULL", "M", "L", "SS"]).prop_map(Attribute::Other), 1 => numbers]
}

pub(crate) fn of_any_type() -> impl Strategy<Value = Attribute> {
    prop_oneof![
        prop::sample::select(vec!["", "1", "7", "ll1-", "20000", "me"])
            .prop_map(|text| Attribute::Text(text.to_owned())),
        prop::sample::select(vec!["0", "1", "7.5", "20000"]).prop_map(|number| Attribute::Number(number.to_owned())),
        prop::sample::select(BYTES.to_vec()).prop_map(Attribute::Bytes),
        other(),
    ]
}

pub(crate) const NUMBERS: [&str; 23] = [
    "0",
    "1",
    "7",
    "7.5",
    "-3",
    "-1",
    "-0",
    "1E3",
    "1e-1",
    "70E-1",
    "007",
    "1E19",
    "1E30",
    "1E-130",
    "9.9E+125",
    "-9.9E+125",
    "1760000000001.000",
    "9007199254740993",
    "18446744073709551614",
    "18446744073709551615",
    "18446744073709551616",
    "18446744073709551615.5",
    "99999999999999999999999999999999999999",
];

/// Times long before and long after now. Latency does not change a time of one kind into the other.
const FROM_NOW: [i64; 8] =
    [-1_000_000_000, -60_000, -5_000, -1_000, 60_000, 1_000_000, 100_000_000_000, 10_000_000_000_000];

pub(crate) fn number() -> impl Strategy<Value = Attribute> {
    prop_oneof![
        3 => prop::sample::select(FROM_NOW.to_vec()).prop_map(Attribute::FromNow),
        2 => prop::sample::select(NUMBERS.to_vec()).prop_map(|number| Attribute::Number(number.to_owned())),
        1 => any::<u64>().prop_map(|number| Attribute::Number(number.to_string())),
        1 => "-?[1-9][0-9]{0,15}(\\.[0-9]{1,15})?([eE][+-]?[0-9]{1,2})?".prop_map(Attribute::Number),
    ]
}

fn long() -> impl Strategy<Value = Attribute> {
    (1..70_000_usize).prop_map(|length| Attribute::Text("x".repeat(length)))
}

/// Stamps at the ends of what there is, and some that are none.
const STAMPS: [&str; 6] = [
    "0000000000000000000000000000",
    "ffffffffffff0000000000000000",
    "ffffffffffffffffffffffffffff",
    "ffffffffffffffff",
    "8000",
    "0",
];

fn version_text() -> impl Strategy<Value = Attribute> {
    prop_oneof![
        6 => (0..2_usize, prop::sample::select(FROM_NOW[..7].to_vec()), any::<u64>())
            .prop_map(|(grant, millis, digits)| Attribute::Ours(grant, millis, digits)),
        2 => prop::sample::select(vec!["b2c6a6e2-37cb-4bd9-9cdd-1b0f0d1f9c3e", "", "v1"])
            .prop_map(|text| Attribute::Text(text.to_owned())),
        1 => prop::sample::select(STAMPS.to_vec())
            .prop_map(|stamp| Attribute::Text(format!("ll1-{}-{stamp}", GRANTS[0]))),
        1 => "[0-9a-f]{28}".prop_map(|stamp| Attribute::Text(format!("lo1-{}-{stamp}", GRANTS[0]))),
        1 => versions::nearly().prop_map(Attribute::Text),
    ]
}

/// An attribute that is present with a chance of `there` in a hundred, and seldom of a wrong type.
pub(crate) fn maybe(
    name: &'static str,
    there: u32,
    usual: impl Strategy<Value = Attribute> + 'static,
) -> impl Strategy<Value = Option<(&'static str, Attribute)>> {
    let attribute = prop_oneof![30 => usual.boxed(), 1 => of_any_type().boxed(), 1 => long().boxed()];
    prop_oneof![
        there => attribute.prop_map(move |attribute| Some((name, attribute))),
        100 - there => Just(None),
    ]
}

pub(crate) fn lock_attributes() -> impl Strategy<Value = Vec<Option<(&'static str, Attribute)>>> {
    let fixed =
        |texts: Vec<&'static str>| prop::sample::select(texts).prop_map(|text| Attribute::Text(text.to_owned()));
    let lease = prop_oneof![
        8 => fixed(vec!["20000", "20s", "0", "0.5ns", "1ms", "1m30s", "18446744073709551615", "-5s", "soon"]),
        1 => leases::texts().prop_map(Attribute::Text),
    ];
    (
        maybe(VERSION, 98, version_text()),
        maybe(OWNER, 98, fixed(vec!["me", "other", ""])),
        maybe(LEASE, 98, lease),
        maybe(RELEASED, 50, fixed(vec!["1", "", "0"])),
        maybe(DATA, 30, prop::sample::select(BYTES.to_vec()).prop_map(Attribute::Bytes)),
        maybe(TOKEN, 80, number()),
        maybe(ENDS, 80, number()),
        maybe(WORKFLOW, 20, fixed(vec!["arn", ""])),
        maybe(FREEZE_REASON, 15, fixed(vec!["a migration", ""])),
        maybe(FREEZE_CHANGED_AT, 15, number()),
    )
        .prop_map(|all| vec![all.0, all.1, all.2, all.3, all.4, all.5, all.6, all.7, all.8, all.9])
}

pub(crate) fn rows() -> impl Strategy<Value = Sketch> {
    lock_attributes().prop_map(|attributes| Sketch(attributes.into_iter().flatten().collect()))
}

/// Compares `Record::read` with the reference. The numbers are in DynamoDB's notation, because DynamoDB
/// returns no other.
pub(crate) fn check(row: &Row, spelled: &Row) -> Checked {
    let wrong = row.wrong();
    let record = match Record::read(spelled.item(), &Schema::default()) {
        Ok(record) => record,
        Err(invalid) => {
            prop_assert!(wrong.contains(&invalid.attribute()), "{} although only {:?} is wrong", invalid, wrong);
            prop_assert!(invalid.to_string().len() < 1000, "{} bytes of text", invalid.to_string().len());
            return Ok(());
        }
    };
    prop_assert!(wrong.is_empty(), "{:?} is wrong, and the row was read", wrong);
    let number = |name| row.number(name).and_then(|number| number.as_u64());
    prop_assert_eq!(record.is_ours(), row.is_ours());
    prop_assert_eq!(record.own_version, Version::parse(&record.version));
    prop_assert_eq!(Some(record.version.as_str()), row.text(VERSION));
    prop_assert_eq!(Some(record.owner.as_str()), row.text(OWNER));
    prop_assert_eq!(Some(record.lease.text()), row.text(LEASE));
    prop_assert_eq!(
        (record.released, record.token, record.ends_at_ms),
        (row.has(RELEASED), number(TOKEN), number(ENDS))
    );
    prop_assert_eq!(record.believable_end(), number(ENDS).filter(|_| row.is_ours()));
    prop_assert_eq!(record.workflow.as_deref(), row.text(WORKFLOW));
    prop_assert_eq!(record.freeze_reason.as_deref(), row.text(FREEZE_REASON));
    prop_assert_eq!(record.freeze_changed_at, number(FREEZE_CHANGED_AT));
    Ok(())
}

#[test]
fn every_row_is_read_as_the_reference_reads_it() {
    // The numbers are in notations that DynamoDB does not return, so only plain ones count.
    fuzz(2000, rows(), |sketch| {
        let mut row = sketch.at(1_800_000_000_000);
        let plain = |text: &str| text.bytes().all(|b| b.is_ascii_digit()) && (text == "0" || !text.starts_with('0'));
        row.0.retain(
            |_, value| !matches!(value, Value::N(text) if Decimal::of(text).as_u64().is_some() && !plain(text)),
        );
        check(&row, &row)
    });
}
