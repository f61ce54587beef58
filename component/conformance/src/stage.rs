//! The stage of the scenarios: an embedded DynamoDB with a lock table, and a proxy that loses responses.

use anyhow::Context;
use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::types::AttributeValue;
use lambda_lock::LockClient;
use lambda_lock_local::authorize::{AuthorizingProxy, Call, Fate, Grant, Role};
use lambda_lock_local::{LocalDynamoDb, client};
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The lock table of all scenarios. Each scenario has keys of its own.
pub(crate) const TABLE: &str = "locks";
/// A table that does not exist.
pub(crate) const MISSING_TABLE: &str = "no-such-table";
/// The caller under test.
pub(crate) const SUBJECT: &str = "subject";
/// The caller that uses the crate itself.
pub(crate) const NATIVE: &str = "native";
/// A caller that may only read.
pub(crate) const READER: &str = "reader";

/// An embedded DynamoDB and a proxy to it.
#[derive(Debug)]
pub struct Stage {
    dynamodb: LocalDynamoDb,
    proxy: AuthorizingProxy,
    way: Arc<Mutex<Way>>,
}

/// For each caller: what happened to its requests, and what will happen.
#[derive(Debug, Default)]
struct Way {
    script: BTreeMap<String, VecDeque<Fate>>,
    always: BTreeMap<String, Fate>,
    sent: BTreeMap<String, Vec<String>>,
}

impl Stage {
    /// Starts the servers on ports that the system chooses. They run until this value is dropped.
    ///
    /// # Errors
    /// If no loopback port is available.
    pub async fn set() -> anyhow::Result<Self> {
        let dynamodb = LocalDynamoDb::in_memory().await?;
        let table = LockClient::builder(client(dynamodb.endpoint()), TABLE).build()?;
        table.operator().create_table().await?;
        let all = ["GetItem", "UpdateItem", "BatchGetItem"];
        let roles = [(SUBJECT, &all[..]), (NATIVE, &all[..]), (READER, &all[..1])];
        let roles = roles.into_iter().map(|(caller, actions)| (caller.to_owned(), role(actions))).collect();
        let proxy = AuthorizingProxy::start(dynamodb.endpoint(), roles).await?;
        let way: Arc<Mutex<Way>> = Arc::default();
        let shared = Arc::clone(&way);
        proxy.decide(move |call| lock(&shared).decide(call));
        Ok(Self { dynamodb, proxy, way })
    }

    /// The endpoint for all players of a scenario.
    pub fn endpoint(&self) -> &str {
        self.proxy.endpoint()
    }

    /// The endpoint without the proxy, for measurements.
    pub fn direct_endpoint(&self) -> &str {
        self.dynamodb.endpoint()
    }

    /// A client that is not under test. It does not use the proxy.
    pub fn dynamodb(&self) -> Client {
        client(self.dynamodb.endpoint())
    }

    /// What happens to the next requests of the subject.
    pub fn next(&self, fates: impl IntoIterator<Item = Fate>) {
        lock(&self.way).script.entry(SUBJECT.to_owned()).or_default().extend(fates);
    }

    /// What happens to the subject's requests after those of `next`.
    pub fn always(&self, fate: Fate) {
        lock(&self.way).always.insert(SUBJECT.to_owned(), fate);
    }

    /// Returns the operations that the subject has sent so far, and forgets them.
    pub fn take_sent(&self) -> Vec<String> {
        lock(&self.way).sent.remove(SUBJECT).unwrap_or_default()
    }

    /// Removes everything that a scenario left behind, except tables.
    pub fn clear(&self) {
        *lock(&self.way) = Way::default();
    }

    /// Sets attributes of a row.
    ///
    /// # Errors
    /// If DynamoDB refuses the request.
    pub async fn put(
        &self,
        key: &str,
        attributes: impl IntoIterator<Item = (&str, AttributeValue)>,
    ) -> anyhow::Result<()> {
        let mut put = self.dynamodb().put_item().table_name(TABLE).item("key", AttributeValue::S(key.to_owned()));
        for (name, value) in attributes {
            put = put.item(name, value);
        }
        put.send().await.context("the row could not be put")?;
        Ok(())
    }

    /// Deletes a row, as a TTL does.
    ///
    /// # Errors
    /// If DynamoDB refuses the request.
    pub async fn delete(&self, key: &str) -> anyhow::Result<()> {
        let delete = self.dynamodb().delete_item().table_name(TABLE).key("key", AttributeValue::S(key.to_owned()));
        delete.send().await.context("the row could not be deleted")?;
        Ok(())
    }
}

impl Way {
    fn decide(&mut self, call: &Call) -> Fate {
        let operations = call.needs.iter().filter_map(|grant| grant.action.strip_prefix("dynamodb:"));
        self.sent.entry(call.caller.clone()).or_default().extend(operations.map(str::to_owned));
        let scripted = self.script.get_mut(&call.caller).and_then(VecDeque::pop_front);
        scripted.or_else(|| self.always.get(&call.caller).copied()).unwrap_or(Fate::Answered)
    }
}

/// A role with these actions on the lock table and on the missing table.
fn role(actions: &[&str]) -> Role {
    let grants = actions.iter().flat_map(|action| [TABLE, MISSING_TABLE].map(|table| (action, table)));
    grants
        .map(|(action, table)| {
            let resource = format!("arn:aws:dynamodb:local:123456789012:table/{table}");
            Grant::new(format!("dynamodb:{action}"), resource)
        })
        .collect()
}

fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}
