//! Rows, files, arguments, servers and terminals that nobody wishes for.

use crate::place::{Ended, Place, TABLE, end, end_of, interrupt};
use aws_sdk_dynamodb::types::AttributeValue;
use lambda_lock_local::authorize::{AuthorizingProxy, Fate, Grant, Role};
use lambda_lock_testkit::{soon, soon_so};
use rustix::process::{Pid, Signal, kill_process};
use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::os::unix::process::ExitStatusExt;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Command;
use tokio::time::sleep;

fn text(text: impl Into<String>) -> AttributeValue {
    AttributeValue::S(text.into())
}

fn number(number: &str) -> AttributeValue {
    AttributeValue::N(number.to_owned())
}

/// A command that ends by itself, and neither panics nor sends anything to the terminal that nobody sees.
async fn behaves(command: &mut Command) -> Ended {
    let ended = end(command).await;
    assert!(ended.status.code().is_some_and(|code| code != 101), "{ended:?}");
    for text in [&ended.out, &ended.err] {
        assert!(!text.contains("panicked"), "{ended:?}");
        let hidden = text.chars().find(|c| *c != '\n' && (c.is_control() || "\u{202e}\u{2066}\u{feff}".contains(*c)));
        assert_eq!(hidden, None, "{command:?}: {ended:?}");
    }
    ended
}

#[tokio::test(flavor = "multi_thread")]
async fn hostile_rows_are_shown_and_change_no_terminal() {
    let place = Place::new().await;
    let values = [
        ("ownerName", text("\u{1b}]0;title\u{7}\u{9b}2J\r\nheld by nobody\u{202e}\u{2066}\u{feff}")),
        ("ownerName", text("o".repeat(100_000))),
        ("ownerName", number("7")),
        ("ownerName", AttributeValue::Null(true)),
        ("leaseDuration", text("1e308")),
        ("leaseDuration", text("-1")),
        ("leaseDuration", text("99999999999999999999999")),
        ("leaseDuration", text("9999999h")),
        ("leaseDuration", number("20000")),
        ("leaseEndsAt", number("999999999999999")),
        ("leaseEndsAt", number("18446744073709551615")),
        ("leaseEndsAt", number("1e30")),
        ("leaseEndsAt", number("-1")),
        ("leaseEndsAt", number("0")),
        ("leaseEndsAt", text("soon")),
        ("fencingToken", number("99999999999999999999999999999999999999")),
        ("fencingToken", number("1.5")),
        ("fencingToken", text("many")),
        ("recordVersionNumber", text("ll1-\u{1b}[2J")),
        ("recordVersionNumber", text("")),
        ("recordVersionNumber", text("ll1-")),
        ("isReleased", text("\u{1b}")),
        ("isReleased", number("1")),
        ("workflow", text("arn:aws:states:eu-central-1:1:execution:\u{1b}:\u{202e}")),
        ("breakReason", text("\u{1b}[31m")),
        ("more\u{1b}[2J", text("\u{1b}[2J")),
        ("attempts", number("1e30")),
        ("onceState", text("\u{1b}[2J")),
    ];
    let _ = place.held("template", "holder").await.save();
    let client = place.local.client();
    let template = client.scan().table_name(TABLE).send().await.unwrap().items.unwrap().remove(0);
    for prefix in ["", "once/"] {
        for (index, (name, value)) in values.iter().enumerate() {
            let mut item = template.clone();
            item.insert((*name).to_owned(), value.clone());
            item.insert("key".to_owned(), text(format!("{prefix}\u{1b}[2J{index}\u{202e}")));
            client.put_item().table_name(TABLE).set_item(Some(item)).send().await.unwrap();
        }
    }
    for list in
        [&["ls"][..], &["ls", "--json"], &["watch", "--for", "0s"], &["watch", "--for", "0s", "--json"], &["doctor"]]
    {
        behaves(place.command().args(list)).await.done();
    }
    let keys = client.scan().table_name(TABLE).send().await.unwrap().items.unwrap();
    assert_eq!(keys.len(), 1 + 2 * values.len());
    for key in keys.iter().map(|row| row["key"].as_s().unwrap().as_str()) {
        let broken = ["break", key, "--seen", "ll1-\u{1b}", "--reason", "r"];
        for command in
            [&["show", key][..], &["show", key, "--json"], &["once-reset", key, "--reason", "r", "--yes"], &broken]
        {
            behaves(place.command().args(command)).await;
        }
        behaves(place.command().args(["run", key, "--lease", "1s", "--", "true"])).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn hostile_files_and_arguments_are_refused() {
    let place = Place::new().await;
    let saved = place.run(&["acquire", "k", "--owner", "me"]).await.done();
    let field = |name: &str, value: &str| {
        let mut saved: serde_json::Value = serde_json::from_str(&saved).unwrap();
        saved[name] = serde_json::from_str(value).unwrap();
        saved.to_string()
    };
    let mut files = vec![
        String::new(),
        "null".to_owned(),
        "[".repeat(1_000_000),
        format!("{saved}{saved}"),
        field("key", "\"\\u001b[2J\""),
        field("version", "\"\\u001b[2J\""),
        field("owner", "\"\""),
    ];
    for extreme in ["-1", "0", "1e308", "18446744073709551615", "999999999999999"] {
        files.extend(["leaseEndsAt", "leaseSeconds", "fencingToken"].map(|name| field(name, extreme)));
    }
    for file in &files {
        for command in ["renew", "release"] {
            let ended = place.run_with(&[command], file).await;
            assert!(matches!(ended.code(), 0 | 2 | 76), "{command} {file:.100}: {ended:?}");
            assert!(!ended.err.contains("panicked") && !ended.err.contains('\u{1b}'), "{ended:?}");
        }
    }
    let event = |at: &str, end: &str| {
        format!(r#"{{"at":{at},"key":"\u001b","change":"granted","holder":"\u202e","leaseEndsAt":{end}}}"#)
    };
    let record = [event("0", "5"), event("18446744073709551615", "18446744073709551615"), event("7", "0")].join("\n");
    for more in [
        &["timeline"][..],
        &["timeline", "--svg"],
        &["timeline", "--columns", "18446744073709551615"],
        &["timeline", "--columns", "0"],
    ] {
        let ended = place.run_with(more, &record).await.done();
        assert!(!ended.contains(['\u{1b}', '\u{202e}']), "{ended}");
    }
    for (arguments, code) in [
        (&["timeline", "/"][..], 2),
        (&["timeline", "/no-such-file"], 2),
        (&["renew", "/dev/null"], 2),
        (&["raise-tokens", "--margin", "9999999y", "--yes"], 2),
        (&["raise-tokens", "--margin", "500000000000y", "--yes"], 2),
        (&["raise-tokens", "--above", "18446744073709551615", "--yes"], 2),
        (&["watch", "--interval", "0s"], 2),
        (&["acquire", "new", "--lease", "0s"], 2),
        (&["acquire", "new", "--lease", "500000000000y"], 2),
        (&["acquire", "k", "--owner", ""], 2),
        (&["ls", "--endpoint-url", "nonsense"], 2),
        (&["ls", "--endpoint-url", "http://127.0.0.1:1"], 69),
        (&["doctor", "--endpoint-url", "http://127.0.0.1:1"], 69),
        (&["ls", "--profile", "nobody"], 77),
    ] {
        let ended = behaves(place.command().args(arguments)).await;
        assert_eq!(ended.code(), code, "{arguments:?}: {ended:?}");
    }
    assert!(place.run(&["acquire", "new", "--wait", "500000000000y"]).await.status.success());
}

/// Nobody reads what is printed, or the disk is full.
#[tokio::test(flavor = "multi_thread")]
async fn a_closed_pipe_or_a_full_disk_ends_no_command_in_a_panic() {
    let place = Place::new().await;
    for number in 0..200 {
        place.held(&format!("k-{number}"), "holder").await.release().await.unwrap();
    }
    let full = || Stdio::from(OpenOptions::new().write(true).open("/dev/full").unwrap());
    for arguments in [
        &["ls"][..],
        &["ls", "--json"],
        &["show", "k-1"],
        &["completions", "bash"],
        &["man"],
        &["asl"],
        &["doctor"],
        &["--help"],
    ] {
        let mut piped = place.command();
        let mut child = piped.args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        drop(child.stdout.take());
        let ended = end_of(child).await;
        assert!(ended.status.success() && !ended.err.contains("panicked"), "{arguments:?}: {ended:?}");

        let child = place.command().args(arguments).stdout(full()).stderr(Stdio::piped()).spawn().unwrap();
        let ended = end_of(child).await;
        assert!(ended.status.code() != Some(101) && !ended.err.contains("panicked"), "{arguments:?}: {ended:?}");
        assert!(arguments == ["--help"] || !ended.status.success(), "{arguments:?} said nothing of a full disk");
    }

    // A lock that nobody could release.
    let child = place.command().args(["acquire", "k"]).stdout(full()).spawn().unwrap();
    assert_eq!(end_of(child).await.code(), 1);
    assert!(place.is_free("k").await);

    // The terminal is gone when the lock is lost: the command is stopped all the same.
    let mut run = place.command();
    run.args(["run", "k", "--lease", "3s", "--", "sleep", "100"]).stderr(full());
    let child = run.spawn().unwrap();
    place.until_held("k").await;
    place.local.client().delete_item().table_name(TABLE).key("key", text("k")).send().await.unwrap();
    assert_eq!(end_of(child).await.code(), 76);
}

/// A proxy in front of the table, and the command that goes through it.
pub(crate) async fn behind(place: &Place) -> AuthorizingProxy {
    let table = format!("arn:aws:dynamodb:eu-central-1:123456789012:table/{TABLE}");
    let role = ["GetItem", "Scan", "UpdateItem"].map(|action| Grant::new(format!("dynamodb:{action}"), table.clone()));
    let roles = BTreeMap::from([("local".to_owned(), role.into_iter().collect::<Role>())]);
    AuthorizingProxy::start(place.local.endpoint(), roles).await.unwrap()
}

/// Decides what happens to each request from now on. Returns the number of requests that have come since then.
pub(crate) fn decides(proxy: &AuthorizingProxy, fate: Fate) -> Arc<AtomicU32> {
    let come = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&come);
    proxy.decide(move |_| {
        counted.fetch_add(1, Ordering::Relaxed);
        fate
    });
    come
}

pub(crate) async fn until_come(come: &AtomicU32, requests: u32) {
    soon_so(format!("{requests} requests"), async || come.load(Ordering::Relaxed) >= requests).await;
}

pub(crate) fn through(place: &Place, proxy: &AuthorizingProxy, arguments: &[&str]) -> Command {
    let mut command = place.command();
    command.env("AWS_ENDPOINT_URL_DYNAMODB", proxy.endpoint()).args(arguments);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

#[tokio::test(flavor = "multi_thread")]
async fn a_table_that_throttles_or_is_silent_ends_a_command_but_not_a_watch() {
    let place = Place::new().await;
    let proxy = behind(&place).await;
    let lock = place.held("k", "holder").await;
    let come = decides(&proxy, Fate::Answered);
    let mut watch = through(&place, &proxy, &["watch", "k", "--interval", "100ms"]).spawn().unwrap();
    // The first look is over when the second one begins.
    until_come(&come, 2).await;
    for fate in [Fate::Throttled, Fate::RequestLost, Fate::Swallowed] {
        proxy.decide(move |_| fate);
        let run = |arguments: &[&str]| {
            let mut command = through(&place, &proxy, arguments);
            async move { end(&mut command).await }
        };
        let (ls, show) = (run(&["ls"]), run(&["show", "k"]));
        let (acquire, raise) = (run(&["acquire", "other"]), run(&["raise-tokens", "--yes"]));
        let (ls, show, acquire, raise) = tokio::join!(ls, show, acquire, raise);
        for ended in [ls, show, acquire, raise] {
            assert_eq!(ended.code(), 69, "{fate:?}: {ended:?}");
        }
    }
    proxy.decide(|_| Fate::Answered);
    lock.release().await.unwrap();
    let mut lines = BufReader::new(watch.stdout.take().unwrap()).lines();
    let released = async { while !lines.next_line().await.unwrap().unwrap().contains("released") {} };
    soon("it tells of the release", released).await;
    interrupt(&watch);
    let watched = end_of(watch).await;
    assert!(watched.status.success() && !watched.err.is_empty(), "it says what it could not see: {watched:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watch_of_several_locks_goes_on_where_one_row_is_no_lock_record() {
    let place = Place::new().await;
    let put = place.local.client().put_item().table_name(TABLE).item("key", text("bad")).item("ownerName", number("7"));
    put.send().await.unwrap();
    let _held = place.held("k", "holder").await;
    let watched = place.run(&["watch", "bad", "k", "--for", "1s"]).await.done();
    assert!(watched.contains("holder") && !watched.contains("bad"), "{watched}");
}

/// The exit code says whether the lock is free or left to its lease.
#[tokio::test(flavor = "multi_thread")]
async fn a_lock_that_may_still_be_held_is_said_by_the_exit_code() {
    let place = Place::new().await;
    let proxy = behind(&place).await;
    let mut run = through(&place, &proxy, &["run", "k", "--", "sh", "-c", "read end"]);
    let mut run = run.stdin(Stdio::piped()).spawn().unwrap();
    place.until_held("k").await;
    proxy.decide(|_| Fate::RequestLost);
    drop(run.stdin.take());
    let ended = end_of(run).await;
    assert_eq!(ended.code(), 69, "{ended:?}");
    assert!(ended.err.contains("the lock may be held until its lease ends"), "{ended:?}");
    assert!(!place.is_free("k").await);

    // Two signals while the answer to an acquire is awaited, which is applied later.
    for arguments in [&["acquire", "later"][..], &["run", "later", "--", "true"]] {
        let come = decides(&proxy, Fate::AppliedLate(Duration::from_secs(2)));
        let acquire = through(&place, &proxy, arguments).spawn().unwrap();
        until_come(&come, 1).await;
        for _ in 0..2 {
            interrupt(&acquire);
            sleep(Duration::from_millis(100)).await;
        }
        let ended = end_of(acquire).await;
        assert_eq!(ended.code(), 69, "{arguments:?}: {ended:?}");
        assert!(ended.err.contains("it may be held until its lease ends"), "{ended:?}");
        place.until_held("later").await;
        place.local.client().delete_item().table_name(TABLE).key("key", text("later")).send().await.unwrap();
    }
}

/// A lock that comes when half of its lease is over is renewed first.
#[tokio::test(flavor = "multi_thread")]
async fn a_late_grant_that_cannot_be_renewed_is_not_left_behind_in_silence() {
    let place = Place::new().await;
    let proxy = behind(&place).await;
    for arguments in [&["acquire", "k"][..], &["run", "k", "--", "true"]] {
        let come = AtomicU32::new(0);
        proxy.decide(move |_| match come.fetch_add(1, Ordering::Relaxed) {
            0 => Fate::AnsweredAfter(Duration::from_millis(700)),
            _ => Fate::RequestLost,
        });
        let (acquire, command) = arguments.split_at(2);
        let ended = end(&mut through(&place, &proxy, &[acquire, &["--lease", "1s"], command].concat())).await;
        assert_eq!((ended.code(), ended.out.as_str()), (69, ""), "{ended:?}");
        assert!(ended.err.contains("may or may not have been acquired"), "{ended:?}");
        place.local.client().delete_item().table_name(TABLE).key("key", text("k")).send().await.unwrap();
    }
}

/// Nobody could release what nobody has read.
#[tokio::test(flavor = "multi_thread")]
async fn an_acquire_that_is_not_printed_says_that_it_may_be_held() {
    let place = Place::new().await;
    let proxy = behind(&place).await;
    let come = AtomicU32::new(0);
    proxy.decide(move |_| if come.fetch_add(1, Ordering::Relaxed) == 0 { Fate::Answered } else { Fate::RequestLost });
    let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
    let child = through(&place, &proxy, &["acquire", "k"]).stdout(Stdio::from(full)).spawn().unwrap();
    let ended = end_of(child).await;
    assert_eq!(ended.code(), 69, "{ended:?}");
    assert!(ended.err.contains("the lock may be held until its lease ends"), "{ended:?}");
    assert!(ended.err.contains("the lock cannot be printed"), "{ended:?}");
}

/// A shell goes on with its script unless the signal also ended what it waits for.
#[tokio::test(flavor = "multi_thread")]
async fn a_signal_ends_a_wait_that_is_throttled_and_a_run_that_releases() {
    let place = Place::new().await;
    let proxy = behind(&place).await;
    let ends_by = |ended: &Ended, signal: Signal| assert_eq!(ended.status.signal(), Some(signal.as_raw()), "{ended:?}");
    for (signal, arguments) in [
        (Signal::INT, &["run", "k", "--wait", "60s", "--", "true"][..]),
        (Signal::TERM, &["acquire", "k", "--wait", "60s"]),
    ] {
        let come = decides(&proxy, Fate::Throttled);
        let child = through(&place, &proxy, arguments).spawn().unwrap();
        until_come(&come, 2).await;
        kill_process(Pid::from_raw(child.id().unwrap().cast_signed()).unwrap(), signal).unwrap();
        ends_by(&end_of(child).await, signal);
    }
    for signal in [Signal::INT, Signal::TERM, Signal::HUP] {
        let come = Arc::new(AtomicU32::new(0));
        let counted = Arc::clone(&come);
        proxy.decide(move |_| match counted.fetch_add(1, Ordering::Relaxed) {
            0 => Fate::Answered,
            // The release.
            _ => Fate::AnsweredAfter(Duration::from_millis(700)),
        });
        let child = through(&place, &proxy, &["run", "k", "--", "true"]).spawn().unwrap();
        until_come(&come, 2).await;
        kill_process(Pid::from_raw(child.id().unwrap().cast_signed()).unwrap(), signal).unwrap();
        ends_by(&end_of(child).await, signal);
        assert!(place.is_free("k").await);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watch_goes_on_also_where_its_first_look_has_no_answer() {
    let place = Place::new().await;
    let proxy = behind(&place).await;
    let lock = place.held("k", "holder").await;
    for keys in [&["watch", "k"][..], &["watch"]] {
        let come = decides(&proxy, Fate::RequestLost);
        let mut watch = through(&place, &proxy, &[keys, &["--interval", "100ms"]].concat()).spawn().unwrap();
        let mut said = BufReader::new(watch.stderr.take().unwrap()).lines();
        let error = soon("it says that it could not look", said.next_line()).await.unwrap();
        assert!(come.load(Ordering::Relaxed) > 0 && error.is_some(), "{keys:?}: {error:?}");
        proxy.decide(|_| Fate::Answered);
        let mut lines = BufReader::new(watch.stdout.take().unwrap()).lines();
        let held = soon("it tells who holds it", lines.next_line()).await.unwrap();
        assert!(held.is_some_and(|line| line.contains("holder")), "{keys:?}");
        interrupt(&watch);
        assert_eq!(end_of(watch).await.code(), 0);

        // Nothing was ever seen.
        proxy.decide(|_| Fate::RequestLost);
        let unseen = end(&mut through(&place, &proxy, &[keys, &["--for", "1s"]].concat())).await;
        assert_eq!(unseen.code(), 69, "{keys:?}: {unseen:?}");
    }
    // No later look would be allowed.
    let missing = end(place.command().args(["watch", "--table", "nope"])).await;
    assert_eq!(missing.code(), 78, "{missing:?}");
    lock.release().await.unwrap();
}

/// Of a key that may be that of idempotent work, an acquire looks at the row first.
#[tokio::test(flavor = "multi_thread")]
async fn an_acquire_waits_also_while_its_look_for_idempotent_work_has_no_answer() {
    let place = Place::new().await;
    let proxy = behind(&place).await;
    let arguments = ["acquire", "blue/once/order-9", "--wait", "60s"];
    for fate in [Fate::RequestLost, Fate::Throttled] {
        // More than one call sends.
        let come = decides(&proxy, fate);
        let acquire = through(&place, &proxy, &arguments).spawn().unwrap();
        sleep(Duration::from_secs(8)).await;
        assert!(come.load(Ordering::Relaxed) > 1);
        proxy.decide(|_| Fate::Answered);
        let ended = end_of(acquire).await;
        assert!(ended.code() == 2 && ended.err.contains("would block the work"), "{fate:?}: {ended:?}");
    }
    let come = decides(&proxy, Fate::Swallowed);
    let acquire = through(&place, &proxy, &arguments).spawn().unwrap();
    until_come(&come, 1).await;
    interrupt(&acquire);
    assert_eq!(end_of(acquire).await.code(), 130);
    proxy.decide(|_| Fate::Answered);
    let denied = end(&mut through(&place, &proxy, &[&arguments[..], &["--table", "nope"]].concat())).await;
    assert!(![0, 69].contains(&denied.code()), "{denied:?}");
}

/// They mean something to the command alone, which has ended.
#[tokio::test(flavor = "multi_thread")]
async fn a_signal_that_asks_nobody_to_end_leaves_the_exit_code_alone_while_run_releases() {
    let place = Place::new().await;
    let proxy = behind(&place).await;
    for signals in [&[Signal::USR1][..], &[Signal::ALARM, Signal::QUIT], &[Signal::USR2, Signal::HUP]] {
        let come = Arc::new(AtomicU32::new(0));
        let counted = Arc::clone(&come);
        proxy.decide(move |_| match counted.fetch_add(1, Ordering::Relaxed) {
            0 => Fate::Answered,
            // The release.
            _ => Fate::AnsweredAfter(Duration::from_millis(700)),
        });
        let child = through(&place, &proxy, &["run", "k", "--", "sh", "-c", "exit 7"]).spawn().unwrap();
        until_come(&come, 2).await;
        for signal in signals {
            kill_process(Pid::from_raw(child.id().unwrap().cast_signed()).unwrap(), *signal).unwrap();
        }
        let code = if signals.contains(&Signal::HUP) { 128 + Signal::HUP.as_raw() } else { 7 };
        let ended = end_of(child).await;
        assert_eq!(ended.code(), code, "{signals:?}: {ended:?}");
        assert!(place.is_free("k").await);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watch_ends_when_it_is_interrupted_while_it_looks() {
    let place = Place::new().await;
    let proxy = behind(&place).await;
    for keys in [&["watch", "k"][..], &["watch"]] {
        for looks in [0, 1] {
            let come = Arc::new(AtomicU32::new(0));
            let seen = Arc::clone(&come);
            proxy.decide(move |_| match seen.fetch_add(1, Ordering::Relaxed) < looks {
                true => Fate::Answered,
                false => Fate::Swallowed,
            });
            let watch = through(&place, &proxy, &[keys, &["--interval", "100ms"]].concat()).spawn().unwrap();
            until_come(&come, looks + 1).await;
            interrupt(&watch);
            let ended = end_of(watch).await;
            assert_eq!((ended.code(), ended.err.as_str()), (0, ""), "{keys:?}, {looks}: {ended:?}");
        }
    }
}

/// As `run`: a signal does not leave a lock behind that nobody can release.
#[tokio::test(flavor = "multi_thread")]
async fn an_acquire_that_is_interrupted_releases_what_it_got() {
    let place = Place::new().await;
    let proxy = behind(&place).await;
    let come = decides(&proxy, Fate::AnsweredAfter(Duration::from_millis(700)));
    let acquire = through(&place, &proxy, &["acquire", "k"]).spawn().unwrap();
    until_come(&come, 1).await;
    interrupt(&acquire);
    let ended = end_of(acquire).await;
    assert_eq!((ended.code(), ended.out.len()), (130, 0), "{ended:?}");
    assert!(place.is_free("k").await);
    assert!(place.locks("test").operator().peek("k").await.unwrap().is_some(), "it had it");
}
