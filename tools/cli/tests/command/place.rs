//! A lock table, and the command that works on it.

use lambda_lock::{Lock, LockClient};
use lambda_lock_local::LocalDynamoDb;
use lambda_lock_testkit::{soon, soon_so};
use rustix::process::{Pid, Signal, kill_process};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::process::{Child, Command};
use tokio::signal::unix::{self, SignalKind};

pub(crate) const TABLE: &str = "locks";
pub(crate) const LEASE: Duration = Duration::from_secs(3600);

pub(crate) struct Place {
    pub(crate) local: LocalDynamoDb,
}

/// What a command left.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) status: ExitStatus,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Ended {
    /// As a shell has it in `$?`.
    pub(crate) fn code(&self) -> i32 {
        let signal = || 128 + self.status.signal().unwrap();
        self.status.code().unwrap_or_else(signal)
    }

    /// The output of a command that did what it should.
    pub(crate) fn done(self) -> String {
        assert!(self.status.success(), "{self:?}");
        self.out
    }
}

/// A shell tells what it starts in the background to ignore Ctrl-C, and so does `nohup` with SIGHUP. The command would obey that
/// too. What is handled is not handed on.
fn hand_on_no_ignored_signals() {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).unwrap_or_default();
    let ignored = u64::from_str_radix(ignored.trim(), 16).unwrap_or_default();
    for signal in [Signal::INT, Signal::QUIT, Signal::HUP] {
        if ignored >> (signal.as_raw() - 1) & 1 != 0 {
            drop(unix::signal(SignalKind::from_raw(signal.as_raw())).unwrap());
        }
    }
}

impl Place {
    pub(crate) async fn new() -> Self {
        hand_on_no_ignored_signals();
        Self { local: LocalDynamoDb::with_tables(&[(TABLE, "key")]).await.unwrap() }
    }

    pub(crate) fn locks(&self, owner: &str) -> LockClient {
        // The server runs in this process, which may have to wait for a processor.
        let locks = LockClient::builder(self.local.client(), TABLE).request_timeout(Duration::from_secs(20));
        locks.owner(owner).build().unwrap()
    }

    pub(crate) async fn held(&self, key: &str, owner: &str) -> Lock {
        self.locks(owner).acquire(key).owner(owner).lease(LEASE).try_once().await.unwrap().granted().unwrap()
    }

    /// Whether nobody holds the lock.
    pub(crate) async fn is_free(&self, key: &str) -> bool {
        self.locks("test").operator().peek(key).await.unwrap().is_none_or(|lock| lock.released)
    }

    /// Nothing of this machine's configuration is used.
    pub(crate) fn command(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_lambda-lock"));
        command.env_clear().env("PATH", std::env::var_os("PATH").unwrap());
        command.env("AWS_ENDPOINT_URL_DYNAMODB", self.local.endpoint()).env("AWS_REGION", "eu-central-1");
        command.env("AWS_ACCESS_KEY_ID", "local").env("AWS_SECRET_ACCESS_KEY", "local").env("COLUMNS", "100");
        let nowhere = Path::new(env!("CARGO_TARGET_TMPDIR")).join("no-configuration");
        command.env("AWS_CONFIG_FILE", &nowhere).env("AWS_SHARED_CREDENTIALS_FILE", &nowhere);
        // A server that is near does not need the seconds that a slow proxy may take.
        command.env("LOCK_REQUEST_TIMEOUT_MS", "1000");
        command.stdin(Stdio::null()).kill_on_drop(true);
        command
    }

    pub(crate) async fn run(&self, arguments: &[&str]) -> Ended {
        end(self.command().args(arguments)).await
    }

    /// Gives the command something on standard input.
    pub(crate) async fn run_with(&self, arguments: &[&str], input: &str) -> Ended {
        let mut command = self.command();
        command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        stdin.write_all(input.as_bytes()).await.unwrap();
        drop(stdin);
        end_of(child).await
    }

    /// Waits until somebody holds the lock.
    pub(crate) async fn until_held(&self, key: &str) {
        soon_so(format!("{key} is held"), async || !self.is_free(key).await).await;
    }
}

pub(crate) async fn end(command: &mut Command) -> Ended {
    let what = format!("{command:?} ends");
    ended(soon(what, command.output()).await.unwrap())
}

/// The end of a command that runs.
pub(crate) async fn end_of(child: Child) -> Ended {
    ended(soon("the command ends", child.wait_with_output()).await.unwrap())
}

pub(crate) fn interrupt(child: &Child) {
    kill_process(Pid::from_raw(child.id().unwrap().cast_signed()).unwrap(), Signal::INT).unwrap();
}

fn ended(output: std::process::Output) -> Ended {
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Ended { status: output.status, out: text(output.stdout), err: text(output.stderr) }
}
