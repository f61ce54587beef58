//! The payment gateway. All requests for an order have the same idempotency key, so the gateway charges
//! it once.

use crate::order::Order;
use lambda_lock::Budget;
use lambda_lock_functions::{Answered, ConfigError, Environment, Failure, Web, optional};
use serde::Deserialize;
use serde_json::json;
use sha2::{Digest, Sha256};
use std::fmt;
use std::time::Duration;

/// How long to wait for one response.
const PATIENCE: Duration = Duration::from_secs(5);
/// The pause between two requests: the first one, and the longest one.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const MAX_PAUSE: Duration = Duration::from_secs(1);
/// The part of the budget that is reserved for recording the charge.
const TO_RECORD: Duration = Duration::from_secs(1);

/// A payment gateway, or a stand-in when none is configured.
#[derive(Clone, Debug)]
pub struct Gateway(Option<Web>);

/// Why a request returned no charge. `Perhaps` is sent again, because the order may have been charged.
enum NoCharge {
    Perhaps(String),
    Refused(String),
}

impl Gateway {
    pub(crate) fn read(environment: &Environment<'_>) -> Result<Self, ConfigError> {
        const NAME: &str = "PAYMENT_GATEWAY_URL";
        let Some(url) = optional(environment, NAME)? else { return Ok(Self(None)) };
        let web = Web::new(NAME, &url)?;
        if web.is_readable_by_others() {
            return Err(ConfigError::new(format!(
                "{NAME} is {url:?}: everybody on the way could read and change a payment over http://; give a URL that \
                 begins with https://, or one of this machine, such as http://127.0.0.1:8080"
            )));
        }
        Ok(Self(Some(web)))
    }

    /// Charges an order and returns the charge's id. Leaves enough of the budget to record the charge.
    ///
    /// Retries with the same key after a 5xx or when there is no response, because the order may have
    /// been charged. Does not retry when the gateway refuses the charge.
    pub async fn charge(&self, order: &Order, budget: &Budget) -> Result<String, Failure> {
        let key = idempotency_key(order);
        let Some(web) = &self.0 else { return Ok(stand_in(&key)) };
        let remaining = || budget.remaining().unwrap_or_default();
        let to_record = TO_RECORD.min(remaining() / 4);
        let mut pause = FIRST_PAUSE;
        let mut unknown: Option<String> = None;
        loop {
            let left = remaining().saturating_sub(to_record);
            if left.is_zero() {
                return Err(unknown.map_or_else(
                    || Failure::work_failed(&"there was no time left to send a request to the payment gateway"),
                    |reason| not_known(&reason),
                ));
            }
            let reason = match ask(web, order, &key, PATIENCE.min(left)).await {
                Ok(charge_id) => return Ok(charge_id),
                Err(NoCharge::Refused(reason)) => return Err(Failure::work_failed(&reason)),
                Err(NoCharge::Perhaps(reason)) => reason,
            };
            if remaining().saturating_sub(to_record) <= pause {
                return Err(not_known(&reason));
            }
            tracing::warn!("{reason}; it is asked again");
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(MAX_PAUSE);
            // Kept for the next round: the pause may last longer than planned, so that no time is left.
            unknown = Some(reason);
        }
    }
}

fn not_known(reason: &str) -> Failure {
    Failure::work_failed(&format_args!("{reason}; the order may or may not have been charged; a retry is safe"))
}

async fn ask(web: &Web, order: &Order, key: &str, patience: Duration) -> Result<String, NoCharge> {
    let body = json!({ "orderId": order.order_id, "amount": order.amount, "currency": order.currency }).to_string();
    let answered = web.post("/charges", &[("idempotency-key", key.to_owned())], body, patience).await;
    let Answered { status, body } =
        answered.map_err(|error| NoCharge::Perhaps(format!("the payment gateway did not respond: {error}")))?;
    match status {
        200..=299 => charge_id(&body),
        500..=599 => Err(NoCharge::Perhaps(format!("the payment gateway failed with status {status}"))),
        _ => Err(NoCharge::Refused(format!("the payment gateway refused the charge with status {status}"))),
    }
}

fn charge_id(body: &[u8]) -> Result<String, NoCharge> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Charge {
        charge_id: String,
    }
    match serde_json::from_slice(body) {
        Ok(Charge { charge_id }) if !charge_id.is_empty() => Ok(charge_id),
        // Does not quote the response, because it may contain card data.
        _ => Err(NoCharge::Refused("the payment gateway's response has no chargeId".to_owned())),
    }
}

/// The key depends on the order's id alone, so every attempt uses the same key. It is a digest, because
/// an HTTP header does not allow all characters and lengths of an id.
fn idempotency_key(order: &Order) -> String {
    let mut key = String::with_capacity(64);
    for byte in Sha256::digest(order.order_id.as_bytes()) {
        // Writing into a string cannot fail.
        let _ = fmt::Write::write_fmt(&mut key, format_args!("{byte:02x}"));
    }
    key
}

/// Charges nobody. Returns the same id for the same order, as a gateway does.
fn stand_in(key: &str) -> String {
    tracing::info!("PAYMENT_GATEWAY_URL is not set: nobody is charged");
    format!("stand-in-{}", key.get(..16).unwrap_or(key))
}
