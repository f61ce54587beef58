//! The promises to the callers of a transfer, tested on an embedded DynamoDB.

use crate::handler::{Deps, handler};
use aws_sdk_dynamodb::types::AttributeValue;
use lambda_lock::LockClient;
use lambda_lock_functions::test_support::{DynamoDb, assert_failure, event, variables};
use lambda_lock_functions::{ConfigError, Failure};
use serde_json::{Value, json};
use std::time::Duration;

/// The function with its tables and two accounts: `a` has 100, and `b` has 10.
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
        server.create_table("accounts", "accountId").await;
        server.create_table("transfers", "transferId").await;
        for (account, balance) in [("a", 100), ("b", 10)] {
            let balance = AttributeValue::N(balance.to_string());
            server.set("accounts", ("accountId", account), ("balance", balance)).await;
        }
        let deps = deps(&server, environment).unwrap();
        Self { server, deps }
    }

    async fn call(&self, request: Value) -> Result<Value, Failure> {
        handler(event(&request, 30.0), &self.deps).await
    }

    async fn balances(&self) -> [u64; 2] {
        let mut balances = [0; 2];
        for (balance, account) in balances.iter_mut().zip(["a", "b"]) {
            let row = self.server.item("accounts", "accountId", account).await.unwrap();
            *balance = row["balance"].as_n().unwrap().parse().unwrap();
        }
        balances
    }

    async fn assert_both_are_free(&self) {
        for key in ["account/a", "account/b"] {
            let row = self.server.row(key).await;
            assert!(row.is_none_or(|row| row.contains_key("isReleased")), "{key} is held");
        }
    }

    fn other(&self) -> LockClient {
        self.server.locks(&[])
    }
}

fn deps(server: &DynamoDb, environment: &[(&str, &str)]) -> Result<Deps, ConfigError> {
    let all = [environment, &[("ACCOUNTS_TABLE", "accounts"), ("TRANSFERS_TABLE", "transfers")]].concat();
    Deps::new(&server.config(environment)?, &variables(&all))
}

fn transfer(amount: u64) -> Value {
    json!({ "transferId": "t-1", "from": "a", "to": "b", "amount": amount })
}

fn transfer_with(fields: &Value) -> Value {
    let mut request = transfer(30);
    request.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    request
}

#[tokio::test]
async fn both_balances_change_and_both_locks_are_free() {
    let function = Function::start().await;

    let answer = function.call(transfer(30)).await.unwrap();

    let token = answer["fencingToken"].as_u64().unwrap();
    let expected = json!({
        "transferId": "t-1", "fromBalance": 70, "toBalance": 40, "fencingToken": token, "replayed": false,
    });
    assert_eq!((answer, function.balances().await), (expected, [70, 40]));
    function.assert_both_are_free().await;
    for account in ["a", "b"] {
        let row = function.server.item("accounts", "accountId", account).await.unwrap();
        assert_eq!(row["fencingToken"].as_n().unwrap(), &token.to_string(), "one token for both accounts");
    }
}

#[tokio::test]
async fn a_transfer_that_is_requested_again_returns_its_result_and_moves_nothing() {
    let function = Function::start().await;
    let mut first = function.call(transfer(30)).await.unwrap();
    function.call(transfer_with(&json!({ "transferId": "t-2", "amount": 1 }))).await.unwrap();

    let again = function.call(transfer(30)).await.unwrap();

    first["replayed"] = true.into();
    assert_eq!((again, function.balances().await), (first, [69, 41]));
    function.assert_both_are_free().await;
}

#[tokio::test]
async fn an_id_of_another_transfer_is_refused() {
    let function = Function::start().await;
    function.call(transfer(30)).await.unwrap();
    for other in [json!({ "amount": 31 }), json!({ "from": "b", "to": "a" }), json!({ "to": "c" })] {
        let refused = function.call(transfer_with(&other)).await;
        assert_failure(refused, "InvalidRequest", "transferId belongs to a transfer with other accounts");
    }
    assert_eq!(function.balances().await, [70, 40]);
    function.assert_both_are_free().await;
}

#[tokio::test]
async fn an_amount_that_the_account_does_not_have_moves_nothing_and_may_be_requested_again() {
    let function = Function::start().await;
    assert_failure(function.call(transfer(101)).await, "WorkFailed", "free again: the balance of from is less");
    assert_eq!(function.balances().await, [100, 10]);
    function.assert_both_are_free().await;
    assert_eq!(function.call(transfer(100)).await.unwrap()["fromBalance"], 0);
}

#[tokio::test]
async fn an_account_that_does_not_exist_is_refused() {
    let function = Function::start().await;
    for field in ["from", "to"] {
        let refused = function.call(transfer_with(&json!({ field: "nobody" }))).await;
        assert_failure(refused, "InvalidRequest", &format!("{field} names an account that does not exist"));
    }
    function.assert_both_are_free().await;
}

#[tokio::test]
async fn an_account_that_another_caller_holds_is_lock_held_and_the_other_account_stays_free() {
    let function = Function::start().await;
    let other = function.other();
    let held = other.acquire("account/b").lease(Duration::from_secs(60)).try_once().await.unwrap().granted().unwrap();
    let refused = handler(event(&transfer(30), 2.0), &function.deps).await;
    assert_failure(refused, "LockHeld", "account/b");
    assert!(function.server.row("account/a").await.is_none(), "a refused set writes nothing");
    held.release().await.unwrap();
    assert_eq!(function.balances().await, [100, 10]);
}

#[tokio::test]
async fn a_malformed_request_is_refused_by_the_name_of_its_field() {
    let function = Function::start().await;
    for (fields, says) in [
        (json!({ "transferId": "" }), "transferId is malformed"),
        (json!({ "from": 7 }), "from is malformed"),
        (json!({ "to": "a" }), "to is malformed: give another account"),
        (json!({ "to": "x".repeat(1001) }), "to is malformed"),
        (json!({ "amount": 0 }), "amount is malformed"),
        (json!({ "amount": -1 }), "amount is malformed"),
        (json!({ "amuont": 1 }), "amuont is no field"),
    ] {
        assert_failure(function.call(transfer_with(&fields)).await, "InvalidRequest", says);
    }
}

#[tokio::test]
async fn an_error_of_the_tables_is_reported_by_name() {
    let function = Function::start().await;
    function.server.drop_table("transfers").await;
    assert_failure(function.call(transfer(30)).await, "WorkFailed", "free again: transfers was not read");
    let server = DynamoDb::empty().await;
    let deps = deps(&server, &[]).unwrap();
    assert_failure(handler(event(&transfer(30), 30.0), &deps).await, "LockTableError", "cannot be used");
}

#[tokio::test]
async fn a_table_with_a_sort_key_works_too() {
    let function = Function::with(&[("LOCK_SORT_KEY_ATTRIBUTE", "sk")]).await;
    assert_eq!(function.call(transfer(30)).await.unwrap()["replayed"], false);
    let longest = "x".repeat(1000);
    let refused = function.call(transfer_with(&json!({ "transferId": longest, "from": longest }))).await;
    assert_failure(refused, "InvalidRequest", "from names an account that does not exist");
}

#[tokio::test]
async fn a_missing_variable_is_named() {
    let server = DynamoDb::empty().await;
    for missing in ["ACCOUNTS_TABLE", "TRANSFERS_TABLE"] {
        let value = |name: &str| (name != missing).then(|| "t".to_owned());
        let error = Deps::new(&server.config(&[]).unwrap(), &|name| Ok(value(name))).err().unwrap().to_string();
        assert!(error.starts_with(missing), "{error}");
    }
}
