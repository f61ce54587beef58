//! The Invoke HTTP API: what `aws lambda invoke` and the SDKs speak.

use super::handle::{Functions, InvokeError};
use super::invocation::{Invocation, Outcome};
use super::{Function, arn};
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

/// The largest request.
const LARGEST_PAYLOAD: usize = 6 * 1024 * 1024;
/// How much of the log `X-Amz-Log-Type: Tail` asks for.
const TAIL: usize = 4096;

/// Serves until it is dropped. Connections may stay open for longer, and keep nothing alive.
pub(super) async fn serve(listener: TcpListener, functions: Weak<Functions>) {
    let router = Router::new()
        .route("/2015-03-31/functions/{name}/invocations", post(invoke))
        .layer(DefaultBodyLimit::max(LARGEST_PAYLOAD))
        .with_state(functions);
    // Ends only when it is dropped.
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
    match header("x-amz-invocation-type").unwrap_or("RequestResponse") {
        "RequestResponse" => match functions.invoke(name, payload).await {
            Ok(invocation) => answered(function, &invocation, header("x-amz-log-type") == Some("Tail")),
            Err(error) => refused(error),
        },
        "Event" => match functions.enqueue(name, payload) {
            Ok(request_id) => with_request_id(StatusCode::ACCEPTED.into_response(), &request_id.to_string()),
            Err(error) => refused(error),
        },
        "DryRun" => StatusCode::NO_CONTENT.into_response(),
        other => exception(
            StatusCode::BAD_REQUEST,
            "InvalidParameterValueException",
            &format!("{other} is no invocation type: give RequestResponse, Event or DryRun"),
        ),
    }
}

/// `name`, `name:qualifier`, `account:function:name` or an ARN, with or without a qualifier.
fn function_name(given: &str) -> &str {
    let name = given.split_once(":function:").map_or(given, |(_, name)| name);
    name.split_once(':').map_or(name, |(name, _)| name)
}

/// An invocation without a payload has an empty object.
fn payload_of(body: &[u8]) -> Result<String, String> {
    if body.is_empty() {
        return Ok("{}".to_owned());
    }
    serde_json::from_slice::<IgnoredAny>(body).map_err(|error| error.to_string())?;
    String::from_utf8(body.to_vec()).map_err(|error| error.to_string())
}

fn answered(function: &Function, invocation: &Invocation, with_logs: bool) -> Response {
    let mut response = match failure(function, invocation) {
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

/// `errorType` and `errorMessage`, in Lambda's words where the function has none of its own.
fn failure(function: &Function, invocation: &Invocation) -> Option<(String, String)> {
    let in_words = |what: &str| format!("RequestId: {} Error: {what}", invocation.request_id);
    match &invocation.outcome {
        Outcome::Answer(_) => None,
        Outcome::Error { error_type, message } => Some((error_type.clone(), message.clone())),
        Outcome::TimedOut => {
            let seconds = function.timeout.as_secs_f64();
            let message = in_words(&format!("Task timed out after {seconds:.2} seconds"));
            Some(("Sandbox.Timedout".to_owned(), message))
        }
        Outcome::Exited(how) => {
            let message = match how.as_str() {
                "exit status 0" => in_words("Runtime exited without providing a reason"),
                how => in_words(&format!("Runtime exited with error: {how}")),
            };
            Some(("Runtime.ExitError".to_owned(), message))
        }
        Outcome::InitFailed(why) => {
            let (error_type, message) = why.split_once(": ").unwrap_or(("Runtime.Unknown", why));
            Some((error_type.to_owned(), message.to_owned()))
        }
    }
}

/// The end of the log, with the lines that Lambda adds.
fn tail(function: &Function, invocation: &Invocation) -> Vec<u8> {
    let Invocation { request_id, logs, duration, init, max_rss_kb, .. } = invocation;
    let millis = duration.as_secs_f64() * 1000.0;
    let mut log = format!("START RequestId: {request_id} Version: $LATEST\n{logs}");
    if !log.ends_with('\n') {
        log.push('\n');
    }
    if let Some((error_type, message)) = failure(function, invocation)
        && !matches!(invocation.outcome, Outcome::Error { .. })
    {
        log.push_str(&format!("{message} {error_type}\n"));
    }
    log.push_str(&format!(
        "END RequestId: {request_id}\nREPORT RequestId: {request_id}\tDuration: {millis:.2} ms\t\
         Billed Duration: {:.0} ms\tMemory Size: {} MB\t",
        millis.ceil(),
        function.memory_mb,
    ));
    if let Some(kilobytes) = max_rss_kb {
        log.push_str(&format!("Max Memory Used: {} MB\t", kilobytes.div_ceil(1024)));
    }
    if let Some(init) = init {
        log.push_str(&format!("Init Duration: {:.2} ms\t", init.as_secs_f64() * 1000.0));
    }
    log.push('\n');
    let log = log.into_bytes();
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
    // Everything that is added is ASCII.
    if let Ok(value) = HeaderValue::from_str(value) {
        response.headers_mut().insert(HeaderName::from_static(name), value);
    }
}
