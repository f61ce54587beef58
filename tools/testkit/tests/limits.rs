//! Tests that a test which hangs is stopped and named, and that a test which fails names its case.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a helper of a test may stop it")]

use lambda_lock_testkit::{Fault, Table, case, ends_within, until};
use std::process::Command;
use std::time::Duration;

const HOW: &str = "LAMBDA_LOCK_TEST_FAILS";

/// Runs this test again in another process, in which it fails in this way. Returns the output of that
/// process.
fn failing(test: &str, how: &str) -> String {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", test]).env(HOW, how).env("LAMBDA_LOCK_LONGEST_TEST", "1");
    let output = command.output().unwrap();
    assert!(!output.status.success(), "{how}");
    String::from_utf8(output.stdout).unwrap() + &String::from_utf8(output.stderr).unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_test_that_hangs_is_stopped_and_named() {
    let this = "a_test_that_hangs_is_stopped_and_named";
    let table = Table::new();
    let process = table.process();
    match std::env::var(HOW).as_deref() {
        // The test never awaits.
        Ok("loops") => loop {
            std::hint::spin_loop();
        },
        // The test awaits something that never happens.
        Ok("waits") => std::future::pending().await,
        // It holds a thread, so that time does not go on.
        Ok("blocks") => tokio::task::spawn_blocking(|| {
            loop {
                std::thread::park()
            }
        })
        .await
        .unwrap(),
        // The test waits without end in virtual time.
        Ok("sleeps") => loop {
            tokio::time::sleep(Duration::from_secs(1)).await;
        },
        Ok(how) => panic!("{how}"),
        Err(_) => drop(process),
    }
    for how in ["loops", "blocks", "sleeps"] {
        let said = failing(this, how);
        assert!(said.contains(&format!("the test {this} has run for 1s")), "{how}: {said}");
    }
    let said = failing(this, "waits");
    assert!(said.contains(&format!("the test {this} waits for something that never happens")), "{said}");
}

#[tokio::test(start_paused = true)]
#[should_panic(expected = "does the call never end?")]
async fn a_call_that_sends_requests_without_end_is_stopped() {
    let table = Table::new();
    let process = table.process();
    process.next(vec![Fault::error("ThrottlingException"); 30_000]);
    let dynamodb = process.dynamodb();
    loop {
        let _ = dynamodb.get_item().table_name("locks").send().await;
    }
}

#[tokio::test(start_paused = true)]
#[should_panic(expected = "had not ended after 10s")]
async fn a_call_that_exceeds_its_limit_is_stopped() {
    ends_within(Duration::from_secs(10), std::future::pending::<()>()).await;
}

#[tokio::test(start_paused = true)]
#[should_panic(expected = "waited in vain for this: the moon")]
async fn a_condition_that_never_becomes_true_is_not_waited_for() {
    until("the moon", || false).await;
}

/// Otherwise the one that fails in a few runs of a hundred is found by chance.
#[test]
fn random_numbers_are_the_same_in_each_run() {
    let drawn = || {
        let process = Table::none().process();
        process.clock.shared().random()
    };
    let of_a_thread = || std::thread::spawn(drawn).join().unwrap();

    assert_eq!(of_a_thread(), of_a_thread());
}

#[tokio::test(start_paused = true)]
async fn a_call_within_its_limit_is_not_stopped() {
    assert_eq!(ends_within(Duration::from_secs(10), async { 7 }).await, 7);
}

#[test]
fn a_failed_test_prints_its_case() {
    let this = "a_failed_test_prints_its_case";
    if std::env::var(HOW).is_ok() {
        for name in ["the first", "the second", "the third"] {
            let _case = case(name);
            assert_ne!(name, "the second");
        }
    }

    let said = failing(this, "in the second case");

    assert!(said.contains("the case that failed: the second"), "{said}");
    assert_eq!(said.matches("the case that failed").count(), 1, "{said}");
}
