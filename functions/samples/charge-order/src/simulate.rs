//! Simulates delays, failures and crashes on request, for demonstrations and tests, where the environment allows it.

use lambda_lock_functions::{Failure, Fields};
use std::fmt;
use std::time::Duration;

/// The exit status of a simulated crash.
const CRASHED: i32 = 70;

/// A step of the work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Stores the order, so that no other order can use its id.
    Reserve,
    /// Sends the charge to the payment gateway.
    Charge,
    /// Records the charge and stores the result.
    Record,
}

impl Step {
    fn named(name: &str) -> Option<Self> {
        [Self::Reserve, Self::Charge, Self::Record].into_iter().find(|step| step.to_string() == name)
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Reserve => "reserve",
            Self::Charge => "charge",
            Self::Record => "record",
        })
    }
}

/// The failures to simulate. Default: none.
#[derive(Clone, Debug, Default)]
pub struct Simulate {
    /// Whether the event has the field at all.
    asked: bool,
    takes: Duration,
    fails_at: Option<Step>,
    crashes_at: Option<Step>,
}

impl Simulate {
    pub(crate) fn read(event: &mut Fields) -> Result<Self, Failure> {
        if !event.has("simulate") {
            return Ok(Self::default());
        }
        let mut fields = event.object("simulate", "simulate.")?;
        let takes = if fields.has("stepMillis") { fields.whole_number("stepMillis")? } else { 0 };
        let simulate = Self {
            asked: true,
            takes: Duration::from_millis(takes),
            fails_at: step(&mut fields, "failAt")?,
            crashes_at: step(&mut fields, "crashAt")?,
        };
        fields.nothing_else()?;
        Ok(simulate)
    }

    /// Refuses the event where nothing may be simulated.
    pub(crate) fn check(&self, allowed: bool) -> Result<(), Failure> {
        if self.asked && !allowed { Err(Failure::no_simulation("simulate")) } else { Ok(()) }
    }

    /// Begins a step. What is simulated happens before the step's effect.
    pub async fn begin(&self, step: Step) -> Result<(), Failure> {
        tracing::info!("{step} begins");
        if !self.takes.is_zero() {
            tokio::time::sleep(self.takes).await;
        }
        if self.crashes_at == Some(step) {
            tracing::warn!("{step} crashes, as the event asked for");
            std::process::exit(CRASHED);
        }
        if self.fails_at == Some(step) {
            return Err(Failure::work_failed(&format_args!("{step} failed, as the event asked for")));
        }
        Ok(())
    }
}

fn step(fields: &mut Fields, name: &str) -> Result<Option<Step>, Failure> {
    let Some(text) = fields.optional_text(name)? else { return Ok(None) };
    let step = Step::named(&text);
    step.map(Some).ok_or_else(|| fields.malformed(name, "give reserve, charge or record"))
}
