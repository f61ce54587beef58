//! Locks in AWS Lambda: the invocation's own deadline and name, a guard around a whole handler, and
//! errors that a workflow can match. Feature `lambda`.
//!
//! # A budget from the invocation
//!
//! [`Budget::from`](crate::Budget#impl-From%3C%26Context%3E-for-Budget) reads the deadline and names
//! the invocation as the owner of every lock acquired within it.
//!
//! ```no_run
//! use lambda_lock::{Budget, Error, LockClient};
//! use lambda_runtime::LambdaEvent;
//!
//! # async fn orders_of(_: &str) -> Result<Vec<String>, Error> { Ok(Vec::new()) }
//! # async fn save_statement(_: &[String], token: u64) -> Result<String, Error> { Ok(String::new()) }
//! async fn handler(event: LambdaEvent<String>, locks: &LockClient) -> Result<String, Error> {
//!     let budget = Budget::from(&event.context); // what is left of this invocation
//!     let customer = &event.payload;
//!     locks
//!         .with_lock(customer, &budget, async |lock| {
//!             let orders = orders_of(customer).await?;
//!             lock.checkpoint().await?; // renew between steps, in the open
//!             save_statement(&orders, lock.fencing_token()).await // refused to a holder that comes late
//!         })
//!         .await
//! }
//! # fn main() {}
//! ```
//!
//! # A lock around the whole handler
//!
//! [`LockLayer`] takes the key from the event, so that the handler itself knows nothing of locks.
//!
//! # Errors by name
//!
//! [`Error`](crate::Error) turns into a [`Diagnostic`](lambda_runtime::Diagnostic) whose `errorType`
//! is a name that `Retry` and `Catch` of Step Functions can match: see [`error_type`]. A handler must return this error,
//! or one of its own that turns into a `Diagnostic`: behind `lambda_runtime::Error` the runtime names the box.
//! [`LockLayer`] finds it there.

mod budget;
mod diagnostic;
mod guard;

pub use diagnostic::error_type;
pub use guard::{LockLayer, LockService, LockServiceError, Locked, Refuse, WhenHeld};

#[cfg(test)]
mod tests {
    use crate::{Budget, Error, LockClient};
    use lambda_runtime::LambdaEvent;

    fn is_send<T: Send>(_: T) {}

    async fn handler(event: LambdaEvent<String>, locks: &LockClient) -> Result<u64, Error> {
        let budget = Budget::from(&event.context);
        locks
            .with_lock(&event.payload, &budget, async |lock| {
                lock.checkpoint().await?;
                lock.keep_alive(std::future::ready(())).await?;
                Ok(lock.fencing_token())
            })
            .await
    }

    /// `lambda_runtime::run_concurrent` runs only handlers whose futures may change threads.
    #[test]
    fn a_handler_that_holds_a_lock_may_change_threads() {
        fn asks_for_it(event: LambdaEvent<String>, locks: &LockClient) {
            is_send(handler(event, locks));
        }
        let _ = asks_for_it;
    }
}
