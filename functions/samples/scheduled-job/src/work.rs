//! The job. Replace this function by your own.

use lambda_lock::Lock;
use std::error::Error;

/// Why the job failed. The function returns its text as the message of `WorkFailed`.
pub(crate) type WorkError = Box<dyn Error + Send + Sync>;

/// Runs the job while the lock is held.
///
/// * Call `lock.checkpoint().await?` between two steps. It renews the lease, and fails when the lock was lost. So a
///   job that was overtaken stops.
/// * Write `lock.fencing_token()` with all data that the job writes, and refuse smaller tokens there.
pub(crate) async fn work(lock: &mut Lock) -> Result<(), WorkError> {
    tracing::info!(fencing_token = lock.fencing_token(), "the first step");
    lock.checkpoint().await?;
    tracing::info!(fencing_token = lock.fencing_token(), "the second step");
    Ok(())
}
