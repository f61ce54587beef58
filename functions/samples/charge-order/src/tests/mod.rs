//! The contract of charge-order, tested on an embedded DynamoDB with a local payment gateway.

mod charging;
mod failures;
mod gateway;
mod malformed;

use crate::{Deps, handler};
use aws_sdk_dynamodb::types::AttributeValue;
use lambda_lock_functions::test_support::{DynamoDb, event, variables};
use lambda_lock_functions::{ConfigError, Failure};
use lambda_lock_local::PaymentGateway;
use serde_json::{Value, json};
use std::collections::HashMap;

/// The key of o-1 in the lock table.
const KEY: &str = "once/order/o-1";

/// A function with its own tables and payment gateway.
struct Function {
    server: DynamoDb,
    gateway: PaymentGateway,
    deps: Deps,
}

impl Function {
    async fn start() -> Self {
        Self::with(&[]).await
    }

    async fn with(environment: &[(&str, &str)]) -> Self {
        let server = DynamoDb::with_table(environment).await;
        server.create_table("orders", "orderId").await;
        let gateway = PaymentGateway::start().await.unwrap();
        let own = [("PAYMENT_GATEWAY_URL", gateway.url()), ("ALLOW_SIMULATE", "true")];
        let deps = deps(&server, &[environment, own.as_slice()].concat()).unwrap();
        Self { server, gateway, deps }
    }

    async fn call(&self, request: Value) -> Result<Value, Failure> {
        self.call_within(request, 30.0).await
    }

    async fn call_within(&self, request: Value, seconds: f64) -> Result<Value, Failure> {
        handler(event(&request, seconds), &self.deps).await
    }

    async fn order(&self, id: &str) -> Option<HashMap<String, AttributeValue>> {
        self.server.item("orders", "orderId", id).await
    }

    /// How many requests the gateway got, and how many charges it made.
    fn charged(&self) -> (usize, usize) {
        let ledger = self.gateway.ledger();
        (ledger.len(), ledger.iter().filter(|entry| entry.executed).count())
    }

    /// Whether the lock of o-1 is free and no outcome is stored.
    async fn is_open(&self) -> bool {
        let row = self.server.row(KEY).await.unwrap();
        row.contains_key("isReleased") && !row.contains_key("onceState")
    }
}

fn deps(server: &DynamoDb, environment: &[(&str, &str)]) -> Result<Deps, ConfigError> {
    let all = [environment, &[("ORDERS_TABLE", "orders")]].concat();
    Deps::new(&server.config(environment)?, &variables(&all))
}

fn order() -> Value {
    json!({ "orderId": "o-1", "amount": 1250, "currency": "EUR" })
}

/// The order with these fields added or replaced.
fn order_with(fields: Value) -> Value {
    let mut request = order();
    request.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    request
}
