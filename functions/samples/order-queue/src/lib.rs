//! Charges orders from an SQS queue. Messages that failed are reported one by one, and SQS delivers them
//! again.
//!
//! | file | idea |
//! |---|---|
//! | `batch` | a batch within the time of one invocation: several orders at once, each with its own deadline |
//! | `message` | the batch that SQS delivers, and the response to it |
//! | `handler` | each message is an order for [`charge_order`] |

mod batch;
mod handler;
mod message;
#[cfg(test)]
mod tests;

pub use batch::run;
pub use handler::handler;
