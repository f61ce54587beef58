//! The part of the demo with several locks: transfers between accounts, and calls of a gateway with a limited number of
//! connections. In both a process is killed.

use super::MAX_CLOCK_SKEW;
use super::screen::{Screen, Seconds};
use anyhow::{Context, bail, ensure};
use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::types::AttributeValue;
use lambda_lock_local::lambda::{Template, workspace};
use lambda_lock_local::limited_gateway::Treatment;
use lambda_lock_local::{Lambda, LimitedGateway, LocalDynamoDb, Outcome, client};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

pub(crate) const TRANSFER: &str = "transfer";
pub(crate) const CALL_GATEWAY: &str = "call-gateway";
/// Short, so that nobody waits for long for the leases of the killed processes.
const TIMEOUT: Duration = Duration::from_millis(1500);
const ACCOUNTS: u64 = 4;
const BALANCE: u64 = 100;
const TRANSFERS: u64 = 16;
const CONNECTIONS: u32 = 3;
const CALLS: u64 = 24;
const CALLERS: u64 = 6;
/// How long each request may take, with all of its repetitions.
const PATIENCE: Duration = Duration::from_secs(120);

/// The accounts after all transfers.
#[derive(Debug)]
pub(crate) struct Moved {
    pub(crate) transfers: u64,
    /// Whether each transfer returned the same result when it was requested again.
    pub(crate) is_replayed: bool,
    pub(crate) sum: u64,
    pub(crate) expected: u64,
    pub(crate) killed: u32,
}

/// What the gateway has measured.
#[derive(Debug)]
pub(crate) struct Called {
    pub(crate) calls: u64,
    pub(crate) most: u32,
    pub(crate) connections: u32,
    pub(crate) too_many: u64,
    pub(crate) killed: u32,
}

/// The functions, and a gateway that measures how many calls are inside.
pub(crate) struct Act<'a> {
    screen: &'a Screen,
    lambda: Lambda,
    gateway: LimitedGateway,
    dynamodb: Client,
}

impl<'a> Act<'a> {
    /// Starts this part. The template's tables must exist already.
    pub(crate) async fn begin(
        screen: &'a Screen,
        built: &BTreeMap<String, PathBuf>,
        dynamodb: &LocalDynamoDb,
    ) -> anyhow::Result<Self> {
        let gateway = LimitedGateway::start(CONNECTIONS).await?;
        gateway.treat(|_| Treatment { takes: Duration::from_millis(60), responds: true });
        let template = Template::read(&workspace().join("template.yaml"))?;
        let mut functions = template.functions(built, dynamodb.endpoint())?;
        functions.retain(|function| [TRANSFER, CALL_GATEWAY].contains(&function.name.as_str()));
        let skew = MAX_CLOCK_SKEW.as_millis().to_string();
        let connections = CONNECTIONS.to_string();
        for function in &mut functions {
            function.timeout = TIMEOUT;
            let own = [
                ("GATEWAY_URL", gateway.url()),
                ("GATEWAY_CONNECTIONS", &connections),
                ("LOCK_MAX_CLOCK_SKEW_MS", &skew),
            ];
            function.environment.extend(own.map(|(name, value)| (name.to_owned(), value.to_owned())));
        }
        screen.title(format_args!("Two accounts in one commit, and at most {CONNECTIONS} calls of a gateway at once"));
        Ok(Self { screen, lambda: Lambda::start(functions).await?, gateway, dynamodb: client(dynamodb.endpoint()) })
    }

    /// Callers move amounts between accounts, and request each transfer twice. One process is killed.
    pub(crate) async fn amounts_are_moved(&self) -> anyhow::Result<Moved> {
        for account in 0..ACCOUNTS {
            let put = self.dynamodb.put_item().table_name("AccountsTable").item("accountId", text(account));
            put.item("balance", AttributeValue::N(BALANCE.to_string())).send().await?;
        }
        let started = Instant::now();
        let (answers, killed) = tokio::try_join!(self.all(TRANSFER, TRANSFERS, transfer), self.kill(TRANSFER))?;
        let again = self.all(TRANSFER, TRANSFERS, transfer).await?;
        let is_same = |number: u64| {
            let (first, second) = (answers.get(&number), again.get(&number));
            let is_told_again = second.is_some_and(|answer| answer["replayed"] == true);
            is_told_again && first.zip(second).is_some_and(|(first, second)| first["toBalance"] == second["toBalance"])
        };
        let is_replayed = (0..TRANSFERS).all(is_same);
        let mut sum = 0;
        for account in 0..ACCOUNTS {
            let get = self.dynamodb.get_item().table_name("AccountsTable").key("accountId", text(account));
            let row = get.consistent_read(true).send().await?.item.context("an account is missing")?;
            let balance = row.get("balance").and_then(|balance| balance.as_n().ok()).context("no balance")?;
            sum += balance.parse::<u64>()?;
        }
        let took = Seconds(started.elapsed());
        self.screen
            .said(TRANSFER, format_args!("{TRANSFERS} transfers by {CALLERS} callers, each requested twice; {took}"));
        Ok(Moved { transfers: TRANSFERS, is_replayed, sum, expected: ACCOUNTS * BALANCE, killed })
    }

    /// Callers call the gateway. One process is killed.
    pub(crate) async fn a_gateway_is_called(&self) -> anyhow::Result<Called> {
        let started = Instant::now();
        let call = |number| json!({ "request": { "number": number } });
        let (_, killed) = tokio::try_join!(self.all(CALL_GATEWAY, CALLS, call), self.kill(CALL_GATEWAY))?;
        let (measured, took) = (self.gateway.measured(), Seconds(started.elapsed()));
        let most = measured.most;
        self.screen
            .said(CALL_GATEWAY, format_args!("{CALLS} calls by {CALLERS} callers, at most {most} at once; {took}"));
        let too_many = measured.too_many;
        Ok(Called { calls: measured.calls, most, connections: CONNECTIONS, too_many, killed })
    }

    /// Invokes a function for each number, and again until it returns a result. Returns the results.
    async fn all(
        &self,
        function: &'static str,
        count: u64,
        request: impl Fn(u64) -> Value,
    ) -> anyhow::Result<BTreeMap<u64, Value>> {
        let mut callers = JoinSet::new();
        for caller in 0..CALLERS {
            let numbers = (caller..count).step_by(CALLERS as usize);
            let requests: Vec<_> = numbers.map(|number| (number, request(number).to_string())).collect();
            let lambda = self.lambda.clone();
            callers.spawn(async move {
                let mut answers = Vec::new();
                for (number, request) in requests {
                    answers.push((number, until_done(&lambda, function, &request).await?));
                }
                anyhow::Ok(answers)
            });
        }
        let mut all = BTreeMap::new();
        while let Some(answers) = callers.join_next().await {
            all.extend(answers??);
        }
        Ok(all)
    }

    /// Kills a process of a function soon. Returns how many were killed.
    async fn kill(&self, function: &str) -> anyhow::Result<u32> {
        while self.lambda.environments(function).is_empty() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
        let victim = self.lambda.environments(function).into_iter().next_back().context("no process is left")?;
        Ok(u32::from(self.lambda.kill(victim).is_ok()))
    }
}

async fn until_done(lambda: &Lambda, function: &str, request: &str) -> anyhow::Result<Value> {
    let started = Instant::now();
    loop {
        let invocation = lambda.invoke(function, request).await?;
        match &invocation.outcome {
            Outcome::Answer(answer) => return Ok(serde_json::from_str(answer)?),
            // The lock is held, or the process was killed.
            Outcome::Error { error_type, .. } if error_type.starts_with("Lock") => {}
            Outcome::Exited(_) | Outcome::TimedOut | Outcome::InitFailed(_) => {}
            Outcome::Error { .. } => bail!("{function} failed: {:?}\n{}", invocation.outcome, invocation.logs),
        }
        ensure!(started.elapsed() < PATIENCE, "{function} did not succeed within {PATIENCE:?}");
    }
}

fn transfer(number: u64) -> Value {
    let (from, to) = (number % ACCOUNTS, (number + 1 + number / ACCOUNTS % (ACCOUNTS - 1)) % ACCOUNTS);
    let account = |number| format!("account-{number}");
    json!({ "transferId": format!("t-{number}"), "from": account(from), "to": account(to), "amount": 5 + number % 3 })
}

fn text(account: u64) -> AttributeValue {
    AttributeValue::S(format!("account-{account}"))
}
