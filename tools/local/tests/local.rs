//! Tests that the output of `cargo local` can be used, and that no process outlives it.

#![cfg(target_os = "linux")]
#![allow(clippy::disallowed_methods, reason = "the tests wait for processes")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use lambda_lock_testkit::{Said, soon_is};
use rustix::process::{Pid, Signal, kill_process};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

struct Local {
    process: Child,
    shown: Said,
    functions: String,
}

impl Local {
    /// Starts `cargo local` with a function of the user, `mine`, and these options.
    fn start(options: &[&str]) -> Self {
        Self::with(Path::new(env!("CARGO_BIN_EXE_demo-function")), options)
    }

    fn with(mine: &Path, options: &[&str]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_lambda-lock-local"));
        let mine = format!("mine={}", mine.display());
        command.args(["local", "--function", &mine, "--env", "COUNTER_TABLE=none"]).args(options);
        let mut process = command.stdout(Stdio::piped()).spawn().unwrap();
        let shown = Said::by(process.stdout.take().unwrap());
        // It compiles the functions before, if they are not built.
        let functions = shown.line_in(Duration::from_secs(600), "functions  http://");
        assert!(functions.contains("lock-task, ") && functions.ends_with(", mine"), "{functions}");
        let functions = functions.split_whitespace().nth(1).unwrap().trim_start_matches("http://").to_owned();
        // SDKs of all languages read these.
        let export = shown.line("export AWS_ENDPOINT_URL_LAMBDA=http://");
        assert!(
            export.contains(&functions) && export.contains(" AWS_ENDPOINT_URL_DYNAMODB=http://127.0.0.1:"),
            "{export}"
        );
        // The operator's command, with its options.
        let ls = shown.line("cargo run --bin lambda-lock -- ls --endpoint-url http://127.0.0.1:");
        assert!(ls.ends_with(" --table LockTable"), "{ls}");
        shown.line("Ctrl-C stops everything.");
        Self { process, shown, functions }
    }

    fn invoke(&self, function: &str, payload: &str) -> String {
        let mut connection = TcpStream::connect(&self.functions).unwrap();
        // No function here may take as long.
        connection.set_read_timeout(Some(Duration::from_secs(120))).unwrap();
        let length = payload.len();
        let path = format!("/2015-03-31/functions/{function}/invocations");
        let request =
            format!("POST {path} HTTP/1.1\r\nHost: local\r\nConnection: close\r\nContent-Length: {length}\r\n");
        connection.write_all(format!("{request}\r\n{payload}").as_bytes()).unwrap();
        let mut answer = String::new();
        connection.read_to_string(&mut answer).unwrap();
        answer
    }

    fn send(&self, signal: Signal) {
        kill_process(Pid::from_raw(self.process.id().cast_signed()).unwrap(), signal).unwrap();
    }
}

impl Drop for Local {
    fn drop(&mut self) {
        // A function that is not frozen would outlive a killed server.
        let functions = children(self.process.id());
        let _ = self.process.kill();
        let _ = self.process.wait();
        for function in functions {
            let _ = kill_process(Pid::from_raw(function.cast_signed()).unwrap(), Signal::KILL);
        }
    }
}

#[test]
fn functions_of_the_template_and_of_the_user_share_a_table_and_ctrl_c_leaves_no_process() {
    let mut local = Local::start(&["--timeout", "20"]);
    let acquire = r#"{"action":"acquire","key":"k","owner":"me","leaseSeconds":60}"#;
    assert!(local.invoke("lock-task", acquire).contains(r#""acquired":true"#));
    let answer = local.invoke("mine", r#"{"key":"another","steps":[1]}"#);
    assert!(answer.contains(r#""owner":"mine:$LATEST/"#), "{answer}");
    local.shown.line("mine/2  REPORT RequestId: ");
    let functions = children(local.process.id());
    assert_eq!(functions.len(), 2);

    local.send(Signal::INT);
    soon_is("it ends", || local.process.try_wait().unwrap().is_some());
    assert_eq!(local.process.wait().unwrap().code(), Some(0));
    soon_is("all functions end", || !functions.iter().any(|function| is_alive(*function)));
}

#[test]
fn no_frozen_function_outlives_a_killed_server() {
    let mut local = Local::start(&["--timeout", "20"]);
    local.invoke("lock-task", "{}");
    let functions = children(local.process.id());
    assert_eq!(functions.len(), 1);
    soon_is("it is frozen", || fields(functions[0]).is_some_and(|(state, _)| state == "T"));
    local.process.kill().unwrap();
    local.process.wait().unwrap();
    soon_is("it ends", || !is_alive(functions[0]));
}

#[test]
fn several_invocations_share_a_process_that_nobody_kills() {
    let local = Local::start(&["--timeout", "2", "--concurrency", "2", "--without-kills"]);

    let late = local.invoke("mine", r#"{"key":"k","steps":[60000],"withoutCut":true}"#);
    let processes = children(local.process.id());
    let meanwhile = local.invoke("mine", r#"{"key":"another"}"#);

    assert!(late.contains("Sandbox.Timedout"), "{late}");
    assert!(meanwhile.contains(r#""steps":0"#), "{meanwhile}");
    assert_eq!(processes.len(), 1);
    assert_eq!(children(local.process.id()), processes);
}

#[test]
fn a_function_that_was_built_again_answers_the_next_invocation() {
    let folder = std::env::temp_dir().join(format!("lambda-lock-rebuilt-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let (mine, next) = (folder.join("mine"), folder.join("next"));
    std::fs::copy(env!("CARGO_BIN_EXE_demo-function"), &mine).unwrap();
    let local = Local::with(&mine, &["--timeout", "20"]);
    local.invoke("mine", r#"{"key":"k"}"#);
    let first = children(local.process.id());
    local.invoke("mine", r#"{"key":"k"}"#);
    assert_eq!(children(local.process.id()), first);

    // As a linker does: another file under the same name.
    std::fs::copy(&mine, &next).unwrap();
    std::fs::rename(&next, &mine).unwrap();
    let answer = local.invoke("mine", r#"{"key":"k"}"#);

    let second = children(local.process.id());
    std::fs::remove_dir_all(&folder).unwrap();
    assert!(answer.contains(r#""owner":"mine:$LATEST/"#), "{answer}");
    assert!(second.len() == 1 && second != first, "{first:?} and {second:?}");
}

fn children(of: u32) -> Vec<u32> {
    let all = std::fs::read_dir("/proc").unwrap();
    let all = all.filter_map(|entry| entry.unwrap().file_name().to_str()?.parse().ok());
    all.filter(|process| fields(*process).is_some_and(|(_, parent)| parent == of)).collect()
}

fn is_alive(process: u32) -> bool {
    fields(process).is_some_and(|(state, _)| state != "Z")
}

/// Returns the state and the parent of a process. They follow the name, which ends with the last
/// parenthesis.
fn fields(process: u32) -> Option<(String, u32)> {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    let mut fields = stat.rsplit_once(") ")?.1.split(' ');
    Some((fields.next()?.to_owned(), fields.next()?.parse().ok()?))
}
