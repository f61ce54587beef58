//! The first stage of a command that runs under a lock, so that it does not outlive `lambda-lock`.
//!
//! Only a process itself can ask for a signal at the death of its parent. So `lambda-lock` starts itself anew, asks for that
//! signal, and becomes the command. And a process that has handled a signal can no longer end by it, so it starts itself anew for
//! that too.

use rustix::process::{Signal, getpid, kill_process};
use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

/// The variables that were set and empty when this process began.
pub(crate) const EMPTY: &str = "LAMBDA_LOCK_EMPTY";

/// Gives the command the variables that this process does without.
pub(crate) fn with_empty_variables(command: &mut Command) {
    let names = std::env::var(EMPTY).unwrap_or_default();
    command.envs(names.split_whitespace().map(|name| (name, ""))).env_remove(EMPTY);
}

/// The command, of which the caller still sets environment and group.
#[cfg(not(target_os = "linux"))]
pub(crate) fn command(words: &[OsString]) -> Command {
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]);
    command
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn become_the_command() -> Option<ExitCode> {
    None
}

/// Why the first stage did not start.
#[cfg(not(target_os = "linux"))]
pub(crate) fn reason(error: io::Error) -> io::Error {
    error
}

/// The name of the first stage, in the place of the program's name.
#[cfg(target_os = "linux")]
const STARTER: &str = "lambda-lock: starts a command";

/// The command, of which the caller still sets environment and group. It must be started by the main thread: the death of the
/// thread counts.
#[cfg(target_os = "linux")]
pub(crate) fn command(words: &[OsString]) -> Command {
    // This program, also where its file was replaced meanwhile.
    let mut command = Command::new("/proc/self/exe");
    command.arg0(STARTER).arg(std::process::id().to_string()).args(words);
    command
}

/// Why the first stage did not start. It says itself why it cannot become the command.
#[cfg(target_os = "linux")]
pub(crate) fn reason(error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::NotFound => io::Error::other("lambda-lock starts it through /proc/self/exe: mount /proc"),
        _ => error,
    }
}

/// Becomes the command, in the first stage. Returns what to exit with if it cannot, and nothing outside of the first stage.
#[cfg(target_os = "linux")]
pub(crate) fn become_the_command() -> Option<ExitCode> {
    use crate::run;
    use rustix::process::{Pid, getppid, set_parent_process_death_signal};
    let mut words = std::env::args_os();
    if words.next()? != STARTER {
        return None;
    }
    let holder = words.next()?.to_str().and_then(|pid| pid.parse().ok()).and_then(Pid::from_raw);
    let program = words.next()?;
    let error = match set_parent_process_death_signal(Some(Signal::KILL)) {
        // It died before it could be asked for.
        Ok(()) if getppid() != holder => return Some(ExitCode::FAILURE),
        Ok(()) => Command::new(&program).args(words).exec(),
        Err(error) => error.into(),
    };
    Some(run::not_started(&program, &error))
}

/// The name of the last stage.
const ENDER: &str = "lambda-lock: ends by a signal";

/// Ends this process by a signal. Returns if it cannot: then the exit code says it.
pub(crate) fn end_by(signal: Signal) {
    let program = if cfg!(target_os = "linux") { Ok("/proc/self/exe".into()) } else { std::env::current_exe() };
    if let Ok(program) = program {
        let _ = Command::new(program).arg0(ENDER).arg(signal.as_raw().to_string()).exec();
    }
}

/// Ends by the signal, in the last stage. Returns what to exit with if it does not, as in the first process of a container, and
/// nothing outside of the last stage.
pub(crate) fn end_in_the_last_stage() -> Option<ExitCode> {
    let mut words = std::env::args_os();
    if words.next()? != ENDER {
        return None;
    }
    let signal = Signal::from_named_raw(words.next()?.to_str()?.parse().ok()?)?;
    let _ = kill_process(getpid(), signal);
    Some(crate::run::exit_code_of(signal))
}
