//! Each failure is one log line. Its level shows whether somebody has to act.

#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on fails")]

use aws_sdk_dynamodb::types::AttributeValue;
use lambda_lock::LockClient;
use lambda_lock_local::{Function, Invocation, Lambda, LocalDynamoDb, Outcome, TaskTokens, client};
use serde_json::{Value, json};
use std::time::Duration;

const TABLE: &str = "locks";

/// The real function, three times: with its table, without a table, and without a DynamoDB.
struct Stage {
    dynamodb: LocalDynamoDb,
    tokens: TaskTokens,
    lambda: Lambda,
}

impl Stage {
    async fn new() -> Self {
        let (dynamodb, tokens) = (LocalDynamoDb::in_memory().await.unwrap(), TaskTokens::start().await.unwrap());
        LockClient::builder(client(dynamodb.endpoint()), TABLE)
            .build()
            .unwrap()
            .operator()
            .create_table()
            .await
            .unwrap();
        let function = |name: &str, table: &str, endpoint: &str| Function {
            name: name.to_owned(),
            binary: env!("CARGO_BIN_EXE_lock-task").into(),
            environment: [
                ("LOCK_TABLE", table),
                ("AWS_ENDPOINT_URL_DYNAMODB", endpoint),
                ("AWS_ENDPOINT_URL_SFN", tokens.endpoint()),
            ]
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .into(),
            timeout: Duration::from_secs(3),
            memory_mb: 128,
            ..Function::default()
        };
        let functions = vec![
            function("lock-task", TABLE, dynamodb.endpoint()),
            function("without-table", "missing", dynamodb.endpoint()),
            function("without-dynamodb", TABLE, "http://127.0.0.1:1"),
        ];
        Self { lambda: Lambda::start(functions).await.unwrap(), dynamodb, tokens }
    }

    async fn invoke(&self, function: &str, request: &Value) -> Invocation {
        self.lambda.invoke(function, &request.to_string()).await.unwrap()
    }

    async fn lock(&self, key: &str) -> Value {
        let granted = self.invoke("lock-task", &acquire(key, "somebody")).await;
        let Outcome::Answer(answer) = &granted.outcome else { panic!("{granted:?}") };
        assert_eq!(lines(&granted), Vec::<Value>::new(), "a grant writes no log line");
        serde_json::from_str::<Value>(answer).unwrap()["lock"].clone()
    }
}

fn acquire(key: &str, owner: &str) -> Value {
    json!({ "action": "acquire", "key": key, "owner": owner, "leaseSeconds": 60 })
}

/// Returns the log lines with an error name, and all lines at ERROR.
fn lines(invocation: &Invocation) -> Vec<Value> {
    let lines = invocation.logs.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    lines.filter(|line| line.get("error_type").is_some() || line["level"] == "ERROR").collect()
}

#[tokio::test]
async fn each_failure_is_one_line_with_its_name_key_and_sentence_at_the_right_level() {
    let stage = Stage::new().await;
    let lock = stage.lock("k").await;
    let lost = stage.lock("lost").await;
    stage.invoke("lock-task", &json!({ "action": "release", "lock": lost })).await;
    let put = client(stage.dynamodb.endpoint()).put_item().table_name(TABLE);
    put.item("key", AttributeValue::S("spoilt".to_owned())).send().await.unwrap();
    let renew = |lock: &Value| json!({ "action": "renew", "lock": lock, "leaseSeconds": 60 });
    let malformed = json!({ "action": "acquire", "key": "k", "owner": "me" });
    for (function, request, name, level, key) in [
        ("lock-task", acquire("k", "me"), "LockHeld", "INFO", Some("k")),
        ("lock-task", renew(&lost), "LockLost", "WARN", Some("lost")),
        ("lock-task", malformed, "InvalidRequest", "WARN", Some("k")),
        ("lock-task", json!({ "action": "release", "lock": { "key": "k" } }), "InvalidRequest", "WARN", Some("k")),
        ("lock-task", json!({ "action": "release" }), "InvalidRequest", "WARN", None),
        ("without-dynamodb", renew(&lock), "LockUnknown", "WARN", Some("k")),
        ("lock-task", acquire("spoilt", "me"), "InvalidRecord", "ERROR", Some("spoilt")),
        ("without-table", acquire("k", "me"), "LockTableError", "ERROR", Some("k")),
    ] {
        let failed = stage.invoke(function, &request).await;
        let Outcome::Error { error_type, message } = &failed.outcome else { panic!("{failed:?}") };
        let lines = lines(&failed);
        let [line] = lines.as_slice() else { panic!("{name}: {lines:#?}") };
        assert_eq!((error_type.as_str(), &line["error_type"], &line["level"]), (name, &json!(name), &json!(level)));
        assert_eq!((line["message"].as_str(), line["key"].as_str()), (Some(message.as_str()), key), "{line}");
        assert!(!failed.logs.contains("Failure"), "{}", failed.logs);
    }
}

/// The caller has an answer, so without this line no alarm would tell that its lease was too short.
#[tokio::test]
async fn a_release_that_finds_the_lock_gone_says_so_as_a_lost_lock() {
    let stage = Stage::new().await;
    let lock = stage.lock("k").await;
    let release = json!({ "action": "release", "lock": lock });
    for _ in 0..2 {
        let released = stage.invoke("lock-task", &release).await;
        assert_eq!(released.outcome, Outcome::Answer(r#"{"released":true}"#.to_owned()));
        assert_eq!(lines(&released), Vec::<Value>::new(), "nobody has acquired it since");
    }
    stage.lock("k").await;

    let gone = stage.invoke("lock-task", &release).await;

    assert_eq!(gone.outcome, Outcome::Answer(r#"{"reason":"gone","released":false}"#.to_owned()));
    let lines = lines(&gone);
    let [line] = lines.as_slice() else { panic!("{lines:#?}") };
    assert_eq!((&line["error_type"], &line["level"], &line["key"]), (&json!("LockLost"), &json!("WARN"), &json!("k")));
}

/// Without that permission nobody would ever be woken, and every release would succeed.
#[tokio::test]
async fn a_release_that_may_wake_nobody_says_that_the_role_has_to_be_repaired() {
    let stage = Stage::new().await;
    let lock = stage.lock("k").await;
    let in_line = json!({ "inLine": true, "whenHeld": "report" });
    let mut ask = acquire("k", "me");
    ask.as_object_mut().unwrap().extend(in_line.as_object().unwrap().clone());
    let Outcome::Answer(report) = stage.invoke("lock-task", &ask).await.outcome else { panic!("no report") };
    let observation = serde_json::from_str::<Value>(&report).unwrap()["observation"].clone();
    let wait = json!({
        "action": "wait", "key": "k", "observation": observation, "waitedSeconds": 0, "taskToken": "mine",
    });
    assert!(matches!(stage.invoke("lock-task", &wait).await.outcome, Outcome::Answer(_)));
    stage.tokens.refuse("AccessDeniedException");

    let released = stage.invoke("lock-task", &json!({ "action": "release", "lock": lock })).await;

    assert!(matches!(&released.outcome, Outcome::Answer(answer) if answer.contains("true")), "{released:?}");
    let lines = lines(&released);
    let [line] = lines.as_slice() else { panic!("{lines:#?}") };
    assert_eq!(
        (&line["error_type"], &line["level"], &line["key"]),
        (&json!("LockTableError"), &json!("ERROR"), &json!("k"))
    );
    assert!(line["message"].as_str().unwrap().contains("states:SendTaskSuccess"), "{line}");
}
