//! Step Functions on this machine: real executions of the state machines in `deploy/statemachines/`.
//!
//! moto's engine carries the definitions out and invokes the function binaries through a router, which
//! sees every call and can lose an answer. What the engine lacks is made up for here, and said:
//!
//! * It knows no `$$.Execution.RedriveCount`: the definition gets the number in its place.
//! * It has no redrive: [`Engine::redrive`] starts an execution anew, at the state where it was, under
//!   the same ARN.
//! * It sends no events when executions end: a test sends them, or does not.
//! * It notices `TimeoutSeconds` late, after the state that is under way.
//! * It stumbles over a stop that comes while a state is ending: [`Engine::end`] says `ABORTED` all the same.
//! * It counts the retries of a state through all its visits: `deploy/statemachines/engine.py` counts by visit.
//!
//! | file | idea |
//! |---|---|
//! | `definition` | a state machine as it is in the repository, and what a test changes in it |
//! | `engine` | the engine's process; executions, their ends, their histories |
//! | `router` | between the engine and the functions: what was asked, what came of it, what got lost |

mod definition;
mod engine;
mod router;

pub use definition::Definition;
pub use engine::{End, Engine, Execution};
pub use router::{Asked, Loses, Router};
