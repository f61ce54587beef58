//! Translates the SDK's JSON to calls of the embedded DynamoDB, and their results back.

use dynoxide::{Database, DynoxideError};

/// Carries out an operation with the name in `X-Amz-Target`. Returns status and body.
pub(crate) fn apply(database: &Database, operation: &str, body: &str) -> (u16, String) {
    macro_rules! call {
        ($($name:literal => $method:ident),* $(,)?) => {
            match operation {
                $($name => serde_json::from_str(body)
                    .map_err(|error| DynoxideError::SerializationException(error.to_string()))
                    .and_then(|request| database.$method(request))
                    .map(|answer| serde_json::to_string(&answer).unwrap()),)*
                _ => Err(DynoxideError::ValidationException(format!("there is no operation {operation}"))),
            }
        };
    }
    let outcome = call!(
        "CreateTable" => create_table,
        "DescribeTable" => describe_table,
        "UpdateTimeToLive" => update_time_to_live,
        "DescribeTimeToLive" => describe_time_to_live,
        "BatchGetItem" => batch_get_item,
        "GetItem" => get_item,
        "PutItem" => put_item,
        "UpdateItem" => update_item,
        "DeleteItem" => delete_item,
        "TransactWriteItems" => transact_write_items,
        "Scan" => scan,
    );
    match outcome {
        Ok(body) => (200, body),
        Err(error) => (error.status_code(), error.to_json()),
    }
}
