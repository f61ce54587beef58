//! What Linux lists in `/proc`: processes, with their parents and groups.
//!
//! A name in it may be any bytes, so nothing of it is read as UTF-8.

use rustix::io::Errno;
use rustix::process::{Pid, getpid};
use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// How often is looked again at who lost his parent while `/proc` was read, or was left by a child meanwhile. Of another user's
/// parent nothing is seen where `/proc` hides it.
const LOOKS_AGAIN: usize = 2;

pub(crate) struct Process {
    pub(crate) parent: i32,
    /// None is listed where it is that of another namespace.
    pub(crate) group: i32,
    pub(crate) begun: u64,
    /// It has ended, and its parent has not looked yet.
    pub(crate) has_ended: bool,
}

/// Of another namespace it is 0.
pub(crate) fn own_group() -> i32 {
    process_of("self").map_or(0, |own| own.group)
}

/// The children of this process. None where Linux was built without their lists.
pub(crate) fn listed_children() -> Option<HashMap<Pid, Process>> {
    with_next(named_children, |pid| process_of(&pid.to_string()))
}

/// The children of this process, by their numbers.
fn named_children() -> Option<Vec<Pid>> {
    let threads = if is_proc_own() { std::fs::read_dir("/proc/self/task").ok() } else { None };
    let lists = threads.into_iter().flatten().flatten();
    let lists: Vec<_> = lists.filter_map(|thread| text(thread.path().join("children")).ok()).collect();
    let children = lists.iter().flat_map(|list| list.split_whitespace()).filter_map(pid_of);
    if lists.is_empty() { None } else { Some(children.collect()) }
}

/// Names them again once they were looked at: whoever has ended meanwhile may have left another, which was no child before.
fn with_next(
    named: impl Fn() -> Option<Vec<Pid>>,
    look: impl Fn(Pid) -> Option<Process>,
) -> Option<HashMap<Pid, Process>> {
    let mut looked_at = HashMap::new();
    for _ in 0..=LOOKS_AGAIN {
        let mut next = named()?;
        next.retain(|pid| !looked_at.contains_key(pid));
        if next.is_empty() {
            break;
        }
        looked_at.extend(next.into_iter().map(|pid| (pid, look(pid))));
    }
    Some(looked_at.into_iter().filter_map(|(pid, process)| Some((pid, process?))).collect())
}

/// Whether `/proc` lists this process by its number. It may be that of another namespace, with other numbers.
fn is_proc_own() -> bool {
    std::fs::read_link("/proc/self").is_ok_and(|own| own.as_os_str() == &*getpid().to_string())
}

pub(crate) fn process_of(name: &str) -> Option<Process> {
    read(&text(format!("/proc/{name}/stat")).ok()?)
}

fn pid_of(name: &str) -> Option<Pid> {
    name.parse().ok().and_then(Pid::from_raw)
}

/// All processes. Fails where this process, or this machine, may open no more files.
pub(crate) fn listed() -> io::Result<HashMap<Pid, Process>> {
    let mut listed = HashMap::new();
    if !is_proc_own() {
        return Ok(listed);
    }
    let names = std::fs::read_dir("/proc").map(Some).or_else(unless_gone)?.into_iter().flatten().flatten();
    // Named first: whoever is started meanwhile would be listed without end.
    let pids: Vec<_> = names.filter_map(|entry| entry.file_name().to_str().and_then(pid_of)).collect();
    for pid in pids {
        listed.extend(listed_as(pid)?.map(|process| (pid, process)));
    }
    with_parents(&mut listed, listed_as)?;
    Ok(listed)
}

/// None where it has ended since it was named, or is hidden from this user.
fn listed_as(pid: Pid) -> io::Result<Option<Process>> {
    let stat = text(format!("/proc/{pid}/stat")).map(Some).or_else(unless_gone)?;
    Ok(stat.and_then(|stat| read(&stat)))
}

/// Looks again at those whose parent is not listed: they have lost it since, or it was started meanwhile.
fn with_parents(
    listed: &mut HashMap<Pid, Process>,
    mut look: impl FnMut(Pid) -> io::Result<Option<Process>>,
) -> io::Result<()> {
    for _ in 0..LOOKS_AGAIN {
        let unknown = |process: &Process| Pid::from_raw(process.parent).filter(|parent| !listed.contains_key(parent));
        let of_unknown: Vec<_> = listed.iter().filter_map(|(pid, process)| Some([*pid, unknown(process)?])).collect();
        for pid in of_unknown.into_iter().flatten() {
            match look(pid)? {
                Some(process) => _ = listed.insert(pid, process),
                None => _ = listed.remove(&pid),
            }
        }
    }
    Ok(())
}

/// Otherwise this process, or this machine, may open no more files, or has no memory: nothing is known then.
fn unless_gone<T>(error: io::Error) -> io::Result<Option<T>> {
    let gone_or_hidden =
        [Errno::NOENT, Errno::SRCH, Errno::ACCESS, Errno::PERM].map(|errno| Some(errno.raw_os_error()));
    if gone_or_hidden.contains(&error.raw_os_error()) { Ok(None) } else { Err(error) }
}

/// `PID (NAME) STATE PARENT GROUP … THREADS … BEGUN …`
fn read(stat: &str) -> Option<Process> {
    let fields: Vec<_> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let number = |index: usize| fields.get(index)?.parse::<i32>().ok();
    // The first thread of a process may end before the others.
    let has_ended = matches!(*fields.first()?, "Z" | "X") && number(17)? <= 1;
    Some(Process { parent: number(1)?, group: number(2)?, begun: fields.get(19)?.parse().ok()?, has_ended })
}

/// The environment of a process, by one read: a process that runs another program between two reads would be known in part.
pub(crate) fn environment(pid: Pid) -> io::Result<Vec<u8>> {
    let file = File::open(format!("/proc/{pid}/environ"))?;
    let mut environment = vec![0; 1 << 14];
    loop {
        let length = file.read_at(&mut environment, 0)?;
        if length < environment.len() {
            environment.truncate(length);
            return Ok(environment);
        }
        environment.resize(2 * length, 0);
    }
}

/// A file of `/proc`.
pub(crate) fn text(path: impl AsRef<Path>) -> io::Result<String> {
    Ok(String::from_utf8_lossy(&std::fs::read(path)?).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::{Cell, RefCell};

    fn process(pid: i32, parent: i32) -> (Pid, Process) {
        (Pid::from_raw(pid).unwrap(), Process { parent, group: pid, begun: 0, has_ended: false })
    }

    #[test]
    fn a_long_environment_is_read_in_whole() {
        for length in [0, 1 << 14, 100_000] {
            let mut sleep = std::process::Command::new("sleep");
            let mut child = sleep.arg("100").env_clear().env("A", "x".repeat(length)).env("Z", "last").spawn().unwrap();
            let read = environment(Pid::from_raw(child.id().cast_signed()).unwrap()).unwrap();
            child.kill().unwrap();
            child.wait().unwrap();
            assert_eq!(String::from_utf8(read).unwrap(), format!("A={}\0Z=last\0", "x".repeat(length)));
        }
    }

    #[test]
    fn who_was_left_by_a_child_that_ended_before_it_was_looked_at_is_found_too() {
        let pid = |pid| Pid::from_raw(pid).unwrap();
        let ended = |pid| Some(Process { has_ended: true, ..process(pid, 1).1 });
        // Each look finds that the last one has ended, and 9 lives.
        let names = RefCell::new([&[7][..], &[7, 8], &[7, 8, 9]].into_iter());
        let named = || Some(names.borrow_mut().next()?.iter().map(|number| pid(*number)).collect());
        let look = |one: Pid| if one == pid(9) { Some(process(9, 1).1) } else { ended(one.as_raw_pid()) };
        let found = with_next(named, look).unwrap();
        assert_eq!(found.len(), 3);
        assert!(found[&pid(8)].has_ended && !found[&pid(9)].has_ended);
        // Nobody new: one look more shows it, and a number that has gone is asked for once.
        let asked = Cell::new(0);
        let gone = |_| {
            asked.set(asked.get() + 1);
            None
        };
        assert!(with_next(|| Some(vec![pid(7)]), gone).unwrap().is_empty());
        assert_eq!(asked.get(), 1);
        assert!(with_next(|| None, |_| None).is_none());
    }

    #[test]
    fn who_lost_his_parent_while_all_were_listed_is_looked_at_again() {
        let pid = |pid| Pid::from_raw(pid).unwrap();
        // Of 7 the parent 6 has ended before it was listed, and then its next one, 5.
        let looked = |mut later: Vec<(Pid, Process)>| {
            let mut listed = HashMap::from([process(1, 0), process(7, 6)]);
            let look = |of| Ok(later.iter().position(|(pid, _)| *pid == of).map(|at| later.remove(at).1));
            with_parents(&mut listed, look).unwrap();
            listed.remove(&pid(7)).map(|process| (process.parent, listed.contains_key(&pid(process.parent))))
        };
        assert_eq!(looked(vec![process(7, 1)]), Some((1, true)));
        assert_eq!(looked(vec![process(7, 5), process(7, 1)]), Some((1, true)));
        // It was started meanwhile.
        assert_eq!(looked(vec![process(7, 6), process(6, 1)]), Some((6, true)));
        // The parent of another user is never listed where `/proc` hides it.
        assert_eq!(looked(vec![process(7, 6), process(7, 6)]), Some((6, false)));
        assert_eq!(looked(vec![]), None);
    }
}
