//! Idempotent work: it is done once for each key. Later calls return the outcome from its record.

mod attempt;
pub(crate) mod errors;
mod finite;
mod payload;
mod request;
mod reset;
mod status;

pub use attempt::Attempt;
pub use request::{DEFAULT_KEEP_FOR, Once, Outcome, Started};
pub use reset::ResetOutcome;
pub use status::{OnceState, OnceStatus};

use crate::client::LockClient;
use lambda_lock_protocol::LockKey;

#[cfg_attr(docsrs, doc(cfg(feature = "once")))]
impl LockClient {
    /// Returns a request for idempotent work. The work is done once for each key, and later calls return the outcome
    /// from its record.
    ///
    /// One item holds the lock and the result. The first call acquires the lock and does the work. Later calls return
    /// the stored result, each with one request. While another caller does the work, a call waits for the result within
    /// its budget. A crashed attempt is taken over by the same rules as any lock. The result is stored as JSON, and kept for 24
    /// hours or as long as [`keep_for`](crate::once::Once::keep_for) says. After that the work is done again.
    ///
    /// The key names the work, such as the number of an order or the id of a message. It has its own
    /// [namespace](lambda_lock_protocol::once), so a lock with the same key is another lock.
    ///
    /// Work that crashed is done again. Give an effect outside of DynamoDB an idempotency key made of the work's own
    /// key, so that the other system recognises the repetition:
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
