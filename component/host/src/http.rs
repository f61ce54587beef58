//! `wasi:http` for components: over connections that are kept, as an SDK keeps them. What wasmtime
//! brings along connects for each request.

use http_body_util::BodyExt;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use std::fmt;
use tokio::time::timeout;
use wasmtime_wasi_http::p2::bindings::http::types::ErrorCode;
use wasmtime_wasi_http::p2::body::HyperOutgoingBody;
use wasmtime_wasi_http::p2::types::{HostFutureIncomingResponse, IncomingResponse, OutgoingRequestConfig};
use wasmtime_wasi_http::p2::{HttpResult, WasiHttpHooks, hyper_request_error};

type Body = http_body_util::combinators::UnsyncBoxBody<hyper::body::Bytes, Broken>;

/// Connections that are kept.
pub struct Connections(Client<HttpConnector, Body>);

impl Connections {
    pub fn new() -> Self {
        let mut connector = HttpConnector::new();
        // Head and body are written apart: without this the second waits 40 ms for the first's receipt.
        connector.set_nodelay(true);
        // A request that is repeated unseen is an attempt of unknown outcome: the lock repeats by itself.
        Self(Client::builder(TokioExecutor::new()).retry_canceled_requests(false).build(connector))
    }
}

impl WasiHttpHooks for Connections {
    fn send_request(
        &mut self,
        request: hyper::Request<HyperOutgoingBody>,
        config: OutgoingRequestConfig,
    ) -> HttpResult<HostFutureIncomingResponse> {
        if config.use_tls {
            let no_tls = ErrorCode::InternalError(Some("this host speaks plain HTTP: give an http:// endpoint".into()));
            return Ok(HostFutureIncomingResponse::ready(Ok(Err(no_tls))));
        }
        let answer = self.0.request(request.map(|body| body.map_err(Broken).boxed_unsync()));
        let handle = wasmtime_wasi::runtime::spawn(async move {
            let Ok(answer) = timeout(config.first_byte_timeout, answer).await else {
                return Ok(Err(ErrorCode::ConnectionReadTimeout));
            };
            let Ok(answer) = answer else { return Ok(Err(ErrorCode::ConnectionTerminated)) };
            let resp = answer.map(|body| body.map_err(hyper_request_error).boxed_unsync());
            let between_bytes_timeout = config.between_bytes_timeout;
            Ok(Ok(IncomingResponse { resp, worker: None, between_bytes_timeout }))
        });
        Ok(HostFutureIncomingResponse::pending(handle))
    }
}

/// A request's body that ended early, as an error that hyper takes.
#[derive(Debug)]
struct Broken(ErrorCode);

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.0)
    }
}

impl std::error::Error for Broken {}
