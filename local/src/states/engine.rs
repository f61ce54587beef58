//! The process of the engine, and its executions, their ends and their histories.

use super::definition::Definition;
use crate::aws_json;
use crate::lambda::{ACCOUNT, REGION, workspace};
use crate::tools;
use anyhow::{Context, ensure};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::process::Stdio;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

/// How long the engine may take to start.
const PATIENCE: Duration = Duration::from_secs(60);
/// The pause between two looks at an execution.
const BETWEEN_LOOKS: Duration = Duration::from_millis(100);

/// moto's Step Functions engine, in a process that ends when this value is dropped.
#[derive(Debug)]
pub struct Engine {
    endpoint: String,
    /// The executions that were stopped.
    stopped: Mutex<BTreeSet<String>>,
    /// Killed when it is dropped. It also ends when its standard input is closed.
    _process: Child,
}

/// An execution. Each one has its own state machine, so that it can be started again under its old ARN.
#[derive(Clone, Debug)]
pub struct Execution {
    /// The ARN of the execution.
    pub arn: String,
    definition: Definition,
    name: String,
    redrives: u32,
}

/// How an execution ended.
#[derive(Clone, Debug)]
pub struct End {
    /// `SUCCEEDED`, `FAILED`, `TIMED_OUT` or `ABORTED`.
    pub status: String,
    /// The output, or null.
    pub output: Value,
    /// The error name, if it failed.
    pub error: Option<String>,
    /// The cause, if it failed.
    pub cause: Option<String>,
}

impl Engine {
    /// Starts an engine that invokes functions at this endpoint. If the engine is not installed, prints a
    /// line on stderr and returns `None`. `deploy/statemachines/tools` installs it.
    ///
    /// # Errors
    /// Returns an error if it does not start. With `LAMBDA_LOCK_CI` also if it is not installed.
    pub async fn start(functions: &str) -> anyhow::Result<Option<Self>> {
        let Some(python) = tools::python("state-machine-tools", "deploy/statemachines/tools")? else { return Ok(None) };
        let mut process = Command::new(python)
            .current_dir(workspace())
            // Writes no compiled files next to the sources.
            .args(["-B", "deploy/statemachines/engine.py", functions])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .context("deploy/statemachines/engine.py could not be run")?;
        let stdout = process.stdout.take().context("the engine has no output")?;
        let mut line = String::new();
        tokio::time::timeout(PATIENCE, BufReader::new(stdout).read_line(&mut line))
            .await
            .context("the engine does not start")??;
        let port: u16 =
            line.trim().parse().with_context(|| format!("the engine printed {line:?} instead of a port"))?;
        Ok(Some(Self { endpoint: format!("http://127.0.0.1:{port}"), stopped: Mutex::default(), _process: process }))
    }

    /// Creates a state machine with this name, and starts its execution.
    ///
    /// # Errors
    /// Returns an error if there is a state machine of this name, or if the engine finds the definition
    /// invalid.
    pub async fn execute(&self, name: &str, definition: &Definition, input: &Value) -> anyhow::Result<Execution> {
        let arn = format!("arn:aws:states:{REGION}:{ACCOUNT}:execution:{name}:run");
        let execution = Execution { arn, definition: definition.clone(), name: name.to_owned(), redrives: 0 };
        self.begin(&execution, definition, input).await?;
        Ok(execution)
    }

    /// Starts an execution again that has ended: at the state where it was, with that state's input, under
    /// the same ARN.
    ///
    /// # Errors
    /// Returns an error if it has not ended, or if it entered no state.
    pub async fn redrive(&self, ended: &Execution) -> anyhow::Result<Execution> {
        ensure!(self.end(ended).await?.is_some(), "{} has not ended", ended.arn);
        let (state, input) = self.last_state(ended).await?;
        lock(&self.stopped).remove(&ended.arn);
        self.call("DeleteStateMachine", json!({ "stateMachineArn": state_machine(&ended.name) })).await?;
        let redriven = Execution { redrives: ended.redrives + 1, ..ended.clone() };
        let definition = redriven.definition.clone().redriven(redriven.redrives, &state);
        self.begin(&redriven, &definition, &input).await?;
        Ok(redriven)
    }

    async fn begin(&self, execution: &Execution, definition: &Definition, input: &Value) -> anyhow::Result<()> {
        let create = json!({
            "name": execution.name, "definition": definition.text(), "type": "STANDARD",
            "roleArn": format!("arn:aws:iam::{ACCOUNT}:role/state-machine"),
        });
        self.call("CreateStateMachine", create).await?;
        let start = json!({
            "stateMachineArn": state_machine(&execution.name), "name": "run", "input": input.to_string(),
        });
        let started = self.call("StartExecution", start).await?;
        ensure!(
            started["executionArn"] == execution.arn.as_str(),
            "the engine gave the execution another name: {started}"
        );
        Ok(())
    }

    /// Stops an execution, as a user of the console does. A function that it has invoked continues.
    ///
    /// # Errors
    /// Returns an error if there is no such execution.
    pub async fn stop(&self, execution: &Execution) -> anyhow::Result<()> {
        lock(&self.stopped).insert(execution.arn.clone());
        self.call("StopExecution", json!({ "executionArn": execution.arn })).await.map(drop)
    }

    /// Returns how an execution ended, if it has ended.
    ///
    /// # Errors
    /// Returns an error if there is no such execution.
    pub async fn end(&self, execution: &Execution) -> anyhow::Result<Option<End>> {
        let described = self.call("DescribeExecution", json!({ "executionArn": execution.arn })).await?;
        let text = |name: &str| described[name].as_str().map(str::to_owned);
        let status = text("status").context("an execution has a status")?;
        if status == "RUNNING" {
            return Ok(None);
        }
        if status == "FAILED" && self.tripped(execution).await? {
            return Ok(Some(End { status: "ABORTED".to_owned(), output: Value::Null, error: None, cause: None }));
        }
        let output = described["output"].as_str().map(serde_json::from_str).transpose()?;
        Ok(Some(End { status, output: output.unwrap_or_default(), error: text("error"), cause: text("cause") }))
    }

    /// Returns whether this is the engine's error after a stop that came while a state was ending. The
    /// engine then reports `FAILED` with some error. Step Functions reports `ABORTED`.
    async fn tripped(&self, execution: &Execution) -> anyhow::Result<bool> {
        if !lock(&self.stopped).contains(&execution.arn) {
            return Ok(false);
        }
        let (last, _) = self.last_state(execution).await?;
        Ok(execution.definition.document()["States"][last]["Type"] != "Fail")
    }

    /// Waits for the end of an execution.
    ///
    /// # Errors
    /// Returns an error with the history if it has not ended after this time.
    pub async fn until_end(&self, execution: &Execution, patience: Duration) -> anyhow::Result<End> {
        let ended = async {
            loop {
                if let Some(end) = self.end(execution).await? {
                    return Ok(end);
                }
                tokio::time::sleep(BETWEEN_LOOKS).await;
            }
        };
        match tokio::time::timeout(patience, ended).await {
            Ok(end) => end,
            Err(_) => {
                let states = self.states(execution).await?;
                anyhow::bail!("{} has not ended after {patience:?}: {states:?}", execution.arn)
            }
        }
    }

    /// Returns the names of the states that an execution has entered, in order. These are its state
    /// transitions, including those inside a `Map`.
    ///
    /// # Errors
    /// Returns an error if there is no such execution.
    pub async fn states(&self, execution: &Execution) -> anyhow::Result<Vec<String>> {
        let entered = self.entered(execution).await?;
        Ok(entered.iter().filter_map(|details| details["name"].as_str().map(str::to_owned)).collect())
    }

    async fn last_state(&self, execution: &Execution) -> anyhow::Result<(String, Value)> {
        let entered = self.entered(execution).await?;
        let last = entered.last().context("the execution had entered no state")?;
        let input = last["input"].as_str().context("a state has an input")?;
        Ok((last["name"].as_str().context("a state has a name")?.to_owned(), serde_json::from_str(input)?))
    }

    async fn entered(&self, execution: &Execution) -> anyhow::Result<Vec<Value>> {
        let history = self.call("GetExecutionHistory", json!({ "executionArn": execution.arn })).await?;
        let events = history["events"].as_array().context("an execution has a history")?;
        Ok(events.iter().filter_map(|event| event.get("stateEnteredEventDetails").cloned()).collect())
    }

    async fn call(&self, action: &str, body: Value) -> anyhow::Result<Value> {
        aws_json::call(&self.endpoint, "states", &format!("AWSStepFunctions.{action}"), &body).await
    }
}

impl Execution {
    /// Returns the event that EventBridge delivers when the execution has reached this status.
    pub fn status_change(&self, status: &str) -> Value {
        json!({
            "version": "0",
            "detail-type": "Step Functions Execution Status Change",
            "source": "aws.states",
            "resources": [self.arn],
            "detail": {
                "executionArn": self.arn,
                "stateMachineArn": state_machine(&self.name),
                "name": "run",
                "status": status,
                "redriveCount": self.redrives,
            },
        })
    }
}

/// Locks a mutex. A panic does not damage what it guards.
fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

fn state_machine(name: &str) -> String {
    format!("arn:aws:states:{REGION}:{ACCOUNT}:stateMachine:{name}")
}
