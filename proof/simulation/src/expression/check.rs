//! The requests that DynamoDB refuses before it reads any row, with `ValidationException`.
//!
//! If the simulation accepted a condition that DynamoDB refuses, its result would mean nothing for the real code.

use super::number::Decimal;
use super::parse::{Condition, Operand, Set, Update};
use super::{Order, changes, condition, named};
use lambda_lock_protocol::{Expression, Value};
use std::cmp::Ordering;

/// The maximum length of an expression, in bytes.
const LONGEST: usize = 4096;

/// The reason why DynamoDB refuses this request, whatever is on the row. `keys` are the attributes of the table's key.
pub fn complaint(expression: &Expression, keys: &[&str]) -> Option<String> {
    let (condition, changes) = (condition(expression), changes(expression));
    if expression.condition.len() > LONGEST || expression.update.len() > LONGEST {
        return Some("Expression size has exceeded the maximum allowed size".to_owned());
    }
    if condition.redundant_parentheses {
        return Some("Invalid ConditionExpression: The expression has redundant parentheses".to_owned());
    }
    let used = || condition.placeholders.iter().chain(&changes.placeholders);
    let names = || expression.names.iter().map(|(name, _)| *name);
    let values = || expression.values.iter().map(|(name, _)| *name);
    if let Some(unknown) = used().find(|word| names().chain(values()).all(|given| given != word.as_str())) {
        return Some(format!("an expression attribute used in expression is not defined: {unknown}"));
    }
    if let Some(unused) = names().find(|name| used().all(|word| word != name)) {
        return Some(format!("Value provided in ExpressionAttributeNames unused in expressions: keys: {{{unused}}}"));
    }
    if let Some(unused) = values().find(|name| used().all(|word| word != name)) {
        return Some(format!("Value provided in ExpressionAttributeValues unused in expressions: keys: {{{unused}}}"));
    }
    if expression.values.is_empty() {
        return Some("ExpressionAttributeValues must not be empty".to_owned());
    }
    let bad_number = expression.values.iter().find(|(_, value)| match value {
        Value::N(number) => is_no_number(number),
        Value::Ns(numbers) => numbers.is_empty() || numbers.iter().any(|number| is_no_number(number)),
        Value::Other(_) => true,
        Value::S(_) | Value::B(_) => false,
    });
    if let Some((name, value)) = bad_number {
        return Some(format!("{name} is {value:?}, which cannot be stored"));
    }
    operands(&condition.says, expression).or_else(|| paths(&changes.says, expression, keys))
}

fn is_no_number(text: &str) -> bool {
    text.parse::<u64>().is_err() && Decimal::parse(text).is_none()
}

fn given<'a>(operand: &Operand, expression: &'a Expression) -> Option<&'a Value> {
    let Operand::Value(name) = operand else { return None };
    expression.values.iter().find(|(placeholder, _)| placeholder == name).map(|(_, value)| value)
}

/// Operands of a wrong type, and operands that do not fit together.
fn operands(condition: &Condition, expression: &Expression) -> Option<String> {
    match condition {
        Condition::Or(parts) | Condition::And(parts) => parts.iter().find_map(|part| operands(part, expression)),
        Condition::Not(part) => operands(part, expression),
        Condition::Compare(left, order, right) => {
            let ordered = !matches!(order, Order::Equal | Order::Unequal);
            let of_no_order = |operand| matches!(given(operand, expression), Some(Value::Ns(_) | Value::Other(_)));
            if ordered && (of_no_order(left) || of_no_order(right)) {
                return Some(format!("Incorrect operand type for operator or function; operator: {order:?}"));
            }
            (left == right).then(|| "The first operand must be distinct from the remaining operands".to_owned())
        }
        Condition::Between(value, low, high) => {
            if value == low || value == high {
                return Some("The first operand must be distinct from the remaining operands".to_owned());
            }
            let (low, high) = (given(low, expression)?, given(high, expression)?);
            let order = match (low, high) {
                (Value::S(low), Value::S(high)) => low.as_bytes().cmp(high.as_bytes()),
                (Value::N(low), Value::N(high)) => Decimal::parse(low)?.cmp(&Decimal::parse(high)?),
                (Value::B(low), Value::B(high)) => low.cmp(high),
                _ => return Some("The BETWEEN operator requires same data type for lower and upper bounds".to_owned()),
            };
            (order == Ordering::Greater).then(|| {
                "The BETWEEN operator requires upper bound to be greater than or equal to lower bound".to_owned()
            })
        }
        Condition::In(value, list) => (list.len() > 100 || list.contains(value))
            .then(|| "The first operand must be distinct from the remaining operands".to_owned()),
        Condition::Exists(_) => None,
        Condition::BeginsWith(_, prefix) => match given(prefix, expression) {
            None | Some(Value::S(_) | Value::B(_)) => None,
            Some(other) => Some(format!(
                "Incorrect operand type for operator or function; operator or function: begins_with, operand type: {}",
                other.type_name()
            )),
        },
    }
}

/// An attribute that is written twice or belongs to the key, and sums of values that are not numbers.
fn paths(update: &Update, expression: &Expression, keys: &[&str]) -> Option<String> {
    let written: Vec<&str> = update.written().map(|name| named(expression, name)).collect();
    for (position, name) in written.iter().enumerate() {
        if written[..position].contains(name) {
            return Some(format!("Two document paths overlap with each other; {name}"));
        }
        if keys.contains(name) {
            return Some(format!("Cannot update attribute {name}. This attribute is part of the key"));
        }
    }
    let members = |(clause, (_, operand)): (&str, &(String, Operand))| match given(operand, expression) {
        Some(Value::Ns(_)) => None,
        other => {
            Some(format!("Incorrect operand type for operator or function; operator: {clause}, operand: {other:?}"))
        }
    };
    let mut clauses =
        update.adds.iter().map(|add| ("ADD", add)).chain(update.deletes.iter().map(|delete| ("DELETE", delete)));
    update.sets.iter().find_map(|(_, set)| sums(set, expression, false)).or_else(|| clauses.find_map(members))
}

fn sums(set: &Set, expression: &Expression, added: bool) -> Option<String> {
    match set {
        Set::Operand(operand) if added => match given(operand, expression) {
            None | Some(Value::N(_)) => None,
            Some(other) => Some(format!(
                "Incorrect operand type for operator or function; operator or function: +, operand type: {}",
                other.type_name()
            )),
        },
        Set::Operand(_) | Set::IfNotExists(..) => None,
        Set::Sum(left, right) => sums(left, expression, true).or_else(|| sums(right, expression, true)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The complaint about a request with these values. Names and placeholders are the same.
    fn said(condition: &str, update: &str, values: &[(&'static str, Value)]) -> Option<String> {
        let names = [("#pk", "key".to_owned())].into_iter().filter(|(name, _)| condition.contains(name)).collect();
        let (condition, update) = (condition.to_owned(), update.to_owned());
        let expression = Expression { condition, update, names, values: values.to_vec(), ..Expression::default() };
        complaint(&expression, &["key"])
    }

    fn s(text: &str) -> Value {
        Value::S(text.to_owned())
    }

    fn n(number: &str) -> Value {
        Value::N(number.to_owned())
    }

    fn ns(numbers: &[&str]) -> Value {
        Value::Ns(numbers.iter().map(|number| (*number).to_owned()).collect())
    }

    #[test]
    fn a_request_that_dynamodb_accepts_has_no_complaint() {
        let condition =
            "attribute_not_exists(#pk) OR begins_with(a, :s) AND (b <= :n OR b BETWEEN :n AND :n OR size(c) < :n)";
        let update = "SET c = if_not_exists(c, :n) + :n REMOVE d ADD e :set DELETE f :set";
        let values = [(":s", s("x")), (":n", n("7")), (":set", ns(&["1", "2"]))];
        assert_eq!(said(condition, update, &values), None);
    }

    /// Condition, update, values, and the expected complaint.
    type Refused<'a> = (&'a str, &'a str, &'a [(&'static str, Value)], &'a str);

    #[test]
    fn requests_that_dynamodb_refuses_without_reading_a_row_have_a_complaint() {
        let one = [(":n", n("1"))];
        let two = [(":n", n("1")), (":m", s("x"))];
        let no_number = [(":n", n("7e")), (":m", s("x"))];
        let long = [(":n", Value::N("1".repeat(39)))];
        let expected: &[Refused<'_>] = &[
            ("a = :n", "", &two, "unused"),
            ("a = :n AND b = :m", "", &one, "not defined"),
            ("a = #q AND b = :n", "", &one, "not defined"),
            ("((a = :n))", "", &one, "redundant"),
            ("b = :n OR ((a = :n OR c = :n))", "", &one, "redundant"),
            ("attribute_exists(a)", "", &[], "must not be empty"),
            ("a BETWEEN :n AND :m", "", &two, "same data type"),
            ("a BETWEEN :n AND :m", "", &[(":n", n("10")), (":m", n("9"))], "upper bound"),
            ("begins_with(a, :n)", "", &one, "begins_with"),
            ("a = a AND b = :n", "", &one, "distinct"),
            ("a = :n", "SET b = b + :m", &two, "operand type: S"),
            ("a = :n", "SET b = :n REMOVE b", &one, "overlap"),
            ("a = :n", "REMOVE b ADD b :s", &[(":n", n("1")), (":s", ns(&["1"]))], "overlap"),
            ("a = :n", "ADD b :n", &one, "operator: ADD"),
            ("a = :n", "DELETE b :n", &one, "operator: DELETE"),
            ("a = :n", "ADD b :s", &[(":n", n("1")), (":s", ns(&[]))], "cannot be stored"),
            ("size(a) < :s", "", &[(":s", ns(&["1"]))], "Less"),
            ("attribute_exists(#pk)", "SET key = :n", &one, "part of the key"),
            ("a = :n", "", &long, "cannot be stored"),
            ("a = :n AND b = :m", "", &no_number, "cannot be stored"),
        ];
        for (condition, update, values, what) in expected {
            let said = said(condition, update, values);
            assert!(said.as_ref().is_some_and(|said| said.contains(what)), "{condition} {update}: {said:?}");
        }
    }
}
