//! Puts the caller's writes and the lock's own into one transaction. Before anything is sent, it checks the writes
//! for mistakes that DynamoDB would refuse.

use super::Engine;
use super::attributes::{Attributes, key_attributes, placeholder_names, placeholder_values};
use super::error::BoxError;
use aws_sdk_dynamodb::types::{
    AttributeValue, ConditionCheck, ReturnValuesOnConditionCheckFailure, TransactWriteItem, Update,
};
use lambda_lock_protocol::{Expression, Invalid, LockKey, Named, Request, Schema, TransactionId};

/// How many writes DynamoDB accepts in one transaction, the lock's own included.
const MAX_ITEMS: usize = 100;
/// How many bytes DynamoDB accepts in one transaction.
const MAX_BYTES: usize = 4 * 1024 * 1024;

/// A transaction with these writes of the caller's.
#[derive(Debug)]
pub(crate) struct Transaction<'a> {
    writes: &'a [TransactWriteItem],
    /// The locks' own items as they were first built. When a transaction is sent again, every byte must be the same. A
    /// new map would have another order.
    built: Option<(TransactionId, Vec<TransactWriteItem>)>,
}

impl<'a> Transaction<'a> {
    pub(crate) fn of(writes: &'a [TransactWriteItem]) -> Self {
        Self { writes, built: None }
    }

    /// All items of the transaction of these requests. The locks' own items are the last ones, so that DynamoDB numbers
    /// the caller's writes as the caller does.
    pub(crate) fn items(
        &mut self,
        table: &str,
        schema: &Schema,
        requests: &[Request],
    ) -> Result<Vec<TransactWriteItem>, BoxError> {
        let Some(id) = requests.first().and_then(|request| request.transaction.as_ref()) else { return Ok(Vec::new()) };
        let own = match self.built.take().filter(|(earlier, _)| earlier == id) {
            Some((_, own)) => own,
            None => requests.iter().map(|request| lock_item(table, schema, request)).collect::<Result<_, _>>()?,
        };
        let items = self.writes.iter().chain(&own).cloned().collect();
        self.built = Some((id.clone(), own));
        Ok(items)
    }
}

/// The lock's part of a transaction.
pub(crate) fn lock_item(table: &str, schema: &Schema, request: &Request) -> Result<TransactWriteItem, BoxError> {
    let Expression { update, condition, names, values, .. } = Expression::of(request, schema);
    let key = Some(key_attributes(schema, &request.key));
    let (names, values) = (placeholder_names(names), Some(placeholder_values(values)));
    let all_old = ReturnValuesOnConditionCheckFailure::AllOld;
    let item = TransactWriteItem::builder();
    Ok(if update.is_empty() {
        let check = ConditionCheck::builder().table_name(table).set_key(key).condition_expression(condition);
        let check = check.set_expression_attribute_names(names).set_expression_attribute_values(values);
        item.condition_check(check.return_values_on_condition_check_failure(all_old).build()?).build()
    } else {
        let write = Update::builder().table_name(table).set_key(key).condition_expression(condition);
        let write = write.set_expression_attribute_names(names).set_expression_attribute_values(values);
        let write = write.update_expression(update).return_values_on_condition_check_failure(all_old);
        item.update(write.build()?).build()
    })
}

/// Checks the limits that AWS documents for `TransactWriteItems`. Also checks that no write is on the row of one of
/// the locks, because DynamoDB accepts only one write per row in a transaction.
pub(crate) fn check(engine: &Engine, keys: &[&LockKey], writes: &[TransactWriteItem]) -> Result<(), Invalid> {
    if writes.len() + keys.len() > MAX_ITEMS {
        let own =
            if keys.len() > 1 { format!("those of the {} locks", keys.len()) } else { "the lock's own".to_owned() };
        return Err(Invalid::new(format!(
            "{} writes and {own} do not fit into one transaction: DynamoDB takes {MAX_ITEMS} at most, so give up to {}, \
             or split them over several commits",
            writes.len(),
            MAX_ITEMS - keys.len()
        )));
    }
    let mut bytes = 0;
    for (index, write) in writes.iter().enumerate() {
        let Some(Parts { table, key: row, size }) = parts(write) else {
            return Err(Invalid::new(format!(
                "the write {index} of the transaction asks for nothing: give it a put, an update, a delete or a \
                 condition check"
            )));
        };
        if is_lock_table(&engine.table, table)
            && let Some(key) = keys.iter().find(|key| is_row_of(engine, key, row))
        {
            return Err(Invalid::new(format!(
                "the write {index} of the transaction is on the row of the lock {} itself, which the commit \
                 writes: leave it out; use the commit's own .data(…) to store something there",
                Named(key)
            )));
        }
        bytes += size;
    }
    if bytes > MAX_BYTES {
        return Err(Invalid::new(format!(
            "the writes of the transaction have {bytes} bytes: DynamoDB takes {MAX_BYTES} at most, so split them \
             over several commits"
        )));
    }
    Ok(())
}

/// The parts of a write that are checked: its table, the attributes that contain its key, and its size.
struct Parts<'a> {
    table: &'a str,
    key: &'a Attributes,
    size: usize,
}

fn parts<'a>(write: &'a TransactWriteItem) -> Option<Parts<'a>> {
    let of = |table: &'a str, key: &'a Attributes, values: Option<&Attributes>| Parts {
        table,
        key,
        size: bytes_of(key) + values.map_or(0, bytes_of),
    };
    if let Some(put) = write.put() {
        return Some(of(put.table_name(), put.item(), None));
    }
    if let Some(update) = write.update() {
        return Some(of(update.table_name(), update.key(), update.expression_attribute_values()));
    }
    if let Some(delete) = write.delete() {
        return Some(of(delete.table_name(), delete.key(), None));
    }
    let check = write.condition_check()?;
    Some(of(check.table_name(), check.key(), None))
}

/// Whether both name the same table. A table is named by its name or by its ARN, which ends with `table/{name}`.
fn is_lock_table(ours: &str, named: &str) -> bool {
    fn name(table: &str) -> &str {
        table.rsplit_once("table/").map_or(table, |(_, name)| name)
    }
    name(ours) == name(named)
}

fn is_row_of(engine: &Engine, key: &LockKey, row: &Attributes) -> bool {
    let schema = &engine.settings.schema;
    let is = |name: &str, wanted: &str| matches!(row.get(name), Some(AttributeValue::S(text)) if text == wanted);
    let sort_key = match (&schema.sort_key_attribute, key.sort_key()) {
        (Some(name), Some(wanted)) => is(name, wanted),
        _ => true,
    };
    is(&schema.key_attribute, key.key()) && sort_key
}

/// The size of attributes as DynamoDB counts it: names and contents, and a little for structure.
fn bytes_of(attributes: &Attributes) -> usize {
    attributes.iter().map(|(name, value)| name.len() + size_of(value)).sum()
}

fn size_of(value: &AttributeValue) -> usize {
    match value {
        AttributeValue::S(text) => text.len(),
        AttributeValue::N(number) => number.len() / 2 + 1,
        AttributeValue::B(bytes) => bytes.as_ref().len(),
        AttributeValue::Ss(texts) => texts.iter().map(String::len).sum(),
        AttributeValue::Ns(numbers) => numbers.iter().map(|number| number.len() / 2 + 1).sum(),
        AttributeValue::Bs(many) => many.iter().map(|bytes| bytes.as_ref().len()).sum(),
        AttributeValue::L(values) => 3 + values.iter().map(|value| 1 + size_of(value)).sum::<usize>(),
        AttributeValue::M(values) => 3 + values.len() + bytes_of(values),
        _ => 1,
    }
}
