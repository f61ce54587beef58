//! The two requests of lock-task written by hand, with the same expressions and the same payloads, and nothing else.
//!
//! It checks nothing and repeats nothing. It shows the minimum cost of a lock, and is not an example to copy.
#![allow(clippy::disallowed_methods, reason = "a bare function has no clock but the system's")]

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::types::{AttributeValue, ReturnValue, ReturnValuesOnConditionCheckFailure};
use lambda_runtime::{Error, LambdaEvent};
use serde_json::{Value, json};
use std::time::{SystemTime, UNIX_EPOCH};
use uuid::Uuid;

const CLAIM: &str = "SET ownerName = :owner, leaseDuration = :lease, recordVersionNumber = :rvn, leaseEndsAt = :ends, \
     fencingToken = if_not_exists(fencingToken, :now) + :one REMOVE isReleased, workflow, expiresAt";
const IF_FREE: &str = "attribute_not_exists(#pk) OR begins_with(recordVersionNumber, :ours) \
     AND (attribute_exists(isReleased) AND leaseEndsAt <= :now OR leaseEndsAt < :trusted) AND attribute_not_exists(freezeReason) \
     AND attribute_not_exists(attributeNames) AND attribute_not_exists(ttlAttribute)";
const RELEASE: &str = "SET isReleased = :released, leaseEndsAt = :ends REMOVE workflow";
const IF_MINE: &str = "recordVersionNumber BETWEEN :first AND :rvn AND fencingToken = :token \
     AND (attribute_not_exists(isReleased) OR attribute_not_exists(brokenVersion) \
     OR brokenVersion <> recordVersionNumber)";

const SKEW_MILLIS: u64 = 2_000;

/// A client and its table.
#[derive(Debug)]
pub struct Bare {
    dynamodb: Client,
    table: String,
}

impl Bare {
    /// A client for the table in `LOCK_TABLE`.
    ///
    /// # Errors
    /// If `LOCK_TABLE` is not set.
    pub fn new(dynamodb: Client) -> Result<Self, Error> {
        Ok(Self { dynamodb, table: std::env::var("LOCK_TABLE")? })
    }

    /// Handles `{"action":"acquire",…}` and `{"action":"release",…}` as lock-task does.
    ///
    /// # Errors
    /// If the payload is neither of them, or if DynamoDB refuses the request.
    pub async fn handle(&self, event: LambdaEvent<Value>) -> Result<Value, Error> {
        let event = event.payload;
        match text(&event, "action")? {
            "acquire" => self.acquire(&event).await,
            "release" => self.release(&event["lock"]).await,
            other => Err(format!("no action {other:?}").into()),
        }
    }

    async fn acquire(&self, request: &Value) -> Result<Value, Error> {
        let (key, owner) = (text(request, "key")?, text(request, "owner")?);
        let seconds = request["leaseSeconds"].as_u64().ok_or("no leaseSeconds")?;
        let (now, lease) = (epoch_millis()?, seconds * 1_000);
        let grant = Uuid::new_v4();
        let version = format!("ll1-{}-{now:012x}{:016x}", grant.simple(), grant.as_u64_pair().1);
        let granted = self
            .dynamodb
            .update_item()
            .table_name(&self.table)
            .key("key", AttributeValue::S(key.to_owned()))
            .update_expression(CLAIM)
            .condition_expression(IF_FREE)
            .expression_attribute_names("#pk", "key")
            .expression_attribute_values(":owner", AttributeValue::S(owner.to_owned()))
            .expression_attribute_values(":lease", AttributeValue::S(lease.to_string()))
            .expression_attribute_values(":rvn", AttributeValue::S(version.clone()))
            .expression_attribute_values(":ends", AttributeValue::N((now + lease).to_string()))
            .expression_attribute_values(":now", AttributeValue::N(now.to_string()))
            .expression_attribute_values(":one", AttributeValue::N("1".to_owned()))
            .expression_attribute_values(":ours", AttributeValue::S("ll1-".to_owned()))
            .expression_attribute_values(":trusted", AttributeValue::N((now - SKEW_MILLIS).to_string()))
            .return_values(ReturnValue::AllNew)
            .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld)
            .send()
            .await?;
        let token: u64 = match granted.attributes().and_then(|row| row.get("fencingToken")) {
            Some(AttributeValue::N(token)) => token.parse()?,
            _ => return Err("the row has no fencing token".into()),
        };
        let lock = json!({
            "key": key,
            "owner": owner,
            "version": version,
            "fencingToken": token,
            "leaseSeconds": seconds,
            "leaseEndsAt": now + lease,
        });
        Ok(json!({ "acquired": true, "lock": lock }))
    }

    async fn release(&self, lock: &Value) -> Result<Value, Error> {
        let version = text(lock, "version")?;
        let grant = version.rsplit_once('-').ok_or("no version")?.0;
        self.dynamodb
            .update_item()
            .table_name(&self.table)
            .key("key", AttributeValue::S(text(lock, "key")?.to_owned()))
            .update_expression(RELEASE)
            .condition_expression(IF_MINE)
            .expression_attribute_values(":released", AttributeValue::S("1".to_owned()))
            .expression_attribute_values(":ends", AttributeValue::N(epoch_millis()?.to_string()))
            .expression_attribute_values(":first", AttributeValue::S(format!("{grant}-0")))
            .expression_attribute_values(":rvn", AttributeValue::S(version.to_owned()))
            .expression_attribute_values(":token", AttributeValue::N(lock["fencingToken"].to_string()))
            // The row shows lock-task who sleeps in line.
            .return_values(ReturnValue::AllNew)
            .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld)
            .send()
            .await?;
        Ok(json!({ "released": true }))
    }
}

fn text<'a>(value: &'a Value, name: &str) -> Result<&'a str, Error> {
    value[name].as_str().ok_or_else(|| format!("no {name}").into())
}

fn epoch_millis() -> Result<u64, Error> {
    Ok(u64::try_from(SystemTime::now().duration_since(UNIX_EPOCH)?.as_millis())?)
}
