//! What is asked for, and what is answered.

use crate::simulate::Simulate;
use lambda_lock::protocol::LONGEST_SORT_KEY;
use lambda_lock_functions::{Failure, Fields};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// What the lock key of an order begins with.
pub(crate) const PREFIX: &str = "order/";
/// Prefix and id fit into either part of a lock's key.
const LONGEST_ID: usize = LONGEST_SORT_KEY - PREFIX.len();

/// An order: the payload that two calls for one `orderId` must have in common.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Order {
    /// Names it.
    pub order_id: String,
    /// In minor units of the currency, such as cents.
    pub amount: u64,
    /// Three letters, as ISO 4217 has them.
    pub currency: String,
}

/// What is stored of a charged order, and answered to whoever asks again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Receipt {
    /// The order's id.
    pub order_id: String,
    /// The payment gateway's name for the charge.
    pub charge_id: String,
    /// The token of the attempt that recorded it.
    pub fencing_token: u64,
}

/// `{"orderId":…,"amount":…,"currency":…}`, and `simulate` where somebody tries something.
#[derive(Clone, Debug)]
pub struct Request {
    /// The order.
    pub order: Order,
    /// What is to go wrong.
    pub simulate: Simulate,
}

impl Request {
    /// Reads an event.
    pub fn read(event: &RawValue) -> Result<Self, Failure> {
        let mut fields = Fields::of_event(event)?;
        let order = Order {
            order_id: fields.name("orderId", LONGEST_ID)?,
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
        0 => Err(fields.malformed("amount", "give a number of minor units that is more than 0")),
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
