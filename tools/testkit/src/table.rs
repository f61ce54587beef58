//! An embedded lock table, and the processes that use it.

use crate::clock::ManualClock;
use crate::dispatch::apply;
use crate::limbo::Limbo;
use crate::limit::Running;
use crate::network::{Fault, Latency, Network, ONE_WAY, Sent};
use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::config::{BehaviorVersion, Config, Credentials, Region};
use aws_smithy_runtime_api::client::http::{SharedHttpConnector, http_client_fn};
use dynoxide::Database;
use lambda_lock::{Budget, LockClient, LockClientBuilder};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::time::Instant;

const TABLE: &str = "locks";

/// A lock table. It is empty when a test begins.
#[derive(Clone)]
pub struct Table {
    database: Database,
    limbo: Arc<Mutex<Vec<Limbo>>>,
    origin: Instant,
}

impl Table {
    /// Creates a table with the key attribute `key`.
    pub fn new() -> Self {
        Self::with_keys(&["key"])
    }

    /// Creates a table with these key attributes, all of them strings: partition key, sort key.
    pub fn with_keys(names: &[&str]) -> Self {
        let table = Self::none();
        let element = |(name, kind): (&&str, &str)| json!({"AttributeName": name, "KeyType": kind});
        let definition = |name: &&str| json!({"AttributeName": name, "AttributeType": "S"});
        table.call(
            "CreateTable",
            &json!({
                "TableName": TABLE,
                "BillingMode": "PAY_PER_REQUEST",
                "AttributeDefinitions": names.iter().map(definition).collect::<Vec<_>>(),
                "KeySchema": names.iter().zip(["HASH", "RANGE"]).map(element).collect::<Vec<_>>(),
            }),
        );
        table
    }

    /// Creates a database without a table.
    pub fn none() -> Self {
        crate::random::seed();
        Self { database: Database::memory().unwrap(), limbo: Arc::default(), origin: Instant::now() }
    }

    /// Creates a process with its own clocks and its own connection.
    pub fn process(&self) -> Process {
        let network = Network {
            database: self.database.clone(),
            limbo: self.limbo.clone(),
            origin: self.origin,
            script: Arc::default(),
            script_of: Arc::default(),
            sent: Arc::default(),
            date_offset: Arc::new(Mutex::new(Some(0))),
            latency: Arc::new(Mutex::new(Latency::Each(ONE_WAY))),
            requests: Arc::default(),
            _running: Running::begin(),
        };
        Process { network, clock: ManualClock::new(self.origin, fastrand::u64(..)) }
    }

    /// Carries out an operation directly, as the client of another caller. Panics if it is refused.
    pub fn call(&self, operation: &str, body: &Value) -> Value {
        let (status, answer) = apply(&self.database, operation, &body.to_string());
        assert_eq!(status, 200, "{operation} {body}: {answer}");
        serde_json::from_str(&answer).unwrap()
    }

    /// Carries out an operation directly, in DynamoDB's JSON. Returns status and body.
    pub fn carry_out(&self, operation: &str, body: &str) -> (u16, String) {
        apply(&self.database, operation, body)
    }

    /// Lets a copy of a request arrive now. Returns whether it was applied.
    pub fn replay(&self, sent: &Sent) -> bool {
        apply(&self.database, &sent.operation, &sent.body).0 == 200
    }

    /// Returns the row of a plain key in DynamoDB's JSON. `None` if there is none.
    pub fn row(&self, key: &str) -> Option<Value> {
        let answer =
            self.call("GetItem", &json!({"TableName": TABLE, "Key": {"key": {"S": key}}, "ConsistentRead": true}));
        answer.get("Item").cloned()
    }

    /// Returns an attribute of a row as text, whatever its type is.
    pub fn attribute(&self, key: &str, name: &str) -> Option<String> {
        let row = self.row(key)?;
        let value = row.get(name)?.as_object()?.values().next()?.as_str()?;
        Some(value.to_owned())
    }

    /// Returns an attribute of a row as a number. It must be present.
    pub fn number(&self, key: &str, name: &str) -> u64 {
        let text = self.attribute(key, name).unwrap_or_else(|| panic!("{key} has no {name}"));
        text.parse().unwrap_or_else(|_| panic!("{name} of {key} is not a number: {text}"))
    }

    /// Returns whether the row of a lock is marked as released.
    pub fn is_released(&self, key: &str) -> bool {
        self.attribute(key, "isReleased").is_some()
    }

    /// Puts a row in DynamoDB's JSON.
    pub fn put(&self, item: Value) {
        self.call("PutItem", &json!({"TableName": TABLE, "Item": item}));
    }

    /// Sets attributes of a row in DynamoDB's JSON, and keeps the others.
    pub fn set(&self, key: &str, attributes: Value) {
        let mut row = self.row(key).unwrap_or_else(|| json!({"key": {"S": key}}));
        for (name, value) in attributes.as_object().unwrap() {
            row[name] = value.clone();
        }
        self.put(row);
    }

    /// Deletes a row.
    pub fn delete(&self, key: &str) {
        self.call("DeleteItem", &json!({"TableName": TABLE, "Key": {"key": {"S": key}}}));
    }

    /// Puts a row as the Java client writes it: held, with this version and lease.
    pub fn put_java_row(&self, key: &str, version: &str, lease: Duration) {
        self.put(json!({
            "key": {"S": key},
            "ownerName": {"S": "a-java-host"},
            "leaseDuration": {"S": lease.as_millis().to_string()},
            "recordVersionNumber": {"S": version},
        }));
    }
}

impl fmt::Debug for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Table")
    }
}

impl Default for Table {
    fn default() -> Self {
        Self::new()
    }
}

/// One process: its clocks and its connection to the table.
#[derive(Clone, Debug)]
pub struct Process {
    network: Network,
    /// The clocks of the process.
    pub clock: ManualClock,
}

impl Process {
    /// Returns an SDK client of this process, with the SDK's defaults.
    pub fn dynamodb(&self) -> Client {
        let network = self.network.clone();
        Client::from_conf(
            Config::builder()
                .behavior_version(BehaviorVersion::latest())
                .region(Region::new("eu-central-1"))
                .credentials_provider(Credentials::new("AKIDEXAMPLE", "secret", None, None, "test"))
                .http_client(http_client_fn(move |_, _| SharedHttpConnector::new(network.clone())))
                .build(),
        )
    }

    /// Returns a builder for a lock client of this process.
    pub fn builder(&self) -> LockClientBuilder {
        LockClient::builder(self.dynamodb(), TABLE).clock(self.clock.shared())
    }

    /// Returns a lock client of this process with this owner.
    pub fn locks(&self, owner: &str) -> LockClient {
        self.builder().owner(owner).build().unwrap()
    }

    /// Returns a budget on this process's clocks.
    pub fn budget(&self, duration: Duration) -> Budget {
        Budget::lasting_on(self.clock.shared(), duration)
    }

    /// Scripts what happens to the next requests of this process.
    pub fn next(&self, faults: impl IntoIterator<Item = Fault>) {
        self.network.script.lock().unwrap().extend(faults);
    }

    /// Scripts what happens to the next requests of this process that name this key. They do not use up the other script.
    pub fn next_of(&self, key: &str, faults: impl IntoIterator<Item = Fault>) {
        self.network.script_of.lock().unwrap().entry(key.to_owned()).or_default().extend(faults);
    }

    /// Removes the scripted faults that have not happened yet.
    pub fn clear(&self) {
        self.network.script.lock().unwrap().clear();
        self.network.script_of.lock().unwrap().clear();
    }

    /// Sets by how many seconds the server's `Date` header is wrong. `None` means that there is no
    /// header.
    pub fn set_date_offset(&self, seconds: Option<i64>) {
        *self.network.date_offset.lock().unwrap() = seconds;
    }

    /// Sets the longest time of a request, and of a response. Each one takes a random time up to
    /// this.
    pub fn set_latency(&self, longest: Duration) {
        *self.network.latency.lock().unwrap() = Latency::UpTo(longest);
    }

    /// Returns the requests so far.
    pub fn sent(&self) -> Vec<Sent> {
        self.network.sent.lock().unwrap().clone()
    }

    /// Returns the requests so far, and clears them.
    pub fn take_sent(&self) -> Vec<Sent> {
        std::mem::take(&mut *self.network.sent.lock().unwrap())
    }

    /// Returns the number of requests so far by operation, and clears them.
    pub fn take_counts(&self) -> BTreeMap<String, usize> {
        let mut counts = BTreeMap::new();
        for sent in self.take_sent() {
            *counts.entry(sent.operation).or_default() += 1;
        }
        counts
    }

    /// Returns the number of writes and of reads of single rows so far, and clears them. There must
    /// be no other requests.
    pub fn take_writes_and_reads(&self) -> (usize, usize) {
        let mut counts = self.take_counts();
        let mut take = |operation: &str| counts.remove(operation).unwrap_or_default();
        let (writes, reads) = (take("UpdateItem"), take("GetItem"));
        assert!(counts.is_empty(), "{counts:?}");
        (writes, reads)
    }

    /// Returns the operations so far in order, and clears them.
    pub fn take_operations(&self) -> Vec<String> {
        self.take_sent().into_iter().map(|sent| sent.operation).collect()
    }
}
