//! Runs the demo, and checks its output and its exit code.

#![allow(clippy::disallowed_methods, reason = "the tests wait for processes")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use lambda_lock_testkit::{Said, ends_in, soon_is};
use std::io::Write;
use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

fn program() -> Command {
    Command::new(env!("CARGO_BIN_EXE_lambda-lock-local"))
}

fn demo(options: &[&str]) -> Output {
    let mut demo = program();
    demo.arg("demo").args(options);
    // On a machine that is not busy it takes half a minute.
    ends_in(Duration::from_secs(600), "the demo ends", move || demo.output()).unwrap()
}

fn shown(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// Asserts that exactly one line begins with one text and contains another one.
fn assert_line(shown: &str, begins: &str, goes_on: &str) {
    let lines: Vec<_> = shown.lines().filter(|line| line.starts_with(begins) && line.contains(goes_on)).collect();
    assert_eq!(lines.len(), 1, "{begins:?} … {goes_on:?} in\n{shown}");
}

#[test]
fn the_counter_is_exact_the_late_write_is_refused_and_the_dead_holders_lock_is_taken_over() {
    let picture = Path::new(env!("CARGO_TARGET_TMPDIR")).join("demo.svg");
    let output = demo(&["--workers", "3", "--rounds", "2", "--timeline", picture.to_str().unwrap()]);
    let shown = shown(&output);
    assert_timeline(&shown, &picture);
    // 3 × 2, and then two more of each of the two survivors.
    assert_line(&shown, "  ok      the counter is exact: ", "10, applied 10, expected 10");
    assert_line(&shown, "  ok      the late write was refused: ", "worker-2, stopped for ");
    assert_line(&shown, "  ok      the lock of worker-1 was taken over ", " after the end of its lease");
    assert_line(&shown, "  ok      the second owner got the response ", "anna holds it");
    assert_line(&shown, "  ok      the lock of the execution that was aborted was released", " before its lease ended");
    assert_line(
        &shown,
        "  ok      the lock of the function killed at its deadline, after 3.",
        " after the end of its lease",
    );
    assert_line(
        &shown,
        "  ok      the order of the function that crashed was charged once",
        "the gateway got 2 requests",
    );
    assert_line(&shown, "  ok      12 of 12 orders in the queue were charged", "dead letters: 1");
    assert_line(&shown, "  ok      the sum of the accounts is exact after 16 transfers: ", "400, expected 400");
    assert_line(&shown, "  ok      at most 3 calls were inside of the gateway at once: ", "killed: 1");
    assert_line(&shown, "  sent    ", " grants");
    assert_line(&shown, "Verdict: ", "passed");
    assert_eq!(output.status.code(), Some(0), "{shown}");
}

/// The killed worker and the stopped one lost the lock after their leases, and others that had waited took it over.
fn assert_timeline(shown: &str, picture: &Path) {
    let lane = |worker| shown.lines().find(|line| line.starts_with(&format!("the-counter {worker}"))).unwrap();
    for loser in ["worker-1", "worker-2"] {
        assert!(["█×", "░×"].iter().any(|lost| lane(loser).contains(lost)), "{shown}");
    }
    assert!(lane("worker-3").contains("···"), "{shown}");
    assert_eq!(["worker-1", "worker-2", "worker-3"].map(lane).concat().matches('»').count(), 2, "{shown}");
    let record = std::fs::read_to_string(picture.with_extension("jsonl")).unwrap();
    let events: Vec<_> = record.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let drawn = std::fs::read_to_string(picture).unwrap();
    assert_eq!(drawn, lambda_lock_timeline::svg(&events) + "\n");
    assert_eq!(drawn.matches("class=\"dead\"").count(), 2 + 1, "of two leases, and in the legend");
}

#[test]
fn without_the_fence_the_late_write_is_applied_and_the_verdict_says_so() {
    let output = demo(&["--workers", "3", "--rounds", "2", "--unfenced"]);
    let shown = shown(&output);
    assert_line(&shown, "  FAILED  the counter is wrong: ", "applied 10, expected 10");
    assert_line(&shown, "  FAILED  the late write was applied: ", "worker-2");
    assert_line(&shown, "  ok      the lock of worker-1 was taken over ", " after the end of its lease");
    assert_line(&shown, "Verdict: ", "FAILED");
    assert_eq!(output.status.code(), Some(1), "{shown}");
}

#[test]
fn a_worker_ends_when_its_stdin_closes_even_in_the_middle_of_its_work() {
    // Accepts connections and never responds.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}", silent.local_addr().unwrap());
    let mut worker = program();
    worker.args(["worker", "--endpoint", &endpoint, "--name", "alone"]);
    let mut worker = worker.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    worker.stdin.as_mut().unwrap().write_all(b"{\"order\":\"work\",\"rounds\":1}\n").unwrap();
    Said::by(worker.stdout.take().unwrap()).line("UpdateItem");
    drop(worker.stdin.take());
    soon_is("the worker ends", || worker.try_wait().unwrap().is_some());
}

#[test]
#[cfg(target_os = "linux")]
fn no_worker_outlives_a_killed_demo_not_even_a_stopped_one() {
    let mut demo = program().args(["demo", "--workers", "3", "--rounds", "1"]).stdout(Stdio::piped()).spawn().unwrap();
    Said::by(demo.stdout.take().unwrap()).line("SIGSTOP");
    let workers = linux::children(demo.id());
    assert_eq!(workers.len(), 2, "one of three was killed");
    demo.kill().unwrap();
    demo.wait().unwrap();
    soon_is("all workers end", || !workers.iter().any(|worker| linux::is_alive(*worker)));
}

#[cfg(target_os = "linux")]
mod linux {
    use std::fs::{read_dir, read_to_string};

    pub(super) fn children(of: u32) -> Vec<u32> {
        let processes =
            read_dir("/proc").unwrap().filter_map(|entry| entry.unwrap().file_name().to_str()?.parse().ok());
        processes.filter(|process| fields(*process).is_some_and(|(_, parent)| parent == of)).collect()
    }

    pub(super) fn is_alive(process: u32) -> bool {
        fields(process).is_some_and(|(state, _)| state != "Z")
    }

    /// Returns the state and the parent of a process. They follow the name, which ends with the
    /// last parenthesis.
    fn fields(process: u32) -> Option<(String, u32)> {
        let stat = read_to_string(format!("/proc/{process}/stat")).ok()?;
        let mut fields = stat.rsplit_once(") ")?.1.split(' ');
        Some((fields.next()?.to_owned(), fields.next()?.parse().ok()?))
    }
}
