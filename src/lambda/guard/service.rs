//! The service: it acquires the lock, runs the handler, and releases the lock.

use super::error::LockServiceError;
use super::settings::Settings;
use super::when_held::WhenHeld;
use crate::engine::error::Error;
use crate::lock::guard::Lock;
use crate::lock::terms::Tried;
use lambda_lock_protocol::{LockKey, SavedLock};
use lambda_runtime::{Context, LambdaEvent};
use std::fmt;
use std::pin::Pin;
use std::task::{self, Poll};
use tower::Service;

/// A handler under a lock, made by [`LockLayer`](super::LockLayer).
#[derive(Clone)]
pub struct LockService<S, K, H> {
    inner: S,
    settings: Settings,
    key: K,
    when_held: H,
}

/// An event, and the lock that is held while the event is handled.
#[derive(Clone, Debug)]
pub struct Locked<A> {
    /// The event's payload.
    pub payload: A,
    /// The grant. Everything that the handler writes should carry its [`fencing_token`](SavedLock::fencing_token).
    /// [Resume](crate::LockClient::resume) it to get a guard for checkpoints.
    pub grant: SavedLock,
}

impl<S, K, H> LockService<S, K, H> {
    pub(super) fn new(inner: S, settings: Settings, key: K, when_held: H) -> Self {
        Self { inner, settings, key, when_held }
    }
}

impl<S, K, H, A> Service<LambdaEvent<A>> for LockService<S, K, H>
where
    S: Service<LambdaEvent<Locked<A>>> + Clone + Send + 'static,
    S::Future: Send,
    S::Response: Send,
    S::Error: Send,
    K: Fn(&A) -> LockKey,
    H: WhenHeld<S::Response> + Clone + Send + 'static,
    A: Send + 'static,
{
    type Response = S::Response;
    type Error = LockServiceError<S::Error>;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut task::Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(context).map_err(LockServiceError::Handler)
    }

    fn call(&mut self, event: LambdaEvent<A>) -> Self::Future {
        // The service that was polled ready handles this call, and its clone takes its place.
        let clone = self.inner.clone();
        let mut inner = std::mem::replace(&mut self.inner, clone);
        let (settings, when_held) = (self.settings.clone(), self.when_held.clone());
        let LambdaEvent { payload, context, .. } = event;
        let key = (self.key)(&payload);
        Box::pin(async move {
            let lock = match acquire(&settings, key, &context).await {
                Ok(lock) => lock,
                Err(error) => return refused(error, &when_held),
            };
            let locked = Locked { payload, grant: lock.to_saved() };
            // Called at its first poll, and so only while the lock is ours.
            let handled = async { inner.call(LambdaEvent::new(locked, context)).await };
            let held = lock.held;
            let handled = if settings.is_cut { held.watch().run(handled).await } else { Some(handled.await) };
            match handled {
                Some(Ok(answer)) => held.finish_work().await.map(|()| answer).map_err(LockServiceError::Lock),
                Some(Err(error)) => {
                    held.finish().await;
                    Err(LockServiceError::Handler(error))
                }
                None => Err(LockServiceError::Lock(held.cut_short().await)),
            }
        })
    }
}

async fn acquire(settings: &Settings, key: LockKey, context: &Context) -> Result<Lock, Error> {
    let (locks, budget) = (settings.locks(context)?, settings.budget(context));
    if settings.waits {
        return locks.acquire(key).within(&budget).await;
    }
    match locks.acquire(key).within(&budget).try_once().await? {
        Tried::Granted(lock) => Ok(lock),
        Tried::Refused(refusal) => Err(Error::refused(vec![refusal], 1)),
    }
}

fn refused<R, E>(error: Error, when_held: &impl WhenHeld<R>) -> Result<R, LockServiceError<E>> {
    error.refusal().and_then(|refusal| when_held.answer(refusal)).ok_or(LockServiceError::Lock(error))
}

impl<S, K, H> fmt::Debug for LockService<S, K, H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockService").field("settings", &self.settings).finish_non_exhaustive()
    }
}
