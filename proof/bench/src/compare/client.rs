//! The compared clients.

use serde::{Deserialize, Serialize};
use std::fmt;

/// A client. The order is that of the tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub(crate) enum Client {
    #[serde(rename = "lambda-lock")]
    Ours,
    #[serde(rename = "bare SDK")]
    BareSdk,
    Java,
    Go,
    Python,
}

use Client::{BareSdk, Go, Java, Ours, Python};

/// All clients.
pub(crate) const ALL: [Client; 5] = [Ours, BareSdk, Java, Go, Python];
/// The clients that are locks. A few requests by hand can neither wait nor detect a dead holder.
pub(crate) const LOCKS: [Client; 4] = [Ours, Java, Go, Python];

impl Client {
    /// The name and version of the client.
    pub(crate) fn version(self) -> &'static str {
        match self {
            Ours => concat!("lambda-lock ", env!("CARGO_PKG_VERSION")),
            BareSdk => "aws-sdk-dynamodb 1.136, the same two requests by hand",
            Java => "com.amazonaws:dynamodb-lock-client 1.4.0",
            Go => "cirello.io/dynamolock/v2 v2.1.0",
            Python => "python-dynamodb-lock 0.9.1",
        }
    }
}

impl fmt::Display for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Ours => "lambda-lock",
            BareSdk => "bare SDK",
            Java => "Java",
            Go => "Go",
            Python => "Python",
        })
    }
}
