//! Callbacks of Step Functions: the state machine that a task token names, and what a sender needs for it. AWS's policy
//! [`StepFunctionsCallbackPolicy`](https://docs.aws.amazon.com/serverless-application-model/latest/developerguide/serverless-policy-template-list.html#stepfunctions-callback-policy)
//! has the form of the resource.

use super::Need;
use crate::lambda::ACCOUNT;
use anyhow::{Context, bail};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use serde_json::{Value, json};
use uuid::Uuid;

/// What stands in a token, in base64. `deploy/statemachines/callback.py` makes them.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Token {
    state_machine: String,
}

/// Returns a task token of a state machine, in the form of this machine's engine, for a test without an engine.
pub fn task_token(state_machine: &str) -> String {
    let token = json!({ "stateMachine": state_machine, "id": Uuid::new_v4().to_string() });
    STANDARD.encode(token.to_string())
}

/// Returns what this operation of Step Functions needs. `None` if its token is not one.
pub(super) fn needed(operation: &str, request: &Value, region: &str) -> anyhow::Result<Option<Need>> {
    if operation != "SendTaskSuccess" {
        bail!("the proxy does not forward this operation of Step Functions");
    }
    let token = request["taskToken"].as_str().context("taskToken is missing")?;
    let need = |Token { state_machine }| {
        let resource = format!("arn:aws:states:{region}:{ACCOUNT}:stateMachine:{state_machine}");
        Need::of_states(operation, resource)
    };
    Ok(read(token).map(need))
}

fn read(token: &str) -> Option<Token> {
    serde_json::from_slice(&STANDARD.decode(token).ok()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn needed_by(token: &str) -> Option<String> {
        let need =
            needed("SendTaskSuccess", &json!({ "taskToken": token, "output": "{}" }), "eu-central-1").unwrap()?;
        Some(format!("{} on {}", need.action, need.resource))
    }

    #[test]
    fn an_answer_to_a_task_needs_its_state_machine() {
        let expected = "states:SendTaskSuccess on arn:aws:states:eu-central-1:123456789012:stateMachine:work";
        assert_eq!(needed_by(&task_token("work")).as_deref(), Some(expected));
    }

    #[test]
    fn what_names_no_state_machine_is_no_token() {
        for text in ["", "no base64", "bm8ganNvbg==", "e30="] {
            assert_eq!(needed_by(text), None, "{text}");
        }
    }

    #[test]
    fn other_operations_of_step_functions_are_not_forwarded() {
        let request = json!({ "taskToken": task_token("work") });
        assert!(needed("SendTaskFailure", &request, "eu-central-1").is_err());
        assert!(needed("SendTaskSuccess", &json!({}), "eu-central-1").is_err());
    }
}
