//! Our client, and the SDK by hand, behind the line protocol that the other clients' drivers speak
//! (`interop/README.md`): as much of it as the benchmark asks for.

use crate::by_hand::{self, ByHand};
use crate::{Error, TABLE};
use aws_sdk_dynamodb::config::timeout::TimeoutConfig;
use lambda_lock::{Budget, DEFAULT_REQUEST_TIMEOUT, Lock, LockClient};
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::io::{BufRead, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

/// Which of the two is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Client {
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
    owner: String,
    lease_millis: u64,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Contention {
    key: String,
    contenders: u32,
    rounds: u32,
    work_millis: Option<u64>,
    wait_millis: u64,
}

/// Answers requests until there are none.
pub(crate) async fn run(client: Client) -> Result<(), Error> {
    let mut driver = None;
    for line in std::io::stdin().lock().lines() {
        let request = serde_json::from_str(&line?);
        let answer = match carry_out(client, &mut driver, request).await {
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
    client: Client,
    driver: &mut Option<Driver>,
    request: Result<Request, serde_json::Error>,
) -> Result<Value, Error> {
    match (request?, driver) {
        (Request::Open(opened), driver) => {
            *driver = Some(Driver::open(client, opened)?);
            Ok(json!({}))
        }
        (_, None) => Err("the first request must be open".into()),
        (Request::Acquire { key, wait_millis }, Some(driver)) => driver.acquire(&key, wait_millis).await,
        (Request::Release { key }, Some(driver)) => driver.release(&key).await,
        (Request::Pairs { keys, count }, Some(driver)) => driver.pairs(&keys, count).await,
        (Request::Contend(contention), Some(driver)) => driver.contend(&contention).await,
    }
}

struct Driver {
    opened: Opened,
    lease: Duration,
    locks: LockClient,
    by_hand: Option<ByHand>,
    held: HashMap<String, Held>,
}

/// A lock of either client.
enum Held {
    Ours(Lock),
    ByHand(by_hand::Held),
}

impl Driver {
    fn open(client: Client, opened: Opened) -> Result<Self, Error> {
        let dynamodb = lambda_lock_local::client(&opened.endpoint);
        let by_hand = (client == Client::BareSdk).then(|| ByHand::new(with_timeout(&opened.endpoint)));
        Ok(Self {
            lease: Duration::from_millis(opened.lease_millis),
            by_hand,
            locks: LockClient::builder(dynamodb, TABLE).owner(&opened.owner).build()?,
            opened,
            held: HashMap::new(),
        })
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
        if let Some(by_hand) = &self.by_hand {
            return Ok(Held::ByHand(by_hand.acquire(key).await?));
        }
        Ok(Held::Ours(self.locks.acquire(key).within(&budget(wait)).lease(self.lease).await?))
    }

    async fn give_back(&self, held: Held) -> Result<(), Error> {
        match (held, &self.by_hand) {
            (Held::Ours(lock), _) => lock.release().await.map(drop)?,
            (Held::ByHand(held), Some(by_hand)) => by_hand.release(held).await?,
            (Held::ByHand(_), None) => return Err("that lock is of another client".into()),
        }
        Ok(())
    }

    async fn contend(&self, contention: &Contention) -> Result<Value, Error> {
        let holders = Arc::new(Holders::default());
        let mut contenders = Vec::new();
        for contender in 0..contention.contenders {
            let owner = format!("{}-{contender}", self.opened.owner);
            let opened = Opened { owner, ..self.opened.clone() };
            contenders.push(Driver::open(Client::LambdaLock, opened)?);
        }
        let began = Instant::now();
        let mut turns = JoinSet::new();
        for contender in contenders {
            let (contention, holders) = (contention.clone(), Arc::clone(&holders));
            turns.spawn(async move { contender.take_turns(&contention, &holders).await });
        }
        while let Some(turn) = turns.join_next().await {
            turn??;
        }
        let overlaps = holders.overlaps.load(Ordering::SeqCst);
        Ok(json!({ "micros": began.elapsed().as_micros() as u64, "overlaps": overlaps }))
    }

    async fn take_turns(&self, contention: &Contention, holders: &Holders) -> Result<(), Error> {
        let work = Duration::from_millis(contention.work_millis.unwrap_or_default());
        for _ in 0..contention.rounds {
            let budget = budget(Duration::from_millis(contention.wait_millis));
            let lock = self.locks.acquire(&contention.key).within(&budget).lease(self.lease).await?;
            holders.enter();
            if !work.is_zero() {
                // tokio's timers go by whole milliseconds, rounded up; the other clients' drivers sleep as long as asked.
                tokio::task::spawn_blocking(move || std::thread::sleep(work)).await?;
            }
            holders.leave();
            lock.release().await?;
        }
        Ok(())
    }
}

/// For the requests by hand: ours waits for no answer longer than this, and the timer is part of what a request costs.
fn with_timeout(endpoint: &str) -> aws_sdk_dynamodb::Client {
    let timeouts = TimeoutConfig::builder().operation_attempt_timeout(DEFAULT_REQUEST_TIMEOUT).build();
    aws_sdk_dynamodb::Client::from_conf(lambda_lock_local::config(endpoint).timeout_config(timeouts).build())
}

/// All of it for waiting; some time for answers even where nobody waits.
fn budget(wait: Duration) -> Budget {
    Budget::lasting(wait.max(Duration::from_secs(1))).reserve(Duration::ZERO)
}

/// Counts who is inside, and whether anybody was before.
#[derive(Default)]
struct Holders {
    inside: AtomicU32,
    overlaps: AtomicU32,
}

impl Holders {
    fn enter(&self) {
        if self.inside.fetch_add(1, Ordering::SeqCst) != 0 {
            self.overlaps.fetch_add(1, Ordering::SeqCst);
        }
    }

    fn leave(&self) {
        self.inside.fetch_sub(1, Ordering::SeqCst);
    }
}
