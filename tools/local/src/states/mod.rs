//! Step Functions on this machine: real executions of the state machines in `deploy/statemachines/`.
//!
//! MiniStack's engine executes the definitions, with a walk of our own where it differs from Step Functions
//! (`deploy/statemachines/walk.py`). It invokes the function binaries through a router, which sees every call, can
//! lose a response, and can hold a call back. It sends no events when executions end. A test may send them.
//!
//! | file | idea |
//! |---|---|
//! | `definition` | a state machine of the repository, and the changes that a test makes to it |
//! | `engine` | the process of the engine, and its executions |
//! | `router` | between the engine and the functions: requests and responses, lost or held back |

mod definition;
mod engine;
mod router;

pub use definition::Definition;
pub use engine::{End, Engine, Execution};
pub use router::{Asked, Before, Held, Instead, Router};
