//! Step Functions on this machine: real executions of the state machines in `deploy/statemachines/`.
//!
//! moto's engine executes the definitions. It invokes the function binaries through a router, which sees
//! every call and can lose a response. The engine differs from Step Functions, and the code here corrects
//! that:
//!
//! * It does not know `$$.Execution.RedriveCount`. The definition has a number instead.
//! * It has no redrive. [`Engine::redrive`] starts an execution again at the state where it was, under the same ARN.
//! * It sends no events when executions end. A test may send them.
//! * It notices `TimeoutSeconds` late, after the state in progress.
//! * It reports a wrong status when a stop comes while a state is ending. [`Engine::end`] reports `ABORTED` then.
//! * It counts the retries of a state over all visits. `deploy/statemachines/engine.py` counts them for each visit.
//!
//! | file | idea |
//! |---|---|
//! | `definition` | a state machine of the repository, and the changes that a test makes to it |
//! | `engine` | the process of the engine, and its executions |
//! | `router` | between the engine and the functions: requests, responses, and lost responses |

mod definition;
mod engine;
mod router;

pub use definition::Definition;
pub use engine::{End, Engine, Execution};
pub use router::{Asked, Loses, Router};
