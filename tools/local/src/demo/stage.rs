//! What the parts with functions share: the template's functions and tables, and calls that are repeated until they succeed.

use super::MAX_CLOCK_SKEW;
use super::screen::Screen;
use anyhow::{Context, bail, ensure};
use lambda_lock_local::lambda::{Template, workspace};
use lambda_lock_local::{Function, Invocation, Lambda, LocalDynamoDb, Outcome};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// The function of this package, which a part may deploy under another name.
const DEMO_FUNCTION: &str = "demo-function";
/// How long a call may take, with all of its repetitions.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);
const PAUSE: Duration = Duration::from_millis(50);

/// What all parts with functions play on.
pub(crate) struct Stage<'a> {
    pub(crate) screen: &'a Screen,
    pub(crate) dynamodb: &'a LocalDynamoDb,
    built: &'a BTreeMap<String, PathBuf>,
    template: Template,
    pub(crate) lock_table: String,
}

impl<'a> Stage<'a> {
    /// Creates the template's tables. `built` has the functions.
    pub(crate) async fn new(
        screen: &'a Screen,
        built: &'a BTreeMap<String, PathBuf>,
        dynamodb: &'a LocalDynamoDb,
    ) -> anyhow::Result<Self> {
        let template = Template::read(&workspace().join("template.yaml"))?;
        let tables = dynamodb.create_tables(&template.tables()?).await?;
        let lock_table = tables.into_iter().next().context("the template has no table")?;
        Ok(Self { screen, dynamodb, built, template, lock_table })
    }

    /// These functions as the template deploys them.
    pub(crate) fn of_template(&self, names: &[&str]) -> anyhow::Result<Vec<Function>> {
        let mut functions = self.template.functions(self.built, self.dynamodb.endpoint())?;
        functions.retain(|function| names.contains(&function.name.as_str()));
        Ok(functions)
    }

    /// The demo's own function under this name.
    pub(crate) fn own(&self, name: &str) -> anyhow::Result<Function> {
        let binary = self.built.get(DEMO_FUNCTION).with_context(|| format!("{DEMO_FUNCTION} was not built"))?;
        let function = Function { name: name.to_owned(), binary: binary.clone(), ..Function::default() };
        let endpoint = self.dynamodb.endpoint();
        Ok(with(function, &[("LOCK_TABLE", &self.lock_table), ("AWS_ENDPOINT_URL_DYNAMODB", endpoint)]))
    }

    /// Begins a part: starts its functions under the Lambda Runtime API.
    pub(crate) async fn begin(&self, title: impl fmt::Display, functions: Vec<Function>) -> anyhow::Result<Lambda> {
        self.screen.title(title);
        Lambda::start(functions).await
    }
}

/// The function with these variables.
pub(crate) fn with(mut function: Function, variables: &[(&str, &str)]) -> Function {
    let own = variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    function.environment.extend(own);
    function
}

/// The function with a short timeout, so that the end of its lease can be watched, and with these variables.
pub(crate) fn hurried(function: Function, timeout: Duration, variables: &[(&str, &str)]) -> Function {
    let skew = MAX_CLOCK_SKEW.as_millis().to_string();
    with(with(Function { timeout, ..function }, variables), &[("LOCK_MAX_CLOCK_SKEW_MS", &skew)])
}

pub(crate) async fn invoke(lambda: &Lambda, function: &str, payload: &Value) -> anyhow::Result<Invocation> {
    lambda.invoke(function, &payload.to_string()).await
}

pub(crate) fn answer(invocation: &Invocation) -> anyhow::Result<Value> {
    match &invocation.outcome {
        Outcome::Answer(answer) => Ok(serde_json::from_str(answer)?),
        other => bail!("a function returned no result: {other:?}\n{}", invocation.logs),
    }
}

/// Invokes a function until it returns a result: its lock may be held, and its process may be killed.
pub(crate) async fn until_done(lambda: &Lambda, function: &str, payload: &Value) -> anyhow::Result<Invocation> {
    let started = Instant::now();
    loop {
        let invocation = invoke(lambda, function, payload).await?;
        match &invocation.outcome {
            Outcome::Answer(_) => return Ok(invocation),
            Outcome::Error { error_type, .. } if error_type.starts_with("Lock") => {}
            Outcome::Exited(_) | Outcome::TimedOut | Outcome::InitFailed(_) => {}
            Outcome::Error { .. } => bail!("{function} failed: {:?}\n{}", invocation.outcome, invocation.logs),
        }
        ensure!(started.elapsed() < PATIENCE, "{function} did not succeed within {PATIENCE:?}");
        tokio::time::sleep(PAUSE).await;
    }
}
