//! `run`: a command that runs while a lock is held.
//!
//! ```text
//! acquire ─ granted ─ start the command ─┬ it ends ........... release
//!    │                                   └ the lock is lost .. SIGTERM, SIGKILL, then no release: it is not ours
//!    └ a signal ...... wait for the answer of the try, release what it granted
//! ```

use crate::arguments::RunOptions;
use crate::exit::{self, Failure};
use crate::held::acquire_or_end;
use crate::screen;
use crate::signals::{Signals, Target};
use lambda_lock::{Error, ErrorKind, Lock, LockClient, ReleaseOutcome};
use rustix::process::Signal;
use std::os::unix::process::ExitStatusExt;
use std::process::{ExitCode, ExitStatus};
use tokio::process::{Child, Command};

/// As shells do it: what is added to the number of a signal.
const SIGNALLED: i32 = 128;
/// As shells do it: the command cannot be started, or is not there.
const NOT_EXECUTABLE: u8 = 126;
const NOT_FOUND: u8 = 127;

pub(crate) async fn run(locks: &LockClient, options: &RunOptions) -> Result<ExitCode, Failure> {
    let mut signals = Signals::new()?;
    let mut lock = match acquire_or_end(locks, &options.how, &mut signals).await? {
        Ok(lock) => lock,
        Err(code) => return Ok(code),
    };
    let mut child = match start(&lock, options) {
        Ok(child) => child,
        Err(error) => {
            let code = if error.kind() == std::io::ErrorKind::NotFound { NOT_FOUND } else { NOT_EXECUTABLE };
            complain(&format!("{} cannot be started: {error}", options.command[0].display()));
            return Ok(release(lock).await.unwrap_or(ExitCode::from(code)));
        }
    };
    let target = Target::of(&child, !options.foreground);
    match lock.keep_alive(ended(&mut child, &mut signals, target)).await {
        Ok(status) => {
            let code = code_of(status?);
            Ok(release(lock).await.unwrap_or(code))
        }
        Err(error) => {
            stop(&mut child, target, options).await?;
            Ok(given_up(lock, &error).await)
        }
    }
}

fn start(lock: &Lock, options: &RunOptions) -> std::io::Result<Child> {
    let mut command = Command::new(&options.command[0]);
    command.args(&options.command[1..]);
    command.env("LOCK_KEY", lock.key().key()).env("FENCING_TOKEN", lock.fencing_token().to_string());
    if !options.foreground {
        command.process_group(0);
    }
    command.spawn()
}

/// Waits for the command, and passes on the signals that this process gets.
async fn ended(child: &mut Child, signals: &mut Signals, target: Target) -> std::io::Result<ExitStatus> {
    loop {
        tokio::select! {
            status = child.wait() => return status,
            signal = signals.next() => target.pass_on(signal),
        }
    }
}

/// Ends the command, and in a group of its own also what it started.
async fn stop(child: &mut Child, target: Target, options: &RunOptions) -> Result<(), Failure> {
    complain("the lock is lost: the command is stopped");
    target.send(Signal::TERM);
    // A command that is stopped gets no other signal before.
    target.send(Signal::CONT);
    let ended = tokio::time::timeout(options.kill_after, child.wait()).await;
    target.send(Signal::KILL);
    if ended.is_err() {
        child.wait().await?;
    }
    Ok(())
}

/// Releases the lock. Returns what to exit with if it was not ours to the end, or may be left to its lease.
pub(crate) async fn release(lock: Lock) -> Option<ExitCode> {
    let key = lock.key().clone();
    match lock.release().await {
        Ok(ReleaseOutcome::Released) => None,
        Ok(ReleaseOutcome::AlreadyGone) => {
            complain(&format!("{key} was lost before it was released: what the command did must be fenced"));
            Some(ExitCode::from(exit::LOST))
        }
        Err(error) => {
            complain(&format!("{error}; the lock may be held until its lease ends"));
            Some(ExitCode::from(exit::of_kind(error.kind())))
        }
    }
}

/// After the command was stopped, because the lock could not be renewed.
async fn given_up(lock: Lock, error: &Error) -> ExitCode {
    complain(&error.to_string());
    if error.kind() != ErrorKind::Lost {
        // It may be ours still, and the command has ended.
        let _ = lock.release().await;
    }
    ExitCode::from(exit::LOST)
}

fn code_of(status: ExitStatus) -> ExitCode {
    let code = status.code().or_else(|| status.signal().map(|signal| SIGNALLED + signal));
    code.and_then(|code| u8::try_from(code).ok()).map_or(ExitCode::FAILURE, ExitCode::from)
}

pub(crate) fn code_of_signal(signal: Signal) -> ExitCode {
    code_of(ExitStatus::from_raw(signal.as_raw()))
}

pub(crate) fn complain(what: &str) {
    screen::tell(format_args!("{}lambda-lock:{:#} {}", screen::WRONG, screen::WRONG, screen::plain(what)));
}
