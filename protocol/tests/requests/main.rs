//! Every request as it goes to DynamoDB, in `requests.txt`: its update, its condition, their names and values, and what it
//! returns. `SNAPSHOTS=overwrite` writes the file anew. A change of it is a change on the wire, and needs a reason.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking, in its helpers too")]

mod grants;
mod holders;
mod operators;

use lambda_lock_protocol::{
    Action, AttributesChange, DataChange, Dialect, Expression, Grant, Lease, NewGrant, Request, Returns, Schema, Stamp,
    TransactionId, Ttl, Value, Version,
};
use std::fmt::Write;
use std::time::Duration;

/// A request with what is special about it.
struct Case {
    name: &'static str,
    request: Request,
    schema: Schema,
}

fn case(name: &'static str, action: Action) -> Case {
    Case { name, request: Request::alone("k".into(), action), schema: Schema::default() }
}

impl Case {
    fn schema(self, schema: Schema) -> Self {
        Self { schema, ..self }
    }

    fn in_transaction(mut self) -> Self {
        self.request.transaction = Some(TransactionId::from_random([1; 16]));
        self
    }
}

fn version() -> Version {
    Version { grant: Grant::from_random([0; 16]), stamp: Stamp::after(None, 5_000, 9) }
}

fn lease(millis: u64) -> Lease {
    Lease::new(Duration::from_millis(millis), Dialect::Java)
}

/// Of rows with this TTL attribute, which stay for a minute.
fn with_ttl(name: &str) -> Schema {
    let ttl = Ttl { attribute: name.to_owned(), retention: Duration::from_secs(60) };
    Schema { ttl: Some(ttl), ..Schema::default() }
}

fn grant() -> NewGrant {
    NewGrant {
        version: version(),
        owner: "me".to_owned(),
        lease: lease(20_000),
        now: 5_000,
        ends_at_ms: 25_000,
        data: DataChange::Keep,
        attributes: AttributesChange::default(),
        workflow: None,
        once: None,
    }
}

fn cases() -> Vec<Case> {
    [grants::cases(), holders::cases(), operators::cases()].into_iter().flatten().collect()
}

fn rendered(case: &Case) -> String {
    let Expression { update, condition, names, values, returns } = Expression::of(&case.request, &case.schema);
    let mut text = format!("=== {}\n", case.name);
    if !update.is_empty() {
        writeln!(text, "{update}").unwrap();
    }
    writeln!(text, "IF {condition}").unwrap();
    for (placeholder, name) in names {
        writeln!(text, "  {placeholder} {name}").unwrap();
    }
    for (placeholder, value) in values {
        let value = match value {
            Value::S(text) => format!("S {text}"),
            Value::N(number) => format!("N {number}"),
            Value::B(bytes) => format!("B {bytes:?}"),
            Value::Ns(numbers) => format!("NS {}", numbers.join(", ")),
            Value::Other(name) => panic!("no request writes a value {name}"),
        };
        writeln!(text, "  {placeholder} {value}").unwrap();
    }
    match returns {
        Returns::Nothing => {}
        Returns::AllNew => text.push_str("RETURNS the row as written\n"),
        Returns::UpdatedOld => text.push_str("RETURNS the written attributes as they were\n"),
    }
    text
}

#[test]
fn every_request_is_as_it_was() {
    let text = cases().iter().map(rendered).collect::<Vec<_>>().join("\n");
    snapbox::assert_data_eq!(text, snapbox::file!["requests.txt"].raw());
}

/// DynamoDB refuses a placeholder that is used and not given, and one that is given and not used.
#[test]
fn every_placeholder_that_is_given_is_used_and_the_reverse() {
    for case in cases() {
        let Expression { update, condition, names, values, .. } = Expression::of(&case.request, &case.schema);
        let text = format!("{update} {condition}");
        let words: Vec<&str> = text.split(|c: char| !(c.is_alphanumeric() || c == '#' || c == ':')).collect();
        let given: Vec<&str> =
            names.iter().map(|(name, _)| *name).chain(values.iter().map(|(name, _)| *name)).collect();
        for name in &given {
            assert!(words.contains(name), "{}: {name} is given but unused in {text}", case.name);
        }
        for word in words.iter().filter(|word| word.starts_with('#') || word.starts_with(':')) {
            assert!(given.contains(word), "{}: {word} is used but not given in {text}", case.name);
        }
    }
}

#[test]
fn no_two_cases_have_one_name() {
    let mut names: Vec<_> = cases().iter().map(|case| case.name).collect();
    let all = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), all);
}

/// So no client, of whatever language, mistakes a settled record for a lock.
#[test]
fn the_version_of_work_that_has_its_outcome_is_no_version_of_a_lock() {
    let settled = cases().into_iter().find(|case| case.name == "work is done").unwrap();
    let values = Expression::of(&settled.request, &settled.schema).values;
    let Some((_, Value::S(version))) = values.into_iter().find(|(name, _)| *name == ":settled") else {
        panic!("no version")
    };
    assert!(version.starts_with("lo1-") && Version::parse(&version).is_none(), "{version}");
}
