//! A holder with a lease of 3 s is killed. Measures when the next caller with the same client gets the lock, and with
//! how many requests.

use super::client::{Client, LOCKS};
use super::drivers::Drivers;
use crate::Error;
use lambda_lock_local::CountingProxy;
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

pub(crate) const LEASE: Duration = Duration::from_secs(3);
/// The time after a death at which the lease has ended and our client does not doubt it: the clock skew of 2 s, and a
/// little more.
pub(crate) const LATE: Duration = Duration::from_millis(5_100);

/// When the next caller comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Arrival {
    /// Long after the end of the lease: a retry, or the next message.
    Late,
    /// Right after the death, and waits.
    AtOnce,
}

/// One death.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Takeover {
    pub(crate) client: Client,
    pub(crate) arrival: Arrival,
    /// The time from the arrival of the next caller to its grant.
    pub(crate) micros: u64,
    pub(crate) requests: u64,
}

/// Measures one death of each kind, with all clients at the same time, because they mostly wait.
pub(crate) async fn measure(drivers: &Drivers, endpoint: &str, repeat: usize) -> Result<Vec<Takeover>, Error> {
    let mut takeovers = Vec::new();
    for arrival in [Arrival::Late, Arrival::AtOnce] {
        let mut deaths = JoinSet::new();
        for client in LOCKS {
            let (drivers, endpoint) = (drivers.clone(), endpoint.to_owned());
            deaths.spawn(async move { die(&drivers, &endpoint, client, arrival, repeat).await });
        }
        while let Some(takeover) = deaths.join_next().await {
            takeovers.push(takeover??);
        }
    }
    Ok(takeovers)
}

async fn die(
    drivers: &Drivers,
    endpoint: &str,
    client: Client,
    arrival: Arrival,
    repeat: usize,
) -> Result<Takeover, Error> {
    let key = format!("dead-{client}-{arrival:?}-{repeat}");
    let proxy = CountingProxy::start(endpoint).await?;
    let mut next = drivers.start(client, proxy.endpoint(), LEASE).await?;
    next.measure("pairs", json!({ "keys": [format!("warm-{key}")], "count": 20 })).await?;
    let mut holder = drivers.start(client, endpoint, LEASE).await?;
    holder.measure("pairs", json!({ "keys": [format!("warm-{key}")], "count": 20 })).await?;

    holder.acquire(&key, json!({})).await??;
    holder.die().await?;
    if arrival == Arrival::Late {
        tokio::time::sleep(LATE).await;
    }
    proxy.take();
    let began = Instant::now();
    next.acquire(&key, json!({ "waitMillis": 60_000 })).await??;
    let micros = u64::try_from(began.elapsed().as_micros())?;
    Ok(Takeover { client, arrival, micros, requests: proxy.take().total() })
}
