//! The execution that holds a lock, as Step Functions knows it.

use crate::connection;
use crate::exit::said;
use crate::row::epoch_millis;
use aws_sdk_sfn::operation::describe_execution::DescribeExecutionOutput;
use aws_sdk_sfn::primitives::DateTime;
use aws_sdk_sfn::types::ExecutionStatus;
use serde::Serialize;
use std::time::SystemTime;

/// Of an execution that runs no state any more.
const ENDED: [ExecutionStatus; 4] =
    [ExecutionStatus::Succeeded, ExecutionStatus::Failed, ExecutionStatus::TimedOut, ExecutionStatus::Aborted];
/// Of one that runs, or may run again.
const RUNS: [ExecutionStatus; 2] = [ExecutionStatus::Running, ExecutionStatus::PendingRedrive];

/// What is known of an execution. Times are in epoch milliseconds.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase", untagged)]
pub(crate) enum Execution {
    #[serde(rename_all = "camelCase")]
    Known {
        status: String,
        started_at: Option<u64>,
        stopped_at: Option<u64>,
    },
    Unknown {
        unknown: String,
    },
}

impl Execution {
    /// Asks Step Functions. `None` if the workflow is no execution, but has another name.
    pub(crate) async fn of(connection: &connection::Options, workflow: &str) -> Option<Self> {
        let region = region_of(workflow)?;
        Some(ask(connection, workflow, region).await.unwrap_or_else(|unknown| Self::Unknown { unknown }))
    }

    /// Whether it is known that it runs no state any more.
    pub(crate) fn has_ended(&self) -> bool {
        matches!(self, Self::Known { status, .. } if ENDED.iter().any(|ended| ended.as_str() == status))
    }
}

async fn ask(connection: &connection::Options, workflow: &str, region: &str) -> Result<Execution, String> {
    let config = connection.config().await.map_err(|failure| failure.to_string())?;
    if config.region().is_none_or(|own| own.as_ref() != region) {
        return Err(format!("it is in another Region, {region}, and only that of the table is asked"));
    }
    let Some(client) = connection.step_functions(config) else {
        return Err("another DynamoDB was given, and no AWS_ENDPOINT_URL_SFN".to_owned());
    };
    match client.describe_execution().execution_arn(workflow).send().await {
        Ok(execution) => Ok(Execution::from(&execution)),
        Err(error) => Err(said(&error)),
    }
}

impl From<&DescribeExecutionOutput> for Execution {
    fn from(execution: &DescribeExecutionOutput) -> Self {
        let millis = |at: &DateTime| SystemTime::try_from(*at).ok().map(epoch_millis);
        let status = execution.status();
        // It may be a newer one, or that of something between this machine and AWS. Where there is none, the SDK says so.
        if !ENDED.contains(status) && !RUNS.contains(status) {
            let unknown = format!(
                "Step Functions answered with the status {:?}, which lambda-lock does not know",
                status.as_str()
            );
            return Self::Unknown { unknown };
        }
        Self::Known {
            status: status.as_str().to_owned(),
            started_at: millis(execution.start_date()),
            stopped_at: execution.stop_date().and_then(millis),
        }
    }
}

/// The Region in the ARN of an execution.
fn region_of(workflow: &str) -> Option<&str> {
    match *workflow.split(':').collect::<Vec<_>>() {
        ["arn", _, "states", region, _, "execution" | "express", ..] => Some(region),
        _ => None,
    }
}
