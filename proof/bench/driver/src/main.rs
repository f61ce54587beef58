//! This crate and the bare SDK behind the line protocol of the other clients' drivers (`proof/interop/README.md`), as far as
//! the benchmark needs it.

#![allow(clippy::print_stdout, reason = "the answers are the output")]
#![allow(clippy::disallowed_methods, reason = "a benchmark reads the clock itself")]

mod contention;

use crate::contention::Contention;
use aws_sdk_dynamodb::config::timeout::TimeoutConfig;
use aws_sdk_dynamodb::config::{BehaviorVersion, Builder, Config, Credentials, Region};
use clap::{Parser, ValueEnum};
use lambda_lock::{Budget, Lock, LockClient, LockClientBuilder};
use lambda_lock_bench_driver::{ByHand, Error, Held as HeldByHand};
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::io::{BufRead, Write};
use std::time::{Duration, Instant};

/// One of the compared clients. It reads JSON lines from standard input.
#[derive(Parser)]
#[command(name = "lambda-lock-bench-driver")]
struct Arguments {
    /// The client.
    client: Which,
}

#[derive(Clone, Copy, ValueEnum)]
enum Which {
    /// This crate.
    LambdaLock,
    /// The SDK, with the requests written by hand.
    BareSdk,
}

#[derive(Debug, Deserialize)]
#[serde(tag = "do", rename_all = "camelCase", rename_all_fields = "camelCase")]
enum Request {
    Open(Opened),
    Acquire { key: String, wait_millis: Option<u64> },
    Release { key: String },
    Pairs { keys: Vec<String>, count: usize },
    Contend(Contention),
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Opened {
    endpoint: String,
    table: String,
    owner: String,
    lease_millis: u64,
}

impl Opened {
    /// The transport of both clients, without TLS. It is not that of `lambda-lock-local`, which would also bring in the
    /// embedded DynamoDB.
    fn config(&self) -> Builder {
        Config::builder()
            .behavior_version(BehaviorVersion::v2026_01_12())
            .endpoint_url(&self.endpoint)
            .region(Region::from_static("local"))
            .credentials_provider(Credentials::new("local", "local", None, None, "lambda-lock-bench"))
            .http_client(aws_smithy_http_client::Builder::new().build_http())
    }

    fn locks(&self, owner: &str) -> Result<LockClient, Error> {
        let dynamodb = aws_sdk_dynamodb::Client::from_conf(self.config().build());
        Ok(LockClient::builder(dynamodb, &self.table).owner(owner).build()?)
    }
}

/// Answers requests until the input ends.
#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {
    let which = Arguments::parse().client;
    let mut driver = None;
    for line in std::io::stdin().lock().lines() {
        let request = serde_json::from_str(&line?);
        let answer = match carry_out(which, &mut driver, request).await {
            Ok(mut answer) => {
                answer["ok"] = true.into();
                answer
            }
            Err(error) => json!({ "ok": false, "why": "failed", "error": error.to_string() }),
        };
        writeln!(std::io::stdout(), "{answer}")?;
    }
    Ok(())
}

async fn carry_out(
    which: Which,
    driver: &mut Option<Driver>,
    request: Result<Request, serde_json::Error>,
) -> Result<Value, Error> {
    match (request?, driver) {
        (Request::Open(opened), driver) => {
            *driver = Some(Driver::open(which, opened)?);
            Ok(json!({}))
        }
        (_, None) => Err("the first request must be open".into()),
        (Request::Acquire { key, wait_millis }, Some(driver)) => driver.acquire(&key, wait_millis).await,
        (Request::Release { key }, Some(driver)) => driver.release(&key).await,
        (Request::Pairs { keys, count }, Some(driver)) => driver.pairs(&keys, count).await,
        (Request::Contend(contention), Some(driver)) => driver.contend(contention).await,
    }
}

struct Driver {
    opened: Opened,
    lease: Duration,
    client: Client,
    held: HashMap<String, Held>,
}

enum Client {
    Ours(LockClient),
    ByHand(ByHand),
}

/// A lock of either client.
enum Held {
    Ours(Lock),
    ByHand(HeldByHand),
}

impl Driver {
    fn open(which: Which, opened: Opened) -> Result<Self, Error> {
        let client = match which {
            Which::LambdaLock => Client::Ours(opened.locks(&opened.owner)?),
            Which::BareSdk => {
                // Our client does not wait longer than this for a response, and the timer is part of the cost of a
                // request.
                let timeouts = TimeoutConfig::builder()
                    .operation_attempt_timeout(LockClientBuilder::DEFAULT_REQUEST_TIMEOUT)
                    .build();
                let dynamodb = aws_sdk_dynamodb::Client::from_conf(opened.config().timeout_config(timeouts).build());
                Client::ByHand(ByHand::new(dynamodb, &opened.table, &opened.owner))
            }
        };
        Ok(Self { lease: Duration::from_millis(opened.lease_millis), client, opened, held: HashMap::new() })
    }

    async fn acquire(&mut self, key: &str, wait_millis: Option<u64>) -> Result<Value, Error> {
        let held = self.one(key, Duration::from_millis(wait_millis.unwrap_or_default())).await?;
        self.held.insert(key.to_owned(), held);
        Ok(json!({ "lock": { "owner": self.opened.owner } }))
    }

    async fn release(&mut self, key: &str) -> Result<Value, Error> {
        let held = self.held.remove(key).ok_or("that lock is not held")?;
        self.give_back(held).await?;
        Ok(json!({}))
    }

    async fn pairs(&self, keys: &[String], count: usize) -> Result<Value, Error> {
        let (mut acquire, mut release) = (Vec::new(), Vec::new());
        for key in keys.iter().cycle().take(count) {
            let began = Instant::now();
            let held = self.one(key, Duration::from_secs(1)).await?;
            let acquired = Instant::now();
            self.give_back(held).await?;
            acquire.push(acquired.duration_since(began).as_micros() as u64);
            release.push(acquired.elapsed().as_micros() as u64);
        }
        Ok(json!({ "acquireMicros": acquire, "releaseMicros": release }))
    }

    async fn one(&self, key: &str, wait: Duration) -> Result<Held, Error> {
        Ok(match &self.client {
            Client::Ours(locks) => Held::Ours(locks.acquire(key).within(&budget(wait)).lease(self.lease).await?),
            Client::ByHand(by_hand) => Held::ByHand(by_hand.acquire(key).await?),
        })
    }

    async fn give_back(&self, held: Held) -> Result<(), Error> {
        match (held, &self.client) {
            (Held::Ours(lock), _) => lock.release().await.map(drop)?,
            (Held::ByHand(held), Client::ByHand(by_hand)) => by_hand.release(held).await?,
            (Held::ByHand(_), Client::Ours(_)) => return Err("this lock belongs to another client".into()),
        }
        Ok(())
    }

    /// Each contender has a client of its own.
    async fn contend(&self, contention: Contention) -> Result<Value, Error> {
        if let Client::ByHand(_) = self.client {
            return Err("the bare SDK does not support contention, because it cannot wait".into());
        }
        let owners = (0..contention.contenders).map(|contender| format!("{}-{contender}", self.opened.owner));
        let contenders = owners.map(|owner| self.opened.locks(&owner)).collect::<Result<_, _>>()?;
        contention::contend(contenders, self.lease, contention).await
    }
}

/// A budget for waiting only. It leaves some time for responses even if the call does not wait.
fn budget(wait: Duration) -> Budget {
    Budget::lasting(wait.max(Duration::from_secs(1))).reserve(Duration::ZERO)
}
