//! PLACE OF THE FENCE CONDITION: a `ConditionCheck` in DynamoDB's JSON, as hosts tell it.

use lambda_lock::Lock;
use serde_json::{Value, json};

pub(crate) fn condition_check(_lock: &Lock) -> Value {
    json!({})
}
