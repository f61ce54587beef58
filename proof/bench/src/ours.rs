//! The pair as users of this crate write it: with `with_lock` and a budget.

use crate::{Error, KEY, OWNER, TABLE};
use aws_sdk_dynamodb::Client;
use lambda_lock::{Budget, LockClient};
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
        let budget = Budget::lasting(Duration::from_secs(30));
        self.locks
            .with_lock(KEY, &budget, async |lock| {
                black_box(lock.fencing_token());
                Ok(())
            })
            .await
    }
}
