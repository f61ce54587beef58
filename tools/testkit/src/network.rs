//! The network between a process and DynamoDB, and the faults of requests on it.

use crate::clock::EPOCH_SECONDS;
use crate::dispatch::apply;
use crate::limbo::Limbo;
use crate::limit::{Running, check_number_of_requests};
use aws_smithy_runtime_api::client::http::{HttpConnector, HttpConnectorFuture};
use aws_smithy_runtime_api::client::orchestrator::{HttpRequest, HttpResponse};
use aws_smithy_runtime_api::client::result::ConnectorError;
use aws_smithy_types::DateTime;
use aws_smithy_types::body::SdkBody;
use aws_smithy_types::date_time::Format;
use dynoxide::Database;
use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::io::{Error, ErrorKind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::time::Instant;

/// The header that every response of DynamoDB has.
const REQUEST_ID: &str = "x-amzn-requestid";

/// The default time of a request to the table, and of its response back.
pub const ONE_WAY: Duration = Duration::from_millis(2);
/// The time from sending a request to receiving its response.
pub const ROUND_TRIP: Duration = Duration::from_millis(4);

/// What happens to one request. Requests after the end of the script arrive and get their response.
#[derive(Clone, Debug)]
pub enum Fault {
    /// It arrives, and the response is returned.
    None,
    /// It never arrives. The connection is reset.
    RequestLost,
    /// It arrives and is applied. The connection is reset before the response.
    AnswerLost,
    /// It arrives and is applied. There is never a response.
    NeverAnswers,
    /// It never arrives, and there is never a response.
    BlackHole,
    /// It arrives this much later, long after the caller gave up. There is never a response.
    ArrivesLate(Duration),
    /// A transaction arrives, there is never a response, and DynamoDB is not done with it for five seconds. Until then it
    /// refuses a copy with `TransactionInProgressException`, and other writes of its items as a conflict. Then it is applied.
    Limbo,
    /// It arrives, and the response is returned. A copy of it arrives this much later.
    ArrivesTwice(Duration),
    /// It arrives this much later, and the response is returned then.
    Slow(Duration),
    /// It arrives this much later, and the response takes that much longer.
    SlowBothWays(Duration, Duration),
    /// It does not reach the table. The response has this status and body.
    Says(u16, &'static str),
    /// It is applied, but the response has this status and body.
    AppliedButSays(u16, &'static str),
    /// The response has a `Date` header that is wrong by this many seconds.
    DateOff(i64),
    /// It never arrives. A proxy on the way responds with this status, and with a `Date` that is wrong by this
    /// many seconds.
    Foreign(u16, i64),
    /// It never arrives. Something on the way responds with this status and body, as DynamoDB would.
    Forged(u16, &'static str),
}

impl Fault {
    /// Faults after which a write was applied, although the caller does not learn it.
    pub fn applied_unheard() -> [Self; 5] {
        [
            Fault::AnswerLost,
            Fault::NeverAnswers,
            Fault::failure_after_apply(),
            Fault::applied_with_broken_answer(),
            Fault::AppliedButSays(503, ""),
        ]
    }

    /// Faults after which a write was not applied.
    pub fn not_applied() -> [Self; 4] {
        [Fault::RequestLost, Fault::BlackHole, Fault::Says(500, ""), Fault::Says(400, "<html>a proxy</html>")]
    }

    /// The write is applied, and the body of the response is incomplete.
    pub fn applied_with_broken_answer() -> Self {
        Fault::AppliedButSays(200, r#"{"Attributes": {"#)
    }

    /// DynamoDB throttles the request.
    pub fn throttled() -> Self {
        Self::error("ThrottlingException")
    }

    /// DynamoDB returns this error code, and the request is not applied.
    pub fn error(code: &str) -> Self {
        let body = format!(r#"{{"__type":"com.amazonaws.dynamodb.v20120810#{code}","message":"scripted"}}"#);
        Fault::Says(400, Box::leak(body.into_boxed_str()))
    }

    /// The write is applied, but DynamoDB returns a 500.
    pub fn failure_after_apply() -> Self {
        const BODY: &str = r#"{"__type":"com.amazonaws.dynamodb.v20120810#InternalServerError","message":"scripted"}"#;
        Fault::AppliedButSays(500, BODY)
    }
}

/// A request, as it was sent.
#[derive(Clone, Debug)]
pub struct Sent {
    /// When it was sent, since the start of the test.
    pub at: Duration,
    /// The operation, such as `UpdateItem` or `GetItem`.
    pub operation: String,
    /// The JSON body.
    pub body: String,
}

#[derive(Clone)]
pub(crate) struct Network {
    pub(crate) database: Database,
    /// The transactions with which the table is not done.
    pub(crate) limbo: Arc<Mutex<Vec<Limbo>>>,
    pub(crate) origin: Instant,
    pub(crate) script: Arc<Mutex<VecDeque<Fault>>>,
    /// What happens to the requests about one key, before the script counts.
    pub(crate) script_of: Arc<Mutex<HashMap<String, VecDeque<Fault>>>>,
    pub(crate) sent: Arc<Mutex<Vec<Sent>>>,
    /// By how many seconds the server's `Date` header is wrong. `None` means that there is no header.
    pub(crate) date_offset: Arc<Mutex<Option<i64>>>,
    pub(crate) latency: Arc<Mutex<Latency>>,
    /// The number of requests in the whole test.
    pub(crate) requests: Arc<AtomicUsize>,
    /// Watches the test while the process exists.
    pub(crate) _running: Arc<Running>,
}

/// How long a request takes to the table, and its response back.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Latency {
    Each(Duration),
    /// A random time up to this, for each of them.
    UpTo(Duration),
}

impl fmt::Debug for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Network")
    }
}

impl HttpConnector for Network {
    fn call(&self, request: HttpRequest) -> HttpConnectorFuture {
        let network = self.clone();
        HttpConnectorFuture::new(async move { network.carry(request).await })
    }
}

impl Network {
    async fn carry(&self, request: HttpRequest) -> Result<HttpResponse, ConnectorError> {
        let target = request.headers().get("x-amz-target").unwrap();
        let operation = target.rsplit('.').next().unwrap().to_owned();
        let body = String::from_utf8(request.body().bytes().unwrap().to_vec()).unwrap();
        let at = self.origin.elapsed();
        self.sent.lock().unwrap().push(Sent { at, operation: operation.clone(), body: body.clone() });
        check_number_of_requests(self.requests.fetch_add(1, Ordering::Relaxed), &operation);
        let fault = self.next_fault(&body);
        self.travel().await;
        let apply = || {
            let mut limbo = self.limbo.lock().unwrap();
            limbo.retain(|limbo| limbo.until > Instant::now());
            let refused = limbo.iter().find_map(|limbo| limbo.refuses(&operation, &body));
            refused.unwrap_or_else(|| apply(&self.database, &operation, &body))
        };
        let answer = match fault {
            Fault::None => self.answer(apply(), 0),
            Fault::DateOff(seconds) => self.answer(apply(), seconds),
            Fault::Foreign(status, seconds) => self.answer((status, "no way".to_owned()), seconds),
            Fault::Forged(status, body) => self.answer((status, body.to_owned()), 0).map(|mut response| {
                response.headers_mut().remove(REQUEST_ID);
                response
            }),
            Fault::RequestLost => reset(),
            Fault::AnswerLost => {
                apply();
                reset()
            }
            Fault::NeverAnswers => {
                apply();
                std::future::pending().await
            }
            Fault::BlackHole => std::future::pending().await,
            Fault::ArrivesLate(delay) => {
                self.arrives_after(delay, operation.clone(), body.clone());
                std::future::pending().await
            }
            Fault::Limbo => {
                let limbo = Limbo::of(&body);
                self.arrives_after(limbo.until - Instant::now(), operation.clone(), body.clone());
                self.limbo.lock().unwrap().push(limbo);
                std::future::pending().await
            }
            Fault::ArrivesTwice(delay) => {
                self.arrives_after(delay, operation.clone(), body.clone());
                self.answer(apply(), 0)
            }
            Fault::Slow(delay) => {
                tokio::time::sleep(delay).await;
                self.answer(apply(), 0)
            }
            Fault::SlowBothWays(there, back) => {
                tokio::time::sleep(there).await;
                let answer = self.answer(apply(), 0);
                tokio::time::sleep(back).await;
                answer
            }
            Fault::Says(status, body) => self.answer((status, body.to_owned()), 0),
            Fault::AppliedButSays(status, body) => {
                apply();
                self.answer((status, body.to_owned()), 0)
            }
        };
        self.travel().await;
        answer
    }

    fn next_fault(&self, body: &str) -> Fault {
        let mut script_of = self.script_of.lock().unwrap();
        let of_key = script_of.iter_mut().find(|(key, _)| body.contains(&format!(r#""S":"{key}""#)));
        let of_key = of_key.and_then(|(_, script)| script.pop_front());
        of_key.or_else(|| self.script.lock().unwrap().pop_front()).unwrap_or(Fault::None)
    }

    async fn travel(&self) {
        let latency = *self.latency.lock().unwrap();
        let time = match latency {
            Latency::Each(time) => time,
            Latency::UpTo(longest) => longest.mul_f64(fastrand::f64()),
        };
        if !time.is_zero() {
            tokio::time::sleep(time).await;
        }
    }

    /// Lets a copy arrive later, even if its sender has ended.
    fn arrives_after(&self, delay: Duration, operation: String, body: String) {
        let database = self.database.clone();
        tokio::spawn(async move {
            tokio::time::sleep(delay).await;
            apply(&database, &operation, &body);
        });
    }

    fn answer(&self, (status, body): (u16, String), date_off: i64) -> Result<HttpResponse, ConnectorError> {
        let by_dynamodb = body.starts_with('{');
        let mut response = HttpResponse::new(status.try_into().unwrap(), SdkBody::from(body));
        response.headers_mut().insert("content-type", "application/x-amz-json-1.0");
        if by_dynamodb {
            // A proxy's response has no such header.
            response.headers_mut().insert(REQUEST_ID, "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789VV4KQNSO5AEMVJF66Q9ASUAAJG");
        }
        if let Some(offset) = *self.date_offset.lock().unwrap() {
            let now = (EPOCH_SECONDS + self.origin.elapsed().as_secs()) as i64 + offset + date_off;
            response.headers_mut().insert("date", DateTime::from_secs(now).fmt(Format::HttpDate).unwrap());
        }
        Ok(response)
    }
}

fn reset() -> Result<HttpResponse, ConnectorError> {
    Err(ConnectorError::io(Error::from(ErrorKind::ConnectionReset).into()))
}
