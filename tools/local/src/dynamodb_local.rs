//! DynamoDB Local, the emulator by AWS. Tests compare it with the embedded DynamoDB.
//!
//! It needs Java. Maven fetches it once from Maven Central into `target/dynamodb-local`. Only tests need
//! it.

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

/// The variable that permits tests to be skipped because Java is missing.
const WITHOUT_JAVA: &str = "LAMBDA_LOCK_WITHOUT_JAVA";
/// How long Java may take to start serving on a busy machine.
const MAX_START: Duration = Duration::from_secs(120);

/// DynamoDB Local on a loopback port of this machine, with its tables in memory.
///
/// It serves until it is dropped, or until this process ends for any reason.
#[derive(Debug)]
pub struct DynamoDbLocal {
    endpoint: String,
    /// The process ends when its standard input ends. Dropping this value kills it.
    _serving: Child,
}

impl DynamoDbLocal {
    /// Fetches DynamoDB Local if needed, and starts an empty one on a port that the system chooses. If
    /// `java` or `mvn` is missing, prints a line on stderr and returns `None`.
    ///
    /// # Errors
    /// Returns an error if Maven cannot fetch it or Java cannot run it. With `LAMBDA_LOCK_CI` also if
    /// `java` or `mvn` is missing, unless `LAMBDA_LOCK_WITHOUT_JAVA` is set.
    pub async fn start() -> anyhow::Result<Option<Self>> {
        for program in ["java", "mvn"] {
            if !is_there(program).await? {
                let known = std::env::var_os(WITHOUT_JAVA).is_some() || std::env::var_os("LAMBDA_LOCK_CI").is_none();
                ensure!(
                    known,
                    "{program} is missing: install it, or set {WITHOUT_JAVA}=1 to skip the tests that need it"
                );
                // Not `eprintln!`, because the test harness would hold it back.
                writeln!(
                    io::stderr(),
                    "SKIPPED: tests that compare with DynamoDB Local, because {program} is missing"
                )?;
                return Ok(None);
            }
        }
        let jars = tokio::task::spawn_blocking(fetched).await??;
        let mut serving = serve(&jars)?;
        let output = serving.stdout.take().context("DynamoDB Local has no standard output")?;
        let port = tokio::time::timeout(MAX_START, port_in(BufReader::new(output)))
            .await
            .with_context(|| format!("DynamoDB Local was not ready within {MAX_START:?}"))??;
        Ok(Some(Self { endpoint: format!("http://127.0.0.1:{port}"), _serving: serving }))
    }

    /// The endpoint's URL.
    pub fn endpoint(&self) -> &str {
        &self.endpoint
    }
}

/// Returns whether there is a program of this name.
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
    workspace().join("tools/local/dynamodb-local")
}

/// Returns the folder of the jars. They are fetched once for each version of the POM. Test binaries that
/// run at the same time wait for each other.
fn fetched() -> anyhow::Result<PathBuf> {
    let place = target(workspace()).join("dynamodb-local");
    fs::create_dir_all(&place)?;
    let lock = File::create(place.join("lock"))?;
    lock.lock().context("the jars of DynamoDB Local could not be locked")?;
    let (pom, jars, installed) = (sources().join("pom.xml"), place.join("jars"), place.join("installed.xml"));
    let wanted = fs::read(&pom)?;
    if fs::read(&installed).is_ok_and(|found| found == wanted) {
        return Ok(jars);
    }
    if jars.exists() {
        // The jars are of another version, or incomplete.
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
        // Hides the libraries' messages about logging.
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .context("java could not be started")
}

/// Returns the port in the output of DynamoDB Local. Later output is ignored.
async fn port_in(output: impl tokio::io::AsyncBufRead + Unpin) -> anyhow::Result<u16> {
    let mut lines = output.lines();
    while let Some(line) = lines.next_line().await? {
        if let Some(port) = line.strip_prefix("port ") {
            return port.parse().with_context(|| format!("DynamoDB Local printed {line:?}"));
        }
    }
    bail!("DynamoDB Local ended before it served; to see why, run tools/local/dynamodb-local/Serve.java by hand")
}
