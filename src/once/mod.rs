//! Idempotent work: done once for each key, and answered from its record afterwards.

mod attempt;
mod payload;
mod request;
mod status;

pub use attempt::Attempt;
pub use request::{DEFAULT_KEEP_FOR, Once, Outcome, Started};
pub use status::{OnceState, OnceStatus};

use crate::client::LockClient;
use crate::protocol::LockKey;

#[cfg_attr(docsrs, doc(cfg(feature = "once")))]
impl LockClient {
    /// An idempotent work: done once for each key, and answered from its record afterwards.
    ///
    /// One item holds the lock and the result: the first call claims it and works, later calls get the
    /// stored result, each with one request. While somebody else is at it, a call waits for the result
    /// within its budget. An attempt that crashed is taken over by the rules of every lock.
    ///
    /// The key is a name of the work, such as an order's number or a message's id. It has a
    /// [namespace](crate::protocol::once) of its own: a lock with the same key is another lock.
    ///
    /// A work that crashed is done again. Give an effect outside of DynamoDB an idempotency key made of the work's own
    /// key, so that the other side recognises the repetition:
    ///
    /// ```no_run
    /// # use lambda_lock::once::Outcome;
    /// # use lambda_lock::{Budget, Error, LockClient};
    /// # use std::time::Duration;
    /// # #[derive(serde::Serialize)] struct Order { id: String }
    /// # async fn charge(order: &Order, idempotency_key: &str) -> Result<String, Error> { Ok(String::new()) }
    /// # async fn example(locks: &LockClient, order: &Order, budget: &Budget) -> Result<String, Error> {
    /// let once = locks.once(&order.id).payload(order).keep_for(Duration::from_secs(86_400)).within(budget);
    /// match once.run(async |_attempt| charge(order, &order.id).await).await? {
    ///     Outcome::Done(receipt) | Outcome::Replayed(receipt) => Ok(receipt),
    /// }
    /// # }
    /// ```
    ///
    /// See [`Once::run`](crate::once::Once::run) for errors, requests and cancel safety.
    pub fn once(&self, key: impl Into<LockKey>) -> Once<'_> {
        Once::new(&self.engine, key.into())
    }
}
