//! The caller's own writes in a transaction: as DynamoDB gets them, and as they are evaluated.

use aws_sdk_dynamodb::types::{
    AttributeValue, ConditionCheck, Delete, Put, ReturnValuesOnConditionCheckFailure, TransactWriteItem, Update,
};
use fastrand::Rng;
use lambda_lock_protocol::{Expression, Item, Value};
use lambda_lock_simulation::expression;
use std::collections::HashMap;

/// The table of the caller's own, and its key.
pub(crate) const TABLE: &str = "work";
pub(crate) const ID: &str = "id";

/// One of the caller's writes.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Write {
    pub(crate) id: String,
    what: What,
    /// Its update and its condition.
    expression: Expression,
    /// Whether it requests the item that refuses it.
    pub(crate) all_old: bool,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum What {
    Put { count: u64 },
    Update,
    Delete,
    Check,
}

/// No write, one, or two.
pub(crate) fn any(ids: &[String; 2], rng: &mut Rng) -> Vec<Write> {
    let mut writes = Vec::new();
    for id in ids {
        if rng.u8(..3) > 0 {
            writes.push(write(id, rng));
        }
    }
    writes
}

fn write(id: &str, rng: &mut Rng) -> Write {
    let what = match rng.u8(..8) {
        0..2 => What::Put { count: rng.u64(..4) },
        2..6 => What::Update,
        6 => What::Delete,
        _ => What::Check,
    };
    let mut expression = Expression::default();
    if what == What::Update {
        expression.update = match rng.u8(..4) {
            0 => "SET lastToken = :token REMOVE #count",
            _ => "SET #count = if_not_exists(#count, :zero) + :one, lastToken = :token",
        }
        .to_owned();
    }
    let conditions = [
        "attribute_not_exists(id)",
        "attribute_exists(id)",
        // A resource that refuses smaller tokens.
        "attribute_not_exists(lastToken) OR lastToken <= :token",
        "#count >= :least AND NOT #count IN (:one, :zero)",
        "#count BETWEEN :zero AND :least",
        "",
    ];
    let choices = if what == What::Check { 5 } else { 6 };
    conditions[rng.usize(..choices)].clone_into(&mut expression.condition);
    let said = format!("{} {}", expression.update, expression.condition);
    let values = [(":token", rng.u64(1000..1006)), (":zero", 0), (":one", 1), (":least", rng.u64(..4))];
    for (name, value) in values.into_iter().filter(|(name, _)| said.contains(name)) {
        expression.values.push((name, Value::N(value.to_string())));
    }
    if said.contains("#count") {
        expression.names.push(("#count", "count".to_owned()));
    }
    Write { id: id.to_owned(), what, expression, all_old: rng.bool() }
}

impl Write {
    /// Whether its condition holds.
    pub(crate) fn holds(&self, row: Option<&Item>) -> bool {
        expression::holds(&self.expression, row)
    }

    /// Applies it if its condition holds.
    pub(crate) fn apply(&self, row: &mut Option<Item>) {
        match self.what {
            What::Put { count } => {
                let mut put = self.made();
                put.set("count", Value::N(count.to_string()));
                *row = Some(put);
            }
            What::Update => drop(expression::update(&self.expression, row, || self.made())),
            What::Delete => *row = None,
            What::Check => {}
        }
    }

    fn made(&self) -> Item {
        Item::from_iter([(ID.to_owned(), Value::S(self.id.clone()))])
    }

    /// The write for the SDK.
    pub(crate) fn item(&self) -> TransactWriteItem {
        use ReturnValuesOnConditionCheckFailure::{AllOld, None as Nothing};
        let key = AttributeValue::S(self.id.clone());
        let condition = Some(self.expression.condition.clone()).filter(|condition| !condition.is_empty());
        let names = Some(self.expression.names.iter().map(|(name, own)| ((*name).to_owned(), own.clone())).collect());
        let names = names.filter(|names: &HashMap<_, _>| !names.is_empty());
        let values = self.expression.values.iter().map(|(name, value)| ((*name).to_owned(), number(value))).collect();
        let values = Some(values).filter(|values: &HashMap<_, _>| !values.is_empty());
        let all_old = if self.all_old { AllOld } else { Nothing };
        let item = TransactWriteItem::builder();
        macro_rules! complete {
            ($builder:expr) => {
                $builder
                    .table_name(TABLE)
                    .set_expression_attribute_names(names)
                    .set_expression_attribute_values(values)
                    .return_values_on_condition_check_failure(all_old)
                    .build()
                    .unwrap()
            };
        }
        match self.what {
            What::Put { count } => {
                let put = Put::builder().item(ID, key).item("count", AttributeValue::N(count.to_string()));
                item.put(complete!(put.set_condition_expression(condition)))
            }
            What::Update => {
                let update = Update::builder().key(ID, key).update_expression(&self.expression.update);
                item.update(complete!(update.set_condition_expression(condition)))
            }
            What::Delete => item.delete(complete!(Delete::builder().key(ID, key).set_condition_expression(condition))),
            What::Check => {
                let check = ConditionCheck::builder().key(ID, key).set_condition_expression(condition);
                item.condition_check(complete!(check))
            }
        }
        .build()
    }
}

fn number(value: &Value) -> AttributeValue {
    match value {
        Value::N(number) => AttributeValue::N(number.clone()),
        other => panic!("{other:?} is not a number"),
    }
}
