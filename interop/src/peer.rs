//! One lock client in a driver's process.

use crate::driver::Driver;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

/// What a client is opened with.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Opened {
    /// Where DynamoDB is, such as `http://127.0.0.1:8000`.
    pub endpoint: String,
    /// The lock table.
    pub table: String,
    /// Who holds the locks.
    pub owner: String,
    /// For how long a lock is granted.
    pub lease_millis: u64,
    /// How often the client renews by itself; 0: never.
    pub renew_millis: u64,
}

/// What a client answers: a lock, or why there is none.
pub type Answer = Result<Seen, Refusal>;

/// A lock as a client sees it. Empty where the client tells nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Seen {
    /// Who holds it.
    pub owner: String,
    /// Its version; Go's client keeps it to itself.
    pub version: Option<String>,
    /// Its lease; Go's client keeps it to itself.
    pub lease_millis: Option<u64>,
    /// The payload.
    pub data: Option<String>,
    /// What else is on the row.
    pub attributes: BTreeMap<String, String>,
}

/// A client did not do what it was asked to.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Refusal {
    /// What that means.
    pub why: Why,
    /// The client's own error.
    pub error: String,
}

/// What a refusal means.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Why {
    /// Somebody else holds the lock.
    Held,
    /// The lock is no longer this client's.
    Lost,
    /// The client cannot say, or cannot go on.
    Failed,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.why, self.error)
    }
}

impl std::error::Error for Refusal {}

/// One lock client in a process of its own.
#[derive(Debug)]
pub struct Peer {
    driver: Driver,
}

impl Peer {
    /// Opens a lock client in a driver.
    ///
    /// # Errors
    /// When the driver cannot do that.
    pub async fn open(driver: Driver, opened: &Opened) -> anyhow::Result<Self> {
        let mut peer = Self { driver };
        peer.ask("open", serde_json::to_value(opened)?).await??;
        Ok(peer)
    }

    /// Tries once.
    ///
    /// # Errors
    /// When the driver is gone. What the client itself says is the answer.
    pub async fn try_acquire(&mut self, key: &str) -> anyhow::Result<Answer> {
        self.acquire(key, json!({})).await
    }

    /// Waits for the lock up to this long beyond its lease, looking every tenth of a second.
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

    /// Renews.
    ///
    /// # Errors
    /// As [`try_acquire`](Peer::try_acquire).
    pub async fn renew(&mut self, key: &str) -> anyhow::Result<Answer> {
        self.ask("renew", json!({ "key": key })).await
    }

    /// Releases, and keeps the row or deletes it.
    ///
    /// # Errors
    /// As [`try_acquire`](Peer::try_acquire).
    pub async fn release(&mut self, key: &str, delete: bool) -> anyhow::Result<Answer> {
        self.ask("release", json!({ "key": key, "delete": delete })).await
    }

    /// Looks at the row without acquiring.
    ///
    /// # Errors
    /// As [`try_acquire`](Peer::try_acquire).
    pub async fn read(&mut self, key: &str) -> anyhow::Result<Answer> {
        self.ask("read", json!({ "key": key })).await
    }

    /// Dies, holding what it holds.
    ///
    /// # Errors
    /// When the operating system does not let it.
    pub async fn die(self) -> anyhow::Result<()> {
        self.driver.kill().await
    }

    /// Asks for one of the loops that are measured; its figures are in the answer.
    ///
    /// # Errors
    /// When the driver is gone, or the loop failed.
    pub async fn measure(&mut self, what: &str, options: Value) -> anyhow::Result<Value> {
        let answer = self.send(what, options).await?;
        if answer["ok"] == false {
            return Err(serde_json::from_value::<Refusal>(answer)?.into());
        }
        Ok(answer)
    }

    /// The process that it lives in; `None` once that has ended.
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
