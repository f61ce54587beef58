//! `doctor`: whether the table, the permissions and the clock are as callers need them.

use crate::arguments::DoctorOptions;
use crate::connection;
use crate::deployed;
use crate::exit::{self, Failure};
use crate::held;
use crate::screen::{self, STRONG, plain};
use crate::server_date::ServerDate;
use anstyle::Style;
use aws_config::SdkConfig;
use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::types::{
    AttributeValue, GlobalSecondaryIndexDescription, IndexStatus, TableDescription, TimeToLiveStatus,
};
use lambda_lock::{Error, LockClient, LockKey};
use serde::Serialize;
use std::io::Write;
use std::num::NonZeroU32;
use std::process::ExitCode;
use std::time::Duration;

/// The index by which `lock-cleaner` finds the locks of an execution.
const BY_WORKFLOW: &str = "byWorkflow";
const WORKFLOW: &str = "workflow";
/// The lease of the lock that is acquired as a trial.
const LEASE: Duration = Duration::from_secs(10);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Verdict {
    Ok,
    Warning,
    Failed,
}

#[derive(Debug, Serialize)]
struct Finding {
    about: &'static str,
    verdict: Verdict,
    said: String,
}

/// What was found, in the order of the checks.
#[derive(Default)]
struct Findings {
    found: Vec<Finding>,
    /// Whether DynamoDB did not respond. Then nothing is known of the table.
    out_of_reach: bool,
    /// Whether something was not allowed.
    denied: bool,
}

impl Findings {
    fn add(&mut self, about: &'static str, verdict: Verdict, said: impl Into<String>) {
        self.found.push(Finding { about, verdict, said: said.into() });
    }

    fn tried<T>(&mut self, about: &'static str, tried: Result<T, Error>, well: &str) -> Option<T> {
        match tried {
            Ok(value) => {
                self.add(about, Verdict::Ok, well);
                Some(value)
            }
            Err(error) => {
                self.out_of_reach |= exit::of_kind(error.kind()) == exit::UNAVAILABLE;
                self.denied |= exit::of_kind(error.kind()) == exit::DENIED;
                self.add(about, Verdict::Failed, exit::with_reasons(&error));
                None
            }
        }
    }

    /// Prints what was found. The exit code says it too, so it does not depend on whether anybody reads to the end.
    fn told(&self, json: bool) -> Result<ExitCode, Failure> {
        match print(&self.found, json) {
            Err(Failure::Io(error)) if error.kind() == std::io::ErrorKind::BrokenPipe => {}
            printed => printed?,
        }
        Ok(self.exit_code())
    }

    fn exit_code(&self) -> ExitCode {
        match self.found.iter().any(|finding| finding.verdict == Verdict::Failed) {
            true if self.out_of_reach => ExitCode::from(exit::UNAVAILABLE),
            true if self.denied => ExitCode::from(exit::DENIED),
            true => ExitCode::from(exit::UNUSABLE),
            false => ExitCode::SUCCESS,
        }
    }
}

pub(crate) async fn doctor(connection: &connection::Options, options: &DoctorOptions) -> Result<ExitCode, Failure> {
    let config = connection.config().await?;
    let (dynamodb, locks) = (connection.dynamodb(config), connection.open().await?);
    let mut findings = Findings::default();
    findings.tried(
        "table",
        locks.operator().check_table().await,
        "it is active, and has the key attributes of these options",
    );
    if findings.out_of_reach {
        // All others would wait as long, for the same.
        return findings.told(options.format.json);
    }
    let table = about_the_table(&mut findings, connection, &dynamodb).await;
    about_ttl(&mut findings, connection, &dynamodb).await;
    about_what_is_deployed(&mut findings, connection, config).await;
    try_to_read(&mut findings, &locks, own_key(connection)).await;
    if table.is_some_and(|table| index_of(&table).is_some()) {
        try_the_index(&mut findings, connection, &dynamodb).await;
    }
    if options.write {
        try_to_write(&mut findings, connection, &dynamodb, &locks).await;
    }
    findings.told(options.format.json)
}

async fn about_the_table(
    findings: &mut Findings,
    connection: &connection::Options,
    dynamodb: &Client,
) -> Option<TableDescription> {
    let date = ServerDate::default();
    let request = dynamodb.describe_table().table_name(connection.table()).customize().interceptor(date.clone());
    let table = match request.send().await {
        Ok(described) => described.table,
        Err(error) => {
            findings.denied |= exit::is_denied(&error);
            findings.out_of_reach |= exit::is_out_of_reach(&error);
            findings.add("clock", Verdict::Failed, exit::said(&error));
            return None;
        }
    };
    match (date.offset(), connection.max_clock_skew()) {
        (None, _) => findings.add("clock", Verdict::Warning, "DynamoDB did not say what time it is"),
        (_, None) => findings.add("clock", Verdict::Ok, "no holder is declared dead by a wall clock"),
        (Some(offset), Some(skew)) => {
            let apart = format!("this machine and DynamoDB differ by {offset:.1} s, read with a precision of 1 s");
            let is_apart = offset.abs() > skew.as_secs_f64() + 1.0;
            let said = if is_apart { format!("{apart}: more than callers expect") } else { apart };
            findings.add("clock", if is_apart { Verdict::Failed } else { Verdict::Ok }, said);
        }
    }
    if let Some(table) = &table {
        about_its_parts(findings, table);
    }
    table
}

fn index_of(table: &TableDescription) -> Option<&GlobalSecondaryIndexDescription> {
    table.global_secondary_indexes().iter().find(|index| index.index_name() == Some(BY_WORKFLOW))
}

fn about_its_parts(findings: &mut Findings, table: &TableDescription) {
    let (verdict, said) = match index_of(table) {
        None => (Verdict::Warning, format!("{BY_WORKFLOW} is missing: lock-cleaner needs it, and nobody else")),
        Some(index) => match (index.key_schema(), index.index_status()) {
            ([key], _) if key.attribute_name() != WORKFLOW => (
                Verdict::Failed,
                format!("the key of {BY_WORKFLOW} must be {WORKFLOW}, and is {}", key.attribute_name()),
            ),
            (_, Some(status)) if *status != IndexStatus::Active => {
                (Verdict::Warning, format!("{BY_WORKFLOW} is {status}: lock-cleaner has to wait"))
            }
            _ => (Verdict::Ok, format!("{BY_WORKFLOW} is there")),
        },
    };
    findings.add("index", verdict, said);
    let regions: Vec<_> = table.replicas().iter().filter_map(|replica| replica.region_name()).collect();
    if regions.is_empty() {
        findings.add("Regions", Verdict::Ok, "the table has no replicas");
    } else {
        let said =
            format!("the table has replicas ({}): a lock holds only if all callers use one Region", regions.join(", "));
        findings.add("Regions", Verdict::Warning, said);
    }
    let has_stream = table.stream_specification().is_some_and(|stream| stream.stream_enabled());
    let said = if has_stream { "the table has a stream" } else { "the table has no stream: history knows nothing" };
    findings.add("stream", Verdict::Ok, said);
}

async fn about_ttl(findings: &mut Findings, connection: &connection::Options, dynamodb: &Client) {
    let described = match dynamodb.describe_time_to_live().table_name(connection.table()).send().await {
        Ok(described) => described.time_to_live_description,
        Err(error) => {
            findings.denied |= exit::is_denied(&error);
            findings.out_of_reach |= exit::is_out_of_reach(&error);
            return findings.add("TTL", Verdict::Failed, exit::said(&error));
        }
    };
    let on = described.filter(|ttl| ttl.time_to_live_status == Some(TimeToLiveStatus::Enabled));
    let attribute = on.and_then(|ttl| ttl.attribute_name);
    let (verdict, said) = match (attribute.as_deref(), connection.ttl_attribute()) {
        (None, None) => (Verdict::Ok, "it is off, and rows stay".to_owned()),
        (Some(table), Some(given)) if table == given => (Verdict::Ok, format!("idle rows are deleted by {table}")),
        (Some(table), _) => {
            (Verdict::Warning, format!("the table deletes rows by {table}: give --ttl-attribute {table}"))
        }
        (None, Some(given)) => (
            Verdict::Warning,
            format!("it is off, so nobody deletes rows by {given}: switch it on, or leave the option out"),
        ),
    };
    findings.add("TTL", verdict, said);
}

async fn about_what_is_deployed(findings: &mut Findings, connection: &connection::Options, config: &SdkConfig) {
    match deployed::beside(connection, config).await {
        Ok((stack, names)) if names.is_empty() => {
            findings.add("stack", Verdict::Ok, format!("{stack} has the table, and no functions"));
        }
        Ok((stack, names)) => findings.add("stack", Verdict::Ok, format!("{stack} has {}", names.join(", "))),
        Err(why) => {
            findings.add("stack", Verdict::Warning, format!("it is unknown what is deployed beside the table: {why}"));
        }
    }
}

/// A key that nobody else uses.
fn own_key(connection: &connection::Options) -> LockKey {
    let name = format!("lambda-lock/doctor/{:016x}", fastrand::u64(..));
    let sort_key = connection.schema().sort_key_attribute.map(|_| "doctor".to_owned());
    LockKey::new(name, sort_key)
}

async fn try_to_read(findings: &mut Findings, locks: &LockClient, key: LockKey) {
    findings.tried("GetItem", locks.operator().peek(key.clone()).await, "show is allowed");
    let mut pages = locks.operator().list().page_size(NonZeroU32::MIN);
    findings.tried("Scan", pages.next().await, "ls is allowed");
    match locks.semaphore(key, 1).peek().await {
        Ok(_) => findings.add("BatchGetItem", Verdict::Ok, "several locks at once are allowed"),
        // Most callers do without.
        Err(error) => findings.add("BatchGetItem", Verdict::Warning, exit::with_reasons(&error)),
    }
}

/// As lock-cleaner does it.
async fn try_the_index(findings: &mut Findings, connection: &connection::Options, dynamodb: &Client) {
    let query = dynamodb.query().table_name(connection.table()).index_name(BY_WORKFLOW);
    let query = query.key_condition_expression("#workflow = :own").expression_attribute_names("#workflow", WORKFLOW);
    let query = query.expression_attribute_values(":own", AttributeValue::S(own_key(connection).key().to_owned()));
    match query.send().await {
        Ok(_) => findings.add("Query", Verdict::Ok, "lock-cleaner could find the locks of an execution"),
        // Nothing but lock-cleaner needs it, and it has a role of its own.
        Err(error) => findings.add("Query", Verdict::Warning, exit::said(&error)),
    }
}

async fn try_to_write(
    findings: &mut Findings,
    connection: &connection::Options,
    dynamodb: &Client,
    locks: &LockClient,
) {
    let key = own_key(connection);
    let writes = async {
        if let Some(lock) = locks.acquire(key.clone()).owner(held::owner()).lease(LEASE).try_once().await?.granted() {
            lock.release().await?;
        }
        Ok(())
    };
    if findings.tried("UpdateItem", writes.await, "acquire, renew, release and break are allowed").is_none() {
        return;
    }
    let (schema, sort_key) = (connection.schema(), key.sort_key().map(str::to_owned));
    let delete = dynamodb.delete_item().table_name(connection.table());
    let delete = delete.key(schema.key_attribute, AttributeValue::S(key.key().to_owned()));
    let delete = match schema.sort_key_attribute.zip(sort_key) {
        Some((name, value)) => delete.key(name, AttributeValue::S(value)),
        None => delete,
    };
    match delete.condition_expression("attribute_exists(isReleased)").send().await {
        Ok(_) => findings.add("DeleteItem", Verdict::Ok, "the row of this trial is deleted"),
        // Nothing but lock-task and lock-waker needs it, and they have roles of their own.
        Err(error) => {
            let stays = format!("the row of this trial, {}, stays: {}", key.key(), exit::said(&error));
            findings.add("DeleteItem", Verdict::Warning, stays);
        }
    }
}

fn print(findings: &[Finding], json: bool) -> Result<(), Failure> {
    let mut out = anstream::stdout().lock();
    for finding in findings {
        if json {
            writeln!(out, "{}", screen::json(finding)?)?;
            continue;
        }
        let (style, word): (Style, _) = match finding.verdict {
            Verdict::Ok => (screen::GOOD, "ok"),
            Verdict::Warning => (screen::DOUBTFUL, "warning"),
            Verdict::Failed => (screen::WRONG, "failed"),
        };
        writeln!(out, "{style}{word:<8}{style:#} {STRONG}{:<12}{STRONG:#} {}", finding.about, plain(&finding.said))?;
    }
    Ok(())
}
