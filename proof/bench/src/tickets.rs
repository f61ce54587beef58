//! The tickets that callers in line are given.

use aws_sdk_dynamodb::config::interceptors::{
    AfterDeserializationInterceptorContextRef, BeforeSerializationInterceptorContextRef,
};
use aws_sdk_dynamodb::config::{ConfigBag, Intercept, RuntimeComponents};
use aws_sdk_dynamodb::error::BoxError;
use aws_sdk_dynamodb::operation::update_item::{UpdateItemInput, UpdateItemOutput};
use std::cell::Cell;
use tokio::task_local;
use tokio::time::Instant;

task_local! {
    static ASKED: Cell<bool>;
    static LAST: Cell<Option<(u64, Instant)>>;
}

/// An interceptor that notes the tickets of each caller of [`noted`].
#[derive(Debug)]
pub(crate) struct Tickets;

/// Returns what the call does, and the last ticket that it was given, with the time of the answer.
pub(crate) async fn noted<T>(call: impl Future<Output = T>) -> (T, Option<(u64, Instant)>) {
    let call = async { (call.await, LAST.with(Cell::get)) };
    LAST.scope(Cell::default(), ASKED.scope(Cell::default(), call)).await
}

impl Intercept for Tickets {
    fn name(&self) -> &'static str {
        "Tickets"
    }

    fn read_before_serialization(
        &self,
        context: &BeforeSerializationInterceptorContextRef<'_>,
        _: &RuntimeComponents,
        _: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        let update = context.input().downcast_ref::<UpdateItemInput>().and_then(UpdateItemInput::update_expression);
        let asked = update.is_some_and(|update| update.starts_with("SET lastTicket"));
        // A release comes after the call.
        let _ = ASKED.try_with(|before| before.set(asked));
        Ok(())
    }

    fn read_after_deserialization(
        &self,
        context: &AfterDeserializationInterceptorContextRef<'_>,
        _: &RuntimeComponents,
        _: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        if ASKED.try_with(Cell::get).unwrap_or_default()
            && let Ok(answer) = context.output_or_error()
        {
            let row = answer.downcast_ref::<UpdateItemOutput>().and_then(UpdateItemOutput::attributes);
            let number =
                row.and_then(|row| row.get("lastTicket")?.as_n().ok()).ok_or("an answer without its ticket")?;
            LAST.with(|last| number.parse().map(|number| last.set(Some((number, Instant::now())))))?;
        }
        Ok(())
    }
}
