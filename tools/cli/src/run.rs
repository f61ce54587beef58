//! `run`: a command that runs while a lock is held.
//!
//! ```text
//! acquire ─ granted ─ start the command ─┬ it ends ....................................... release
//!    │                                   ├ the lock is lost, or its lease nears its end .. SIGTERM, SIGKILL, release
//!    │                                   └ something that was to end may still run ....... leave it to its lease
//!    └ a signal ...... wait for the answer of the try, release what it granted
//! ```

use crate::arguments::RunOptions;
use crate::connection;
use crate::exit::{self, Failure};
use crate::held::acquire_or_end;
use crate::running::{End, Event, Running};
use crate::screen::{self, LAST_WORDS};
use crate::signals::{self, Signals};
use crate::starter;
use lambda_lock::{Lock, ReleaseOutcome};
use rustix::process::Signal;
use std::ffi::OsStr;
use std::future::pending;
use std::os::unix::process::ExitStatusExt;
use std::pin::pin;
use std::process::{ExitCode, ExitStatus};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

/// As shells do it: what is added to the number of a signal.
const SIGNALLED: i32 = 128;
/// As shells do it: the command cannot be started, or is not there.
const NOT_EXECUTABLE: u8 = 126;
const NOT_FOUND: u8 = 127;

pub(crate) async fn run(connection: &connection::Options, options: &RunOptions) -> Result<ExitCode, Failure> {
    connection.check_sort_key(&options.how.key.key())?;
    let locks = connection.open_to_renew(options.how.lease).await?;
    let grace = grace(options);
    let mut signals = Signals::new()?;
    let mut lock = match acquire_or_end(&locks, &options.how, &mut signals).await? {
        Ok(lock) => lock,
        Err(code) => return Ok(code),
    };
    let started = signals.a_command_runs().and_then(|()| Running::start(&lock, options, grace));
    let mut running = match started {
        Ok(running) => running,
        Err(error) => {
            let code = not_started(&options.command[0], &error);
            return Ok(release(lock, None).await.unwrap_or(code));
        }
    };
    let has_ended = renew_until_it_ends(&mut lock, &mut running, &mut signals).await;
    let was_told_to_end = running.was_told_to_end();
    let ended = match has_ended {
        Ok(()) => running.end_of_all().await,
        Err(error) => Err(error),
    };
    let End { status, left } = match ended {
        Ok(end) => end,
        Err(error) => {
            let key = lock.key();
            complain(&format!("how the command ended is unknown ({error}): {key} may be held until its lease ends"));
            return Ok(ExitCode::FAILURE);
        }
    };
    let of_lock = match left {
        Some(left) => {
            let of_lock = match lock.watch().is_lost() {
                true => "it may work beside the next holder".to_owned(),
                false => format!("{} is held until its lease ends", lock.key()),
            };
            complain(&format!("{left}: {of_lock}{}", how_it_ended(status)));
            Some(ExitCode::from(exit::DENIED))
        }
        None => match release(lock, Some(status)).await {
            None if was_told_to_end => {
                complain(&format!("the lock was released{}", how_it_ended(status)));
                None
            }
            of_lock => of_lock,
        },
    };
    Ok(match of_lock {
        _ if was_told_to_end => ExitCode::from(exit::LOST),
        Some(of_lock) => of_lock,
        // Who pressed Ctrl-C while the lock was being released wants the script to end.
        None => signals.come_already().await.map_or_else(|| end_as(status), end_as_by),
    })
}

/// How long the command may still run after SIGTERM, unless it is given.
const KILL_AFTER: Duration = Duration::from_secs(10);

/// How long the command may still run after SIGTERM. A longer time would end commands whose lock can be renewed.
fn grace(options: &RunOptions) -> Duration {
    let longest = Duration::from_millis(u64::try_from(options.how.lease.as_millis() / 3).unwrap_or(u64::MAX));
    if let Some(given) = options.kill_after.filter(|given| *given > longest) {
        let [given, lease, longest] = [given, options.how.lease, longest].map(humantime::format_duration);
        complain(&format!(
            "--kill-after {given} is more than a third of the lease of {lease}: the command may run for {longest} after \
             SIGTERM. Give a longer --lease or a shorter --kill-after"
        ));
    }
    options.kill_after.unwrap_or(KILL_AFTER).min(longest)
}

/// Renews the lock while the command runs, and before a command that was stopped continues.
async fn renew_until_it_ends(lock: &mut Lock, running: &mut Running, signals: &mut Signals) -> std::io::Result<()> {
    let mut is_due = false;
    loop {
        let at_once = is_due;
        let renewed = async { if at_once { lock.checkpoint().await } else { lock.keep_alive(pending()).await } };
        let (mut renewed, mut is_due_again) = (pin!(renewed), false);
        loop {
            let can_be_renewed = !running.was_told_to_end();
            tokio::select! {
                event = running.next(signals) => match event? {
                    Event::Ended => return Ok(()),
                    // A renewal that began again each time might never come to its end.
                    Event::RenewalIsDue if at_once => is_due_again = true,
                    Event::RenewalIsDue => {
                        is_due = true;
                        break;
                    }
                },
                renewed = &mut renewed, if can_be_renewed => {
                    is_due = match renewed {
                        Err(error) if error.is_lost() => {
                            running.end();
                            false
                        }
                        Ok(()) | Err(_) => is_due_again || running.go_on(),
                    };
                    break;
                }
            }
        }
    }
}

/// Tells why a command did not start. Returns what to exit with.
pub(crate) fn not_started(program: &OsStr, error: &std::io::Error) -> ExitCode {
    complain(&format!("{} cannot be started: {error}", program.display()));
    let is_missing = error.kind() == std::io::ErrorKind::NotFound;
    ExitCode::from(if is_missing { NOT_FOUND } else { NOT_EXECUTABLE })
}

/// Releases the lock, after a command has ended. Returns what to exit with if it was not ours to the end, or may be left to its
/// lease.
pub(crate) async fn release(lock: Lock, command: Option<ExitStatus>) -> Option<ExitCode> {
    let (key, watch) = (lock.key().clone(), lock.watch());
    let (what, code) = match if watch.is_lost() { None } else { Some(lock.release().await) } {
        None => (format!("the lock {key} is no longer ours: stop, and do not write"), exit::LOST),
        Some(Ok(ReleaseOutcome::Released)) => return None,
        Some(Ok(ReleaseOutcome::AlreadyGone)) if watch.is_lost() => {
            (format!("{key} was lost before it was released: what the command did must be fenced"), exit::LOST)
        }
        // A request had no response, and the row is another's.
        Some(Ok(ReleaseOutcome::AlreadyGone)) => (
            format!(
                "{key} is gone: it was released, and acquired by another since, or it was lost before. Nobody can tell which. If it \
                 was lost, what the command did must be fenced"
            ),
            exit::UNAVAILABLE,
        ),
        Some(Err(error)) => {
            let said = exit::with_reasons(&error);
            (format!("{said}; the lock may be held until its lease ends"), exit::of_kind(error.kind()))
        }
    };
    complain(&(what + &command.map(how_it_ended).unwrap_or_default()));
    Some(ExitCode::from(code))
}

/// The command's own exit code, where that of this process says something else.
fn how_it_ended(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("; the command ended with exit code {code}"),
        (_, Some(signal)) => format!("; the command was ended by signal {signal}"),
        (None, None) => String::new(),
    }
}

/// What to exit with, to end as the command did. Does not return where a signal ended it by which somebody ends a script too: a
/// shell goes on with its script unless the signal also ended what it waits for.
fn end_as(status: ExitStatus) -> ExitCode {
    match (status.code(), status.signal().and_then(Signal::from_named_raw)) {
        (Some(code), _) => u8::try_from(code).map_or(ExitCode::FAILURE, ExitCode::from),
        (None, Some(signal)) => end_as_by(signal),
        // A realtime signal.
        (None, None) => of_signal_number(status.signal().unwrap_or_default()),
    }
}

/// Ends by this signal, or returns what to exit with after another one.
pub(crate) fn end_as_by(signal: Signal) -> ExitCode {
    if signals::ASKS_TO_END.contains(&signal) {
        starter::end_by(signal);
    }
    exit_code_of(signal)
}

pub(crate) fn exit_code_of(signal: Signal) -> ExitCode {
    of_signal_number(signal.as_raw())
}

fn of_signal_number(signal: i32) -> ExitCode {
    u8::try_from(SIGNALLED + signal).map_or(ExitCode::FAILURE, ExitCode::from)
}

/// Says what is wrong, in a thread of its own: nobody may read it, and signals are only noted meanwhile. Where no thread can be
/// had, the exit code says it.
pub(crate) fn complain(what: &str) {
    let said = format!("{}lambda-lock:{:#} {}", screen::WRONG, screen::WRONG, screen::plain(what));
    let (written, is_written) = mpsc::channel();
    let tell = move || {
        signals::without_ttou();
        screen::tell(said);
        let _ = written.send(());
    };
    if thread::Builder::new().spawn(tell).is_ok() {
        let _ = is_written.recv_timeout(LAST_WORDS);
    }
}
