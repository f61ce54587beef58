//! How the clients are started: each in a process of its own, behind the same line protocol.

use super::client::Client::{self, BareSdk, Go, Java, Ours, Python};
use crate::{Error, TABLE};
use lambda_lock_interop::{Driver, Language, Opened, Peer};
use lambda_lock_local::lambda::cargo_build;
use std::path::PathBuf;
use std::time::Duration;

/// Python's client has a table of its own shape.
pub(crate) const PYTHON_TABLE: &str = "python-locks";

/// The package of the driver of ours and of the bare SDK, and its program.
const OWN: &str = "lambda-lock-bench-driver";

/// Starts clients.
#[derive(Clone, Debug)]
pub(crate) struct Drivers {
    own: PathBuf,
}

impl Drivers {
    /// Has cargo build the driver of ours and of the bare SDK, by itself: built together with the embedded DynamoDB it
    /// would get the features that this asks for of what both use, and neither client's callers do.
    /// `interop/build` builds the others.
    pub(crate) async fn build() -> Result<Self, Error> {
        // As this program was built.
        let profile = if cfg!(debug_assertions) { "dev" } else { "bench" };
        let mut built = cargo_build(&["--package", OWN, "--profile", profile]).await?;
        Ok(Self { own: built.remove(OWN).ok_or("cargo does not say where it has put the driver")? })
    }

    /// A lock client in a process of its own, which renews only when asked to.
    pub(crate) async fn start(&self, client: Client, endpoint: &str, lease: Duration) -> Result<Peer, Error> {
        let opened = Opened {
            endpoint: endpoint.to_owned(),
            table: if client == Python { PYTHON_TABLE } else { TABLE }.to_owned(),
            owner: format!("bench-{client}"),
            lease_millis: u64::try_from(lease.as_millis())?,
            renew_millis: 0,
        };
        Ok(Peer::open(self.driver(client)?, &opened).await?)
    }

    fn driver(&self, client: Client) -> Result<Driver, Error> {
        let language = match client {
            Ours => return Ok(Driver::start(&self.own, &["lambda-lock"])?),
            BareSdk => return Ok(Driver::start(&self.own, &["bare-sdk"])?),
            Java => Language::Java,
            Go => Language::Go,
            Python => Language::Python,
        };
        let program = language.program()?.ok_or("run interop/build first: a lock client's driver is missing")?;
        Ok(Driver::start(&program, &[])?)
    }
}
