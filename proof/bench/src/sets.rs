//! How long sets of locks and permits wait on the embedded server: by their size, by the load on their keys, together and in
//! order.
//!
//! A proxy makes each request as slow as one within a Region. It also does what the embedded server does not: a
//! transaction has its rows for a moment, and other writes of them meanwhile meet a conflict.

use crate::Error;
use clap::Args;
use fastrand::Rng;
use lambda_lock::{Budget, ErrorKind, LockClient};
use lambda_lock_local::authorize::{AuthorizingProxy, Call, Fate, Grant, Role};
use lambda_lock_local::{LocalDynamoDb, client};
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

const LOCKS: &str = "locks";
const LEASE: Duration = Duration::from_secs(20);
/// How long a request takes.
const WAY: Duration = Duration::from_millis(4);
/// How long a transaction has its rows: from, to, in milliseconds.
const TAKEN: std::ops::Range<u64> = 5..15;
/// How long a single caller works under its lock, on average. Times are exponentially distributed.
const HOLD: Duration = Duration::from_millis(100);
/// How long a set is held.
const SET_HOLD: Duration = Duration::from_millis(20);

/// Measures waiting times of sets and permits.
#[derive(Args, Clone, Debug)]
pub(crate) struct Sets {
    /// Seconds for each line of the tables.
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u64).range(1..))]
    seconds: u64,
}

/// What happens on the way to the server, and how often.
#[derive(Default)]
struct Way {
    taken: Mutex<HashMap<String, Instant>>,
    /// Of the callers that are measured.
    requests: AtomicU64,
    /// Of all callers.
    conflicts: AtomicU64,
}

impl Way {
    fn fate(&self, call: &Call) -> Fate {
        let now = Instant::now();
        let is_write = call.needs.iter().any(|need| need.action == "dynamodb:UpdateItem");
        let keys: Vec<String> = call.needs.iter().flat_map(|need| need.keys("key")).map(str::to_owned).collect();
        if !is_write {
            return Fate::AnsweredAfter(WAY);
        }
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        if keys.iter().any(|key| taken.get(key).is_some_and(|until| *until > now)) {
            self.conflicts.fetch_add(1, Ordering::Relaxed);
            return Fate::Conflict;
        }
        if keys.len() < 2 {
            return Fate::AnsweredAfter(WAY);
        }
        let time = Duration::from_millis(fastrand::u64(TAKEN));
        taken.extend(keys.into_iter().map(|key| (key, now + time)));
        Fate::AnsweredAfter(time)
    }
}

/// A lock table, and the way to it.
struct Stage {
    _dynamodb: LocalDynamoDb,
    proxy: AuthorizingProxy,
    way: Arc<Way>,
}

impl Stage {
    async fn new() -> Result<Self, Error> {
        let dynamodb = LocalDynamoDb::in_memory().await?;
        LockClient::builder(client(dynamodb.endpoint()), LOCKS).build()?.operator().create_table().await?;
        let proxy = AuthorizingProxy::start(dynamodb.endpoint(), roles()).await?;
        let way = Arc::new(Way::default());
        let on_the_way = Arc::clone(&way);
        proxy.decide(move |call| on_the_way.fate(call));
        Ok(Self { _dynamodb: dynamodb, proxy, way })
    }

    /// A second way to the same table for the callers that are measured.
    async fn measured(&self) -> Result<AuthorizingProxy, Error> {
        let proxy = AuthorizingProxy::start(self.proxy.endpoint(), roles()).await?;
        let way = Arc::clone(&self.way);
        proxy.decide(move |_| {
            way.requests.fetch_add(1, Ordering::Relaxed);
            Fate::Answered
        });
        Ok(proxy)
    }
}

fn roles() -> BTreeMap<String, Role> {
    let resource = format!("arn:aws:dynamodb:local:123456789012:table/{LOCKS}");
    let grant = |action: &str| Grant::new(format!("dynamodb:{action}"), resource.clone());
    BTreeMap::from([("local".to_owned(), ["GetItem", "BatchGetItem", "UpdateItem"].map(grant).into())])
}

fn locks(proxy: &AuthorizingProxy) -> Result<LockClient, Error> {
    Ok(LockClient::builder(client(proxy.endpoint()), LOCKS).build()?)
}

/// What callers want.
#[derive(Clone, Copy, Debug)]
enum Wanted {
    Together(usize),
    InOrder(usize),
    Place(u32),
}

/// What a group of callers has seen.
#[derive(Debug, Default)]
struct Seen {
    /// Of each grant.
    waits: Vec<Duration>,
    refused: u64,
}

impl Seen {
    fn add(&mut self, other: Self) {
        self.waits.extend(other.waits);
        self.refused += other.refused;
    }

    /// The wait that this share of the grants did not exceed, in milliseconds.
    fn wait(&mut self, share: f64) -> String {
        self.waits.sort_unstable();
        let index = ((self.waits.len() as f64 - 1.0) * share).round().max(0.0) as usize;
        self.waits.get(index).map_or("–".to_owned(), |wait| format!("{:.0} ms", wait.as_secs_f64() * 1e3))
    }
}

fn drawn(rng: &mut Rng, mean: Duration) -> Duration {
    mean.mul_f64(-(1.0 - rng.f64()).ln())
}

/// Holds single keys until the end, and returns for how long in all.
async fn hold_single(locks: LockClient, keys: usize, end: Instant, seed: u64) -> Duration {
    let mut rng = Rng::with_seed(seed);
    let mut held = Duration::ZERO;
    while Instant::now() < end {
        let key = format!("k{}", rng.usize(..keys));
        let budget = Budget::lasting(Duration::from_secs(60)).reserve(Duration::ZERO);
        let Ok(lock) = locks.acquire(key).within(&budget).lease(LEASE).await else { continue };
        let began = Instant::now();
        sleep(drawn(&mut rng, HOLD)).await;
        let _ = lock.release().await;
        held += began.elapsed();
    }
    held
}

/// Acquires again and again until the end.
async fn ask(locks: LockClient, wanted: Wanted, keys: usize, pause: Duration, end: Instant, seed: u64) -> Seen {
    let mut rng = Rng::with_seed(seed);
    let mut seen = Seen::default();
    loop {
        sleep(drawn(&mut rng, pause)).await;
        let began = Instant::now();
        let Some(left) = end.checked_duration_since(began) else { return seen };
        let budget = Budget::lasting(left).reserve(Duration::ZERO);
        let granted = match wanted {
            Wanted::Together(k) | Wanted::InOrder(k) => {
                let mut chosen: Vec<String> = (0..keys).map(|key| format!("k{key}")).collect();
                rng.shuffle(&mut chosen);
                chosen.truncate(k);
                let acquire = locks.acquire_all(chosen).within(&budget).lease(LEASE);
                if let Wanted::Together(_) = wanted {
                    match acquire.await {
                        Ok(set) => {
                            seen.waits.push(began.elapsed());
                            sleep(SET_HOLD).await;
                            set.release().await.map(drop)
                        }
                        Err(error) => Err(error),
                    }
                } else {
                    match acquire.in_order().await {
                        Ok(chain) => {
                            seen.waits.push(began.elapsed());
                            sleep(SET_HOLD).await;
                            chain.release().await.map(drop)
                        }
                        Err(error) => Err(error),
                    }
                }
            }
            Wanted::Place(places) => match locks.semaphore("gate", places).acquire().within(&budget).lease(LEASE).await
            {
                Ok(permit) => {
                    seen.waits.push(began.elapsed());
                    sleep(drawn(&mut rng, HOLD)).await;
                    permit.release().await.map(drop)
                }
                Err(error) => Err(error),
            },
        };
        if let Err(error) = granted
            && !matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Unknown)
        {
            seen.refused += 1;
        }
    }
}

/// Runs callers of sets beside callers of single keys, and prints a line of the table.
async fn line(
    what: &str,
    wanted: Wanted,
    callers: u64,
    singles: u64,
    keys: usize,
    time: Duration,
) -> Result<(), Error> {
    let stage = Stage::new().await?;
    let end = Instant::now() + time;
    let mut beside = JoinSet::new();
    for seed in 0..singles {
        beside.spawn(hold_single(locks(&stage.proxy)?, keys, end, seed));
    }
    // Until the keys are as busy as they will be.
    sleep(HOLD * 2).await;
    let measured = stage.measured().await?;
    stage.way.conflicts.store(0, Ordering::Relaxed);
    let mut asking = JoinSet::new();
    let pause = if let Wanted::Place(_) = wanted { HOLD / 5 } else { Duration::from_millis(20) };
    for seed in 0..callers {
        asking.spawn(ask(locks(&measured)?, wanted, keys, pause, end, 1000 + seed));
    }
    let mut seen = Seen::default();
    while let Some(one) = timeout(time * 4, asking.join_next()).await? {
        seen.add(one?);
    }
    let requests = stage.way.requests.load(Ordering::Relaxed);
    let conflicts = stage.way.conflicts.load(Ordering::Relaxed);
    let busy: Duration = beside.join_all().await.into_iter().sum();
    let rho = busy.as_secs_f64() / time.as_secs_f64() / keys as f64;
    let grants = seen.waits.len();
    let per = |count: u64| if grants == 0 { "–".to_owned() } else { format!("{:.1}", count as f64 / grants as f64) };
    let load = if singles == 0 { "none".to_owned() } else { format!("{:.0} %", rho * 100.0) };
    println!(
        "| {what} | {load} | {grants} | {} | {} | {} | {} |",
        seen.wait(0.5),
        seen.wait(0.99),
        per(requests),
        per(conflicts)
    );
    Ok(())
}

/// Measures everything, and prints Markdown.
pub(crate) async fn run(sets: &Sets) -> Result<(), Error> {
    let time = Duration::from_secs(sets.seconds);
    let head = |title: &str, load: &str| {
        println!(
            "\n{title}\n\n| wanted | {load} | grants | wait, median | wait, 99 % | requests per grant | conflicts per grant |"
        );
        println!("|---|---:|---:|---:|---:|---:|---:|");
    };
    head("One caller of a set beside callers of single keys, of 20 keys:", "keys busy");
    for singles in [2, 6, 14] {
        for k in [2, 5, 10] {
            line(&format!("{k} together"), Wanted::Together(k), 1, singles, 20, time).await?;
            line(&format!("{k} in order"), Wanted::InOrder(k), 1, singles, 20, time).await?;
        }
    }
    head("Callers of 5 out of 10 keys against each other:", "single callers");
    for callers in [8, 32] {
        line(&format!("{callers} callers, together"), Wanted::Together(5), callers, 0, 10, time).await?;
        line(&format!("{callers} callers, in order"), Wanted::InOrder(5), callers, 0, 10, time).await?;
    }
    head("A semaphore, callers that hold a place for 100 ms:", "single callers");
    for (places, callers) in [(5, 3), (5, 6), (20, 12), (20, 24)] {
        line(&format!("{places} places, {callers} callers"), Wanted::Place(places), callers, 0, 1, time).await?;
    }
    Ok(())
}
