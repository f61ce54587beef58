//! A holder with a lease of 3 s is killed: when does the next one of its kind get the lock, and how?

use super::client::{Client, LOCKS};
use super::drivers::Drivers;
use crate::Error;
use lambda_lock_local::CountingProxy;
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

pub(crate) const LEASE: Duration = Duration::from_secs(3);
/// Long enough after a death for the lease to have ended, and for our clients not to doubt it: the 2 s by
/// which clocks may differ, and a little.
pub(crate) const LATE: Duration = Duration::from_millis(5_100);

/// When the next one comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Arrival {
    /// When the lease has long ended: a retry, or the next message.
    Late,
    /// Right after the death: it waits.
    AtOnce,
}

/// One death.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Takeover {
    pub(crate) client: Client,
    pub(crate) arrival: Arrival,
    /// From the next one's arrival to its grant.
    pub(crate) micros: u64,
    pub(crate) requests: u64,
}

/// How many deaths [`measure`] sees.
pub(crate) const OF_A_REPEAT: usize = 2 * LOCKS.len();
/// What it takes, about.
pub(crate) const EXPECTED: Duration = Duration::from_secs(15);

/// One death of each kind. All clients at the same time: they do little but wait.
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
