//! What is asked of whoever is under test, and what it says: as types here, as lines of JSON to a host.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::fmt;
use std::future::Future;
use std::pin::Pin;

/// A future that owns what it needs.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Who is under test.
pub trait Subject: Send + Sync {
    /// Does what is asked. The answer's fields are those of the WIT package, in camel case.
    fn ask(&self, ask: Ask) -> BoxFuture<'_, anyhow::Result<Result<Value, Failure>>>;

    /// Which world it has.
    fn world(&self) -> World;
}

/// Which of the WIT package's worlds somebody offers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum World {
    /// The whole lock: also that of the crate itself.
    Client,
    /// The decisions alone.
    Protocol,
}

/// One call. Times are in milliseconds.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "ask", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Ask {
    /// A new client; the one before is forgotten, and its locks with it.
    Open {
        /// The lock table.
        table: String,
        /// Where DynamoDB is.
        endpoint: String,
        /// As whom: requests are told apart by it.
        access_key_id: String,
        /// Who holds the locks.
        owner: String,
        /// How long one request may take.
        request_timeout: u64,
    },
    /// Waits for a lock; answers a grant.
    Acquire(Acquire),
    /// Tries once; answers `{"granted": grant}` or `{"held": held}`.
    TryAcquire(Acquire),
    /// Takes a saved lock again as a new grant; answers a grant.
    Reclaim {
        /// The saved lock.
        saved: Value,
        /// The lease.
        lease: u64,
    },
    /// Goes on with a saved lock; answers a grant.
    Resume {
        /// The saved lock.
        saved: Value,
    },
    /// Renews.
    Renew {
        /// The lock, by the number that its grant gave it.
        lock: u64,
        /// A longer lease.
        lease: Option<u64>,
        /// A new payload.
        data: Option<Vec<u8>>,
    },
    /// Answers what is left of the lease.
    Remaining {
        /// The lock.
        lock: u64,
    },
    /// Whether the lease covers a step. Only of the world `client`.
    EnsureRemaining {
        /// The lock.
        lock: u64,
        /// The step.
        step: u64,
    },
    /// Saves the lock while it goes on; answers the saved lock.
    ToSaved {
        /// The lock.
        lock: u64,
    },
    /// The condition for a transaction; answers a `ConditionCheck` in DynamoDB's JSON.
    ConditionCheck {
        /// The lock.
        lock: u64,
    },
    /// Gives a lock back; answers `"released"` or `"already-gone"`.
    Release {
        /// The lock.
        lock: u64,
        /// Whether to delete the row.
        delete_row: bool,
    },
    /// Releases a saved lock; answers as `Release`.
    ReleaseSaved {
        /// The saved lock.
        saved: Value,
        /// Whether a later grant of the same owner is given back too.
        or_later_grant_of_owner: bool,
    },
    /// Gives back what a workflow holds; answers as `Release`.
    ReleaseWorkflow {
        /// Which lock.
        key: String,
        /// Whose.
        workflow: String,
    },
    /// Reads a lock's row; answers it, or null.
    Peek {
        /// Which lock.
        key: String,
    },
    /// As many pairs of acquire and release as fit between two readings of a clock; answers the
    /// nanoseconds that each took.
    Pairs {
        /// Which lock.
        key: String,
        /// How many.
        count: u32,
    },
}

/// How to acquire. One of `remaining` and `lease` is needed.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Acquire {
    /// Which lock.
    pub key: String,
    /// What is left of the budget; all of it may be waited.
    pub remaining: Option<u64>,
    /// The lease.
    pub lease: Option<u64>,
    /// Who holds it.
    pub owner: Option<String>,
    /// The workflow that holds it.
    pub workflow: Option<String>,
    /// The payload.
    pub data: Option<Vec<u8>>,
    /// What an earlier call saw.
    pub observation: Option<Value>,
    /// Whether a living holder of the same owner is replaced.
    pub reclaim_own: bool,
}

/// A refusal of the lock's own.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Failure {
    /// As in the WIT package: `held`, `lost`, `unknown`, `unavailable`, `out-of-time`, `invalid-request`,
    /// `invalid-record`, `table`, `denied`.
    pub kind: String,
    /// One sentence.
    pub message: String,
    /// For `held`.
    #[serde(default)]
    pub held: Option<Value>,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.kind, self.message)
    }
}
