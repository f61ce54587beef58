//! `asl`: the states of a state machine that holds a lock with DynamoDB alone, or the policy of its role.

use crate::exit::Failure;
use clap::ValueEnum;
use lambda_lock::Dialect;
use lambda_lock_asl::{OWNER, Object, Options, policy, sample, states};
use std::io::Write;
use std::process::ExitCode;
use std::time::Duration;

/// Which states.
#[derive(Debug, clap::Args)]
pub(crate) struct AslOptions {
    /// The lock table: its name, its ARN, or a substitution.
    #[arg(long, default_value = "${LockTableName}")]
    table: String,
    /// The partition of AWS in the ARNs of the states, or a substitution such as ${Partition}.
    #[arg(long, default_value = "aws")]
    partition: String,
    /// The key of the lock, in JSONata, from the input of the state Lock. It must be a text.
    #[arg(long, value_name = "JSONATA", default_value = "$states.input.key")]
    key: String,
    /// The sort key of the lock, in JSONata, where the table has one.
    #[arg(long, value_name = "JSONATA", requires = "sort_key_attribute")]
    sort_key: Option<String>,
    /// The name of the table's partition key.
    #[arg(long, value_name = "NAME", default_value = "key")]
    key_attribute: String,
    /// The name of the table's sort key, where it has one.
    #[arg(long, value_name = "NAME", requires = "sort_key")]
    sort_key_attribute: Option<String>,
    /// The owner of the lock, in JSONata. It must name one holder: for an item of a Map add & '/' &
    /// $states.context.Map.Item.Index.
    #[arg(long, value_name = "JSONATA", default_value = OWNER)]
    owner: String,
    /// For how many seconds the lock is held without a renewal: one step with all of its attempts and their pauses, and
    /// 10 s for the state before it.
    #[arg(long, value_name = "SECONDS", default_value_t = 180.0)]
    lease: f64,
    /// The table's TTL attribute, where it has one. The stack's table has expiresAt.
    #[arg(long, value_name = "NAME")]
    ttl_attribute: Option<String>,
    /// How the lease is written. Java and Go clients cannot read each other's rows; both are always read here.
    #[arg(long, value_enum, default_value_t = InDialect::Java)]
    dialect: InDialect,
    /// By how many seconds two wall clocks may differ. All clients of a table should have the same value.
    #[arg(long, value_name = "SECONDS", default_value_t = 2.0)]
    max_clock_skew: f64,
    /// By how much the rates of two clocks may differ. All clients of a table should have the same value.
    #[arg(long, value_name = "FRACTION", default_value_t = 0.05)]
    clock_drift: f64,
    /// The longest pause between two looks at a held lock, in whole seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 10)]
    poll_seconds: u64,
    /// The state that follows once the lock is held.
    #[arg(long, value_name = "STATE", default_value = "FirstStep")]
    first_step: String,
    /// The state that follows the renewal.
    #[arg(long, value_name = "STATE", default_value = "SecondStep")]
    second_step: String,
    /// Prints a whole state machine whose two steps call the function ${WorkArn}.
    #[arg(long, conflicts_with = "policy")]
    sample: bool,
    /// Prints the policy of the state machine's role for the keys that match this pattern, such as customer-*. May be
    /// given several times.
    #[arg(long, value_name = "PATTERN")]
    policy: Vec<String>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum InDialect {
    /// Milliseconds, as the Java client writes them.
    Java,
    /// A duration such as 1m30s, as the Go client writes it.
    Go,
}

pub(crate) fn print(options: AslOptions) -> Result<ExitCode, Failure> {
    let object = printed(options).map_err(|error| Failure::Usage(error.to_string()))?;
    writeln!(std::io::stdout(), "{object}")?;
    Ok(ExitCode::SUCCESS)
}

fn printed(arguments: AslOptions) -> Result<Object, Box<dyn std::error::Error>> {
    let AslOptions { sample: whole, policy: keys, .. } = &arguments;
    let (whole, keys) = (*whole, keys.clone());
    let options = options(arguments)?;
    let command = command();
    Ok(match (whole, keys.is_empty()) {
        (true, _) => sample(&options, &command)?,
        (false, true) => states(&options, &command)?,
        (false, false) => policy(&options, &keys)?,
    })
}

fn options(arguments: AslOptions) -> Result<Options, Box<dyn std::error::Error>> {
    let seconds = |name: &str, given: f64| {
        Duration::try_from_secs_f64(given)
            .map_err(|_| format!("{name} must be a number of seconds that is not negative; got {given}"))
    };
    Ok(Options {
        lease: seconds("--lease", arguments.lease)?,
        max_clock_skew: seconds("--max-clock-skew", arguments.max_clock_skew)?,
        dialect: match arguments.dialect {
            InDialect::Java => Dialect::Java,
            InDialect::Go => Dialect::Go,
        },
        table: arguments.table,
        partition: arguments.partition,
        key: arguments.key,
        sort_key: arguments.sort_key,
        key_attribute: arguments.key_attribute,
        sort_key_attribute: arguments.sort_key_attribute,
        owner: arguments.owner,
        ttl_attribute: arguments.ttl_attribute,
        clock_drift: arguments.clock_drift,
        poll_seconds: arguments.poll_seconds,
        first_step: arguments.first_step,
        second_step: arguments.second_step,
    })
}

/// This command, as a shell takes it.
fn command() -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=,+@".contains(c);
    // clap has taken them already, so each is text. The path of this program may be none.
    let arguments = std::env::args_os().skip(1).filter_map(|argument| argument.into_string().ok());
    let quoted = arguments.map(|argument| {
        if !argument.is_empty() && argument.chars().all(plain) {
            argument
        } else {
            format!("'{}'", argument.replace('\'', "'\\''"))
        }
    });
    ["lambda-lock".to_owned()].into_iter().chain(quoted).collect::<Vec<_>>().join(" ")
}
