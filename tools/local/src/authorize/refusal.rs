//! Errors in the form that AWS gives them: a status, mostly 400, and the reason as JSON.

use super::Need;
use crate::lambda::ACCOUNT;
use crate::proxy::Answer;
use http_body_util::Full;
use hyper::body::Bytes;
use hyper::header::{CONTENT_TYPE, HeaderMap, HeaderValue};
use hyper::{Response, StatusCode};
use serde_json::{Value, json};

/// The role does not permit this.
pub(super) fn denied(caller: &str, need: &Need) -> Answer {
    let Need { action, resource, .. } = need;
    let sentence = format!(
        "User: arn:aws:sts::{ACCOUNT}:assumed-role/{caller}/{caller} is not authorized to perform: {action} \
         on resource: {resource} because no identity-based policy allows the {action} action"
    );
    refusal("com.amazon.coral.service#AccessDeniedException", "Message", &sentence)
}

/// The request is not signed.
pub(super) fn not_signed() -> Answer {
    let name = "com.amazon.coral.service#MissingAuthenticationTokenException";
    refusal(name, "message", "Request is missing Authentication Token")
}

/// The caller's clock is wrong by minutes.
pub(super) fn signed_at_another_time() -> Answer {
    let name = "com.amazon.coral.service#InvalidSignatureException";
    refusal(name, "message", "Signature expired: the time in it differs from this clock by more than 5 min.")
}

/// This access key id is not known.
pub(super) fn unknown_caller() -> Answer {
    let name = "com.amazon.coral.service#UnrecognizedClientException";
    refusal(name, "message", "The security token included in the request is invalid.")
}

/// The proxy cannot read what the request does.
pub(crate) fn not_understood(reason: &str) -> Answer {
    refusal("com.amazon.coral.validate#ValidationException", "message", reason)
}

/// The task token was not made by Step Functions.
pub(super) fn no_token() -> Answer {
    refusal("InvalidToken", "message", "The provided token is not valid.")
}

/// The table or the account gets too many requests.
pub(super) fn throttled() -> Answer {
    let name = "com.amazon.coral.availability#ThrottlingException";
    refusal(name, "message", "Rate exceeded")
}

/// A transaction has the row of this write, or the last row of this transaction. `None` for a read.
pub(super) fn conflict(headers: &HeaderMap, body: &[u8]) -> Option<Answer> {
    let target = headers.get("x-amz-target")?.to_str().ok()?;
    match target.rsplit('.').next()? {
        "UpdateItem" | "PutItem" | "DeleteItem" => Some(refusal(
            "com.amazonaws.dynamodb.v20120810#TransactionConflictException",
            "message",
            "Transaction is ongoing for the item",
        )),
        "TransactWriteItems" => {
            let body: Value = serde_json::from_slice(body).ok()?;
            let mut reasons = vec![json!({ "Code": "None" }); body["TransactItems"].as_array()?.len()];
            *reasons.last_mut()? =
                json!({ "Code": "TransactionConflict", "Message": "Transaction is ongoing for the item" });
            let codes: Vec<&str> = reasons.iter().filter_map(|reason| reason["Code"].as_str()).collect();
            let sentence = format!(
                "Transaction cancelled, please refer cancellation reasons for specific reasons [{}]",
                codes.join(", ")
            );
            let name = "com.amazonaws.dynamodb.v20120810#TransactionCanceledException";
            Some(answer(&json!({ "__type": name, "Message": sentence, "CancellationReasons": reasons })))
        }
        _ => None,
    }
}

/// The server reports a failure, although it may have applied the request.
pub(crate) fn failed() -> Answer {
    let mut answer =
        refusal("com.amazonaws.dynamodb.v20120810#InternalServerError", "message", "Internal server error");
    *answer.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
    answer
}

pub(crate) fn refusal(name: &str, field: &str, sentence: &str) -> Answer {
    answer(&json!({ "__type": name, field: sentence }))
}

fn answer(body: &Value) -> Answer {
    let mut answer = Response::new(Full::new(Bytes::from(body.to_string())));
    *answer.status_mut() = StatusCode::BAD_REQUEST;
    let json = HeaderValue::from_static("application/x-amz-json-1.0");
    answer.headers_mut().insert(CONTENT_TYPE, json);
    // Each response of DynamoDB has one.
    answer.headers_mut().insert("x-amzn-requestid", HeaderValue::from_static("REFUSEDBYTHEPROXY"));
    answer
}
