//! The Runtime API of one process: `next`, `response`, `error` and `init/error`. Each request becomes a
//! call that the environment handles.

use anyhow::Context;
use axum::Router;
use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, Path, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use serde::Deserialize;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

/// The header that tells apart two deliveries with one request id.
const INVOCATION_ID: &str = "lambda-runtime-invocation-id";

/// A request of the process.
#[derive(Debug)]
pub(super) enum Call {
    /// The process asks for an invocation.
    Next(oneshot::Sender<Delivery>),
    /// The process returned the response to an invocation.
    Answered { to: To, answer: Bytes, accept: oneshot::Sender<Accepted> },
    /// The process reported a failed invocation.
    Failed { to: To, failure: Failure, accept: oneshot::Sender<Accepted> },
    /// The process cannot handle invocations.
    InitFailed(Failure),
}

/// The invocation that a response belongs to.
#[derive(Debug)]
pub(super) struct To {
    pub(super) request_id: String,
    /// The id of the delivery. Runtimes that do not know this header do not send it back.
    pub(super) invocation_id: Option<String>,
}

/// Whether a response belongs to an invocation in progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Accepted {
    Yes,
    UnknownRequest,
    /// The caller was told before that the deadline has passed.
    TooLate,
    /// The caller was told that the response is too large.
    TooLarge,
}

/// An invocation, as it is delivered to the process.
#[derive(Debug)]
pub(super) struct Delivery {
    pub(super) request_id: String,
    /// Another one for each delivery, also of the same request.
    pub(super) invocation_id: String,
    pub(super) deadline_ms: u128,
    pub(super) arn: String,
    /// In tenant isolation mode.
    pub(super) tenant: Option<String>,
    pub(super) payload: String,
}

/// An error, as a function reports it.
#[derive(Debug)]
pub(super) struct Failure {
    pub(super) error_type: String,
    pub(super) message: String,
}

/// Serves one process until it is dropped.
#[derive(Debug)]
pub(super) struct RuntimeApi {
    address: String,
    calls: mpsc::UnboundedReceiver<Call>,
    serving: JoinHandle<()>,
}

impl RuntimeApi {
    /// Serves these routes as well.
    pub(super) async fn serve(more: impl FnOnce(mpsc::UnboundedSender<Call>) -> Router) -> anyhow::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await.context("there is no free loopback port")?;
        let address = listener.local_addr()?.to_string();
        let (call, calls) = mpsc::unbounded_channel();
        let more = more(call.clone());
        let invocation = "/2018-06-01/runtime/invocation";
        let router = Router::new()
            .route(&format!("{invocation}/next"), get(next))
            .route(&format!("{invocation}/{{id}}/response"), post(response))
            .route(&format!("{invocation}/{{id}}/error"), post(error))
            .route("/2018-06-01/runtime/init/error", post(init_error))
            // The environment checks the size of a response.
            .layer(DefaultBodyLimit::disable())
            .with_state(call)
            .merge(more);
        let serving = tokio::spawn(async move {
            // This ends only when it is aborted.
            let _ = axum::serve(listener, router).await;
        });
        Ok(Self { address, calls, serving })
    }

    /// The address for `AWS_LAMBDA_RUNTIME_API`.
    pub(super) fn address(&self) -> &str {
        &self.address
    }

    pub(super) async fn call(&mut self) -> Call {
        match self.calls.recv().await {
            Some(call) => call,
            // This does not happen: the server holds the other half as long as this value lives.
            None => std::future::pending().await,
        }
    }
}

impl Drop for RuntimeApi {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

type Calls = State<mpsc::UnboundedSender<Call>>;

async fn next(State(calls): Calls) -> Response {
    let (deliver, delivered) = oneshot::channel();
    if calls.send(Call::Next(deliver)).is_err() {
        return StatusCode::GONE.into_response();
    }
    match delivered.await {
        Ok(delivery) => delivery.into_response(),
        Err(_) => refused(StatusCode::FORBIDDEN, "InvalidStateTransition", "an invocation is under way"),
    }
}

async fn response(State(calls): Calls, Path(request_id): Path<String>, headers: HeaderMap, answer: Bytes) -> Response {
    let (accept, accepted) = oneshot::channel();
    said(&calls, Call::Answered { to: To::read(request_id, &headers), answer, accept }, accepted).await
}

async fn error(State(calls): Calls, Path(request_id): Path<String>, headers: HeaderMap, body: Bytes) -> Response {
    let (accept, accepted) = oneshot::channel();
    let (to, failure) = (To::read(request_id, &headers), Failure::read(&headers, &body));
    said(&calls, Call::Failed { to, failure, accept }, accepted).await
}

async fn init_error(State(calls): Calls, headers: HeaderMap, body: Bytes) -> Response {
    match calls.send(Call::InitFailed(Failure::read(&headers, &body))) {
        Ok(()) => accepted(),
        Err(_) => StatusCode::GONE.into_response(),
    }
}

async fn said(calls: &mpsc::UnboundedSender<Call>, call: Call, answer: oneshot::Receiver<Accepted>) -> Response {
    let sent = calls.send(call);
    match (sent, answer.await) {
        (Ok(()), Ok(accepted)) => accepted.response(),
        _ => StatusCode::GONE.into_response(),
    }
}

impl Accepted {
    /// What the process is told.
    pub(super) fn response(self) -> Response {
        match self {
            Self::Yes => accepted(),
            Self::UnknownRequest => {
                refused(StatusCode::BAD_REQUEST, "InvalidRequestID", "no such invocation is under way")
            }
            Self::TooLate => {
                let message = "the invocation timed out before it was answered";
                refused(StatusCode::GONE, "ErrorRuntimeInvokeTimeout", message)
            }
            Self::TooLarge => {
                refused(StatusCode::PAYLOAD_TOO_LARGE, "RequestEntityTooLarge", "the response is larger than 6 MB")
            }
        }
    }
}

pub(super) fn accepted() -> Response {
    (StatusCode::ACCEPTED, [(header::CONTENT_TYPE, "application/json")], r#"{"status":"OK"}"#).into_response()
}

fn refused(status: StatusCode, error_type: &str, message: &str) -> Response {
    let body = serde_json::json!({ "errorType": error_type, "errorMessage": message }).to_string();
    (status, [(header::CONTENT_TYPE, "application/json")], body).into_response()
}

impl IntoResponse for Delivery {
    fn into_response(self) -> Response {
        let headers = [
            ("content-type", "application/json".to_owned()),
            ("lambda-runtime-aws-request-id", self.request_id),
            (INVOCATION_ID, self.invocation_id),
            ("lambda-runtime-deadline-ms", self.deadline_ms.to_string()),
            ("lambda-runtime-invoked-function-arn", self.arn),
            ("lambda-runtime-trace-id", "Root=1-00000000-000000000000000000000000;Sampled=0".to_owned()),
        ];
        let tenant = self.tenant.map(|tenant| [("lambda-runtime-aws-tenant-id", tenant)]);
        match tenant {
            Some(tenant) => (headers, tenant, self.payload).into_response(),
            None => (headers, self.payload).into_response(),
        }
    }
}

impl To {
    fn read(request_id: String, headers: &HeaderMap) -> Self {
        let invocation_id = headers.get(INVOCATION_ID).and_then(|id| id.to_str().ok()).map(str::to_owned);
        Self { request_id, invocation_id }
    }
}

impl Failure {
    /// Reads the failure from the body, or from the header if the body has none.
    pub(super) fn read(headers: &HeaderMap, body: &[u8]) -> Self {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Body {
            error_type: String,
            #[serde(default)]
            error_message: String,
        }
        match serde_json::from_slice(body) {
            Ok(Body { error_type, error_message }) => Self { error_type, message: error_message },
            Err(_) => {
                let named = headers.get("lambda-runtime-function-error-type").and_then(|name| name.to_str().ok());
                let error_type = named.unwrap_or("Runtime.Unknown").to_owned();
                Self { error_type, message: String::from_utf8_lossy(body).into_owned() }
            }
        }
    }
}
