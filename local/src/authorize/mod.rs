//! Who may do what: a proxy in front of the embedded DynamoDB that refuses what a role does not allow.
//!
//! The embedded server asks nobody for permission, so a function that lacks an action would work on
//! this machine and fail on AWS. [`AuthorizingProxy`] stands between the two. It knows the caller by
//! the access key id in the signature, which is why every function gets one of its own, looks at what
//! the request does to which table or index, and answers as AWS does when the caller's role does not
//! allow exactly that. A role may allow it for some partition keys only (`dynamodb:LeadingKeys`).
//! Signatures are not verified.

mod condition;
mod grant;
mod proxy;
mod refusal;

pub use condition::Condition;
pub use grant::{Grant, Need, Role};
pub use proxy::{AuthorizingProxy, Call, Fate};
