//! Charges a thousand orders while processes are killed, hosts are frozen and connections break. Each
//! order is charged exactly once. Without fencing, some orders are recorded twice.
//!
//! Two complete records are checked afterwards: the requests to the gateway, and the stream of the orders
//! table. `ORDERS_SEED` draws the same accidents again, but which orders they hit depends on the machine.

#![cfg(unix)]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]
#![allow(clippy::disallowed_methods, reason = "the accidents run in the background")]

use fastrand::Rng;
use lambda_lock_local::authorize::Fate;
use lambda_lock_local::deployed::template;
use lambda_lock_local::gateway::{Conduct, Entry};
use lambda_lock_local::{Change, Expansion, Lambda, PaymentGateway, Queue, Sample, history};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt::Arguments;
use std::io::Write;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const ORDERS: usize = 1000;
const TABLE: &str = "OrdersTable";
/// Short, so that the lease ends soon: (2 s + 1 s of grace) × 1.05.
const TIMEOUT_SECONDS: u64 = 2;
/// Longer than a lease and the clock skew, as in the template.
const VISIBILITY_SECONDS: f64 = 4.0;
/// The accidents end when fewer orders than this are left. Then all orders must be charged.
const CALM: usize = 50;
/// How long the whole run may take.
const PATIENCE: Duration = Duration::from_secs(300);

/// Only one run at a time, because the machine is small.
static ONE: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_orders_under_kills_standstills_and_faults_are_charged_exactly_once() {
    let _one = ONE.lock().await;
    let Some(run) = Run::of(env!("CARGO_BIN_EXE_order-queue")).await else { return };
    run.assert_accidents_happened();
    assert!(run.refused > 0, "the fence refused no write; seed {}", run.seed);
    assert_eq!(run.charges().filter(|count| *count > 1).count(), 0, "charged twice; seed {}", run.seed);
    assert_eq!(run.effects.values().filter(|count| **count > 1).count(), 0, "recorded twice; seed {}", run.seed);
    assert_eq!(run.charges().count(), ORDERS, "an order was not charged; seed {}", run.seed);
    for entry in run.ledger.iter().filter(|entry| entry.executed) {
        let row = &run.rows[&entry.order_id];
        assert_eq!(row["chargeId"]["S"], entry.charge_id, "a charge without a result; seed {}", run.seed);
        assert_eq!(row["amount"]["N"], entry.amount.to_string(), "seed {}", run.seed);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_fencing_the_same_accidents_record_orders_twice() {
    let _one = ONE.lock().await;
    let Some(run) = Run::of(env!("CARGO_BIN_EXE_unfenced-order-queue")).await else { return };
    run.assert_accidents_happened();
    let twice = run.effects.values().filter(|count| **count > 1).count();
    assert!(twice > 0, "no order was recorded twice, so the test with fencing proves nothing; seed {}", run.seed);
}

/// The result of a run.
struct Run {
    seed: u64,
    ledger: Vec<Entry>,
    /// How often each order was recorded.
    effects: BTreeMap<String, u32>,
    /// The last state of each order.
    rows: BTreeMap<String, Value>,
    accidents: Arc<Accidents>,
    /// How many transactions came too late and were refused.
    refused: u64,
}

/// The parts that accidents happen to.
struct Stage<'a> {
    gateway: &'a PaymentGateway,
    sample: &'a Sample,
    queue: &'a Queue,
    name: &'a str,
    accidents: &'a Arc<Accidents>,
}

/// Counts the accidents, so that a run without accidents is noticed.
#[derive(Debug, Default)]
struct Accidents {
    kills: AtomicU32,
    standstills: AtomicU32,
    dynamodb: AtomicU32,
    gateway: AtomicU32,
}

impl Run {
    /// Returns `None` when the template cannot be expanded.
    async fn of(binary: &'static str) -> Option<Self> {
        let seed =
            std::env::var("ORDERS_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or_else(|| fastrand::u64(..));
        let name = Path::new(binary).file_name()?.to_str()?;
        say(format_args!("{name}: {ORDERS} orders, ORDERS_SEED={seed}"));
        let gateway = PaymentGateway::start().await.unwrap();
        let template = scene(&template()?, name, gateway.url());
        let sample = Sample::deploy(&template, &[Path::new(binary)]).await.unwrap();
        let role = &template.function(name).unwrap().allows;
        let queue = Queue::start(&sample.lambda, template.queue_of(name).unwrap().clone(), role, 8).unwrap();
        let accidents = Arc::new(Accidents::default());
        send(&queue, &mut Rng::with_seed(seed));
        let stage = Stage { gateway: &gateway, sample: &sample, queue: &queue, name, accidents: &accidents };
        misfortune(&stage, seed).await;

        let changes = history(sample.dynamodb.endpoint(), TABLE).await.unwrap();
        assert_eq!(queue.dead_letters(), Vec::<String>::new(), "seed {seed}");
        let refused = sample.proxy.errors().remove("TransactionCanceledException").unwrap_or_default();
        let (ledger, effects, rows) = (gateway.ledger(), effects(&changes), rows(&changes));
        let run = Self { seed, ledger, effects, rows, accidents, refused };
        run.say(&queue);
        Some(run)
    }

    /// Returns how often the gateway charged each order.
    fn charges(&self) -> impl Iterator<Item = usize> {
        let mut charges = BTreeMap::<_, usize>::new();
        for entry in self.ledger.iter().filter(|entry| entry.executed) {
            *charges.entry(&entry.order_id).or_default() += 1;
        }
        charges.into_values().collect::<Vec<_>>().into_iter()
    }

    fn assert_accidents_happened(&self) {
        let Accidents { kills, standstills, dynamodb, gateway } = &*self.accidents;
        for (count, least) in [(kills, 10), (standstills, 10), (dynamodb, 50), (gateway, 20)] {
            assert!(count.load(Ordering::Relaxed) >= least, "{:?}; seed {}", self.accidents, self.seed);
        }
        assert!(self.ledger.len() > ORDERS, "the gateway got no request twice; seed {}", self.seed);
    }

    fn say(&self, queue: &Queue) {
        let executed = self.ledger.iter().filter(|entry| entry.executed).count();
        let repeats = self.ledger.len() - executed;
        let twice = self.effects.values().filter(|count| **count > 1).count();
        say(format_args!("  {:?}; {:?}", self.accidents, queue.deliveries()));
        say(format_args!(
            "  the gateway charged {executed} orders and recognised {repeats} repeats; {} orders recorded, {twice} of them \
             more than once; {} transactions refused",
            self.effects.len(),
            self.refused
        ));
    }
}

/// The template, with times that are short enough for a test.
fn scene(template: &Expansion, name: &str, gateway: &str) -> Expansion {
    let environment = [("PAYMENT_GATEWAY_URL", gateway), ("LOCK_MAX_CLOCK_SKEW_MS", "200"), ("ALLOW_SIMULATE", "true")];
    let mut scene = template.with("order-queue", &environment).with_history(TABLE);
    let mut function = scene.functions["order-queue"].clone();
    function.timeout_seconds = TIMEOUT_SECONDS;
    scene.functions.insert(name.to_owned(), function);
    let queue = scene.queues.iter_mut().find(|queue| queue.function == "order-queue").unwrap();
    queue.function = name.to_owned();
    queue.visibility_timeout_seconds = VISIBILITY_SECONDS;
    // There are far more accidents than in production.
    queue.max_receive_count = 200;
    scene
}

/// Sends the orders. Every tenth order is sent twice, because producers also retry.
fn send(queue: &Queue, rng: &mut Rng) {
    for number in 0..ORDERS {
        let order = json!({
            "orderId": format!("o-{number}"), "amount": 100 + number, "currency": "EUR",
            "simulate": { "stepMillis": rng.u64(0..100) },
        });
        for _ in 0..if number % 10 == 0 { 2 } else { 1 } {
            queue.send(order.to_string());
        }
    }
}

/// Causes accidents until few orders are left, and waits until all are done.
async fn misfortune(stage: &Stage<'_>, seed: u64) {
    let Stage { gateway, sample, queue, name, accidents } = stage;
    let faults = (Mutex::new(Rng::with_seed(seed)), Arc::clone(accidents));
    sample.proxy.decide(move |_| fate(&mut faults.0.lock().unwrap(), &faults.1));
    let moods = (Mutex::new(Rng::with_seed(!seed)), Arc::clone(accidents));
    gateway.decide(move |_| conduct(&mut moods.0.lock().unwrap(), &moods.1));
    let (started, mut said) = (Instant::now(), Instant::now());
    let mut rng = Rng::with_seed(seed.rotate_left(32));
    while queue.len() > CALM {
        happen(&sample.lambda, name, &mut rng, accidents);
        tokio::time::sleep(Duration::from_millis(rng.u64(20..150))).await;
        if said.elapsed() > Duration::from_secs(5) {
            said = Instant::now();
            say(format_args!("  {:>3} s: {} messages left", started.elapsed().as_secs(), queue.len()));
        }
        assert!(started.elapsed() < PATIENCE, "the run took too long; seed {seed}");
    }
    sample.proxy.decide(|_| Fate::Answered);
    gateway.decide(|_| Conduct::Answers);
    tokio::time::timeout(PATIENCE, queue.until_empty()).await.unwrap();
    // Waits until late requests have arrived.
    tokio::time::sleep(LATEST).await;
    say(format_args!("  {:.1} s", started.elapsed().as_secs_f64()));
}

/// Kills a process, or freezes it for a moment or for longer than a lease.
fn happen(lambda: &Lambda, name: &str, rng: &mut Rng, accidents: &Accidents) {
    let Some(environment) = rng.choice(lambda.environments(name)) else { return };
    if rng.u8(0..3) == 0 {
        accidents.kills.fetch_add(u32::from(lambda.kill(environment).is_ok()), Ordering::Relaxed);
        return;
    }
    let pause = Duration::from_millis(if rng.bool() { rng.u64(50..500) } else { rng.u64(3_500..7_000) });
    if lambda.stand_still(environment).is_ok() {
        accidents.standstills.fetch_add(1, Ordering::Relaxed);
        let lambda = lambda.clone();
        tokio::spawn(async move {
            tokio::time::sleep(pause).await;
            // The process may have been killed meanwhile.
            let _ = lambda.thaw(environment);
        });
    }
}

/// Longer than a lease.
const LATEST: Duration = Duration::from_secs(6);

fn fate(rng: &mut Rng, accidents: &Accidents) -> Fate {
    let fate = match rng.u32(0..1000) {
        0..15 => Fate::AnswerLost,
        15..30 => Fate::RequestLost,
        30..50 => Fate::AppliedLate(Duration::from_millis(rng.u64(500..LATEST.as_millis() as u64))),
        50..75 => Fate::AnsweredAfter(Duration::from_millis(rng.u64(10..300))),
        _ => return Fate::Answered,
    };
    accidents.dynamodb.fetch_add(1, Ordering::Relaxed);
    fate
}

fn conduct(rng: &mut Rng, accidents: &Accidents) -> Conduct {
    let conduct = match rng.u32(0..1000) {
        0..20 => Conduct::AnswerLost,
        20..40 => Conduct::Refuses(503),
        40..44 => Conduct::Silent,
        44..80 => Conduct::AnswersAfter(Duration::from_millis(rng.u64(10..300))),
        _ => return Conduct::Answers,
    };
    accidents.gateway.fetch_add(1, Ordering::Relaxed);
    conduct
}

fn order_of(change: &Change) -> String {
    change.after["orderId"]["S"].as_str().unwrap().to_owned()
}

/// Counts how often each order was recorded. Each attempt that records writes its own token.
fn effects(changes: &[Change]) -> BTreeMap<String, u32> {
    let mut effects = BTreeMap::new();
    for change in changes {
        let token = &change.after["fencingToken"];
        *effects.entry(order_of(change)).or_default() +=
            u32::from(!token.is_null() && *token != change.before["fencingToken"]);
    }
    effects
}

fn rows(changes: &[Change]) -> BTreeMap<String, Value> {
    changes.iter().map(|change| (order_of(change), change.after.clone())).collect()
}

/// Prints at once. The test harness would hold back `eprintln!`.
fn say(what: Arguments<'_>) {
    let _ = writeln!(std::io::stderr(), "{what}");
}
