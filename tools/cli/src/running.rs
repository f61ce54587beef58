//! A command that runs under a lock. It ends before the lock does, whatever a request does meanwhile.
//!
//! ```text
//! works ─┬ the lease nears its end, or the lock is lost .. SIGTERM ─┬ it ends, and all that it started
//!   ↑    │                                                          └ the lease or the grace ends .. SIGKILL
//!   │    ├ somebody tells it to end, and it ends ..................... what it started has the grace to end too
//!   │    ├ this process is to stop ... the command is stopped too ─┬ the lock is lost .............. SIGKILL
//!   │    └ this process has slept, and its lease nears its end ... ┤
//!   └──────────────────────────────── the lock was renewed ────────┘
//! ```

use crate::arguments::RunOptions;
use crate::exit;
use crate::family::{self, Family, Mark, Member};
use crate::run::complain;
use crate::screen::{self, LAST_WORDS};
use crate::signals::{self, Signals};
use crate::starter;
use lambda_lock::{Lock, LockWatch};
use rustix::io::Errno;
use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, WaitOptions, test_kill_process, test_kill_process_group, waitid, waitpgid,
};
use std::future::pending;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Child, ExitStatus};
use std::thread::{self, JoinHandle};
use std::time::{Duration, SystemTime};
use tokio::signal::unix::{self, SignalKind};
use tokio::time::{Instant, sleep, sleep_until, timeout};

/// How often the command and its lease are looked at although nothing is reported: this process may have been started with
/// SIGCHLD blocked, and a timer stands still while the machine is suspended, but a lease does not.
const LOOK: Duration = Duration::from_secs(1);

/// As [`LOOK`], while what the command started is waited for: its end may be reported to nobody.
const LOOK_AT_REST: Duration = Duration::from_millis(50);

/// The signals by which somebody tells a command to end.
const TELLING_TO_END: [Signal; 4] = [Signal::INT, Signal::QUIT, Signal::TERM, Signal::HUP];

pub(crate) struct Running {
    child: Child,
    pid: Pid,
    /// The command leads a process group of its own.
    group: bool,
    family: Family,
    /// SIGCHLD.
    child_changed: unix::Signal,
    watch: LockWatch,
    /// How long before the end of the lease the command is told to end.
    grace: Duration,
    /// When was looked last, by both clocks: one of them stands still while the machine is suspended.
    looked: (Instant, SystemTime),
    /// How much of the lease was left then.
    left: Duration,
    phase: Phase,
    /// Somebody has told the command to end, by a signal that was passed on.
    was_asked_to_end: bool,
    /// How the command itself ended.
    status: Option<ExitStatus>,
    /// Until when is waited for what it started.
    rest_until: Instant,
    /// It was said that signals do not reach it.
    is_out_of_reach: bool,
    /// It was said that the terminal has stopped it.
    wants_terminal: bool,
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
    /// This process was stopped and continued, or has slept: whether the lock is still ours must be seen now.
    RenewalIsDue,
}

impl Running {
    /// Starts the command. For the main thread.
    pub(crate) fn start(lock: &Lock, options: &RunOptions, grace: Duration) -> io::Result<Self> {
        let child_changed = unix::signal(SignalKind::child())?;
        let mut command = starter::command(&options.command);
        starter::with_empty_variables(&mut command);
        command.env("LOCK_KEY", lock.key().key()).env("FENCING_TOKEN", lock.fencing_token().to_string());
        if !options.foreground {
            command.process_group(0);
        }
        let (mark, is_alone) = (Mark::new(lock.fencing_token()), family::adopt());
        let (name, marks) = mark.variable();
        command.env(name, marks);
        let child = command.spawn().map_err(starter::reason)?;
        let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw).ok_or(io::ErrorKind::InvalidData)?;
        let (group, watch) = (!options.foreground, lock.watch());
        family::kill_after_panic(pid, group, mark.clone(), is_alone);
        family::reap_adopted(pid);
        Ok(Self {
            child,
            pid,
            group,
            family: Family::new(pid, group, mark, is_alone),
            child_changed,
            watch,
            grace,
            looked: (Instant::now(), SystemTime::now()),
            left: lock.remaining(),
            phase: Phase::Works,
            was_asked_to_end: false,
            status: None,
            rest_until: Instant::now(),
            is_out_of_reach: false,
            wants_terminal: false,
            told: Vec::new(),
        })
    }

    /// Passes on the signals that this process gets, and ends the command in time. Cancel safe.
    pub(crate) async fn next(&mut self, signals: &mut Signals) -> io::Result<Event> {
        loop {
            // By the clock, since a look at what it started may take long.
            if self.is_to_be_killed() {
                self.kill();
            }
            let begun = Instant::now();
            if self.has_ended()? {
                return Ok(Event::Ended);
            }
            // A command may have children without end. Most of the time is left to renewals and signals all the same.
            let rest = begun.elapsed() * 4;
            self.say_who_wants_the_terminal();
            if !self.was_told_to_end() && !self.watch.is_lost() && self.has_slept() {
                if self.watch.remaining() <= self.grace {
                    self.hold();
                }
                return Ok(Event::RenewalIsDue);
            }
            let time_is_over = time_is_over(&self.watch, self.grace, self.phase);
            let is_at_rest = self.status.is_some() || matches!(self.phase, Phase::Killed);
            let look = if is_at_rest { LOOK_AT_REST } else { LOOK };
            tokio::select! {
                () = async {
                    self.child_changed.recv().await;
                    sleep(rest).await;
                } => {}
                () = sleep(look.max(rest)) => {}
                () = time_is_over => if !self.was_told_to_end() && self.nears_the_end() {
                    return Ok(Event::RenewalIsDue);
                },
                signal = signals.next() => if !signals::stops(signal) {
                    self.pass_on(signal);
                // Who stops before the command has ended cannot end it in time.
                } else if !self.was_told_to_end() && self.pause() {
                    return Ok(Event::RenewalIsDue);
                },
            }
        }
    }

    fn is_paused(&self) -> bool {
        matches!(self.phase, Phase::Paused)
    }

    pub(crate) fn was_told_to_end(&self) -> bool {
        matches!(self.phase, Phase::Ends { .. } | Phase::Killed)
    }

    /// It was told to end, and may not run any longer.
    fn is_to_be_killed(&self) -> bool {
        let Phase::Ends { killed_at, lost } = self.phase else { return false };
        killed_at <= Instant::now() || !lost && self.watch.remaining().is_zero()
    }

    /// Whether this process could not look for long: it was stopped, or the machine was suspended, or a clock was set.
    fn has_slept(&mut self) -> bool {
        let has_slept = self.since_look() > 2 * LOOK;
        self.look();
        has_slept
    }

    fn look(&mut self) {
        (self.looked, self.left) = ((Instant::now(), SystemTime::now()), self.watch.remaining());
    }

    fn since_look(&self) -> Duration {
        self.looked.0.elapsed().max(self.looked.1.elapsed().unwrap_or_default())
    }

    /// Little is left of the lease. Whoever has slept could not renew it in time: then the command is stopped until that was
    /// tried. Otherwise it was tried, and the command ends. Returns whether a renewal is due.
    fn nears_the_end(&mut self) -> bool {
        // A command that works is told to end before its lease has ended, unless this process slept.
        let has_slept = self.has_slept() || !self.is_paused() && self.watch.remaining().is_zero();
        let is_due = has_slept && !self.watch.is_lost() && !self.was_told_to_end();
        if is_due {
            self.hold();
        } else {
            self.end();
        }
        is_due
    }

    /// Stops the command until the lock was renewed.
    fn hold(&mut self) {
        self.send_to_all(&[Signal::STOP]);
        self.phase = Phase::Paused;
    }

    /// The lock was renewed, or could not be: continues a command that was stopped, if its lease lasts. Returns whether it must
    /// be renewed at once.
    pub(crate) fn go_on(&mut self) -> bool {
        if self.watch.remaining() <= self.grace {
            return self.nears_the_end();
        }
        if self.is_paused() {
            self.phase = Phase::Works;
            // What was stopped could not end meanwhile.
            self.rest_until = Instant::now() + self.grace;
            self.send_to_all(&[Signal::CONT]);
        }
        false
    }

    /// Ends the command, and what it started.
    pub(crate) fn end(&mut self) {
        if self.was_told_to_end() {
            return;
        }
        let (lost, left) = (self.watch.is_lost(), self.watch.remaining());
        // A lock that was lost has no lease any more. Whoever slept through its end learns of the loss from its next renewal.
        let is_too_late = if lost { self.is_paused() || self.left <= self.since_look() } else { left.is_zero() };
        // What is stopped does nothing beside the next holder, so it is not continued.
        if is_too_late {
            self.kill();
        } else {
            self.phase = Phase::Ends { killed_at: Instant::now() + self.grace, lost };
            // A command that is stopped gets no other signal before SIGCONT.
            self.send_to_all(&[Signal::TERM, Signal::CONT]);
        }
        self.tell(if lost {
            "the lock is lost: the command is stopped".to_owned()
        } else if is_too_late {
            "the lease has ended: the command is killed".to_owned()
        } else {
            let (left, why) = (screen::span(left), exit::without_next_credentials());
            let why = why.map(|why| format!(", because {why}")).unwrap_or_default();
            format!("the lock cannot be renewed{why}, and its lease ends in {left}: the command is stopped")
        });
    }

    /// How the command ended, and what may still run although it was to end.
    pub(crate) async fn end_of_all(mut self) -> io::Result<End> {
        let status = self.child.wait()?;
        let left = if !self.waits_for_rest() || self.is_gone() {
            None
        } else if !self.was_told_to_end() && !self.has_some_out_of_reach() {
            // What nobody has killed has decided to stay in the background.
            self.tell("what the command started runs on, without the lock".to_owned());
            None
        } else if self.has_some_out_of_reach() {
            Some("what the command started runs as another user and cannot be killed")
        } else {
            Some("what the command started may still run")
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
        if matches!(self.phase, Phase::Killed) {
            // Somebody may have been started meanwhile.
            self.send_to_all(&[Signal::KILL]);
        }
        if self.status.is_none() {
            return Ok(false);
        }
        // Who is still stopped is continued or killed first, when it is known whose the lock is.
        if self.is_paused() && !self.is_gone() {
            return Ok(false);
        }
        if !self.waits_for_rest() {
            return Ok(true);
        }
        let is_over = !matches!(self.phase, Phase::Ends { .. }) && self.rest_until <= Instant::now();
        Ok(is_over || self.is_gone())
    }

    /// Otherwise, what a command started runs on in the background without the lock.
    fn waits_for_rest(&self) -> bool {
        self.was_asked_to_end || self.was_told_to_end()
    }

    /// Whether nothing is left of a command that has ended. Until then the number of its group is given to nobody else. After
    /// that, all numbers would have to be given between two looks before a stranger had it.
    fn is_gone(&self) -> bool {
        // Where they are not listed. Elsewhere than on Linux the first process of a container adopts them too.
        while let Ok(Some(_)) = waitpgid(self.pid, WaitOptions::NOHANG) {}
        (!self.group || test_kill_process_group(self.pid) == Err(Errno::SRCH)) && self.family.is_gone()
    }

    /// Whether something runs as another user, so that no signal of this process reaches it.
    fn has_some_out_of_reach(&self) -> bool {
        self.is_some_out_of_reach(&self.family.living().unwrap_or_default())
    }

    fn is_some_out_of_reach(&self, of: &[Member]) -> bool {
        let refuses = |tried| tried == Err(Errno::PERM);
        // Of a group this is said only where all are out of reach.
        (self.group && refuses(test_kill_process_group(self.pid)))
            || (self.status.is_none() && refuses(test_kill_process(self.pid)))
            || of.iter().any(|member| refuses(test_kill_process(member.pid)))
    }

    fn kill(&mut self) {
        self.phase = Phase::Killed;
        self.rest_until = Instant::now() + LAST_WORDS;
        self.send_to_all(&[Signal::KILL]);
    }

    /// Stops the command and then this process. Returns when somebody continues this process, or `false` where a part of the
    /// command would work on beside it, without its lock.
    fn pause(&mut self) -> bool {
        self.send_to_all(&[Signal::STOP]);
        // In the foreground the terminal has stopped it.
        if self.group && self.has_some_out_of_reach() {
            self.send_to_all(&[Signal::CONT]);
            return false;
        }
        self.phase = Phase::Paused;
        signals::stop_this_process();
        // A renewal is due anyway.
        self.look();
        // In the foreground a shell continues both.
        self.send_to_all(&[Signal::STOP]);
        true
    }

    /// Whoever left the group is told to end too, because the lock is released.
    fn pass_on(&mut self, signal: Signal) {
        let tells_to_end = TELLING_TO_END.contains(&signal);
        self.was_asked_to_end |= tells_to_end;
        // A command that is stopped, as by reading from the terminal, gets no other signal before SIGCONT.
        let signals = if self.is_paused() { &[signal][..] } else { &[signal, Signal::CONT] };
        if !self.group && [Signal::INT, Signal::QUIT].contains(&signal) {
            // In the foreground the terminal sends it to the command itself, and to all in its group.
            self.family.send_beyond_own_group(signals);
        } else if tells_to_end {
            self.send_to_all(signals);
        } else {
            self.family.send(signal, self.status.is_some());
            let living = self.family.living().unwrap_or_default();
            self.say_who_is_out_of_reach(&living);
        }
    }

    /// Sends them to the command and to all that it started.
    fn send_to_all(&mut self, signals: &[Signal]) {
        let found = self.family.send_to_all(signals, self.status.is_some());
        self.say_who_is_out_of_reach(&found);
    }

    /// Nobody but the terminal stops a command so, and in silence. Its lock is renewed: it may have begun something.
    fn say_who_wants_the_terminal(&mut self) {
        if !self.group || self.wants_terminal || self.status.is_some() {
            return;
        }
        let stopped = waitid(WaitId::Pid(self.pid), WaitIdOptions::STOPPED | WaitIdOptions::NOHANG);
        let by = stopped.ok().flatten().and_then(|status| status.stopping_signal());
        if [Signal::TTIN, Signal::TTOU].iter().any(|signal| by == Some(signal.as_raw())) {
            self.wants_terminal = true;
            self.tell(
                "the command is stopped, because it uses the terminal from a process group of its own. The lock is held and \
                 renewed meanwhile. End it, and run it with --foreground"
                    .to_owned(),
            );
        }
    }

    fn say_who_is_out_of_reach(&mut self, of: &[Member]) {
        if !self.is_out_of_reach && self.is_some_out_of_reach(of) {
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
