//! The gateway. Each call has the number of its place and the fencing token of that place.

use lambda_lock::Permit;
use lambda_lock_functions::{Answered, ConfigError, Environment, Failure, Web, optional};
use serde_json::Value;
use std::time::Duration;

/// A gateway, or a stand-in when none is configured.
#[derive(Clone, Debug)]
pub(crate) struct Gateway(Option<Web>);

/// How a call ended.
pub(crate) enum Called {
    /// The gateway has responded, so the call no longer takes a connection.
    Ended(Result<Value, Failure>),
    /// There was no response, so the gateway may still be at work.
    MayStillRun(Failure),
}

impl Gateway {
    pub(crate) fn read(environment: &Environment<'_>) -> Result<Self, ConfigError> {
        const NAME: &str = "GATEWAY_URL";
        optional(environment, NAME)?.map(|url| Web::new(NAME, &url)).transpose().map(Self)
    }

    /// Posts the request, and waits this long for the response.
    pub(crate) async fn call(&self, request: &Value, permit: &Permit, patience: Duration) -> Called {
        let Some(web) = &self.0 else {
            tracing::info!("GATEWAY_URL is not set: nobody is called");
            return Called::Ended(Ok(Value::Null));
        };
        let headers = [("place", permit.place().to_string()), ("fencing-token", permit.fencing_token().to_string())];
        match web.post("/calls", &headers, request.to_string(), patience).await {
            Ok(answered) => Called::Ended(response(&answered)),
            Err(error) => {
                Called::MayStillRun(Failure::work_failed(&format_args!("the gateway did not respond: {error}")))
            }
        }
    }
}

fn response(answered: &Answered) -> Result<Value, Failure> {
    match answered.status {
        200..=299 => serde_json::from_slice(&answered.body)
            .map_err(|_| Failure::work_failed(&"the gateway's response is no JSON")),
        // The gateway has seen a newer holder of this place.
        409 => Err(Failure::lost("the gateway refused the call, because its place has a newer holder")),
        status => Err(Failure::work_failed(&format_args!("the gateway failed with status {status}"))),
    }
}
