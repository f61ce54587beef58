//! The same simulation with the real SDK and a real DynamoDB engine. The results of the pure evaluation and of the
//! engine are compared request by request and row by row.

use crate::expression::numbers;
use crate::ledger::Invariant;
use crate::network::{Fate, Outcome, Pending};
use crate::table::{Answer, Typed, Write};
use crate::world::{Message, SORT, State, World, same};
use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::config::{BehaviorVersion, Config, Credentials, Region};
use aws_sdk_dynamodb::types::{AttributeValue, CancellationReason, TransactWriteItem};
use aws_smithy_async::rt::sleep::{AsyncSleep, SharedAsyncSleep, Sleep};
use aws_smithy_runtime_api::client::http::{HttpConnector, HttpConnectorFuture, SharedHttpConnector, http_client_fn};
use aws_smithy_runtime_api::client::orchestrator::{HttpRequest, HttpResponse};
use aws_smithy_runtime_api::client::result::ConnectorError;
use aws_smithy_types::body::SdkBody;
use aws_smithy_types::date_time::Format;
use aws_smithy_types::{DateTime, base64};
use lambda_lock::simulation::{Network, Real, Replying};
use lambda_lock_protocol::{Item, LockKey, Request, RowRead, Schema, Transacted, Value, Written};
use lambda_lock_testkit::Table;
use serde_json::json;
use std::io::{Error, ErrorKind};
use std::time::Duration;

/// A request as the SDK sends it.
#[derive(Clone, Debug)]
pub(crate) struct Http {
    operation: String,
    body: String,
}

fn key_of(key: &LockKey) -> serde_json::Value {
    let mut attributes = json!({"key": {"S": key.key()}});
    if let Some(sort) = key.sort_key() {
        attributes[SORT] = json!({"S": sort});
    }
    attributes
}

/// The engine with the lock table and the table of the callers' own writes.
pub(crate) struct Engine(Table);

impl Engine {
    pub(crate) fn new(sort_key: bool) -> Self {
        let table = if sort_key { Table::with_keys(&["key", SORT]) } else { Table::new() };
        table.call(
            "CreateTable",
            &json!({
                "TableName": "work",
                "BillingMode": "PAY_PER_REQUEST",
                "AttributeDefinitions": [{"AttributeName": "key", "AttributeType": "S"}],
                "KeySchema": [{"AttributeName": "key", "KeyType": "HASH"}],
            }),
        );
        Self(table)
    }

    fn apply(&self, http: &Http) -> (u16, String) {
        self.0.carry_out(&http.operation, &http.body)
    }

    fn row(&self, key: &LockKey) -> Option<Item> {
        let asked = json!({"TableName": "locks", "Key": key_of(key), "ConsistentRead": true});
        let row = self.0.call("GetItem", &asked).get("Item").cloned()?;
        let value = |value: &serde_json::Value| {
            let text = |name: &str| value[name].as_str().map(str::to_owned);
            let bytes = || Some(Value::B(base64::decode(text("B")?).ok()?));
            let number = || text("N").map(Value::N);
            let text_of = |one: &serde_json::Value| one.as_str().map(str::to_owned);
            let members = || value["NS"].as_array()?.iter().map(text_of).collect::<Option<Vec<_>>>();
            let set = || Some(numbers(members()?));
            text("S")
                .map(Value::S)
                .or_else(number)
                .or_else(bytes)
                .or_else(set)
                .unwrap_or(Value::Other("of another type"))
        };
        Some(row.as_object()?.iter().map(|(name, given)| (name.clone(), value(given))).collect())
    }

    /// Applies what others than this crate's clients did to a row.
    pub(crate) fn set(&self, key: &LockKey, row: Option<&Item>) {
        let Some(row) = row else {
            self.0.call("DeleteItem", &json!({"TableName": "locks", "Key": key_of(key)}));
            return;
        };
        let mut item = serde_json::Map::new();
        for (name, value) in row.iter() {
            let value = match value {
                Value::S(text) => json!({"S": text}),
                Value::N(number) => json!({"N": number}),
                Value::B(bytes) => json!({"B": base64::encode(bytes)}),
                Value::Ns(numbers) => json!({"NS": numbers}),
                other => panic!("unexpected value {other:?} in a simulated row"),
            };
            item.insert(name.to_owned(), value);
        }
        self.0.put(item.into());
    }

    /// Makes the condition of the callers' own writes hold or fail.
    fn let_writes(&self, refused: bool) {
        let work = json!({"TableName": "work", "Key": {"key": {"S": "k"}}});
        self.0.call("DeleteItem", &work);
        if refused {
            let closed = json!({"TableName": "work", "Item": {"key": {"S": "k"}, "closed": {"S": "1"}}});
            self.0.call("PutItem", &closed);
        }
    }
}

impl State {
    /// Sends the request that was just evaluated to the engine, and compares. The SDK gets the engine's response.
    pub(crate) fn compare(&mut self, message: &Message, evaluated: &Answer) -> Option<Outcome> {
        let engine = self.engine.as_ref()?;
        let http = message.http.as_ref()?;
        if !message.request.writes.is_empty() {
            engine.let_writes(self.rows.refuses_writes);
        }
        // The engine does not forget a token during a run. A forgotten token is therefore sent as a different one.
        let mut http = http.clone();
        if let (Some(id), forgotten @ 1..) = (&message.request.transaction, self.rows.forgotten(&message.request)) {
            let id = id.as_str();
            // No id has an x, so this is not the same one by chance.
            http.body = http.body.replace(id, &format!("{}x{forgotten:02}", &id[..29]));
        }
        let (status, body) = engine.apply(&http);
        let key = &message.request.key;
        let (theirs, ours) = (engine.row(key).map(sorted), self.rows.get(key).cloned().map(sorted));
        let agree = (status == 200) == matches!(evaluated, Answer::Applied(_) | Answer::Found(_));
        let alike = match (&theirs, &ours) {
            (Some(theirs), Some(ours)) => {
                theirs.len() == ours.len()
                    && theirs.iter().zip(ours).all(|(one, other)| one.0 == other.0 && same(&one.1, &other.1))
            }
            (theirs, ours) => theirs.is_none() && ours.is_none(),
        };
        if !agree || !alike {
            let what = format!("{http:?}: {status} {body}, {theirs:?}; evaluated {evaluated:?}, {ours:?}");
            self.ledger.violate(Invariant::SdkAgrees, what);
        }
        Some(match message.fate {
            Fate::SaysFailure => failed(),
            _ => Outcome::Http(status, body),
        })
    }
}

pub(crate) fn failed() -> Outcome {
    failure(500, "InternalServerError")
}

pub(crate) fn refused(code: &str) -> Outcome {
    failure(400, code)
}

/// The response for a transaction that was cancelled for these reasons.
pub(crate) fn cancelled(reasons: &[CancellationReason]) -> Outcome {
    let reason = |reason: &CancellationReason| {
        let mut said = json!({"Code": reason.code()});
        if let Some(row) = reason.item() {
            let value = |value: &AttributeValue| match value {
                AttributeValue::S(text) => json!({"S": text}),
                AttributeValue::N(number) => json!({"N": number}),
                AttributeValue::B(bytes) => json!({"B": base64::encode(bytes.as_ref())}),
                _ => json!({"NULL": true}),
            };
            said["Item"] =
                row.iter().map(|(name, given)| (name.clone(), value(given))).collect::<serde_json::Map<_, _>>().into();
        }
        said
    };
    let reasons: Vec<_> = reasons.iter().map(reason).collect();
    let code = "com.amazonaws.dynamodb.v20120810#TransactionCanceledException";
    Outcome::Http(400, json!({"__type": code, "message": "simulated", "CancellationReasons": reasons}).to_string())
}

/// The response without its rows.
pub(crate) fn without_rows(outcome: Outcome) -> Outcome {
    let Outcome::Http(status, body) = outcome else { return outcome };
    let Ok(mut answer) = serde_json::from_str::<serde_json::Value>(&body) else { return Outcome::Http(status, body) };
    let reasons = answer["CancellationReasons"].as_array().map_or(0, Vec::len);
    for reason in 0..reasons {
        answer["CancellationReasons"][reason].as_object_mut().map(|reason| reason.remove("Item"));
    }
    answer.as_object_mut().map(|answer| answer.remove("Item"));
    Outcome::Http(status, answer.to_string())
}

fn failure(status: u16, code: &str) -> Outcome {
    let body = format!(r#"{{"__type":"com.amazonaws.dynamodb.v20120810#{code}","message":"simulated"}}"#);
    Outcome::Http(status, body)
}

fn sorted(row: Item) -> Vec<(String, Value)> {
    let mut attributes: Vec<_> = row.iter().map(|(name, value)| (name.to_owned(), value.clone())).collect();
    attributes.sort_by(|one, other| one.0.cmp(&other.0));
    attributes
}

/// The real transport. It notes each request before the SDK converts it to HTTP.
#[derive(Debug)]
pub(crate) struct Noted {
    world: World,
    schema: Schema,
    real: Real,
}

impl Noted {
    pub(crate) fn new(world: &World) -> Self {
        let schema = world.state().schema.clone();
        let real = Real::new(client(world), "locks", schema.clone());
        Self { world: world.clone(), schema, real }
    }
}

impl Network for Noted {
    fn write(&self, request: Request) -> Replying<'_, Written> {
        self.note(Typed::of(&request, Vec::new(), &self.schema));
        self.real.write(request)
    }

    fn transact<'a>(&'a self, requests: Vec<Request>, writes: &'a [TransactWriteItem]) -> Replying<'a, Transacted> {
        self.note(Typed::of(&requests[0], Write::all(writes), &self.schema));
        self.real.transact(requests, writes)
    }

    fn read(&self, key: LockKey) -> Replying<'_, Option<Item>> {
        self.note(Typed::read(key.clone()));
        self.real.read(key)
    }

    fn read_all(&self, keys: Vec<LockKey>) -> Replying<'_, Vec<RowRead>> {
        self.real.read_all(keys)
    }
}

impl Noted {
    fn note(&self, typed: Typed) {
        let mut state = self.world.state();
        let process = state.running;
        state.processes[process].noted = Some(typed);
    }
}

fn client(world: &World) -> Client {
    let connector = Connector { world: world.clone() };
    Client::from_conf(
        Config::builder()
            .behavior_version(BehaviorVersion::latest())
            .region(Region::new("eu-central-1"))
            .credentials_provider(Credentials::new("AKIDEXAMPLE", "secret", None, None, "simulation"))
            .sleep_impl(SharedAsyncSleep::new(Never))
            .http_client(http_client_fn(move |_, _| SharedHttpConnector::new(connector.clone())))
            .build(),
    )
}

/// The SDK's own timeouts never expire, because this crate has its own.
#[derive(Debug)]
struct Never;

impl AsyncSleep for Never {
    fn sleep(&self, _: Duration) -> Sleep {
        Sleep::new(std::future::pending())
    }
}

#[derive(Clone, Debug)]
struct Connector {
    world: World,
}

impl HttpConnector for Connector {
    fn call(&self, request: HttpRequest) -> HttpConnectorFuture {
        let target = request.headers().get("x-amz-target").unwrap();
        let operation = target.rsplit('.').next().unwrap().to_owned();
        let body = String::from_utf8(request.body().bytes().unwrap().to_vec()).unwrap();
        let mut state = self.world.state();
        let process = state.running;
        let typed = state.processes[process].noted.take().unwrap();
        let slot = state.send(process, typed, Some(Http { operation, body }));
        let pending = Pending::new(&self.world, slot);
        HttpConnectorFuture::new(async move {
            let (outcome, date) = pending.outcome().await;
            match outcome {
                Some(Outcome::Http(status, body)) => {
                    let mut response = HttpResponse::new(status.try_into().unwrap(), SdkBody::from(body));
                    response.headers_mut().insert("content-type", "application/x-amz-json-1.0");
                    let date = DateTime::from(date).fmt(Format::HttpDate).unwrap();
                    response.headers_mut().insert("date", date);
                    response.headers_mut().insert("x-amzn-requestid", "SIMULATED");
                    Ok(response)
                }
                Some(Outcome::Stranger) => {
                    let page = SdkBody::from("<html><h1>Bad gateway</h1></html>");
                    let mut response = HttpResponse::new(502.try_into().unwrap(), page);
                    response.headers_mut().insert("content-type", "text/html");
                    let date = DateTime::from(date - Duration::from_secs(3600)).fmt(Format::HttpDate).unwrap();
                    response.headers_mut().insert("date", date);
                    Ok(response)
                }
                _ => Err(ConnectorError::io(Error::from(ErrorKind::ConnectionReset).into())),
            }
        })
    }
}
