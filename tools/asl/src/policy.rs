//! The least policy of the state machine's role.

use crate::json::{Json, Object};
use crate::options::{Error, Options};
use lambda_lock_protocol::schema::{
    BROKEN_VERSION, DEFAULT_TTL, ENDS, FREEZE_REASON, LEASE, OWNER, RELEASED, TOKEN, TTL_NAME, VERSION, WORKFLOW,
};

/// What the role of the state machine needs for the lock: two actions, on these keys of the table and on the attributes
/// of a lock record, and on no others.
pub(crate) fn policy(options: &Options, keys: &[String]) -> Result<Object, Error> {
    options.settings()?;
    if keys.is_empty() || keys.iter().any(String::is_empty) {
        return Err(Error::new(
            "the policy needs the keys that this state machine may lock: give patterns such as customer-*; * stands for all keys",
        ));
    }
    // What is returned has to be limited too, or else it could have other attributes. The pattern of a list of keys
    // also matches a request without any key.
    let returned = Object::new()
        .with("dynamodb:ReturnValues", ["NONE", "UPDATED_NEW"])
        .with("dynamodb:Select", "SPECIFIC_ATTRIBUTES");
    let condition = Object::new()
        .with("ForAllValues:StringEquals", Object::new().with("dynamodb:Attributes", attributes(options)))
        .with("ForAllValues:StringLike", Object::new().with("dynamodb:LeadingKeys", keys.to_vec()))
        .with("Null", Object::new().with("dynamodb:LeadingKeys", "false"))
        .with("StringEqualsIfExists", returned);
    let statement = Object::new()
        .with("Effect", "Allow")
        .with("Action", ["dynamodb:GetItem", "dynamodb:UpdateItem"])
        .with("Resource", resource(&options.table))
        .with("Condition", condition);
    Ok(Object::new().with("Version", "2012-10-17").with("Statement", [statement]))
}

/// The attributes that the requests name.
fn attributes(options: &Options) -> Vec<String> {
    let ttl = options.ttl_attribute.as_ref().filter(|name| *name != DEFAULT_TTL);
    let named = [Some(&options.key_attribute), options.sort_key_attribute.as_ref(), ttl];
    let of_record =
        [DEFAULT_TTL, ENDS, LEASE, OWNER, RELEASED, TOKEN, VERSION, WORKFLOW, BROKEN_VERSION, FREEZE_REASON, TTL_NAME];
    let of_record = of_record.iter().filter(|name| **name != options.key_attribute);
    named.into_iter().flatten().cloned().chain(of_record.map(|name| (*name).to_owned())).collect()
}

/// The ARN of the table, or what CloudFormation makes one of.
fn resource(table: &str) -> Json {
    if table.starts_with("arn:") {
        return table.into();
    }
    let arn = format!("arn:${{AWS::Partition}}:dynamodb:${{AWS::Region}}:${{AWS::AccountId}}:table/{table}");
    Object::new().with("Fn::Sub", arn).into()
}
