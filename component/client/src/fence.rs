//! PLACE OF THE FENCE CONDITION: waits for `Action::Fence` and `Lock::condition_check` of the crate.
//!
//! The condition that no other grant has the lock, for a transaction of the host's own.

use crate::bindings::exports::lambda_lock::lock::types;
use lambda_lock::{LockClient, LockToken};

pub(crate) fn condition_check(client: &LockClient, _token: &LockToken) -> types::ConditionCheck {
    types::ConditionCheck {
        table_name: client.table().to_owned(),
        key: Vec::new(),
        condition_expression: String::new(),
        expression_attribute_names: Vec::new(),
        expression_attribute_values: Vec::new(),
    }
}
