//! The pair as this crate sends it.

use crate::{Error, KEY, OWNER, TABLE};
use aws_sdk_dynamodb::Client;
use lambda_lock::{LockClient, ReleaseOutcome};
use std::hint::black_box;
use std::time::Duration;

pub(crate) struct Ours {
    locks: LockClient,
}

impl Ours {
    pub(crate) fn new(dynamodb: Client) -> Result<Self, Error> {
        Ok(Self { locks: LockClient::builder(dynamodb, TABLE).owner(OWNER).build()? })
    }

    pub(crate) async fn pair(&self) -> Result<(), Error> {
        let tried = self.locks.try_acquire(KEY).lease(Duration::from_secs(30)).await?;
        let lock = tried.granted().ok_or("the lock was not granted")?;
        black_box(lock.fencing_token());
        if lock.release().await? != ReleaseOutcome::Released {
            return Err("the lock was not released".into());
        }
        Ok(())
    }
}
