//! `run`: no signal leaves the command at work without its lock.

use crate::hostile::{behind, decides, until_come};
use crate::place::Place;
use crate::run::{PATIENCE, break_it, ended, file, is_running, millis, next_of, run, signal, spawned, stat, written};
use crate::run_rest::skipped;
use crate::saying::terminal;
use crate::session::shell;
use lambda_lock::ReleaseOutcome;
use lambda_lock_local::authorize::Fate;
use rustix::process::{Pid, Signal, kill_process_group};
use std::io::Read;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::Stdio;
use std::time::Instant;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::time::{sleep, timeout};

const LONG: [&str; 2] = ["--lease", "1h"];

/// Ends when this is so.
pub(crate) async fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < PATIENCE, "{what}");
        sleep(millis(10)).await;
    }
}

pub(crate) fn is(pid: &str, state: char) -> bool {
    stat(pid).contains(&format!(") {state} "))
}

pub(crate) async fn until_both_are_stopped(child: &Child, command: &str) {
    let wrapper = child.id().unwrap().to_string();
    // A shell that has just started a process waits for it without being stopped itself, while that is stopped.
    until("both are stopped", || is(&wrapper, 'T') && (is(command, 'T') || is(command, 'D'))).await;
    // What it had begun is done.
    sleep(millis(200)).await;
}

/// How often a command has worked.
pub(crate) fn beats(path: &Path) -> usize {
    std::fs::read_to_string(path).unwrap_or_default().lines().count()
}

/// What this process was told to ignore, the commands that it starts ignore too.
fn can_be_sent(signal: Signal) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).unwrap().trim();
    u64::from_str_radix(ignored, 16).unwrap() >> (signal.as_raw() - 1) & 1 == 0
}

#[tokio::test(flavor = "multi_thread")]
async fn every_signal_that_ends_a_process_is_passed_on() {
    let place = Place::new().await;
    for sent in [
        Signal::HUP,
        Signal::INT,
        Signal::QUIT,
        Signal::ABORT,
        Signal::USR1,
        Signal::USR2,
        Signal::ALARM,
        Signal::TERM,
        Signal::XCPU,
        Signal::XFSZ,
        Signal::VTALARM,
        Signal::PROF,
        Signal::IO,
        Signal::POWER,
    ] {
        if !can_be_sent(sent) {
            continue;
        }
        let ready = file("every-signal");
        let script = format!("ulimit -c 0; echo $$ > {}; exec sleep 100", ready.display());
        let child = spawned(run(&place, &LONG, &script));
        let pid = written(&ready).await;
        signal(&child, sent);
        let ended = ended(child).await;
        assert_eq!(ended.code(), 128 + sent.as_raw(), "{sent:?}: {ended:?}");
        assert!(!is_running(&pid), "{sent:?}");
        assert!(place.is_free("k").await, "{sent:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_signal_that_ends_lambda_lock_itself_ends_the_command() {
    let place = Place::new().await;
    for (index, sent) in [Signal::KILL, Signal::TRAP, Signal::SYS].into_iter().enumerate() {
        for foreground in [&[][..], &["--foreground"]] {
            let ready = file(&format!("wrapper-{index}-{}", foreground.len()));
            let script = format!("ulimit -c 0; echo $$ > {}; exec sleep 100", ready.display());
            // The locks of those before are held until their lease ends.
            let options = [&["--wait", "20s", "--lease", "1s"], foreground].concat();
            let child = spawned(run(&place, &options, &script));
            let pid = written(&ready).await;
            signal(&child, sent);
            until("the command ends with lambda-lock", || !is_running(&pid)).await;
            assert_eq!(std::os::unix::process::ExitStatusExt::signal(&ended(child).await.status), Some(sent.as_raw()));
        }
    }
}

/// Ctrl-Z in a terminal goes to `lambda-lock` alone.
#[tokio::test(flavor = "multi_thread")]
async fn a_command_is_stopped_with_lambda_lock_and_does_nothing_beside_the_next_holder() {
    let place = Place::new().await;
    let (ready, work) = (file("stopped-ready"), file("stopped-work"));
    let script = format!(
        "trap '' TERM; echo $$ > {}; while :; do echo x >> {}; sleep 0.02; done",
        ready.display(),
        work.display()
    );
    let child = spawned(run(&place, &["--lease", "3s"], &script));
    let pid = written(&ready).await;
    signal(&child, Signal::TSTP);
    until_both_are_stopped(&child, &pid).await;
    let done = beats(&work);
    let next = next_of(&place).await;
    signal(&child, Signal::CONT);
    let ended = ended(child).await;
    assert_eq!(ended.code(), 76, "{ended:?}");
    assert!(!is_running(&pid));
    assert_eq!(beats(&work), done, "it did nothing since it was stopped");
    assert_eq!(next.release().await.unwrap(), ReleaseOutcome::Released);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_that_was_stopped_continues_when_its_lock_was_renewed() {
    let place = Place::new().await;
    for (sent, foreground) in
        [(Signal::TSTP, &[][..]), (Signal::TTIN, &[]), (Signal::TTOU, &[]), (Signal::TSTP, &["--foreground"])]
    {
        let (ready, work, last) = (file("continued-ready"), file("continued-work"), file("continued-last"));
        let script = format!(
            "echo $$ > {}; while [ ! -e {} ]; do echo x >> {}; sleep 0.02; done",
            ready.display(),
            last.display(),
            work.display()
        );
        let child = spawned(run(&place, &[&LONG, foreground].concat(), &script));
        let pid = written(&ready).await;
        signal(&child, sent);
        until_both_are_stopped(&child, &pid).await;
        let version = async || place.locks("test").operator().peek("k").await.unwrap().unwrap().version;
        let (seen, done) = (version().await, beats(&work));
        signal(&child, Signal::CONT);
        until("the command continues", || beats(&work) > done).await;
        assert_ne!(version().await, seen, "it was renewed before");
        std::fs::write(&last, "").unwrap();
        ended(child).await.done();
        assert!(place.is_free("k").await);
    }
}

/// As `nohup` and the background of a shell do it.
#[tokio::test(flavor = "multi_thread")]
async fn a_signal_that_is_ignored_stays_so() {
    let place = Place::new().await;
    let ready = file("ignored");
    let script = format!("echo $$ > {}; exec sleep 100", ready.display());
    let command = run(&place, &LONG, &script);
    let mut ignoring = Command::new("sh");
    ignoring.args(["-c", "trap '' HUP QUIT; exec \"$0\" \"$@\"", env!("CARGO_BIN_EXE_lambda-lock")]);
    ignoring.args(command.as_std().get_args()).env_clear().kill_on_drop(true);
    ignoring.envs(command.as_std().get_envs().filter_map(|(name, value)| Some((name, value?))));
    let child = spawned(ignoring);
    written(&ready).await;
    signal(&child, Signal::HUP);
    signal(&child, Signal::QUIT);
    // Time for one of them to do harm.
    sleep(millis(500)).await;
    signal(&child, Signal::TERM);
    assert_eq!(ended(child).await.code(), 128 + 15);
    assert!(place.is_free("k").await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_that_was_stopped_ends_when_somebody_ends_it() {
    let place = Place::new().await;
    let ready = file("stopped-and-told");
    let child = spawned(run(&place, &LONG, &format!("echo $$ > {}; kill -STOP $$; sleep 100", ready.display())));
    let pid = written(&ready).await;
    until("it is stopped", || is(&pid, 'T')).await;
    signal(&child, Signal::TERM);
    assert_eq!(ended(child).await.code(), 128 + 15);
}

/// The terminal stops whoever reads from it in the background.
#[tokio::test(flavor = "multi_thread")]
async fn a_command_that_the_terminal_stops_is_told_to_be_run_in_the_foreground() {
    let place = Place::new().await;
    for stop in ["TTIN", "TTOU"] {
        let mut child = spawned(run(&place, &LONG, &format!("kill -{stop} $$; sleep 100")));
        let mut said = String::new();
        let mut stderr = BufReader::new(child.stderr.take().unwrap());
        timeout(PATIENCE, stderr.read_line(&mut said)).await.unwrap().unwrap();
        assert!(said.contains("the command is stopped, because it uses the terminal"), "{said}");
        assert!(said.contains("--foreground") && !place.is_free("k").await, "{said}");
        signal(&child, Signal::TERM);
        assert_eq!(ended(child).await.code(), 128 + 15);
    }
}

/// Otherwise a shell goes on with its script, which somebody wants to end.
#[tokio::test(flavor = "multi_thread")]
async fn a_signal_that_ends_a_script_ends_lambda_lock_itself_when_the_lock_is_free() {
    let place = Place::new().await;
    for how in [Signal::INT, Signal::TERM, Signal::HUP] {
        let ready = file("ends-ready");
        let child =
            spawned(run(&place, &["--lease", "1h"], &format!("echo $$ > {}; exec sleep 1000", ready.display())));
        written(&ready).await;
        signal(&child, how);
        assert_eq!(ended(child).await.status.signal(), Some(how.as_raw()));
        assert!(place.is_free("k").await);

        let other = place.held("k", "other").await;
        for arguments in [&["acquire", "k", "--wait", "1h"][..], &["run", "k", "--wait", "1h", "--", "true"]] {
            let proxy = behind(&place).await;
            let come = decides(&proxy, Fate::Answered);
            let mut command = place.command();
            command.env("AWS_ENDPOINT_URL_DYNAMODB", proxy.endpoint()).args(arguments);
            let child = spawned(command);
            until_come(&come, 1).await;
            signal(&child, how);
            assert_eq!(ended(child).await.status.signal(), Some(how.as_raw()), "{arguments:?}");
        }
        other.release().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn ctrl_c_ends_a_script_of_bash() {
    if std::process::Command::new("bash").arg("--version").output().is_err() {
        skipped("bash");
        return;
    }
    let place = Place::new().await;
    let ready = file("ctrl-c-ready");
    let inner = run(&place, &["--lease", "1h"], &format!("echo $$ > {}; exec sleep 1000", ready.display()));
    let inner = inner.as_std();
    let mut bash = Command::new("bash");
    bash.args(["-c", "\"$0\" \"$@\"; echo after"]).arg(inner.get_program()).args(inner.get_args()).env_clear();
    bash.envs(inner.get_envs().filter_map(|(name, value)| Some((name, value?)))).process_group(0);
    let child = spawned(bash);
    written(&ready).await;
    // As the terminal does it.
    kill_process_group(Pid::from_raw(child.id().unwrap().cast_signed()).unwrap(), Signal::INT).unwrap();
    let ended = ended(child).await;
    assert_eq!((ended.status.signal(), ended.out.as_str()), (Some(2), ""), "{ended:?}");
    assert!(place.is_free("k").await);
}

/// A script at a terminal that stops whoever writes to it from the background. Returns what it wrote there. `None`, where the
/// script cannot be played, and prints why.
async fn at_a_strict_terminal(place: &Place, script: &str) -> Option<String> {
    for program in ["bash", "setsid", "stty"] {
        if std::process::Command::new(program).arg("--version").output().is_err() {
            skipped(program);
            return None;
        }
    }
    let (mut terminal, input) = terminal();
    let mut session = shell(place, "setsid");
    session.args(["--ctty", "--wait", "bash", "-c", &format!("stty tostop; set -m; {script}")]);
    session.stderr(input.try_clone().unwrap()).stdout(input.try_clone().unwrap()).stdin(Stdio::from(input));
    let shown = tokio::task::spawn_blocking(move || {
        let (mut shown, mut some) = (String::new(), [0; 1024]);
        // An error is the end: nobody has the terminal open any more.
        while let Ok(read @ 1..) = terminal.read(&mut some) {
            shown += &String::from_utf8_lossy(&some[..read]);
        }
        shown
    });
    let ended = timeout(PATIENCE, session.status()).await.unwrap().unwrap();
    drop(session);
    let shown = timeout(PATIENCE, shown).await.unwrap().unwrap();
    assert!(ended.success(), "{shown}");
    Some(shown)
}

/// It neither stops with its lock held, nor writes again and again.
#[tokio::test(flavor = "multi_thread")]
async fn run_tells_from_the_background_what_is_wrong_and_goes_on() {
    let place = Place::new().await;
    let ready = file("strict-ready");
    let script = format!(
        "lambda-lock run k --lease 3s --kill-after 1300ms -- sh -c 'echo $$ > {}; exec sleep 100' & wait $!; echo ended with $?",
        ready.display()
    );
    let at_work = async {
        written(&ready).await;
        break_it(&place).await;
    };
    let (shown, ()) = tokio::join!(at_a_strict_terminal(&place, &script), at_work);
    let Some(shown) = shown else { return };
    assert!(
        shown.contains("--kill-after 1s 300ms is more than a third of the lease of 3s: the command may run for 1s"),
        "{shown}"
    );
    assert!(shown.contains("the lock is lost: the command is stopped"), "{shown}");
    assert!(shown.contains("ended with 76"), "{shown}");
}

/// As any other program there.
#[tokio::test(flavor = "multi_thread")]
async fn acquire_and_watch_stop_where_they_may_not_write() {
    let place = Place::new().await;
    for arguments in ["acquire k --lease 1h", "watch k --for 1s"] {
        let stopped = file("strict-stopped");
        // The number of a job that has stopped is what its wait tells.
        let script = format!(
            "lambda-lock {arguments} & wait $!; echo waited $?; stty -tostop; echo $! > {}; fg; echo ended with $?",
            stopped.display()
        );
        let Some(shown) = at_a_strict_terminal(&place, &script).await else { return };
        assert!(shown.contains(&format!("waited {}", 128 + Signal::TTOU.as_raw())), "{arguments}: {shown}");
        assert!(shown.contains("ended with 0"), "{arguments}: {shown}");
    }
}
