//! What a state machine wants to lock, and how.

use crate::states::NAMES;
use lambda_lock_protocol::schema::DEFAULT_TTL_RETENTION;
use lambda_lock_protocol::{ClockBounds, Dialect, Invalid, Lease, Schema, Settings, Ttl};
use std::fmt;
use std::time::Duration;

/// The owner of a lock: this attempt of this execution. A redrive is another attempt.
pub const OWNER: &str = "$states.context.Execution.Id & '/' & $states.context.Execution.RedriveCount";

/// How many seconds a `Wait` may last at most. Step Functions has the same limit.
const MAX_PAUSE: u64 = 99_999_999;

/// What a state machine wants to lock, and how.
#[derive(Clone, Debug)]
pub struct Options {
    /// The lock table: its name, its ARN, or a substitution such as `${LockTableName}`.
    pub table: String,
    /// The partition of AWS in the ARNs of the states: `aws`, or a substitution such as `${Partition}`.
    pub partition: String,
    /// The key of the lock, in JSONata. It is evaluated on the input of the state `Lock`.
    pub key: String,
    /// The sort key of the lock, in JSONata. Required where the table has a sort key.
    pub sort_key: Option<String>,
    /// The name of the table's partition key.
    pub key_attribute: String,
    /// The name of the table's sort key, where it has one.
    pub sort_key_attribute: Option<String>,
    /// The owner of the lock, in JSONata. It must name one holder. The default is [`OWNER`].
    pub owner: String,
    /// How long the lock is held without a renewal. It must cover a step with all of its attempts, and the 10 s that
    /// `Lock` and `Renew` may take.
    pub lease: Duration,
    /// The table's TTL attribute, where it has one.
    pub ttl_attribute: Option<String>,
    /// How the lease is written.
    pub dialect: Dialect,
    /// By how much two wall clocks may differ. Every client of a table should have the same value.
    pub max_clock_skew: Duration,
    /// By how much the rates of two clocks may differ. Every client of a table should have the same value.
    pub clock_drift: f64,
    /// The longest pause between two looks at a held lock, in whole seconds. At least 1.
    pub poll_seconds: u64,
    /// The state that follows once the lock is held.
    pub first_step: String,
    /// The state that follows the renewal.
    pub second_step: String,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            table: "${LockTableName}".to_owned(),
            partition: "aws".to_owned(),
            key: "$states.input.key".to_owned(),
            sort_key: None,
            key_attribute: Schema::default().key_attribute,
            sort_key_attribute: None,
            owner: OWNER.to_owned(),
            lease: Duration::from_secs(180),
            ttl_attribute: None,
            dialect: Dialect::default(),
            max_clock_skew: ClockBounds::default().max_clock_skew().unwrap_or_default(),
            clock_drift: 0.05,
            poll_seconds: 10,
            first_step: "FirstStep".to_owned(),
            second_step: "SecondStep".to_owned(),
        }
    }
}

/// An option that cannot be used. Its text says what to give instead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error(String);

impl Error {
    pub(crate) fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Error {}

impl From<Invalid> for Error {
    fn from(invalid: Invalid) -> Self {
        Self(invalid.to_string())
    }
}

impl Options {
    /// Checks the options, and returns the settings of a client with the same table and clocks.
    pub(crate) fn settings(&self) -> Result<Settings, Error> {
        let Self {
            table,
            partition,
            key,
            sort_key,
            key_attribute,
            sort_key_attribute,
            owner,
            lease,
            ttl_attribute,
            dialect,
            max_clock_skew,
            clock_drift,
            poll_seconds,
            first_step,
            second_step,
        } = self;
        if table.is_empty() {
            return Err(Error::new(
                "the table is empty: give its name, its ARN, or a substitution such as ${LockTableName}",
            ));
        }
        if partition.is_empty() {
            return Err(Error::new(
                "the partition is empty: give aws, aws-cn, aws-us-gov, or a substitution such as ${Partition}",
            ));
        }
        let expressions = [("key", Some(key)), ("sort key", sort_key.as_ref()), ("owner", Some(owner))];
        for (what, expression) in expressions {
            expression.map_or(Ok(()), |expression| check_expression(what, expression))?;
        }
        match (sort_key, sort_key_attribute) {
            (Some(_), None) => {
                return Err(Error::new("the sort key has no attribute: give the name of the table's sort key too"));
            }
            (None, Some(name)) => {
                return Err(Error::new(format!(
                    "the table has the sort key {name:?}, but the lock has none: give the expression of its sort key too"
                )));
            }
            _ => {}
        }
        Lease::check(*lease)?;
        if !(1..=MAX_PAUSE).contains(poll_seconds) {
            return Err(Error::new(format!(
                "the pause between two looks must have 1 to {MAX_PAUSE} whole seconds; got {poll_seconds}"
            )));
        }
        for state in [first_step, second_step] {
            // https://docs.aws.amazon.com/step-functions/latest/dg/statemachine-structure.html
            if state.is_empty() || state.chars().count() > 80 {
                return Err(Error::new(format!("the name of a state must have 1 to 80 characters; got {state:?}")));
            }
            if NAMES.contains(&state.as_str()) {
                return Err(Error::new(format!(
                    "a step of the work cannot be called {state:?}, as that is a state of the lock: give it another name"
                )));
            }
        }
        if first_step == second_step {
            return Err(Error::new(format!("both steps of the work are called {first_step:?}: give one another name")));
        }
        let ttl = ttl_attribute.clone().map(|attribute| Ttl { attribute, retention: DEFAULT_TTL_RETENTION });
        let schema = Schema {
            key_attribute: key_attribute.clone(),
            sort_key_attribute: sort_key_attribute.clone(),
            ttl,
            dialect: *dialect,
        };
        schema.check()?;
        let clock_bounds = ClockBounds::default().with_drift(*clock_drift)?.with_max_clock_skew(Some(*max_clock_skew));
        Ok(Settings { schema, clock_bounds })
    }
}

fn check_expression(what: &str, expression: &str) -> Result<(), Error> {
    if expression.trim().is_empty() {
        return Err(Error::new(format!(
            "the expression of the {what} is empty: give one in JSONata, such as $states.input.key"
        )));
    }
    if expression.contains("{%") || expression.contains("%}") {
        return Err(Error::new(format!(
            "the expression of the {what} contains {{% or %}}: give the JSONata alone, these marks are added; got {expression:?}"
        )));
    }
    Ok(())
}
