//! The layer: which lock to acquire, how long to wait, and what to return when another caller holds it.

use super::service::LockService;
use super::settings::Settings;
use super::when_held::Refuse;
use crate::client::LockClient;
use crate::engine::error::Refusal;
use lambda_lock_protocol::LockKey;
use std::fmt;
use std::time::Duration;
use tower::Layer;

/// Runs a whole handler under a lock whose key comes from the event.
///
/// The lock is acquired within the invocation's [budget](crate::Budget), so its lease covers the invocation and its
/// grace, and the handler need not renew it. The lock is released when the handler has succeeded or failed. An event
/// that is delivered again is handled again. The handler gets its event as [`Locked`](super::Locked), together with the
/// grant. What the handler writes should carry the fencing token.
///
/// | setting | default | why |
/// |---|---|---|
/// | [`grace`](LockLayer::grace) | 1 s | Lambda stops a function after its deadline |
/// | [`reserve`](LockLayer::reserve) | half of the invocation | as much time for the handler as for waiting |
/// | [`without_waiting`](LockLayer::without_waiting) | waits | most events should be handled, not refused |
/// | [`when_held`](LockLayer::when_held) | error `LockHeld` | the caller of the function retries |
/// | [`per_tenant`](LockLayer::per_tenant) | one lock for all tenants | most functions have no tenants |
/// | [`without_cut`](LockLayer::without_cut) | the handler is dropped when its lease ends | another caller may be granted the lock from then on |
///
/// ```no_run
/// use lambda_lock::LockClient;
/// use lambda_lock::lambda::{LockLayer, Locked};
/// use lambda_runtime::{Error, LambdaEvent, service_fn};
/// use tower::Layer;
///
/// # #[derive(serde::Deserialize)]
/// struct Order {
///     order_id: String,
/// }
///
/// async fn handler(event: LambdaEvent<Locked<Order>>) -> Result<String, Error> {
///     let Locked { payload, grant } = event.payload;
///     Ok(format!("{} is ours under token {}", payload.order_id, grant.fencing_token()))
/// }
///
/// # async fn example(locks: LockClient) -> Result<(), Error> {
/// let guard = LockLayer::new(locks, |order: &Order| order.order_id.as_str().into())
///     .when_held(|held| format!("{} is at it already", held.holder));
/// lambda_runtime::run(guard.layer(service_fn(handler))).await
/// # }
/// ```
///
/// # Errors
/// Returns the errors of [`acquire`](LockClient::acquire) as [`LockServiceError::Lock`](super::LockServiceError), and
/// the errors of the handler. Each error leaves the function under its [name](super::super::error_type), including a
/// lock's error that the handler returns in a box. An empty key is `InvalidRequest`, and so is a context without a
/// deadline, and with [`per_tenant`](LockLayer::per_tenant) one without a tenant. Returns `CutShort` when the lease ended
/// while the handler ran, and the handler was dropped at that point.
/// Returns `Lost` when the handler succeeded, but its lock was lost meanwhile. A release that fails is logged as a
/// warning, because the lease frees the lock.
///
/// # Requests and IAM actions
/// It sends the requests of acquire and release: two `UpdateItem` when nobody else holds the lock, and `GetItem` while
/// it waits.
///
/// # Cancel safety
/// If the future is dropped, or the handler panics, the lock stays held until its lease ends. The lease ends after the
/// invocation, its grace, and [5 %](crate::LockClientBuilder::clock_drift) of both. A function that was killed at a
/// timeout of 15 minutes holds the lock for about 48 s more: 1 s of grace, 45 s of drift, and the 2 s that [wall
/// clocks](crate::LockClientBuilder::max_clock_skew) may differ.
#[derive(Clone)]
pub struct LockLayer<K, H = Refuse> {
    settings: Settings,
    key: K,
    when_held: H,
}

impl<K> LockLayer<K> {
    /// Runs handlers of events of type `A` under the lock that `key` names.
    pub fn new<A>(locks: LockClient, key: K) -> Self
    where
        K: Fn(&A) -> LockKey,
    {
        Self { settings: Settings::new(locks), key, when_held: Refuse }
    }
}

impl<K, H> LockLayer<K, H> {
    /// Sets what to return, instead of the error `LockHeld`, when another caller held the lock for the whole waiting
    /// time. The handler does not run.
    pub fn when_held<R, F: Fn(&Refusal) -> R>(self, answer: F) -> LockLayer<K, F> {
        let Self { settings, key, when_held: _ } = self;
        LockLayer { settings, key, when_held: answer }
    }

    /// Tries once. Default: it waits for the lock until only the [`reserve`](LockLayer::reserve) is left of the
    /// invocation.
    #[must_use]
    pub fn without_waiting(mut self) -> Self {
        self.settings.waits = false;
        self
    }

    /// Sets the budget's [`grace`](crate::Budget::grace). Default: 1 s.
    #[must_use]
    pub fn grace(mut self, grace: Duration) -> Self {
        self.settings.grace = Some(grace);
        self
    }

    /// Sets the budget's [`reserve`](crate::Budget::reserve), the time that the handler needs. Default: half
    /// of the invocation.
    #[must_use]
    pub fn reserve(mut self, reserve: Duration) -> Self {
        self.settings.reserve = Some(reserve);
        self
    }

    /// Acquires a lock of its own for each tenant: its key begins with the [prefix](super::super::tenant_prefix) of the
    /// invocation's tenant. Default: no prefix. An invocation without a tenant is refused as `InvalidRequest`, and no
    /// request is sent. Every client of this table can resume the grant in [`Locked`](super::Locked), except one with
    /// another prefix.
    #[must_use]
    pub fn per_tenant(mut self) -> Self {
        self.settings.per_tenant = true;
        self
    }

    /// Lets the handler continue when its lease has ended. Default: the handler is dropped at that point, because
    /// another caller may be granted the lock from then on. Use this for a handler whose writes are fenced. When it has
    /// succeeded and its lock was lost meanwhile, the error is `Lost`.
    ///
    /// The layer does not see when the handler resumes the grant and renews it. Within the invocation's budget such a
    /// renewal reaches no further than the layer's own lease, so the default stops no handler too early.
    #[must_use]
    pub fn without_cut(mut self) -> Self {
        self.settings.is_cut = false;
        self
    }
}

impl<S, K: Clone, H: Clone> Layer<S> for LockLayer<K, H> {
    type Service = LockService<S, K, H>;

    fn layer(&self, inner: S) -> Self::Service {
        LockService::new(inner, self.settings.clone(), self.key.clone(), self.when_held.clone())
    }
}

impl<K, H> fmt::Debug for LockLayer<K, H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockLayer").field("settings", &self.settings).finish_non_exhaustive()
    }
}
