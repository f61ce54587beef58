//! The Invoke HTTP API, which `aws lambda invoke` and the SDKs use.

use super::handle::{Functions, InvokeError};
use super::invocation::{Invocation, Outcome};
use super::{Function, arn, report};
use axum::Router;
use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, Path, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde::de::IgnoredAny;
use serde_json::json;
use std::sync::Weak;
use tokio::net::TcpListener;
use uuid::Uuid;

/// The largest request in bytes.
const MAX_PAYLOAD_BYTES: usize = 6 * 1024 * 1024;
/// How many bytes of the log are returned for `X-Amz-Log-Type: Tail`.
const TAIL: usize = 4096;

/// Serves until it is dropped. Connections may stay open longer, but keep nothing alive.
pub(super) async fn serve(listener: TcpListener, functions: Weak<Functions>) {
    let router = Router::new()
        .route("/2015-03-31/functions/{name}/invocations", post(invoke))
        .layer(DefaultBodyLimit::max(MAX_PAYLOAD_BYTES))
        .with_state(functions);
    // This ends only when it is dropped.
    let _ = axum::serve(listener, router).await;
}

async fn invoke(
    State(functions): State<Weak<Functions>>,
    Path(name): Path<String>,
    headers: HeaderMap,
    payload: Bytes,
) -> Response {
    let Some(functions) = functions.upgrade() else {
        return refused(InvokeError::Stopped);
    };
    let name = function_name(&name);
    let Some(function) = functions.function(name) else {
        return refused(InvokeError::NotFound(name.to_owned()));
    };
    let payload = match payload_of(&payload) {
        Ok(payload) => payload,
        Err(why) => {
            return exception(
                StatusCode::BAD_REQUEST,
                "InvalidRequestContentException",
                &format!("Could not parse request body into json: {why}"),
            );
        }
    };
    let header = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let tenant = header("x-amz-tenant-id").map(str::to_owned);
    match header("x-amz-invocation-type").unwrap_or("RequestResponse") {
        "RequestResponse" => match functions.invoke(name, Uuid::new_v4().to_string(), tenant, payload).await {
            Ok(invocation) => answered(function, &invocation, header("x-amz-log-type") == Some("Tail")),
            Err(error) => refused(error),
        },
        "Event" => match functions.enqueue(name, tenant, payload) {
            Ok(request_id) => with_request_id(StatusCode::ACCEPTED.into_response(), &request_id),
            Err(error) => refused(error),
        },
        "DryRun" => StatusCode::NO_CONTENT.into_response(),
        other => exception(
            StatusCode::BAD_REQUEST,
            "InvalidParameterValueException",
            &format!("{other} is not an invocation type: send RequestResponse, Event or DryRun"),
        ),
    }
}

/// Reads `name`, `name:qualifier`, `account:function:name` or an ARN, with or without a qualifier.
fn function_name(given: &str) -> &str {
    let name = given.split_once(":function:").map_or(given, |(_, name)| name);
    name.split_once(':').map_or(name, |(name, _)| name)
}

/// Returns the payload. A missing payload is an empty object.
fn payload_of(body: &[u8]) -> Result<String, String> {
    if body.is_empty() {
        return Ok("{}".to_owned());
    }
    serde_json::from_slice::<IgnoredAny>(body).map_err(|error| error.to_string())?;
    String::from_utf8(body.to_vec()).map_err(|error| error.to_string())
}

fn answered(function: &Function, invocation: &Invocation, with_logs: bool) -> Response {
    let mut response = match report::failure(function, invocation) {
        None => match &invocation.outcome {
            Outcome::Answer(answer) => answer.clone().into_response(),
            _ => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
        },
        Some((error_type, message)) => {
            let body = json!({ "errorType": error_type, "errorMessage": message }).to_string();
            let mut response = body.into_response();
            add(&mut response, "x-amz-function-error", "Unhandled");
            response
        }
    };
    add(&mut response, "content-type", "application/json");
    add(&mut response, "x-amz-executed-version", "$LATEST");
    if with_logs {
        add(&mut response, "x-amz-log-result", &BASE64_STANDARD.encode(tail(function, invocation)));
    }
    with_request_id(response, &invocation.request_id)
}

/// Returns the end of the log, with the lines that Lambda adds.
fn tail(function: &Function, invocation: &Invocation) -> Vec<u8> {
    let own = invocation.logs.trim_end_matches('\n');
    let mut lines = vec![report::start(invocation)];
    lines.extend((!own.is_empty()).then(|| own.to_owned()));
    lines.extend(report::end(function, invocation));
    let log = format!("{}\n", lines.join("\n")).into_bytes();
    log.get(log.len().saturating_sub(TAIL)..).unwrap_or_default().to_vec()
}

fn refused(error: InvokeError) -> Response {
    match error {
        InvokeError::NotFound(name) => {
            let message = format!("Function not found: {}", arn(&name));
            exception(StatusCode::NOT_FOUND, "ResourceNotFoundException", &message)
        }
        InvokeError::Throttled(_) => {
            exception(StatusCode::TOO_MANY_REQUESTS, "TooManyRequestsException", "Rate Exceeded.")
        }
        InvokeError::Stopped => {
            exception(StatusCode::INTERNAL_SERVER_ERROR, "ServiceException", "the functions were stopped")
        }
    }
}

fn exception(status: StatusCode, name: &str, message: &str) -> Response {
    let body = json!({ "Type": if status.is_client_error() { "User" } else { "Service" }, "Message": message });
    let mut response = (status, body.to_string()).into_response();
    add(&mut response, "content-type", "application/json");
    add(&mut response, "x-amzn-errortype", name);
    response
}

fn with_request_id(mut response: Response, request_id: &str) -> Response {
    add(&mut response, "x-amzn-requestid", request_id);
    response
}

fn add(response: &mut Response, name: &'static str, value: &str) {
    // All values that are added are ASCII, so this does not fail.
    if let Ok(value) = HeaderValue::from_str(value) {
        response.headers_mut().insert(HeaderName::from_static(name), value);
    }
}
