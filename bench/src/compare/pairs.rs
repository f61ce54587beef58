//! A free lock, acquired and released: requests, bytes, latency, CPU.

use super::client::{ALL, Client};
use super::machine::cpu;
use crate::Error;
use lambda_lock_interop::Peer;
use lambda_lock_local::{CountingProxy, Counts};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;

const LEASE: Duration = Duration::from_secs(20);
/// Acquires and releases whose requests are counted; one key each, as strangers have it.
const COUNTED: u64 = 20;
/// How many locks the timed pairs go round. With one alone, our next acquire within the millisecond is refused by the
/// end that the release before it wrote, at least a millisecond after the grant, as soon as the client is 20 ms ahead
/// of its clock (`src/wall_clock.rs`). On AWS no client is so fast; here a round takes longer than those 20 ms.
pub(crate) const LOCKS: u32 = 100;

/// How many processes of each client are timed, one after the other: how the memory of one happens to lie moves its
/// figures by some 2 %, for as long as it lives.
pub(crate) const PROCESSES: u32 = 4;

/// What passed on the wire for one operation.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Operation {
    pub(crate) requests: BTreeMap<String, u64>,
    pub(crate) bytes_sent: u64,
    pub(crate) bytes_received: u64,
    /// How many operations that was.
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

/// What one client sends.
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
    pub(crate) acquire_micros: Vec<u64>,
    pub(crate) release_micros: Vec<u64>,
    pub(crate) cpu_micros: u64,
}

/// Counts what each client sends, with a proxy in between.
pub(crate) async fn wire(endpoint: &str) -> Result<Vec<Wire>, Error> {
    let mut wires = Vec::new();
    for client in ALL {
        let proxy = CountingProxy::start(endpoint).await?;
        let mut peer = client.start(proxy.endpoint(), LEASE).await?;
        // The first request of a process may look around; it is not what a lock costs.
        peer.measure("pairs", json!({ "keys": [format!("first-{client}")], "count": 1 })).await?;
        proxy.take();
        let mut wire = Wire { client, acquire: Operation::default(), release: Operation::default() };
        for number in 0..COUNTED {
            let key = format!("counted-{client}-{number}");
            // Somebody held it before: the usual case where rows are kept.
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

/// What [`batches`] takes, about.
pub(crate) fn expected(warm_up: u32, rounds: u32, pairs: u32) -> Duration {
    let pairs = f64::from(PROCESSES) * f64::from(warm_up) + f64::from(rounds) * f64::from(pairs);
    Duration::from_secs(3) + Duration::from_millis(4).mul_f64(pairs)
}

/// Times each client, without a proxy, in processes that are new from time to time.
pub(crate) async fn batches(endpoint: &str, warm_up: u32, rounds: u32, pairs: u32) -> Result<Vec<Batch>, Error> {
    let mut batches = Vec::new();
    for process in 0..PROCESSES {
        let rounds = rounds / PROCESSES + u32::from(process < rounds % PROCESSES);
        if rounds > 0 {
            batches.extend(in_turns(endpoint, warm_up, rounds, pairs).await?);
        }
    }
    Ok(batches)
}

/// One process of each client; they take turns, and the order rotates.
async fn in_turns(endpoint: &str, warm_up: u32, rounds: u32, pairs: u32) -> Result<Vec<Batch>, Error> {
    let mut peers = Vec::new();
    for client in ALL {
        let mut peer = client.start(endpoint, LEASE).await?;
        run(&mut peer, client, warm_up).await?;
        let so_far = cpu(peer.process().ok_or("the driver has ended")?)?;
        peers.push((client, peer, so_far));
    }
    let mut batches = Vec::new();
    for round in 0..usize::try_from(rounds)? {
        for turn in 0..peers.len() {
            let which = (round + turn) % peers.len();
            let (client, peer, so_far) = &mut peers[which];
            let process = peer.process().ok_or("the driver has ended")?;
            let told = run(peer, *client, pairs).await?;
            // Since the end of its last batch, and not since the beginning of this one: a batch is counted in whole
            // hundredths of a second, and what one is short of is then the next one's.
            let now = cpu(process)?;
            let cpu_micros = u64::try_from((now - std::mem::replace(so_far, now)).as_micros())?;
            batches.push(Batch {
                client: *client,
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
