//! The router between the engine and the functions. It records requests and responses, and can lose
//! responses.

use crate::lambda::Lambda;
use anyhow::Context;
use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Json, Router as Routes};
use http_body_util::{BodyExt, Full};
use hyper::Request;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde_json::{Value, json};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;
use tokio::net::TcpListener;
use tokio::sync::{oneshot, watch};

/// One invocation by a state machine.
#[derive(Clone, Debug)]
pub struct Asked {
    /// The name of the function.
    pub function: String,
    /// The request.
    pub request: Value,
    /// The response, or `errorType` and `errorMessage`.
    pub answer: Value,
    /// When the request was sent.
    pub began: Instant,
    /// When the response was there.
    pub ended: Instant,
    /// Whether the response was lost, so that the state machine did not get it.
    pub lost: bool,
}

/// What a state machine gets instead of a function's response.
#[derive(Clone, Debug)]
pub enum Instead {
    /// This response. The function is not invoked.
    Answer(Value),
    /// A failure of a function with this name. The function is not invoked.
    Failure(&'static str),
    /// An error of Lambda itself, such as `TooManyRequestsException`. The function is not invoked.
    Refusal(&'static str),
    /// An error of Lambda itself, after the function has done its work.
    Lost(&'static str),
}

/// Where a [`Router`] holds an invocation back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Before {
    /// Before the function gets the request.
    Request,
    /// Before the state machine gets the response. The function has done its work.
    Response,
}

/// Invocations that a [`Router`] holds back. They go on when this is dropped.
#[derive(Debug)]
pub struct Held {
    arrived: watch::Receiver<usize>,
    /// Dropping it lets them go on.
    _gate: watch::Sender<()>,
}

impl Held {
    /// Waits until so many invocations have been held back.
    ///
    /// # Panics
    /// Panics if the router has ended.
    pub async fn until(&mut self, invocations: usize) {
        let enough = self.arrived.wait_for(|arrived| *arrived >= invocations).await;
        assert!(enough.is_ok(), "the router has ended");
    }
}

/// Which invocations are held back, and where.
struct Hold {
    before: Before,
    holds: Box<Matches>,
    arrived: watch::Sender<usize>,
    /// It is closed when they go on.
    gate: watch::Receiver<()>,
}

/// Whether this is about an invocation, by the function and the request.
type Matches = dyn Fn(&str, &Value) -> bool + Send + Sync;

/// Decides what a state machine gets instead of the response, by the function and the request.
type Decides = dyn Fn(&str, &Value) -> Option<Instead> + Send + Sync;

/// The Invoke API in front of the functions. It serves until it is dropped.
pub struct Router {
    endpoint: String,
    shared: Arc<Shared>,
    /// Dropping it stops the router.
    _serving: oneshot::Sender<()>,
}

struct Shared {
    functions: String,
    client: Client<HttpConnector, Full<Bytes>>,
    asked: Mutex<Vec<Asked>>,
    decides: Mutex<Box<Decides>>,
    holds: Mutex<Vec<Hold>>,
}

impl Router {
    /// Starts a router on a loopback port in front of these functions.
    ///
    /// # Errors
    /// Returns an error if there is no free loopback port.
    pub async fn start(lambda: &Lambda) -> anyhow::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await.context("there is no free loopback port")?;
        let endpoint = format!("http://{}", listener.local_addr()?);
        let shared = Arc::new(Shared {
            functions: lambda.endpoint().to_owned(),
            client: Client::builder(TokioExecutor::new()).build_http(),
            asked: Mutex::default(),
            decides: Mutex::new(Box::new(|_, _| None)),
            holds: Mutex::default(),
        });
        let routes = Routes::new()
            .route("/2015-03-31/functions/{name}/invocations", post(invoke))
            .with_state(Arc::clone(&shared));
        let (serving, stopped) = oneshot::channel::<()>();
        tokio::spawn(async move {
            tokio::select! {
                // Both end only when the other half is dropped.
                _ = axum::serve(listener, routes) => {}
                _ = stopped => {}
            }
        });
        Ok(Self { endpoint, shared, _serving: serving })
    }

    /// The endpoint's URL.
    pub fn endpoint(&self) -> &str {
        &self.endpoint
    }

    /// Returns and clears the requests so far, in the order of their responses.
    pub fn take_asked(&self) -> Vec<Asked> {
        std::mem::take(&mut *lock(&self.shared.asked))
    }

    /// Sets what decides which responses are lost, from now on. The function has still done its work,
    /// and the state machine sees an error of Lambda.
    pub fn lose(&self, loses: impl Fn(&str, &Value) -> bool + Send + Sync + 'static) {
        self.instead(move |function, request| loses(function, request).then_some(Instead::Lost("ServiceException")));
    }

    /// Sets what decides which responses are replaced, from now on.
    pub fn instead(&self, decides: impl Fn(&str, &Value) -> Option<Instead> + Send + Sync + 'static) {
        *lock(&self.shared.decides) = Box::new(decides);
    }

    /// Holds back the invocations of which this is true, until the returned value is dropped.
    pub fn hold(&self, before: Before, holds: impl Fn(&str, &Value) -> bool + Send + Sync + 'static) -> Held {
        let (open, gate) = watch::channel(());
        let (arrived, seen) = watch::channel(0);
        lock(&self.shared.holds).push(Hold { before, holds: Box::new(holds), arrived, gate });
        Held { arrived: seen, _gate: open }
    }
}

impl Shared {
    /// Waits for as long as this invocation is held back.
    async fn pass(&self, before: Before, function: &str, request: &Value) {
        let mut gates = Vec::new();
        {
            let mut holds = lock(&self.holds);
            holds.retain(|hold| hold.gate.has_changed().is_ok());
            for hold in holds.iter().filter(|hold| hold.before == before && (hold.holds)(function, request)) {
                hold.arrived.send_modify(|arrived| *arrived += 1);
                gates.push(hold.gate.clone());
            }
        }
        for mut gate in gates {
            // Nothing is ever sent, so this ends with an error, when the gate is dropped.
            let _ = gate.changed().await;
        }
    }
}

impl fmt::Debug for Router {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Router").field("endpoint", &self.endpoint).finish_non_exhaustive()
    }
}

async fn invoke(
    State(shared): State<Arc<Shared>>,
    Path(name): Path<String>,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let function = name.rsplit(':').next().unwrap_or(&name).to_owned();
    let request: Value = serde_json::from_slice(&body).unwrap_or_default();
    let began = Instant::now();
    shared.pass(Before::Request, &function, &request).await;
    let instead = lock(&shared.decides)(&function, &request);
    let lost = match instead {
        Some(Instead::Answer(answer)) => return Json(answer).into_response(),
        Some(Instead::Failure(name)) => {
            let failure = json!({ "errorType": name, "errorMessage": "the function failed" });
            return ([("x-amz-function-error", "Unhandled")], Json(failure)).into_response();
        }
        Some(Instead::Refusal(name)) => return failure(name),
        Some(Instead::Lost(name)) => Some(name),
        None => None,
    };
    let Ok((head, answer)) = forward(&shared, &function, &headers, body).await else {
        return failure("ServiceException");
    };
    let asked = Asked {
        function: function.clone(),
        request: request.clone(),
        answer: serde_json::from_slice(&answer).unwrap_or_default(),
        began,
        ended: Instant::now(),
        lost: lost.is_some(),
    };
    lock(&shared.asked).push(asked);
    shared.pass(Before::Response, &function, &request).await;
    match lost {
        Some(name) => failure(name),
        None => (head.status, head.headers, answer).into_response(),
    }
}

async fn forward(
    shared: &Shared,
    function: &str,
    headers: &HeaderMap,
    body: Bytes,
) -> anyhow::Result<(hyper::http::response::Parts, Bytes)> {
    let mut request = Request::post(format!("{}/2015-03-31/functions/{function}/invocations", shared.functions));
    for name in ["x-amz-invocation-type", "x-amz-log-type"] {
        if let Some(value) = headers.get(name) {
            request = request.header(name, value);
        }
    }
    let (head, body) = shared.client.request(request.body(Full::new(body))?).await?.into_parts();
    Ok((head, body.collect().await?.to_bytes()))
}

/// Returns an error of Lambda itself, in its words.
fn failure(name: &'static str) -> Response {
    let body = json!({ "Type": "Service", "Message": "the response was lost" }).to_string();
    (StatusCode::INTERNAL_SERVER_ERROR, [("x-amzn-errortype", name), ("x-amzn-requestid", "lost")], body)
        .into_response()
}

fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}
