//! `run`: what the command started, and what no signal reaches.

use crate::hostile::behind;
use crate::place::{Ended, Place};
use crate::run::{PATIENCE, break_it, ended, file, is_running, millis, run, signal, spawned, written};
use crate::run_signals::{beats, is, until, until_both_are_stopped};
use lambda_lock::{Budget, ReleaseOutcome};
use lambda_lock_local::authorize::Fate;
use lambda_lock_testkit::soon_so;
use rustix::process::{Pid, Signal, geteuid, kill_process};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use tokio::process::Command;
use tokio::time::sleep;

/// A shell that ends at SIGTERM, and a worker that it has started, with what that does then.
struct Worker {
    ready: PathBuf,
    cleaned: PathBuf,
    script: String,
}

impl Worker {
    fn new(name: &str, at_sigterm: &str) -> Self {
        let (ready, cleaned) = (file(&format!("{name}-ready")), file(&format!("{name}-cleaned")));
        let script = format!(
            "sh -c 'trap \"{at_sigterm}\" TERM; echo $$ > {}; while :; do sleep 0.05; done' > /dev/null 2>&1 & wait",
            ready.display()
        );
        let script = script.replace("CLEANED", cleaned.to_str().unwrap());
        Self { ready, cleaned, script }
    }
}

/// What cleans up for three seconds.
const CLEANS_UP: &str = "sleep 3; echo done > CLEANED; exit";

fn kill(pid: &str) {
    kill_process(Pid::from_raw(pid.parse().unwrap()).unwrap(), Signal::KILL).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_command_started_may_clean_up_when_the_lock_is_lost() {
    let place = Place::new().await;
    let worker = Worker::new("lost-cleans", CLEANS_UP);
    let child = spawned(run(&place, &["--lease", "30s"], &worker.script));
    let pid = written(&worker.ready).await;
    break_it(&place).await;
    let ended = ended(child).await;
    assert_eq!(ended.code(), 76, "{ended:?}");
    assert!(worker.cleaned.exists() && !is_running(&pid), "{ended:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_command_started_is_killed_when_it_does_not_end() {
    let place = Place::new().await;
    let worker = Worker::new("lost-ignores", ":");
    let child = spawned(run(&place, &["--lease", "6s", "--kill-after", "1s"], &worker.script));
    let pid = written(&worker.ready).await;
    break_it(&place).await;
    let ended = ended(child).await;
    assert_eq!(ended.code(), 76, "{ended:?}");
    assert!(!is_running(&pid), "{ended:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_lock_is_held_while_what_the_command_started_cleans_up() {
    let place = Place::new().await;
    let worker = Worker::new("told-cleans", CLEANS_UP);
    let child = spawned(run(&place, &["--lease", "1h"], &worker.script));
    let pid = written(&worker.ready).await;
    signal(&child, Signal::TERM);
    let ended = ended(child).await;
    assert_eq!(ended.code(), 128 + 15, "{ended:?}");
    assert!(worker.cleaned.exists() && !is_running(&pid), "{ended:?}");
    assert!(place.is_free("k").await);
}

/// A service that the command has left in the background.
#[tokio::test(flavor = "multi_thread")]
async fn what_ignores_that_somebody_ends_the_command_runs_on() {
    let place = Place::new().await;
    let worker = Worker::new("told-ignores", ":");
    let child = spawned(run(&place, &["--lease", "1h", "--kill-after", "500ms"], &worker.script));
    let pid = written(&worker.ready).await;
    signal(&child, Signal::TERM);
    let ended = ended(child).await;
    assert_eq!(ended.code(), 128 + 15, "{ended:?}");
    assert!(ended.err.contains("what the command started runs on, without the lock"), "{ended:?}");
    assert!(place.is_free("k").await && is_running(&pid));
    kill(&pid);
}

/// A worker that has left the process group, and the command, whose number the shell writes.
fn in_a_session_of_its_own(worker: &Worker, command: &Path) -> String {
    format!("trap 'exit 0' TERM; echo $$ > {}; setsid {}", command.display(), worker.script)
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_stopped_while_it_was_waited_for_has_its_time_when_it_is_continued() {
    for cleans_up in [true, false] {
        let place = Place::new().await;
        let (go, command) = (file("stopped-rest-go"), file("stopped-rest-command"));
        let at_sigterm = format!("until [ -e {} ]; do sleep 0.05; done; echo done > CLEANED; exit", go.display());
        let worker = Worker::new("stopped-rest", if cleans_up { &at_sigterm } else { ":" });
        let script = in_a_session_of_its_own(&worker, &command);
        let child = spawned(run(&place, &["--lease", "1h", "--kill-after", "4s"], &script));
        let (pid, command) = (written(&worker.ready).await, written(&command).await);
        signal(&child, Signal::TERM);
        until("the command ends", || !is_running(&command)).await;
        signal(&child, Signal::TSTP);
        until_both_are_stopped(&child, &pid).await;
        // For longer than it is waited for.
        sleep(millis(4_500)).await;
        signal(&child, Signal::CONT);
        until("it is continued", || !is(&pid, 'T')).await;
        sleep(millis(500)).await;
        assert!(!place.is_free("k").await, "it may clean up before the lock is released");
        std::fs::write(&go, "").unwrap();
        let ended = ended(child).await;
        assert_eq!((ended.code(), ended.err.contains("runs on, without the lock")), (0, !cleans_up), "{ended:?}");
        assert_eq!((worker.cleaned.exists(), is_running(&pid)), (cleans_up, !cleans_up), "{ended:?}");
        assert!(place.is_free("k").await);
        if !cleans_up {
            until("it runs on", || !is(&pid, 'T')).await;
            kill(&pid);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_command_that_was_killed_while_it_was_stopped_leaves_is_continued_or_killed() {
    for (is_lost, session) in [(false, "setsid"), (false, ""), (true, "setsid"), (true, "")] {
        let place = Place::new().await;
        let (ready, work, command) = (file("left-stopped"), file("left-stopped-work"), file("left-stopped-command"));
        let script = format!(
            "echo $$ > {}; {session} sh -c 'echo $$ > {}; while :; do echo x >> {}; sleep 0.02; done' > /dev/null 2>&1 & wait",
            command.display(),
            ready.display(),
            work.display()
        );
        let child = spawned(run(&place, &["--lease", "1h"], &script));
        let (pid, command) = (written(&ready).await, written(&command).await);
        until("it works", || beats(&work) > 0).await;
        signal(&child, Signal::TSTP);
        until_both_are_stopped(&child, &pid).await;
        let done = beats(&work);
        kill(&command);
        if is_lost {
            break_it(&place).await;
        }
        signal(&child, Signal::CONT);
        let ended = ended(child).await;
        assert_eq!(ended.code(), if is_lost { 76 } else { 128 + 9 }, "{ended:?}");
        if is_lost {
            assert!(!is_running(&pid) && beats(&work) == done, "{session}: {ended:?}");
        } else {
            until("it works on", || beats(&work) > done).await;
            kill(&pid);
        }
        assert!(place.is_free("k").await);
    }
}

/// The first copy of the release is applied, and the next one is refused by the row of another holder.
#[tokio::test(flavor = "multi_thread")]
async fn a_release_without_a_response_is_not_said_to_find_a_lost_lock() {
    let place = Place::new().await;
    let proxy = behind(&place).await;
    let come = AtomicU32::new(0);
    proxy.decide(move |_| match come.fetch_add(1, Ordering::Relaxed) {
        1 => Fate::AppliedLate(millis(0)),
        _ => Fate::Answered,
    });
    let mut command = run(&place, &["--lease", "1h"], "exit 7");
    command.env("AWS_ENDPOINT_URL_DYNAMODB", proxy.endpoint());
    let locks = place.locks("next");
    let next = async {
        // Until the command has it, and then until it is released.
        soon_so("it is held", async || locks.operator().peek("k").await.unwrap().is_some()).await;
        let budget = Budget::lasting(PATIENCE);
        locks.acquire("k").out_of_turn().lease(millis(60_000)).within(&budget).await.unwrap()
    };
    let (ended, next) = tokio::join!(ended(spawned(command)), next);
    assert_eq!(ended.code(), 69, "{ended:?}");
    assert!(ended.err.contains("Nobody can tell which"), "{ended:?}");
    assert!(ended.err.contains("the command ended with exit code 7"), "{ended:?}");
    assert_eq!(next.release().await.unwrap(), ReleaseOutcome::Released);
}

/// What `lambda-lock` may open no more files for, it does not take for gone.
#[tokio::test(flavor = "multi_thread")]
async fn what_the_command_started_is_ended_also_where_no_more_files_can_be_opened() {
    if std::process::Command::new("prlimit").arg("--version").output().is_err() {
        skipped("prlimit");
        return;
    }
    // Nothing below the first number that is free, or nothing at all.
    let first_free = "n=0; while [ -e /proc/$PPID/fd/$n ]; do n=$((n+1)); done";
    for (limit, is_found) in [(first_free, true), ("n=0", false)] {
        let place = Place::new().await;
        let (ready, limited) = (file("no-files-ready"), file("no-files-limited"));
        let script = format!(
            "setsid sh -c 'echo $$ > {}; exec sleep 1000' > /dev/null 2>&1 & {limit}; prlimit --pid $PPID --nofile=$n:$n; \
             echo done > {}; exec sleep 1000",
            ready.display(),
            limited.display()
        );
        let child = spawned(run(&place, &["--lease", "4s", "--kill-after", "1s"], &script));
        let pid = written(&ready).await;
        written(&limited).await;
        break_it(&place).await;
        let ended = ended(child).await;
        if is_found {
            assert!(!is_running(&pid), "{ended:?}");
            assert_eq!(ended.code(), 76, "{ended:?}");
        } else {
            kill(&pid);
            assert!(ended.err.contains("what the command started may still run"), "{ended:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_that_was_broken_is_lost_also_when_nobody_has_acquired_it_since() {
    let place = Place::new().await;
    let (ready, go) = (file("broken-ready"), file("broken-go"));
    let script = format!("echo $$ > {}; while [ ! -e {} ]; do sleep 0.02; done", ready.display(), go.display());
    let child = spawned(run(&place, &["--lease", "1h"], &script));
    written(&ready).await;
    break_it(&place).await;
    std::fs::write(&go, "").unwrap();
    let ended = ended(child).await;
    assert_eq!(ended.code(), 76, "{ended:?}");
    assert!(ended.err.contains("was lost before it was released"), "{ended:?}");
    assert!(ended.err.contains("the command ended with exit code 0"), "{ended:?}");
}

/// Not `eprintln!`, because the test harness would hold it back.
pub(crate) fn skipped(what: &str) {
    let _ = writeln!(std::io::stderr(), "SKIPPED: a test of run that needs {what}");
}

/// `lambda-lock` without the right to signal other users. Only root can start commands as another user. Prints why there is
/// none.
fn without_rights(place: &Place, options: &[&str], script: &str) -> Option<Command> {
    if !geteuid().is_root() || std::process::Command::new("setpriv").arg("--version").output().is_err() {
        skipped("root and setpriv, to start a command as another user");
        return None;
    }
    let inner = run(place, options, script);
    let inner = inner.as_std();
    let mut command = Command::new("setpriv");
    command.arg("--bounding-set=-kill").arg(inner.get_program()).args(inner.get_args()).kill_on_drop(true);
    command.env_clear().envs(inner.get_envs().filter_map(|(name, value)| Some((name, value?))));
    Some(command)
}

/// A part of a script that becomes another user's, as `sudo` does.
fn of_another_user(ready: &std::path::Path) -> String {
    format!("echo $$ > {}; exec setpriv --reuid=65534 --clear-groups sleep 1000 > /dev/null 2>&1", ready.display())
}

/// The number of a process, once it is another user's.
async fn has_changed(ready: &std::path::Path) -> String {
    let pid = written(ready).await;
    soon_so("it is another user's", async || {
        std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default().contains("Uid:\t65534")
    })
    .await;
    pid
}

fn is_said(ended: &Ended) {
    assert!(ended.err.contains("runs as another user, and signals do not reach it"), "{ended:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_of_another_user_keeps_its_lock_and_it_is_said_that_no_signal_reaches_it() {
    let place = Place::new().await;
    let ready = file("other-user");
    let Some(command) = without_rights(&place, &["--lease", "6s"], &of_another_user(&ready)) else { return };
    let child = spawned(command);
    let pid = has_changed(&ready).await;
    for sent in [Signal::TERM, Signal::TSTP] {
        signal(&child, sent);
        // For longer than the lease.
        sleep(millis(7_000)).await;
        assert!(is_running(&pid), "{sent:?}");
        assert!(!place.is_free("k").await, "{sent:?}");
        let is_renewed =
            place.locks("next").acquire("k").lease(millis(5_000)).try_once().await.unwrap().granted().is_none();
        assert!(is_renewed, "{sent:?}: it is renewed");
    }
    kill(&pid);
    let ended = ended(child).await;
    assert_eq!(ended.code(), 128 + 9, "{ended:?}");
    is_said(&ended);
    assert!(place.is_free("k").await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_is_left_to_its_lease_while_something_of_another_user_may_still_run() {
    let place = Place::new().await;
    for is_lost in [false, true] {
        let ready = file(&format!("other-user-{is_lost}"));
        // The shell ends at once.
        let script = format!("sh -c '{}' & wait", of_another_user(&ready));
        let options = ["--lease", if is_lost { "3s" } else { "1h" }, "--kill-after", "500ms"];
        let Some(command) = without_rights(&place, &options, &script) else { return };
        let child = spawned(command);
        let pid = has_changed(&ready).await;
        if is_lost {
            break_it(&place).await;
        } else {
            signal(&child, Signal::TERM);
        }
        let ended = ended(child).await;
        assert!(is_running(&pid));
        kill(&pid);
        assert_eq!(ended.code(), if is_lost { 76 } else { 77 }, "{ended:?}");
        is_said(&ended);
        let of_lock = if is_lost { "beside the next holder" } else { "is held until its lease ends" };
        assert!(ended.err.contains("cannot be killed") && ended.err.contains(of_lock), "{ended:?}");
        if !is_lost {
            assert!(!place.is_free("k").await, "{ended:?}");
            break_it(&place).await;
        }
    }
}

/// One of another user keeps `lambda-lock` waiting meanwhile.
#[tokio::test(flavor = "multi_thread")]
async fn what_joins_the_command_after_it_was_killed_is_killed_too() {
    let place = Place::new().await;
    let (ready, joins) = (file("joined-by-another-user"), file("joins-late"));
    // Nobody knows it until it has the variable again.
    let late = "trap \"\" TERM; while kill -0 $COMMAND; do sleep 0.02; done; export LAMBDA_LOCK_RUNS=\"$RUNS\"; exec sleep 1000";
    let script = format!(
        "trap '' TERM; export COMMAND=$$ RUNS=\"$LAMBDA_LOCK_RUNS\"
         (env -u LAMBDA_LOCK_RUNS setsid sh -c 'echo $$ > {}; {late}' > /dev/null 2>&1 &)
         sh -c '{}' & while :; do sleep 0.05; done",
        joins.display(),
        of_another_user(&ready)
    );
    let Some(command) = without_rights(&place, &["--lease", "30s", "--kill-after", "500ms"], &script) else { return };
    let child = spawned(command);
    let (other, late) = (has_changed(&ready).await, written(&joins).await);
    break_it(&place).await;
    let ended = ended(child).await;
    kill(&other);
    let joined = std::fs::read_to_string(format!("/proc/{late}/comm")).unwrap_or_default();
    assert!(!is_running(&late), "{joined}: {ended:?}");
    assert_eq!(ended.code(), 76, "{ended:?}");
}

/// Nobody has to look at the end of what he started.
#[tokio::test(flavor = "multi_thread")]
async fn what_has_ended_as_another_user_is_not_out_of_reach() {
    let place = Place::new().await;
    let (ready, zombie) = (file("zombie-of-another-ready"), file("zombie-of-another"));
    // It ends when the shell is no shell any more: a shell looks at the end of what it started.
    let until_exec = "until grep -q sleep /proc/$PPID/comm; do sleep 0.05; done";
    let script = format!(
        "setpriv --reuid=65534 --clear-groups sh -c '{until_exec}' & echo $! > {}; echo $$ > {}; exec sleep 1000",
        zombie.display(),
        ready.display()
    );
    let Some(command) = without_rights(&place, &["--lease", "1h"], &script) else { return };
    let child = spawned(command);
    written(&ready).await;
    let zombie = written(&zombie).await;
    soon_so("it has ended", async || is(&zombie, 'Z')).await;
    signal(&child, Signal::TERM);
    let ended = ended(child).await;
    assert_eq!((ended.code(), ended.err.as_str()), (128 + 15, ""), "{ended:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn where_proc_is_missing_it_is_said() {
    let place = Place::new().await;
    let hidden = |program: &str| {
        let mut command = std::process::Command::new("unshare");
        command.args(["--map-root-user", "--mount", "sh", "-c"]);
        command.args(["mount -t tmpfs none /proc && exec \"$0\" \"$@\"", program]);
        command
    };
    if !hidden("true").output().is_ok_and(|output| output.status.success()) {
        skipped("unshare and a user namespace, to hide /proc");
        return;
    }
    let inner = run(&place, &[], "echo ran");
    let mut command = hidden(env!("CARGO_BIN_EXE_lambda-lock"));
    command.args(inner.as_std().get_args()).env_clear();
    command.envs(inner.as_std().get_envs().filter_map(|(name, value)| Some((name, value?))));
    let ended = ended(spawned(command.into())).await;
    assert_eq!((ended.code(), ended.out.as_str()), (126, ""), "{ended:?}");
    assert!(ended.err.contains("mount /proc"), "{ended:?}");
    assert!(place.is_free("k").await);
}
