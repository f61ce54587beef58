//! The contract of lock-task, tested on an embedded DynamoDB from the view of a caller without
//! Rust.

mod acquire;
mod bounds;
mod failures;
mod frozen;
mod fuzz;
mod line;
mod malformed;
mod peek;
mod reclaim;
mod release;
mod renew;
mod several;
mod tenants;
mod trust;
mod workflows;

use crate::deps::Deps;
use crate::handler::handler;
use crate::trust::Trust;
use lambda_lock_functions::test_support::{DynamoDb, TABLE, event, variables};
use lambda_lock_functions::{Config, ConfigError, Failure, Waker};
use serde_json::{Value, json};
use std::sync::Arc;

/// A function with its own lock table.
struct Function {
    server: DynamoDb,
    deps: Deps,
}

impl Function {
    async fn start() -> Self {
        Self::with(&[]).await
    }

    async fn with(environment: &[(&str, &str)]) -> Self {
        let server = DynamoDb::with_table(environment).await;
        let deps = deps(&server, environment).unwrap();
        Self { server, deps }
    }

    async fn call(&self, request: Value) -> Result<Value, Failure> {
        handler(event(&request, 30.0), &self.deps).await
    }

    async fn answer(&self, request: Value) -> Value {
        self.call(request).await.unwrap()
    }

    /// Acquires `customer-7` for 300 s and returns the lock.
    async fn lock(&self, owner: &str) -> Value {
        self.answer(acquire(owner)).await["lock"].clone()
    }

    async fn is_free(&self) -> bool {
        self.server.row("customer-7").await.unwrap().contains_key("isReleased")
    }
}

fn deps(server: &DynamoDb, environment: &[(&str, &str)]) -> Result<Deps, ConfigError> {
    Deps::new(&server.config(environment)?, &variables(environment))
}

/// The trust of an empty environment.
fn trusting() -> Arc<Trust> {
    Arc::new(Trust::read(&|_| Ok(None)).unwrap())
}

/// Whoever needs it finds no Step Functions.
fn waker() -> Arc<Waker> {
    let environment =
        [("LOCK_TABLE", TABLE), ("AWS_REGION", "eu-central-1"), ("AWS_ENDPOINT_URL", "http://127.0.0.1:1")];
    let credentials = [("AWS_ACCESS_KEY_ID", "test"), ("AWS_SECRET_ACCESS_KEY", "test")];
    let value = |name: &str| {
        let found = environment.iter().chain(&credentials).find(|(known, _)| *known == name);
        Ok(found.map(|(_, value)| (*value).to_owned()))
    };
    Arc::new(Waker::new(&Config::read(&value).unwrap(), &value).unwrap())
}

fn acquire(owner: &str) -> Value {
    json!({ "action": "acquire", "key": "customer-7", "owner": owner, "leaseSeconds": 300 })
}

/// A request with these fields added or replaced.
fn with(mut request: Value, fields: Value) -> Value {
    request.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    request
}

fn names(value: &Value) -> Vec<&str> {
    let mut names: Vec<_> = value.as_object().unwrap().keys().map(String::as_str).collect();
    names.sort_unstable();
    names
}
