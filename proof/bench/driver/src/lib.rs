//! Acquire and release as a careful author would write them on the SDK, without lambda-lock.
//!
//! It handles only one request at a time. It does not handle lost responses, wrong clocks, or rows that are not locks.

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::types::{AttributeValue, ReturnValue, ReturnValuesOnConditionCheckFailure};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use uuid::Uuid;

const CLAIM: &str = "SET ownerName = :owner, leaseDuration = :lease, recordVersionNumber = :rvn, leaseEndsAt = :ends, \
     fencingToken = if_not_exists(fencingToken, :now) + :one REMOVE isReleased, workflow, expiresAt";
const IF_FREE: &str = "attribute_not_exists(#pk) OR begins_with(recordVersionNumber, :ours) \
     AND (attribute_exists(isReleased) AND leaseEndsAt <= :now OR leaseEndsAt < :trusted) \
     AND (attribute_not_exists(lastTicket) OR lastTicket <= servedTicket) \
     AND attribute_not_exists(freezeReason) AND attribute_not_exists(attributeNames) AND attribute_not_exists(ttlAttribute)";
const RELEASE: &str = "SET isReleased = :released, leaseEndsAt = :ends REMOVE workflow";
const IF_MINE: &str = "recordVersionNumber BETWEEN :first AND :rvn AND fencingToken = :token \
     AND (attribute_not_exists(isReleased) OR attribute_not_exists(brokenVersion) \
     OR brokenVersion <> recordVersionNumber)";

const LEASE: Duration = Duration::from_secs(30);
const SKEW_MILLIS: u64 = 2_000;

/// Any failure.
pub type Error = Box<dyn std::error::Error + Send + Sync>;

/// A client, its table, and its owner.
pub struct ByHand {
    dynamodb: Client,
    table: String,
    owner: String,
}

/// A lock that was acquired.
pub struct Held {
    key: String,
    grant: Uuid,
    version: String,
    token: u64,
    until: Instant,
}

impl Held {
    /// The number that the row counts up.
    pub fn fencing_token(&self) -> u64 {
        self.token
    }

    /// When the holder must stop, by its own clock.
    pub fn until(&self) -> Instant {
        self.until
    }
}

impl ByHand {
    /// Makes a client. Sends nothing.
    pub fn new(dynamodb: Client, table: &str, owner: &str) -> Self {
        Self { dynamodb, table: table.to_owned(), owner: owner.to_owned() }
    }

    /// Acquires the lock with one request.
    ///
    /// # Errors
    /// If somebody else holds the lock, and for any other failure.
    pub async fn acquire(&self, key: &str) -> Result<Held, Error> {
        let started = Instant::now();
        let now = epoch_millis()?;
        let grant = Uuid::new_v4();
        let version = format!("ll1-{}-{now:012x}{:016x}", grant.simple(), grant.as_u64_pair().1);
        let lease = u64::try_from(LEASE.as_millis())?;
        let granted = self
            .dynamodb
            .update_item()
            .table_name(&self.table)
            .key("key", AttributeValue::S(key.to_owned()))
            .update_expression(CLAIM)
            .condition_expression(IF_FREE)
            .expression_attribute_names("#pk", "key")
            .expression_attribute_values(":owner", AttributeValue::S(self.owner.clone()))
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
        let token = match granted.attributes.as_ref().and_then(|row| row.get("fencingToken")) {
            Some(AttributeValue::N(token)) => token.parse()?,
            _ => return Err("the row has no fencing token".into()),
        };
        Ok(Held { key: key.to_owned(), grant, version, token, until: started + LEASE.mul_f64(1.0 / 1.05) })
    }

    /// Releases the lock with one request.
    ///
    /// # Errors
    /// If the lock is somebody else's by now, and for any other failure.
    pub async fn release(&self, held: Held) -> Result<(), Error> {
        self.dynamodb
            .update_item()
            .table_name(&self.table)
            .key("key", AttributeValue::S(held.key))
            .update_expression(RELEASE)
            .condition_expression(IF_MINE)
            .expression_attribute_values(":released", AttributeValue::S("1".to_owned()))
            .expression_attribute_values(":ends", AttributeValue::N(epoch_millis()?.to_string()))
            .expression_attribute_values(":first", AttributeValue::S(format!("ll1-{}-0", held.grant.simple())))
            .expression_attribute_values(":rvn", AttributeValue::S(held.version))
            .expression_attribute_values(":token", AttributeValue::N(held.token.to_string()))
            .return_values(ReturnValue::None)
            .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld)
            .send()
            .await?;
        Ok(())
    }
}

fn epoch_millis() -> Result<u64, Error> {
    Ok(u64::try_from(SystemTime::now().duration_since(UNIX_EPOCH)?.as_millis())?)
}
