//! What is deployed beside a table: the functions and state machines of its stack.

use crate::connection;
use crate::exit::said;
use aws_config::SdkConfig;
use aws_sdk_cloudformation::Client;

/// What of a stack uses locks.
const KINDS: [&str; 2] = ["AWS::Lambda::Function", "AWS::StepFunctions::StateMachine"];

/// The stack that has the table, and the names of its functions and state machines in the template. `Err` says why it is unknown.
pub(crate) async fn beside(
    connection: &connection::Options,
    config: &SdkConfig,
) -> Result<(String, Vec<String>), String> {
    let client = connection.cloud_formation(config);
    let client = client.ok_or("another DynamoDB was given, and no AWS_ENDPOINT_URL_CLOUDFORMATION")?;
    // CloudFormation knows a table by its name, also where the ARN was given.
    let table = connection.table();
    let table = table.rsplit_once(":table/").map_or(table, |(_, name)| name);
    let found = client.describe_stack_resources().physical_resource_id(table).send().await;
    let resources = found.map_err(|error| said(&error))?.stack_resources.unwrap_or_default();
    let Some(stack) = resources.into_iter().find_map(|resource| resource.stack_name) else {
        return Err("CloudFormation names no stack".to_owned());
    };
    let names = names(&client, &stack).await?;
    Ok((stack, names))
}

async fn names(client: &Client, stack: &str) -> Result<Vec<String>, String> {
    let mut pages = client.list_stack_resources().stack_name(stack).into_paginator().items().send();
    let mut names = Vec::new();
    while let Some(resource) = pages.next().await {
        let resource = resource.map_err(|error| said(&error))?;
        if resource.resource_type().is_some_and(|kind| KINDS.contains(&kind)) {
            names.extend(resource.logical_resource_id);
        }
    }
    names.sort();
    Ok(names)
}
