//! What a script learns where nobody reads what is printed, or where a response was lost.

use crate::hostile::{behind, through};
use crate::place::{Ended, Place, TABLE, end, end_of};
use crate::saying::{asks, failed, terminal};
use aws_sdk_dynamodb::types::AttributeValue;
use lambda_lock_local::authorize::{AuthorizingProxy, Fate};
use lambda_lock_testkit::soon;
use std::io::Write;
use std::process::Stdio;
use std::sync::atomic::{AtomicU32, Ordering};
use tokio::io::AsyncReadExt;

/// The first requests with these fates. All later ones are answered.
fn first(proxy: &AuthorizingProxy, fates: &'static [Fate]) {
    let come = AtomicU32::new(0);
    proxy.decide(move |_| fates.get(come.fetch_add(1, Ordering::Relaxed) as usize).copied().unwrap_or(Fate::Answered));
}

/// A command whose standard output nobody reads.
async fn unread(place: &Place, arguments: &[&str]) -> Ended {
    let mut command = place.command();
    let mut child = command.args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    end_of(child).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_that_could_not_be_read_after_its_break_is_not_said_to_be_free() {
    let place = Place::new().await;
    let proxy = behind(&place).await;
    for json in [&[][..], &["--json"]] {
        let key = format!("k{}", json.len());
        let lock = place.held(&key, "a").await;
        place.run(&["freeze", &key, "--reason", "r", "--yes"]).await.done();
        // The look and the break are answered, and no later read is.
        let come = AtomicU32::new(0);
        proxy.decide(
            move |_| {
                if come.fetch_add(1, Ordering::Relaxed) < 2 { Fate::Answered } else { Fate::RequestLost }
            },
        );
        let seen = lock.save().version().to_owned();
        let arguments = [&["break", &key, "--seen", &seen, "--reason", "r", "--yes"], json].concat();
        let broken = end(&mut through(&place, &proxy, &arguments)).await.done();
        let says = if json.is_empty() { "was broken. It could not be read since" } else { "\"free\":null" };
        assert!(broken.contains(says) && !broken.contains("is free"), "{broken}");
        assert!(place.is_free(&key).await, "it was broken");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_changed_and_no_script_goes_on_where_the_question_cannot_be_read() {
    let place = Place::new().await;
    let seen = place.held("k", "a").await.save().version().to_owned();
    for arguments in [
        &["freeze", "k", "--reason", "r"][..],
        &["break", "k", "--seen", &seen, "--reason", "r"],
        &["thaw", "k"],
        &["raise-tokens", "--above", "99999999999999"],
    ] {
        let (mut keyboard, input) = terminal();
        keyboard.write_all(b"y\n").unwrap();
        let mut command = place.command();
        command.args(arguments).stdin(Stdio::from(input)).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        drop(child.stderr.take());
        let ended = end_of(child).await;
        assert_eq!(ended.code(), 1, "{arguments:?}: {ended:?}");
    }
    let lock = place.locks("test").operator().peek("k").await.unwrap().unwrap();
    assert!(
        !lock.released && lock.freeze_reason.is_none() && lock.fencing_token < Some(99_999_999_999_999),
        "{lock:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_doctor_whose_reader_goes_away_has_found_the_same() {
    let place = Place::new().await;
    assert_eq!(unread(&place, &["doctor", "--table", "nope"]).await.code(), 78);
    assert_eq!(unread(&place, &["doctor"]).await.code(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_that_were_left_alone_are_told_also_where_nobody_reads_what_was_done() {
    let place = Place::new().await;
    let _held = place.held("k", "a").await;
    let (mut keyboard, input) = terminal();
    let mut command = place.command();
    command.args(["raise-tokens", "--above", "99999999999999"]).stdin(Stdio::from(input));
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let mut err = child.stderr.take().unwrap();
    asks(&mut err).await;
    // Somebody uses the table meanwhile.
    let update = place.local.client().update_item().table_name(TABLE).key("key", AttributeValue::S("k".to_owned()));
    let update = update.update_expression("SET fencingToken = :token");
    update.expression_attribute_values(":token", AttributeValue::N("7".to_owned())).send().await.unwrap();
    keyboard.write_all(b"y\n").unwrap();
    let mut said = String::new();
    soon("it ends", err.read_to_string(&mut said)).await.unwrap();
    assert_eq!(end_of(child).await.code(), 76, "{said}");
    assert!(said.contains("1 rows have another token"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_whose_write_had_no_response_was_raised() {
    let place = Place::new().await;
    let _held = place.held("k", "a").await;
    let proxy = behind(&place).await;
    first(&proxy, &[Fate::Answered, Fate::AnswerLost]);
    let raise = ["raise-tokens", "--above", "99999999999999", "--yes", "--json"];
    let raised = end(&mut through(&place, &proxy, &raise)).await.done();
    assert_eq!(raised, "{\"leftAlone\":0,\"raised\":1,\"to\":99999999999999}\n");
}

/// Whoever was told to retry the call is not told that it did nothing.
#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_is_made_again_after_a_lost_response_says_what_it_has_done() {
    let place = Place::new().await;
    failed(&place.locks("test"), "order-9").await;
    let java = [("key", "java"), ("ownerName", "host-j"), ("leaseDuration", "20000"), ("recordVersionNumber", "5f0c")];
    let put = java.iter().fold(place.local.client().put_item().table_name(TABLE), |put, (name, value)| {
        put.item(*name, AttributeValue::S((*value).to_owned()))
    });
    put.send().await.unwrap();
    let reset = ["once-reset", "order-9", "--reason", "r", "--yes"];
    let broken = ["break", "java", "--seen", "5f0c", "--reason", "r", "--yes"];
    for (arguments, says) in [(&reset[..], "is open"), (&broken, "is free")] {
        for _ in 0..2 {
            let done = place.run(arguments).await.done();
            assert!(done.contains(says), "{done}");
        }
        let mut other = arguments.to_vec();
        let reason = other.iter().position(|argument| *argument == "r").unwrap();
        other[reason] = "another";
        assert_eq!(place.run(&other).await.code(), 76, "{arguments:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn credentials_that_no_request_can_carry_are_named() {
    let place = Place::new().await;
    for (variable, name) in [
        ("AWS_ACCESS_KEY_ID", "access key id"),
        ("AWS_SECRET_ACCESS_KEY", "secret access key"),
        ("AWS_SESSION_TOKEN", "session token"),
    ] {
        for arguments in [&["show", "k"][..], &["run", "k", "--", "true"]] {
            let ended = end(place.command().env(variable, "lo\rcal").args(arguments)).await;
            assert!(ended.code() == 77 && ended.err.contains(&format!("the {name} has")), "{variable}: {ended:?}");
        }
    }
}

/// Such as `subprocess.DEVNULL` of Python.
#[tokio::test(flavor = "multi_thread")]
async fn a_lock_is_renewed_also_where_nobody_wants_to_see_it() {
    let place = Place::new().await;
    let shell = async |line: &str| end(crate::session::shell(&place, "sh").args(["-c", line])).await;
    shell("lambda-lock acquire k --lease 1h > unread.json").await.done();
    for out in ["1<>/dev/null", ">&-", ">/dev/null"] {
        shell(&format!("lambda-lock renew unread.json {out}")).await.done();
    }
    let full = shell("lambda-lock renew unread.json >/dev/full").await;
    assert!(full.code() == 1 && full.err.contains("the lock was renewed"), "{full:?}");
    shell("lambda-lock release unread.json").await.done();
    assert!(place.is_free("k").await);
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_has_to_read_that_credentials_are_waited_for() {
    let place = Place::new().await;
    let configuration = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("unread-slow-credentials");
    let credentials = r#"{"Version":1,"AccessKeyId":"local","SecretAccessKey":"local"}"#;
    std::fs::write(
        &configuration,
        format!("[default]\ncredential_process = sh -c 'sleep 6; echo $0' '{credentials}'\n"),
    )
    .unwrap();
    let (_reader, full) = std::io::pipe().unwrap();
    rustix::io::ioctl_fionbio(&full, true).unwrap();
    while (&full).write(&[0; 512]).is_ok() {}
    rustix::io::ioctl_fionbio(&full, false).unwrap();
    let mut command = place.command();
    command.env("AWS_CONFIG_FILE", configuration).env_remove("AWS_ACCESS_KEY_ID").env_remove("AWS_SECRET_ACCESS_KEY");
    let status = soon("it ends", command.args(["run", "k", "--", "true"]).stderr(full).status()).await;
    assert!(status.unwrap().success());
}
