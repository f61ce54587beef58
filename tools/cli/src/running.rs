//! A command that runs under a lock. It ends before the lock does, whatever a request does meanwhile.
//!
//! ```text
//! works ─┬ the lease nears its end, or the lock is lost .. SIGTERM ─┬ it ends, and all that it started
//!   ↑    │                                                          └ the lease or the grace ends .. SIGKILL
//!   │    ├ somebody tells it to end, and it ends ..................... what it started has the grace to end too
//!   │    └ this process is to stop ... the command is stopped too ─┬ the lock is lost .............. SIGKILL
//!   └──────────────────────────────── the lock was renewed ────────┘
//! ```

use crate::arguments::RunOptions;
use crate::run::complain;
use crate::screen;
use crate::signals::{self, Signals};
use crate::starter;
use lambda_lock::{Lock, LockWatch};
use rustix::io::Errno;
use rustix::process::{
    Pid, Signal, WaitOptions, kill_process, kill_process_group, test_kill_process, test_kill_process_group, waitpgid,
};
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

/// As [`LOOK`], where nothing is reported: what the command started are no children of this process.
const LOOK_AT_REST: Duration = Duration::from_millis(20);

/// The signals by which somebody tells a command to end.
const TELLING_TO_END: [Signal; 4] = [Signal::INT, Signal::QUIT, Signal::TERM, Signal::HUP];

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
    /// Somebody has told the command to end, by a signal that was passed on.
    was_asked_to_end: bool,
    /// How the command itself ended.
    status: Option<ExitStatus>,
    /// Until when is waited for what it started.
    rest_until: Instant,
    /// It was said that signals do not reach it.
    is_out_of_reach: bool,
    told: Vec<JoinHandle<()>>,
}

/// What ended.
pub(crate) struct End {
    pub(crate) status: ExitStatus,
    /// What was to end, and may still run. It has the lock until its lease ends.
    pub(crate) left: Option<&'static str>,
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
        let child = command.spawn().map_err(starter::reason)?;
        let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw).ok_or(io::ErrorKind::InvalidData)?;
        let (group, watch) = (!options.foreground, lock.watch());
        Ok(Self {
            child,
            pid,
            group,
            child_changed,
            watch,
            grace,
            phase: Phase::Works,
            was_asked_to_end: false,
            status: None,
            rest_until: Instant::now(),
            is_out_of_reach: false,
            told: Vec::new(),
        })
    }

    /// Passes on the signals that this process gets, and ends the command in time. Cancel safe.
    pub(crate) async fn next(&mut self, signals: &mut Signals) -> io::Result<Event> {
        loop {
            if self.has_ended()? {
                return Ok(Event::Ended);
            }
            let time_is_over = time_is_over(&self.watch, self.grace, self.phase);
            let look = if self.status.is_some() { LOOK_AT_REST } else { LOOK };
            tokio::select! {
                _ = self.child_changed.recv() => {}
                () = sleep(look) => {}
                () = time_is_over => match self.phase {
                    Phase::Ends { .. } => self.kill(),
                    _ => self.end(),
                },
                signal = signals.next() => if !signals::stops(signal) {
                    self.pass_on(signal);
                // Who stops before the command has ended cannot end it in time.
                } else if !self.was_told_to_end() && self.pause() {
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

    /// How the command ended, and what may still run although it was to end.
    pub(crate) async fn end_of_all(mut self) -> io::Result<End> {
        let status = self.child.wait()?;
        let left = if !self.waits_for_rest() || self.is_gone() {
            None
        } else if self.has_some_out_of_reach() {
            Some("what the command started runs as another user and cannot be killed")
        } else {
            // What nobody has killed has decided to stay in the background.
            self.was_told_to_end().then_some("what the command started may still run")
        };
        let told = async {
            while !self.told.iter().all(JoinHandle::is_finished) {
                sleep(Duration::from_millis(10)).await;
            }
        };
        let _ = timeout(LAST_WORDS, told).await;
        Ok(End { status, left })
    }

    /// Whether the command has ended, and what it started, where that is waited for.
    fn has_ended(&mut self) -> io::Result<bool> {
        if self.status.is_none() {
            self.status = self.child.try_wait()?;
            let last = if matches!(self.phase, Phase::Killed) { LAST_WORDS } else { self.grace };
            self.rest_until = Instant::now() + last;
        }
        if self.status.is_none() || !self.waits_for_rest() {
            return Ok(self.status.is_some());
        }
        let is_over = !matches!(self.phase, Phase::Ends { .. }) && self.rest_until <= Instant::now();
        Ok(is_over || self.is_gone())
    }

    /// Otherwise, what a command started runs on in the background without the lock.
    fn waits_for_rest(&self) -> bool {
        self.group && (self.was_asked_to_end || self.was_told_to_end())
    }

    /// Whether nobody is left in the group of a command that has ended. Until then its number is given to nobody else. After
    /// that, all numbers would have to be given between two looks before a stranger had it.
    fn is_gone(&self) -> bool {
        // The first process of a container is the parent of all whose parents have ended.
        while let Ok(Some(_)) = waitpgid(self.pid, WaitOptions::NOHANG) {}
        test_kill_process_group(self.pid) == Err(Errno::SRCH)
    }

    /// Whether something runs as another user, so that no signal of this process reaches it.
    fn has_some_out_of_reach(&self) -> bool {
        let refuses = |tried| tried == Err(Errno::PERM);
        if self.group {
            // Of a group this is said only where all are out of reach.
            refuses(test_kill_process_group(self.pid))
                || members(self.pid).any(|member| refuses(test_kill_process(member)))
        } else {
            self.status.is_none() && refuses(test_kill_process(self.pid))
        }
    }

    fn kill(&mut self) {
        self.phase = Phase::Killed;
        self.rest_until = Instant::now() + LAST_WORDS;
        self.send(Signal::KILL);
    }

    /// Stops the command and then this process. Returns when somebody continues this process, or `false` where a part of the
    /// command would work on beside it, without its lock.
    fn pause(&mut self) -> bool {
        self.send(Signal::STOP);
        // In the foreground the terminal has stopped it.
        if self.group && self.has_some_out_of_reach() {
            self.send(Signal::CONT);
            return false;
        }
        self.phase = Phase::Paused;
        signals::stop_this_process();
        // In the foreground a shell continues both.
        self.send(Signal::STOP);
        true
    }

    /// In the foreground the terminal sends its signals to the command itself.
    fn pass_on(&mut self, signal: Signal) {
        if self.group || ![Signal::INT, Signal::QUIT].contains(&signal) {
            self.send(signal);
            if TELLING_TO_END.contains(&signal) {
                self.was_asked_to_end = true;
                // A command that is stopped, as by reading from the terminal, gets no other signal before.
                if !self.is_paused() {
                    self.send(Signal::CONT);
                }
            }
        }
    }

    fn send(&mut self, signal: Signal) {
        // Whether somebody is out of reach is looked at below. Otherwise the only error is that nobody is there any more.
        let _ = match self.status {
            _ if self.group => kill_process_group(self.pid, signal),
            None => kill_process(self.pid, signal),
            // Its number may be another's.
            Some(_) => Ok(()),
        };
        if !self.is_out_of_reach && self.has_some_out_of_reach() {
            self.is_out_of_reach = true;
            self.tell(
                "the command, or what it started, runs as another user, and signals do not reach it: it may work on without \
                 the lock. Run lambda-lock itself with the rights of that user, as with sudo lambda-lock run"
                    .to_owned(),
            );
        }
    }

    /// Tells it in a thread of its own: nobody may read it, and the command must end all the same.
    fn tell(&mut self, what: String) {
        // Where no thread can be had, the exit code says it.
        self.told.extend(thread::Builder::new().spawn(move || complain(&what)));
    }
}

/// The processes of a group, as Linux lists them.
fn members(group: Pid) -> impl Iterator<Item = Pid> {
    let listed = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    listed.filter_map(move |entry| {
        let pid = entry.file_name().to_str()?.parse().ok().and_then(Pid::from_raw)?;
        // PID (NAME) STATE PARENT GROUP …
        let stat = std::fs::read_to_string(entry.path().join("stat")).ok()?;
        let of = stat.rsplit_once(')')?.1.split_whitespace().nth(2)?.parse().ok();
        (of == Some(group.as_raw_pid())).then_some(pid)
    })
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
