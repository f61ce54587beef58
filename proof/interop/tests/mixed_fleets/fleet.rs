//! A table that our client shares with peers of one language, and the promises that are tested on it.

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::operation::put_item::builders::PutItemFluentBuilder;
use aws_sdk_dynamodb::types::AttributeValue;
use lambda_lock::{Budget, Dialect, Lock, LockClient, LockClientBuilder};
use lambda_lock_interop::{Driver, Language, Opened, Peer};
use lambda_lock_local::{CountingProxy, Counts, client};
use std::collections::HashMap;
use std::pin::Pin;
use std::time::Duration;
use tokio::task::JoinSet;

/// The lease of holders that will die, or that a test waits for.
pub(crate) const SHORT: Duration = Duration::from_secs(2);
/// The lease of holders that stay.
pub(crate) const LONG: Duration = Duration::from_secs(60);

/// A promise about our client and a peer of any language.
pub(crate) type Promise = fn(Fleet) -> Pin<Box<dyn Future<Output = ()> + Send>>;

/// A lock table for our client and for peers of one language.
#[derive(Clone, Debug)]
pub(crate) struct Fleet {
    pub(crate) language: Language,
    endpoint: String,
    table: String,
    dynamodb: Client,
}

impl Fleet {
    pub(crate) async fn new(endpoint: &str, language: Language, promise: &str) -> Self {
        let table = format!("{language}-{promise}");
        let fleet = Self { language, endpoint: endpoint.to_owned(), table, dynamodb: client(endpoint) };
        fleet.locks("creator").operator().create_table().await.unwrap();
        fleet
    }

    /// Returns a builder of our client. It writes the peer's dialect.
    pub(crate) fn builder(&self, owner: &str) -> LockClientBuilder {
        self.builder_on(&self.dynamodb, owner)
    }

    fn builder_on(&self, dynamodb: &Client, owner: &str) -> LockClientBuilder {
        let dialect = if self.language == Language::Go { Dialect::Go } else { Dialect::Java };
        let builder = LockClient::builder(dynamodb.clone(), &self.table).owner(owner).dialect(dialect);
        match self.language {
            Language::Python => builder.key_attribute("lock_key").sort_key_attribute("sort_key"),
            Language::Java | Language::Go => builder,
        }
    }

    pub(crate) fn locks(&self, owner: &str) -> LockClient {
        self.builder(owner).build().unwrap()
    }

    /// Returns our client with a proxy that counts its requests.
    pub(crate) async fn counted(&self) -> (LockClient, CountingProxy) {
        let proxy = CountingProxy::start(&self.endpoint).await.unwrap();
        let locks = self.builder_on(&client(proxy.endpoint()), "counted").build().unwrap();
        (locks, proxy)
    }

    /// Starts a peer that renews only on request.
    pub(crate) async fn peer(&self, owner: &str, lease: Duration) -> Peer {
        self.open(self.language, owner, lease, Duration::ZERO).await
    }

    /// Starts a peer that renews in the background, as its users do.
    pub(crate) async fn renewing_peer(&self, owner: &str, lease: Duration) -> Peer {
        self.open(self.language, owner, lease, lease / 4).await
    }

    pub(crate) async fn open(&self, language: Language, owner: &str, lease: Duration, renew: Duration) -> Peer {
        let opened = Opened {
            endpoint: self.endpoint.clone(),
            table: self.table.clone(),
            owner: owner.to_owned(),
            lease_millis: lease.as_millis() as u64,
            renew_millis: renew.as_millis() as u64,
        };
        let program = language.program().unwrap().unwrap();
        Peer::open(Driver::start(&program, &[]).unwrap(), &opened).await.unwrap()
    }

    pub(crate) async fn row(&self, key: &str) -> Option<HashMap<String, AttributeValue>> {
        let key = AttributeValue::S(key.to_owned());
        let found = self.dynamodb.get_item().table_name(&self.table).key("key", key).consistent_read(true);
        found.send().await.unwrap().item
    }

    /// Deletes a row by hand, unless somebody was granted the lock since it was released.
    pub(crate) async fn delete_released(&self, key: &str) {
        let key = AttributeValue::S(key.to_owned());
        let delete = self.dynamodb.delete_item().table_name(&self.table).key("key", key);
        if let Err(error) = delete.condition_expression("attribute_exists(isReleased)").send().await {
            let error = error.into_service_error();
            assert!(error.is_conditional_check_failed_exception(), "{error}");
        }
    }

    /// Puts a row that is not a lock record.
    pub(crate) fn put(&self, key: &str) -> PutItemFluentBuilder {
        self.dynamodb.put_item().table_name(&self.table).item("key", AttributeValue::S(key.to_owned()))
    }

    /// Returns an attribute of a row as text.
    pub(crate) async fn attribute(&self, key: &str, name: &str) -> Option<String> {
        match self.row(key).await?.remove(name)? {
            AttributeValue::S(text) | AttributeValue::N(text) => Some(text),
            AttributeValue::B(bytes) => Some(String::from_utf8(bytes.into_inner()).unwrap()),
            other => panic!("{name} is {other:?}"),
        }
    }
}

/// Acquires a lock that must be free.
pub(crate) async fn granted(locks: &LockClient, key: &str, lease: Duration) -> Lock {
    locks.acquire(key).lease(lease).try_once().await.unwrap().granted().expect("another caller holds the lock")
}

/// Acquires a lock, and waits for it up to a minute.
pub(crate) async fn waited_for(locks: &LockClient, key: &str) -> Lock {
    let budget = Budget::lasting(Duration::from_secs(60)).reserve(Duration::from_secs(1));
    locks.acquire(key).within(&budget).lease(LONG).await.unwrap()
}

/// Returns how many requests of each operation were counted, such as `GetItem`.
pub(crate) fn requests(counts: &Counts) -> Vec<(&str, u64)> {
    counts.requests.iter().map(|(operation, count)| (operation.as_str(), *count)).collect()
}

/// Tests a promise with each of these languages that this machine has, at the same time.
pub(crate) async fn keep(endpoint: &str, name: &str, promise: Promise, languages: &[Language]) {
    let mut kept = JoinSet::new();
    for language in languages.iter().copied() {
        if language.program().unwrap().is_some() {
            let fleet = Fleet::new(endpoint, language, name).await;
            kept.spawn(async move { promise(fleet).await });
        }
    }
    // A promise that fails panics with the language in its table's name.
    kept.join_all().await;
}
