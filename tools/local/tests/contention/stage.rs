//! An embedded DynamoDB with a lock table and a table of counters, and the proxy in front of it.

use crate::accidents::Accidents;
use aws_sdk_dynamodb::types::{
    AttributeDefinition, AttributeValue, BillingMode, KeySchemaElement, KeyType, ScalarAttributeType,
};
use lambda_lock::LockClient;
use lambda_lock_local::authorize::{AuthorizingProxy, Grant, Role};
use lambda_lock_local::{LocalDynamoDb, client};
use std::collections::BTreeMap;

pub(crate) const LOCKS: &str = "locks";
pub(crate) const COUNTERS: &str = "counters";

pub(crate) struct Stage {
    pub(crate) dynamodb: LocalDynamoDb,
    /// The proxy that causes the accidents.
    pub(crate) proxy: AuthorizingProxy,
}

impl Stage {
    pub(crate) async fn new(accidents: Option<&Accidents>) -> Self {
        let dynamodb = LocalDynamoDb::in_memory().await.unwrap();
        LockClient::builder(client(dynamodb.endpoint()), LOCKS)
            .build()
            .unwrap()
            .operator()
            .create_table()
            .await
            .unwrap();
        create_counters(dynamodb.endpoint()).await;
        let role: Role = [LOCKS, COUNTERS]
            .into_iter()
            .flat_map(|table| ["GetItem", "BatchGetItem", "UpdateItem"].map(|action| grant(table, action)))
            .collect();
        // The caller's name of clients on this machine.
        let roles = BTreeMap::from([("local".to_owned(), role)]);
        let proxy = AuthorizingProxy::start(dynamodb.endpoint(), roles).await.unwrap();
        if let Some(accidents) = accidents.cloned() {
            proxy.decide(move |call| accidents.fate(call));
        }
        Self { dynamodb, proxy }
    }

    /// Returns the value of the counter. This request has no accidents.
    pub(crate) async fn count(&self, id: &str) -> u64 {
        let get = client(self.dynamodb.endpoint()).get_item().table_name(COUNTERS).consistent_read(true);
        let item = get.key("id", AttributeValue::S(id.to_owned())).send().await.unwrap().item.unwrap();
        item["count"].as_n().unwrap().parse().unwrap()
    }
}

fn grant(table: &str, action: &str) -> Grant {
    let resource = format!("arn:aws:dynamodb:local:123456789012:table/{table}");
    Grant::new(format!("dynamodb:{action}"), resource)
}

async fn create_counters(endpoint: &str) {
    let id = AttributeDefinition::builder().attribute_name("id").attribute_type(ScalarAttributeType::S);
    let hash = KeySchemaElement::builder().attribute_name("id").key_type(KeyType::Hash);
    let create = client(endpoint).create_table().table_name(COUNTERS).billing_mode(BillingMode::PayPerRequest);
    let create = create.attribute_definitions(id.build().unwrap()).key_schema(hash.build().unwrap());
    create.send().await.unwrap();
}
