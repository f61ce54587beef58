//! Calls of a gateway with a limited number of connections, by 16 processes that are killed, stand still, and lose
//! requests. The gateway measures how many calls are inside at once: never more than the limit, which changes from 5 to 3
//! and to 8 on the way.
//!
//! `LAMBDA_LOCK_SOAK=10000 cargo test --test gateway_calls soak -- --nocapture` makes as many calls. `GATEWAY_SEED` draws the
//! same accidents again, but which calls they hit depends on the machine.

#![cfg(unix)]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]
#![allow(clippy::disallowed_methods, reason = "the accidents run in the background")]

use fastrand::Rng;
use lambda_lock::{Budget, LockClient};
use lambda_lock_local::deployed::template;
use lambda_lock_local::limited_gateway::{Measured, Treatment};
use lambda_lock_local::misfortune::Misfortune;
use lambda_lock_local::{Expansion, LimitedGateway, Outcome, Sample, client};
use serde_json::json;
use std::fmt::Arguments;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

const PROCESSES: u64 = 16;
/// The function as it is deployed three times, each with a limit of its own.
const FLEETS: [(&str, u32); 3] = [("call-gateway-5", 5), ("call-gateway-3", 3), ("call-gateway-8", 8)];
/// Short, so that the lease ends soon: (2 s + 1 s of grace) × 1.05.
const TIMEOUT_SECONDS: u64 = 2;
const SKEW: Duration = Duration::from_millis(200);
/// How many processes are killed and stand still, and how many requests have an accident, at least.
const ACCIDENTS: [u32; 3] = [2, 5, 20];
/// How long each limit may take.
const PATIENCE: Duration = Duration::from_secs(600);

/// Only one run at a time, because the machine is small.
static ONE: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn never_more_calls_than_connections_are_inside_under_kills_standstills_and_faults() {
    run(180).await;
}

/// Runs only where `LAMBDA_LOCK_SOAK` is the number of calls.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn soak() {
    if let Some(calls) = std::env::var("LAMBDA_LOCK_SOAK").ok().and_then(|number| number.parse().ok()) {
        run(calls).await;
    }
}

/// Who calls, and how many calls have returned.
struct Callers {
    /// The fleets that are called from now on. Empty: nobody calls any more.
    fleets: Mutex<Vec<&'static str>>,
    returned: AtomicU64,
}

impl Callers {
    fn call(&self, fleets: &[usize]) {
        *self.fleets.lock().unwrap() = fleets.iter().map(|fleet| FLEETS[*fleet].0).collect();
    }

    /// Waits until so many more calls have returned, and the gateway was full once. Otherwise the limit proves nothing.
    async fn until_returned(&self, calls: u64, gateway: &LimitedGateway, limit: u32) {
        let (started, until) = (Instant::now(), self.returned.load(Ordering::Relaxed) + calls);
        while self.returned.load(Ordering::Relaxed) < until || gateway.measured().most < limit {
            assert!(started.elapsed() < PATIENCE, "{} of {until} calls", self.returned.load(Ordering::Relaxed));
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

async fn run(calls: u64) {
    let _one = ONE.lock().await;
    let Some(template) = template() else { return };
    let gateway = LimitedGateway::start(5).await.unwrap();
    let misfortune = Misfortune::from_env("GATEWAY_SEED");
    let seed = misfortune.seed();
    say(format_args!("{calls} calls, GATEWAY_SEED={seed}"));
    let (template, binaries) = fleets(&template, gateway.url());
    let binaries: Vec<_> = binaries.iter().map(PathBuf::as_path).collect();
    let sample = Arc::new(Sample::deploy(&template, &binaries).await.unwrap());
    let rng = Mutex::new(Rng::with_seed(!seed));
    gateway.treat(move |_| {
        let mut rng = rng.lock().unwrap();
        Treatment { takes: Duration::from_millis(rng.u64(20..80)), responds: rng.u8(0..100) != 0 }
    });
    misfortune.of_requests(&sample);
    let callers = Arc::new(Callers { fleets: Mutex::default(), returned: AtomicU64::new(0) });
    callers.call(&[0]);
    let mut calling = JoinSet::new();
    for caller in 0..PROCESSES {
        calling.spawn(call(Arc::clone(&sample), Arc::clone(&callers), Rng::with_seed(seed ^ caller)));
    }

    let names = FLEETS.map(|(name, _)| name);
    let measured = tokio::select! {
        measured = change_the_limit(&gateway, &sample, &callers, calls, &misfortune) => measured,
        () = misfortune.of_processes(&sample.lambda, &names, 250..700) => unreachable!(),
    };
    calling.join_all().await;

    let [kills, standstills, requests] = misfortune.counts();
    say(format_args!("  {kills} kills, {standstills} standstills, {requests} requests with an accident"));
    for ((_, limit), measured) in FLEETS.iter().zip(measured) {
        say(format_args!("  limit {limit}: {measured:?}"));
        assert_eq!(measured.too_many, 0, "limit {limit}: {measured:?}; seed {seed}");
        assert_eq!(measured.most, *limit, "limit {limit}: {measured:?}; seed {seed}");
    }
}

/// Calls until nobody calls any more. A refusal or a failure is followed by another try.
async fn call(sample: Arc<Sample>, callers: Arc<Callers>, mut rng: Rng) {
    loop {
        let Some(fleet) = rng.choice(callers.fleets.lock().unwrap().iter().copied()) else { return };
        let called = sample.lambda.invoke(fleet, &json!({ "request": {} }).to_string()).await.unwrap();
        match called.outcome {
            Outcome::Answer(_) => {
                callers.returned.fetch_add(1, Ordering::Relaxed);
            }
            Outcome::Error { error_type, message } => {
                let expected = ["LockHeld", "LockLost", "LockUnknown", "WorkFailed"];
                assert!(expected.contains(&&*error_type), "{error_type}: {message}");
                // What the gateway has refused is in its own books.
            }
            _ => {}
        }
    }
}

/// Lets a third of the calls happen under each limit, and goes on under the last one until there were enough accidents.
/// Returns what the gateway has measured under each.
async fn change_the_limit(
    gateway: &LimitedGateway,
    sample: &Sample,
    callers: &Callers,
    calls: u64,
    misfortune: &Misfortune,
) -> [Measured; 3] {
    let locks =
        LockClient::builder(client(sample.dynamodb.endpoint()), "LockTable").max_clock_skew(SKEW).build().unwrap();
    let old = locks.semaphore("gateway", 5);
    let budget = Budget::lasting(PATIENCE);
    callers.until_returned(calls / 3, gateway, 5).await;

    // First those who know the smaller number, then the places that the others must no longer get.
    callers.call(&[1]);
    old.close(4, &budget).await.unwrap();
    old.close(3, &budget).await.unwrap();
    let five = gateway.limit(3);
    callers.call(&[0, 1]);
    callers.until_returned(calls / 3, gateway, 3).await;

    // The other way round.
    let three = gateway.limit(8);
    for place in [3, 4] {
        old.reopen(place).await.unwrap();
    }
    callers.call(&[0, 2, 2]);
    callers.until_returned(calls - 2 * (calls / 3), gateway, 8).await;
    let started = Instant::now();
    while !misfortune.happened(ACCIDENTS) {
        assert!(started.elapsed() < PATIENCE, "{:?}; seed {}", misfortune.counts(), misfortune.seed());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    callers.call(&[]);
    [five, three, gateway.measured()]
}

/// The function three times, with three limits. A function has the name of its binary.
fn fleets(template: &Expansion, gateway: &str) -> (Expansion, Vec<PathBuf>) {
    let mut fleets = template.clone();
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("gateway-calls-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let mut binaries = Vec::new();
    for (name, limit) in FLEETS {
        let own = [
            ("GATEWAY_URL", gateway),
            ("GATEWAY_CONNECTIONS", &limit.to_string()),
            ("LOCK_MAX_CLOCK_SKEW_MS", &SKEW.as_millis().to_string()),
        ];
        let mut function = template.with("call-gateway", &own).functions.remove("call-gateway").unwrap();
        function.timeout_seconds = TIMEOUT_SECONDS;
        fleets.functions.insert(name.to_owned(), function);
        let binary = folder.join(name);
        let _ = std::fs::remove_file(&binary);
        std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_call-gateway"), &binary).unwrap();
        binaries.push(binary);
    }
    (fleets, binaries)
}

/// Prints at once. The test harness would hold back `eprintln!`.
fn say(what: Arguments<'_>) {
    let _ = writeln!(std::io::stderr(), "{what}");
}
