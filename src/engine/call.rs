//! One call: runs an operation within the caller's time.

use super::Engine;
use super::deadline::Deadline;
use super::error::BoxError;
use super::transaction::Transaction;
use super::transport::Response;
use crate::protocol::{Action, Answer, Instants, Now, Port, Rejection, Request};
use aws_sdk_dynamodb::types::TransactWriteItem;
use aws_smithy_async::future::timeout::Timeout;
use std::time::Duration;
use tracing::{Instrument, Span};

/// One last request may take this long, even when the caller's time is over. It releases the lock in case an acquire
/// without a response was applied.
const LAST_REQUEST: Duration = Duration::from_millis(250);

/// The port of one operation.
#[derive(Debug)]
pub(crate) struct Call<'a> {
    engine: &'a Engine,
    deadline: &'a Deadline,
    /// Entered for each request. Records the number of requests and the time that was waited.
    span: &'a Span,
    transaction: Transaction<'a>,
    /// The clocks as they were read for the next request.
    now: Option<Now>,
    requests: u32,
    waited: Duration,
    /// The last error that the SDK returned.
    cause: Option<BoxError>,
}

impl<'a> Call<'a> {
    pub(crate) fn new(engine: &'a Engine, deadline: &'a Deadline, span: &'a Span) -> Self {
        Self::with_writes(engine, deadline, span, &[])
    }

    /// Makes a call whose requests are transactions with these writes of the caller's.
    pub(crate) fn with_writes(
        engine: &'a Engine,
        deadline: &'a Deadline,
        span: &'a Span,
        writes: &'a [TransactWriteItem],
    ) -> Self {
        let transaction = Transaction::of(writes);
        Self { engine, deadline, span, transaction, now: None, requests: 0, waited: Duration::ZERO, cause: None }
    }

    /// Ends the call. Returns the last error that the SDK returned.
    pub(crate) fn end(self) -> Option<BoxError> {
        self.span.record("attempts", self.requests).record("waited_ms", self.waited.as_millis() as u64);
        self.cause
    }

    async fn response_to(&mut self, request: &Request, patience: Duration) -> Response {
        let items = match self.transaction.items(self.engine.table(), &self.engine.settings().schema, request) {
            Ok(items) => items,
            Err(error) => {
                let answer = Answer::Rejected(Rejection::Invalid(error.to_string()));
                // No cause: the answer has its whole text.
                return Response::new(answer);
            }
        };
        let alarm = self.engine.clock().sleep(patience);
        match Timeout::new(self.engine.transport().send(request, items), alarm).await {
            Ok(response) => response,
            Err(_) => no_response_within(patience),
        }
    }
}

impl Port for Call<'_> {
    fn now(&mut self) -> Now {
        // Both clocks are read before the wall clock that is written, so that a pause in between makes a lease look
        // older, never younger.
        let instants = self.engine.clock().now();
        let wall = self.engine.wall_clock().reading(self.engine.clock().now());
        let now = self.deadline.at(instants, wall, self.engine.clock_bounds());
        self.now = Some(now);
        now
    }

    fn random(&mut self) -> [u8; 16] {
        self.engine.clock().random()
    }

    /// Waits for the response as long as the caller's time allows. Corrects the wall clock by it.
    async fn send(&mut self, request: Request) -> (Instants, Answer) {
        let Now { instants: before, time_left, .. } = match self.now.take() {
            Some(now) => now,
            None => self.now(),
        };
        self.requests += 1;
        if let Action::Release { ends_at_ms, .. } = request.action {
            self.engine.wall_clock().released(ends_at_ms);
        }
        let patience = self.engine.request_timeout().min(time_left.max(LAST_REQUEST));
        let span = self.span.clone();
        let response = self.response_to(&request, patience).instrument(span).await;
        let after = self.engine.clock().now();
        if let Some(server_time) = response.server_time {
            self.engine.wall_clock().compare(before, after, server_time);
        }
        // A response without an error does not hide an earlier error.
        self.cause = response.cause.or(self.cause.take());
        (after, response.answer)
    }

    async fn sleep(&mut self, pause: Duration) {
        self.waited += pause;
        self.engine.clock().sleep(pause).await;
    }
}

fn no_response_within(patience: Duration) -> Response {
    Response::failed(Answer::Unknown, format!("no response within {patience:?}"))
}
