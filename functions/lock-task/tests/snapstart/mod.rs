//! SnapStart: nothing is sent before the snapshot, and credentials come from an endpoint.

use lambda_lock_local::authorize::{AuthorizingProxy, Condition, Grant, Role};
use lambda_lock_local::deployed::{Answer, answered, assert_does_not_start, assert_error};
use lambda_lock_local::lambda::Template;
use lambda_lock_local::{ContainerCredentials, Invocation, Lambda, LocalDynamoDb};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;
use tokio::task::JoinHandle;

const NAME: &str = "lock-task";
/// Too few for the SDK to keep the credentials for another request.
const TOO_SHORT: Duration = Duration::from_secs(5);

/// The function of the template, whose credentials come from an endpoint.
struct Stage {
    credentials: ContainerCredentials,
    /// Knows each set of credentials as a caller of its own.
    proxy: AuthorizingProxy,
    lambda: Lambda,
    _dynamodb: LocalDynamoDb,
}

impl Stage {
    /// With SnapStart.
    async fn restored() -> Self {
        Self::with(&[("AWS_LAMBDA_INITIALIZATION_TYPE", "snap-start")], 1).await
    }

    /// With these variables beside the template's. DynamoDB knows sets of credentials from this one on.
    async fn with(variables: &[(&str, &str)], first_set: u32) -> Self {
        let template = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../template.yaml");
        let template = Template::read(&template).unwrap();
        let dynamodb = LocalDynamoDb::in_memory().await.unwrap();
        let mut tables = template.tables().unwrap();
        if let Some((_, sort_key)) = variables.iter().find(|(name, _)| *name == "LOCK_SORT_KEY_ATTRIBUTE") {
            let locks = tables.iter_mut().find(|table| table["TableName"] == "LockTable").unwrap();
            let (element, definition) =
                (("KeySchema", "KeyType", "RANGE"), ("AttributeDefinitions", "AttributeType", "S"));
            for (list, kind, value) in [element, definition] {
                locks[list].as_array_mut().unwrap().push(json!({ "AttributeName": sort_key, kind: value }));
            }
        }
        dynamodb.create_tables(&tables).await.unwrap();
        let prefix = variables.iter().find(|(name, _)| *name == "LOCK_KEY_PREFIX").map(|(_, prefix)| *prefix);
        let roles = (first_set..10).map(|set| (format!("set-{set}"), role(prefix)));
        let proxy = AuthorizingProxy::start(dynamodb.endpoint(), roles.collect()).await.unwrap();
        let credentials = ContainerCredentials::start().await.unwrap();
        let built = BTreeMap::from([(NAME.to_owned(), env!("CARGO_BIN_EXE_lock-task").into())]);
        let mut functions = template.functions(&built, proxy.endpoint()).unwrap();
        for function in &mut functions {
            let given = variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
            function.environment.extend(credentials.variables().into_iter().chain(given));
        }
        Self { credentials, proxy, lambda: Lambda::start(functions).await.unwrap(), _dynamodb: dynamodb }
    }

    /// Acquires a lock with this key beside the test.
    fn begin(&self, key: &str) -> JoinHandle<Invocation> {
        let (lambda, request) = (self.lambda.clone(), acquire(key));
        tokio::spawn(async move { lambda.invoke(NAME, &request.to_string()).await.unwrap() })
    }

    async fn ask(&self, key: &str) -> Answer {
        answered(self.begin(key).await.unwrap())
    }

    /// Lets the process go on that waits in its snapshot.
    async fn restore(&self) {
        let environment = self.lambda.snapshot(NAME).await;
        self.lambda.restore(environment).unwrap();
    }
}

fn acquire(key: &str) -> Value {
    json!({ "action": "acquire", "key": key, "owner": "me", "leaseSeconds": 60 })
}

/// As in the template: with a prefix, for keys that begin so and no others.
fn role(prefix: Option<&str>) -> Role {
    let resource = "arn:aws:dynamodb:eu-central-1:123456789012:table/LockTable";
    let condition = prefix.map(|prefix| {
        let condition = json!({
            "ForAllValues:StringLike": { "dynamodb:LeadingKeys": [format!("{prefix}*")] },
            "Null": { "dynamodb:LeadingKeys": "false" },
        });
        serde_json::from_value::<Condition>(condition).unwrap()
    });
    let grant = |action: &str| Grant { condition: condition.clone(), ..Grant::new(action, resource) };
    ["dynamodb:GetItem", "dynamodb:UpdateItem"].map(grant).into()
}

#[tokio::test]
async fn nothing_is_sent_before_the_snapshot_and_credentials_are_asked_for_once_after_it() {
    let stage = Stage::restored().await;

    let first = stage.begin("a");
    let environment = stage.lambda.snapshot(NAME).await;
    assert_eq!(stage.credentials.sets(), 0);
    stage.lambda.restore(environment).unwrap();
    let first = first.await.unwrap();
    assert!(!first.logs.contains("WARN"), "{}", first.logs);
    assert_eq!(answered(first).unwrap()["acquired"], true);
    assert_eq!(stage.ask("b").await.unwrap()["acquired"], true);

    assert_eq!(stage.credentials.sets(), 1);
    assert_eq!(stage.proxy.used("set-1"), role(None), "the restore reads, and each acquire writes");
}

#[tokio::test]
async fn in_a_table_with_a_sort_key_the_restore_reads_a_pair() {
    let snapstart = ("AWS_LAMBDA_INITIALIZATION_TYPE", "snap-start");
    let stage = Stage::with(&[snapstart, ("LOCK_SORT_KEY_ATTRIBUTE", "sort")], 1).await;

    let first = stage.begin("without a sort key");
    stage.restore().await;
    let first = first.await.unwrap();

    assert!(!first.logs.contains("after the restore"), "{}", first.logs);
    assert_eq!(stage.proxy.used("set-1").len(), 1, "it has read, and nothing was acquired");
}

#[tokio::test]
async fn with_a_key_prefix_the_restore_reads_a_row_that_the_role_allows() {
    let snapstart = ("AWS_LAMBDA_INITIALIZATION_TYPE", "snap-start");
    let stage = Stage::with(&[snapstart, ("LOCK_KEY_PREFIX", "orders/")], 1).await;

    let first = stage.begin("a");
    stage.restore().await;
    let first = first.await.unwrap();

    assert!(!first.logs.contains("WARN"), "{}", first.logs);
    assert_eq!(answered(first).unwrap()["acquired"], true);
}

#[tokio::test]
async fn credentials_are_asked_for_again_shortly_before_they_expire() {
    let stage = Stage::with(&[], 1).await;
    stage.credentials.lasting(TOO_SHORT);
    stage.ask("a").await.unwrap();
    assert_eq!(stage.credentials.sets(), 1);

    stage.credentials.lasting(Duration::from_secs(3600));
    for key in ["b", "c"] {
        stage.ask(key).await.unwrap();
        assert_eq!(stage.credentials.sets(), 2);
    }

    assert!(!stage.proxy.used("set-2").is_empty());
}

#[tokio::test]
async fn a_first_set_that_expired_at_the_restore_is_logged_and_the_first_invocation_asks_again() {
    let stage = Stage::with(&[("AWS_LAMBDA_INITIALIZATION_TYPE", "snap-start")], 2).await;
    stage.credentials.lasting(Duration::ZERO);

    let first = stage.begin("a");
    stage.restore().await;
    let first = first.await.unwrap();

    assert!(first.logs.contains("the first request after the restore failed"), "{}", first.logs);
    assert_eq!(answered(first).unwrap()["acquired"], true);
    assert_eq!(stage.credentials.sets(), 2);
}

#[tokio::test]
async fn without_an_endpoint_that_answers_every_request_ends_as_unknown_and_the_log_says_why() {
    let nobody = ("AWS_CONTAINER_CREDENTIALS_FULL_URI", "http://127.0.0.1:1/credentials");
    let stage = Stage::with(&[("AWS_LAMBDA_INITIALIZATION_TYPE", "snap-start"), nobody], 1).await;

    let first = stage.begin("a");
    stage.restore().await;
    let first = first.await.unwrap();

    assert!(first.logs.contains("AWS_CONTAINER_CREDENTIALS_FULL_URI returned no credentials"), "{}", first.logs);
    assert_error(answered(first), "LockUnknown", "a");
    assert_error(stage.ask("b").await, "LockUnknown", "b");
}

/// A lock request waits for a second, so each of them is over before the answer is there.
#[tokio::test]
async fn an_endpoint_that_takes_longer_than_a_request_gives_credentials_to_a_later_request() {
    let stage = Stage::with(&[], 1).await;
    stage.credentials.answering_after(Duration::from_millis(1_500));

    assert_eq!(stage.ask("a").await.unwrap()["acquired"], true);
    assert_eq!(stage.credentials.sets(), 1, "nobody asks again meanwhile");
}

#[tokio::test]
async fn an_endpoint_on_another_machine_is_refused_with_a_reason() {
    let elsewhere = ("AWS_CONTAINER_CREDENTIALS_FULL_URI", "http://192.0.2.1/credentials");
    let stage = Stage::with(&[elsewhere], 1).await;

    let stopped = stage.begin("a").await.unwrap();

    assert_does_not_start(&stopped, "AWS_CONTAINER_CREDENTIALS_FULL_URI is ");
    assert!(stopped.logs.contains("http://192.0.2.1/credentials"), "{}", stopped.logs);
}

#[tokio::test]
async fn the_authorization_token_may_stand_in_a_file() {
    let file = std::env::temp_dir().join(format!("lambda-lock-token-{}", std::process::id()));
    std::fs::write(&file, ContainerCredentials::TOKEN).unwrap();
    let in_a_file = ("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", file.to_str().unwrap());
    let stage = Stage::with(&[in_a_file, ("AWS_CONTAINER_AUTHORIZATION_TOKEN", "another")], 1).await;

    let granted = stage.ask("a").await;
    std::fs::remove_file(&file).unwrap();

    assert_eq!(granted.unwrap()["acquired"], true);
}

#[tokio::test]
async fn with_snapstart_and_without_an_endpoint_the_function_does_not_start_and_says_both_ways() {
    let snapstart = ("AWS_LAMBDA_INITIALIZATION_TYPE", "snap-start");
    let stage = Stage::with(&[snapstart, ("AWS_CONTAINER_CREDENTIALS_FULL_URI", "")], 1).await;

    let stopped = stage.begin("a").await.unwrap();

    assert_does_not_start(&stopped, "AWS_ACCESS_KEY_ID is not set");
    assert!(stopped.logs.contains("AWS_CONTAINER_CREDENTIALS_FULL_URI"), "{}", stopped.logs);
}
