//! `doctor`, a role that only looks, and a large table.

use crate::golden::{assert_golden, golden, golden_coloured};
use crate::place::{LEASE, Place, TABLE, end};
use aws_sdk_dynamodb::types::{AttributeValue, PutRequest, WriteRequest};
use lambda_lock_local::authorize::{AuthorizingProxy, Grant, Role};
use std::collections::BTreeMap;
use std::process::Stdio;
use std::time::{Duration, Instant};
use tokio::io::{AsyncBufReadExt, BufReader};

#[tokio::test(flavor = "multi_thread")]
async fn doctor() {
    let place = Place::new().await;
    golden(&place, "doctor", &["doctor"]).await;
    golden(&place, "doctor-write", &["doctor", "--write", "--ttl-attribute", "expiresAt"]).await;
    golden(&place, "doctor-json", &["doctor", "--json"]).await;
    golden_coloured(&place, "doctor-write", &["doctor", "--write", "--ttl-attribute", "expiresAt"]).await;
    let left = place.local.client().scan().table_name(TABLE).send().await.unwrap();
    assert_eq!(left.count, 0, "the trial leaves no row");
    let failed = place.run(&["doctor", "--table", "nowhere"]).await;
    assert_eq!(failed.code(), 78);
    assert!(failed.out.contains("failed   table"), "{failed:?}");
    let wrong = place.run(&["doctor", "--key-attribute", "pk"]).await;
    assert_eq!(wrong.code(), 78, "{wrong:?}");
}

fn on_the_table(action: &str) -> Grant {
    Grant::new(format!("dynamodb:{action}"), format!("arn:aws:dynamodb:eu-central-1:123456789012:table/{TABLE}"))
}

/// Scan and GetItem are enough to look, and both are needed.
#[tokio::test(flavor = "multi_thread")]
async fn a_role_that_reads_is_enough_to_look_and_for_nothing_else() {
    let place = Place::new().await;
    let lock = place.held("k", "holder").await;
    let seen = place.locks("test").operator().peek("k").await.unwrap().unwrap().version;
    let role = |actions: &[&str]| actions.iter().map(|action| on_the_table(action)).collect::<Role>();
    let roles = BTreeMap::from([
        ("looker".to_owned(), role(&["GetItem", "Scan"])),
        ("no-scan".to_owned(), role(&["GetItem"])),
        ("no-get".to_owned(), role(&["Scan"])),
        ("locker".to_owned(), role(&["DescribeTable", "DescribeTimeToLive", "GetItem", "Scan", "UpdateItem"])),
    ]);
    let proxy = AuthorizingProxy::start(place.local.endpoint(), roles).await.unwrap();
    let run = async |who: &str, arguments: &[&str]| {
        let mut command = place.command();
        command.env("AWS_ENDPOINT_URL_DYNAMODB", proxy.endpoint()).env("AWS_ACCESS_KEY_ID", who);
        end(command.args(arguments)).await
    };
    let (ls, show) = (["ls"], ["show", "k"]);
    let watch_one = ["watch", "k", "--for", "100ms", "--interval", "100ms"];
    let watch_all = ["watch", "--for", "100ms", "--interval", "100ms"];
    for looking in [&ls[..], &show, &watch_one, &watch_all] {
        assert!(run("looker", looking).await.done().contains("holder"), "{looking:?}");
    }
    assert_eq!(proxy.used("looker"), role(&["GetItem", "Scan"]));
    for (who, denied) in [("no-scan", [&ls[..], &watch_all]), ("no-get", [&show[..], &watch_one])] {
        for looking in denied {
            assert_eq!(run(who, looking).await.code(), 77, "{who}: {looking:?}");
        }
    }
    assert_golden("break-denied", &run("looker", &["break", "k", "--seen", &seen, "--reason", "r", "--yes"]).await);
    assert_eq!(run("looker", &["acquire", "other"]).await.code(), 77);
    assert_eq!(run("looker", &["run", "other", "--", "echo", "ran"]).await.code(), 77);
    assert_golden("doctor-denied", &run("looker", &["doctor", "--write"]).await);
    // Who locks deletes nothing, so that is a warning. It says which row stays.
    let locker = run("locker", &["doctor", "--write"]).await;
    assert!(locker.status.success(), "{locker:?}");
    let denied = locker.out.lines().find(|line| line.contains("DeleteItem")).unwrap();
    let rows = place.local.client().scan().table_name(TABLE).send().await.unwrap().items.unwrap();
    let left = rows.iter().map(|row| row["key"].as_s().unwrap()).find(|key| *key != "k").unwrap();
    assert!(
        denied.starts_with("warning") && denied.contains(&format!("the row of this trial, {left}, stays")),
        "{denied}"
    );
    lock.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn ls_stops_when_it_has_read_so_much_and_says_so() {
    let place = Place::new().await;
    let locks = place.locks("test");
    // More than DynamoDB returns at once.
    for number in 0..150 {
        let held = locks.acquire(format!("k-{number}")).lease(LEASE).data(vec![7; 8_000]).try_once();
        let _ = held.await.unwrap().granted().unwrap().save();
    }
    for (units, is_whole) in [("1", false), ("5000", true)] {
        let list = place.run(&["ls", "--read-units", units]).await;
        let rows = list.out.lines().count() - 1;
        assert!(list.status.success() && (rows == 150) == is_whole && rows > 0, "{units}: {list:?}");
        assert_eq!(list.err.contains("give a larger --read-units"), !is_whole, "{units}: {}", list.err);
        let summary = place.run(&["ls", "--json", "--read-units", units]).await.err;
        assert!(summary.contains(&format!("\"complete\":{is_whole}")), "{units}: {summary}");
    }
}

/// `cargo test --test command -- --ignored --nocapture a_large_table`
#[tokio::test(flavor = "multi_thread")]
#[ignore = "it measures for a minute"]
#[allow(clippy::print_stdout, reason = "its figures are its output")]
async fn a_large_table() {
    let place = Place::new().await;
    let _ = place.held("template", "holder").await.save();
    let client = place.local.client();
    let item = client.scan().table_name(TABLE).send().await.unwrap().items.unwrap().remove(0);
    let mut written = 1;
    for rows in [1_000, 10_000, 100_000] {
        while written < rows {
            let puts = (written..(written + 25).min(rows)).map(|number| {
                let mut item = item.clone();
                item.insert("key".to_owned(), AttributeValue::S(format!("customer-{number:06}")));
                WriteRequest::builder().put_request(PutRequest::builder().set_item(Some(item)).build().unwrap()).build()
            });
            let puts: Vec<_> = puts.collect();
            written += puts.len();
            client.batch_write_item().request_items(TABLE, puts).send().await.unwrap();
        }
        let begun = Instant::now();
        let mut child = place.command().arg("ls").stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let status = format!("/proc/{}/status", child.id().unwrap());
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let (mut first, mut count, mut most) = (Duration::ZERO, 0, String::new());
        while lines.next_line().await.unwrap().is_some() {
            count += 1;
            // The first line is the head.
            if count == 2 {
                first = begun.elapsed();
            }
            if count % 500 == 0 {
                let said = std::fs::read_to_string(&status).unwrap_or_default();
                most = said.lines().find(|line| line.starts_with("VmHWM")).unwrap_or(&most).to_owned();
            }
        }
        let told = String::from_utf8(child.wait_with_output().await.unwrap().stderr).unwrap();
        println!("{rows} rows: first {first:?}, all {:?}, {most}, {}", begun.elapsed(), told.trim());
        assert_eq!(count, rows + 1);
    }
}
