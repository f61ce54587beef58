//! The part of the demo with several locks: transfers between accounts, and calls of a gateway with a limited number of
//! connections. In both a process is killed.

use super::gateway::{Gateway, Measured};
use super::screen::{Screen, Seconds};
use super::stage::{Stage, answer, hurried, until_done};
use anyhow::Context;
use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::types::AttributeValue;
use lambda_lock_local::{Lambda, client};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

pub(crate) const TRANSFER: &str = "transfer";
/// The name under which `demo-function` is deployed to call the gateway.
const CALLER: &str = "caller";
/// Short, so that nobody waits for long for the leases of the killed processes.
const TIMEOUT: Duration = Duration::from_millis(1500);
const ACCOUNTS: u64 = 4;
const BALANCE: u64 = 100;
const TRANSFERS: u64 = 16;
const CONNECTIONS: u32 = 3;
const CALLS: u64 = 24;
const CALLERS: u64 = 6;

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
    pub(crate) measured: Measured,
    pub(crate) killed: u32,
}

/// The functions, and a gateway that measures how many calls are inside.
pub(crate) struct Act<'a> {
    screen: &'a Screen,
    lambda: Lambda,
    gateway: Gateway,
    dynamodb: Client,
}

impl<'a> Act<'a> {
    /// Starts this part.
    pub(crate) async fn begin(stage: &Stage<'a>) -> anyhow::Result<Self> {
        let gateway = Gateway::start(CONNECTIONS).await?;
        let mut functions = stage.of_template(&[TRANSFER])?;
        functions.push(stage.own(CALLER)?);
        let own = [("GATEWAY_URL", gateway.url.as_str())];
        let functions = functions.into_iter().map(|function| hurried(function, TIMEOUT, &own)).collect();
        let title = format!("Two accounts in one commit, and at most {CONNECTIONS} calls of a gateway at once");
        let dynamodb = client(stage.dynamodb.endpoint());
        Ok(Self { screen: stage.screen, lambda: stage.begin(title, functions).await?, gateway, dynamodb })
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
        let call = |_| json!({ "key": "gateway", "places": CONNECTIONS });
        let (_, killed) = tokio::try_join!(self.all(CALLER, CALLS, call), self.kill(CALLER))?;
        let (measured, took) = (self.gateway.measured(), Seconds(started.elapsed()));
        let most = measured.most;
        self.screen.said("gateway", format_args!("{CALLS} calls by {CALLERS} callers, at most {most} at once; {took}"));
        Ok(Called { measured, killed })
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
            let requests: Vec<_> = numbers.map(|number| (number, request(number))).collect();
            let lambda = self.lambda.clone();
            callers.spawn(async move {
                let mut answers = Vec::new();
                for (number, request) in requests {
                    answers.push((number, answer(&until_done(&lambda, function, &request).await?)?));
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

fn transfer(number: u64) -> Value {
    let (from, to) = (number % ACCOUNTS, (number + 1 + number / ACCOUNTS % (ACCOUNTS - 1)) % ACCOUNTS);
    let account = |number| format!("account-{number}");
    json!({ "transferId": format!("t-{number}"), "from": account(from), "to": account(to), "amount": 5 + number % 3 })
}

fn text(account: u64) -> AttributeValue {
    AttributeValue::S(format!("account-{account}"))
}
