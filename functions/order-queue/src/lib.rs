//! Orders from an SQS queue: what was not charged is reported, message by message, and comes again.
//!
//! | file | idea |
//! |---|---|
//! | `batch` | a batch within the time of one invocation: so many at once, each with a deadline of its own |
//! | `message` | what SQS delivers, and what it is answered |
//! | `handler` | each message is an order for [`charge_order`] |

mod batch;
mod handler;
mod message;
#[cfg(test)]
mod tests;

pub use batch::run;
pub use handler::handler;
