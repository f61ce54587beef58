//! The one seam between decisions and the world: a typed request in, a typed answer out.

use super::error::BoxError;
use super::extra::Extra;
use crate::protocol::{Answer, Request};
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::time::SystemTime;

/// Sends one request, once, and says what is known afterwards. No retries: the decisions know what
/// an attempt of unknown outcome means, and what to ask next.
pub(crate) trait Transport: fmt::Debug + Send + Sync {
    /// `extra` sends what is neither a read nor an update, and has the caller's own writes for a request that
    /// is part of a [transaction](Request::transaction).
    fn send<'a>(
        &'a self,
        request: &'a Request,
        extra: &'a dyn Extra,
    ) -> Pin<Box<dyn Future<Output = Response> + Send + 'a>>;
}

/// What came back.
#[derive(Debug)]
pub(crate) struct Response {
    pub(crate) answer: Answer,
    /// The server's clock, from the `Date` header.
    pub(crate) server_time: Option<SystemTime>,
    /// What the SDK said, when it was no success.
    pub(crate) cause: Option<BoxError>,
}
