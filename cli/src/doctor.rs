//! `doctor`: whether the table, the permissions and the clock are as callers need them.

use crate::arguments::DoctorOptions;
use crate::connection;
use crate::exit::{self, Failure};
use crate::screen::{self, STRONG, plain};
use crate::server_date::ServerDate;
use anstyle::Style;
use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::types::{TableDescription, TimeToLiveStatus};
use lambda_lock::{Error, LockClient, LockKey};
use serde::Serialize;
use std::io::Write;
use std::num::NonZeroU32;
use std::process::ExitCode;
use std::time::Duration;

/// The index by which `lock-cleaner` finds the locks of an execution.
const BY_WORKFLOW: &str = "byWorkflow";
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
struct Findings(Vec<Finding>);

impl Findings {
    fn add(&mut self, about: &'static str, verdict: Verdict, said: impl Into<String>) {
        self.0.push(Finding { about, verdict, said: said.into() });
    }

    fn tried<T>(&mut self, about: &'static str, tried: Result<T, Error>, well: &str) -> Option<T> {
        match tried {
            Ok(value) => {
                self.add(about, Verdict::Ok, well);
                Some(value)
            }
            Err(error) => {
                self.add(about, Verdict::Failed, error.to_string());
                None
            }
        }
    }
}

pub(crate) async fn doctor(connection: &connection::Options, options: &DoctorOptions) -> Result<ExitCode, Failure> {
    let config = connection.config().await?;
    let (dynamodb, locks) = (connection.dynamodb(&config), connection.open().await?);
    let mut findings = Findings::default();
    findings.tried("table", locks.check_table().await, "it is active, and has the key attributes of these options");
    about_the_table(&mut findings, connection, &dynamodb).await;
    about_ttl(&mut findings, connection, &dynamodb).await;
    try_to_read(&mut findings, &locks).await;
    if options.write {
        try_to_write(&mut findings, &locks).await;
    }
    print(&findings.0, options.format.json)?;
    let is_ill = findings.0.iter().any(|finding| finding.verdict == Verdict::Failed);
    Ok(if is_ill { ExitCode::from(exit::UNUSABLE) } else { ExitCode::SUCCESS })
}

async fn about_the_table(findings: &mut Findings, connection: &connection::Options, dynamodb: &Client) {
    let date = ServerDate::default();
    let request = dynamodb.describe_table().table_name(connection.table()).customize().interceptor(date.clone());
    let table = match request.send().await {
        Ok(described) => described.table,
        Err(error) => {
            return findings.add("clock", Verdict::Failed, exit::said(&error));
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
    if let Some(table) = table {
        about_its_parts(findings, &table);
    }
}

fn about_its_parts(findings: &mut Findings, table: &TableDescription) {
    let has_index = table.global_secondary_indexes().iter().any(|index| index.index_name() == Some(BY_WORKFLOW));
    if has_index {
        findings.add("index", Verdict::Ok, format!("{BY_WORKFLOW} is there"));
    } else {
        let said = format!("{BY_WORKFLOW} is missing: lock-cleaner needs it, and nobody else");
        findings.add("index", Verdict::Warning, said);
    }
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

/// A key that nobody else uses.
fn own_key() -> LockKey {
    format!("lambda-lock/doctor/{:016x}", fastrand::u64(..)).into()
}

async fn try_to_read(findings: &mut Findings, locks: &LockClient) {
    findings.tried("GetItem", locks.peek(own_key()).await, "show is allowed");
    let mut pages = locks.list().page_size(NonZeroU32::MIN);
    findings.tried("Scan", pages.next().await, "ls is allowed");
}

async fn try_to_write(findings: &mut Findings, locks: &LockClient) {
    let acquired = locks.try_acquire(own_key()).lease(LEASE).await;
    let Some(lock) = findings.tried("UpdateItem", acquired, "acquire, renew, release and break are allowed") else {
        return;
    };
    let Some(lock) = lock.granted() else { return };
    let saved = lock.save();
    let deleted = locks.release(saved.clone()).delete_row().await;
    if findings.tried("DeleteItem", deleted, "a release may delete its row").is_none() {
        findings.tried("UpdateItem", locks.release(saved).await, "the row of this trial stays, and is released");
    }
}

fn print(findings: &[Finding], json: bool) -> Result<(), Failure> {
    let mut out = anstream::stdout().lock();
    for finding in findings {
        if json {
            serde_json::to_writer(&mut out, finding).map_err(std::io::Error::from)?;
            writeln!(out)?;
            continue;
        }
        let (style, word): (Style, _) = match finding.verdict {
            Verdict::Ok => (screen::GOOD, "ok"),
            Verdict::Warning => (screen::DOUBTFUL, "warning"),
            Verdict::Failed => (screen::WRONG, "failed"),
        };
        writeln!(out, "{style}{word:<8}{style:#} {STRONG}{:<10}{STRONG:#} {}", finding.about, plain(&finding.said))?;
    }
    Ok(())
}
