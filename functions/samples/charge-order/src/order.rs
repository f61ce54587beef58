//! The request and the response.

use crate::simulate::Simulate;
use lambda_lock::LockKey;
use lambda_lock_functions::{Failure, Fields};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// The prefix of the lock key of an order.
pub(crate) const PREFIX: &str = "order/";
/// With this limit, prefix and id fit into the partition key and into the sort key.
const MAX_ID_BYTES: usize = LockKey::MAX_SORT_KEY_BYTES - PREFIX.len();

/// An order. It is the payload of the idempotent work: all calls for one `orderId` must have the
/// same payload.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Order {
    /// The order's id.
    pub order_id: String,
    /// The amount in minor units of the currency, such as cents.
    pub amount: u64,
    /// The currency as three capital letters (ISO 4217).
    pub currency: String,
}

/// The stored result of a charged order. Later calls get it again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Receipt {
    /// The order's id.
    pub order_id: String,
    /// The id that the payment gateway gave to the charge.
    pub charge_id: String,
    /// The fencing token of the attempt that recorded the charge.
    pub fencing_token: u64,
}

/// `{"orderId":…,"amount":…,"currency":…}`, and `simulate` for tests and demonstrations.
#[derive(Clone, Debug)]
pub struct Request {
    /// The order.
    pub order: Order,
    /// The failures to simulate.
    pub simulate: Simulate,
}

impl Request {
    /// Reads an event.
    pub fn read(event: &RawValue) -> Result<Self, Failure> {
        let mut fields = Fields::of_event(event)?;
        let order = Order {
            order_id: fields.name("orderId", MAX_ID_BYTES)?,
            amount: amount(&mut fields)?,
            currency: currency(&mut fields)?,
        };
        let simulate = Simulate::read(&mut fields)?;
        fields.nothing_else()?;
        Ok(Self { order, simulate })
    }
}

fn amount(fields: &mut Fields) -> Result<u64, Failure> {
    match fields.whole_number("amount")? {
        0 => Err(fields.malformed("amount", "give the amount in minor units, such as cents, greater than 0")),
        amount => Ok(amount),
    }
}

fn currency(fields: &mut Fields) -> Result<String, Failure> {
    let currency = fields.text("currency")?;
    if currency.len() != 3 || !currency.bytes().all(|byte| byte.is_ascii_uppercase()) {
        return Err(fields.malformed("currency", "give three capital letters, such as EUR"));
    }
    Ok(currency)
}
