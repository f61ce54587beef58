//! The job itself: replace this function by your own.

use lambda_lock::Lock;
use std::error::Error;

/// Why the job failed. Its text leaves the function as the message of `WorkFailed`.
pub(crate) type WorkError = Box<dyn Error + Send + Sync>;

/// Runs while the lock is held.
///
/// * Between two steps call `lock.checkpoint().await?`: it renews the lease, and fails when the lock
///   was lost, so that a job that was overtaken stops.
/// * Write `lock.fencing_token()` with whatever the job writes, and refuse smaller tokens there.
pub(crate) async fn work(lock: &mut Lock) -> Result<(), WorkError> {
    tracing::info!(fencing_token = lock.fencing_token(), "the first step");
    lock.checkpoint().await?;
    tracing::info!(fencing_token = lock.fencing_token(), "the second step");
    Ok(())
}
