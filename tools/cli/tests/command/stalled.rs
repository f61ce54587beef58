//! Files, pipes and readers that stall: they keep no signal from the command, and no lock from the next holder.

use crate::hostile::{behind, through};
use crate::place::{Place, end, end_of};
use crate::reaching::Server;
use crate::run::{file, is_running, run, signal, spawned, written};
use lambda_lock_local::authorize::Fate;
use lambda_lock_testkit::soon_so;
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::process::Signal;
use std::fs::OpenOptions;
use std::io::{PipeReader, PipeWriter, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::Stdio;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, SystemTime};
use tokio::process::{Child, Command};

/// A pipe that takes no more. Nobody reads it, as long as its reader is there.
fn full_pipe() -> (PipeReader, PipeWriter) {
    let (reader, mut writer) = std::io::pipe().unwrap();
    let flags = fcntl_getfl(&writer).unwrap();
    fcntl_setfl(&writer, flags | OFlags::NONBLOCK).unwrap();
    while writer.write(&[b'x'; 4096]).is_ok() {}
    fcntl_setfl(&writer, flags).unwrap();
    (reader, writer)
}

/// Told until it has ended: it may not have begun to listen.
async fn ends_by(mut child: Child, told: Signal, what: &str) -> std::process::ExitStatus {
    soon_so(format!("{what} ends"), async || {
        let ended = child.try_wait().unwrap();
        if ended.is_none() {
            signal(&child, told);
        }
        ended.is_some()
    })
    .await;
    child.wait().await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_signal_ends_whoever_writes_into_a_full_pipe() {
    let place = Place::new().await;
    let _other = place.held("held", "other").await;
    let is_ended_by = |status: std::process::ExitStatus| status.signal() == Some(Signal::TERM.as_raw());
    for (arguments, is_as_it_should) in [
        (&["acquire", "free", "--lease", "1h"][..], &is_ended_by as &dyn Fn(_) -> bool),
        (&["watch", "held"], &|status: std::process::ExitStatus| status.success()),
    ] {
        let (_reader, writer) = full_pipe();
        let child = place.command().args(arguments).stdout(writer).spawn().unwrap();
        // It has something to print.
        if arguments[0] == "acquire" {
            place.until_held("free").await;
        } else {
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
        let status = ends_by(child, Signal::TERM, arguments[0]).await;
        assert!(is_as_it_should(status), "{arguments:?}: {status:?}");
    }
    assert!(place.is_free("free").await, "nobody could release it");
    // What is wrong goes to standard error.
    for arguments in [&["acquire", "held"][..], &["run", "held", "--", "true"]] {
        let (_reader, writer) = full_pipe();
        let child = place.command().args(arguments).stderr(writer).spawn().unwrap();
        let status = ends_by(child, Signal::TERM, arguments[0]).await;
        assert!(is_ended_by(status), "{arguments:?}: {status:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_waits_for_a_reader_beyond_the_time() {
    let place = Place::new().await;
    let (reader, writer) = full_pipe();
    let child = place.command().args(["acquire", "k", "--lease", "1s"]).stdout(writer).stderr(Stdio::piped()).spawn();
    let acquired = end_of(child.unwrap()).await;
    assert_eq!(acquired.code(), 1, "{acquired:?}");
    assert!(acquired.err.contains("its lease has ended before it was written"), "{acquired:?}");
    assert!(place.is_free("k").await);
    drop(reader);

    let _held = place.held("k", "other").await;
    let (_reader, writer) = full_pipe();
    let child = place.command().args(["watch", "k", "--for", "1s"]).stdout(writer).spawn().unwrap();
    assert!(end_of(child).await.status.success());
}

/// The answer of STS, with credentials that end at once: each request asks for the next ones.
fn short_credentials(_: &str) -> (u16, String) {
    let body = "<AssumeRoleWithWebIdentityResponse><AssumeRoleWithWebIdentityResult><Credentials><AccessKeyId>web</AccessKeyId>\
                <SecretAccessKey>s</SecretAccessKey><SessionToken>t</SessionToken><Expiration>2000-01-01T00:00:00Z</Expiration>\
                </Credentials></AssumeRoleWithWebIdentityResult></AssumeRoleWithWebIdentityResponse>";
    (200, body.to_owned())
}

/// A file with a token that can be read once. Whoever reads it again waits.
fn read_once(name: &str) -> std::path::PathBuf {
    let token = file(name);
    let made = std::process::Command::new("mkfifo").arg(&token).status().unwrap();
    assert!(made.success());
    let writes = token.clone();
    std::thread::spawn(move || OpenOptions::new().write(true).open(writes).unwrap().write_all(b"a token").unwrap());
    token
}

/// A command whose next credentials come from a file that stalls.
fn with_stalled_credentials(mut command: Command, sts: &Server, name: &str) -> Command {
    command.env_remove("AWS_ACCESS_KEY_ID").env_remove("AWS_SECRET_ACCESS_KEY");
    command.env("AWS_WEB_IDENTITY_TOKEN_FILE", read_once(name)).env("AWS_ENDPOINT_URL_STS", &sts.endpoint);
    command.env("AWS_ROLE_ARN", "arn:aws:iam::123456789012:role/operator").env("AWS_EC2_METADATA_DISABLED", "true");
    command
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_of_credentials_that_stalls_keeps_no_command_at_work_beside_the_next_holder() {
    let place = Place::new().await;
    let sts = Server::answering(short_credentials).await;
    let (ready, told) = (file("stalled-ready"), file("stalled-told"));
    let script =
        format!("trap 'echo > {}' USR1; echo $$ > {}; while :; do sleep 0.02; done", told.display(), ready.display());
    let command = run(&place, &["--lease", "9s", "--kill-after", "1s"], &script);
    let child = spawned(with_stalled_credentials(command, &sts, "stalled-token"));
    let pid = written(&ready).await;
    // A renewal waits for the file.
    tokio::time::sleep(Duration::from_millis(4_500)).await;
    signal(&child, Signal::USR1);
    soon_so("the signal is passed on", async || told.exists()).await;
    soon_so("the command has ended", async || !is_running(&pid)).await;
    let lock = place.locks("test").operator().peek("k").await.unwrap().unwrap();
    assert!(!lock.released && lock.lease_ends_at.unwrap() > SystemTime::now(), "it has ended before its lease");
    let ended = end_of(child).await;
    assert_eq!(ended.code(), 76, "{ended:?}");
    assert!(ended.err.contains("cannot be renewed, because the next credentials have not come"), "{ended:?}");
}

/// Nothing was sent, so DynamoDB is not to blame.
#[tokio::test(flavor = "multi_thread")]
async fn a_release_without_the_next_credentials_says_that_they_have_not_come() {
    let place = Place::new().await;
    let sts = Server::answering(short_credentials).await;
    let command = run(&place, &[], "true");

    let ended = end(&mut with_stalled_credentials(command, &sts, "stalled-at-the-release")).await;

    assert_eq!(ended.code(), 69, "{ended:?}");
    assert!(ended.err.contains("because the next credentials have not come. See whether the program"), "{ended:?}");
}

/// The row changes between what a freeze reads and what it writes.
#[tokio::test(flavor = "multi_thread")]
async fn a_freeze_says_who_holds_the_lock_that_it_froze() {
    let place = Place::new().await;
    let proxy = behind(&place).await;
    // The row is read by the command, and once more by the freeze.
    for late in [0, 1] {
        let key = format!("k{late}");
        place.held(&key, "before").await.release().await.unwrap();
        let come = std::sync::Arc::new(AtomicU32::new(0));
        let counted = come.clone();
        proxy.decide(move |_| match counted.fetch_add(1, Ordering::Relaxed) {
            request if request == late => Fate::AnsweredAfter(Duration::from_millis(700)),
            _ => Fate::Answered,
        });
        let mut freeze = through(&place, &proxy, &["freeze", &key, "--yes", "--reason", "r"]);
        let freeze = tokio::spawn(async move { end(&mut freeze).await });
        soon_so("the row was read", async || come.load(Ordering::Relaxed) > late).await;
        tokio::time::sleep(Duration::from_millis(200)).await;
        let _holder = place.held(&key, "holder").await;
        let frozen = freeze.await.unwrap().done();
        assert!(frozen.contains("Nobody but its holder is granted it"), "{late}: {frozen}");
        let lock = place.locks("test").operator().peek(key.as_str()).await.unwrap().unwrap();
        assert_eq!(lock.freeze_reason.as_deref(), Some("r"), "{late}: {frozen}");
    }
}
