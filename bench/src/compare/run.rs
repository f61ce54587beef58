//! Measures a run part by part. Parts that an interrupted run has measured are skipped.

use super::contention::Scene;
use super::drivers::{self, Drivers};
use super::machine::load;
use super::pairs::Amount;
use super::progress::Progress;
use super::unfinished::Unfinished;
use super::{cold_start, contention, pairs, takeover};
use crate::Error;
use lambda_lock::LockClient;
use lambda_lock_local::LocalDynamoDb;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// The parts of a run, and their amount.
#[derive(Clone, Debug, clap::Args, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Settings {
    #[command(flatten)]
    #[serde(flatten)]
    amount: Amount,
    /// Repetitions of takeovers and contention. With more than 8 contenders the other clients are measured once,
    /// because they take half a minute each time.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    repeats: u32,
    /// Only these numbers of contenders. Bursts are measured with 8 and with 32 callers.
    #[arg(long, value_delimiter = ',', default_values_t = contention::CONTENDERS,
        value_parser = clap::value_parser!(u32).range(1..))]
    contenders: Vec<u32>,
    /// Cold starts of each function: at least 2, or 0 to skip them. Building the functions takes minutes.
    #[arg(long, default_value_t = 200, value_parser = cold_start::number)]
    cold_starts: u32,
}

/// Measures what the run has not measured yet, and stores each part when it is complete.
pub(crate) async fn measure(run: &mut Unfinished) -> Result<(), Error> {
    let drivers = Drivers::build().await?;
    let dynamodb = LocalDynamoDb::in_memory().await?;
    let endpoint = dynamodb.endpoint();
    create_tables(endpoint).await?;
    let scenes = contention::plan(&run.settings.contenders, run.settings.repeats);
    let mut progress = Progress::of(expected(&run.settings, &scenes));
    acquire_and_release(run, &mut progress, &drivers, endpoint).await?;
    takeovers(run, &mut progress, &drivers, endpoint).await?;
    contend(run, &mut progress, &drivers, endpoint, scenes).await?;
    // Last, because their functions are built first, which can fail.
    cold_starts(run, &mut progress).await
}

/// The approximate duration of the whole run.
fn expected(settings: &Settings, scenes: &[Scene]) -> Duration {
    settings.amount.expected()
        + takeover::EXPECTED * settings.repeats
        + scenes.iter().map(Scene::expected).sum::<Duration>()
        + cold_start::EXPECTED * settings.cold_starts
}

async fn acquire_and_release(
    run: &mut Unfinished,
    progress: &mut Progress,
    drivers: &Drivers,
    endpoint: &str,
) -> Result<(), Error> {
    let expected = run.settings.amount.expected();
    if !run.results.batches.is_empty() {
        progress.had(expected);
        return Ok(());
    }
    run.results.wire = pairs::wire(drivers, endpoint).await?;
    run.results.batches = pairs::batches(drivers, endpoint, &run.settings.amount).await?;
    run.results.load.push(load());
    run.keep()?;
    progress.did(expected, "acquire and release");
    Ok(())
}

async fn takeovers(
    run: &mut Unfinished,
    progress: &mut Progress,
    drivers: &Drivers,
    endpoint: &str,
) -> Result<(), Error> {
    let repeats = usize::try_from(run.settings.repeats)?;
    for repeat in 0..repeats {
        if run.results.takeovers.len() > repeat * takeover::OF_A_REPEAT {
            progress.had(takeover::EXPECTED);
            continue;
        }
        run.results.takeovers.extend(takeover::measure(drivers, endpoint, repeat).await?);
        run.keep()?;
        progress.did(takeover::EXPECTED, &format!("takeovers: {} of {repeats}", repeat + 1));
    }
    run.results.load.push(load());
    Ok(())
}

async fn contend(
    run: &mut Unfinished,
    progress: &mut Progress,
    drivers: &Drivers,
    endpoint: &str,
    scenes: Vec<Scene>,
) -> Result<(), Error> {
    let mut played: Vec<Scene> = Vec::new();
    for scene in scenes {
        let repeat = played.iter().filter(|before| **before == scene).count();
        played.push(scene);
        if run.results.times(scene) > repeat {
            progress.had(scene.expected());
            continue;
        }
        run.results.contention.push(contention::measure(drivers, endpoint, scene, repeat).await?);
        run.keep()?;
        progress.did(scene.expected(), &scene.to_string());
    }
    run.results.load.push(load());
    Ok(())
}

async fn cold_starts(run: &mut Unfinished, progress: &mut Progress) -> Result<(), Error> {
    let starts = run.settings.cold_starts;
    if starts == 0 || run.results.cold_starts.is_some() {
        return Ok(());
    }
    println!("building the functions for the cold starts, which takes minutes");
    run.results.cold_starts = Some(cold_start::measure(starts).await?);
    progress.did(cold_start::EXPECTED * starts, "cold starts");
    Ok(())
}

async fn create_tables(endpoint: &str) -> Result<(), Error> {
    let dynamodb = lambda_lock_local::client(endpoint);
    LockClient::builder(dynamodb.clone(), crate::TABLE).build()?.create_table().await?;
    let python = LockClient::builder(dynamodb, drivers::PYTHON_TABLE);
    python.key_attribute("lock_key").sort_key_attribute("sort_key").build()?.create_table().await?;
    Ok(())
}
