//! Over which connections a request may go.
//!
//! What is between a function and DynamoDB, such as a proxy, may drop idle connections while the function is frozen, and tell
//! nobody. A request over such a connection costs a whole timeout. The SDK's HTTP client would send the next request over the
//! next idle connection, which may be as dead. So after a request without a response, requests go over connections that were
//! opened since.
//!
//! The HTTP client keeps a pool of connections for each pair of a connect and a read timeout, so a connect timeout that is a
//! nanosecond longer means another pool. An HTTP client that does not care is asked as before.

use super::error::BoxError;
use aws_sdk_dynamodb::config::timeout::TimeoutConfig;
use aws_sdk_dynamodb::config::{Intercept, RuntimeComponents};
use aws_smithy_runtime_api::client::interceptors::context::BeforeTransmitInterceptorContextRef;
use aws_smithy_runtime_api::client::interceptors::dyn_dispatch_hint;
use aws_smithy_types::config_bag::ConfigBag;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// How many pools there are. When all were used, the first one is used again: its idle connections have expired.
const POOLS: u64 = 4;

/// The connect timeout where there is none. No request waits for that long.
const NO_TIMEOUT: Duration = Duration::from_secs(60 * 60);

/// The pool of connections that requests use now. Clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Connections(Arc<AtomicU64>);

impl Connections {
    /// The number of the pool that requests use now.
    pub(crate) fn pool(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// Uses new connections after a request over this pool had no response. Of several requests over one pool, the first one
    /// counts.
    pub(crate) fn no_response_from(&self, pool: u64) {
        let _ = self.0.compare_exchange(pool, pool.wrapping_add(1), Ordering::Relaxed, Ordering::Relaxed);
    }
}

#[dyn_dispatch_hint]
impl Intercept for Connections {
    fn name(&self) -> &'static str {
        "LockConnections"
    }

    fn read_before_transmit(
        &self,
        _: &BeforeTransmitInterceptorContextRef<'_>,
        _: &RuntimeComponents,
        config: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        let longer = Duration::from_nanos(self.pool() % POOLS);
        if !longer.is_zero()
            && let Some(timeouts) = config.load::<TimeoutConfig>()
        {
            let connect = timeouts.connect_timeout().unwrap_or(NO_TIMEOUT).saturating_add(longer);
            let timeouts: TimeoutConfig = timeouts.to_builder().connect_timeout(connect).build();
            config.interceptor_state().store_put(timeouts);
        }
        Ok(())
    }
}
