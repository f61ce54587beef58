//! The orders table: the writes of reserve and record, and their conditions.
//!
//! | attribute | type | written by |
//! |---|---|---|
//! | `orderId` | S, partition key | reserve |
//! | `amount` | N | reserve |
//! | `currency` | S | reserve |
//! | `chargeId` | S | record |
//! | `fencingToken` | N | record: the token of the attempt that recorded the charge |

use crate::order::{Order, Receipt};
use aws_sdk_dynamodb::error::SdkError;
use aws_sdk_dynamodb::operation::transact_write_items::TransactWriteItemsError;
use aws_sdk_dynamodb::types::builders::UpdateBuilder;
use aws_sdk_dynamodb::types::{AttributeValue, ReturnValuesOnConditionCheckFailure, TransactWriteItem, Update};
use lambda_lock::FailedWrite;
use lambda_lock_functions::{ConfigError, Environment, Failure, required};
use std::collections::HashMap;
use std::error::Error;

/// The row has the same order, and its charge is not recorded yet.
const SAME_ORDER: &str = "#amount = :amount AND #currency = :currency AND attribute_not_exists(#chargeId)";

/// The orders table.
#[derive(Clone, Debug)]
pub struct Orders {
    table: String,
}

/// Why reserve was refused.
#[derive(Debug)]
pub(crate) enum Refused {
    /// The id belongs to an order with another amount or currency.
    AnotherOrder,
    /// The order was charged so long ago that its stored result is deleted.
    Charged(Receipt),
    /// Another reason, which the error reports.
    Otherwise,
}

impl Orders {
    pub(crate) fn read(environment: &Environment<'_>) -> Result<Self, ConfigError> {
        Ok(Self { table: required(environment, "ORDERS_TABLE", "the name of the orders table")? })
    }

    /// The table's name.
    pub fn table(&self) -> &str {
        &self.table
    }

    /// The write that stores the order. It is refused if the id belongs to another order, or if the
    /// order is charged. It may be repeated.
    pub(crate) fn reserve(&self, order: &Order) -> Result<TransactWriteItem, Failure> {
        let update = self
            .update(order)
            .update_expression("SET #amount = :amount, #currency = :currency")
            .condition_expression(format!("attribute_not_exists(#orderId) OR ({SAME_ORDER})"))
            .expression_attribute_names("#orderId", "orderId")
            .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld);
        item(update)
    }

    /// The write that stores the charge. It is applied once.
    pub(crate) fn record(&self, order: &Order, receipt: &Receipt) -> Result<TransactWriteItem, Failure> {
        let update = self
            .update(order)
            .update_expression("SET #chargeId = :chargeId, #fencingToken = :fencingToken")
            .condition_expression(SAME_ORDER)
            .expression_attribute_names("#fencingToken", "fencingToken")
            .expression_attribute_values(":chargeId", text(&receipt.charge_id))
            .expression_attribute_values(":fencingToken", number(receipt.fencing_token));
        item(update)
    }

    fn update(&self, order: &Order) -> UpdateBuilder {
        Update::builder()
            .table_name(&self.table)
            .key("orderId", text(&order.order_id))
            .expression_attribute_names("#amount", "amount")
            .expression_attribute_names("#currency", "currency")
            .expression_attribute_names("#chargeId", "chargeId")
            .expression_attribute_values(":amount", number(order.amount))
            .expression_attribute_values(":currency", text(&order.currency))
    }
}

fn item(update: UpdateBuilder) -> Result<TransactWriteItem, Failure> {
    let update = update.build().map_err(|error| Failure::work_failed(&error))?;
    Ok(TransactWriteItem::builder().update(update).build())
}

fn text(text: &str) -> AttributeValue {
    AttributeValue::S(text.to_owned())
}

fn number(number: u64) -> AttributeValue {
    AttributeValue::N(number.to_string())
}

/// Returns why a reserve was refused. The row in the error shows it.
pub(crate) fn refused(error: &lambda_lock::Error, order: &Order) -> Refused {
    let is_condition = |write: &FailedWrite| write.code == "ConditionalCheckFailed";
    if !(error.is_cancelled() && error.failed_writes().iter().all(is_condition)) {
        return Refused::Otherwise;
    }
    // The error has no row when an earlier response was lost. Then the reason is not known.
    let Some(row) = row_of(error) else { return Refused::Otherwise };
    let same = row.get("amount") == Some(&number(order.amount)) && row.get("currency") == Some(&text(&order.currency));
    match receipt(&row, order) {
        _ if !same => Refused::AnotherOrder,
        Some(receipt) => Refused::Charged(receipt),
        None => Refused::Otherwise,
    }
}

type Row = HashMap<String, AttributeValue>;

fn row_of(error: &lambda_lock::Error) -> Option<Row> {
    let sdk = error.source()?.downcast_ref::<SdkError<TransactWriteItemsError>>()?;
    let TransactWriteItemsError::TransactionCanceledException(cancelled) = sdk.as_service_error()? else { return None };
    cancelled.cancellation_reasons().iter().find_map(|reason| reason.item().cloned())
}

fn receipt(row: &Row, order: &Order) -> Option<Receipt> {
    Some(Receipt {
        order_id: order.order_id.clone(),
        charge_id: row.get("chargeId")?.as_s().ok()?.clone(),
        fencing_token: row.get("fencingToken")?.as_n().ok()?.parse().ok()?,
    })
}
