//! A payment gateway on this machine that records what it did.
//!
//! It charges once for each `Idempotency-Key`, as payment gateways do, so a caller may retry. The ledger
//! has one entry for each request that was carried out, including repeats.

use crate::proxy::{self, Answer, Handle, Serving};
use http_body_util::Full;
use hyper::body::Bytes;
use hyper::{Request, Response, StatusCode};
use serde::Deserialize;
use serde_json::json;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// A payment gateway on a loopback port. It serves until it is dropped.
pub struct PaymentGateway {
    shared: Arc<Shared>,
    serving: Serving,
}

/// A request to the gateway, and what the gateway did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The id of the order.
    pub order_id: String,
    /// The amount in minor units of the currency.
    pub amount: u64,
    /// The currency.
    pub currency: String,
    /// The idempotency key. A request with the same key is a repeat.
    pub idempotency_key: String,
    /// The id of the charge that this request made or repeats.
    pub charge_id: String,
    /// Whether this request charged, and was not a repeat.
    pub executed: bool,
}

/// What happens to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Conduct {
    /// It is carried out, and the response is returned.
    Answers,
    /// It is carried out, and the response is returned this much later.
    AnswersAfter(Duration),
    /// It is carried out, and the connection breaks before the response.
    AnswerLost,
    /// It is carried out, and the response is returned. The charge gets this id, unless the request is a
    /// repeat.
    Calls(String),
    /// It is not carried out. The response has this status.
    Refuses(u16),
    /// It is not carried out, and there is never a response.
    Silent,
}

type Decide = Box<dyn Fn(&str) -> Conduct + Send + Sync>;

struct Shared {
    ledger: Mutex<Vec<Entry>>,
    charges: Mutex<BTreeMap<String, String>>,
    decide: Mutex<Decide>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Order {
    order_id: String,
    amount: u64,
    currency: String,
}

impl PaymentGateway {
    /// Starts a gateway on a port that the system chooses.
    ///
    /// # Errors
    /// Returns an error if there is no free loopback port.
    pub async fn start() -> anyhow::Result<Self> {
        let shared = Arc::new(Shared {
            ledger: Mutex::default(),
            charges: Mutex::default(),
            decide: Mutex::new(Box::new(|_| Conduct::Answers)),
        });
        let serving = proxy::serve(Arc::clone(&shared)).await?;
        Ok(Self { shared, serving })
    }

    /// The URL of the gateway, for `PAYMENT_GATEWAY_URL`.
    pub fn url(&self) -> &str {
        &self.serving.endpoint
    }

    /// Returns all requests that were carried out, in order.
    pub fn ledger(&self) -> Vec<Entry> {
        lock(&self.shared.ledger).clone()
    }

    /// Sets what decides about requests, by the order's id, from now on.
    pub fn decide(&self, decide: impl Fn(&str) -> Conduct + Send + Sync + 'static) {
        *lock(&self.shared.decide) = Box::new(decide);
    }
}

impl fmt::Debug for PaymentGateway {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PaymentGateway").field("url", &self.serving.endpoint).finish_non_exhaustive()
    }
}

impl Handle for Shared {
    async fn handle(&self, request: Request<Bytes>) -> anyhow::Result<Answer> {
        let key = request.headers().get("idempotency-key").and_then(|key| key.to_str().ok()).map(str::to_owned);
        let order = serde_json::from_slice::<Order>(request.body());
        let asked = (request.method().as_str(), request.uri().path());
        let (Some(key), Ok(order), ("POST", "/charges")) = (key, order, asked) else {
            let error = json!({ "error": "the request is not a charge with an Idempotency-Key" });
            return response(StatusCode::BAD_REQUEST, error.to_string());
        };
        let conduct = lock(&self.decide)(&order.order_id);
        let charge_id = match &conduct {
            Conduct::Silent => return std::future::pending().await,
            Conduct::Refuses(status) => return response(StatusCode::from_u16(*status)?, "{}".to_owned()),
            Conduct::Calls(charge_id) => self.carry_out(order, key, charge_id.clone()),
            _ => self.carry_out(order, key, format!("ch-{}", uuid::Uuid::new_v4())),
        };
        match conduct {
            Conduct::AnswerLost => anyhow::bail!("the response is lost on purpose"),
            Conduct::AnswersAfter(delay) => tokio::time::sleep(delay).await,
            _ => {}
        }
        response(StatusCode::CREATED, json!({ "chargeId": charge_id }).to_string())
    }
}

impl Shared {
    fn carry_out(&self, order: Order, idempotency_key: String, new: String) -> String {
        let mut charges = lock(&self.charges);
        let executed = !charges.contains_key(&idempotency_key);
        let charge_id = charges.entry(idempotency_key.clone()).or_insert(new).clone();
        let Order { order_id, amount, currency } = order;
        let entry = Entry { order_id, amount, currency, idempotency_key, charge_id: charge_id.clone(), executed };
        lock(&self.ledger).push(entry);
        charge_id
    }
}

fn response(status: StatusCode, json: String) -> anyhow::Result<Answer> {
    let response = Response::builder().status(status).header("content-type", "application/json");
    Ok(response.body(Full::new(Bytes::from(json)))?)
}

fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}
