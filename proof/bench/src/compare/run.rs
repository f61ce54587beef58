//! Measures a run, part by part.

use super::drivers::{self, Drivers};
use super::machine::load;
use super::pairs::Amount;
use super::results::Results;
use super::{cold_start, contention, pairs, takeover};
use crate::Error;
use lambda_lock::LockClient;
use lambda_lock_local::LocalDynamoDb;

/// The parts of a run, and their amount.
#[derive(Debug, clap::Args)]
pub(crate) struct Settings {
    #[command(flatten)]
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

/// Measures all parts, and tells which ones are done, because a run takes half an hour.
pub(crate) async fn measure(settings: &Settings, date: String) -> Result<Results, Error> {
    let drivers = Drivers::build().await?;
    let dynamodb = LocalDynamoDb::in_memory().await?;
    let endpoint = dynamodb.endpoint();
    create_tables(endpoint).await?;
    let mut results = Results::none(date);
    results.load.push(load());

    results.wire = pairs::wire(&drivers, endpoint).await?;
    results.batches = pairs::batches(&drivers, endpoint, &settings.amount).await?;
    println!("measured: acquire and release");
    results.load.push(load());

    for repeat in 0..usize::try_from(settings.repeats)? {
        results.takeovers.extend(takeover::measure(&drivers, endpoint, repeat).await?);
        println!("measured: takeovers, {} of {}", repeat + 1, settings.repeats);
    }
    results.load.push(load());

    for scene in contention::plan(&settings.contenders, settings.repeats) {
        let repeat = results.contention.iter().filter(|before| before.scene == scene).count();
        results.contention.push(contention::measure(&drivers, endpoint, scene, repeat).await?);
        println!("measured: {scene}");
    }
    results.load.push(load());

    // Last, because their functions are built first, which can fail.
    if settings.cold_starts > 0 {
        println!("building the functions for the cold starts, which takes minutes");
        results.cold_starts = Some(cold_start::measure(settings.cold_starts).await?);
        results.load.push(load());
    }
    Ok(results)
}

async fn create_tables(endpoint: &str) -> Result<(), Error> {
    let dynamodb = lambda_lock_local::client(endpoint);
    LockClient::builder(dynamodb.clone(), crate::TABLE).build()?.operator().create_table().await?;
    let python = LockClient::builder(dynamodb, drivers::PYTHON_TABLE);
    python.key_attribute("lock_key").sort_key_attribute("sort_key").build()?.operator().create_table().await?;
    Ok(())
}
