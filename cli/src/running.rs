//! A command that runs under a lock. It ends before the lock does, whatever a request does meanwhile.
//!
//! ```text
//! works ─┬ the lease nears its end, or the lock is lost .. SIGTERM ─┬ it ends
//!   ↑    │                                                          └ the lease or the grace ends .. SIGKILL
//!   │    └ this process is to stop ... the command is stopped too ─┬ the lock is lost .............. SIGKILL
//!   └──────────────────────────────── the lock was renewed ────────┘
//! ```

use crate::arguments::RunOptions;
use crate::run::complain;
use crate::screen;
use crate::signals::{self, Signals};
use crate::starter;
use lambda_lock::{Lock, LockWatch};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, kill_process_group, waitid};
use std::future::pending;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Child, ExitStatus};
use std::thread::{self, JoinHandle};
use std::time::Duration;
use tokio::signal::unix::{self, SignalKind};
use tokio::time::{Instant, sleep, sleep_until, timeout};

/// How long is waited for a message to be written. Nobody may read it, and the lock is still held.
pub(crate) const LAST_WORDS: Duration = Duration::from_secs(1);

/// How often the command and its lease are looked at although nothing is reported: this process may have been started with
/// SIGCHLD blocked, and a timer stands still while the machine is suspended, but a lease does not.
const LOOK: Duration = Duration::from_secs(1);

pub(crate) struct Running {
    child: Child,
    pid: Pid,
    /// The command leads a process group of its own.
    group: bool,
    /// SIGCHLD.
    child_changed: unix::Signal,
    watch: LockWatch,
    /// How long before the end of the lease the command is told to end.
    grace: Duration,
    phase: Phase,
    told: Option<JoinHandle<()>>,
}

#[derive(Clone, Copy)]
enum Phase {
    Works,
    /// It is stopped until the lock was renewed.
    Paused,
    /// It was told to end.
    Ends {
        killed_at: Instant,
        /// The next holder may have the lock already, so the end of the lease says nothing.
        lost: bool,
    },
    Killed,
}

/// What a command did.
#[derive(PartialEq)]
pub(crate) enum Event {
    Ended,
    /// It was stopped together with this process, which somebody has continued.
    Paused,
}

impl Running {
    /// Starts the command. For the main thread.
    pub(crate) fn start(lock: &Lock, options: &RunOptions, grace: Duration) -> io::Result<Self> {
        let child_changed = unix::signal(SignalKind::child())?;
        let mut command = starter::command(&options.command);
        command.env("LOCK_KEY", lock.key().key()).env("FENCING_TOKEN", lock.fencing_token().to_string());
        if !options.foreground {
            command.process_group(0);
        }
        let child = command.spawn()?;
        let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw).ok_or(io::ErrorKind::InvalidData)?;
        let (group, watch) = (!options.foreground, lock.watch());
        Ok(Self { child, pid, group, child_changed, watch, grace, phase: Phase::Works, told: None })
    }

    /// Passes on the signals that this process gets, and ends the command in time. Cancel safe.
    pub(crate) async fn next(&mut self, signals: &mut Signals) -> io::Result<Event> {
        loop {
            if self.has_ended()? {
                return Ok(Event::Ended);
            }
            let time_is_over = time_is_over(&self.watch, self.grace, self.phase);
            tokio::select! {
                _ = self.child_changed.recv() => {}
                () = sleep(LOOK) => {}
                () = time_is_over => match self.phase {
                    Phase::Ends { .. } => self.kill(),
                    _ => self.end(),
                },
                signal = signals.next() => if !signals::stops(signal) {
                    self.pass_on(signal);
                // Who stops before the command has ended cannot end it in time.
                } else if !self.was_told_to_end() {
                    self.pause();
                    return Ok(Event::Paused);
                },
            }
        }
    }

    pub(crate) fn is_paused(&self) -> bool {
        matches!(self.phase, Phase::Paused)
    }

    pub(crate) fn was_told_to_end(&self) -> bool {
        matches!(self.phase, Phase::Ends { .. } | Phase::Killed)
    }

    /// The lock was renewed, or could not be: continues a command that was stopped, if its lease lasts.
    pub(crate) fn go_on(&mut self) {
        if self.watch.remaining() <= self.grace {
            self.end();
        } else if self.is_paused() {
            self.phase = Phase::Works;
            self.send(Signal::CONT);
        }
    }

    /// Ends the command, and in a group of its own also what it started.
    pub(crate) fn end(&mut self) {
        if self.was_told_to_end() {
            return;
        }
        let (lost, left) = (self.watch.is_lost(), self.watch.remaining());
        let is_too_late = if lost { self.is_paused() } else { left.is_zero() };
        // What is stopped does nothing beside the next holder, so it is not continued.
        if is_too_late {
            self.kill();
        } else {
            self.phase = Phase::Ends { killed_at: Instant::now() + self.grace, lost };
            self.send(Signal::TERM);
            // A command that is stopped gets no other signal before.
            self.send(Signal::CONT);
        }
        self.tell(if lost {
            "the lock is lost: the command is stopped".to_owned()
        } else if is_too_late {
            "the lease has ended: the command is killed".to_owned()
        } else {
            let left = screen::span(left);
            format!("the lock cannot be renewed, and its lease ends in {left}: the command is stopped")
        });
    }

    /// Removes the command that has ended from the list of processes. From then on its number may be another's.
    pub(crate) async fn reap(mut self) -> io::Result<ExitStatus> {
        if self.was_told_to_end() {
            // What it started.
            self.send(Signal::KILL);
        }
        let status = self.child.wait()?;
        if let Some(told) = self.told {
            let told = async {
                while !told.is_finished() {
                    sleep(Duration::from_millis(10)).await;
                }
            };
            let _ = timeout(LAST_WORDS, told).await;
        }
        Ok(status)
    }

    /// Whether the command has ended. Its number stays its own.
    fn has_ended(&self) -> io::Result<bool> {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG;
        Ok(waitid(WaitId::Pid(self.pid), options)?.is_some())
    }

    fn kill(&mut self) {
        self.phase = Phase::Killed;
        self.send(Signal::KILL);
    }

    /// Stops the command and then this process. Returns when somebody continues this process.
    fn pause(&mut self) {
        self.phase = Phase::Paused;
        self.send(Signal::STOP);
        signals::stop_this_process();
        // In the foreground a shell continues both.
        self.send(Signal::STOP);
    }

    /// In the foreground the terminal sends its signals to the command itself.
    fn pass_on(&self, signal: Signal) {
        if self.group || ![Signal::INT, Signal::QUIT].contains(&signal) {
            self.send(signal);
            // A command that is stopped, as by reading from the terminal, gets no other signal before.
            if [Signal::INT, Signal::QUIT, Signal::TERM, Signal::HUP].contains(&signal) && !self.is_paused() {
                self.send(Signal::CONT);
            }
        }
    }

    fn send(&self, signal: Signal) {
        // The only error is that nobody is there any more.
        let _ = if self.group { kill_process_group(self.pid, signal) } else { kill_process(self.pid, signal) };
    }

    /// Tells it in a thread of its own: nobody may read it, and the command must end all the same.
    fn tell(&mut self, what: String) {
        // Where no thread can be had, the exit code says it.
        self.told = thread::Builder::new().spawn(move || complain(&what)).ok();
    }
}

/// When the command is told to end, or is killed.
async fn time_is_over(watch: &LockWatch, grace: Duration, phase: Phase) {
    match phase {
        Phase::Works => watch.nearing_end(grace).await,
        Phase::Ends { killed_at, lost: true } => sleep_until(killed_at).await,
        Phase::Ends { killed_at, lost: false } => tokio::select! {
            () = sleep_until(killed_at) => {}
            () = watch.ended() => {}
        },
        Phase::Paused | Phase::Killed => pending().await,
    }
}
