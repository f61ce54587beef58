//! The proxy itself: who asks, for what, whether they may, and what becomes of the answer.

use super::grant::{Grant, Role, needed};
use super::refusal::{self, Answer};
use crate::listening::serve;
use anyhow::Context;
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::header::{AUTHORIZATION, HOST, HeaderMap};
use hyper::{Request, Uri};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::oneshot;

/// A proxy on a loopback port that lets through what the caller's role allows.
///
/// It serves from when it is made until it is dropped.
pub struct AuthorizingProxy {
    endpoint: String,
    shared: Arc<Shared>,
    /// Dropped together with this value, which is what stops the proxy and closes its connections.
    _serving: oneshot::Sender<()>,
}

/// One request as the proxy understood it.
#[derive(Clone, Debug)]
pub struct Call {
    /// The access key id of whoever sent it.
    pub caller: String,
    /// What it needs.
    pub needs: Vec<Grant>,
}

/// What becomes of a request that is allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It is answered.
    Answered,
    /// It is applied, and answered this much later.
    AnsweredAfter(Duration),
    /// It is applied, and the connection breaks before the answer.
    AnswerLost,
    /// It is not applied, and nothing ever comes back.
    Swallowed,
    /// It is not applied, and the connection breaks.
    RequestLost,
    /// Nothing ever comes back; it is applied this much later, whatever has become of the caller.
    AppliedLate(Duration),
}

type Decide = Box<dyn Fn(&Call) -> Fate + Send + Sync>;

struct Shared {
    upstream: String,
    client: Client<HttpConnector, Full<Bytes>>,
    /// The role of each access key id.
    roles: BTreeMap<String, Role>,
    used: Mutex<BTreeMap<String, Role>>,
    decide: Mutex<Decide>,
}

impl AuthorizingProxy {
    /// Begins to serve in front of an endpoint such as `http://127.0.0.1:8000`, with the role of each
    /// access key id. Who has none is refused.
    ///
    /// # Errors
    /// When no loopback port can be had.
    pub async fn start(upstream: &str, roles: BTreeMap<String, Role>) -> anyhow::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await.context("no loopback port could be had")?;
        let endpoint = format!("http://{}", listener.local_addr()?);
        let shared = Arc::new(Shared {
            upstream: upstream.trim_end_matches('/').to_owned(),
            client: Client::builder(TokioExecutor::new()).build_http(),
            roles,
            used: Mutex::default(),
            decide: Mutex::new(Box::new(|_| Fate::Answered)),
        });
        let (serving, stopped) = oneshot::channel();
        let answering = Arc::clone(&shared);
        tokio::spawn(serve(listener, stopped, move |request| answer(request, Arc::clone(&answering))));
        Ok(Self { endpoint, shared, _serving: serving })
    }

    /// The endpoint's URL.
    pub fn endpoint(&self) -> &str {
        &self.endpoint
    }

    /// What this caller was seen to do, refusals left out.
    pub fn used(&self, caller: &str) -> Role {
        lock(&self.shared.used).get(caller).cloned().unwrap_or_default()
    }

    /// From now on this decides what becomes of requests that are allowed.
    pub fn decide(&self, decide: impl Fn(&Call) -> Fate + Send + Sync + 'static) {
        *lock(&self.shared.decide) = Box::new(decide);
    }
}

impl fmt::Debug for AuthorizingProxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AuthorizingProxy").field("endpoint", &self.endpoint).finish_non_exhaustive()
    }
}

/// An error closes the connection without an answer.
async fn answer(request: Request<Incoming>, shared: Arc<Shared>) -> anyhow::Result<Answer> {
    let (head, body) = request.into_parts();
    let body = body.collect().await?.to_bytes();
    let call = match read(&head.headers, &body) {
        Ok(call) => call,
        Err(refusal) => return Ok(*refusal),
    };
    let Some(role) = shared.roles.get(&call.caller) else { return Ok(refusal::unknown_caller()) };
    if let Some(grant) = call.needs.iter().find(|grant| !role.contains(grant)) {
        return Ok(refusal::denied(&call.caller, grant));
    }
    lock(&shared.used).entry(call.caller.clone()).or_default().extend(call.needs.iter().cloned());
    let fate = lock(&shared.decide)(&call);
    match fate {
        Fate::Swallowed => return std::future::pending().await,
        Fate::RequestLost => anyhow::bail!("the request is to be lost"),
        Fate::AppliedLate(delay) => {
            tokio::spawn(async move {
                tokio::time::sleep(delay).await;
                // Nobody waits for the answer.
                let _ = forward(&head.headers, body, &shared).await;
            });
            return std::future::pending().await;
        }
        Fate::Answered | Fate::AnsweredAfter(_) | Fate::AnswerLost => {}
    }
    let answer = forward(&head.headers, body, &shared).await?;
    match fate {
        Fate::AnswerLost => anyhow::bail!("the answer is to be lost"),
        Fate::AnsweredAfter(delay) => tokio::time::sleep(delay).await,
        _ => {}
    }
    Ok(answer)
}

async fn forward(headers: &HeaderMap, body: Bytes, shared: &Shared) -> anyhow::Result<Answer> {
    let mut request = Request::post(shared.upstream.parse::<Uri>()?).body(Full::new(body))?;
    *request.headers_mut() = headers.clone();
    // The client writes the one that fits.
    request.headers_mut().remove(HOST);
    let (head, body) = shared.client.request(request).await?.into_parts();
    Ok(Answer::from_parts(head, Full::new(body.collect().await?.to_bytes())))
}

/// Who asks for what, or the refusal of whoever cannot be understood.
fn read(headers: &HeaderMap, body: &[u8]) -> Result<Call, Box<Answer>> {
    let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
    let (caller, region) =
        text(AUTHORIZATION.as_str()).and_then(signed_by).ok_or_else(|| Box::new(refusal::not_signed()))?;
    let target = text("x-amz-target").unwrap_or_default();
    let operation = target.split_once('.').map_or(target, |(_, operation)| operation);
    let request = serde_json::from_slice(body).map_err(anyhow::Error::from);
    let needs = request.and_then(|request| needed(operation, &request, region));
    let needs = needs.map_err(|error| Box::new(refusal::not_understood(&format!("{operation}: {error:#}"))))?;
    Ok(Call { caller: caller.to_owned(), needs })
}

/// The access key id and the Region of a signature of version 4:
/// `AWS4-HMAC-SHA256 Credential=ID/DATE/REGION/dynamodb/aws4_request, …`.
fn signed_by(authorization: &str) -> Option<(&str, &str)> {
    let (_, scope) = authorization.strip_prefix("AWS4-HMAC-SHA256 ")?.split_once("Credential=")?;
    let mut scope = scope.split([',', ' ']).next()?.split('/');
    let (id, _date, region) = (scope.next()?, scope.next()?, scope.next()?);
    Some((id, region))
}

fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_caller_and_the_region_are_in_the_signature() {
        let signature = "AWS4-HMAC-SHA256 Credential=lock-task/20260701/eu-central-1/dynamodb/aws4_request, \
                         SignedHeaders=host;x-amz-date, Signature=00";
        assert_eq!(signed_by(signature), Some(("lock-task", "eu-central-1")));
        for none in ["", "Bearer x", "AWS4-HMAC-SHA256 Credential=lock-task"] {
            assert_eq!(signed_by(none), None, "{none}");
        }
    }
}
