//! Runs an operation: the caller's time, clocks, requests to DynamoDB and their answers, the table.

pub(crate) mod budget;
pub(crate) mod clock;
pub(crate) mod drive;
pub(crate) mod dynamodb;
pub(crate) mod error;
pub(crate) mod extra;
pub(crate) mod seen;
pub(crate) mod table;
pub(crate) mod transaction;
pub(crate) mod transport;
pub(crate) mod wall_clock;
