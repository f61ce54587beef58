//! The guard of a held lock, and the operations on a lock. Each operation has a file of its own.

pub(crate) mod acquire;
mod at_once;
mod awaited;
pub(crate) mod break_lock;
pub(crate) mod commit;
pub(crate) mod freeze;
pub(crate) mod guard;
pub(crate) mod held;
pub(crate) mod list;
pub(crate) mod peek;
pub(crate) mod place;
pub(crate) mod release;
pub(crate) mod renew;
pub(crate) mod resume;
pub(crate) mod set;
pub(crate) mod terms;
pub(crate) mod validity;
pub(crate) mod watch;
pub(crate) mod work;
