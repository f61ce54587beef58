//! Runs an operation step by step, for a driver that cannot await it, such as the host of a WebAssembly component or
//! an exhaustive model.
//!
//! ```text
//! step(now) → Send(request) → answered(after, answer) → step(now) → …
//!           → Wait(pause)   → step(now), once the time has passed
//!           → Done(result)
//! ```

use super::instants::Instants;
use super::key::LockKey;
use super::port::{Now, Port};
use super::reply::{Fault, Reply, RowRead, Transacted, Written};
use super::request::Request;
use super::value::Item;
use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// What the driver does next for an operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step<T> {
    /// Send this once.
    Send(Sent),
    /// Wait for this long.
    Wait(Duration),
    /// Stop. This is the result.
    Done(T),
}

/// A request of any kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sent {
    /// A write that goes alone.
    Write(Request),
    /// The writes of the locks in one transaction.
    Transaction(Vec<Request>),
    /// A read of one row.
    Read(LockKey),
    /// A read of several rows.
    ReadAll(Vec<LockKey>),
}

/// The response to a request of any kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    Written(Written),
    Transacted(Transacted),
    Read(Option<Item>),
    ReadAll(Vec<RowRead>),
    Fault(Fault),
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
            (Poll::Pending, Some(sent), _) => Step::Send(sent),
            (Poll::Pending, None, pause) => Step::Wait(pause.unwrap_or_default()),
        }
    }

    /// Gives the operation the response to its last request. `after` was read after the response arrived. An answer of another
    /// kind than the request says nothing about it.
    pub fn answered(&mut self, after: Instants, answer: Answer) {
        self.driven.exchange().answer = Some((after, answer));
    }
}

impl Answer {
    /// The reply to a write.
    pub fn written(self) -> Reply<Written> {
        match self {
            Answer::Written(written) => Ok(written),
            other => Err(other.fault()),
        }
    }

    /// The reply to a transaction.
    pub fn transacted(self) -> Reply<Transacted> {
        match self {
            Answer::Transacted(transacted) => Ok(transacted),
            other => Err(other.fault()),
        }
    }

    /// The reply to a read of one row.
    pub fn read(self) -> Reply<Option<Item>> {
        match self {
            Answer::Read(row) => Ok(row),
            other => Err(other.fault()),
        }
    }

    /// The reply to a read of several rows.
    pub fn read_all(self) -> Reply<Vec<RowRead>> {
        match self {
            Answer::ReadAll(rows) => Ok(rows),
            other => Err(other.fault()),
        }
    }

    fn fault(self) -> Fault {
        match self {
            Answer::Fault(fault) => fault,
            Answer::Written(_) | Answer::Transacted(_) | Answer::Read(_) | Answer::ReadAll(_) => Fault::Unknown,
        }
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

impl Driven {
    async fn answer_to<T>(&mut self, sent: Sent, reply: fn(Answer) -> Reply<T>) -> (Instants, Reply<T>) {
        self.exchange().sent = Some(sent);
        let (after, answer) = poll_fn(|_| self.exchange().answer.take().map_or(Poll::Pending, Poll::Ready)).await;
        (after, reply(answer))
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

    async fn write(&mut self, _: &Now, request: Request) -> (Instants, Reply<Written>) {
        self.answer_to(Sent::Write(request), Answer::written).await
    }

    async fn transact(&mut self, _: &Now, requests: Vec<Request>) -> (Instants, Reply<Transacted>) {
        self.answer_to(Sent::Transaction(requests), Answer::transacted).await
    }

    async fn read(&mut self, _: &Now, key: LockKey) -> (Instants, Reply<Option<Item>>) {
        self.answer_to(Sent::Read(key), Answer::read).await
    }

    async fn read_all(&mut self, _: &Now, keys: Vec<LockKey>) -> (Instants, Reply<Vec<RowRead>>) {
        self.answer_to(Sent::ReadAll(keys), Answer::read_all).await
    }

    async fn sleep(&mut self, _: &Now, pause: Duration) {
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
