//! Who belongs to a command: all that it started, as Linux lists it in `/proc`, also what has left its process group.
//!
//! ```text
//! lambda-lock ─┬ the command ─┬ what it started
//!              │              └ timeout, setsid, set -m, lambda-lock run: each in a group of its own
//!              ├ what has lost its parent: this process adopts it. It belongs to the command where its group, its environment or
//!              │ an earlier look says so
//!              └ what is none of it: what this process starts for its credentials, what it had started before, and what either
//!                has left. As the first process of a container, also what enters the container
//! ```
//!
//! Nobody is found elsewhere than on Linux, or where `/proc` does not list this process. Then the process group is all there is.
//! Where `/proc` cannot be read for now, nobody is known to be gone.

use crate::asking::Asking;
use crate::proc::{Process, environment, listed, listed_children, own_group};
use rustix::io::Errno;
use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, WaitOptions, getpgrp, getpid, kill_process, kill_process_group, waitid, waitpid,
};
use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::panic;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// For how long is looked for who was started while others were stopped or killed.
const STARTED_MEANWHILE: Duration = Duration::from_secs(1);

/// A child that has ended for so long was adopted: who asks for credentials does not let their program wait.
const LEFT_ALONE: Duration = Duration::from_secs(1);

/// How long those that have ended wait for the next look at them.
const REAPED_EVERY: Duration = Duration::from_millis(10);

/// Waits for a child that has ended, and leaves it to whoever waits for it.
const LEFT: WaitIdOptions = WaitIdOptions::EXITED.union(WaitIdOptions::NOWAIT);

/// Held by whoever asks for the end of children, so that nobody reads their lists meanwhile: a list that becomes shorter while it
/// is read may leave out a child that lives.
static REAPING: Mutex<()> = Mutex::new(());

/// The variable that tells to which runs a process belongs: the outermost first.
const RUNS: &str = "LAMBDA_LOCK_RUNS";

/// How a run names itself to what its command starts.
#[derive(Clone, PartialEq)]
pub(crate) struct Mark(String);

pub(crate) struct Family {
    command: Pid,
    /// The command leads a process group of its own.
    group: bool,
    mark: Mark,
    /// All that this process adopts was left by its command, or by a program for its credentials.
    is_alone: bool,
    /// Who was found, with the time of his start: the number may be another's since.
    seen: RefCell<HashSet<(Pid, u64)>>,
    reserve: Reserve,
}

/// Files that are kept open, so that `/proc` can be read where this process may open no more of them.
#[derive(Default)]
struct Reserve(RefCell<Vec<File>>);

/// The files of the reserve are closed, until this is dropped.
struct Lent<'a>(&'a Reserve);

impl Reserve {
    fn filled() -> Self {
        let reserve = Self::default();
        drop(reserve.lend());
        reserve
    }

    fn lend(&self) -> Lent<'_> {
        self.0.borrow_mut().clear();
        Lent(self)
    }
}

impl Drop for Lent<'_> {
    fn drop(&mut self) {
        // For the directory, and for a file in it.
        self.0.0.borrow_mut().extend((0..2).filter_map(|_| File::open("/dev/null").ok()));
    }
}

/// A process that runs, or is stopped.
pub(crate) struct Member {
    pub(crate) pid: Pid,
    pub(crate) group: i32,
}

impl Mark {
    /// No other run has this token and number.
    pub(crate) fn new(fencing_token: u64) -> Self {
        Self(format!("{fencing_token}/{}", std::process::id()))
    }

    /// The variable that the command gets, behind the marks of the runs that this one belongs to.
    pub(crate) fn variable(&self) -> (&'static str, OsString) {
        let mut marks = std::env::var_os(RUNS).unwrap_or_default();
        if !marks.is_empty() {
            marks.push(" ");
        }
        marks.push(&self.0);
        (RUNS, marks)
    }

    /// The marks in the environment of a process. Not known of another user's, nor without an environment.
    fn all_of(pid: Pid) -> Option<Vec<Self>> {
        let environment = environment(pid).ok().filter(|read| !read.is_empty())?;
        let mut variables = environment.split(|byte| *byte == 0);
        let marks = variables.find_map(|variable| variable.strip_prefix(RUNS.as_bytes())?.strip_prefix(b"="));
        let marks = String::from_utf8_lossy(marks.unwrap_or_default()).into_owned();
        Some(marks.split_whitespace().map(|mark| Self(mark.to_owned())).collect())
    }

    /// Whether the environment of a process has it, where that is known.
    fn is_of(&self, pid: Pid) -> Option<bool> {
        Some(Self::all_of(pid)?.contains(self))
    }

    /// The number of the process that runs.
    fn run(&self) -> Option<Pid> {
        self.0.split_once('/').and_then(|(_, run)| run.parse().ok()).and_then(Pid::from_raw)
    }
}

/// Adopts whoever loses his parent from now on. Returns whether nobody else can leave a child to this process than what it
/// starts from now on.
pub(crate) fn adopt() -> bool {
    // Linux has known it since 3.4.
    #[cfg(target_os = "linux")]
    let _ = rustix::process::set_child_subreaper(Some(getpid()));
    let has_no_child = |all: HashMap<Pid, Process>| all.values().all(|one| one.parent != getpid().as_raw_pid());
    !getpid().is_init() && listed().is_ok_and(has_no_child)
}

/// Kills all of a command when this process panics: nobody renews its lock any more. The main thread is the one that does. In the
/// profile of a release each panic ends the process, and runs no `Drop`.
pub(crate) fn kill_after_panic(command: Pid, group: bool, mark: Mark, is_alone: bool) {
    let (main, tell) = (thread::current().id(), panic::take_hook());
    panic::set_hook(Box::new(move |panicked| {
        if cfg!(panic = "abort") || thread::current().id() == main {
            // In the foreground the command is found among the children. Its number may be another's, if it has ended.
            let _ = Family::new(command, group, mark.clone(), is_alone).send_to_all(&[Signal::KILL], true);
        }
        tell(panicked);
    }));
}

/// The children of this process. It may have some from before it became this program.
pub(crate) fn children() -> HashSet<Pid> {
    let listed = listed().unwrap_or_default();
    listed.iter().filter(|(_, process)| process.parent == getpid().as_raw_pid()).map(|(pid, _)| *pid).collect()
}

/// Kills what this process has started since it had these children, and what that has started.
pub(crate) fn kill_children_but(children: &HashSet<Pid>) {
    let listed = listed().unwrap_or_default();
    let mut parents = vec![getpid().as_raw_pid()];
    while let Some(parent) = parents.pop() {
        for (pid, _) in listed.iter().filter(|(pid, process)| process.parent == parent && !children.contains(*pid)) {
            let _ = kill_process(*pid, Signal::KILL);
            parents.push(pid.as_raw_pid());
        }
    }
}

fn reaping() -> MutexGuard<'static, ()> {
    REAPING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Asks for the end of those that are adopted, and end from now on. In a thread of its own: a command may leave thousands a second,
/// and its lease ends meanwhile. Where no thread can be had, they stay until this process ends.
pub(crate) fn reap_adopted(command: Pid) {
    let reap = move || {
        let (reserve, mut ended) = (Reserve::filled(), HashMap::new());
        loop {
            let _ = waitid(WaitId::All, LEFT);
            reap_ended(command, &reserve, &mut ended);
            thread::sleep(REAPED_EVERY);
        }
    };
    let _ = thread::Builder::new().spawn(reap);
}

/// Not the command's end, nor that of a program for the credentials: somebody waits for them. Nothing tells such a program from an
/// adopted child, so all are left alone for a while when one may run. Notes since when a child is known to have ended.
fn reap_ended(command: Pid, reserve: &Reserve, ended: &mut HashMap<(Pid, u64), Instant>) {
    let (_reaping, _lent) = (reaping(), reserve.lend());
    // Of all processes it would take so long that they became ever more.
    let Ok(listed) = listed_children().map_or_else(listed, Ok) else { return };
    // Who asks has begun before its program was listed.
    let (may_be_waited_for, now) = (Asking::is_under_way(), Instant::now());
    let has_ended =
        |pid: &Pid, process: &Process| *pid != command && process.parent == getpid().as_raw_pid() && process.has_ended;
    ended.retain(|(pid, begun), _| listed.get(pid).is_some_and(|process| process.begun == *begun));
    for (pid, process) in listed.iter().filter(|(pid, process)| has_ended(pid, process)) {
        let since = *ended.entry((*pid, process.begun)).or_insert(now);
        if !may_be_waited_for || now - since >= LEFT_ALONE {
            let _ = waitpid(Some(*pid), WaitOptions::NOHANG);
        }
    }
}

impl Family {
    pub(crate) fn new(command: Pid, group: bool, mark: Mark, is_alone: bool) -> Self {
        Self { command, group, mark, is_alone, seen: RefCell::default(), reserve: Reserve::filled() }
    }

    /// Sends it to the group of the command, or in the foreground to the command alone.
    pub(crate) fn send(&self, signal: Signal, command_has_ended: bool) {
        // Whether somebody is out of reach is looked at later. Otherwise the only error is that nobody is there any more.
        let _ = match command_has_ended {
            _ if self.group => kill_process_group(self.command, signal),
            false => kill_process(self.command, signal),
            // Its number may be another's.
            true => Ok(()),
        };
    }

    /// Stops the command, finds all that it started, and sends them to all of these. So SIGCONT is behind what does not stop or
    /// kill. What stops or kills also reaches what is started meanwhile: by somebody whom it has not reached yet. A run beneath this
    /// one passes on what tells to end. Returns who was found.
    pub(crate) fn send_to_all(&self, signals: &[Signal], command_has_ended: bool) -> Vec<Member> {
        // A look may take long, where a command starts many processes. What is stopped starts none meanwhile, and does nothing beside
        // the next holder.
        self.send(Signal::STOP, command_has_ended);
        // Whom a signal ends may leave others, who are known again then.
        let first = self.living().unwrap_or_default();
        signals.iter().for_each(|signal| self.send(*signal, command_has_ended));
        let is_sent_to = |member: &Member| match self.group {
            true => member.group == self.command.as_raw_pid(),
            false => member.pid == self.command && !command_has_ended,
        };
        let send = |member: &Member| signals.iter().for_each(|signal| _ = kill_process(member.pid, *signal));
        let is_for_all =
            [Signal::STOP, Signal::KILL, Signal::CONT].iter().any(|signal| signals.starts_with(&[*signal]));
        let is_told = |member: &Member| is_for_all || !self.is_of_inner_run(member, &first);
        first.iter().filter(|member| !is_sent_to(member) && is_told(member)).for_each(send);
        // Who only ends may start others for as long as it likes.
        if [Signal::STOP, Signal::KILL].iter().any(|signal| signals.contains(signal)) {
            let look = |at_all| if at_all { self.living().unwrap_or_default() } else { self.adopted() };
            reach_started_meanwhile(first, look, send)
        } else {
            first
        }
    }

    /// Sends them to all that the command started and that are not in the group of this process, whom the terminal does not reach.
    pub(crate) fn send_beyond_own_group(&self, signals: &[Signal]) {
        let own_group = getpgrp().as_raw_pid();
        let living = self.living().unwrap_or_default();
        let is_told = |member: &&Member| member.group != own_group && !self.is_of_inner_run(member, &living);
        for member in living.iter().filter(is_told) {
            signals.iter().for_each(|signal| _ = kill_process(member.pid, *signal));
        }
    }

    /// Whether nobody is left. What ends as soon as it has started another is seen by no look at all processes, but it is a child
    /// of this one when its parent has ended.
    pub(crate) fn is_gone(&self) -> bool {
        let _not_reaping = reaping();
        matches!(waitid(WaitId::All, LEFT | WaitIdOptions::NOHANG), Err(Errno::CHILD))
            || self.living().is_ok_and(|living| living.is_empty()) && self.adopted().is_empty()
    }

    /// Those among the children of this process that have not ended. They are known much sooner than all others, before a process
    /// that lives for some milliseconds has ended. Nobody is found where Linux was built without the lists of children.
    fn adopted(&self) -> Vec<Member> {
        let _lent = self.reserve.lend();
        let (children, own_group) = (listed_children().unwrap_or_default(), own_group());
        let living = children.into_iter().filter(|(pid, one)| !one.has_ended && self.is_ours(*pid, one, own_group));
        let member = |(pid, process): (Pid, Process)| {
            self.seen.borrow_mut().insert((pid, process.begun));
            Member { pid, group: process.group }
        };
        living.map(member).collect()
    }

    /// Who has not ended. A number is signalled right after that: until a stranger had it, all numbers would have to be given.
    /// Fails where that cannot be known for now.
    pub(crate) fn living(&self) -> io::Result<Vec<Member>> {
        let _lent = self.reserve.lend();
        let listed = listed()?;
        let mut children: HashMap<i32, Vec<Pid>> = HashMap::new();
        for (pid, process) in &listed {
            children.entry(process.parent).or_default().push(*pid);
        }
        let of = |pid: Pid| children.get(&pid.as_raw_pid()).into_iter().flatten().copied();
        let own_group = own_group();
        let mut found: Vec<_> = of(getpid()).filter(|child| self.is_ours(*child, &listed[child], own_group)).collect();
        let mut looked_at = 0;
        while let Some(parent) = found.get(looked_at).copied() {
            found.extend(of(parent));
            looked_at += 1;
        }
        self.seen.borrow_mut().extend(found.iter().map(|pid| (*pid, listed[pid].begun)));
        let living = found.into_iter().filter(|pid| !listed[pid].has_ended);
        Ok(living.map(|pid| Member { pid, group: listed[&pid].group }).collect())
    }

    /// Whether a child of this process belongs to the command. Where that is not known, it may.
    fn is_ours(&self, child: Pid, process: &Process, own_group: i32) -> bool {
        let is_in_its_group = self.group && process.group == self.command.as_raw_pid();
        let may_be = || self.is_alone && (!self.group || process.group != own_group);
        child == self.command
            || is_in_its_group
            || self.has_seen(child, process)
            || !process.has_ended && self.mark.is_of(child).unwrap_or_else(may_be)
    }

    /// Whether a run beneath this one passes on to it what it is told. That run may hold it stopped, because its own lease is over.
    fn is_of_inner_run(&self, member: &Member, living: &[Member]) -> bool {
        let marks = Mark::all_of(member.pid).unwrap_or_default();
        let inner = marks.iter().skip_while(|mark| **mark != self.mark).skip(1).filter_map(Mark::run);
        inner.into_iter().any(|run| run != member.pid && living.iter().any(|one| one.pid == run))
    }

    fn has_seen(&self, pid: Pid, process: &Process) -> bool {
        self.seen.borrow().contains(&(pid, process.begun))
    }
}

/// Reaches everybody else once: until neither a look at all nor one at the children finds anybody new. Returns who was reached.
fn reach_started_meanwhile(
    mut reached: Vec<Member>,
    mut look: impl FnMut(bool) -> Vec<Member>,
    mut send: impl FnMut(&Member),
) -> Vec<Member> {
    let until = Instant::now() + STARTED_MEANWHILE;
    let mut pids: HashSet<_> = reached.iter().map(|member| member.pid).collect();
    let (mut at_all, mut found_none) = (false, false);
    loop {
        let mut living = look(at_all);
        living.retain(|member| pids.insert(member.pid));
        living.iter().for_each(&mut send);
        if living.is_empty() && found_none || until <= Instant::now() {
            return reached;
        }
        found_none = living.is_empty();
        at_all = !at_all && found_none;
        reached.append(&mut living);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::{CommandExt, ExitStatusExt};
    use std::process::Command;

    /// Otherwise it works on while the others are stopped.
    #[test]
    fn who_was_started_while_the_others_were_stopped_is_stopped_too() {
        let members = |pids: &[i32]| -> Vec<_> {
            pids.iter().map(|pid| Member { pid: Pid::from_raw(*pid).unwrap(), group: *pid }).collect()
        };
        // What each look finds. The second one was started by the first one, and has started the third one.
        let mut found = [&[8][..], &[], &[8, 9], &[], &[8, 9]].into_iter();
        let mut stopped = Vec::new();
        let look = |_| members(found.next().unwrap());
        let reached = reach_started_meanwhile(members(&[7]), look, |member| stopped.push(member.group));
        assert_eq!(stopped, [8, 9]);
        assert_eq!(reached.iter().map(|member| member.group).collect::<Vec<_>>(), [7, 8, 9]);
    }

    /// A panic of the thread that renews the lock. Nothing else makes this process panic, as far as is known.
    #[test]
    fn a_panic_kills_what_the_command_started() {
        let (mark, is_alone) = (Mark::new(7), adopt());
        let (name, marks) = mark.variable();
        let mut start = Command::new("sh");
        let mut child = start
            .args(["-c", "setsid sleep 100 > /dev/null 2>&1 & wait"])
            .env(name, marks)
            .process_group(0)
            .spawn()
            .unwrap();
        let command = Pid::from_raw(child.id().cast_signed()).unwrap();
        let family = Family::new(command, true, mark.clone(), is_alone);
        while family.living().unwrap().len() < 2 {
            thread::sleep(Duration::from_millis(10));
        }
        let started = family.living().unwrap();
        kill_after_panic(command, true, mark, is_alone);
        let panicked = panic::catch_unwind(|| panic!("on purpose"));
        let _ = panic::take_hook();
        assert!(panicked.is_err());
        let ended = lambda_lock_testkit::ends_in(Duration::from_secs(20), "the command", move || child.wait().unwrap());
        assert_eq!(ended.signal(), Some(Signal::KILL.as_raw()));
        let lives =
            |pid: Pid| std::fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| stat.contains(") S "));
        assert!(!started.iter().any(|member| lives(member.pid)));
    }
}
