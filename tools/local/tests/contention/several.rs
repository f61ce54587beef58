//! Callers of several locks beside callers of single ones, and a crowd for a few places.

use crate::LONGEST;
use crate::accidents::Accidents;
use crate::stage::{LOCKS, Stage};
use crate::tasks::{LATEST, LEASE, PATIENCE, SKEW, increment};
use aws_sdk_dynamodb::Client;
use fastrand::Rng;
use lambda_lock::{Budget, Error, ErrorKind, LockClient};
use lambda_lock_local::client;
use lambda_lock_testkit::{ends_within, rounds};
use std::collections::BTreeMap;
use std::ops::Range;
use std::time::{Duration, Instant};
use tokio::task::JoinSet;
use tokio::time::sleep;

/// One of this many requests has each kind of accident.
pub(crate) const RARE: usize = 40;

const KEYS: [&str; 6] = ["k0", "k1", "k2", "k3", "k4", "k5"];
/// Callers of each kind: together, in order, of one key.
const CALLERS: usize = 3;
/// How often each caller is granted its locks.
const ROUNDS: u64 = 8;

/// How many increments of each counter were applied.
type Told = BTreeMap<&'static str, u64>;

#[derive(Clone, Copy)]
enum Kind {
    Together,
    InOrder,
    Single,
}

/// Each lock guards a counter. Two holders of a lock at once would lose an increment.
pub(crate) async fn contend(accidents: &Accidents) {
    let stage = Stage::new(Some(accidents)).await;
    let mut callers = JoinSet::new();
    for kind in [Kind::Together, Kind::InOrder, Kind::Single] {
        for _ in 0..CALLERS {
            let dynamodb = client(stage.dynamodb.endpoint());
            callers.spawn(count(kind, locks(&stage), dynamodb));
        }
    }
    let mut told = Told::new();
    for (key, increments) in ends_within(LONGEST, callers.join_all()).await.into_iter().flatten() {
        *told.entry(key).or_default() += increments;
    }
    // Late requests arrive, and no lock stays held for longer than its lease.
    sleep(LATEST).await;
    for (key, increments) in told {
        assert_eq!(stage.count(key).await, increments, "{key}; {accidents}");
    }
    let direct = LockClient::builder(client(stage.dynamodb.endpoint()), LOCKS).max_clock_skew(SKEW).build().unwrap();
    let budget = Budget::lasting(LONGEST).reserve(Duration::ZERO);
    direct.acquire_all(KEYS).within(&budget).await.unwrap().release().await.unwrap();
}

fn locks(stage: &Stage) -> LockClient {
    let builder = LockClient::builder(client(stage.proxy.endpoint()), LOCKS);
    builder.max_clock_skew(SKEW).request_timeout(PATIENCE).build().unwrap()
}

async fn count(kind: Kind, locks: LockClient, dynamodb: Client) -> Told {
    let mut told = Told::new();
    let mut granted = 0;
    while granted < rounds(ROUNDS) {
        let mut keys = KEYS.to_vec();
        fastrand::shuffle(&mut keys);
        keys.truncate(if let Kind::Single = kind { 1 } else { fastrand::usize(2..=4) });
        match round(kind, &keys, &locks, &dynamodb).await {
            Ok(increments) => {
                granted += 1;
                for (key, increments) in increments {
                    *told.entry(key).or_default() += increments;
                }
            }
            // A retry is safe whatever the outcome of this call was.
            Err(error) if matches!(error.kind(), ErrorKind::Unknown | ErrorKind::Unavailable) => {}
            Err(error) => panic!("{error}"),
        }
    }
    told
}

/// Acquires these locks, increments the counter of each with the token of its lock, and releases them.
async fn round(
    kind: Kind,
    keys: &[&'static str],
    locks: &LockClient,
    dynamodb: &Client,
) -> Result<Vec<(&'static str, u64)>, Error> {
    let budget = Budget::lasting(LONGEST).reserve(Duration::from_secs(1));
    let mut told = Vec::new();
    // If a release fails, the leases free the locks.
    match kind {
        Kind::Together => {
            let set = locks.acquire_all(keys.iter().copied()).within(&budget).lease(LEASE).await?;
            let token = set.fencing_token().unwrap();
            for key in keys {
                told.push((*key, u64::from(increment(dynamodb, key, token).await)));
            }
            let _ = set.release().await;
        }
        Kind::InOrder => {
            let chain = locks.acquire_all(keys.iter().copied()).within(&budget).lease(LEASE).in_order().await?;
            for key in keys {
                let token = chain.fencing_token_of(*key).unwrap();
                told.push((*key, u64::from(increment(dynamodb, key, token).await)));
            }
            let _ = chain.release().await;
        }
        Kind::Single => {
            let lock = locks.acquire(keys[0]).within(&budget).lease(LEASE).await?;
            told.push((keys[0], u64::from(increment(dynamodb, keys[0], lock.fencing_token()).await)));
            let _ = lock.release().await;
        }
    }
    Ok(told)
}

const CROWD: usize = 8;
/// How often each caller enters for each N.
const ENTRIES: u64 = 4;
/// One entry of this many ends without a release, as a dead holder's does.
const DEAD: usize = 5;
const INSIDE: Duration = Duration::from_millis(100);
/// An entry begins its stay only with this much of its lease left, because the machine is busy.
const ENOUGH: Duration = Duration::from_millis(250);

/// A crowd for N places, with another N after the other.
pub(crate) async fn crowd(accidents: &Accidents, limits: &[u32]) {
    let stage = Stage::new(Some(accidents)).await;
    for (number, limit) in limits.iter().enumerate() {
        if number > 0 {
            // Whoever had another N ends first.
            sleep(LEASE + SKEW + LATEST).await;
        }
        let mut callers = JoinSet::new();
        for number in 0..CROWD {
            callers.spawn(enter(number, locks(&stage), *limit));
        }
        let stays: Vec<_> = ends_within(LONGEST, callers.join_all()).await.into_iter().flatten().collect();
        let (limit, most) = (*limit as usize, most_at_once(&stays));
        assert!(most <= limit, "{most} were inside, of at most {limit}; {accidents}");
        assert!(most > 1, "nobody was there at the same time; {accidents}");
    }
}

/// How many of these stays there were at the same time, at most.
fn most_at_once(stays: &[Range<Instant>]) -> usize {
    let inside = |moment: Instant| stays.iter().filter(|stay| stay.contains(&moment)).count();
    stays.iter().map(|stay| inside(stay.start)).max().unwrap_or_default()
}

/// Returns when this caller was inside. Where the machine stood still beyond the end of the lease, the caller counts as outside: it
/// could know that, and the next one may be inside.
async fn enter(number: usize, locks: LockClient, limit: u32) -> Vec<Range<Instant>> {
    let gate = locks.semaphore("gate", limit);
    let mut rng = Rng::with_seed(number as u64);
    let mut stays = Vec::new();
    while (stays.len() as u64) < rounds(ENTRIES) {
        let budget = Budget::lasting(LONGEST).reserve(Duration::from_secs(1));
        let permit = match gate.acquire().within(&budget).lease(LEASE).await {
            Ok(permit) => permit,
            Err(error) if matches!(error.kind(), ErrorKind::Unknown | ErrorKind::Unavailable) => continue,
            Err(error) => panic!("{error}"),
        };
        let begins = Instant::now();
        if permit.ensure_remaining(ENOUGH).is_ok() {
            let lease_ends = begins + permit.remaining();
            sleep(INSIDE).await;
            stays.push(begins..Instant::now().min(lease_ends));
        }
        if rng.usize(..DEAD) == 0 {
            std::mem::forget(permit);
        } else {
            let _ = permit.release().await;
        }
    }
    stays
}
