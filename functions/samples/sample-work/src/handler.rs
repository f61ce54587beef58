//! Runs one step of the work.

use crate::counter::Counters;
use crate::request::{Request, Step};
use lambda_lock_functions::{Config, ConfigError, Environment, Event, Failure, Fields, may_simulate};
use lambda_runtime::LambdaEvent;
use serde_json::{Value, json};

/// The exit status of a simulated crash.
const CRASHED: i32 = 70;

/// Clients and settings that all invocations of a process share.
#[derive(Debug)]
pub(crate) struct Deps {
    counters: Counters,
    /// Whether an event may ask for delays, failures and crashes.
    simulates: bool,
}

impl Deps {
    pub(crate) fn new(config: &Config, environment: &Environment<'_>) -> Result<Self, ConfigError> {
        Ok(Self { counters: Counters::new(config, environment)?, simulates: may_simulate(environment)? })
    }
}

pub(crate) async fn handler(event: LambdaEvent<Event>, deps: &Deps) -> Result<Value, Failure> {
    let request = Request::read(Fields::of_event(&event.payload)?)?;
    if request.simulate.is_some() && !deps.simulates {
        return Err(Failure::no_simulation("input.simulate"));
    }
    accidents(&request).await?;
    let Request { step, counter, fencing_token, writer, .. } = request;
    let value = match step {
        Step::Read => deps.counters.read(&counter, fencing_token).await?,
        Step::Write(value) => {
            deps.counters.write(&counter, fencing_token, value, &writer).await?;
            value
        }
        Step::Add => {
            let value = deps.counters.read(&counter, fencing_token).await? + 1;
            deps.counters.write(&counter, fencing_token, value, &writer).await?;
            value
        }
    };
    Ok(json!({ "value": value }))
}

/// Simulates the failures that the execution's input asks for, before the step's effect.
async fn accidents(request: &Request) -> Result<(), Failure> {
    let Request { step, simulate: Some(simulate), .. } = request else { return Ok(()) };
    if !simulate.takes.is_zero() {
        #[expect(clippy::disallowed_methods, reason = "a step takes its time")]
        tokio::time::sleep(simulate.takes).await;
    }
    if simulate.crashes(*step) {
        tracing::error!(step = step.name(), "the step crashes, as the input asked for");
        std::process::exit(CRASHED);
    }
    if simulate.fails(*step) {
        return Err(Failure::step_failed(&format!("the step {} fails, as the input asked for", step.name())));
    }
    Ok(())
}
