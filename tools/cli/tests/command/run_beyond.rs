//! `run`: the command does not work beyond its lock, whatever a request does, and how it ended is said.

use crate::hostile::{behind, decides, until_come};
use crate::place::{Ended, Place, TABLE};
use crate::run::{PATIENCE, break_it, ended, file, is_running, millis, next_of, run, signal, spawned, written};
use crate::run_rest::skipped;
use crate::run_signals::{is, until, until_both_are_stopped};
use aws_sdk_dynamodb::types::AttributeValue;
use lambda_lock::ReleaseOutcome;
use lambda_lock_local::authorize::{AuthorizingProxy, Fate};
use lambda_lock_testkit::soon_so;
use rustix::process::{Pid, Signal, geteuid, kill_process};
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, SystemTime};
use tokio::process::Command;
use tokio::time::{sleep, timeout};

fn through(place: &Place, proxy: &AuthorizingProxy, options: &[&str], script: &str) -> Command {
    let mut command = run(place, options, script);
    command.env("AWS_ENDPOINT_URL_DYNAMODB", proxy.endpoint());
    command
}

#[tokio::test(flavor = "multi_thread")]
async fn cut_off_from_the_table_the_command_is_gone_before_the_next_holder_comes() {
    tokio::join!(cut_off(Fate::Swallowed), cut_off(Fate::RequestLost), cut_off(Fate::Throttled));
}

async fn cut_off(fate: Fate) {
    let place = Place::new().await;
    let proxy = behind(&place).await;
    let (ready, asked) = (file(&format!("beyond-ready-{fate:?}")), file(&format!("beyond-asked-{fate:?}")));
    let (ready_is, asked_is) = (ready.display(), asked.display());
    let script = format!("trap 'echo asked > {asked_is}' TERM; echo $$ > {ready_is}; while :; do sleep 0.05; done");
    let child = spawned(through(&place, &proxy, &["--lease", "9s"], &script));
    let pid = written(&ready).await;
    proxy.decide(move |_| fate);
    let next = next_of(&place).await;
    let works_on = is_running(&pid);

    let ended = ended(child).await;
    assert!(!works_on, "{fate:?}: it worked beside the next holder: {ended:?}");
    assert_eq!(ended.code(), 76, "{fate:?}: {ended:?}");
    assert!(asked.exists(), "{fate:?}: it was asked before: {ended:?}");
    assert!(!ended.err.contains("--kill-after"), "{fate:?}: it was not given: {ended:?}");
    assert!(ended.err.contains("the lock cannot be renewed, and its lease ends in"), "{fate:?}: {ended:?}");
    assert_eq!(next.release().await.unwrap(), ReleaseOutcome::Released);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_that_was_told_to_end_still_gets_the_signals_of_the_operator() {
    let place = Place::new().await;
    let (ready, asked, told) = (file("told-ready"), file("told-asked"), file("told-signal"));
    let script = format!(
        "trap 'echo asked > {}' TERM; trap 'echo told > {}; exit 0' USR1; echo $$ > {}; while :; do sleep 0.05; done",
        asked.display(),
        told.display(),
        ready.display()
    );
    let child = spawned(run(&place, &["--lease", "15s"], &script));
    written(&ready).await;
    break_it(&place).await;
    written(&asked).await;
    signal(&child, Signal::USR1);
    let ended = ended(child).await;
    assert_eq!(ended.code(), 76, "{ended:?}");
    assert!(told.exists(), "{ended:?}");
    assert!(ended.err.contains("the command ended with exit code 0"), "{ended:?}");
}

/// Nobody reads what `lambda-lock` says, and the pipe is full.
#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_nobody_reads_does_not_keep_the_command_at_work() {
    let place = Place::new().await;
    let ready = file("full-pipe");
    let script = format!("yes >&2 & echo $$ > {}; exec sleep 100", ready.display());
    let child = spawned(run(&place, &["--lease", "3s", "--kill-after", "1s"], &script));
    let pid = written(&ready).await;
    break_it(&place).await;
    let gone = async {
        while is_running(&pid) {
            sleep(millis(20)).await;
        }
    };
    timeout(PATIENCE, gone).await.unwrap();
    let output = timeout(PATIENCE, child.wait_with_output()).await.unwrap().unwrap();
    assert_eq!(output.status.code(), Some(76));
}

/// The command's own exit code is not lost.
#[tokio::test(flavor = "multi_thread")]
async fn how_the_command_ended_is_said_where_the_exit_code_is_that_of_the_lock() {
    let place = Place::new().await;
    let proxy = behind(&place).await;
    for (index, (last, said)) in
        [("exit 7", "exit code 7"), ("kill -9 $$", "was ended by signal 9")].into_iter().enumerate()
    {
        let (ready, go) = (file(&format!("how-ready-{index}")), file(&format!("how-go-{index}")));
        let script =
            format!("echo $$ > {}; while [ ! -e {} ]; do sleep 0.02; done; {last}", ready.display(), go.display());
        let command = async |is_lost: bool| {
            let _ = std::fs::remove_file(&ready);
            let _ = std::fs::remove_file(&go);
            proxy.decide(|_| Fate::Answered);
            let child = spawned(through(&place, &proxy, &["--lease", "1h"], &script));
            written(&ready).await;
            let next = if is_lost {
                break_it(&place).await;
                Some(place.held("k", "next").await)
            } else {
                proxy.decide(|_| Fate::RequestLost);
                None
            };
            std::fs::write(&go, "").unwrap();
            let ended = ended(child).await;
            if let Some(next) = next {
                next.release().await.unwrap();
            }
            ended
        };
        let is_said = |ended: &Ended, code| {
            assert_eq!(ended.code(), code, "{ended:?}");
            assert!(ended.err.contains(said), "{ended:?}");
        };
        is_said(&command(true).await, 76);
        is_said(&command(false).await, 69);
        break_it(&place).await;
    }
}

/// Nobody can tell then whether the lock is held by somebody else.
#[tokio::test(flavor = "multi_thread")]
async fn a_command_that_was_stopped_beyond_its_lease_does_nothing_more_also_when_dynamodb_does_not_respond() {
    let place = Place::new().await;
    let proxy = behind(&place).await;
    let (ready, work) = (file("over-ready"), file("over-work"));
    let busy = format!("(while :; do echo x; done >> {}) & ", work.display()).repeat(4);
    let script = format!("trap '' TERM; {busy} echo $$ > {}; wait", ready.display());
    let child = spawned(through(&place, &proxy, &["--lease", "6s"], &script));
    let pid = written(&ready).await;
    signal(&child, Signal::TSTP);
    until_both_are_stopped(&child, &pid).await;
    let size = || std::fs::metadata(&work).unwrap().len();
    let done = size();
    proxy.decide(|_| Fate::RequestLost);
    let next = next_of(&place).await;
    signal(&child, Signal::CONT);

    let ended = ended(child).await;
    assert_eq!(ended.code(), 76, "{ended:?}");
    assert_eq!(size(), done, "{ended:?}");
    next.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_that_continues_late_is_gone_at_the_end_of_its_lease_and_not_of_its_grace() {
    let place = Place::new().await;
    let proxy = behind(&place).await;
    let ready = file("late");
    let script = format!("trap '' TERM; echo $$ > {}; while :; do sleep 0.05; done", ready.display());
    let child = spawned(through(&place, &proxy, &["--lease", "30s"], &script));
    let pid = written(&ready).await;
    signal(&child, Signal::TSTP);
    until_both_are_stopped(&child, &pid).await;
    proxy.decide(|_| Fate::RequestLost);
    let ends_at = place.locks("test").operator().peek("k").await.unwrap().unwrap().lease_ends_at.unwrap();
    let left = ends_at.duration_since(SystemTime::now()).unwrap_or_default();
    sleep(left.saturating_sub(Duration::from_secs(6))).await;
    signal(&child, Signal::CONT);
    let next = next_of(&place).await;
    let works_on = is_running(&pid);

    let ended = ended(child).await;
    assert!(!works_on, "it worked beside the next holder: {ended:?}");
    assert_eq!(ended.code(), 76, "{ended:?}");
    next.release().await.unwrap();
}

/// `fg` continues both.
#[tokio::test(flavor = "multi_thread")]
async fn a_command_in_the_foreground_is_stopped_again_until_its_lock_is_renewed() {
    let place = Place::new().await;
    let proxy = behind(&place).await;
    let ready = file("foreground-again");
    let script = format!("echo $$ > {}; exec sleep 1000", ready.display());
    let child = spawned(through(&place, &proxy, &["--lease", "1h", "--foreground"], &script));
    let pid = written(&ready).await;
    signal(&child, Signal::TSTP);
    until_both_are_stopped(&child, &pid).await;
    proxy.decide(|_| Fate::Swallowed);
    kill_process(Pid::from_raw(pid.parse().unwrap()).unwrap(), Signal::CONT).unwrap();
    until("the command continues", || !is(&pid, 'T')).await;
    signal(&child, Signal::CONT);
    until("it is stopped again", || is(&pid, 'T')).await;
    proxy.decide(|_| Fate::Answered);
    until("the lock is renewed", || !is(&pid, 'T')).await;
    signal(&child, Signal::TERM);
    assert_eq!(ended(child).await.code(), 128 + 15);
    assert!(place.is_free("k").await);
}

/// A signal to end continues a command that the terminal stopped, and none that was stopped with its lock.
#[tokio::test(flavor = "multi_thread")]
async fn a_command_that_is_told_to_end_while_its_lock_is_renewed_does_not_continue_before() {
    let place = Place::new().await;
    let proxy = behind(&place).await;
    let ready = file("term-while-paused");
    let script = format!("echo $$ > {}; exec sleep 1000", ready.display());
    let child = spawned(through(&place, &proxy, &["--lease", "1h"], &script));
    let pid = written(&ready).await;
    signal(&child, Signal::TSTP);
    until_both_are_stopped(&child, &pid).await;
    let come = decides(&proxy, Fate::Swallowed);
    signal(&child, Signal::CONT);
    until_come(&come, 1).await;
    signal(&child, Signal::TERM);
    for _ in 0..30 {
        sleep(millis(10)).await;
        assert!(is(&pid, 'T'), "it continues before it is known whose the lock is");
    }
    proxy.decide(|_| Fate::Answered);
    assert_eq!(ended(child).await.code(), 128 + 15);
    assert!(place.is_free("k").await);
}

#[tokio::test(flavor = "multi_thread")]
async fn how_the_command_ended_is_said_where_it_was_told_to_and_the_lock_was_released() {
    let place = Place::new().await;
    let proxy = behind(&place).await;
    let (ready, asked, go) = (file("back-ready"), file("back-asked"), file("back-go"));
    let script = format!(
        "trap 'echo asked > {}; while [ ! -e {} ]; do sleep 0.02; done; exit 7' TERM; echo $$ > {}; while :; do sleep 0.05; done",
        asked.display(),
        go.display(),
        ready.display()
    );
    let child = spawned(through(&place, &proxy, &["--lease", "30s"], &script));
    written(&ready).await;
    proxy.decide(|_| Fate::RequestLost);
    written(&asked).await;
    proxy.decide(|_| Fate::Answered);
    std::fs::write(&go, "").unwrap();

    let ended = ended(child).await;
    assert_eq!(ended.code(), 76, "{ended:?}");
    assert_eq!(ended.err.matches("the command ended with exit code 7").count(), 1, "{ended:?}");
    assert!(place.is_free("k").await);
}

/// Also where a try has got the lock, and its answer did not come.
#[tokio::test(flavor = "multi_thread")]
async fn an_outage_that_is_shorter_than_the_wait_is_waited_out() {
    for fate in [Fate::RequestLost, Fate::Throttled, Fate::AppliedLate(millis(2_000))] {
        let place = Place::new().await;
        let proxy = behind(&place).await;
        let come = decides(&proxy, fate);
        let child = spawned(through(
            &place,
            &proxy,
            &["--lease", "1h", "--wait", "10m", "--request-timeout-ms", "1000"],
            "echo ran",
        ));
        // More than one try sends.
        until_come(&come, 16).await;
        proxy.decide(|_| Fate::Answered);
        assert_eq!(ended(child).await.done(), "ran\n", "{fate:?}");
        assert!(place.is_free("k").await, "{fate:?}");
    }
}

/// The time of the outage counts too.
#[tokio::test(flavor = "multi_thread")]
async fn a_dead_holder_is_replaced_also_when_outages_come_more_often_than_its_lease_lasts() {
    let java = ("7e57-uuid", &[][..]);
    let ours =
        ("ll1-4967f90d3a8d4d70ba93a033437cdc10-01a21ddc3cf0f04340c1b1610233", &["--max-clock-skew-ms", "off"][..]);
    let waits = async |(version, options): (&str, &[&str])| {
        let place = Place::new().await;
        let text = |text: &str| AttributeValue::S(text.to_owned());
        let row = place.local.client().put_item().table_name(TABLE).item("key", text("k"));
        let row = row.item("recordVersionNumber", text(version)).item("ownerName", text("dead"));
        row.item("leaseDuration", text("8000")).send().await.unwrap();
        let proxy = behind(&place).await;
        let come = AtomicU32::new(0);
        // Four answers, and then none to more than one try.
        proxy.decide(move |_| match come.fetch_add(1, Ordering::Relaxed) % 20 {
            ..4 => Fate::Answered,
            _ => Fate::RequestLost,
        });
        let mut command = place.command();
        command.env("AWS_ENDPOINT_URL_DYNAMODB", proxy.endpoint());
        command.args(["acquire", "k", "--lease", "1h", "--wait", "50s"]).args(options);
        let ended = ended(spawned(command)).await;
        assert!(ended.status.success(), "{version}: {ended:?}");
    };
    tokio::join!(waits(java), waits(ours));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wait_that_had_no_answer_once_does_not_end_as_held() {
    let place = Place::new().await;
    let proxy = behind(&place).await;
    let lock = place.held("k", "other").await;
    for interrupted in [false, true] {
        let come = decides(&proxy, Fate::RequestLost);
        let wait = if interrupted { "10m" } else { "20s" };
        // The owner's name that was given is that of others too.
        let child = spawned(through(&place, &proxy, &["--wait", wait, "--owner", "other"], "echo ran"));
        until_come(&come, 16).await;
        // What is throttled says nothing about the try before.
        let come = decides(&proxy, Fate::Throttled);
        until_come(&come, 16).await;
        let come = decides(&proxy, Fate::Answered);
        until_come(&come, 1).await;
        if interrupted {
            signal(&child, Signal::TERM);
        }
        let ended = ended(child).await;
        assert_eq!((ended.code(), ended.out.as_str()), (69, ""), "{ended:?}");
    }
    lock.release().await.unwrap();
}

/// With the default, the command is told to end when a third of so short a lease is left.
#[tokio::test(flavor = "multi_thread")]
async fn an_outage_that_ends_before_the_grace_begins_ends_no_command() {
    let place = Place::new().await;
    let proxy = behind(&place).await;
    let (ready, last) = (file("outage-ready"), file("outage-last"));
    let script = format!("echo $$ > {}; while [ ! -e {} ]; do sleep 0.05; done", ready.display(), last.display());
    let child = spawned(through(&place, &proxy, &["--lease", "24s"], &script));
    written(&ready).await;
    let version = async || place.locks("test").operator().peek("k").await.unwrap().unwrap().version;
    let seen = version().await;
    // The first renewal comes after eight seconds, and fails with all its tries.
    let come = decides(&proxy, Fate::RequestLost);
    until_come(&come, 1).await;
    sleep(millis(3_500)).await;
    decides(&proxy, Fate::Answered);
    soon_so("it is renewed", async || version().await != seen).await;
    std::fs::write(&last, "").unwrap();
    ended(child).await.done();
}

/// A name is looked up for a new connection, which needs a thread.
#[tokio::test(flavor = "multi_thread")]
async fn a_lock_is_renewed_also_where_its_user_may_have_no_further_thread() {
    if !geteuid().is_root() || std::process::Command::new("setpriv").arg("--version").output().is_err() {
        skipped("root and setpriv, to be a user who may have no more processes");
        return;
    }
    let place = Place::new().await;
    let proxy = behind(&place).await;
    let (ready, last) = (file("threads-ready"), file("threads-last"));
    std::fs::write(&ready, "").unwrap();
    std::fs::set_permissions(&ready, Permissions::from_mode(0o666)).unwrap();
    let script = format!(
        "prlimit --pid $PPID --nproc=1:1; echo done > {}; while [ ! -e {} ]; do sleep 0.05; done",
        ready.display(),
        last.display()
    );
    // A renewal after twelve seconds: a thread that looked up a name for the acquire would have ended by then.
    let inner = run(&place, &["--lease", "36s"], &script);
    let inner = inner.as_std();
    let mut command = Command::new("setpriv");
    command.args(["--reuid=60123", "--clear-groups"]).arg(inner.get_program()).args(inner.get_args());
    command.env_clear().envs(inner.get_envs().filter_map(|(name, value)| Some((name, value?)))).kill_on_drop(true);
    command.env("AWS_ENDPOINT_URL_DYNAMODB", proxy.endpoint().replace("127.0.0.1", "localhost"));
    let child = spawned(command);
    written(&ready).await;
    let version = async || place.locks("test").operator().peek("k").await.unwrap().unwrap().version;
    let seen = version().await;
    // The connection is reset once, so that the renewal needs another one.
    let come = AtomicU32::new(0);
    proxy.decide(move |_| if come.fetch_add(1, Ordering::Relaxed) < 2 { Fate::RequestLost } else { Fate::Answered });
    soon_so("it is renewed", async || version().await != seen).await;
    std::fs::write(&last, "").unwrap();
    ended(child).await.done();
    assert!(place.is_free("k").await);
}
