//! `once-reset`: allows idempotent work again that failed for good.

use crate::arguments::OnceResetOptions;
use crate::confirm::confirm;
use crate::connection;
use crate::exit::Failure;
use crate::row::work_of;
use crate::screen::{self, STRONG, plain};
use lambda_lock::LockKey;
use lambda_lock::once::ResetOutcome;
use serde_json::json;
use std::io::Write;
use std::process::ExitCode;

pub(crate) async fn once_reset(
    connection: &connection::Options,
    options: &OnceResetOptions,
) -> Result<ExitCode, Failure> {
    let locks = connection.open().await?;
    let work = options.name();
    let shown = plain(&work.to_string());
    if !options.decision.yes {
        confirm(&format!(
            "This allows the work {STRONG}{shown}{STRONG:#} of table {} again, if it failed for good. The next call does it again.",
            connection.table()
        ))?;
    }
    let mut out = anstream::stdout();
    let mut reset = locks.once(work.clone()).reset(&options.decision.reason).await?;
    // The whole key, of a client with a prefix.
    if let (ResetOutcome::NotFailed, Some((prefix, name))) = (reset, work_of(work.key()))
        && let Ok(prefixed) = locks.prefixed(prefix)
    {
        let name = LockKey::new(name, work.sort_key().map(str::to_owned));
        reset = prefixed.once(name).reset(&options.decision.reason).await?;
    }
    match reset {
        ResetOutcome::Open if options.decision.format.json => {
            writeln!(out, "{}", screen::json(&json!({ "key": work.key(), "open": true }))?)?
        }
        ResetOutcome::Open => {
            let style = screen::GOOD;
            writeln!(out, "{STRONG}{shown}{STRONG:#} is {style}open{style:#}. The next call does the work again.")?;
        }
        ResetOutcome::NotFailed => {
            return Err(Failure::Lost(format!(
                "\"{shown}\" did not fail for good, and was left alone: look at it with show"
            )));
        }
    }
    Ok(ExitCode::SUCCESS)
}
