//! Acquire and release of a free lock: requests, bytes, latency and CPU.

use super::client::{ALL, Client};
use super::drivers::Drivers;
use super::machine::cpu;
use crate::Error;
use lambda_lock_interop::Peer;
use lambda_lock_local::{CountingProxy, Counts};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;

const LEASE: Duration = Duration::from_secs(20);
/// The number of acquires and releases whose requests are counted. Each uses a new key.
const COUNTED: u64 = 20;
/// The number of locks that the timed pairs use in turn. With only one lock, an acquire within the same millisecond is
/// refused: the release before it writes an end at least a millisecond after the grant, and a client may be at most 20
/// ms ahead of its clock (`src/engine/wall_clock.rs`). On AWS no client is so fast. With this number, one round takes
/// longer than these 20 ms.
pub(crate) const LOCKS: u32 = 100;

/// The amount of timed work.
#[derive(Debug, clap::Args)]
pub(crate) struct Amount {
    /// Processes of each client, one after the other. The memory layout of a process, and other load on the machine,
    /// change its CPU time by up to 20 %.
    #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..))]
    processes: u32,
    /// Rounds of batches in each process.
    #[arg(long, default_value_t = 6, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Pairs of acquire and release in a batch.
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..))]
    pairs: u32,
    /// Pairs that each process of the Java client runs before the measurement, for its compiler. The others run a tenth
    /// of it.
    #[arg(long, default_value_t = 5_000)]
    warm_up: u32,
}

impl Amount {
    fn warm_up(&self, client: Client) -> u32 {
        if client == Client::Java { self.warm_up } else { self.warm_up.div_ceil(10) }
    }
}

/// The traffic of one operation.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Operation {
    pub(crate) requests: BTreeMap<String, u64>,
    pub(crate) bytes_sent: u64,
    pub(crate) bytes_received: u64,
    /// The number of operations.
    pub(crate) operations: u64,
}

impl Operation {
    fn add(&mut self, counts: Counts) {
        for (operation, requests) in counts.requests {
            *self.requests.entry(operation).or_default() += requests;
        }
        self.bytes_sent += counts.bytes_sent;
        self.bytes_received += counts.bytes_received;
        self.operations += 1;
    }

    pub(crate) fn requests_each(&self) -> f64 {
        self.requests.values().sum::<u64>() as f64 / self.operations as f64
    }

    pub(crate) fn bytes_each(&self) -> f64 {
        (self.bytes_sent + self.bytes_received) as f64 / self.operations as f64
    }
}

/// The requests of one client.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Wire {
    pub(crate) client: Client,
    pub(crate) acquire: Operation,
    pub(crate) release: Operation,
}

/// One batch of one client.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Batch {
    pub(crate) client: Client,
    /// The number of the process, from 0.
    pub(crate) process: u32,
    pub(crate) acquire_micros: Vec<u64>,
    pub(crate) release_micros: Vec<u64>,
    pub(crate) cpu_micros: u64,
}

/// Counts the requests of each client with a proxy in between.
pub(crate) async fn wire(drivers: &Drivers, endpoint: &str) -> Result<Vec<Wire>, Error> {
    let mut wires = Vec::new();
    for client in ALL {
        let proxy = CountingProxy::start(endpoint).await?;
        let mut peer = drivers.start(client, proxy.endpoint(), LEASE).await?;
        // The first request of a process may include a setup, which is not part of the cost of a lock.
        peer.measure("pairs", json!({ "keys": [format!("first-{client}")], "count": 1 })).await?;
        proxy.take();
        let mut wire = Wire { client, acquire: Operation::default(), release: Operation::default() };
        for number in 0..COUNTED {
            let key = format!("counted-{client}-{number}");
            // The key has a row from an earlier holder: the usual case if rows are kept.
            peer.measure("pairs", json!({ "keys": [key], "count": 1 })).await?;
            proxy.take();
            peer.acquire(&key, json!({})).await??;
            wire.acquire.add(proxy.take());
            peer.release(&key, client == Client::Python).await??;
            wire.release.add(proxy.take());
        }
        wires.push(wire);
    }
    Ok(wires)
}

/// Times each client without a proxy, in one process after the other.
pub(crate) async fn batches(drivers: &Drivers, endpoint: &str, amount: &Amount) -> Result<Vec<Batch>, Error> {
    let mut batches = Vec::new();
    for process in 0..amount.processes {
        batches.extend(in_turns(drivers, endpoint, amount, process).await?);
    }
    Ok(batches)
}

/// Runs one process of each client, in turns. The order is random in each round. If it only rotated, each client would
/// always follow the same other one, and would find the processor's caches in the state that the other one left.
async fn in_turns(drivers: &Drivers, endpoint: &str, amount: &Amount, process: u32) -> Result<Vec<Batch>, Error> {
    let mut peers = Vec::new();
    for client in ALL {
        let mut peer = drivers.start(client, endpoint, LEASE).await?;
        run(&mut peer, client, amount.warm_up(client)).await?;
        let so_far = cpu(peer.process().ok_or("the driver has ended")?)?;
        peers.push((client, peer, so_far));
    }
    let mut random = fastrand::Rng::with_seed(u64::from(process));
    let mut batches = Vec::new();
    for _ in 0..amount.rounds {
        random.shuffle(&mut peers);
        for (client, peer, so_far) in &mut peers {
            let id = peer.process().ok_or("the driver has ended")?;
            let told = run(peer, *client, amount.pairs).await?;
            // Counted from the end of the last batch instead of from the beginning of this one, because background work
            // of a client may be caused by a batch.
            let now = cpu(id)?;
            let cpu_micros = u64::try_from((now - std::mem::replace(so_far, now)).as_micros())?;
            batches.push(Batch {
                client: *client,
                process,
                acquire_micros: serde_json::from_value(told["acquireMicros"].clone())?,
                release_micros: serde_json::from_value(told["releaseMicros"].clone())?,
                cpu_micros,
            });
        }
    }
    Ok(batches)
}

async fn run(peer: &mut Peer, client: Client, count: u32) -> Result<Value, Error> {
    let keys: Vec<_> = (0..LOCKS).map(|number| format!("pairs-{client}-{number}")).collect();
    Ok(peer.measure("pairs", json!({ "keys": keys, "count": count })).await?)
}
