//! A proxy in front of the embedded DynamoDB, and in front of Step Functions' `SendTaskSuccess`, that rejects requests
//! which the caller's role does not permit.
//!
//! The embedded server does not check permissions. So a function that lacks an action would work on
//! this machine and fail on AWS. [`AuthorizingProxy`] checks each request before the server. It knows
//! the caller by the access key id in the signature, so every function has its own id. It reads which
//! table or index the request uses and how. If the caller's role does not permit exactly that, it
//! responds as AWS does. A role may permit it for some partition keys only (`dynamodb:LeadingKeys`), and for some
//! attributes only (`dynamodb:Attributes`, with `dynamodb:Select` and `dynamodb:ReturnValues`). Of a task token it reads
//! the state machine.
//! The proxy does not verify signatures.

mod callback;
mod condition;
mod grant;
mod named;
mod proxy;
pub(crate) mod refusal;

pub use callback::task_token;
pub use condition::Condition;
pub use grant::{Grant, Need, Role};
pub use proxy::{AuthorizingProxy, Call, Fate};
