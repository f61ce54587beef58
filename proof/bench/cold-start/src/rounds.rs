//! Rounds of cold starts. In a round each function starts once, in a random order.
//!
//! A start is two invocations of a new process, `acquire` and `release`, with one request each. Lambda freezes a
//! process between its invocations, and so does the Runtime API here. The time to the second answer is the time to the
//! first answer plus the second invocation, without the pause in between.

use crate::build::Binary;
use anyhow::{Context, bail};
use lambda_lock::LockClient;
use lambda_lock_local::{Function, Invocation, Lambda, LocalDynamoDb, Outcome, client};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;

const TABLE: &str = "locks";
/// Starts from a new copy of a binary that do not count. They load it into memory.
const WARM_UP: u32 = 1;
/// How many starts that count use one copy of a binary.
pub(crate) const STARTS_PER_COPY: u32 = 5;

/// The figures of one cold start, in milliseconds and kilobytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Start {
    pub(crate) init: f64,
    pub(crate) first_answer: f64,
    pub(crate) second_answer: f64,
    pub(crate) max_rss_kb: f64,
    /// The CPU time of all threads.
    pub(crate) cpu: f64,
    pub(crate) page_faults: f64,
}

/// Measures this many starts of each function, in the order of the binaries.
pub(crate) async fn measure(binaries: &[Binary], starts: u32) -> anyhow::Result<Vec<Vec<Start>>> {
    let dynamodb = LocalDynamoDb::in_memory().await?;
    LockClient::builder(client(dynamodb.endpoint()), TABLE).build()?.operator().create_table().await?;
    let lambda = Lambda::start(binaries.iter().map(|binary| function(binary, dynamodb.endpoint())).collect()).await?;
    let mut measured = vec![Vec::new(); binaries.len()];
    let mut random = fastrand::Rng::with_seed(1);
    for (round, use_of_copy) in rounds(starts).enumerate() {
        if use_of_copy == 0 {
            binaries.iter().try_for_each(Binary::copy_anew)?;
        }
        // If the order only rotated, each function would always follow the same other one, and would find the
        // processor's caches in the state that the other one left.
        let mut order: Vec<usize> = (0..binaries.len()).collect();
        random.shuffle(&mut order);
        for which in order {
            let start = start(&lambda, binaries[which].name, round).await?;
            if use_of_copy >= WARM_UP {
                measured[which].push(start);
            }
        }
    }
    Ok(measured)
}

/// The rounds with this many that count. Tells of each one how many used the same copies before.
fn rounds(starts: u32) -> impl Iterator<Item = u32> {
    let all = starts + starts.div_ceil(STARTS_PER_COPY) * WARM_UP;
    (0..all).map(|round| round % (STARTS_PER_COPY + WARM_UP))
}

fn function(binary: &Binary, dynamodb: &str) -> Function {
    // Only lock-task writes metrics.
    let namespace = if binary.name.starts_with("lock-task") { "LambdaLock" } else { "" };
    let environment = [("LOCK_TABLE", TABLE), ("AWS_ENDPOINT_URL", dynamodb), ("METRICS_NAMESPACE", namespace)];
    Function {
        name: binary.name.to_owned(),
        binary: binary.path.clone(),
        environment: BTreeMap::from(environment.map(|(name, value)| (name.to_owned(), value.to_owned()))),
        timeout: Duration::from_secs(30),
        memory_mb: 1769,
        ..Function::default()
    }
}

async fn start(lambda: &Lambda, name: &str, round: usize) -> anyhow::Result<Start> {
    let key = format!("{name}-{round}");
    let acquire = json!({ "action": "acquire", "key": key, "owner": "cold-start", "leaseSeconds": 30 });
    let first = lambda.invoke(name, &acquire.to_string()).await?;
    let acquired = answer(&first).with_context(|| format!("{name} failed to acquire"))?;
    if !first.cold_start || acquired["acquired"] != true {
        bail!("{name} did not start and acquire: {acquired}");
    }
    let release = json!({ "action": "release", "lock": acquired["lock"] });
    let second = lambda.invoke(name, &release.to_string()).await?;
    let released = answer(&second).with_context(|| format!("{name} failed to release"))?;
    if second.cold_start || released["released"] != true {
        bail!("{name} did not release in the same process: {released}");
    }
    let process = lambda.process(second.environment).context("the process has ended")?;
    let (cpu, page_faults) = (cpu(process)?, page_faults(process)?);
    lambda.kill(second.environment)?;
    let first_answer = millis(first.first_answer)?;
    let resident = second.max_rss_kb.context("the system does not report the memory of a process")?;
    Ok(Start {
        init: millis(first.init)?,
        first_answer,
        second_answer: first_answer + millis(Some(second.duration))?,
        max_rss_kb: resident as f64,
        cpu,
        page_faults,
    })
}

fn answer(invocation: &Invocation) -> anyhow::Result<Value> {
    match &invocation.outcome {
        Outcome::Answer(answer) => Ok(serde_json::from_str(answer)?),
        other => bail!("{other:?}: {}", invocation.logs),
    }
}

/// Milliseconds on a CPU, with a resolution of a nanosecond. It depends less on the load of the machine than elapsed
/// time.
fn cpu(process: u32) -> anyhow::Result<f64> {
    let mut nanos = 0.0;
    for thread in std::fs::read_dir(format!("/proc/{process}/task"))? {
        let said = std::fs::read_to_string(thread?.path().join("schedstat"))?;
        nanos += said.split(' ').next().unwrap_or_default().parse::<f64>()?;
    }
    Ok(nanos / 1e6)
}

/// Page faults without a read from disk.
fn page_faults(process: u32) -> anyhow::Result<f64> {
    let said = std::fs::read_to_string(format!("/proc/{process}/stat"))?;
    let (_, fields) = said.rsplit_once(')').context("no process name")?;
    Ok(fields.split_whitespace().nth(7).context("no page faults")?.parse()?)
}

fn millis(duration: Option<Duration>) -> anyhow::Result<f64> {
    Ok(duration.context("this was not a cold start")?.as_secs_f64() * 1e3)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_copy_is_warmed_up_and_as_many_rounds_count_as_were_asked_for() {
        for starts in [2, 5, 7, 100] {
            let rounds: Vec<u32> = rounds(starts).collect();
            assert_eq!(rounds.iter().filter(|before| **before >= WARM_UP).count(), starts as usize, "{rounds:?}");
            assert_eq!(rounds.iter().filter(|before| **before == 0).count(), starts.div_ceil(STARTS_PER_COPY) as usize);
            assert_eq!(rounds[0], 0);
        }
    }
}
