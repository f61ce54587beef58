//! The tick that an event is about, as a key of idempotent work.

use aws_smithy_types::DateTime;
use aws_smithy_types::date_time::Format;
use lambda_lock::LockKey;
use lambda_lock_functions::{Event, Failure, Fields};

/// The most bytes that a tick adds to the key of its job, with the prefix of idempotent work.
pub(crate) const MAX_TICK_BYTES: usize = "once//2026-07-01T12:00:00.000Z".len();

/// The key of the tick: that of the job, with the time at which the schedule fired. Each delivery of one tick has the
/// same time.
pub(crate) fn key(job: &LockKey, event: &Event) -> Result<LockKey, Failure> {
    let fields = Fields::of_event(event)?;
    let wrong = |what: &str| {
        Failure::invalid_request(format!(
            "time {what}: with ONCE_PER_TICK an event needs the time at which its schedule fired, such as \
             \"2026-07-01T12:00:00Z\", which events of EventBridge's rules have"
        ))
    };
    let time = fields.peek(&["time"]).ok_or_else(|| wrong("is missing"))?;
    let time = DateTime::from_str(time, Format::DateTimeWithOffset).map_err(|_| wrong("is malformed"))?;
    let millis = time.to_millis().map_err(|_| wrong("is malformed"))?;
    let time = DateTime::from_millis(millis).fmt(Format::DateTime).map_err(|_| wrong("is malformed"))?;
    let named = |key: &str| format!("{key}/{time}");
    Ok(LockKey::new(named(job.key()), job.sort_key().map(named)))
}
