//! The context of an invocation, for handlers under test.

use crate::lambda::REGION;
use lambda_runtime::{Config, Context};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Returns the context of an invocation that has this much time left, for a handler under test.
///
/// `Context::default()` has no deadline, so that a budget from it is
/// [unknown](lambda_lock::Budget#impl-From%3C%26Context%3E-for-Budget), and gives no lease. The deadline is on the
/// machine's wall clock, as Lambda's, and tokio's paused clock does not move it. Each context has a request id of its own.
pub fn context(remaining: Duration) -> Context {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let mut context = Context::default();
    context.request_id = uuid::Uuid::new_v4().to_string();
    context.deadline = u64::try_from((now + remaining).as_millis()).unwrap_or(u64::MAX);
    context.invoked_function_arn = format!("arn:aws:lambda:{REGION}:{}:function:under-test", crate::lambda::ACCOUNT);
    context.env_config = Arc::new(Config {
        function_name: "under-test".to_owned(),
        memory: 128,
        version: "$LATEST".to_owned(),
        ..Config::default()
    });
    context
}
