//! Who belongs to a command: all that it started, as Linux lists it in `/proc`, also what has left its process group.
//!
//! ```text
//! lambda-lock ─┬ the command ─┬ what it started
//!              │              └ timeout, setsid, set -m, lambda-lock run: each in a group of its own
//!              ├ what has lost its parent: this process adopts it, so nothing leaves the family
//!              └ what is none of it: what this process starts for its credentials, and what it had started before
//! ```
//!
//! Nobody is found elsewhere than on Linux, or where `/proc` does not list this process. Then the process group is all there is.

use rustix::process::{Pid, WaitId, WaitIdOptions, WaitOptions, getpgrp, getpid, waitid, waitpid};
use std::collections::HashMap;
use std::fmt::Display;

/// How often `/proc` is read again, where somebody lost his parent while it was read. Of another user's parent nothing is seen
/// where `/proc` hides it.
const READS: usize = 3;

pub(crate) struct Family {
    command: Pid,
    /// The children that this process had before, as where a shell became it.
    strangers: Vec<Pid>,
}

/// A process that runs, or is stopped.
pub(crate) struct Member {
    pub(crate) pid: Pid,
    pub(crate) group: Pid,
}

struct Process {
    parent: i32,
    group: i32,
    /// It has ended, and its parent has not looked yet.
    has_ended: bool,
}

/// Adopts whoever loses his parent from now on. Returns the children that this process has already.
pub(crate) fn adopt() -> Vec<Pid> {
    // Linux has known it since 3.4.
    #[cfg(target_os = "linux")]
    let _ = rustix::process::set_child_subreaper(Some(getpid()));
    let is_child = |(pid, process): (Pid, Process)| (process.parent == getpid().as_raw_pid()).then_some(pid);
    listed().into_iter().filter_map(is_child).collect()
}

impl Family {
    pub(crate) fn new(command: Pid, strangers: Vec<Pid>) -> Self {
        Self { command, strangers }
    }

    /// Who has not ended. A number is signalled right after that: until a stranger had it, all numbers would have to be given.
    pub(crate) fn living(&self) -> Vec<Member> {
        let listed = listed();
        let mut children: HashMap<i32, Vec<Pid>> = HashMap::new();
        for (pid, process) in &listed {
            children.entry(process.parent).or_default().push(*pid);
        }
        let of = |pid: Pid| children.get(&pid.as_raw_pid()).into_iter().flatten().copied();
        let mut found: Vec<_> = of(getpid()).filter(|child| self.is_ours(*child, &listed[child])).collect();
        let mut looked_at = 0;
        while let Some(parent) = found.get(looked_at).copied() {
            found.extend(of(parent));
            looked_at += 1;
        }
        let living = found.into_iter().filter(|pid| !listed[pid].has_ended);
        living.filter_map(|pid| Some(Member { pid, group: Pid::from_raw(listed[&pid].group)? })).collect()
    }

    /// Asks for the end of those that were adopted and have ended. Not for the command's.
    pub(crate) fn reap(&self) {
        let peek = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        if !matches!(waitid(WaitId::All, peek), Ok(Some(_))) {
            return;
        }
        for (pid, process) in listed() {
            let is_child = process.parent == getpid().as_raw_pid();
            if is_child && process.has_ended && pid != self.command && self.is_ours(pid, &process) {
                let _ = waitpid(Some(pid), WaitOptions::NOHANG);
            }
        }
    }

    /// Whether a child of this process belongs to the command. What this process starts for its credentials is in its own group,
    /// and has its own environment. Who has ended has none, and is left to whoever waits for it.
    fn is_ours(&self, child: Pid, process: &Process) -> bool {
        let has_our_token = || token_of(child.as_raw_pid()) == token_of(getpid().as_raw_pid());
        let is_for_us = process.group == getpgrp().as_raw_pid() && (process.has_ended || has_our_token());
        child == self.command || !self.strangers.contains(&child) && !is_for_us
    }
}

/// The fencing token in the environment of a process that has not ended.
fn token_of(pid: impl Display) -> Option<Vec<u8>> {
    let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    let mut variables = environment.split(|byte| *byte == 0);
    variables.find_map(|variable| variable.strip_prefix(b"FENCING_TOKEN=").map(<[u8]>::to_vec))
}

/// All processes.
fn listed() -> HashMap<Pid, Process> {
    let mut listed = HashMap::new();
    // It may be that of another namespace, with other numbers.
    let is_own = std::fs::read_link("/proc/self").is_ok_and(|own| own.as_os_str() == &*getpid().to_string());
    for _ in 0..if is_own { READS } else { 0 } {
        let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
        listed = entries
            .filter_map(|entry| {
                let pid = entry.file_name().to_str()?.parse().ok().and_then(Pid::from_raw)?;
                Some((pid, read(&std::fs::read_to_string(entry.path().join("stat")).ok()?)?))
            })
            .collect();
        let is_known = |parent| Pid::from_raw(parent).is_none_or(|parent| listed.contains_key(&parent));
        if listed.values().all(|process| is_known(process.parent)) {
            break;
        }
    }
    listed
}

/// `PID (NAME) STATE PARENT GROUP … THREADS …`
fn read(stat: &str) -> Option<Process> {
    let fields: Vec<_> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let number = |index: usize| fields.get(index)?.parse::<i32>().ok();
    // The first thread of a process may end before the others.
    let has_ended = matches!(*fields.first()?, "Z" | "X") && number(17)? <= 1;
    Some(Process { parent: number(1)?, group: number(2)?, has_ended })
}
