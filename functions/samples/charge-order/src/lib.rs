//! Charges an order exactly once: the work behind the functions `charge-order` and `order-queue`.
//!
//! | file | idea |
//! |---|---|
//! | `order` | the request and the response |
//! | `charge` | one attempt: reserve, charge, record; the transaction of record also stores the result |
//! | `orders` | the orders table: the writes of reserve and record, and their conditions |
//! | `gateway` | the payment gateway: one idempotency key for each order |
//! | `simulate` | delays, failures and crashes on request |
//! | `deps` | clients and settings that all invocations share |
//! | `handler` | charges the order of one event |

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
