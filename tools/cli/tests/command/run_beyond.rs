//! `run`: the command does not work beyond its lock, whatever a request does, and how it ended is said.

use crate::hostile::behind;
use crate::place::{Ended, Place};
use crate::run::{PATIENCE, break_it, ended, file, is_running, millis, next_of, run, signal, spawned, written};
use lambda_lock::ReleaseOutcome;
use lambda_lock_local::authorize::{AuthorizingProxy, Fate};
use rustix::process::Signal;
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
    assert!(ended.err.contains("--kill-after 10s is more than a third of the lease of 9s"), "{fate:?}: {ended:?}");
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
