//! `run`: what this process inherits from the one that starts it.

use crate::place::{Place, end};
use crate::run::{ended, file, run, spawned, written};
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
