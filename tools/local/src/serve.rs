//! Keeps DynamoDB and functions running, so that a user can try them.

use anstyle::Style;
use anyhow::Context;
use clap::Args;
use lambda_lock_local::lambda::{LogLine, Template, build, workspace};
use lambda_lock_local::{Function, Lambda, LocalDynamoDb};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;

const DIM: Style = Style::new().dimmed();
const TITLE: Style = Style::new().bold();
/// The SDKs need credentials to sign requests. The signatures are not checked.
const CREDENTIALS: &str = "AWS_ACCESS_KEY_ID=local AWS_SECRET_ACCESS_KEY=local AWS_DEFAULT_REGION=eu-central-1";

/// Run the functions of template.yaml, and your own, on this machine until Ctrl-C.
///
/// Tables are in memory. Functions are real processes: they are killed at their deadlines, stopped
/// between invocations, and started again after a crash, or when their executable was built again. Their logs are printed here. With
/// `--concurrency 8 --without-kills` they run as on Lambda Managed Instances.
#[derive(Args, Debug)]
pub(crate) struct Options {
    /// A function of your own: its name, and an executable that uses the Lambda Runtime API, such as
    /// the binary of a `lambda_runtime` handler. Repeatable.
    #[arg(long = "function", value_name = "NAME=PATH", value_parser = pair)]
    functions: Vec<(String, String)>,

    /// An environment variable for your own functions. They also get the variables that the template
    /// gives to every function, and AWS_ENDPOINT_URL_DYNAMODB. Repeatable.
    #[arg(long = "env", value_name = "KEY=VALUE", value_parser = pair)]
    environment: Vec<(String, String)>,

    /// The timeout of your own functions, in seconds.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=900))]
    timeout: u64,

    /// The memory that your own functions are told. It is not limited.
    #[arg(long, value_name = "MB", default_value_t = 128)]
    memory: u32,

    /// How many invocations a process of each function may have at the same time, as on Lambda Managed Instances. A
    /// process that may have several is never stopped. A function on `lambda_runtime` needs `run_concurrent` for it.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=64))]
    concurrency: u32,

    /// Do not kill a process at a deadline. The caller gets a timeout error, and the process continues, as on Lambda
    /// Managed Instances.
    #[arg(long)]
    without_kills: bool,
}

fn pair(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err("give a name, =, and a value".to_owned()),
    }
}

/// Runs until Ctrl-C or SIGTERM.
pub(crate) async fn run(options: Options) -> anyhow::Result<ExitCode> {
    let mut terminated = signal(SignalKind::terminate())?;
    tokio::select! {
        ended = serve(options) => ended,
        // Dropping these values stops everything, including the processes.
        _ = tokio::signal::ctrl_c() => stopped(),
        _ = terminated.recv() => stopped(),
    }
}

fn stopped() -> anyhow::Result<ExitCode> {
    anstream::println!("\nstopped");
    Ok(ExitCode::SUCCESS)
}

async fn serve(options: Options) -> anyhow::Result<ExitCode> {
    let template = Template::read(&workspace().join("template.yaml"))?;
    let built = build(&template.binaries()?).await?;
    let dynamodb = LocalDynamoDb::in_memory().await?;
    let tables = dynamodb.create_tables(&template.tables().context("template.yaml")?).await?;

    let mut functions = template.functions(&built, dynamodb.endpoint()).context("template.yaml")?;
    functions.extend(options.own(&template, dynamodb.endpoint())?);
    for function in &mut functions {
        (function.concurrency, function.kills) = (options.concurrency, !options.without_kills);
    }
    let names: Vec<_> = functions.iter().map(|function| function.name.clone()).collect();
    let lambda = Lambda::start(functions).await?;
    let lines = lambda.log_lines();
    let locks = template.shared_environment().context("template.yaml")?.remove("LOCK_TABLE");
    introduce(&dynamodb, &tables, locks.as_deref(), &lambda, &names);
    follow(lines).await
}

impl Options {
    fn own(&self, template: &Template, dynamodb: &str) -> anyhow::Result<Vec<Function>> {
        let mut environment = template.shared_environment().context("template.yaml")?;
        environment.insert("AWS_ENDPOINT_URL_DYNAMODB".to_owned(), dynamodb.to_owned());
        environment.extend(self.environment.iter().cloned());
        let own = self.functions.iter().map(|(name, binary)| Function {
            name: name.clone(),
            binary: PathBuf::from(binary),
            environment: environment.clone(),
            timeout: Duration::from_secs(self.timeout),
            memory_mb: self.memory,
            ..Function::default()
        });
        Ok(own.collect())
    }
}

/// Prints the endpoints, and how to use them.
fn introduce(dynamodb: &LocalDynamoDb, tables: &[String], locks: Option<&str>, lambda: &Lambda, functions: &[String]) {
    let (dynamodb, lambda) = (dynamodb.endpoint(), lambda.endpoint());
    // A unique owner.
    let owner = format!("try/{}", uuid::Uuid::new_v4());
    let payload = format!(r#"{{"action":"acquire","key":"customer-7","owner":"{owner}","leaseSeconds":60}}"#);
    anstream::println!("DynamoDB   {TITLE}{dynamodb}{TITLE:#}  {}", tables.join(", "));
    anstream::println!("functions  {TITLE}{lambda}{TITLE:#}  {}", functions.join(", "));
    anstream::println!("\nIn another terminal:\n");
    anstream::println!("  curl -s {lambda}/2015-03-31/functions/lock-task/invocations -d '{payload}'\n");
    anstream::println!("  export {CREDENTIALS}");
    anstream::println!(
        "  aws lambda invoke --endpoint-url {lambda} --function-name lock-task \\\n    \
         --cli-binary-format raw-in-base64-out --payload '{payload}' /dev/stdout"
    );
    anstream::println!("\n  # Every SDK, and version 2 of the AWS command line without --endpoint-url:");
    anstream::println!("  export AWS_ENDPOINT_URL_LAMBDA={lambda} AWS_ENDPOINT_URL_DYNAMODB={dynamodb}");
    for table in tables {
        anstream::println!("  aws dynamodb scan --endpoint-url {dynamodb} --table-name {table}");
    }
    if let Some(table) = locks {
        anstream::println!("  cargo run --bin lambda-lock -- ls --endpoint-url {dynamodb} --table {table}");
    }
    anstream::println!("\nCtrl-C stops everything. Logs of the functions:\n");
}

/// Prints the logs of the functions until the program ends.
async fn follow(mut lines: Receiver<LogLine>) -> anyhow::Result<ExitCode> {
    loop {
        match lines.recv().await {
            Ok(LogLine { function, environment, line }) => {
                anstream::println!("{DIM}{function}/{environment}{DIM:#}  {line}");
            }
            Err(RecvError::Lagged(missed)) => anstream::println!("{DIM}… {missed} lines were skipped{DIM:#}"),
            Err(RecvError::Closed) => return stopped(),
        }
    }
}
