//! One function with an embedded DynamoDB, a lock table and the Runtime API.

use lambda_lock::LockClient;
use lambda_lock_local::{Function, Invocation, Lambda, LocalDynamoDb, Outcome, client};
use serde_json::Value;
use std::time::Duration;

pub(crate) const NAME: &str = "demo-function";
/// A timeout that is longer than every test.
pub(crate) const LONG: Duration = Duration::from_secs(30);
/// A timeout that a test waits for. A busy machine acquires a lock within it. Work that is not killed goes on until its lease ends,
/// 3.15 s after the grant.
pub(crate) const SHORT: Duration = Duration::from_secs(2);

pub(crate) struct Scene {
    /// Serves until it is dropped.
    _dynamodb: LocalDynamoDb,
    pub(crate) lambda: Lambda,
}

impl Scene {
    pub(crate) async fn new(timeout: Duration) -> Self {
        Self::with(timeout, &[("LOCK_TABLE", "locks")]).await
    }

    pub(crate) async fn with(timeout: Duration, environment: &[(&str, &str)]) -> Self {
        let dynamodb = LocalDynamoDb::in_memory().await.unwrap();
        LockClient::builder(client(dynamodb.endpoint()), "locks")
            .build()
            .unwrap()
            .operator()
            .create_table()
            .await
            .unwrap();
        let endpoint = ("AWS_ENDPOINT_URL_DYNAMODB", dynamodb.endpoint());
        let environment = environment.iter().chain([&endpoint]);
        let function = Function {
            name: NAME.to_owned(),
            binary: env!("CARGO_BIN_EXE_demo-function").into(),
            environment: environment.map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect(),
            timeout,
            memory_mb: 128,
            ..Function::default()
        };
        Self { lambda: Lambda::start(vec![function]).await.unwrap(), _dynamodb: dynamodb }
    }

    pub(crate) async fn invoke(&self, payload: Value) -> Invocation {
        self.lambda.invoke(NAME, &payload.to_string()).await.unwrap()
    }
}

pub(crate) fn answer(invocation: &Invocation) -> Value {
    match &invocation.outcome {
        Outcome::Answer(answer) => serde_json::from_str(answer).unwrap(),
        other => panic!("{other:?}\n{}", invocation.logs),
    }
}

/// Invokes the function in the background.
pub(crate) fn begin(scene: &Scene, payload: Value) -> tokio::task::JoinHandle<Invocation> {
    let lambda = scene.lambda.clone();
    tokio::spawn(async move { lambda.invoke(NAME, &payload.to_string()).await.unwrap() })
}

impl Scene {
    /// Returns the only environment.
    pub(crate) fn only(&self) -> u32 {
        let environments = self.lambda.environments(NAME);
        assert_eq!(environments.len(), 1);
        environments[0]
    }

    /// Waits until a function writes this line. Earlier lines do not count.
    pub(crate) async fn until_logged(&self, this: &str) {
        let mut lines = self.lambda.log_lines();
        let logged = async { while !lines.recv().await.unwrap().line.contains(this) {} };
        tokio::time::timeout(LONG, logged).await.unwrap_or_else(|_| panic!("no function wrote {this:?}"));
    }
}
