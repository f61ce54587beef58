//! The least policy of the state machine's role.

use crate::json::{Json, Object};
use crate::options::{Error, Options};

/// What the role of the state machine needs for the lock: two actions, on these keys of the table and no others.
pub(crate) fn policy(options: &Options, keys: &[String]) -> Result<Object, Error> {
    options.settings()?;
    if keys.is_empty() || keys.iter().any(String::is_empty) {
        return Err(Error::new(
            "the policy needs the keys that this state machine may lock: give patterns such as customer-*; * stands for all keys",
        ));
    }
    // The pattern of a list of keys also matches a request without any key.
    let condition = Object::new()
        .with("ForAllValues:StringLike", Object::new().with("dynamodb:LeadingKeys", keys.to_vec()))
        .with("Null", Object::new().with("dynamodb:LeadingKeys", "false"));
    let statement = Object::new()
        .with("Effect", "Allow")
        .with("Action", ["dynamodb:GetItem", "dynamodb:UpdateItem"])
        .with("Resource", resource(&options.table))
        .with("Condition", condition);
    Ok(Object::new().with("Version", "2012-10-17").with("Statement", [statement]))
}

/// The ARN of the table, or what CloudFormation makes one of.
fn resource(table: &str) -> Json {
    if table.starts_with("arn:") {
        return table.into();
    }
    let arn = format!("arn:${{AWS::Partition}}:dynamodb:${{AWS::Region}}:${{AWS::AccountId}}:table/{table}");
    Object::new().with("Fn::Sub", arn).into()
}
