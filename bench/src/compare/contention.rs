//! Many contenders at one key: how long a hand-over takes, and how many requests.

use super::client::{Client, LOCKS};
use crate::Error;
use lambda_lock_local::CountingProxy;
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::time::Duration;

pub(crate) const CONTENDERS: [u32; 6] = [1, 2, 4, 8, 16, 32];
/// What each of them does while it holds the lock.
pub(crate) const WORK_MILLIS: [u64; 2] = [0, 50];
pub(crate) const ROUNDS: u32 = 10;
/// Nobody dies here, and nobody gives up.
const LEASE: Duration = Duration::from_secs(20);
const WAIT: Duration = Duration::from_secs(3600);

/// So many contenders took [`ROUNDS`] turns each.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Contended {
    pub(crate) client: Client,
    pub(crate) contenders: u32,
    pub(crate) work_millis: u64,
    pub(crate) micros: u64,
    pub(crate) requests: u64,
}

impl Contended {
    pub(crate) fn turns(&self) -> f64 {
        f64::from(self.contenders * ROUNDS)
    }

    /// Milliseconds for each turn, beside the work.
    pub(crate) fn hand_over(&self) -> f64 {
        self.micros as f64 / 1e3 / self.turns() - self.work_millis as f64
    }

    pub(crate) fn requests_per_turn(&self) -> f64 {
        self.requests as f64 / self.turns()
    }
}

/// Every number of contenders with every client, the clients one after the other.
pub(crate) async fn measure(
    endpoint: &str,
    contenders: &[u32],
    repeats: u32,
    say: impl Fn(&str),
) -> Result<Vec<Contended>, Error> {
    let mut measured = Vec::new();
    for repeat in 0..repeats {
        for &contenders in contenders {
            for work_millis in WORK_MILLIS {
                for client in LOCKS {
                    let one = contend(endpoint, client, contenders, work_millis, repeat).await?;
                    say(&format!(
                        "{client:<12} {contenders:>2} contenders, {work_millis:>2} ms of work: {:8.2} ms and {:6.2} requests a turn",
                        one.hand_over(),
                        one.requests_per_turn()
                    ));
                    measured.push(one);
                }
            }
        }
    }
    Ok(measured)
}

async fn contend(
    endpoint: &str,
    client: Client,
    contenders: u32,
    work_millis: u64,
    repeat: u32,
) -> Result<Contended, Error> {
    let proxy = CountingProxy::start(endpoint).await?;
    let mut peer = client.start(proxy.endpoint(), LEASE).await?;
    // The process is warm, and knows the way: only the contention counts.
    peer.measure("pairs", json!({ "key": format!("warm-{client}"), "count": 20 })).await?;
    proxy.take();
    let key = format!("contended-{client}-{contenders}-{work_millis}-{repeat}");
    let options = json!({
        "key": key,
        "contenders": contenders,
        "rounds": ROUNDS,
        "workMillis": work_millis,
        "waitMillis": u64::try_from(WAIT.as_millis())?,
    });
    let told = peer.measure("contend", options).await?;
    if told["overlaps"] != 0 {
        return Err(format!("{client} let two contenders in at once: {told}").into());
    }
    let micros = told["micros"].as_u64().ok_or("the driver tells no time")?;
    Ok(Contended { client, contenders, work_millis, micros, requests: proxy.take().total() })
}
