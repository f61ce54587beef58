//! The template's functions on this machine, with its tables, environments and permissions.

use crate::authorize::AuthorizingProxy;
use crate::expansion::{ExpandedFunction, Expansion};
use crate::lambda::{Function, Lambda};
use crate::server::LocalDynamoDb;
use anyhow::Context;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

/// The template as it would run on AWS. Every function sends its requests through a proxy that permits
/// what the function's role permits, and nothing else.
///
/// Dropping it ends everything.
#[derive(Debug)]
pub struct Sample {
    /// The functions, by the names of their binaries.
    pub lambda: Lambda,
    /// The proxy in front of DynamoDB, and of Step Functions once it is told where that is. A function's access key id
    /// there is its name.
    pub proxy: AuthorizingProxy,
    /// The embedded DynamoDB without the proxy. It does not check permissions.
    pub dynamodb: LocalDynamoDb,
}

impl Sample {
    /// The secret access key and the session token of every function.
    pub const SECRETS: [&str; 2] = ["a-secret-access-key", "a-session-token"];

    /// Deploys an expanded template: all tables, and the functions whose binaries are given.
    ///
    /// # Errors
    /// Returns an error if the template has no such function, if a table cannot be created, or if
    /// there is no free loopback port.
    pub async fn deploy(expansion: &Expansion, binaries: &[&Path]) -> anyhow::Result<Self> {
        let dynamodb = LocalDynamoDb::in_memory().await?;
        dynamodb.create_tables(&expansion.tables).await?;
        let roles = expansion.functions.iter().map(|(name, function)| (name.clone(), function.allows.clone()));
        let proxy = AuthorizingProxy::start(dynamodb.endpoint(), roles.collect()).await?;
        let functions = binaries.iter().map(|binary| {
            let name = binary.file_name().and_then(|name| name.to_str()).context("a binary has no name")?;
            Ok(deployed(name, binary, expansion.function(name)?, proxy.endpoint()))
        });
        let lambda = Lambda::start(functions.collect::<anyhow::Result<_>>()?).await?;
        Ok(Self { lambda, proxy, dynamodb })
    }
}

fn deployed(name: &str, binary: &Path, expanded: &ExpandedFunction, endpoint: &str) -> Function {
    let [secret, session] = Sample::SECRETS;
    let lambda_sets = [
        ("AWS_ENDPOINT_URL_DYNAMODB", endpoint),
        ("AWS_ENDPOINT_URL_SFN", endpoint),
        ("AWS_ACCESS_KEY_ID", name),
        ("AWS_SECRET_ACCESS_KEY", secret),
        ("AWS_SESSION_TOKEN", session),
    ];
    let mut environment: BTreeMap<_, _> =
        lambda_sets.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
    environment.extend(expanded.environment.clone());
    Function {
        name: name.to_owned(),
        binary: binary.to_owned(),
        environment,
        timeout: Duration::from_secs(expanded.timeout_seconds),
        memory_mb: expanded.memory_mb,
        ..Function::default()
    }
}
