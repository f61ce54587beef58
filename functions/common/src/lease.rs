//! The budget of an invocation, and work under a lock that a handler holds by hand.

use crate::failure::Failure;
use lambda_lock::{Budget, LockWatch};
use lambda_runtime::Context;
use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

/// A budget that ends this long before the invocation does, so that there is time to answer. Its grace covers the rest.
pub fn budget(mut context: Context, to_answer: Duration) -> Budget {
    context.deadline = context.deadline.saturating_sub(to_answer.as_millis() as u64);
    Budget::from(&context).grace(Budget::DEFAULT_GRACE + to_answer)
}

/// Does work under a lock, and drops it when the lock is not ours any more. Lambda ends a function at its deadline, which the lease
/// covers; where nobody does, the work would go on beside that of the next holder.
///
/// # Errors
/// Returns the work's own failure, or `WorkFailed` if it was dropped.
pub async fn within_lease<T>(watch: &LockWatch, work: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    let (mut work, mut ended) = (pin!(work), pin!(watch.ended()));
    let ends = poll_fn(|context| {
        // Lambda may have frozen this process for longer than the lease.
        if watch.remaining().is_zero() {
            return Poll::Ready(None);
        }
        match work.as_mut().poll(context) {
            Poll::Ready(done) => Poll::Ready(Some(done)),
            Poll::Pending => ended.as_mut().poll(context).map(|()| None),
        }
    });
    ends.await.unwrap_or_else(|| {
        Err(Failure::work_failed(
            &"the lease ended while the work ran, so the work was stopped: check what it left behind, and give it more time or \
              checkpoints",
        ))
    })
}
