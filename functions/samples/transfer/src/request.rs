//! The request.

use lambda_lock_functions::{Failure, Fields};
use serde_json::value::RawValue;

/// With this limit, `account/` and the id fit into the partition key and into the sort key of the lock table.
const MAX_ID_BYTES: usize = 1000;

/// `{"transferId":…,"from":…,"to":…,"amount":…}`
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Transfer {
    /// The transfer's id. All requests with one id are one transfer.
    pub(crate) id: String,
    /// The account that pays.
    pub(crate) from: String,
    /// The account that is paid.
    pub(crate) to: String,
    /// The amount in minor units, such as cents.
    pub(crate) amount: u64,
}

impl Transfer {
    pub(crate) fn read(event: &RawValue) -> Result<Self, Failure> {
        let mut fields = Fields::of_event(event)?;
        let id = fields.name("transferId", MAX_ID_BYTES)?;
        let from = fields.name("from", MAX_ID_BYTES)?;
        let to = fields.name("to", MAX_ID_BYTES)?;
        if from == to {
            return Err(fields.malformed("to", "give another account than in from"));
        }
        let amount = match fields.whole_number("amount")? {
            0 => {
                return Err(fields.malformed("amount", "give the amount in minor units, such as cents, greater than 0"));
            }
            amount => amount,
        };
        fields.nothing_else()?;
        Ok(Self { id, from, to, amount })
    }
}
