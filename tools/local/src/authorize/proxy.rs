//! The proxy: reads the caller and the needs of a request, checks the role, and decides what happens
//! to the response.

use super::grant::{Grant, Need, Role, needed};
use super::{callback, refusal};
use crate::aws_json;
use crate::proxy::{self, Answer, Handle, Serving, Upstream};
use anyhow::Context;
use aws_sdk_dynamodb::primitives::{DateTime, DateTimeFormat};
use http_body_util::{BodyExt, Full};
use hyper::Request;
use hyper::body::Bytes;
use hyper::header::{AUTHORIZATION, HeaderMap};
use hyper::http::request::Parts;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

/// A proxy on a loopback port that forwards requests which the caller's role permits.
///
/// It serves until it is dropped.
pub struct AuthorizingProxy {
    shared: Arc<Shared>,
    serving: Serving,
}

/// A request that the proxy has read.
#[derive(Clone, Debug)]
pub struct Call {
    /// The access key id of the sender.
    pub caller: String,
    /// The permissions that the request needs.
    pub needs: Vec<Need>,
}

/// What happens to a request that is permitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It is applied, and the response is returned.
    Answered,
    /// It is applied, and the response is returned this much later.
    AnsweredAfter(Duration),
    /// It is applied, and the connection is reset before the response.
    AnswerLost,
    /// It is not applied, and there is never a response.
    Swallowed,
    /// It is not applied, and the response says that it was throttled.
    Throttled,
    /// A write is not applied, and the response says that a transaction has its row. A read is answered.
    Conflict,
    /// It is not applied, and the connection is reset.
    RequestLost,
    /// It is applied, and the server returns an error (500).
    AppliedButFails,
    /// It is applied, the response is returned, and a copy is applied this much later.
    AppliedAgain(Duration),
    /// There is never a response. It is applied this much later, even if the caller has ended.
    AppliedLate(Duration),
}

/// AWS refuses requests that [arrive later](https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_sigv.html) than
/// this after the time in their signature.
const OLDEST_SIGNATURE: Duration = Duration::from_secs(5 * 60);

/// What the target of a call of Step Functions begins with.
const STATES: &str = "AWSStepFunctions";

type Decide = Box<dyn Fn(&Call) -> Fate + Send + Sync>;

struct Shared {
    endpoint: String,
    upstream: Arc<Upstream>,
    /// Step Functions, once somebody has said where it is.
    states: Mutex<Option<Arc<Upstream>>>,
    /// The name of each table's partition key, once it was asked for.
    partition_keys: Mutex<BTreeMap<String, String>>,
    errors: Arc<Mutex<BTreeMap<String, u64>>>,
    /// The role of each access key id.
    roles: Mutex<BTreeMap<String, Role>>,
    used: Mutex<BTreeMap<String, Role>>,
    decide: Mutex<Decide>,
}

impl AuthorizingProxy {
    /// Starts a proxy in front of an endpoint such as `http://127.0.0.1:8000`, with the role of each
    /// access key id. Callers without a role are rejected.
    ///
    /// # Errors
    /// Returns an error if the endpoint is not valid, or if there is no free loopback port.
    pub async fn start(upstream: &str, roles: BTreeMap<String, Role>) -> anyhow::Result<Self> {
        let shared = Arc::new(Shared {
            endpoint: upstream.to_owned(),
            upstream: Arc::new(Upstream::new(upstream)?),
            states: Mutex::default(),
            partition_keys: Mutex::default(),
            errors: Arc::default(),
            roles: Mutex::new(roles),
            used: Mutex::default(),
            decide: Mutex::new(Box::new(|_| Fate::Answered)),
        });
        let serving = proxy::serve(Arc::clone(&shared)).await?;
        Ok(Self { shared, serving })
    }

    /// The endpoint's URL.
    pub fn endpoint(&self) -> &str {
        &self.serving.endpoint
    }

    /// Returns the permissions that this caller has used. Rejected requests do not count.
    pub fn used(&self, caller: &str) -> Role {
        lock(&self.shared.used).get(caller).cloned().unwrap_or_default()
    }

    /// Forwards calls of Step Functions to this endpoint from now on, such as that of an [`Engine`](crate::states::Engine).
    /// Before that, those that the role permits are answered with an error.
    ///
    /// # Errors
    /// Returns an error if the endpoint is not valid.
    pub fn forward_states_to(&self, endpoint: &str) -> anyhow::Result<()> {
        *lock(&self.shared.states) = Some(Arc::new(Upstream::new(endpoint)?));
        Ok(())
    }

    /// Returns how often DynamoDB or Step Functions itself returned an error, by the error's name.
    pub fn errors(&self) -> BTreeMap<String, u64> {
        lock(&self.shared.errors).clone()
    }

    /// Sets what the caller is permitted, from now on.
    pub fn allow(&self, caller: &str, role: Role) {
        lock(&self.shared.roles).insert(caller.to_owned(), role);
    }

    /// Sets what decides about requests that are permitted, from now on.
    pub fn decide(&self, decide: impl Fn(&Call) -> Fate + Send + Sync + 'static) {
        *lock(&self.shared.decide) = Box::new(decide);
    }
}

impl fmt::Debug for AuthorizingProxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AuthorizingProxy").field("endpoint", &self.serving.endpoint).finish_non_exhaustive()
    }
}

impl Handle for Shared {
    async fn handle(&self, request: Request<Bytes>) -> anyhow::Result<Answer> {
        let (Parts { headers, .. }, body) = request.into_parts();
        let call = match read(&headers, &body) {
            Ok(call) => call,
            Err(refusal) => return Ok(*refusal),
        };
        let role = lock(&self.roles).get(&call.caller).cloned();
        let Some(role) = role else { return Ok(refusal::unknown_caller()) };
        let mut used = Role::new();
        for need in &call.needs {
            match self.grant(&role, need).await {
                Ok(Some(grant)) => used.insert(grant.clone()),
                Ok(None) => return Ok(refusal::denied(&call.caller, need)),
                Err(error) => return Ok(refusal::not_understood(&format!("{}: {error:#}", need.action))),
            };
        }
        lock(&self.used).entry(call.caller.clone()).or_default().append(&mut used);
        let Some(upstream) = self.upstream_of(&call) else {
            return Ok(refusal::not_understood("nobody has said where Step Functions is"));
        };
        let fate = lock(&self.decide)(&call);
        match fate {
            Fate::Swallowed => return std::future::pending().await,
            Fate::Throttled => return Ok(refusal::throttled()),
            Fate::Conflict => {
                if let Some(conflict) = refusal::conflict(&headers, &body) {
                    return Ok(conflict);
                }
            }
            Fate::RequestLost => anyhow::bail!("the request is lost on purpose"),
            Fate::AppliedLate(delay) => {
                self.apply_after(delay, upstream, headers, body);
                return std::future::pending().await;
            }
            Fate::AppliedAgain(delay) => self.apply_after(delay, Arc::clone(&upstream), headers.clone(), body.clone()),
            Fate::Answered | Fate::AnsweredAfter(_) | Fate::AnswerLost | Fate::AppliedButFails => {}
        }
        let answer = note(&self.errors, upstream.forward(headers, body).await?).await;
        match fate {
            Fate::AnswerLost => anyhow::bail!("the response is lost on purpose"),
            Fate::AppliedButFails => return Ok(refusal::failed()),
            Fate::AnsweredAfter(delay) => tokio::time::sleep(delay).await,
            _ => {}
        }
        Ok(answer)
    }
}

impl Shared {
    /// Returns what answers this call.
    fn upstream_of(&self, call: &Call) -> Option<Arc<Upstream>> {
        if call.needs.iter().any(Need::is_of_states) {
            return lock(&self.states).clone();
        }
        Some(Arc::clone(&self.upstream))
    }

    /// Returns the part of the role that permits this, if there is one.
    async fn grant<'r>(&self, role: &'r Role, need: &Need) -> anyhow::Result<Option<&'r Grant>> {
        for grant in role.iter().filter(|grant| grant.is_about(need)) {
            let Some(condition) = &grant.condition else { return Ok(Some(grant)) };
            let table = need.table().with_context(|| format!("{} has no partition keys", need.resource))?;
            if condition.holds(&need.named(&self.partition_key(table).await?))? {
                return Ok(Some(grant));
            }
        }
        Ok(None)
    }

    /// Returns the name of a table's partition key.
    async fn partition_key(&self, table: &str) -> anyhow::Result<String> {
        if let Some(known) = lock(&self.partition_keys).get(table) {
            return Ok(known.clone());
        }
        let describe = json!({ "TableName": table });
        let described =
            aws_json::call(&self.endpoint, "dynamodb", "DynamoDB_20120810.DescribeTable", &describe).await?;
        let keys = described["Table"]["KeySchema"].as_array().into_iter().flatten();
        let name = keys.filter(|key| key["KeyType"] == "HASH").find_map(|key| key["AttributeName"].as_str());
        let name = name.with_context(|| format!("the table {table} has no partition key"))?.to_owned();
        lock(&self.partition_keys).insert(table.to_owned(), name.clone());
        Ok(name)
    }

    /// Applies the request later, even if the caller has ended.
    fn apply_after(&self, delay: Duration, upstream: Arc<Upstream>, headers: HeaderMap, body: Bytes) {
        let errors = Arc::clone(&self.errors);
        tokio::spawn(async move {
            tokio::time::sleep(delay).await;
            if let Ok(answer) = upstream.forward(headers, body).await {
                note(&errors, answer).await;
            }
        });
    }
}

/// Counts a response with an error by its name. The name is the end of
/// `com.amazonaws.dynamodb.v20120810#NAME`.
async fn note(errors: &Mutex<BTreeMap<String, u64>>, answer: Answer) -> Answer {
    if answer.status().is_success() {
        return answer;
    }
    let (head, body) = answer.into_parts();
    // The whole body has already arrived, so this cannot fail.
    let body = body.collect().await.unwrap_or_default().to_bytes();
    let error = serde_json::from_slice::<Value>(&body).unwrap_or_default();
    let name = error["__type"].as_str().and_then(|name| name.rsplit('#').next()).unwrap_or_default();
    *lock(errors).entry(name.to_owned()).or_default() += 1;
    Answer::from_parts(head, Full::new(body))
}

/// Returns the caller and what the request needs, or the response to a request that cannot be read.
fn read(headers: &HeaderMap, body: &[u8]) -> Result<Call, Box<Answer>> {
    let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
    let (caller, region) =
        text(AUTHORIZATION.as_str()).and_then(signed_by).ok_or_else(|| Box::new(refusal::not_signed()))?;
    let date = text("x-amz-date").and_then(signed_at).ok_or_else(|| Box::new(refusal::not_signed()))?;
    if SystemTime::now().duration_since(date).unwrap_or_else(|ahead| ahead.duration()) > OLDEST_SIGNATURE {
        return Err(Box::new(refusal::signed_at_another_time()));
    }
    let target = text("x-amz-target").unwrap_or_default();
    let (service, operation) = target.split_once('.').unwrap_or(("", target));
    let not_understood = |error| Box::new(refusal::not_understood(&format!("{operation}: {error:#}")));
    let request = serde_json::from_slice(body).map_err(|error| not_understood(error.into()))?;
    let needs = match service {
        STATES => callback::needed(operation, &request, region).map_err(not_understood)?.map(|need| vec![need]),
        _ => Some(needed(operation, &request, region).map_err(not_understood)?),
    };
    let needs = needs.ok_or_else(|| Box::new(refusal::no_token()))?;
    Ok(Call { caller: caller.to_owned(), needs })
}

/// Returns the access key id and the Region of a signature of version 4: `AWS4-HMAC-SHA256
/// Credential=ID/DATE/REGION/dynamodb/aws4_request, …`.
fn signed_by(authorization: &str) -> Option<(&str, &str)> {
    let (_, scope) = authorization.strip_prefix("AWS4-HMAC-SHA256 ")?.split_once("Credential=")?;
    let mut scope = scope.split([',', ' ']).next()?.split('/');
    let (id, _date, region) = (scope.next()?, scope.next()?, scope.next()?);
    Some((id, region))
}

/// Returns the time in an `x-amz-date` header, such as `20260701T120000Z`.
fn signed_at(date: &str) -> Option<SystemTime> {
    let (day, time) = date.split_once('T')?;
    let (year, month, day) = (day.get(..4)?, day.get(4..6)?, day.get(6..)?);
    let (hour, minute, second) = (time.get(..2)?, time.get(2..4)?, time.get(4..)?);
    let date = format!("{year}-{month}-{day}T{hour}:{minute}:{second}");
    DateTime::from_str(&date, DateTimeFormat::DateTime).ok()?.try_into().ok()
}

fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::UNIX_EPOCH;

    #[test]
    fn the_caller_the_region_and_the_time_are_in_the_signature() {
        let signature = "AWS4-HMAC-SHA256 Credential=lock-task/20260701/eu-central-1/dynamodb/aws4_request, \
                         SignedHeaders=host;x-amz-date, Signature=00";
        assert_eq!(signed_by(signature), Some(("lock-task", "eu-central-1")));
        assert_eq!(signed_at("20260701T120001Z"), Some(UNIX_EPOCH + Duration::from_secs(1_782_907_201)));
        for none in ["", "T", "20260701", "20260701T12", "20261301T120001Z", "2026-07-01T12:00:01Z"] {
            assert_eq!(signed_at(none), None, "{none}");
        }
        for none in ["", "Bearer x", "AWS4-HMAC-SHA256 Credential=lock-task"] {
            assert_eq!(signed_by(none), None, "{none}");
        }
    }
}
