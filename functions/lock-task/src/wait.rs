//! `wait`: lets an execution of Step Functions sleep in line until it is its turn.

use crate::deps::Deps;
use crate::lock::{new_key, resolved};
use crate::observed::Observed;
use crate::wanted::Wanted;
use lambda_lock::{LockKey, MAX_NAME_BYTES, Observation};
use lambda_lock_functions::{Failure, Fields, MAX_TASK_TOKEN_BYTES, Waker};
use serde_json::{Value, json};

/// `{"action":"wait","key":…,"observation":…,"waitedSeconds":…,"taskToken":…}`, and optionally `execution`.
#[derive(Debug)]
pub(crate) struct Request {
    key: LockKey,
    /// The place in line. `None` where the last `acquire` could take none.
    ticket: Option<u64>,
    task_token: String,
    execution: Option<String>,
}

impl Request {
    pub(crate) fn read(mut fields: Fields, deps: &Deps) -> Result<Self, Failure> {
        let key = new_key(&mut fields, deps)?;
        let observed = Observed::read(&mut fields, &Wanted::Lock(key.clone()), deps)?;
        let request = Self {
            key,
            ticket: observed.one.as_ref().and_then(Observation::ticket),
            task_token: fields.name("taskToken", MAX_TASK_TOKEN_BYTES)?,
            execution: fields.optional_name("execution", MAX_NAME_BYTES)?,
        };
        resolved(&fields, "taskToken", &request.task_token)?;
        request.execution.iter().try_for_each(|execution| resolved(&fields, "execution", execution))?;
        fields.nothing_else()?;
        Ok(request)
    }
}

/// Leaves a wake item, and then looks at the row. So a release either comes before that look, or finds the item.
pub(crate) async fn run(request: Request, deps: &Deps) -> Result<Value, Failure> {
    let Request { key, ticket, task_token, execution } = request;
    let Some(ticket) = ticket else { return Ok(json!({ "waits": false })) };
    let item = Waker::item_key(&deps.row(&key), ticket)?;
    deps.waker.sleep(&item, &task_token, execution.as_deref()).await?;
    let row = match deps.locks.operator().peek(&key).await {
        Ok(row) => row,
        Err(error) => {
            // The caller does not sleep. Whoever is behind it is woken in its place.
            deps.waker.forget(&item, None).await;
            return Err(error.into());
        }
    };
    // Without a place nobody would wake it. Its next request takes another one.
    if row.is_none_or(|row| row.is_turn_of(ticket) || !row.has_place(ticket)) {
        deps.waker.wake(&item).await?;
    }
    Ok(json!({ "waits": true }))
}
