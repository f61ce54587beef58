//! Locks in AWS Lambda: budgets from the invocation's own deadline and name, a lock around a whole handler, and errors
//! that a workflow can match. It needs the feature `lambda`.
//!
//! # A budget from the invocation
//!
//! [`Budget::from`](crate::Budget#impl-From%3C%26Context%3E-for-Budget) reads the deadline and names the invocation as
//! the owner of every lock acquired within it.
//!
//! ```no_run
//! use lambda_lock::{Budget, LockClient};
//! use lambda_runtime::{Diagnostic, LambdaEvent};
//!
//! /// What can go wrong here: the lock, or the work.
//! #[derive(Debug)]
//! enum BillError {
//!     Lock(lambda_lock::Error),
//!     NoAddress,
//! }
//!
//! // Asked for by `with_lock`, and by `?`.
//! impl From<lambda_lock::Error> for BillError {
//!     fn from(error: lambda_lock::Error) -> Self {
//!         BillError::Lock(error)
//!     }
//! }
//!
//! // Asked for by `lambda_runtime`: the name that `Retry` and `Catch` match, and a sentence.
//! impl From<BillError> for Diagnostic {
//!     fn from(error: BillError) -> Self {
//!         match error {
//!             BillError::Lock(error) => error.into(), // LockHeld, LockLost, …
//!             BillError::NoAddress => Diagnostic {
//!                 error_type: "NoAddress".to_owned(),
//!                 error_message: "the customer has no address: add one".to_owned(),
//!             },
//!         }
//!     }
//! }
//!
//! # async fn write_bill(customer: &str) -> Result<String, BillError> { Err(BillError::NoAddress) }
//! # async fn store(bill: &str, token: u64) -> Result<(), BillError> { Ok(()) }
//! async fn handler(event: LambdaEvent<String>, locks: &LockClient) -> Result<String, BillError> {
//!     let budget = Budget::from(&event.context); // what is left of this invocation
//!     let customer = &event.payload;
//!     locks
//!         .with_lock(customer, &budget, async |lock| {
//!             let bill = write_bill(customer).await?;
//!             lock.checkpoint().await?; // `Lost`: stop, the lock is no longer ours
//!             store(&bill, lock.fencing_token()).await?; // refuses smaller tokens
//!             Ok(bill)
//!         })
//!         .await
//! }
//! # fn main() {}
//! ```
//!
//! # A lock around the whole handler
//!
//! [`LockLayer`] takes the key from the event, so the handler itself does not need to acquire the lock.
//!
//! # Tenants
//!
//! A function in Lambda's tenant isolation mode can give each tenant locks of its own: see
//! [`LockLayer::per_tenant`] and [`tenant_prefix`].
//!
//! # Errors by name
//!
//! [`Error`](crate::Error) is converted into a [`Diagnostic`](lambda_runtime::Diagnostic) whose `errorType` is a name
//! that `Retry` and `Catch` of Step Functions can match: see [`error_type`].
//!
//! A handler that returns [`lambda_runtime::Error`] puts every error into a box, and the runtime names them all by the
//! type of the box. [`LockLayer`] looks into the box. Without the layer, call
//! `.map_err(lambda_lock::lambda::diagnostic)` where the handler is passed to the runtime, see [`diagnostic`]. An error
//! type of your own needs `From<lambda_lock::Error>` and `Into<Diagnostic>`, as in the example above.

mod budget;
mod diagnostic;
mod guard;
mod tenant;

pub use diagnostic::{diagnostic, error_type};
pub use guard::{LockLayer, LockService, LockServiceError, Locked, Refuse, WhenHeld};
pub use tenant::tenant_prefix;

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
