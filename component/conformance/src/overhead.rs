//! What a pair of acquire and release costs in a component, next to the crate itself.

use crate::stage::{SUBJECT, Stage, TABLE};
use crate::subject::{Ask, Subject};
use anyhow::Context;
use serde_json::Value;

/// Median nanoseconds of a pair, for each of several subjects that take turns.
///
/// # Errors
/// When a subject refuses.
pub async fn measure(subjects: &[(String, Box<dyn Subject>)], rounds: u32, pairs: u32) -> anyhow::Result<Vec<f64>> {
    let stage = Stage::set().await?;
    for (name, subject) in subjects {
        let open = Ask::Open {
            table: TABLE.to_owned(),
            endpoint: stage.direct_endpoint().to_owned(),
            access_key_id: SUBJECT.to_owned(),
            owner: name.clone(),
            request_timeout: 5_000,
        };
        told(subject.as_ref(), open).await?;
        // What is compiled, connected and cached on first use is not a pair's cost.
        took(subject.as_ref(), name, pairs).await?;
    }
    let mut samples = vec![Vec::new(); subjects.len()];
    for _ in 0..rounds {
        for ((name, subject), samples) in subjects.iter().zip(&mut samples) {
            samples.push(took(subject.as_ref(), name, pairs).await?);
        }
    }
    Ok(samples.into_iter().map(median).collect())
}

async fn took(subject: &dyn Subject, name: &str, pairs: u32) -> anyhow::Result<f64> {
    let ask = Ask::Pairs { key: format!("pairs of {name}"), count: pairs };
    told(subject, ask).await?.as_f64().context("no number of nanoseconds")
}

async fn told(subject: &dyn Subject, ask: Ask) -> anyhow::Result<Value> {
    subject.ask(ask).await?.map_err(|failure| anyhow::anyhow!("{failure}"))
}

fn median(mut samples: Vec<f64>) -> f64 {
    samples.sort_by(f64::total_cmp);
    samples.get(samples.len() / 2).copied().unwrap_or_default()
}
