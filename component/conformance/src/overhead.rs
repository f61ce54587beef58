//! What a pair of acquire and release costs in a component, next to the crate itself.

use crate::Host;
use crate::stage::{SUBJECT, Stage, TABLE};
use crate::subject::{Ask, Subject};
use anyhow::Context;
use serde_json::Value;
use std::time::{Duration, Instant};

/// The cost of a pair in one host.
#[derive(Clone, Copy, Debug)]
pub struct Cost {
    /// On the clock: the median of all turns.
    pub time: Duration,
    /// On a processor, by the whole process of the host: the mean. `None` where nobody can tell.
    pub cpu: Option<Duration>,
}

/// What was measured.
#[derive(Clone, Debug)]
pub struct Measured {
    /// How many turns each host had.
    pub rounds: u32,
    /// What a pair costs, host by host.
    pub costs: Vec<Cost>,
}

/// Measures hosts that take turns, with so many `pairs` in each: `rounds` turns, or as many as fit into
/// `at_most`, but one. `tell` hears of each round that is over.
///
/// # Errors
/// When a host refuses.
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
        // What is compiled, connected and cached on first use is not a pair's cost.
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
