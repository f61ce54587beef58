//! The process in an execution environment: its variables, its signals, its memory.
//!
//! It leads a process group of its own: signals reach whatever it started, Ctrl-C in a terminal does not
//! reach it, and the system ends a stopped one when this process dies without having done so.

use super::logs::{Logs, Source};
use super::{Function, REGION, lock};
use anyhow::Context;
use rustix::process::{Pid, Signal, kill_process_group};
use std::os::unix::process::ExitStatusExt;
use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::process::{Child, Command};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// How much later than its host a process is killed whose deadline passed while that stood still.
const AFTER_STANDSTILL: Duration = Duration::from_secs(2);

/// How others reach the process of an environment, if there is one.
#[derive(Debug, Default)]
pub(super) struct Leash(Mutex<Option<Leader>>, watch::Sender<bool>);

/// The first process of a group.
#[derive(Clone, Copy, Debug)]
struct Leader {
    pid: Pid,
    /// It may take a moment to die, and gets nothing more to do.
    killed: bool,
    /// Its whole host stands still, or has stood still until this moment.
    standstill: Standstill,
}

/// Whether a process was kept from being killed at its deadline.
#[derive(Clone, Copy, Debug)]
enum Standstill {
    Never,
    Now,
    Until(Instant),
}

impl Leash {
    pub(super) fn process(&self) -> Option<u32> {
        lock(&self.0).map(|leader| leader.pid.as_raw_nonzero().get().cast_unsigned())
    }

    pub(super) fn is_killed(&self) -> bool {
        lock(&self.0).is_some_and(|leader| leader.killed)
    }

    /// Whether there was a process to send it to.
    pub(super) fn send(&self, signal: Signal) -> bool {
        let mut held = lock(&self.0);
        let Some(leader) = held.as_mut() else { return false };
        leader.killed |= signal == Signal::KILL;
        kill_process_group(leader.pid, signal).is_ok()
    }

    /// Whether the process waits in a snapshot.
    pub(super) fn snapshot(&self) -> &watch::Sender<bool> {
        &self.1
    }

    /// Stops the process, and whoever would kill it at its deadline.
    pub(super) fn stand_still(&self) -> bool {
        if let Some(leader) = lock(&self.0).as_mut() {
            leader.standstill = Standstill::Now;
        }
        self.send(Signal::STOP)
    }

    /// Lets it go on.
    pub(super) fn go_on(&self) -> bool {
        if let Some(leader) = lock(&self.0).as_mut()
            && matches!(leader.standstill, Standstill::Now)
        {
            leader.standstill = Standstill::Until(Instant::now());
        }
        self.send(Signal::CONT)
    }

    /// Whether the deadline cannot be enforced now, because the host stands still or has just done so.
    pub(super) fn is_excused(&self) -> bool {
        match lock(&self.0).map(|leader| leader.standstill) {
            None | Some(Standstill::Never) => false,
            Some(Standstill::Now) => true,
            Some(Standstill::Until(moment)) => moment.elapsed() < AFTER_STANDSTILL,
        }
    }

    fn hold(&self, pid: Option<Pid>) {
        *lock(&self.0) = pid.map(|pid| Leader { pid, killed: false, standstill: Standstill::Never });
    }
}

/// A running function. Dropping it kills it.
#[derive(Debug)]
pub(super) struct Process {
    child: Child,
    leash: Arc<Leash>,
    pub(super) started: Instant,
    pub(super) logs: Arc<Logs>,
    following: JoinHandle<()>,
}

impl Process {
    pub(super) fn start(
        function: &Function,
        runtime_api: &str,
        leash: Arc<Leash>,
        source: Source,
    ) -> anyhow::Result<Self> {
        let (read, write) = std::io::pipe().context("no pipe for the logs")?;
        let log_stream = format!("[$LATEST]{:032x}", source.environment);
        let logs = Arc::new(Logs::new(read, source)?);
        let task_root = function.binary.parent().context("the binary is in no directory")?;
        let started = Instant::now();
        let child = Command::new(&function.binary)
            .current_dir(task_root)
            .env_clear()
            .envs(variables(function).into_iter().filter(|(name, _)| function.has_variable(name)))
            .env("LAMBDA_TASK_ROOT", task_root)
            .env("AWS_LAMBDA_LOG_STREAM_NAME", log_stream)
            .env("AWS_LAMBDA_RUNTIME_API", runtime_api)
            .envs(&function.environment)
            .stdin(Stdio::null())
            .stdout(write.try_clone()?)
            .stderr(write)
            .process_group(0)
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("{} cannot be started", function.binary.display()))?;
        leash.hold(child.id().and_then(|pid| Pid::from_raw(pid.cast_signed())));
        let following = tokio::spawn({
            let logs = logs.clone();
            async move { logs.follow().await }
        });
        Ok(Self { child, leash, started, logs, following })
    }

    pub(super) fn send(&self, signal: Signal) {
        self.leash.send(signal);
    }

    pub(super) fn go_on(&self) {
        self.leash.go_on();
    }

    pub(super) fn is_excused(&self) -> bool {
        self.leash.is_excused()
    }

    /// Waits for its end, and says how it ended.
    pub(super) async fn end(&mut self) -> String {
        self.child.wait().await.map_or_else(|error| error.to_string(), described)
    }

    pub(super) async fn kill(&mut self) {
        self.send(Signal::KILL);
        self.end().await;
    }

    pub(super) fn is_alive(&mut self) -> bool {
        !self.leash.is_killed() && matches!(self.child.try_wait(), Ok(None))
    }

    /// The most memory that it has ever used; nobody knows that of a process that has ended.
    pub(super) fn max_rss_kb(&self) -> Option<u64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id()?)).ok()?;
        let high_water_mark = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
        high_water_mark.trim().trim_end_matches(" kB").parse().ok()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // The leader may be gone while what it started is not.
        self.send(Signal::KILL);
        self.leash.hold(None);
        self.following.abort();
    }
}

/// What Lambda sets, but for what belongs to one process.
fn variables(function: &Function) -> Vec<(&'static str, String)> {
    let fixed = [
        ("AWS_REGION", REGION),
        ("AWS_DEFAULT_REGION", REGION),
        ("AWS_ACCESS_KEY_ID", "local"),
        ("AWS_SECRET_ACCESS_KEY", "local"),
        ("AWS_SESSION_TOKEN", "local"),
        ("AWS_LAMBDA_FUNCTION_VERSION", "$LATEST"),
        ("AWS_LAMBDA_INITIALIZATION_TYPE", "on-demand"),
        ("_HANDLER", "bootstrap"),
        ("LANG", "en_US.UTF-8"),
        ("TZ", ":UTC"),
        ("PATH", "/usr/local/bin:/usr/bin:/bin:/opt/bin"),
        ("LD_LIBRARY_PATH", "/lib64:/usr/lib64:/opt/lib"),
    ];
    let own = [
        ("AWS_LAMBDA_FUNCTION_NAME", function.name.clone()),
        ("AWS_LAMBDA_FUNCTION_MEMORY_SIZE", function.memory_mb.to_string()),
        ("AWS_LAMBDA_LOG_GROUP_NAME", format!("/aws/lambda/{}", function.name)),
    ];
    fixed.into_iter().map(|(name, value)| (name, value.to_owned())).chain(own).collect()
}

/// In Lambda's words.
fn described(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit status {code}"),
        (None, Some(9)) => "signal: killed".to_owned(),
        (None, Some(6)) => "signal: aborted".to_owned(),
        (None, Some(11)) => "signal: segmentation fault".to_owned(),
        (None, Some(15)) => "signal: terminated".to_owned(),
        (None, signal) => format!("signal: {}", signal.unwrap_or_default()),
    }
}
