//! The process in an execution environment: its variables, signals and memory.
//!
//! It has its own process group. So signals also reach the processes that it started, and Ctrl-C in a
//! terminal does not reach it. If this program dies without killing it, the system ends even a stopped
//! one.

use super::logs::{Logs, Source};
use super::{Function, REGION, lock};
use anyhow::Context;
use rustix::process::{Pid, Signal, kill_process_group};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::process::{Child, Command};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// If the deadline passes while the host stands still, the process is killed this long after the host
/// continues.
const AFTER_STANDSTILL: Duration = Duration::from_secs(2);

/// Sends signals to the process of an environment, if there is one.
#[derive(Debug, Default)]
pub(super) struct Leash(Mutex<Option<Leader>>, watch::Sender<bool>);

/// The first process of a group.
#[derive(Clone, Copy, Debug)]
struct Leader {
    pid: Pid,
    /// It was killed. It may still take a moment to die, and gets no more invocations.
    killed: bool,
    /// Whether its whole host stands still, or stood still until some moment.
    standstill: Standstill,
}

/// Whether a process was protected from being killed at its deadline.
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

    /// Sends a signal. Returns whether there was a process.
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

    /// Stops the process and suspends its deadline.
    pub(super) fn stand_still(&self) -> bool {
        if let Some(leader) = lock(&self.0).as_mut() {
            leader.standstill = Standstill::Now;
        }
        self.send(Signal::STOP)
    }

    /// Continues the process.
    pub(super) fn go_on(&self) -> bool {
        if let Some(leader) = lock(&self.0).as_mut()
            && matches!(leader.standstill, Standstill::Now)
        {
            leader.standstill = Standstill::Until(Instant::now());
        }
        self.send(Signal::CONT)
    }

    /// Returns whether the deadline is suspended, because the host stands still or did so a moment ago.
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
    /// The file of its program, and which one it was at the start.
    program: (PathBuf, Option<Build>),
    leash: Arc<Leash>,
    pub(super) started: Instant,
    pub(super) logs: Arc<Logs>,
    following: JoinHandle<()>,
}

/// What tells one build of a program from the next: its file, the time in nanoseconds, and the size.
type Build = (u64, i128, u64);

/// `None` while there is no such file, because it is being built.
fn build_of(program: &Path) -> Option<Build> {
    let file = std::fs::metadata(program).ok()?;
    let changed = i128::from(file.mtime()) * 1_000_000_000 + i128::from(file.mtime_nsec());
    Some((file.ino(), changed, file.size()))
}

impl Process {
    pub(super) fn start(
        function: &Function,
        runtime_api: &str,
        leash: Arc<Leash>,
        source: Source,
    ) -> anyhow::Result<Self> {
        let (read, write) = std::io::pipe().context("the pipe for the logs could not be created")?;
        let log_stream = format!("[$LATEST]{:032x}", source.environment);
        let logs = Arc::new(Logs::new(read, source)?);
        let task_root = function.binary.parent().context("the binary has no directory")?;
        let started = Instant::now();
        // Before the start: a file that changes meanwhile is another one then.
        let program = (function.binary.clone(), build_of(&function.binary));
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
        Ok(Self { child, program, leash, started, logs, following })
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

    /// Waits for the end of the process, and returns how it ended.
    pub(super) async fn end(&mut self) -> String {
        self.child.wait().await.map_or_else(|error| error.to_string(), described)
    }

    pub(super) async fn kill(&mut self) {
        self.send(Signal::KILL);
        self.end().await;
    }

    /// Whether its program was built again since its start.
    pub(super) fn is_outdated(&self) -> bool {
        let (program, at_start) = &self.program;
        build_of(program).is_some_and(|now| Some(now) != *at_start)
    }

    pub(super) fn is_alive(&mut self) -> bool {
        !self.leash.is_killed() && matches!(self.child.try_wait(), Ok(None))
    }

    /// Ends what it started, after it has ended itself. After that, no handle reaches it.
    pub(super) fn bury(&self) {
        // The leader may have ended while processes that it started still run.
        self.send(Signal::KILL);
        self.leash.hold(None);
    }

    /// Returns the most memory that it has ever used. `None` for a process that has ended.
    pub(super) fn max_rss_kb(&self) -> Option<u64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id()?)).ok()?;
        let high_water_mark = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
        high_water_mark.trim().trim_end_matches(" kB").parse().ok()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.bury();
        self.following.abort();
    }
}

/// Returns the variables that Lambda sets, except those that differ for each process.
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
    let managed = [
        ("AWS_LAMBDA_INITIALIZATION_TYPE", "lambda-managed-instances".to_owned()),
        ("AWS_LAMBDA_MAX_CONCURRENCY", function.concurrency.to_string()),
    ];
    let managed = managed.into_iter().filter(|_| function.is_managed());
    fixed.into_iter().map(|(name, value)| (name, value.to_owned())).chain(own).chain(managed).collect()
}

/// Returns how the process ended, in Lambda's words.
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
