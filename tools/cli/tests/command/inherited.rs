//! `run`: what this process inherits from the one that starts it.

use crate::place::{Place, end};
use crate::run::{ended, file, run, spawned, written};
use crate::run_rest::skipped;
use rustix::process::geteuid;
use tokio::process::Command;

/// A parent that waits for its children by `sigwait` or `signalfd` blocks SIGCHLD, and a blocked signal stays blocked in what it
/// starts.
#[tokio::test(flavor = "multi_thread")]
async fn the_end_of_the_command_is_noticed_where_the_parent_has_blocked_sigchld() {
    let place = Place::new().await;
    let ready = file("blocked-sigchld");
    let inner = run(&place, &["--lease", "1h"], &format!("echo $$ > {}; sleep 1", ready.display()));
    let inner = inner.as_std();
    let mut command = Command::new("env");
    command.arg("--block-signal=CHLD").arg(inner.get_program()).args(inner.get_args()).env_clear().kill_on_drop(true);
    command.envs(inner.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let child = spawned(command);
    written(&ready).await;
    let ended = ended(child).await;
    assert_eq!(ended.code(), 0, "{ended:?}");
    assert!(place.is_free("k").await);
}

/// Not as `lambda-lock` itself, which sees it as an error.
#[tokio::test(flavor = "multi_thread")]
async fn a_closed_pipe_ends_the_command_as_in_a_shell() {
    let place = Place::new().await;
    let ended = end(&mut run(&place, &[], "yes | head -n 1; sh -c 'kill -PIPE $$'")).await;
    assert_eq!((ended.code(), ended.out.as_str()), (128 + 13, "y\n"), "{ended:?}");
    assert!(place.is_free("k").await);
}

/// `lambda-lock` may die before the first stage of its command asks for a signal at its death.
#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread")]
async fn a_command_whose_lambda_lock_died_before_it_began_does_not_begin() {
    for (holder, out) in [(std::process::id(), "ran\n"), (1, "")] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_lambda-lock"));
        command.arg0("lambda-lock: starts a command").arg(holder.to_string()).args(["echo", "ran"]);
        // Not a thread of the runtime: the death of the thread counts.
        let started = std::thread::spawn(move || command.as_std_mut().output().unwrap()).join().unwrap();
        assert_eq!(String::from_utf8(started.stdout).unwrap(), out, "{holder}");
        assert_eq!(started.status.success(), !out.is_empty());
    }
}

/// With so few files the runtime, and later the SDK, would panic.
#[tokio::test(flavor = "multi_thread")]
async fn too_few_files_are_an_error_that_says_what_to_do() {
    let place = Place::new().await;
    let mut refused = 0;
    for files in 5..40 {
        let mut shell = Command::new("sh");
        shell.args(["-c", &format!("ulimit -n {files}; exec \"$0\" \"$@\""), env!("CARGO_BIN_EXE_lambda-lock")]);
        let inner = run(&place, &[], "echo ran");
        shell.args(inner.as_std().get_args()).env_clear();
        shell.envs(inner.as_std().get_envs().filter_map(|(name, value)| Some((name, value?))));
        let ended = end(&mut shell).await;
        if ended.status.success() {
            assert_eq!(ended.out, "ran\n");
            continue;
        }
        refused += 1;
        assert_eq!(ended.code(), 1, "{files}: {ended:?}");
        assert!(ended.err.contains("may open too few files") && ended.err.contains("ulimit -n"), "{files}: {ended:?}");
        assert!(place.locks("test").operator().peek("k").await.unwrap().is_none(), "{files}: nothing was sent");
    }
    assert!((1..30).contains(&refused), "{refused}");
}

/// A program that starts another without output, as those of Python and Node.js do, opens /dev/null for reading too. Then it is
/// as where standard output is closed.
#[tokio::test(flavor = "multi_thread")]
async fn an_acquire_that_nobody_can_read_says_so_and_sends_nothing() {
    let place = Place::new().await;
    for output in [">&-", "1<>/dev/null"] {
        let mut shell = Command::new("sh");
        shell.args(["-c", &format!("exec \"$0\" acquire k {output}"), env!("CARGO_BIN_EXE_lambda-lock")]);
        shell.env_clear().envs(place.command().as_std().get_envs().filter_map(|(name, value)| Some((name, value?))));
        let ended = end(&mut shell).await;
        assert_eq!(ended.code(), 1, "{output}: {ended:?}");
        let says = "standard output is closed, or is /dev/null that is open for reading too";
        assert!(ended.err.contains(says) && ended.err.contains("lambda-lock run"), "{output}: {ended:?}");
        assert!(place.locks("test").operator().peek("k").await.unwrap().is_none(), "{output}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn too_few_threads_are_an_error_that_says_so() {
    if !geteuid().is_root() || std::process::Command::new("setpriv").arg("--version").output().is_err() {
        skipped("root and setpriv, to be a user who may have few threads");
        return;
    }
    let place = Place::new().await;
    let mut refused = 0;
    for threads in (1..8).flat_map(|threads| [threads; 5]) {
        let mut limited = Command::new("setpriv");
        limited.args(["--reuid=60124", "--clear-groups", "prlimit", &format!("--nproc={threads}:{threads}")]);
        limited.arg(env!("CARGO_BIN_EXE_lambda-lock")).arg("ls").env_clear();
        limited.envs(place.command().as_std().get_envs().filter_map(|(name, value)| Some((name, value?))));
        let ended = end(&mut limited).await;
        if ended.status.success() {
            continue;
        }
        refused += 1;
        assert_eq!(ended.code(), 1, "{threads}: {ended:?}");
        assert!(ended.err.contains("no thread can be started"), "{threads}: {ended:?}");
    }
    assert!((10..35).contains(&refused), "{refused}");
}
