//! An operation as steps, for whoever cannot await it: the host of a WebAssembly component, an exhaustive model.
//!
//! ```text
//! step(now) → Send(request) → answered(after, answer) → step(now) → …
//!           → Wait(pause)   → step(now), once the time has passed
//!           → Done(result)
//! ```

use super::instants::Instants;
use super::port::{Answer, Now, Port};
use super::request::Request;
use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// What an operation wants its driver to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step<T> {
    /// Send this request, once.
    Send(Request),
    /// Let this much time pass.
    Wait(Duration),
    /// Nothing more: this is the result.
    Done(T),
}

/// An operation that is driven step by step.
pub struct Steps<T> {
    driven: Driven,
    operation: Pin<Box<dyn Future<Output = T>>>,
}

impl<T> Steps<T> {
    /// Makes steps of an operation, which is given its port. It may wait for that port alone.
    pub fn new<F: Future<Output = T> + 'static>(operation: impl FnOnce(Driven) -> F) -> Self {
        let driven = Driven(Arc::new(Mutex::new(Exchange::default())));
        let operation = Box::pin(operation(driven.clone()));
        Self { driven, operation }
    }

    /// Goes on until the next request or pause. `random` is asked for random bytes during this step.
    pub fn step(&mut self, now: Now, random: impl FnMut() -> [u8; 16] + Send + 'static) -> Step<T> {
        {
            let mut exchange = self.driven.exchange();
            exchange.now = Some(now);
            exchange.random = Some(Box::new(random));
        }
        let polled = self.operation.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        let Exchange { request, pause, .. } = &mut *self.driven.exchange();
        match (polled, request.take(), pause.take()) {
            (Poll::Ready(result), ..) => Step::Done(result),
            (Poll::Pending, Some(request), _) => Step::Send(request),
            (Poll::Pending, None, pause) => Step::Wait(pause.unwrap_or_default()),
        }
    }

    /// What came back for the request that was sent last. `after` was read after the answer arrived.
    pub fn answered(&mut self, after: Instants, answer: Answer) {
        self.driven.exchange().answer = Some((after, answer));
    }
}

impl<T> fmt::Debug for Steps<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Steps").finish_non_exhaustive()
    }
}

/// The port of an operation that is driven step by step.
#[derive(Clone)]
pub struct Driven(Arc<Mutex<Exchange>>);

/// What goes in with a step, and what comes out of it.
#[derive(Default)]
struct Exchange {
    now: Option<Now>,
    random: Option<Box<dyn FnMut() -> [u8; 16] + Send>>,
    request: Option<Request>,
    pause: Option<Duration>,
    answer: Option<(Instants, Answer)>,
}

impl Driven {
    fn exchange(&self) -> MutexGuard<'_, Exchange> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Port for Driven {
    fn now(&mut self) -> Now {
        // An operation only runs within a step, which has brought it.
        self.exchange().now.unwrap_or_default()
    }

    fn random(&mut self) -> [u8; 16] {
        self.exchange().random.as_mut().map(|random| random()).unwrap_or_default()
    }

    async fn send(&mut self, request: Request) -> (Instants, Answer) {
        self.exchange().request = Some(request);
        poll_fn(|_| self.exchange().answer.take().map_or(Poll::Pending, Poll::Ready)).await
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
