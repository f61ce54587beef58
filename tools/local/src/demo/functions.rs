//! The part of the demo with functions. One of them is killed at its deadline while it holds a
//! lock.

use super::orders::{CHARGE_ORDER, ORDER_QUEUE};
use super::screen::{Screen, Seconds};
use super::several::TRANSFER;
use super::stage::{Stage, answer, hurried, invoke, until_done, with};
use anyhow::Context;
use lambda_lock::LockClient;
use lambda_lock_local::lambda::build;
use lambda_lock_local::{Invocation, Lambda, Outcome, client};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime};

const LOCK_TASK: &str = "lock-task";
const LOCK_CLEANER: &str = "lock-cleaner";
/// The ARN of an execution. There is no such execution; only its name is used.
const EXECUTION: &str = "arn:aws:states:eu-central-1:123456789012:execution:exclusive-work:7";
/// The name under which `demo-function` is deployed.
const JOB: &str = "job";
/// The job may wait for half of this time. That is longer than the rest of a lease after the kill.
const JOB_TIMEOUT: Duration = Duration::from_secs(3);

/// The response to a second owner while the first one held the lock.
#[derive(Debug)]
pub(crate) struct SecondOwner {
    pub(crate) acquired: bool,
    /// The holder in the response.
    pub(crate) holder: String,
    /// Whether that is the first owner.
    pub(crate) is_first: bool,
}

/// How the next invocation got the lock of a function that was killed at its deadline.
#[derive(Debug)]
pub(crate) struct Deadline {
    pub(crate) killed_after: Duration,
    /// Whether the invocation was ended by the kill, at its deadline and not before.
    pub(crate) was_killed: bool,
    pub(crate) token: u64,
    pub(crate) next_token: u64,
    /// The time from the kill to the response of the next invocation.
    pub(crate) taken_over_after: Duration,
    /// Whether the lease had ended by then.
    pub(crate) lease_was_over: bool,
}

/// How the next owner got the lock of an execution that ended without releasing it.
#[derive(Debug)]
pub(crate) struct CleanUp {
    /// How many locks were released.
    pub(crate) released: u64,
    /// How much of the lease was left at that time.
    pub(crate) lease_left: Duration,
    pub(crate) token: u64,
    /// The token of the next owner, if it got the lock.
    pub(crate) next_token: Option<u64>,
}

/// Builds the functions of this part and the next ones with cargo.
pub(crate) async fn prepare() -> anyhow::Result<BTreeMap<String, PathBuf>> {
    build(&[LOCK_TASK, LOCK_CLEANER, CHARGE_ORDER, ORDER_QUEUE, TRANSFER].map(str::to_owned)).await
}

/// The functions, with the demo's DynamoDB.
pub(crate) struct Act<'a> {
    screen: &'a Screen,
    lambda: Lambda,
    locks: LockClient,
}

impl<'a> Act<'a> {
    pub(crate) async fn begin(stage: &Stage<'a>) -> anyhow::Result<Self> {
        let mut functions = stage.of_template(&[LOCK_TASK])?;
        // Nobody acquires the lock during the clean-up, so a second look is not needed.
        let at_once = [("CLEANUP_SECOND_LOOK_SECONDS", "0")];
        functions.extend(stage.of_template(&[LOCK_CLEANER])?.into_iter().map(|cleaner| with(cleaner, &at_once)));
        functions.push(hurried(stage.own(JOB)?, JOB_TIMEOUT, &[]));
        let locks = LockClient::builder(client(stage.dynamodb.endpoint()), &stage.lock_table).build()?;
        let title = "Functions under the Lambda Runtime API: lock-task, lock-cleaner, and a job with a timeout of 3 s";
        Ok(Self { screen: stage.screen, lambda: stage.begin(title, functions).await?, locks })
    }

    /// One owner acquires a lock through lock-task. A second one tries, and gets the holder.
    pub(crate) async fn a_second_owner_is_told(&self) -> anyhow::Result<SecondOwner> {
        let acquire = |owner| acquire("customer-7", owner);
        let first = self.invoke(LOCK_TASK, &acquire("anna")).await?;
        let lock = answer(&first)?["lock"].clone();
        let start = Start(&first);
        self.screen.said(LOCK_TASK, format_args!("token {}  granted to anna; {start}", lock["fencingToken"]));

        let second = self.invoke(LOCK_TASK, &acquire("berta")).await?;
        let told = answer(&second)?;
        let holder = told["holder"]["owner"].as_str().unwrap_or_default().to_owned();
        let (after, start) = (&told["retryAfterSeconds"], Start(&second));
        self.screen.said(LOCK_TASK, format_args!("refused to berta: held by {holder}, retry after {after} s; {start}"));

        let released = self.invoke(LOCK_TASK, &json!({ "action": "release", "lock": lock })).await?;
        let given_back = answer(&released)?["released"] == true;
        self.screen.said(LOCK_TASK, if given_back { "released by anna" } else { "anna's lock was already gone" });
        Ok(SecondOwner { acquired: told["acquired"] == true, is_first: holder == "anna", holder })
    }

    /// An execution of a state machine is aborted while it holds a lock for a minute.
    pub(crate) async fn an_execution_ends_without_releasing(&self) -> anyhow::Result<CleanUp> {
        let key = "customer-8";
        let mut for_execution = acquire(key, &format!("{EXECUTION}/0"));
        for_execution["execution"] = EXECUTION.into();
        let granted = answer(&self.invoke(LOCK_TASK, &for_execution).await?)?;
        let token = granted["lock"]["fencingToken"].as_u64().context("the response has no token")?;
        self.screen.said(LOCK_TASK, format_args!("token {token}  granted to an execution, which is then aborted"));
        let row = self.locks.operator().peek(key).await?.context("the execution acquired no lock")?;

        let detail = json!({ "executionArn": EXECUTION, "status": "ABORTED", "redriveCount": 0 });
        let cleaned = self.invoke(LOCK_CLEANER, &json!({ "source": "aws.states", "detail": detail })).await?;
        let released = answer(&cleaned)?["released"].as_u64().context("the response has no number")?;
        let lease_left = row.lease_ends_at.context("the lease has no end")?.duration_since(SystemTime::now());
        let (lease_left, start) = (lease_left.unwrap_or_default(), Start(&cleaned));
        self.screen.said(LOCK_CLEANER, format_args!("{released} lock released; {start}"));

        let next = answer(&self.invoke(LOCK_TASK, &acquire(key, "berta")).await?)?;
        let next_token = next["lock"]["fencingToken"].as_u64();
        if let Some(next_token) = next_token {
            self.screen.said(LOCK_TASK, format_args!("token {next_token}  granted to berta"));
        }
        Ok(CleanUp { released, lease_left, token, next_token })
    }

    /// The job is killed at its deadline while it holds a lock. The next invocation of the job
    /// takes the lock over.
    pub(crate) async fn a_function_is_killed_at_its_deadline(&self) -> anyhow::Result<Deadline> {
        let key = "the-job";
        let killed = self.invoke(JOB, &json!({ "key": key, "steps": [600_000] })).await?;
        let killed_at = Instant::now();
        let row = self.locks.operator().peek(key).await?.context("the job acquired no lock")?;
        let token = row.fencing_token.context("the lock has no token")?;
        let lease_ends_at = row.lease_ends_at.context("the lease has no end")?;
        let after = Seconds(killed.duration);
        self.screen.said(JOB, format_args!("token {token}  killed at its deadline, after {after}, holding the lock"));

        let short = json!({ "key": key, "steps": [10], "checkpoint": true });
        let next = until_done(&self.lambda, JOB, &short).await?;
        let lease_was_over = SystemTime::now() >= lease_ends_at;
        let taken_over_after = killed_at.elapsed();
        let next_token = answer(&next)?["fencingToken"].as_u64().context("the response has no token")?;
        let (after, start) = (Seconds(taken_over_after), Start(&next));
        self.screen.said(JOB, format_args!("token {next_token}  took over {after} after the kill; {start}"));
        Ok(Deadline {
            killed_after: killed.duration,
            was_killed: killed.outcome == Outcome::TimedOut && killed.duration >= JOB_TIMEOUT,
            token,
            next_token,
            taken_over_after,
            lease_was_over,
        })
    }

    async fn invoke(&self, function: &str, payload: &Value) -> anyhow::Result<Invocation> {
        invoke(&self.lambda, function, payload).await
    }
}

fn acquire(key: &str, owner: &str) -> Value {
    json!({ "action": "acquire", "key": key, "owner": owner, "leaseSeconds": 60, "whenHeld": "report" })
}

/// The text for a cold start and how long it took, or for a warm start.
struct Start<'a>(&'a Invocation);

impl fmt::Display for Start<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let millis = |duration: Duration| duration.as_secs_f64() * 1000.0;
        match self.0.first_answer {
            Some(first) => {
                write!(f, "cold start, {:.0} ms from the start of the process to its response", millis(first))
            }
            None => write!(f, "warm, {:.1} ms", millis(self.0.duration)),
        }
    }
}
