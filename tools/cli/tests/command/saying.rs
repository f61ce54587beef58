//! What an operator is told, where an earlier sentence was wrong or missing.

use crate::place::{Ended, LEASE, Place, TABLE, end, end_of};
use aws_sdk_dynamodb::types::AttributeValue;
use lambda_lock::once::Started;
use lambda_lock::{Budget, LockClient, ReleaseOutcome};
use lambda_lock_local::LocalDynamoDb;
use lambda_lock_testkit::{peeked, soon};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use serde_json::{Value, json};
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;
use tokio::io::AsyncReadExt;
use tokio::process::ChildStderr;

/// Work that failed for good.
pub(crate) async fn failed(locks: &LockClient, name: &str) {
    let started = locks.once(name).owner("host-a").lease(LEASE).start::<()>().await.unwrap();
    let Started::Attempt(attempt) = started else { panic!("it has an outcome") };
    attempt.fail(&json!({ "reason": "the card was refused" })).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn show_finds_the_places_of_a_semaphore_and_idempotent_work_by_their_names() {
    let place = Place::new().await;
    let locks = place.locks("test");
    let budget = Budget::lasting(Duration::from_secs(60));
    let mut permits = Vec::new();
    for _ in 0..2 {
        permits.push(locks.semaphore("gateway", 2).acquire().within(&budget).owner("caller/1").await.unwrap());
    }
    let shown = place.run(&["show", "gateway"]).await.done();
    assert!(!shown.contains("next acquire gets it"), "{shown}");
    for held in ["gateway/0 is held by caller/1", "gateway/1 is held by caller/1"] {
        assert!(shown.contains(held), "{shown}");
    }
    let json = place.run(&["show", "gateway", "--json"]).await.done();
    let json: Value = serde_json::from_str(&json).unwrap();
    assert!(json["places"][1]["state"] == "held" && json["places"].as_array().unwrap().len() == 2, "{json}");

    locks.once("order-9").within(&budget).run(async |_| Ok::<_, lambda_lock::Error>(())).await.unwrap();
    failed(&locks, "order-10").await;
    let open = locks.once("order-11").owner("host-b").lease(LEASE).start::<()>().await.unwrap();
    let blue = locks.prefixed("blue/").unwrap();
    failed(&blue, "order-12").await;
    for (typed, says) in [
        ("order-9", "once/order-9 is idempotent work, and done"),
        ("order-10", "once/order-10 is idempotent work, and failed"),
        ("order-11", "once/order-11 is held by host-b"),
        ("blue/order-12", "blue/once/order-12 is idempotent work, and failed"),
        ("blue/once/order-12", "blue/once/order-12 is idempotent work, and failed"),
    ] {
        let shown = place.run(&["show", typed]).await.done();
        assert!(shown.contains(says) && !shown.contains("nobody holds it"), "{typed}: {shown}");
    }
    drop(open);
    let nobody = place.run(&["show", "nobody"]).await.done();
    assert_eq!(nobody, "nobody has no row: nobody holds it. The next acquire gets it.\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn failed_work_is_shown_with_its_failure_and_the_command_that_allows_it_again() {
    let place = Place::new().await;
    let locks = place.locks("test");
    let blue = locks.prefixed("blue/").unwrap();
    failed(&locks, "it's 9").await;
    failed(&blue, "order-9").await;
    for (key, reset) in
        [("once/it's 9", r"once-reset 'once/it'\''s 9' "), ("blue/once/order-9", "once-reset blue/once/order-9 ")]
    {
        let shown = place.run(&["show", key]).await.done();
        assert!(shown.contains("the card was refused") && shown.contains(reset), "{shown}");
        let json: Value = serde_json::from_str(&place.run(&["show", key, "--json"]).await.done()).unwrap();
        assert!(json["work"]["failure"].as_str().unwrap().contains("the card was refused"), "{json}");
        place.run(&["once-reset", key, "--reason", "r", "--yes"]).await.done();
        let shown = place.run(&["show", key]).await.done();
        assert!(shown.contains("without an outcome") && !shown.contains("the card was refused"), "{shown}");
    }
    let missing = place.run(&["once-reset", "nobody", "--reason", "r", "--yes"]).await;
    assert!(missing.code() == 76 && missing.err.contains("\"nobody\""), "{missing:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn watch_does_not_call_a_dead_lock_held() {
    let place = Place::new().await;
    let dies =
        place.locks("test").acquire("k").owner("host-c/9").lease(Duration::from_secs(1)).try_once().await.unwrap();
    let _ = dies.granted().unwrap().save();
    tokio::time::sleep(Duration::from_millis(1_100)).await;
    let looked = place.run(&["watch", "--for", "0s", "--max-clock-skew-ms", "0"]).await.done();
    assert!(looked.contains("dead") && !looked.contains("held"), "{looked}");
    let json = place.run(&["watch", "--for", "0s", "--max-clock-skew-ms", "0", "--json"]).await.done();
    assert!(json.contains(r#""change":"dead""#), "{json}");
    place.run_with(&["timeline"], &json).await.done();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_is_held_until_clocks_agree_that_its_lease_is_over() {
    let place = Place::new().await;
    let lease = Duration::from_millis(1);
    let _ = place.locks("test").acquire("k").lease(lease).try_once().await.unwrap().granted().unwrap().save();
    tokio::time::sleep(Duration::from_millis(10)).await;
    for (skew, state) in [("0", "dead"), ("3600000", "held")] {
        for arguments in [&["show", "k", "--json"][..], &["ls", "--json"]] {
            let said = end(place.command().args(arguments).args(["--max-clock-skew-ms", skew])).await;
            assert!(said.out.contains(&format!("\"state\":\"{state}\"")), "{arguments:?} {skew}: {said:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_has_a_lock_that_is_free() {
    let place = Place::new().await;
    for released_by in ["its holder", "an operator", "a Java client"] {
        let locks = place.locks("test");
        let held =
            locks.acquire("k").workflow("an execution").lease(LEASE).try_once().await.unwrap().granted().unwrap();
        assert!(place.run(&["ls", "--workflow", "an execution"]).await.done().contains(" k "));
        match released_by {
            "its holder" => assert_eq!(held.release().await.unwrap(), ReleaseOutcome::Released),
            "an operator" => {
                locks.operator().break_lock("k", &peeked(&locks, "k").await, "gone").await.unwrap();
                let _ = held.save();
            }
            // It does not know the attribute, and leaves it.
            _ => {
                let _ = held.save();
                let release = place.local.client().update_item().table_name(TABLE);
                let release = release.key("key", AttributeValue::S("k".to_owned()));
                let release = release.update_expression("SET isReleased = :released");
                let released = AttributeValue::S("1".to_owned());
                release.expression_attribute_values(":released", released).send().await.unwrap();
            }
        }
        let listed = place.run(&["ls", "--workflow", "an execution"]).await;
        assert!(!listed.out.contains(" k "), "{released_by}: {listed:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_break_of_a_lock_without_a_row_says_that_there_is_none() {
    let place = Place::new().await;
    for yes in [&[][..], &["--yes"]] {
        let arguments = [&["break", "nobody", "--seen", "ll1-x", "--reason", "r"], yes].concat();
        let ended = place.run(&arguments).await;
        assert_eq!(ended.code(), 76, "{ended:?}");
        assert!(ended.err.contains("\"nobody\" has no row") && !ended.err.contains("changed"), "{ended:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_freeze_with_yes_says_too_that_it_makes_a_row() {
    let place = Place::new().await;
    let freeze = ["freeze", "customer-typo", "--reason", "r", "--yes"];
    let made = place.run(&freeze).await;
    assert!(made.status.success() && made.err.contains("customer-typo has no row yet"), "{made:?}");
    let again = place.run(&freeze).await;
    assert!(again.status.success() && again.err.is_empty(), "{again:?}");
}

/// The work could not begin until somebody deletes the row.
#[tokio::test(flavor = "multi_thread")]
async fn no_lock_is_made_where_the_record_of_a_clients_work_belongs() {
    let place = Place::new().await;
    for arguments in [&["run", "blue/once/order-9", "--", "true"][..], &["acquire", "blue/once/order-9"]] {
        let refused = place.run(arguments).await;
        assert!(refused.code() == 2 && refused.err.contains("would block the work"), "{refused:?}");
    }
    assert!(place.run(&["ls", "--json"]).await.done().is_empty());
    let blue = place.locks("test").prefixed("blue/").unwrap();
    failed(&blue, "order-9").await;
    assert_eq!(place.run(&["acquire", "blue/once/order-9"]).await.code(), 2);
}

/// A terminal, and what reads from it.
pub(crate) fn terminal() -> (File, File) {
    let terminal = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&terminal).unwrap();
    unlockpt(&terminal).unwrap();
    let name = ptsname(&terminal, Vec::new()).unwrap();
    let path = Path::new(std::ffi::OsStr::from_bytes(name.as_bytes()));
    let input = OpenOptions::new().read(true).write(true).open(path).unwrap();
    (File::from(terminal), input)
}

/// What a command says until it asks.
pub(crate) async fn asks(err: &mut ChildStderr) -> String {
    let mut said = Vec::new();
    while !said.ends_with(b"[y/N] ") {
        said.push(soon("it asks", err.read_u8()).await.unwrap());
    }
    String::from_utf8(said).unwrap()
}

/// Runs the command at a terminal, at which somebody types something before the question, and this after it.
async fn answered(place: &Place, arguments: &[&str], before: &str, answer: &str) -> Ended {
    let (mut terminal, input) = terminal();
    terminal.write_all(before.as_bytes()).unwrap();
    let mut command = place.command();
    command.args(arguments).stdin(Stdio::from(input)).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut err = child.stderr.take().unwrap();
    let mut said = asks(&mut err).await;
    terminal.write_all(answer.as_bytes()).unwrap();
    soon("it ends", err.read_to_string(&mut said)).await.unwrap();
    Ended { err: said, ..end_of(child).await }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_no_is_no_error() {
    let place = Place::new().await;
    place.held("k", "holder").await.release().await.unwrap();
    for (before, answer) in [("", "n\n"), ("", "\n"), ("y\n", "n\n")] {
        let ended = answered(&place, &["freeze", "k", "--reason", "r"], before, answer).await;
        assert_eq!(ended.code(), 1, "{ended:?}");
        assert!(ended.err.ends_with("nothing was changed\n") && !ended.err.contains("error"), "{ended:?}");
    }
    let ended = answered(&place, &["freeze", "k", "--reason", "r"], "", "y\n").await;
    assert!(ended.status.success() && ended.out.contains("is frozen"), "{ended:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn ls_prints_nothing_but_the_error_of_a_table_that_cannot_be_read() {
    let place = Place::new().await;
    let ended = place.run(&["ls", "--table", "nowhere"]).await;
    assert_eq!((ended.code(), ended.out.as_str()), (78, ""), "{ended:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn ls_keeps_its_columns_apart_and_finds_a_part_of_a_key() {
    let place = Place::new().await;
    let locks = place.locks("test");
    let held = locks
        .acquire("export/customer-7")
        .owner("o")
        .lease(Duration::from_secs(366 * 86_400))
        .try_once()
        .await
        .unwrap();
    let _ = held.granted().unwrap().save();
    place.held("export/customer-8", "o").await.release().await.unwrap();
    let item =
        place.local.client().get_item().table_name(TABLE).key("key", text("export/customer-7")).send().await.unwrap();
    let mut item = item.item.unwrap();
    // As one that was renewed eleven months ago.
    let version = item["recordVersionNumber"].as_s().unwrap().clone();
    let (begin, stamp) = version.rsplit_once('-').unwrap();
    let millis = u64::from_str_radix(&stamp[..12], 16).unwrap() - 345 * 86_400_000;
    item.insert("recordVersionNumber".to_owned(), text(&format!("{begin}-{millis:012x}{}", &stamp[12..])));
    place.local.client().put_item().table_name(TABLE).set_item(Some(item)).send().await.unwrap();
    let listed = place.run(&["ls", "--contains", "customer-7"]).await.done();
    let line = listed.lines().nth(1).unwrap();
    assert!(line.contains("days ago ") && line.contains(" export/customer-7 "), "{listed}");
    assert!(line.matches("days ").count() + line.matches("day ").count() >= 1 && !line.contains("days1"), "{listed}");
    assert!(!listed.contains("customer-8"), "{listed}");
}

fn text(text: &str) -> AttributeValue {
    AttributeValue::S(text.to_owned())
}

/// The path of this program may be any bytes.
#[tokio::test(flavor = "multi_thread")]
async fn asl_prints_itself_also_where_the_path_of_the_program_is_no_text() {
    let place = Place::new().await;
    let mut command = place.command();
    command.arg0(std::ffi::OsStr::from_bytes(b"\xff/lambda-lock")).arg("asl");
    assert!(end(&mut command).await.done().contains("lambda-lock asl"));
}

#[tokio::test(flavor = "multi_thread")]
async fn man_makes_its_directory_or_names_it() {
    let place = Place::new().await;
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("man-anew");
    let _ = std::fs::remove_dir_all(&directory);
    let below = directory.join("share/man1");
    place.run(&["man", below.to_str().unwrap()]).await.done();
    assert!(below.join("lambda-lock-break.1").exists());
    let file = directory.join("file");
    std::fs::write(&file, "").unwrap();
    let refused = place.run(&["man", file.to_str().unwrap()]).await;
    assert!(refused.err.contains("man-anew/file"), "{refused:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn who_has_no_credentials_is_told_to_log_in() {
    let place = Place::new().await;
    for more in [&[][..], &["--profile", "nobody"]] {
        let mut command = place.command();
        command.env_remove("AWS_ACCESS_KEY_ID").env("AWS_EC2_METADATA_DISABLED", "true").arg("ls").args(more);
        let ended = end(&mut command).await;
        assert_eq!(ended.code(), 77, "{ended:?}");
        assert!(ended.err.contains("aws sso login") && !ended.err.contains("\\u{"), "{ended:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_usage_names_no_option_that_a_variable_gave() {
    let place = Place::new().await;
    let mut command = place.command();
    command.env("LOCK_TABLE", TABLE).env("LOCK_TTL_ATTRIBUTE", "expiresAt").args(["break", "k"]);
    let refused = end(&mut command).await;
    assert_eq!(refused.code(), 2);
    assert!(refused.err.contains("--seen <VERSION>") && !refused.err.contains("--table"), "{refused:?}");
    assert!(!refused.err.contains("--endpoint-url") && !refused.err.contains("--ttl-attribute"), "{refused:?}");
    // What a variable says may be what is wrong.
    let mut command = place.command();
    let refused = end(command.env("LOCK_MAX_CLOCK_SKEW_MS", "much").arg("ls")).await;
    assert!(refused.code() == 2 && refused.err.contains("give whole milliseconds"), "{refused:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn renew_and_release_take_a_lock_whose_numbers_have_a_fraction_and_a_file_with_a_mark() {
    let place = Place::new().await;
    let acquired = place.run(&["acquire", "k", "--owner", "me"]).await.done();
    let mut saved: Value = serde_json::from_str(&acquired).unwrap();
    for name in ["fencingToken", "leaseEndsAt"] {
        saved[name] = json!(saved[name].as_u64().unwrap() as f64);
    }
    let saved = saved.to_string();
    assert!(saved.contains(".0"), "{saved}");
    let renewed = place.run_with(&["renew"], &saved).await.done();
    place.run_with(&["renew"], &format!("\u{feff}{renewed}")).await.done();
    let again = place.run_with(&["renew"], &format!("\u{feff}{saved}")).await.done();
    place.run_with(&["release"], &format!("\u{feff}{again}")).await.done();
    assert!(place.is_free("k").await);
    let mut half: Value = serde_json::from_str(&again).unwrap();
    half["fencingToken"] = json!(1.5);
    assert_eq!(place.run_with(&["renew"], &half.to_string()).await.code(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_of_another_type_is_said_of_the_table() {
    let local = LocalDynamoDb::in_memory().await.unwrap();
    let table = json!({
        "TableName": TABLE, "BillingMode": "PAY_PER_REQUEST", "KeySchema": [{ "AttributeName": "key", "KeyType": "HASH" }],
        "AttributeDefinitions": [{ "AttributeName": "key", "AttributeType": "N" }],
    });
    local.create_tables(&[table]).await.unwrap();
    let place = Place { local };
    let number = AttributeValue::N("7".to_owned());
    place.local.client().put_item().table_name(TABLE).item("key", number).send().await.unwrap();
    let watch = ["watch", "--for", "0s"];
    for arguments in [
        &["show", "k"][..],
        &["acquire", "k"],
        &["freeze", "k", "--reason", "r", "--yes"],
        &["doctor"],
        &["ls"],
        &watch,
    ] {
        let refused = place.run(arguments).await;
        assert_eq!(refused.code(), 78, "{arguments:?}: {refused:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn show_says_the_same_as_json() {
    let place = Place::new().await;
    let locks = place.locks("test");
    let held = locks.acquire("k").lease(LEASE).attribute("shard", 5).attribute("step", "5").try_once();
    let lock = held.await.unwrap().granted().unwrap();
    let json = async |key: &str| {
        let shown = place.run(&["show", key, "--json"]).await.done();
        serde_json::from_str::<Value>(&shown).unwrap()
    };
    let attributes = json!({ "shard": { "N": "5" }, "step": { "S": "5" } });
    assert_eq!(json("k").await["lock"]["attributes"], attributes);
    lock.release().await.unwrap();

    failed(&locks, "order-9").await;
    place.run(&["once-reset", "order-9", "--reason", "paid by hand", "--yes"]).await.done();
    let shown = place.run(&["show", "order-9"]).await.done();
    assert!(shown.contains("last reset, because: paid by hand"), "{shown}");
    assert_eq!(json("order-9").await["work"]["resetReason"], "paid by hand");
}

/// The crate's own text names a method of its builder.
#[tokio::test(flavor = "multi_thread")]
async fn a_sort_key_that_is_missing_or_too_much_is_said_in_the_options_of_the_command() {
    let place = Place::new().await;
    let said = |ended: Ended, what: &str| {
        assert_eq!(ended.code(), 2, "{what}: {ended:?}");
        let names_its_options = ended.err.contains("--sort-key") && ended.err.contains("LOCK_SORT_KEY_ATTRIBUTE");
        assert!(names_its_options && !ended.err.contains("sort_key"), "{what}: {ended:?}");
    };
    for arguments in [
        "show k",
        "history k",
        "watch k",
        "acquire k",
        "run k -- true",
        "break k --seen v --reason r --yes",
        "freeze k --reason r --yes",
        "thaw k --yes",
        "once-reset k --reason r --yes",
    ] {
        let (command, rest) = arguments.split_once(' ').unwrap();
        for option in [["--sort-key-attribute", "sk"], ["--sort-key", "b"]] {
            let arguments: Vec<_> = [command].into_iter().chain(option).chain(rest.split(' ')).collect();
            said(place.run(&arguments).await, &format!("{arguments:?}"));
        }
    }
    let saved = serde_json::to_string(&place.held("k", "a").await.save()).unwrap();
    for command in ["renew", "release"] {
        said(place.run_with(&[command, "--sort-key-attribute", "sk"], &saved).await, command);
    }
}
