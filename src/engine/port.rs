//! One call: runs an operation within the caller's time.

use super::Engine;
use super::cause::is_transaction_conflict;
use super::deadline::Deadline;
use super::error::BoxError;
use super::report::Report;
use super::transaction::Transaction;
use super::transport::{Responding, Response, Transport};
use aws_sdk_dynamodb::types::TransactWriteItem;
use aws_smithy_async::future::timeout::Timeout;
use lambda_lock_protocol::{
    Action, Fault, Instants, Item, LockKey, Now, Port, Rejection, Reply, Request, RowRead, ServerTime, Transacted,
    Written,
};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tracing::{Instrument, Span};

/// A last request may take this long, even when the caller's time is over: one releases the lock in case an acquire without a
/// response was applied, and one gives up a place in line.
const LAST_REQUEST: Duration = Duration::from_millis(250);

/// A timer does not run while the process is frozen. So a longer pause is slept in parts, and ends in time afterwards.
const MAX_SLEEP: Duration = Duration::from_millis(500);

/// From this difference on, the SDK takes the wall clock as the reason why a signature was refused. DynamoDB accepts
/// signatures that are up to five minutes old.
const REFUSED_SIGNATURE: Duration = Duration::from_secs(4 * 60);

/// The port of one operation.
#[derive(Debug)]
pub(crate) struct EnginePort<'a> {
    engine: &'a Engine,
    deadline: &'a Deadline,
    transaction: Transaction<'a>,
    /// DynamoDB's clock in the last response.
    server: Option<ServerTime>,
    /// When this call first met a transaction with which DynamoDB was not done.
    met_transaction: Option<Instants>,
    /// A request of this call was refused, and its response showed that the wall clock is wrong by minutes.
    is_signed_anew: bool,
    /// A pause was cut because the wait was ended from outside. Pauses after that keep requests apart.
    is_pause_cut: bool,
    /// The last error that the SDK returned.
    cause: Option<BoxError>,
    report: Report,
}

impl<'a> EnginePort<'a> {
    /// Makes a call. If there are writes of the caller's, its requests are transactions with them.
    pub(crate) fn new(
        engine: &'a Engine,
        deadline: &'a Deadline,
        span: &Span,
        writes: &'a [TransactWriteItem],
    ) -> Self {
        Self {
            engine,
            deadline,
            transaction: Transaction::of(writes),
            server: None,
            met_transaction: None,
            is_signed_anew: false,
            is_pause_cut: false,
            cause: None,
            report: Report::begun(span, engine.operations_at_info),
        }
    }

    /// Ends the call. Returns the last error that the SDK returned, and what the call did.
    pub(crate) fn end(self) -> (Option<BoxError>, Report) {
        (self.cause, self.report)
    }

    fn note(&mut self, request: &Request) {
        match request.action {
            // It ends its lease by the wall clock, which must not be behind that end from then on.
            Action::Release { ends_at_ms, .. } => self.engine.wall_clock.released(ends_at_ms),
            Action::Claim { .. } => self.report.takes_over = false,
            Action::Take { held, .. } => self.report.takes_over = held,
            _ => {}
        }
    }

    /// A wall clock that is wrong by minutes makes DynamoDB refuse the signature. The SDK corrects its next signatures
    /// by the response, so the request is worth one more try.
    fn unless_signed_anew<T>(&mut self, reply: Reply<T>, received: Instants) -> Reply<T> {
        let is_wrong =
            |server: ServerTime| Duration::from_millis(server.millis).abs_diff(received.wall) > REFUSED_SIGNATURE;
        let is_refused =
            matches!(reply, Err(Fault::Rejected(Rejection::Denied(_)))) && self.server.is_some_and(is_wrong);
        if is_refused && !std::mem::replace(&mut self.is_signed_anew, true) { Err(Fault::Throttled) } else { reply }
    }

    /// Waits for the response as long as the caller's time allows. Corrects the wall clock by it.
    async fn exchange<'r, T>(
        &mut self,
        now: &Now,
        send: impl FnOnce(&'r dyn Transport) -> Responding<'r, T>,
    ) -> (Instants, Reply<T>)
    where
        'a: 'r,
    {
        self.report.requests += 1;
        let engine = self.engine;
        let patience = engine.request_timeout.min(now.time_left.max(LAST_REQUEST));
        let alarm = engine.clock.sleep(patience);
        let pool = engine.connections.pool();
        let sent = Timeout::new(send(&*engine.transport), alarm).instrument(self.report.span.clone());
        let response = sent.await.unwrap_or_else(|_| no_response_within(patience));
        let after = engine.clock.now();
        let server_time = response.server_time.and_then(epoch_millis);
        self.server = server_time.map(|millis| ServerTime { sent: now.instants, millis });
        if let Some(server) = self.server {
            self.report.clock_offset_millis = Some(engine.wall_clock.compare(server, after));
        }
        if matches!(response.reply, Err(Fault::Unknown)) && response.server_time.is_none() {
            engine.connections.no_response_from(pool);
        }
        if response.cause.as_ref().is_some_and(|cause| is_transaction_conflict(&**cause)) {
            self.met_transaction.get_or_insert(after);
        }
        // A response without an error does not hide an earlier error.
        self.cause = response.cause.or(self.cause.take());
        (after, self.unless_signed_anew(response.reply, after))
    }
}

impl Port for EnginePort<'_> {
    fn now(&mut self) -> Now {
        // Both clocks are read before the wall clock that is written, so that a pause in between makes a lease look
        // older, never younger.
        let instants = self.engine.clock.now();
        let wall = self.engine.wall_clock.reading(self.engine.clock.now());
        let now = self.deadline.at(instants, wall, self.engine.clock_bounds());
        let recovery_left = self.met_transaction.map(|since| self.deadline.recovery_left(since, instants));
        let time_left = now.time_left.max(recovery_left.unwrap_or_default());
        Now { server: self.server, time_left, ..now }
    }

    fn random(&mut self) -> [u8; 16] {
        self.engine.clock.random()
    }

    async fn write(&mut self, now: &Now, request: Request) -> (Instants, Reply<Written>) {
        self.note(&request);
        self.exchange(now, |transport| transport.write(&request)).await
    }

    async fn transact(&mut self, now: &Now, requests: Vec<Request>) -> (Instants, Reply<Transacted>) {
        requests.iter().for_each(|request| self.note(request));
        let items = match self.transaction.items(&self.engine.table, &self.engine.settings.schema, &requests) {
            Ok(items) => items,
            // No cause: the fault has its whole text.
            Err(error) => {
                let invalid = Rejection::Invalid(error.to_string());
                return (self.engine.clock.now(), Err(Fault::Rejected(invalid)));
            }
        };
        let (after, reply) = self.exchange(now, |transport| transport.transact(&requests, items)).await;
        if reply == Ok(Transacted::InProgress) {
            self.met_transaction.get_or_insert(after);
        }
        (after, reply)
    }

    async fn read(&mut self, now: &Now, key: LockKey) -> (Instants, Reply<Option<Item>>) {
        self.exchange(now, |transport| transport.read(&key)).await
    }

    async fn read_all(&mut self, now: &Now, keys: Vec<LockKey>) -> (Instants, Reply<Vec<RowRead>>) {
        self.exchange(now, |transport| transport.read_all(&keys)).await
    }

    async fn sleep(&mut self, now: &Now, pause: Duration) {
        self.report.waited += pause;
        let clock = &self.engine.clock;
        loop {
            // The process may have been frozen since it decided to pause.
            let left = pause.saturating_sub(clock.now().longest_since(now.instants));
            if left.is_zero() || self.deadline.is_wait_ended() && !std::mem::replace(&mut self.is_pause_cut, true) {
                return;
            }
            clock.sleep(left.min(MAX_SLEEP)).await;
        }
    }
}

fn epoch_millis(time: SystemTime) -> Option<u64> {
    u64::try_from(time.duration_since(UNIX_EPOCH).ok()?.as_millis()).ok()
}

fn no_response_within<T>(patience: Duration) -> Response<T> {
    Response::failed(Fault::Unknown, format!("no response within {patience:?}"))
}
