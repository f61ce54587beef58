//! Who is compared.

use serde::{Deserialize, Serialize};
use std::fmt;

/// A client, in the order in which they are shown.
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

/// All of them.
pub(crate) const ALL: [Client; 5] = [Ours, BareSdk, Java, Go, Python];
/// Those that are locks: a few requests by hand know no waiting and no death.
pub(crate) const LOCKS: [Client; 4] = [Ours, Java, Go, Python];

impl Client {
    /// What is compared, with its version.
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
