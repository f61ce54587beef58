//! The calls to a subject and its results: as types here, as lines of JSON for a host.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::fmt;
use std::pin::Pin;

/// A future that owns its data.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// What is under test.
pub trait Subject: Send + Sync {
    /// Makes a call. The fields of the result are those of the WIT package, in camel case.
    fn ask(&self, ask: Ask) -> BoxFuture<'_, anyhow::Result<Result<Value, Failure>>>;

    /// The world that it implements.
    fn world(&self) -> World;
}

/// A world of the WIT package.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum World {
    /// The whole lock. The crate itself counts as this world, too.
    Client,
    /// Only the decisions.
    Protocol,
}

/// One call. Times are in milliseconds.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "ask", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Ask {
    /// Opens a new client. The previous client is dropped with its locks.
    Open {
        /// The lock table.
        table: String,
        /// The endpoint of DynamoDB.
        endpoint: String,
        /// The access key. It identifies the requests of a caller.
        access_key_id: String,
        /// The owner of the locks.
        owner: String,
        /// How long one request may take.
        request_timeout: u64,
    },
    /// Waits for a lock, and returns a grant.
    Acquire(Acquire),
    /// Tries once, and returns `{"granted": grant}` or `{"held": held}`.
    TryAcquire(Acquire),
    /// Reclaims a saved lock as a new grant, and returns a grant.
    Reclaim {
        /// The saved lock.
        saved: Value,
        /// The lease.
        lease: u64,
    },
    /// Resumes a saved lock, and returns a grant.
    Resume {
        /// The saved lock.
        saved: Value,
    },
    /// Renews a lock.
    Renew {
        /// The lock, by the number that its grant gave it.
        lock: u64,
        /// A longer lease.
        lease: Option<u64>,
        /// A new payload.
        data: Option<Vec<u8>>,
    },
    /// Returns the remaining lease.
    Remaining {
        /// The lock.
        lock: u64,
    },
    /// Checks that the lease covers a step. Only in the world `client`.
    EnsureRemaining {
        /// The lock.
        lock: u64,
        /// The step.
        step: u64,
    },
    /// Returns a saved lock, and keeps the lock.
    ToSaved {
        /// The lock.
        lock: u64,
    },
    /// Returns the condition for a transaction, as a `ConditionCheck` in DynamoDB's JSON.
    ConditionCheck {
        /// The lock.
        lock: u64,
    },
    /// Releases a lock, and returns `"released"` or `"already-gone"`.
    Release {
        /// The lock.
        lock: u64,
    },
    /// Releases a saved lock, and returns the same as `Release`.
    ReleaseSaved {
        /// The saved lock.
        saved: Value,
        /// Whether a later grant of the same owner is released too.
        or_later_grant_of_owner: bool,
    },
    /// Releases what a workflow holds, and returns the same as `Release`.
    ReleaseWorkflow {
        /// The key.
        key: String,
        /// The workflow.
        workflow: String,
    },
    /// Returns the row of a lock, or null.
    Peek {
        /// The key.
        key: String,
    },
    /// Acquires several locks, and returns a set: `{"set", "keys", "fencingToken", "remaining"}`. This and all calls below
    /// but the last are only in the world `client`.
    AcquireAll {
        /// The keys.
        keys: Vec<String>,
        /// One after the other, instead of together.
        in_order: bool,
        /// How to acquire them.
        several: Several,
    },
    /// Resumes the saved locks of a set, and returns a set.
    ResumeAll {
        /// The saved locks.
        saved: Vec<Value>,
        /// A longer lease.
        lease: Option<u64>,
    },
    /// Renews the locks of a set.
    RenewAll {
        /// The set, by the number that its grant gave it.
        set: u64,
    },
    /// Returns the remaining lease of a set.
    RemainingOfAll {
        /// The set.
        set: u64,
    },
    /// Checks that the leases of a set cover a step.
    EnsureRemainingOfAll {
        /// The set.
        set: u64,
        /// The step.
        step: u64,
    },
    /// Returns the conditions for a transaction, each as `ConditionCheck` does.
    ConditionChecks {
        /// The set.
        set: u64,
    },
    /// Returns the saved locks of a set, and keeps it or ends it.
    SavedAll {
        /// The set.
        set: u64,
        /// Whether to keep it.
        keep: bool,
    },
    /// Releases a set, and returns the keys that were gone.
    ReleaseAll {
        /// The set.
        set: u64,
    },
    /// Releases the saved locks of a set, and returns the same as `ReleaseAll`.
    ReleaseAllSaved {
        /// The saved locks.
        saved: Vec<Value>,
    },
    /// Acquires one of the places of a semaphore, and returns `{"place", "lock": grant}`.
    AcquirePermit {
        /// The name of the semaphore.
        name: String,
        /// The number of places.
        permits: u32,
        /// How to acquire one.
        several: Several,
    },
    /// Makes pairs of acquire and release, and returns the nanoseconds of each pair.
    Pairs {
        /// The key.
        key: String,
        /// The number of pairs.
        count: u32,
    },
}

/// How to acquire. Either `remaining` or `lease` is needed.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Acquire {
    /// The key.
    pub key: String,
    /// The remaining budget. The call may wait for all of it.
    pub remaining: Option<u64>,
    /// The lease.
    pub lease: Option<u64>,
    /// The owner.
    pub owner: Option<String>,
    /// The workflow.
    pub workflow: Option<String>,
    /// The payload.
    pub data: Option<Vec<u8>>,
    /// The observation of an earlier call.
    pub observation: Option<Value>,
    /// Whether to replace a living holder of the same owner.
    pub reclaim_own: bool,
    /// Whether to wait in line.
    pub queueing: Option<Queueing>,
}

/// How an acquire behaves where others wait for the same lock, by the names of the WIT package.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Queueing {
    /// Takes a ticket when two looks in a row show the same grant.
    BehindSlowHolders,
    /// Takes a ticket at once.
    InTurn,
    /// Does not look at the line.
    OutOfTurn,
}

/// How to acquire several locks, or one of several places.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Several {
    /// The remaining budget.
    pub remaining: u64,
    /// The part of it that waiting leaves.
    pub reserve: u64,
    /// The lease.
    pub lease: Option<u64>,
    /// The owner.
    pub owner: Option<String>,
    /// The workflow.
    pub workflow: Option<String>,
    /// The `blocked` of an earlier call.
    pub seen: Vec<Blocked>,
    /// Whether to replace a living holder of the same owner.
    pub reclaim_own: bool,
}

/// A lock or a place that somebody else holds.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Blocked {
    /// The key.
    pub key: String,
    /// The holder, as for one lock.
    pub held: Value,
}

/// An error of the lock.
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
    /// For `held` of several locks, or of a place.
    #[serde(default)]
    pub blocked: Vec<Blocked>,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.kind, self.message)
    }
}
