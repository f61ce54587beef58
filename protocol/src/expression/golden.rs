//! What the tests of expressions share. They pin the texts of the expressions: a change of one is a change of the wire
//! format and needs a reason.

use super::Expression;
use crate::attributes::AttributesChange;
use crate::lease::{Dialect, Lease};
use crate::request::{Action, DataChange, NewGrant, Request, TransactionId};
use crate::schema::Schema;
use crate::value::Value;
use crate::version::{Grant, Stamp, Version};
use std::time::Duration;

pub(super) fn version() -> Version {
    Version { grant: Grant::from_random([0; 16]), stamp: Stamp::after(None, 5_000, 9) }
}

pub(super) fn lease(millis: u64) -> Lease {
    Lease::new(Duration::from_millis(millis), Dialect::Java)
}

pub(super) fn grant() -> NewGrant {
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

pub(super) fn rendered(action: Action, schema: &Schema) -> Expression {
    Expression::of(&Request::alone("k".into(), action), schema)
}

pub(super) fn in_transaction(action: Action) -> Expression {
    let transaction = Some(TransactionId::from_random([1; 16]));
    Expression::of(&Request { transaction, ..Request::alone("k".into(), action) }, &Schema::default())
}

pub(super) fn value<'a>(expression: &'a Expression, name: &str) -> &'a Value {
    &expression.values.iter().find(|(own, _)| *own == name).unwrap().1
}

pub(super) fn assert_closed(expression: &Expression) {
    let text = format!("{} {}", expression.update, expression.condition);
    let words: Vec<&str> = text.split(|c: char| !(c.is_alphanumeric() || c == '#' || c == ':')).collect();
    for name in expression.names.iter().map(|(n, _)| n).chain(expression.values.iter().map(|(n, _)| n)) {
        assert!(words.contains(name), "{name} is given but unused in {text}");
    }
    for word in words.iter().filter(|w| w.starts_with('#') || w.starts_with(':')) {
        let given = expression.names.iter().any(|(n, _)| n == word) || expression.values.iter().any(|(n, _)| n == word);
        assert!(given, "{word} is used but not given in {text}");
    }
}
