//! SnapStart: a process that asks for its restore is stopped, as in a snapshot, until somebody restores it.
//!
//! It is one process before and after. Nobody can make several of one snapshot here.

use super::Function;
use super::process::Leash;
use super::runtime_api::{Call, Failure, accepted};
use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use rustix::process::Signal;
use std::sync::Arc;
use tokio::sync::mpsc::UnboundedSender;

/// What Lambda does not set with SnapStart.
const CREDENTIALS: [&str; 3] = ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"];

impl Function {
    /// Whether Lambda sets this variable, of those that it sets for functions without SnapStart.
    pub(super) fn has_variable(&self, name: &str) -> bool {
        let type_ = self.environment.get("AWS_LAMBDA_INITIALIZATION_TYPE");
        type_.is_none_or(|type_| type_ != "snap-start") || !CREDENTIALS.contains(&name)
    }
}

/// The part of the Runtime API that is about snapshots, for the process on this leash.
pub(super) fn routes(calls: UnboundedSender<Call>, leash: Arc<Leash>) -> Router {
    // The process before this one may have died in its snapshot.
    leash.snapshot().send_replace(false);
    let restored = Router::new().route("/2018-06-01/runtime/restore/next", get(next)).with_state(leash);
    let failed = Router::new().route("/2018-06-01/runtime/restore/error", post(error)).with_state(calls);
    restored.merge(failed)
}

async fn next(State(leash): State<Arc<Leash>>) -> Response {
    let mut snapshot = leash.snapshot().subscribe();
    leash.send(Signal::STOP);
    leash.snapshot().send_replace(true);
    // The other half is on the leash.
    let _ = snapshot.wait_for(|waits| !waits).await;
    StatusCode::OK.into_response()
}

async fn error(State(calls): State<UnboundedSender<Call>>, headers: HeaderMap, body: Bytes) -> Response {
    match calls.send(Call::InitFailed(Failure::read(&headers, &body))) {
        Ok(()) => accepted(),
        Err(_) => StatusCode::GONE.into_response(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lambda::runtime_api::RuntimeApi;
    use crate::proxy::Upstream;

    #[tokio::test]
    async fn a_process_that_fails_after_its_restore_cannot_answer_invocations() {
        let mut api = RuntimeApi::serve(|calls| routes(calls, Arc::default())).await.unwrap();
        let error = Upstream::new(&format!("http://{}/2018-06-01/runtime/restore/error", api.address())).unwrap();
        let body = r#"{"errorType":"NoConnection","errorMessage":"the database is away"}"#;

        let answer = error.forward(HeaderMap::new(), Bytes::from_static(body.as_bytes())).await.unwrap();

        assert_eq!(answer.status(), StatusCode::ACCEPTED);
        let Call::InitFailed(failure) = api.call().await else { panic!("another call") };
        assert_eq!((failure.error_type.as_str(), failure.message.as_str()), ("NoConnection", "the database is away"));
    }
}
