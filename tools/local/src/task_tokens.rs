//! The part of Step Functions that ends the wait of an execution, for tests of functions without an engine.

use crate::proxy::{self, Answer, Handle, Serving};
use http_body_util::Full;
use hyper::body::Bytes;
use hyper::{Request, Response, StatusCode};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Answers `SendTaskSuccess` on a loopback port until it is dropped. Each task token is good for one success, unless it is
/// [closed](TaskTokens::close) before.
pub struct TaskTokens {
    shared: Arc<Shared>,
    serving: Serving,
}

#[derive(Default)]
struct Shared {
    woken: Mutex<Vec<String>>,
    closed: Mutex<BTreeSet<String>>,
    refuses: Mutex<Option<&'static str>>,
    is_silent: AtomicBool,
}

impl TaskTokens {
    /// Starts it on a port that the system chooses.
    ///
    /// # Errors
    /// Returns an error if there is no free loopback port.
    pub async fn start() -> anyhow::Result<Self> {
        let shared = Arc::new(Shared::default());
        let serving = proxy::serve(Arc::clone(&shared)).await?;
        Ok(Self { shared, serving })
    }

    /// The endpoint, for `AWS_ENDPOINT_URL_SFN`.
    pub fn endpoint(&self) -> &str {
        &self.serving.endpoint
    }

    /// Returns and clears the tokens of the tasks that have succeeded, in order.
    pub fn take_woken(&self) -> Vec<String> {
        std::mem::take(&mut *lock(&self.shared.woken))
    }

    /// The execution waits for this token no more.
    pub fn close(&self, token: &str) {
        lock(&self.shared.closed).insert(token.to_owned());
    }

    /// Never answers from now on.
    pub fn fall_silent(&self) {
        self.shared.is_silent.store(true, Ordering::SeqCst);
    }

    /// Refuses all requests with this error from now on.
    pub fn refuse(&self, code: &'static str) {
        *lock(&self.shared.refuses) = Some(code);
    }
}

impl fmt::Debug for TaskTokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TaskTokens").field("endpoint", &self.serving.endpoint).finish_non_exhaustive()
    }
}

impl Handle for Shared {
    async fn handle(&self, request: Request<Bytes>) -> anyhow::Result<Answer> {
        let target = request.headers().get("x-amz-target").and_then(|target| target.to_str().ok());
        anyhow::ensure!(target == Some("AWSStepFunctions.SendTaskSuccess"), "{target:?} is not answered here");
        let body: Value = serde_json::from_slice(request.body())?;
        let token = body["taskToken"].as_str().unwrap_or_default().to_owned();
        if self.is_silent.load(Ordering::SeqCst) {
            return std::future::pending().await;
        }
        if let Some(code) = *lock(&self.refuses) {
            return refused(code);
        }
        // A token that was used is closed.
        if !lock(&self.closed).insert(token.clone()) {
            return refused("TaskTimedOut");
        }
        lock(&self.woken).push(token);
        answer(StatusCode::OK, &json!({}))
    }
}

fn refused(code: &str) -> anyhow::Result<Answer> {
    answer(StatusCode::BAD_REQUEST, &json!({ "__type": code, "message": "refused on purpose" }))
}

fn answer(status: StatusCode, body: &Value) -> anyhow::Result<Answer> {
    let response = Response::builder().status(status).header("content-type", "application/x-amz-json-1.0");
    Ok(response.body(Full::new(Bytes::from(body.to_string())))?)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
