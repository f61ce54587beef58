//! Starts the clients. Each runs in a process of its own, behind the same line protocol.

use super::client::Client::{self, BareSdk, Go, Java, Ours, Python};
use crate::{Error, TABLE};
use lambda_lock_interop::{Driver, Language, Opened, Peer};
use lambda_lock_local::lambda::cargo_build;
use std::path::PathBuf;
use std::time::Duration;

/// The table of the Python client, which has another key schema.
pub(crate) const PYTHON_TABLE: &str = "python-locks";

/// The package, and the program, of the driver for this crate and the bare SDK.
const OWN: &str = "lambda-lock-bench-driver";

/// Starts clients.
#[derive(Clone, Debug)]
pub(crate) struct Drivers {
    own: PathBuf,
}

impl Drivers {
    /// Builds the driver of this crate and the bare SDK with cargo, separately. If it were built together with the
    /// embedded DynamoDB, both would share the features of their dependencies, which a user's build does not have.
    /// `proof/interop/build` builds the other drivers.
    pub(crate) async fn build() -> Result<Self, Error> {
        // Unoptimised, nothing is measured, and the driver may share what is built for everything else.
        let unmeasured = ["--bin", OWN];
        let measured = ["--package", OWN, "--profile", "bench"];
        let how: &[&str] = if cfg!(debug_assertions) { &unmeasured } else { &measured };
        let mut built = cargo_build(how).await?;
        Ok(Self { own: built.remove(OWN).ok_or("cargo does not say where it has put the driver")? })
    }

    /// Starts a lock client in a process of its own. It renews only on request.
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
        let program = language.program()?.ok_or("run proof/interop/build first: a lock client's driver is missing")?;
        Ok(Driver::start(&program, &[])?)
    }
}
