//! The requests that only some callers make: a deletion, and a transaction with the caller's own writes.
//!
//! They are handed in where they are asked for, and nothing else knows them. So a program has the SDK's code
//! for them only if it asks for them: for `lock-task`, which does not, they were 0.13 MB of 4.1
//! (`bench/cold-start/README.md`).

use crate::dynamodb::{
    DynamoDb, Outcome, answer_to, failed, item, key_of, names_map, send, transaction_item, values_map,
};
use crate::error::BoxError;
use crate::protocol::{Answer, Expression, FailedWrite, Item, Rejection, Request, TransactionId};
use aws_sdk_dynamodb::operation::delete_item::DeleteItemError;
use aws_sdk_dynamodb::operation::transact_write_items::TransactWriteItemsError;
use aws_sdk_dynamodb::types::{CancellationReason, ReturnValuesOnConditionCheckFailure, TransactWriteItem};
use std::future::Future;
use std::pin::Pin;
use std::sync::{Mutex, PoisonError};

/// What an extra request is waited for with.
pub(crate) type Sending<'a> = Pin<Box<dyn Future<Output = Outcome> + Send + 'a>>;

/// Sends a kind of request beside reads and updates.
pub(crate) trait Extra: Send + Sync {
    fn send<'a>(&'a self, dynamodb: &'a DynamoDb, request: &'a Request) -> Sending<'a>;
}

/// For whoever only reads and updates.
pub(crate) struct Nothing;

impl Extra for Nothing {
    fn send<'a>(&'a self, _: &'a DynamoDb, _: &'a Request) -> Sending<'a> {
        let invalid = Rejection::Invalid("this request is not sent from here".to_owned());
        Box::pin(std::future::ready((Answer::Rejected(invalid), None)))
    }
}

/// A row is deleted.
pub(crate) struct Deletion;

impl Extra for Deletion {
    fn send<'a>(&'a self, dynamodb: &'a DynamoDb, request: &'a Request) -> Sending<'a> {
        Box::pin(delete(dynamodb, request))
    }
}

/// The lock's write, and these of the caller's, in one transaction.
pub(crate) struct Transaction<'w> {
    writes: &'w [TransactWriteItem],
    /// The lock's write as it was built first: a transaction that is sent again must be the same to the last byte,
    /// and a map that is made anew has another order.
    built: Mutex<Option<(TransactionId, TransactWriteItem)>>,
}

impl<'w> Transaction<'w> {
    pub(crate) fn of(writes: &'w [TransactWriteItem]) -> Self {
        Self { writes, built: Mutex::new(None) }
    }

    /// All of its items. The lock's is the last one, so that DynamoDB counts the caller's writes as the caller does.
    fn items(
        &self,
        dynamodb: &DynamoDb,
        request: &Request,
        id: &TransactionId,
    ) -> Result<Vec<TransactWriteItem>, BoxError> {
        let mut built = self.built.lock().unwrap_or_else(PoisonError::into_inner);
        let part = match built.as_ref().filter(|(earlier, _)| earlier == id) {
            Some((_, part)) => part.clone(),
            None => {
                let part = transaction_item(&dynamodb.table, &dynamodb.schema, request)?;
                *built = Some((id.clone(), part.clone()));
                part
            }
        };
        Ok(self.writes.iter().cloned().chain([part]).collect())
    }
}

impl Extra for Transaction<'_> {
    fn send<'a>(&'a self, dynamodb: &'a DynamoDb, request: &'a Request) -> Sending<'a> {
        Box::pin(transact(dynamodb, request, self))
    }
}

async fn delete(dynamodb: &DynamoDb, request: &Request) -> Outcome {
    let Expression { condition, names, values, .. } = Expression::of(request, &dynamodb.schema);
    let call = dynamodb
        .client
        .delete_item()
        .table_name(&dynamodb.table)
        .set_key(Some(key_of(&dynamodb.schema, &request.key)))
        .condition_expression(condition)
        .set_expression_attribute_names(names_map(names))
        .set_expression_attribute_values(Some(values_map(values)))
        .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld);
    match send!(dynamodb, call) {
        Ok(_) => (Answer::Applied(Item::default()), None),
        Err(error) => failed(error, |error| match error {
            DeleteItemError::ConditionalCheckFailedException(refused) => Some(refused.item.clone()),
            _ => None,
        }),
    }
}

async fn transact(dynamodb: &DynamoDb, request: &Request, transaction: &Transaction<'_>) -> Outcome {
    let Some(id) = &request.transaction else { return Nothing.send(dynamodb, request).await };
    let items = match transaction.items(dynamodb, request, id) {
        Ok(items) => items,
        Err(error) => return (Answer::Rejected(Rejection::Invalid(error.to_string())), Some(error)),
    };
    let call = dynamodb.client.transact_write_items().set_transact_items(Some(items));
    let call = call.client_request_token(id.as_str());
    match send!(dynamodb, call) {
        Ok(_) => (Answer::Applied(Item::default()), None),
        Err(error) => match error.as_service_error() {
            Some(TransactWriteItemsError::TransactionCanceledException(cancelled)) => {
                (meaning_of_reasons(cancelled.cancellation_reasons(), transaction.writes.len()), Some(Box::new(error)))
            }
            _ => (answer_to(&error), Some(Box::new(error))),
        },
    }
}

/// What the reasons of a cancelled transaction mean, whose write at `ours` is the lock's. The lock's
/// own condition comes first: whoever lost the lock must not be told of anything else.
pub(crate) fn meaning_of_reasons(reasons: &[CancellationReason], ours: usize) -> Answer {
    fn code(reason: &CancellationReason) -> &str {
        reason.code().unwrap_or("None")
    }
    // Without a reason for each write it is not known what was looked at.
    let Some(own) = reasons.get(ours) else { return Answer::Unavailable };
    match code(own) {
        "ConditionalCheckFailed" => return Answer::Refused(own.item.clone().map(item)),
        "None" => {}
        // Nobody has looked at the lock's row, so nothing is known of it: whatever became of the other writes,
        // it takes another try to find out whether the lock is still ours.
        "TransactionConflict" | "ThrottlingError" | "ProvisionedThroughputExceeded" => return Answer::Unavailable,
        _ => {
            let text = own.message().unwrap_or(code(own)).to_owned();
            return Answer::Rejected(Rejection::Invalid(text));
        }
    }
    let lasting = |reason: &CancellationReason| {
        !matches!(code(reason), "None" | "TransactionConflict" | "ThrottlingError" | "ProvisionedThroughputExceeded")
    };
    let failed: Vec<FailedWrite> = reasons
        .iter()
        .take(ours)
        .enumerate()
        .filter(|(_, reason)| lasting(reason))
        .map(|(index, reason)| FailedWrite {
            index,
            code: code(reason).to_owned(),
            message: reason.message().map(str::to_owned),
        })
        .collect();
    // Another transaction has one of the items, or they are throttled.
    if failed.is_empty() { Answer::Unavailable } else { Answer::Cancelled(failed) }
}
