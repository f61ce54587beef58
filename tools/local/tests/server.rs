//! Tests of the embedded DynamoDB as another process uses it: over HTTP, through the SDK. And of a handler on it.

#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a test that cannot go on fails, and one waits for a server to stop"
)]

use lambda_lock::once::Attempt;
use lambda_lock::{Budget, Error, ErrorKind, LockClient};
use lambda_lock_local::{LocalDynamoDb, client, context};
use lambda_lock_testkit::{soon, soon_so};
use lambda_runtime::{Context, LambdaEvent};
use std::path::Path;
use std::process::Stdio;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::net::TcpStream;
use tokio::process::Command;

async fn serves_until_it_is_dropped(dynamodb: LocalDynamoDb) {
    let client = client(dynamodb.endpoint());
    assert!(client.list_tables().send().await.unwrap().table_names().is_empty());

    let address = dynamodb.endpoint().strip_prefix("http://").unwrap().to_owned();
    drop(dynamodb);
    soon_so("it serves no more", async || TcpStream::connect(&address).await.is_err()).await;
}

#[tokio::test]
async fn it_serves_until_it_is_dropped() {
    serves_until_it_is_dropped(LocalDynamoDb::in_memory().await.unwrap()).await;
}

/// For whoever has another SQLite in the graph.
#[tokio::test]
async fn in_a_process_of_its_own_it_serves_until_it_is_dropped() {
    let program = Path::new(env!("CARGO_BIN_EXE_lambda-lock-local"));
    serves_until_it_is_dropped(LocalDynamoDb::of_program(program).await.unwrap()).await;

    let error = LocalDynamoDb::of_program(Path::new("/no-such-program")).await.unwrap_err();
    assert!(error.to_string().contains("/no-such-program cannot be started"), "{error}");
}

/// Such as another program that was given by mistake. The paused clock is at the limit at once.
#[tokio::test(start_paused = true)]
async fn a_program_that_says_nothing_is_an_error_and_not_waited_for_without_end() {
    // With `dynamodb` as its argument it looks for this word in its input.
    let program = Path::new("grep");

    let started = soon("it is given up", LocalDynamoDb::of_program(program)).await;

    let error = started.unwrap_err().to_string();
    assert!(error.contains("said nothing within 60s"), "{error}");
}

/// As when a test is killed.
#[tokio::test]
async fn a_process_of_its_own_ends_with_its_standard_input() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lambda-lock-local"));
    command.arg("dynamodb").stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
    let mut process = command.spawn().unwrap();
    let mut said = BufReader::new(process.stdout.take().unwrap()).lines();
    let endpoint = soon("its endpoint", said.next_line()).await.unwrap().unwrap();
    assert!(endpoint.starts_with("http://127.0.0.1:"), "{endpoint}");

    drop(process.stdin.take());

    assert!(soon("it ends", process.wait()).await.unwrap().success());
}

/// The handler of README.
#[tokio::test]
async fn a_handler_is_tested_with_a_context_that_has_a_deadline() {
    let local = LocalDynamoDb::with_tables(&[("locks", "key")]).await.unwrap();
    let locks = LockClient::builder(local.client(), "locks").build().unwrap();
    let charges = AtomicU32::new(0);
    let handler = async |event: LambdaEvent<String>| {
        let budget = Budget::from(&event.context);
        let once = locks.once(format!("charge/{}", event.payload)).payload(&event.payload).within(&budget);
        let charge = async |_: &mut Attempt| Ok::<_, Error>(charges.fetch_add(1, Ordering::Relaxed) + 1);
        once.run(charge).await.map(|outcome| outcome.into_result())
    };
    let order = |context| LambdaEvent::new("o-1".to_owned(), context);

    assert_eq!(handler(order(context(Duration::from_secs(30)))).await.unwrap(), 1);
    assert_eq!(handler(order(context(Duration::from_secs(30)))).await.unwrap(), 1, "an event that comes twice");

    assert!(handler(order(Context::default())).await.is_err(), "without a deadline there is no lease");
    assert!(
        handler(LambdaEvent::new("o-2".to_owned(), context(Duration::ZERO))).await.unwrap_err().kind()
            == ErrorKind::OutOfTime
    );
}

/// Tokio's clock is not Lambda's: a handler cannot be brought to its deadline by it.
#[tokio::test(start_paused = true)]
async fn a_paused_clock_moves_no_deadline() {
    let budget = Budget::from(&context(Duration::from_secs(600)));

    tokio::time::sleep(Duration::from_secs(900)).await;

    assert!(budget.remaining().unwrap() > Duration::from_secs(300));
}

#[tokio::test]
async fn each_one_has_its_own_tables() {
    let (first, second) = (LocalDynamoDb::in_memory().await.unwrap(), LocalDynamoDb::in_memory().await.unwrap());
    let locks = lambda_lock::LockClient::builder(client(first.endpoint()), "locks").build().unwrap();
    locks.operator().create_table().await.unwrap();
    assert_eq!(client(first.endpoint()).list_tables().send().await.unwrap().table_names(), ["locks"]);
    assert!(client(second.endpoint()).list_tables().send().await.unwrap().table_names().is_empty());
}
