//! `run`: the command, its signals, and what is left of the lock.

use crate::place::{Ended, Place, TABLE, end};
use aws_sdk_dynamodb::types::AttributeValue;
use lambda_lock::{Budget, Lock, Tried};
use lambda_lock_testkit::soon_so;
use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};
use tokio::process::{Child, Command};
use tokio::time::sleep;

pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// A file that a shell script of a test writes.
pub(crate) fn file(name: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = std::fs::remove_file(&path);
    path
}

pub(crate) async fn written(path: &Path) -> String {
    let begun = Instant::now();
    loop {
        match std::fs::read_to_string(path) {
            Ok(text) if text.ends_with('\n') => return text.trim().to_owned(),
            _ => assert!(begun.elapsed() < PATIENCE, "nobody wrote {}", path.display()),
        }
        sleep(millis(20)).await;
    }
}

pub(crate) fn run(place: &Place, options: &[&str], script: &str) -> Command {
    let mut command = place.command();
    command.args(["run", "k"]).args(options).args(["--", "sh", "-c", script]);
    command
}

pub(crate) fn spawned(mut command: Command) -> Child {
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

pub(crate) async fn ended(child: Child) -> Ended {
    let output = tokio::time::timeout(PATIENCE, child.wait_with_output()).await.unwrap().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Ended { status: output.status, out: text(output.stdout), err: text(output.stderr) }
}

pub(crate) fn signal(child: &Child, signal: Signal) {
    kill_process(Pid::from_raw(child.id().unwrap().cast_signed()).unwrap(), signal).unwrap();
}

/// What Linux says of a process. Its name may be any bytes.
pub(crate) fn stat(pid: &str) -> String {
    String::from_utf8_lossy(&std::fs::read(format!("/proc/{pid}/stat")).unwrap_or_default()).into_owned()
}

pub(crate) fn is_running(pid: &str) -> bool {
    // A zombie has ended: its parent has only not looked yet.
    let stat = stat(pid);
    test_kill_process(Pid::from_raw(pid.parse().unwrap()).unwrap()).is_ok() && !stat.contains(") Z ")
}

pub(crate) async fn break_it(place: &Place) {
    let locks = place.locks("operator");
    let seen = locks.operator().peek("k").await.unwrap().unwrap();
    // A renewal may come between.
    if locks.operator().break_lock("k", &seen, "test").await.unwrap() == lambda_lock::ReleaseOutcome::AlreadyGone {
        Box::pin(break_it(place)).await;
    }
}

/// The lock, as soon as its holder is dead by the clock on the wall: when its lease has ended for longer than clocks may differ.
pub(crate) async fn next_of(place: &Place) -> Lock {
    let begun = Instant::now();
    loop {
        let tried = place.locks("next").acquire("k").lease(Duration::from_secs(3600)).try_once().await.unwrap();
        if let Some(lock) = tried.granted() {
            return lock;
        }
        assert!(begun.elapsed() < PATIENCE, "the holder goes on");
        sleep(millis(50)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_command_has_key_and_token_and_its_exit_code_is_returned() {
    let place = Place::new().await;
    let ended = end(&mut run(&place, &[], "echo $LOCK_KEY $FENCING_TOKEN; exit 7")).await;
    assert_eq!(ended.code(), 7);
    let token = place.locks("test").operator().peek("k").await.unwrap().unwrap().fencing_token.unwrap();
    assert_eq!(ended.out, format!("k {token}\n"));
    assert!(place.is_free("k").await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_that_is_killed_or_cannot_be_started_leaves_the_lock_free() {
    let place = Place::new().await;
    assert_eq!(end(&mut run(&place, &[], "kill -9 $$")).await.code(), 128 + 9);
    assert!(place.is_free("k").await);
    for (program, code) in [("/no-such-program", 127), ("/", 126)] {
        let ended = place.run(&["run", "k", "--", program]).await;
        assert_eq!(ended.code(), code, "{ended:?}");
        assert!(ended.err.contains("cannot be started"), "{ended:?}");
        assert!(place.is_free("k").await);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_of_another_holder_is_not_waited_for_unless_it_is_told_to() {
    let place = Place::new().await;
    let lock = place.held("k", "other").await;
    let ended = end(&mut run(&place, &[], "echo ran")).await;
    assert_eq!((ended.code(), ended.out.as_str()), (75, ""), "{ended:?}");
    let waiting = spawned(run(&place, &["--wait", "60s"], "echo ran"));
    // It is right at any time.
    sleep(millis(300)).await;
    lock.release().await.unwrap();
    assert_eq!(self::ended(waiting).await.done(), "ran\n");
}

/// They wait in line themselves. The command does not, and would be refused for as long as there is a line.
#[tokio::test(flavor = "multi_thread")]
async fn a_free_lock_is_acquired_also_while_others_wait_in_line() {
    let place = Place::new().await;
    for arguments in [&["acquire", "k"][..], &["run", "k", "--", "true"]] {
        let lock = place.held("k", "holder").await;
        let waits = tokio::spawn({
            let locks = place.locks("waits");
            async move { locks.acquire("k").within(&Budget::lasting(PATIENCE)).await }
        });
        soon_so("somebody waits in line", async || {
            place.locks("test").operator().peek("k").await.unwrap().is_some_and(|lock| lock.waiting == 1)
        })
        .await;
        // It is gone, and in the line.
        waits.abort();
        lock.release().await.unwrap();
        place.run(arguments).await.done();
        place
            .local
            .client()
            .delete_item()
            .table_name(TABLE)
            .key("key", AttributeValue::S("k".to_owned()))
            .send()
            .await
            .unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_lock_is_renewed_while_the_command_runs() {
    let place = Place::new().await;
    let go = file("renewed-go");
    let script = format!("while [ ! -e {} ]; do sleep 0.05; done", go.display());
    let child = spawned(run(&place, &["--lease", "6s"], &script));
    while place.is_free("k").await {
        sleep(millis(20)).await;
    }
    let ends_at = async || place.locks("test").operator().peek("k").await.unwrap().unwrap().lease_ends_at.unwrap();
    let first = ends_at().await;
    let begun = Instant::now();
    while ends_at().await < first + millis(6_000) {
        assert!(begun.elapsed() < PATIENCE, "it is renewed");
        sleep(millis(50)).await;
    }
    assert!(matches!(
        place.locks("other").acquire("k").lease(millis(5_000)).try_once().await.unwrap(),
        Tried::Refused(_)
    ));
    std::fs::write(&go, "").unwrap();
    ended(child).await.done();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_whose_lock_is_lost_is_stopped_with_all_that_it_started() {
    let place = Place::new().await;
    let (parent, forked) = (file("lost-parent"), file("lost-forked"));
    let script = format!("sleep 100 & echo $! > {}; echo $$ > {}; wait", forked.display(), parent.display());
    let child = spawned(run(&place, &["--lease", "6s"], &script));
    let (parent, forked) = (written(&parent).await, written(&forked).await);
    break_it(&place).await;
    let ended = ended(child).await;
    assert_eq!(ended.code(), 76, "{ended:?}");
    assert!(ended.err.contains("the lock is lost: the command is stopped"), "{ended:?}");
    assert!(!is_running(&parent) && !is_running(&forked));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_that_ignores_sigterm_is_killed_later() {
    let place = Place::new().await;
    let ready = file("ignores");
    let script = format!("trap 'echo asked' TERM; echo $$ > {}; while :; do sleep 0.1; done", ready.display());
    let child = spawned(run(&place, &["--lease", "9s", "--kill-after", "3s"], &script));
    let pid = written(&ready).await;
    break_it(&place).await;
    let ended = ended(child).await;
    assert_eq!(ended.code(), 76, "{ended:?}");
    assert!(ended.out.starts_with("asked\n"), "{ended:?}");
    assert!(!is_running(&pid));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_that_was_stopped_is_ended_too() {
    let place = Place::new().await;
    let ready = file("stopped");
    let child = spawned(run(
        &place,
        &["--lease", "6s", "--kill-after", "1h"],
        &format!("trap 'echo cleaned up; exit' TERM; echo $$ > {}; kill -STOP $$; sleep 100", ready.display()),
    ));
    let pid = written(&ready).await;
    break_it(&place).await;
    let ended = ended(child).await;
    assert_eq!((ended.code(), ended.out.as_str()), (76, "cleaned up\n"), "{ended:?}");
    assert!(!is_running(&pid));
}

#[tokio::test(flavor = "multi_thread")]
async fn stopped_beyond_its_lease_it_leaves_the_next_holder_alone_and_ends_its_command() {
    let place = Place::new().await;
    let ready = file("frozen");
    let options = ["--lease", "4s"];
    let child = spawned(run(&place, &options, &format!("echo $$ > {}; sleep 100", ready.display())));
    let pid = written(&ready).await;
    signal(&child, Signal::STOP);
    let next = next_of(&place).await;
    signal(&child, Signal::CONT);
    assert_eq!(ended(child).await.code(), 76);
    assert!(!is_running(&pid));
    assert_eq!(next.release().await.unwrap(), lambda_lock::ReleaseOutcome::Released);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_does_not_outlive_a_lease_that_nobody_can_renew() {
    let place = Place::new().await;
    let ready = file("cut-off");
    let child = spawned(run(&place, &["--lease", "3s"], &format!("echo $$ > {}; sleep 100", ready.display())));
    let pid = written(&ready).await;
    // The server ends with it.
    drop(place);
    let ended = ended(child).await;
    assert_eq!(ended.code(), 76, "{ended:?}");
    assert!(!is_running(&pid));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_may_end_in_its_own_way_after_a_signal() {
    let place = Place::new().await;
    let ready = file("own-way");
    let child = spawned(run(
        &place,
        &[],
        &format!("trap 'exit 3' TERM; echo $$ > {}; while :; do sleep 0.1; done", ready.display()),
    ));
    written(&ready).await;
    signal(&child, Signal::TERM);
    assert_eq!(ended(child).await.code(), 3);
    assert!(place.is_free("k").await);
}

#[tokio::test(flavor = "multi_thread")]
async fn in_the_foreground_the_command_stays_in_the_process_group() {
    let place = Place::new().await;
    let group = "ps -o pgid= -p $$";
    let own = end(&mut run(&place, &[], &format!("echo $$ $({group})"))).await.done();
    let (pid, group_of_its_own) = own.trim().split_once(' ').unwrap();
    assert_eq!(pid, group_of_its_own.trim());
    let shared = end(&mut run(&place, &["--foreground"], &format!("echo $$ $({group})"))).await.done();
    let (pid, group_of_others) = shared.trim().split_once(' ').unwrap();
    assert_ne!(pid, group_of_others.trim());
    let ready = file("foreground");
    let child = spawned(run(&place, &["--foreground"], &format!("echo $$ > {}; exec sleep 100", ready.display())));
    written(&ready).await;
    signal(&child, Signal::TERM);
    assert_eq!(ended(child).await.code(), 128 + 15);
    assert!(place.is_free("k").await);
}

/// A signal before, during and after the acquire, the command and the release.
#[tokio::test(flavor = "multi_thread")]
async fn interrupted_at_any_point_it_leaves_the_lock_free() {
    let place = Place::new().await;
    let mut interrupted = 0;
    // The last ones for a machine that is slow.
    for delay in (0..60).map(|step| millis(step * 4)).chain([millis(600), millis(2_000)]) {
        let child = spawned(run(&place, &[], "exec sleep 0.08"));
        sleep(delay).await;
        // It may have ended before.
        if let Some(id) = child.id() {
            let _ = kill_process(Pid::from_raw(id.cast_signed()).unwrap(), Signal::TERM);
        }
        let ended = ended(child).await;
        match ended.status.code() {
            // Before the signal was listened to, so before anything was sent; or later.
            None | Some(143) => interrupted += 1,
            // It had ended.
            Some(0) => {}
            other => panic!("{other:?} after {delay:?}: {ended:?}"),
        }
        assert!(place.is_free("k").await, "after {delay:?}: {ended:?}");
    }
    assert!(interrupted > 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn interrupted_while_it_waits_it_leaves_the_holder_alone() {
    let place = Place::new().await;
    let lock = place.held("k", "holder").await;
    let child = spawned(run(&place, &["--wait", "60s"], "echo ran"));
    sleep(millis(1_500)).await;
    signal(&child, Signal::TERM);
    let ended = ended(child).await;
    // Without a code: before the signal was listened to.
    assert!(matches!(ended.status.code(), None | Some(143)) && ended.out.is_empty(), "{ended:?}");
    assert_eq!(lock.release().await.unwrap(), lambda_lock::ReleaseOutcome::Released);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_owner_names_machine_process_and_call() {
    let place = Place::new().await;
    let host = String::from_utf8(std::process::Command::new("uname").arg("-n").output().unwrap().stdout).unwrap();
    let owner = async || place.locks("test").operator().peek("k").await.unwrap().unwrap().holder;
    let is_ours = |owner: &str, pid: u32| {
        let call = owner.strip_prefix(&format!("{}/{pid}/", host.trim())).unwrap_or_else(|| panic!("{owner}"));
        assert!(call.len() == 8 && call.chars().all(|digit| digit.is_ascii_hexdigit()), "{owner}");
    };
    let child = spawned(run(&place, &["--lease", "1h"], "sleep 100"));
    let pid = child.id().unwrap();
    while place.is_free("k").await {
        sleep(millis(20)).await;
    }
    is_ours(&owner().await, pid);
    signal(&child, Signal::TERM);
    ended(child).await;
    let acquire = spawned({
        let mut acquire = place.command();
        acquire.args(["acquire", "k"]);
        acquire
    });
    let pid = acquire.id().unwrap();
    ended(acquire).await.done();
    is_ours(&owner().await, pid);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_may_begin_with_a_hyphen() {
    let place = Place::new().await;
    for key in ["k", "--lease"] {
        let ran = place.run(&["run", "--lease", "1h", "--", key, "--", "sh", "-c", "echo $LOCK_KEY $0", "--"]).await;
        assert_eq!(ran.done(), format!("{key} --\n"));
    }
    let ran = place.run(&["run", "k", "--", "echo", "--", "ran"]).await;
    assert_eq!(ran.done(), "-- ran\n");
    for key in ["-k", "--k"] {
        assert_eq!(place.run(&["run", key, "--", "sh", "-c", "echo $LOCK_KEY"]).await.done(), format!("{key}\n"));
        let held = place.run(&["acquire", "--lease", "1h", key]).await.done();
        let shown = place.run(&["show", key, "--json"]).await.done();
        assert!(shown.contains(&format!("\"{key}\"")), "{shown}");
        let watched = place.run(&["watch", "--for", "100ms", "--", key]).await.done();
        assert!(watched.contains(key), "{watched}");
        place.run(&["freeze", key, "--reason", "r", "--yes"]).await.done();
        place.run(&["thaw", key, "--yes"]).await.done();
        let seen = place.locks("test").operator().peek(key).await.unwrap().unwrap().version;
        place.run(&["break", key, "--seen", &seen, "--reason", "r", "--yes"]).await.done();
        // It is broken: what `release` says of it.
        assert_eq!(place.run_with(&["release"], &held).await.code(), 76, "{key}");
        for arguments in [&["history", key][..], &["once-reset", key, "--reason", "r", "--yes"]] {
            let ended = end(place.command().args(arguments)).await;
            assert!(!ended.err.contains("unexpected argument"), "{ended:?}");
        }
    }
}
