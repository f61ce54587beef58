//! What a function does after Lambda has restored it from a snapshot (SnapStart), before its first invocation.

use crate::config::Config;
use lambda_lock::{LockClient, LockKey};
use lambda_runtime::{BoxFuture, Error, SnapStartResource};
use std::sync::Arc;

/// A lock that nobody acquires.
const KEY: &str = "lambda-lock/restored";

/// Reads the row of a lock that nobody acquires. That fetches credentials, opens the connection and compares the
/// clocks, so that no invocation waits for them. Nothing is sent before the snapshot.
///
/// Sends one read (`dynamodb:GetItem`), and retries for up to 3 s. A failure is only logged: the first invocation tries
/// again, and reports a failure by its name.
struct Restored {
    locks: LockClient,
    key: LockKey,
}

/// To be registered with the runtime, which ignores it without SnapStart. A function that has no lock client sends
/// nothing.
pub(crate) fn restored(config: &Config) -> Arc<dyn SnapStartResource> {
    match config.locks_made() {
        None => Arc::new(Nothing),
        Some(locks) => {
            let key = if config.has_sort_key() { LockKey::from((KEY, KEY)) } else { LockKey::from(KEY) };
            Arc::new(Restored { locks, key })
        }
    }
}

impl SnapStartResource for Restored {
    fn after_restore(&self) -> BoxFuture<'_, Result<(), Error>> {
        Box::pin(async {
            if let Err(error) = self.locks.operator().peek(self.key.clone()).await {
                tracing::warn!("the first request after the restore failed: {error}");
            }
            Ok(())
        })
    }
}

struct Nothing;

impl SnapStartResource for Nothing {}
