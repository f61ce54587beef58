//! The guard of a held lock, and what can be done with a lock: one file for each operation.

pub(crate) mod acquire;
pub(crate) mod commit;
pub(crate) mod guard;
pub(crate) mod peek;
pub(crate) mod release;
pub(crate) mod renew;
pub(crate) mod resume;
pub(crate) mod validity;
