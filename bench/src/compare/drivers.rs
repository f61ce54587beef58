//! How the clients are started: each in a process of its own, behind the same line protocol.

use super::client::Client::{self, BareSdk, Go, Java, Ours, Python};
use crate::{Error, TABLE};
use lambda_lock_interop::{Driver, Language, Opened, Peer};
use serde::Deserialize;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;
use tokio::process::Command;

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
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let mut command = Command::new(cargo);
        command.args(["build", "--package", OWN, "--message-format", "json-render-diagnostics"]);
        // As this program was built.
        command.args(["--profile", if cfg!(debug_assertions) { "dev" } else { "bench" }]);
        let project = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        command.current_dir(project).stdin(Stdio::null()).stderr(Stdio::inherit()).kill_on_drop(true);
        let built = command.output().await.map_err(|error| format!("cargo cannot be started: {error}"))?;
        if !built.status.success() {
            return Err(format!("{OWN} cannot be built: {}", built.status).into());
        }
        let own = built.stdout.split(|byte| *byte == b'\n').find_map(executable);
        Ok(Self { own: own.ok_or("cargo does not say where it has put the driver")? })
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

/// The path of the program that this line of cargo's is about, if it is about one.
fn executable(line: &[u8]) -> Option<PathBuf> {
    #[derive(Deserialize)]
    struct Message {
        executable: Option<PathBuf>,
    }
    serde_json::from_slice::<Message>(line).ok()?.executable
}
