//! Sends a request in AWS's JSON protocol to a service on this machine that does not check
//! signatures.

use anyhow::bail;
use http_body_util::{BodyExt, Full};
use hyper::Request;
use hyper::body::Bytes;
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use serde_json::Value;

/// Sends `target`, such as `DynamoDB_20120810.CreateTable`, and waits for the response.
///
/// # Errors
/// Returns an error if there is no response, or the error that the service returned.
pub(crate) async fn call(endpoint: &str, service: &str, target: &str, body: &Value) -> anyhow::Result<Value> {
    let request = Request::post(endpoint)
        .header("content-type", "application/x-amz-json-1.0")
        .header("x-amz-target", target)
        .header("x-amz-date", "20260701T000000Z")
        .header(
            "authorization",
            format!(
                "AWS4-HMAC-SHA256 Credential=local/20260701/eu-central-1/{service}/aws4_request, \
                 SignedHeaders=host;x-amz-date;x-amz-target, Signature=00"
            ),
        )
        .body(Full::new(Bytes::from(body.to_string())))?;
    let (head, body) = Client::builder(TokioExecutor::new()).build_http().request(request).await?.into_parts();
    let body = body.collect().await?.to_bytes();
    if !head.status.is_success() {
        bail!("{target}: {}", String::from_utf8_lossy(&body));
    }
    Ok(if body.is_empty() { Value::Null } else { serde_json::from_slice(&body)? })
}
