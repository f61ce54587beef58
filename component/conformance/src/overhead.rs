//! Measures a pair of acquire and release in each component and in the crate itself.

use crate::Host;
use crate::stage::{SUBJECT, Stage, TABLE};
use crate::subject::{Ask, Subject};
use anyhow::Context;
use serde_json::Value;
use std::time::{Duration, Instant};

/// The cost of a pair in one host.
#[derive(Clone, Copy, Debug)]
pub struct Cost {
    /// Elapsed time: the median of all turns.
    pub time: Duration,
    /// CPU time of the whole host process: the mean. `None` if it is not known.
    pub cpu: Option<Duration>,
}

/// What was measured.
#[derive(Clone, Debug)]
pub struct Measured {
    /// The number of turns of each host.
    pub rounds: u32,
    /// The cost of a pair in each host.
    pub costs: Vec<Cost>,
}

/// Measures hosts in turns of `pairs` pairs. It makes `rounds` rounds, or as many as fit into `at_most`, but at least
/// one. `tell` is called after each round.
///
/// # Errors
/// If a host returns an error.
pub async fn measure(
    hosts: &[(String, Host)],
    rounds: u32,
    pairs: u32,
    at_most: Duration,
    tell: impl Fn(u32),
) -> anyhow::Result<Measured> {
    let stage = Stage::set().await?;
    for (name, host) in hosts {
        let open = Ask::Open {
            table: TABLE.to_owned(),
            endpoint: stage.direct_endpoint().to_owned(),
            access_key_id: SUBJECT.to_owned(),
            owner: name.clone(),
            request_timeout: 5_000,
        };
        told(host, open).await?;
        // A warm-up turn, so that compilation, connections and caches do not count.
        took(host, name, pairs).await?;
    }
    let before: Vec<_> = hosts.iter().map(|(_, host)| host.cpu()).collect();
    let mut turns = vec![Vec::new(); hosts.len()];
    let (started, mut round) = (Instant::now(), 0);
    while round < rounds && (round == 0 || started.elapsed() < at_most) {
        for ((name, host), turns) in hosts.iter().zip(&mut turns) {
            turns.push(took(host, name, pairs).await?);
        }
        round += 1;
        tell(round);
    }
    let mut costs = Vec::new();
    for ((mut turns, (_, host)), before) in turns.into_iter().zip(hosts).zip(before) {
        turns.sort_unstable();
        let cpu = host.cpu().zip(before).map(|(after, before)| after.saturating_sub(before) / (round * pairs).max(1));
        costs.push(Cost { time: turns.get(turns.len() / 2).copied().unwrap_or_default(), cpu });
    }
    Ok(Measured { rounds: round, costs })
}

async fn took(host: &Host, name: &str, pairs: u32) -> anyhow::Result<Duration> {
    let ask = Ask::Pairs { key: format!("pairs of {name}"), count: pairs };
    let nanos = told(host, ask).await?.as_f64().context("no number of nanoseconds")?;
    Ok(Duration::from_nanos(nanos as u64))
}

async fn told(host: &Host, ask: Ask) -> anyhow::Result<Value> {
    host.ask(ask).await?.map_err(|failure| anyhow::anyhow!("{failure}"))
}
