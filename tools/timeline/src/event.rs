//! What happened to a lock.

use serde::{Deserialize, Serialize};

/// Something that happened to a lock. As JSON it is a line of what `lambda-lock watch --json` and `lambda-lock history --json`
/// print.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Event {
    /// When, in epoch milliseconds.
    pub at: u64,
    /// The lock's key.
    pub key: String,
    /// What happened.
    pub change: Change,
    /// Whom it happened to: the holder that got the lock, has it or had it.
    pub holder: String,
    /// The fencing token of the grant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fencing_token: Option<u64>,
    /// When the lease ends, in epoch milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease_ends_at: Option<u64>,
    /// Why, where somebody gave a reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// What happened to a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub enum Change {
    /// It was held when the record began.
    Held,
    /// Its lease had ended when the record began, and nobody had taken it over.
    Dead,
    /// A contender began to wait. A table does not show that.
    Waiting,
    /// A contender gave up.
    Refused,
    /// It was acquired. A watch that missed how its earlier holder lost it tells no more.
    Granted,
    /// A lock that was held was acquired: of a dead holder, or by its own holder again.
    TakenOver,
    /// The holder extended its lease.
    Renewed,
    /// The holder released it.
    Released,
    /// An operator broke it.
    Broken,
    /// An operator froze it: nobody but its holder is granted it.
    Frozen,
    /// An operator thawed it.
    Thawed,
    /// Idempotent work got its outcome, and is no lock any more.
    Settled,
    /// An operator allowed idempotent work again that had failed for good.
    Reset,
    /// Its row was deleted.
    Deleted,
}

impl Change {
    /// The word for it, as in JSON but with spaces.
    pub fn word(self) -> &'static str {
        match self {
            Self::Held => "held",
            Self::Dead => "dead",
            Self::Waiting => "waiting",
            Self::Refused => "refused",
            Self::Granted => "granted",
            Self::TakenOver => "taken over",
            Self::Renewed => "renewed",
            Self::Released => "released",
            Self::Broken => "broken",
            Self::Frozen => "frozen",
            Self::Thawed => "thawed",
            Self::Settled => "settled",
            Self::Reset => "reset",
            Self::Deleted => "deleted",
        }
    }
}
