//! `timeline`: draws what `watch` or `history` recorded.

use crate::arguments::TimelineOptions;
use crate::exit::Failure;
use crate::held::text_of;
use crate::record;
use std::io::Write;
use std::process::ExitCode;

pub(crate) fn draw(options: &TimelineOptions) -> Result<ExitCode, Failure> {
    let events = record::read(&text_of(options.file.as_deref())?)?;
    let drawn = if options.svg {
        format!("{}\n", lambda_lock_timeline::svg(&events))
    } else {
        lambda_lock_timeline::text(&events, options.columns)
    };
    std::io::stdout().write_all(drawn.as_bytes())?;
    Ok(ExitCode::SUCCESS)
}
