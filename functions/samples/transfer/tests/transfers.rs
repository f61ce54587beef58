//! Transfers between 20 accounts by 16 processes that are killed, stand still, and lose requests. The sum of all balances
//! is exact, no transfer is done twice, and none is done by half.
//!
//! `LAMBDA_LOCK_SOAK=10000 cargo test --test transfers soak -- --nocapture` makes as many transfers. `TRANSFERS_SEED` draws
//! the same accidents again, but which transfers they hit depends on the machine.

#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on fails")]
#![allow(clippy::disallowed_methods, reason = "the accidents run in the background")]

use aws_sdk_dynamodb::types::AttributeValue;
use fastrand::Rng;
use lambda_lock_local::deployed::{Answer, template};
use lambda_lock_local::misfortune::{LATEST, Misfortune};
use lambda_lock_local::{Change, Outcome, Sample, client, history};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt::Arguments;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

const NAME: &str = "transfer";
const PROCESSES: u64 = 16;
const ACCOUNTS: u64 = 20;
/// What each account has in the beginning. It is little, so that some transfers are refused.
const BALANCE: u64 = 200;
/// Short, so that the lease ends soon: (2 s + 1 s of grace) × 1.05.
const TIMEOUT_SECONDS: u64 = 2;
/// How many processes are killed and stand still, and how many requests have an accident, at least.
const ACCIDENTS: [u32; 3] = [5, 10, 20];
/// How long one transfer may take, with all of its repetitions.
const PATIENCE: Duration = Duration::from_secs(600);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn transfers_under_kills_standstills_and_faults_keep_the_sum_and_are_done_once() {
    run(120).await;
}

/// Runs only where `LAMBDA_LOCK_SOAK` is the number of transfers.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn soak() {
    if let Some(transfers) = std::env::var("LAMBDA_LOCK_SOAK").ok().and_then(|number| number.parse().ok()) {
        run(transfers).await;
    }
}

/// Makes so many transfers, and more until there were enough accidents.
async fn run(transfers: u64) {
    let Some(template) = template() else { return };
    let mut template = template.with(NAME, &[("LOCK_MAX_CLOCK_SKEW_MS", "200")]).with_history("AccountsTable");
    template.functions.get_mut(NAME).unwrap().timeout_seconds = TIMEOUT_SECONDS;
    let sample = Sample::deploy(&template, &[Path::new(env!("CARGO_BIN_EXE_transfer"))]).await.unwrap();
    open_accounts(&sample).await;
    let misfortune = Misfortune::from_env("TRANSFERS_SEED");
    let seed = misfortune.seed();
    say(format_args!("{transfers} transfers, TRANSFERS_SEED={seed}"));
    misfortune.of_requests(&sample);

    let sample = Arc::new(sample);
    let (started, next) = (Instant::now(), Arc::new(AtomicU64::new(0)));
    let mut callers = JoinSet::new();
    for caller in 0..PROCESSES {
        let (sample, next, misfortune) = (Arc::clone(&sample), Arc::clone(&next), misfortune.clone());
        let mut rng = Rng::with_seed(seed ^ caller);
        callers.spawn(async move {
            let mut told = Vec::new();
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= transfers && misfortune.happened(ACCIDENTS) {
                    return told;
                }
                let request = transfer(number, &mut rng);
                let answer = until_known(&sample, &request).await;
                if number.is_multiple_of(10) && answer.is_ok() {
                    let again = until_known(&sample, &request).await.unwrap();
                    assert_eq!(again["replayed"], true, "{again}");
                }
                told.push((request, answer));
            }
        });
    }
    let told = tokio::select! {
        told = callers.join_all() => told.into_iter().flatten().collect::<Vec<_>>(),
        () = misfortune.of_processes(&sample.lambda, &[NAME], 20..150) => unreachable!(),
    };
    let took = started.elapsed();
    misfortune.end(&sample);
    // Waits until late requests have arrived.
    tokio::time::sleep(LATEST).await;

    let endpoint = sample.dynamodb.endpoint();
    let (accounts, done) = (rows(endpoint, "AccountsTable").await, rows(endpoint, "TransfersTable").await);
    let changes = history(endpoint, "AccountsTable").await.unwrap();
    let [kills, standstills, requests] = misfortune.counts();
    let cancelled = sample.proxy.errors().remove("TransactionCanceledException").unwrap_or_default();
    say(format_args!(
        "  {} transfers in {:.1} s, and {} refused; {kills} kills, {standstills} standstills, {requests} requests with an \
         accident; {cancelled} transactions refused",
        done.len(),
        took.as_secs_f64(),
        told.len() - done.len()
    ));
    assert!(told.len() as u64 >= transfers, "{} of {transfers}", told.len());
    assert_the_sum_is_exact(&accounts, seed);
    assert_each_was_done_once(&accounts, &done, &changes, seed);
    assert_all_were_told(&told, &done, seed);
}

type Row = BTreeMap<String, Value>;

fn assert_the_sum_is_exact(accounts: &BTreeMap<String, Row>, seed: u64) {
    let sum: u64 = accounts.values().map(|account| number(account, "balance")).sum();
    assert_eq!((accounts.len() as u64, sum), (ACCOUNTS, ACCOUNTS * BALANCE), "seed {seed}");
}

/// Each row of a transfer has changed two accounts once, and nothing else has changed any.
fn assert_each_was_done_once(
    accounts: &BTreeMap<String, Row>,
    done: &BTreeMap<String, Row>,
    changes: &[Change],
    seed: u64,
) {
    let mut balances: BTreeMap<_, _> =
        accounts.keys().map(|account| (account.as_str(), BALANCE.cast_signed())).collect();
    for transfer in done.values() {
        let amount = number(transfer, "amount").cast_signed();
        *balances.get_mut(transfer["from"].as_str().unwrap()).unwrap() -= amount;
        *balances.get_mut(transfer["to"].as_str().unwrap()).unwrap() += amount;
    }
    for (account, balance) in balances {
        assert_eq!(number(&accounts[account], "balance").cast_signed(), balance, "{account}; seed {seed}");
    }
    assert_eq!(changes.len() as u64 - ACCOUNTS, 2 * done.len() as u64, "a balance was written twice; seed {seed}");
}

/// What was answered is what was done: a transfer that was refused did not move anything later either.
fn assert_all_were_told(told: &[(Value, Answer)], done: &BTreeMap<String, Row>, seed: u64) {
    for (request, answer) in told {
        let id = request["transferId"].as_str().unwrap();
        match (answer, done.get(id)) {
            (Ok(answer), Some(row)) => {
                for field in ["fromBalance", "toBalance", "fencingToken"] {
                    assert_eq!(answer[field], row[field], "{id}; seed {seed}");
                }
            }
            (Err(_), None) => {}
            (answer, row) => panic!("{id}: {answer:?}, and the table has {row:?}; seed {seed}"),
        }
    }
    assert!(told.iter().any(|(_, answer)| answer.is_ok()), "seed {seed}");
}

fn transfer(number: u64, rng: &mut Rng) -> Value {
    let from = rng.u64(0..ACCOUNTS);
    let to = (from + rng.u64(1..ACCOUNTS)) % ACCOUNTS;
    let name = |account| format!("account-{account}");
    json!({ "transferId": format!("t-{number}"), "from": name(from), "to": name(to), "amount": rng.u64(1..=100) })
}

/// Requests a transfer until it is known that it was done, or that the account does not have the amount.
async fn until_known(sample: &Sample, request: &Value) -> Answer {
    let started = Instant::now();
    loop {
        let invocation = sample.lambda.invoke(NAME, &request.to_string()).await.unwrap();
        let last = match invocation.outcome {
            Outcome::Answer(answer) => return Ok(serde_json::from_str(&answer).unwrap()),
            Outcome::Error { error_type, message } if message.contains("the balance of from is less") => {
                return Err((error_type, message));
            }
            Outcome::Error { error_type, message } => {
                let expected = ["LockHeld", "LockLost", "LockUnknown", "WorkFailed"];
                assert!(expected.contains(&&*error_type), "{error_type}: {message}");
                format!("{error_type}: {message}")
            }
            other => format!("{other:?}"),
        };
        assert!(started.elapsed() < PATIENCE, "{request} takes too long: {last}");
    }
}

async fn open_accounts(sample: &Sample) {
    for account in 0..ACCOUNTS {
        let put = client(sample.dynamodb.endpoint()).put_item().table_name("AccountsTable");
        let put = put.item("accountId", AttributeValue::S(format!("account-{account}")));
        put.item("balance", AttributeValue::N(BALANCE.to_string())).send().await.unwrap();
    }
}

/// Returns all rows of a table, by their keys.
async fn rows(endpoint: &str, table: &str) -> BTreeMap<String, Row> {
    let key = if table == "AccountsTable" { "accountId" } else { "transferId" };
    let mut rows = BTreeMap::new();
    let mut from = None;
    loop {
        let scan = client(endpoint).scan().table_name(table).consistent_read(true);
        let page = scan.set_exclusive_start_key(from).send().await.unwrap();
        for item in page.items.unwrap_or_default() {
            let row: Row = item.iter().map(|(name, value)| (name.clone(), plain(value))).collect();
            rows.insert(item[key].as_s().unwrap().clone(), row);
        }
        from = page.last_evaluated_key;
        if from.is_none() {
            return rows;
        }
    }
}

fn plain(value: &AttributeValue) -> Value {
    match value {
        AttributeValue::N(number) => number.parse::<u64>().unwrap().into(),
        other => other.as_s().unwrap().clone().into(),
    }
}

fn number(row: &Row, name: &str) -> u64 {
    row[name].as_u64().unwrap()
}

/// Prints at once. The test harness would hold back `eprintln!`.
fn say(what: Arguments<'_>) {
    let _ = writeln!(std::io::stderr(), "{what}");
}
