//! One attempt: reserve, charge, record. The transaction of record also stores the result.

use crate::deps::Deps;
use crate::order::{Order, PREFIX, Receipt, Request};
use crate::orders::{Refused, refused};
use crate::simulate::Step;
use aws_sdk_dynamodb::types::TransactWriteItem;
use lambda_lock::once::{Attempt, Started};
use lambda_lock::{Budget, Error, ErrorKind, LockKey, ReleaseOutcome};
use lambda_lock_functions::{AfterWork, Failure, within_lease};
use serde_json::{Value, json};

/// An order that is charged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Charged {
    /// The stored result.
    pub receipt: Receipt,
    /// Whether an earlier call charged the order.
    pub replayed: bool,
}

impl Charged {
    /// Returns the response of the function.
    pub fn answer(&self) -> Value {
        let Receipt { order_id, charge_id, fencing_token } = &self.receipt;
        json!({
            "orderId": order_id,
            "chargeId": charge_id,
            "fencingToken": fencing_token,
            "replayed": self.replayed,
        })
    }
}

/// How the steps ended.
enum Steps {
    /// The order is charged. This write records the charge.
    Charged(Receipt, TransactWriteItem),
    /// The order was recorded so long ago that its stored result is deleted.
    Recorded(Receipt),
}

/// The lock key of an order. If the table has a sort key, it gets the same text. In the table both have the
/// prefix of idempotent work: `once/order/{orderId}`.
pub fn key(order: &Order, sort_key: bool) -> LockKey {
    let key = format!("{PREFIX}{}", order.order_id);
    let sort_key = sort_key.then(|| key.clone());
    LockKey::new(key, sort_key)
}

/// Charges an order within this budget, or returns the stored result of an earlier charge. Does not wait
/// while another caller holds the order.
pub async fn charge(request: &Request, budget: &Budget, deps: &Deps) -> Result<Charged, Failure> {
    request.simulate.check(deps.simulates)?;
    let key = key(&request.order, deps.sort_key);
    charge_under(key.clone(), request, budget, deps).await.map_err(|failure| failure.of_lock(&key))
}

async fn charge_under(key: LockKey, request: &Request, budget: &Budget, deps: &Deps) -> Result<Charged, Failure> {
    let order = &request.order;
    let once = deps.locks.once(key).payload(order).within(budget).without_waiting();
    match once.start().await.map_err(not_started)? {
        Started::Replayed(receipt) => Ok(Charged { receipt, replayed: true }),
        Started::Attempt(mut attempt) => {
            match within_lease(&attempt.watch(), steps(&mut attempt, request, budget, deps)).await {
                Ok(Steps::Charged(receipt, record)) => {
                    let after = AfterWork::FreeBy(attempt.lease_ends_at());
                    attempt.complete_with(&receipt, [record]).await.map_err(|error| not_stored(error, after))?;
                    Ok(Charged { receipt, replayed: false })
                }
                Ok(Steps::Recorded(receipt)) => {
                    let after = AfterWork::FreeBy(attempt.lease_ends_at());
                    attempt.complete(&receipt).await.map_err(|error| not_stored(error, after))?;
                    Ok(Charged { receipt, replayed: true })
                }
                Err(failure) => Err(give_back(attempt, failure).await),
            }
        }
    }
}

/// Runs all steps before the transaction that ends the attempt.
async fn steps(attempt: &mut Attempt, request: &Request, budget: &Budget, deps: &Deps) -> Result<Steps, Failure> {
    let Request { order, simulate } = request;
    simulate.begin(Step::Reserve).await?;
    let reserve = deps.orders.reserve(order)?;
    if let Err(error) = attempt.commit([reserve]).await {
        return match refused(&error, order) {
            Refused::AnotherOrder => Err(another_order()),
            Refused::Charged(receipt) => Ok(Steps::Recorded(receipt)),
            Refused::Otherwise => Err(error.into()),
        };
    }
    attempt.checkpoint().await?;

    simulate.begin(Step::Charge).await?;
    let charge_id = deps.gateway.charge(order, budget).await?;
    attempt.checkpoint().await?;

    simulate.begin(Step::Record).await?;
    let (order_id, fencing_token) = (order.order_id.clone(), attempt.fencing_token());
    let receipt = Receipt { order_id, charge_id, fencing_token };
    let record = deps.orders.record(order, &receipt)?;
    Ok(Steps::Charged(receipt, record))
}

fn another_order() -> Failure {
    Failure::invalid_request(
        "orderId belongs to an order with another amount or currency: give this order another id, or send the amount \
         and currency of the first request",
    )
}

fn not_started(error: Error) -> Failure {
    match error.kind() {
        ErrorKind::PayloadMismatch => another_order(),
        _ => error.into(),
    }
}

/// The result could not be stored. If the gateway's response is too large, the caller cannot correct that
/// with another request, so it is failed work and not an invalid request. The attempt tried to release its
/// lock, but whether it succeeded is not known.
fn not_stored(error: Error, after: AfterWork) -> Failure {
    match error.kind() {
        ErrorKind::InvalidRequest => Failure::work_failed(&error).leaving(after),
        _ => Failure::from(error).leaving(after),
    }
}

/// Releases the lock of the attempt, and returns the failure. For failed work the failure also reports the
/// state of the lock.
async fn give_back(attempt: Attempt, failure: Failure) -> Failure {
    let ends = attempt.lease_ends_at();
    match attempt.give_back().await {
        Ok(ReleaseOutcome::AlreadyGone) if failure.is_of_the_work() => {
            Failure::lost(format!("another attempt took over before this one ended: {}", failure.message()))
        }
        Ok(ReleaseOutcome::Released) => failure.leaving(AfterWork::Free),
        Ok(ReleaseOutcome::AlreadyGone) => failure,
        Err(error) => {
            tracing::warn!(%error, "the lock of the attempt was not released; its lease frees it");
            failure.leaving(AfterWork::FreeBy(ends))
        }
    }
}
