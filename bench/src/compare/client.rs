//! Who is compared, and how each is started.

use crate::{Error, TABLE};
use lambda_lock_interop::{Driver, Language, Opened, Peer};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::time::Duration;

/// Python's client has a table of its own shape.
pub(crate) const PYTHON_TABLE: &str = "python-locks";

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

    /// A lock client in a process of its own, which renews only when asked to.
    pub(crate) async fn start(self, endpoint: &str, lease: Duration) -> Result<Peer, Error> {
        let opened = Opened {
            endpoint: endpoint.to_owned(),
            table: if self == Python { PYTHON_TABLE } else { TABLE }.to_owned(),
            owner: format!("bench-{self}"),
            lease_millis: u64::try_from(lease.as_millis())?,
            renew_millis: 0,
        };
        Ok(Peer::open(self.driver()?, &opened).await?)
    }

    fn driver(self) -> Result<Driver, Error> {
        let language = match self {
            Ours => return Ok(Driver::start(&std::env::current_exe()?, &["driver", "lambda-lock"])?),
            BareSdk => return Ok(Driver::start(&std::env::current_exe()?, &["driver", "bare-sdk"])?),
            Java => Language::Java,
            Go => Language::Go,
            Python => Language::Python,
        };
        let program = language.program()?.ok_or("run interop/build first: a lock client's driver is missing")?;
        Ok(Driver::start(&program, &[])?)
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
