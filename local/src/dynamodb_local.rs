//! AWS's own emulator, DynamoDB Local, as a second opinion on what the embedded DynamoDB answers.
//!
//! It is Java: Maven fetches it from Maven Central into `target/dynamodb-local`, once. Nothing but tests
//! needs it.

use crate::lambda::workspace;
use crate::tools::target;
use anyhow::{Context, bail, ensure};
use std::fs::{self, File};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Child;

/// Says that Java is knowingly missing: what needs it is then skipped, where it otherwise must not be.
const WITHOUT_JAVA: &str = "LAMBDA_LOCK_WITHOUT_JAVA";
/// How long Java may take to begin to serve, on a machine that is busy otherwise.
const LONGEST_START: Duration = Duration::from_secs(120);

/// DynamoDB Local behind an endpoint on this machine's loopback address, with its tables in memory.
///
/// It serves from when it is made until it is dropped, or until this process ends in whatever way.
#[derive(Debug)]
pub struct DynamoDbLocal {
    endpoint: String,
    /// The process ends with its standard input; and is killed when it does not.
    _serving: Child,
}

impl DynamoDbLocal {
    /// Fetches DynamoDB Local if that was not done before, and begins to serve an empty one on a port
    /// that the system chooses. `None`, and a line on stderr, where `java` or `mvn` is missing.
    ///
    /// # Errors
    /// When Maven cannot fetch it or Java cannot run it. With `LAMBDA_LOCK_CI` also when `java` or `mvn`
    /// is missing, unless `LAMBDA_LOCK_WITHOUT_JAVA` says that this is known.
    pub async fn start() -> anyhow::Result<Option<Self>> {
        for program in ["java", "mvn"] {
            if !is_there(program).await? {
                let known = std::env::var_os(WITHOUT_JAVA).is_some() || std::env::var_os("LAMBDA_LOCK_CI").is_none();
                ensure!(known, "{program} is missing: install it, or set {WITHOUT_JAVA}=1 to skip what needs it");
                // Not `eprintln!`, which the test harness would hold back.
                writeln!(io::stderr(), "SKIPPED: what compares with DynamoDB Local, because {program} is missing")?;
                return Ok(None);
            }
        }
        let jars = tokio::task::spawn_blocking(fetched).await??;
        let mut serving = serve(&jars)?;
        let output = serving.stdout.take().context("DynamoDB Local has no standard output")?;
        let port = tokio::time::timeout(LONGEST_START, port_in(BufReader::new(output)))
            .await
            .with_context(|| format!("DynamoDB Local was not ready within {LONGEST_START:?}"))??;
        Ok(Some(Self { endpoint: format!("http://127.0.0.1:{port}"), _serving: serving }))
    }

    /// The endpoint's URL.
    pub fn endpoint(&self) -> &str {
        &self.endpoint
    }
}

/// Whether there is a program of this name.
async fn is_there(program: &str) -> anyhow::Result<bool> {
    let mut command = tokio::process::Command::new(program);
    let asked = command.arg("--version").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
    match asked.await {
        Ok(status) => Ok(status.success()),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error).with_context(|| format!("{program} could not be started")),
    }
}

fn sources() -> PathBuf {
    workspace().join("local/dynamodb-local")
}

/// Where its jars are, fetched once for each version of the POM. Test binaries that run at the same time
/// wait for each other.
fn fetched() -> anyhow::Result<PathBuf> {
    let place = target(workspace()).join("dynamodb-local");
    fs::create_dir_all(&place)?;
    let lock = File::create(place.join("lock"))?;
    lock.lock().context("the jars of DynamoDB Local are locked by somebody else")?;
    let (pom, jars, installed) = (sources().join("pom.xml"), place.join("jars"), place.join("installed.xml"));
    let wanted = fs::read(&pom)?;
    if fs::read(&installed).is_ok_and(|found| found == wanted) {
        return Ok(jars);
    }
    if jars.exists() {
        // Of another version, or not all of them.
        fs::remove_dir_all(&jars)?;
    }
    writeln!(io::stderr(), "fetching DynamoDB Local into {}", jars.display())?;
    let output = Command::new("mvn")
        .args(["--quiet", "--batch-mode", "dependency:copy-dependencies", "--file"])
        .arg(&pom)
        .arg(format!("-DoutputDirectory={}", jars.display()))
        .stdin(Stdio::null())
        .output()
        .context("mvn could not be started")?;
    if !output.status.success() {
        let said = [output.stdout, output.stderr].concat();
        bail!("mvn could not fetch DynamoDB Local: {}", String::from_utf8_lossy(&said));
    }
    fs::write(installed, wanted)?;
    Ok(jars)
}

fn serve(jars: &Path) -> anyhow::Result<Child> {
    let mut library_path = std::ffi::OsString::from("-Djava.library.path=");
    library_path.push(jars);
    tokio::process::Command::new("java")
        .arg("-Xmx512m")
        .arg(library_path)
        .arg("-cp")
        .arg(jars.join("*"))
        .arg(sources().join("Serve.java"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        // The libraries' remarks on logging.
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .context("java could not be started")
}

/// The port that it says it serves on. What it says afterwards is of no interest.
async fn port_in(output: impl tokio::io::AsyncBufRead + Unpin) -> anyhow::Result<u16> {
    let mut lines = output.lines();
    while let Some(line) = lines.next_line().await? {
        if let Some(port) = line.strip_prefix("port ") {
            return port.parse().with_context(|| format!("DynamoDB Local says {line:?}"));
        }
    }
    bail!("DynamoDB Local ended before it served: run local/dynamodb-local/Serve.java by hand to see why")
}
