//! `once-reset`: allows idempotent work again that failed for good.

use crate::arguments::OnceResetOptions;
use crate::confirm::confirm;
use crate::connection;
use crate::exit::Failure;
use crate::row::work_of;
use crate::screen::{self, STRONG, named_key, quoted};
use lambda_lock::once::{OnceState, OnceStatus, ResetOutcome};
use lambda_lock::{ErrorKind, LockClient, LockKey};
use serde_json::json;
use std::process::ExitCode;

pub(crate) async fn once_reset(
    connection: &connection::Options,
    options: &OnceResetOptions,
) -> Result<ExitCode, Failure> {
    let locks = connection.open().await?;
    let work = options.name();
    connection.check_sort_key(&work)?;
    let shown = named_key(&work);
    let reason = &options.decision.reason;
    let not_failed = |why: &str| Failure::Lost(format!("\"{work}\" {why}, and was left alone: look at it with show"));
    // The whole key may have been given, of a client with a prefix.
    let prefixed = work_of(work.key()).and_then(|(prefix, name)| {
        Some((locks.prefixed(prefix).ok()?, LockKey::new(name, work.sort_key().map(str::to_owned))))
    });
    let names: Vec<_> = std::iter::once((locks, work.clone())).chain(prefixed).collect();
    let mut reset = ResetOutcome::NotFailed;
    for (locks, name) in &names {
        reset = if options.decision.yes {
            locks.operator().reset(name.clone(), reason).await?
        } else {
            let Some(seen) = failed(locks, name).await? else { continue };
            confirm(&format!(
                "This allows the work {STRONG}{shown}{STRONG:#} of table {} again, which failed for good with: {}. The next call \
                 does it again.",
                connection.table(),
                quoted(seen.failure.as_deref().unwrap_or_default())
            ))?;
            match locks.operator().reset_seen(name.clone(), &seen, reason).await? {
                ResetOutcome::NotFailed => return Err(not_failed("changed since it was shown")),
                reset => reset,
            }
        };
        if reset == ResetOutcome::Open {
            break;
        }
    }
    if reset == ResetOutcome::NotFailed && !is_reset_for(&names, reason).await? {
        return Err(not_failed("did not fail for good"));
    }
    let style = screen::GOOD;
    let said = match options.decision.format.json {
        true => screen::json_of(&work, json!({ "open": true }))?,
        false => format!("{STRONG}{shown}{STRONG:#} is {style}open{style:#}. The next call does the work again."),
    };
    screen::print_done(&said, "the work was allowed again")?;
    Ok(ExitCode::SUCCESS)
}

/// Whether one of these works is open because of a reset for this reason. The response to it may have been lost.
async fn is_reset_for(names: &[(LockClient, LockKey)], reason: &str) -> Result<bool, Failure> {
    for (locks, name) in names {
        let status = status(locks, name).await?;
        if status
            .is_some_and(|status| status.state == OnceState::Open && status.reset_reason.as_deref() == Some(reason))
        {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The record of the work, if it failed for good.
async fn failed(locks: &LockClient, name: &LockKey) -> Result<Option<OnceStatus>, Failure> {
    Ok(status(locks, name).await?.filter(|status| status.state == OnceState::Failed))
}

async fn status(locks: &LockClient, name: &LockKey) -> Result<Option<OnceStatus>, Failure> {
    match locks.once(name.clone()).status().await {
        Ok(status) => Ok(status),
        // Another row has this key.
        Err(error) if error.kind() == ErrorKind::InvalidRecord => Ok(None),
        Err(error) => Err(error.into()),
    }
}
