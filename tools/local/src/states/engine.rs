//! The process of the engine, and its executions, their ends and their histories.

use super::definition::Definition;
use crate::aws_json;
use crate::lambda::{ACCOUNT, REGION, workspace};
use crate::tools;
use anyhow::Context;
use serde_json::{Value, json};
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::process::{Child, Command};

/// The script that installs the engine.
const INSTALL: &str = "deploy/statemachines/tools";
/// How long the engine may take to start.
const PATIENCE: Duration = Duration::from_secs(60);
/// The pause between two looks at an execution.
const BETWEEN_LOOKS: Duration = Duration::from_millis(100);

/// A Step Functions engine, in a process that ends when this value is dropped.
#[derive(Debug)]
pub struct Engine {
    endpoint: String,
    /// Killed when it is dropped. It also ends when its standard input is closed.
    _process: Child,
}

/// An execution.
#[derive(Clone, Debug)]
pub struct Execution {
    /// The ARN of the execution.
    pub arn: String,
    /// The name of its state machine.
    machine: String,
    /// Its own name.
    name: String,
    redrives: usize,
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
    /// Returns an error with what the engine said if it does not start, such as with another version of MiniStack. With
    /// `LAMBDA_LOCK_CI` also if it is not installed.
    pub async fn start(functions: &str) -> anyhow::Result<Option<Self>> {
        Self::start_with(&[functions]).await
    }

    /// Starts an engine that also sends the requests of `dynamodb:` tasks to this endpoint.
    ///
    /// # Errors
    /// The same as [`start`](Self::start).
    pub async fn start_with_dynamodb(functions: &str, dynamodb: &str) -> anyhow::Result<Option<Self>> {
        Self::start_with(&[functions, dynamodb]).await
    }

    async fn start_with(endpoints: &[&str]) -> anyhow::Result<Option<Self>> {
        let Some(python) = tools::python("state-machine-tools", INSTALL)? else { return Ok(None) };
        Self::launch(&python, endpoints).await.map(Some)
    }

    async fn launch(python: &Path, endpoints: &[&str]) -> anyhow::Result<Self> {
        let mut process = Command::new(python)
            .current_dir(workspace())
            // Writes no compiled files next to the sources.
            .args(["-B", "deploy/statemachines/engine.py"])
            .args(endpoints)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("{} could not be run: run {INSTALL}", python.display()))?;
        let stdout = process.stdout.take().context("the engine has no output")?;
        let mut stderr = process.stderr.take().context("the engine has no error output")?;
        let mut line = String::new();
        let printed = tokio::time::timeout(PATIENCE, BufReader::new(stdout).read_line(&mut line)).await;
        if !matches!(printed, Ok(Ok(_))) {
            line.clear();
        }
        let Ok(port) = line.trim().parse::<u16>() else {
            // Its error output ends with it.
            process.kill().await?;
            let mut said = String::new();
            stderr.read_to_string(&mut said).await?;
            anyhow::bail!("the engine of the state machines did not start: run {INSTALL}. It said: {}", said.trim());
        };
        // What it says later belongs to nobody, and must not fill a pipe.
        tokio::spawn(async move { tokio::io::copy(&mut stderr, &mut tokio::io::stderr()).await });
        Ok(Self { endpoint: format!("http://127.0.0.1:{port}"), _process: process })
    }

    /// The endpoint's URL.
    pub fn endpoint(&self) -> &str {
        &self.endpoint
    }

    /// Creates the state machine, and starts its execution. The state machine has the definition's own name, or
    /// else this one.
    ///
    /// # Errors
    /// Returns an error if there is an execution of this name, or if the engine finds the definition invalid.
    pub async fn execute(&self, name: &str, definition: &Definition, input: &Value) -> anyhow::Result<Execution> {
        let machine = definition.name.clone().unwrap_or_else(|| name.to_owned());
        let create = json!({
            "name": machine, "definition": definition.document().to_string(), "type": "STANDARD",
            "roleArn": format!("arn:aws:iam::{ACCOUNT}:role/state-machine"),
        });
        match self.call("CreateStateMachine", create).await {
            Err(error) if !error.to_string().contains("StateMachineAlreadyExists") => return Err(error),
            _ => {}
        }
        let start = json!({ "stateMachineArn": state_machine(&machine), "name": name, "input": input.to_string() });
        let started = self.call("StartExecution", start).await?;
        let arn = started["executionArn"].as_str().context("an execution has an ARN")?.to_owned();
        Ok(Execution { arn, machine, name: name.to_owned(), redrives: 0 })
    }

    /// Redrives an execution that has ended: it continues at the state where it was, with that state's input and
    /// the variables of that time.
    ///
    /// # Errors
    /// Returns an error if it has not ended, or has succeeded.
    pub async fn redrive(&self, ended: &Execution) -> anyhow::Result<Execution> {
        self.call("RedriveExecution", json!({ "executionArn": ended.arn })).await?;
        Ok(Execution { redrives: ended.redrives + 1, ..ended.clone() })
    }

    /// Stops an execution, as a user of the console does. A function that it has invoked continues.
    ///
    /// # Errors
    /// Returns an error if there is no such execution.
    pub async fn stop(&self, execution: &Execution) -> anyhow::Result<()> {
        self.call("StopExecution", json!({ "executionArn": execution.arn })).await.map(drop)
    }

    /// Ends the wait of a task with `.waitForTaskToken`, with this JSON as its result.
    ///
    /// # Errors
    /// Returns an error if no task waits with this token, or if the output is not JSON.
    pub async fn succeed(&self, token: &str, output: &str) -> anyhow::Result<()> {
        self.call("SendTaskSuccess", json!({ "taskToken": token, "output": output })).await.map(drop)
    }

    /// Ends the wait of a task with `.waitForTaskToken`. The task fails with this error.
    ///
    /// # Errors
    /// Returns an error if no task waits with this token.
    pub async fn fail(&self, token: &str, error: &str, cause: &str) -> anyhow::Result<()> {
        self.call("SendTaskFailure", json!({ "taskToken": token, "error": error, "cause": cause })).await.map(drop)
    }

    /// Says that the work of a task with `.waitForTaskToken` goes on. It lengthens nothing: `HeartbeatSeconds` is not
    /// executed.
    ///
    /// # Errors
    /// Returns an error if no task waits with this token.
    pub async fn beat(&self, token: &str) -> anyhow::Result<()> {
        self.call("SendTaskHeartbeat", json!({ "taskToken": token })).await.map(drop)
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
        let output = described["output"].as_str().map(serde_json::from_str).transpose()?;
        Ok(Some(End { status, output: output.unwrap_or_default(), error: text("error"), cause: text("cause") }))
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

    /// Returns the names of the states that an execution has entered, in order, since its last redrive. These are
    /// its state transitions, including those inside a `Map`.
    ///
    /// # Errors
    /// Returns an error if there is no such execution.
    pub async fn states(&self, execution: &Execution) -> anyhow::Result<Vec<String>> {
        let history = self.history(execution).await?;
        let redriven = |event: &Value| event["executionRedrivenEventDetails"]["redriveCount"] == execution.redrives;
        let since = history.iter().position(redriven).unwrap_or_default();
        let names = history[since..].iter().filter_map(|event| event["stateEnteredEventDetails"]["name"].as_str());
        Ok(names.map(str::to_owned).collect())
    }

    /// Returns all events of the history.
    ///
    /// # Errors
    /// Returns an error if there is no such execution.
    pub async fn history(&self, execution: &Execution) -> anyhow::Result<Vec<Value>> {
        let mut events = Vec::new();
        let mut request = json!({ "executionArn": execution.arn, "maxResults": 1000 });
        loop {
            let page = self.call("GetExecutionHistory", request.clone()).await?;
            events.extend(page["events"].as_array().context("an execution has a history")?.iter().cloned());
            let Some(next) = page.get("nextToken") else { return Ok(events) };
            request["nextToken"] = next.clone();
        }
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
                "stateMachineArn": state_machine(&self.machine),
                "name": self.name,
                "status": status,
                "redriveCount": self.redrives,
            },
        })
    }
}

fn state_machine(name: &str) -> String {
    format!("arn:aws:states:{REGION}:{ACCOUNT}:stateMachine:{name}")
}

#[cfg(test)]
mod tests {
    use super::{Engine, INSTALL};
    use std::path::Path;

    #[tokio::test]
    async fn an_engine_that_does_not_start_says_what_to_do_and_what_it_said() {
        // It refuses its options.
        let error = Engine::launch(Path::new("cat"), &["--no-such-option"]).await.unwrap_err().to_string();
        let nowhere = Engine::launch(Path::new("/nowhere/python"), &[]).await.unwrap_err().to_string();

        assert!(error.contains(&format!("run {INSTALL}")) && error.contains("option"), "{error}");
        assert!(nowhere.contains(&format!("/nowhere/python could not be run: run {INSTALL}")), "{nowhere}");
    }
}
