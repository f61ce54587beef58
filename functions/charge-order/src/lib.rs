//! Charges an order exactly once: the work behind the functions `charge-order` and `order-queue`.
//!
//! | file | idea |
//! |---|---|
//! | `order` | what is asked for, and what is answered |
//! | `charge` | the attempt: reserve, charge, record, with the result stored in record's transaction |
//! | `orders` | the orders table: what reserve and record write, and on which condition |
//! | `gateway` | the payment gateway, asked with one idempotency key per order |
//! | `simulate` | slowness, failures and crashes on demand |
//! | `deps` | what outlives an invocation: clients and settings |
//! | `handler` | one event, one order |

mod charge;
mod deps;
mod gateway;
mod handler;
mod order;
mod orders;
mod simulate;
#[cfg(test)]
mod tests;

pub use charge::{Charged, charge, key};
pub use deps::Deps;
pub use gateway::Gateway;
pub use handler::handler;
pub use order::{Order, Receipt, Request};
pub use orders::Orders;
pub use simulate::{Simulate, Step};
