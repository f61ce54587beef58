//! The lock clients of all languages next to each other, in one run on one emulator.

mod client;
mod contention;

use crate::Error;
use lambda_lock::LockClient;
use lambda_lock_local::LocalDynamoDb;

/// Settings of a run.
#[derive(clap::Args)]
pub(crate) struct Compare {
    /// How often the contention is repeated.
    #[arg(long, default_value_t = 3)]
    repeats: u32,
    /// Only these numbers of contenders.
    #[arg(long, value_delimiter = ',', default_values_t = contention::CONTENDERS)]
    contenders: Vec<u32>,
    /// Leaves the other clients out.
    #[arg(long)]
    only_ours: bool,
}

pub(crate) async fn run(compare: &Compare) -> Result<(), Error> {
    let dynamodb = LocalDynamoDb::in_memory().await?;
    create_tables(dynamodb.endpoint()).await?;
    let clients = if compare.only_ours { &client::LOCKS[..1] } else { &client::LOCKS[..] };
    contention::measure(dynamodb.endpoint(), clients, &compare.contenders, compare.repeats, |line| println!("{line}"))
        .await?;
    Ok(())
}

async fn create_tables(endpoint: &str) -> Result<(), Error> {
    let dynamodb = lambda_lock_local::client(endpoint);
    LockClient::builder(dynamodb.clone(), crate::TABLE).build()?.create_table().await?;
    LockClient::builder(dynamodb.clone(), client::PYTHON_TABLE)
        .key_attribute("lock_key")
        .sort_key_attribute("sort_key")
        .build()?
        .create_table()
        .await?;
    Ok(())
}
