//! Runs an operation step by step, for a driver that cannot await it, such as the host of a WebAssembly component or
//! an exhaustive model.
//!
//! ```text
//! step(now) → Send(request)          → answered(after, answer) → step(now) → …
//!           → SendTogether(requests) → the same
//!           → ReadAll(keys)          → the same
//!           → Wait(pause)            → step(now), once the time has passed
//!           → Done(result)
//! ```

use super::instants::Instants;
use super::key::LockKey;
use super::port::{Answer, Now, Port};
use super::request::Request;
use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// What the driver does next for an operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step<T> {
    /// Send this request once.
    Send(Request),
    /// Send these requests once, in one transaction.
    SendTogether(Vec<Request>),
    /// Read these rows once.
    ReadAll(Vec<LockKey>),
    /// Wait for this long.
    Wait(Duration),
    /// Stop. This is the result.
    Done(T),
}

/// An operation that runs step by step.
pub struct Steps<T> {
    driven: Driven,
    operation: Pin<Box<dyn Future<Output = T>>>,
}

impl<T> Steps<T> {
    /// Makes an operation that runs step by step. The operation is given its port, and may wait for nothing else.
    pub fn new<F: Future<Output = T> + 'static>(operation: impl FnOnce(Driven) -> F) -> Self {
        let driven = Driven(Arc::new(Mutex::new(Exchange::default())));
        let operation = Box::pin(operation(driven.clone()));
        Self { driven, operation }
    }

    /// Runs the operation until its next request, pause or result. `random` returns random bytes during this step.
    pub fn step(&mut self, now: Now, random: impl FnMut() -> [u8; 16] + Send + 'static) -> Step<T> {
        {
            let mut exchange = self.driven.exchange();
            exchange.now = Some(now);
            exchange.random = Some(Box::new(random));
        }
        let polled = self.operation.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        let Exchange { sent, pause, .. } = &mut *self.driven.exchange();
        match (polled, sent.take(), pause.take()) {
            (Poll::Ready(result), ..) => Step::Done(result),
            (Poll::Pending, Some(Sent::Alone(request)), _) => Step::Send(request),
            (Poll::Pending, Some(Sent::Together(requests)), _) => Step::SendTogether(requests),
            (Poll::Pending, Some(Sent::Read(keys)), _) => Step::ReadAll(keys),
            (Poll::Pending, None, pause) => Step::Wait(pause.unwrap_or_default()),
        }
    }

    /// Gives the operation the response to its last request. `after` was read after the response arrived.
    pub fn answered(&mut self, after: Instants, answer: Answer) {
        self.driven.exchange().answer = Some((after, answer));
    }
}

impl<T> fmt::Debug for Steps<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Steps").finish_non_exhaustive()
    }
}

/// The port of an operation that runs step by step.
#[derive(Clone)]
pub struct Driven(Arc<Mutex<Exchange>>);

/// The input and the output of a step.
#[derive(Default)]
struct Exchange {
    now: Option<Now>,
    random: Option<Box<dyn FnMut() -> [u8; 16] + Send>>,
    sent: Option<Sent>,
    pause: Option<Duration>,
    answer: Option<(Instants, Answer)>,
}

enum Sent {
    Alone(Request),
    Together(Vec<Request>),
    Read(Vec<LockKey>),
}

impl Driven {
    async fn answer_to(&mut self, sent: Sent) -> (Instants, Answer) {
        self.exchange().sent = Some(sent);
        poll_fn(|_| self.exchange().answer.take().map_or(Poll::Pending, Poll::Ready)).await
    }

    fn exchange(&self) -> MutexGuard<'_, Exchange> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Port for Driven {
    fn now(&mut self) -> Now {
        // An operation only runs within a step, and each step sets the clocks first.
        self.exchange().now.unwrap_or_default()
    }

    fn random(&mut self) -> [u8; 16] {
        self.exchange().random.as_mut().map(|random| random()).unwrap_or_default()
    }

    async fn send(&mut self, request: Request) -> (Instants, Answer) {
        self.answer_to(Sent::Alone(request)).await
    }

    async fn send_together(&mut self, requests: Vec<Request>) -> (Instants, Answer) {
        self.answer_to(Sent::Together(requests)).await
    }

    async fn read_all(&mut self, keys: Vec<LockKey>) -> (Instants, Answer) {
        self.answer_to(Sent::Read(keys)).await
    }

    async fn sleep(&mut self, pause: Duration) {
        self.exchange().pause = Some(pause);
        let mut waited = false;
        poll_fn(|_| if std::mem::replace(&mut waited, true) { Poll::Ready(()) } else { Poll::Pending }).await;
    }
}

impl fmt::Debug for Driven {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Driven")
    }
}
