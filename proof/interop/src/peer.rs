//! One lock client in the process of a driver.

use crate::driver::Driver;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

/// The settings of a client.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Opened {
    /// The endpoint of DynamoDB, such as `http://127.0.0.1:8000`.
    pub endpoint: String,
    /// The lock table.
    pub table: String,
    /// The owner of the locks.
    pub owner: String,
    /// The lease.
    pub lease_millis: u64,
    /// How often the client renews in the background. 0 means never.
    pub renew_millis: u64,
}

/// The response of a client: a lock, or why there is none.
pub type Answer = Result<Seen, Refusal>;

/// A lock as a client sees it. What the client does not return is empty.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Seen {
    /// The owner that holds the lock.
    pub owner: String,
    /// The version. Go's client does not return it.
    pub version: Option<String>,
    /// The lease. Go's client does not return it.
    pub lease_millis: Option<u64>,
    /// The payload.
    pub data: Option<String>,
    /// Other attributes of the row.
    pub attributes: BTreeMap<String, String>,
}

/// A request that a client did not carry out.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Refusal {
    /// The kind of refusal.
    pub why: Why,
    /// The client's own error.
    pub error: String,
}

/// The kind of a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Why {
    /// Another caller holds the lock.
    Held,
    /// The lock is no longer this client's.
    Lost,
    /// The client does not know, or cannot continue.
    Failed,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.why, self.error)
    }
}

impl std::error::Error for Refusal {}

/// One lock client in its own process.
#[derive(Debug)]
pub struct Peer {
    driver: Driver,
}

impl Peer {
    /// Opens a lock client in a driver.
    ///
    /// # Errors
    /// Returns an error if the driver cannot do that.
    pub async fn open(driver: Driver, opened: &Opened) -> anyhow::Result<Self> {
        let mut peer = Self { driver };
        peer.ask("open", serde_json::to_value(opened)?).await??;
        Ok(peer)
    }

    /// Tries once to acquire the lock.
    ///
    /// # Errors
    /// Returns an error if the driver has ended. The client's own errors are in the response.
    pub async fn try_acquire(&mut self, key: &str) -> anyhow::Result<Answer> {
        self.acquire(key, json!({})).await
    }

    /// Waits for the lock up to this long beyond its lease, and reads it every tenth of a second.
    ///
    /// # Errors
    /// As [`try_acquire`](Peer::try_acquire).
    pub async fn wait_for(&mut self, key: &str, wait: Duration) -> anyhow::Result<Answer> {
        let wait = u64::try_from(wait.as_millis())?;
        self.acquire(key, json!({ "waitMillis": wait, "pollMillis": 100 })).await
    }

    /// Acquires with options of the protocol.
    ///
    /// # Errors
    /// As [`try_acquire`](Peer::try_acquire).
    pub async fn acquire(&mut self, key: &str, mut options: Value) -> anyhow::Result<Answer> {
        options["key"] = key.into();
        self.ask("acquire", options).await
    }

    /// Renews the lock.
    ///
    /// # Errors
    /// As [`try_acquire`](Peer::try_acquire).
    pub async fn renew(&mut self, key: &str) -> anyhow::Result<Answer> {
        self.ask("renew", json!({ "key": key })).await
    }

    /// Releases the lock, and keeps or deletes the row.
    ///
    /// # Errors
    /// As [`try_acquire`](Peer::try_acquire).
    pub async fn release(&mut self, key: &str, delete: bool) -> anyhow::Result<Answer> {
        self.ask("release", json!({ "key": key, "delete": delete })).await
    }

    /// Reads the row without acquiring the lock.
    ///
    /// # Errors
    /// As [`try_acquire`](Peer::try_acquire).
    pub async fn read(&mut self, key: &str) -> anyhow::Result<Answer> {
        self.ask("read", json!({ "key": key })).await
    }

    /// Kills the process. Its locks stay held.
    ///
    /// # Errors
    /// Returns an error if the operating system does not permit it.
    pub async fn die(self) -> anyhow::Result<()> {
        self.driver.kill().await
    }

    /// Runs one of the measured loops. The response has its figures.
    ///
    /// # Errors
    /// Returns an error if the driver has ended, or if the loop failed.
    pub async fn measure(&mut self, what: &str, options: Value) -> anyhow::Result<Value> {
        let answer = self.send(what, options).await?;
        if answer["ok"] == false {
            return Err(serde_json::from_value::<Refusal>(answer)?.into());
        }
        Ok(answer)
    }

    /// Returns the process id of the driver. `None` when it has ended.
    pub fn process(&self) -> Option<u32> {
        self.driver.id()
    }

    async fn ask(&mut self, action: &str, options: Value) -> anyhow::Result<Answer> {
        let mut answer = self.send(action, options).await?;
        if answer["ok"] == false {
            return Ok(Err(serde_json::from_value(answer)?));
        }
        match answer["lock"].take() {
            Value::Null => Ok(Ok(Seen::default())),
            lock => Ok(Ok(serde_json::from_value(lock)?)),
        }
    }

    async fn send(&mut self, action: &str, mut request: Value) -> anyhow::Result<Value> {
        request["do"] = action.into();
        self.driver.ask(&request).await
    }
}
