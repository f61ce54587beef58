//! What Lambda does to a function, done to a real process: deadlines, crashes, freezes, environments.

#![allow(clippy::disallowed_methods, reason = "the tests wait for processes")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on fails")]

use lambda_lock::LockClient;
use lambda_lock_local::{Function, Invocation, Lambda, LocalDynamoDb, Outcome, client};
use serde_json::{Value, json};
use std::time::Duration;

const NAME: &str = "demo-function";

struct Scene {
    /// Serves as long as it lives.
    _dynamodb: LocalDynamoDb,
    lambda: Lambda,
}

impl Scene {
    async fn new(timeout: Duration) -> Self {
        Self::with(timeout, &[("LOCK_TABLE", "locks")]).await
    }

    async fn with(timeout: Duration, environment: &[(&str, &str)]) -> Self {
        let dynamodb = LocalDynamoDb::in_memory().await.unwrap();
        LockClient::builder(client(dynamodb.endpoint()), "locks").build().unwrap().create_table().await.unwrap();
        let endpoint = ("AWS_ENDPOINT_URL_DYNAMODB", dynamodb.endpoint());
        let environment = environment.iter().chain([&endpoint]);
        let function = Function {
            name: NAME.to_owned(),
            binary: env!("CARGO_BIN_EXE_demo-function").into(),
            environment: environment.map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect(),
            timeout,
            memory_mb: 128,
        };
        Self { lambda: Lambda::start(vec![function]).await.unwrap(), _dynamodb: dynamodb }
    }

    async fn invoke(&self, payload: Value) -> Invocation {
        self.lambda.invoke(NAME, &payload.to_string()).await.unwrap()
    }
}

fn answer(invocation: &Invocation) -> Value {
    match &invocation.outcome {
        Outcome::Answer(answer) => serde_json::from_str(answer).unwrap(),
        other => panic!("{other:?}\n{}", invocation.logs),
    }
}

const LONG: Duration = Duration::from_secs(30);

#[tokio::test]
async fn a_cold_environment_answers_and_then_a_warm_one_with_its_own_log() {
    let scene = Scene::new(LONG).await;
    let cold = scene.invoke(json!({ "key": "k", "steps": [1] })).await;
    assert_eq!(answer(&cold)["owner"], format!("demo-function:$LATEST/{}", cold.request_id));
    assert!(cold.cold_start && cold.init.is_some() && cold.first_answer > cold.init, "{cold:?}");
    assert!(cold.logs.contains("step 0 of k\n"), "{}", cold.logs);
    assert!(!cfg!(target_os = "linux") || cold.max_rss_kb > Some(1000), "{cold:?}");

    let warm = scene.invoke(json!({ "key": "another", "steps": [1] })).await;
    assert!(!warm.cold_start && warm.init.is_none() && warm.first_answer.is_none(), "{warm:?}");
    assert_eq!(warm.environment, cold.environment);
    assert!(warm.logs.contains("step 0 of another\n") && !warm.logs.contains("of k"), "{}", warm.logs);
    assert!(answer(&warm)["fencingToken"].as_u64() > Some(0));
}

#[tokio::test]
async fn at_the_deadline_the_process_is_killed_and_the_next_invocation_starts_another_one() {
    let scene = Scene::new(Duration::from_millis(700)).await;
    let killed = scene.invoke(json!({ "key": "k", "steps": [10, 60_000, 1] })).await;
    assert_eq!(killed.outcome, Outcome::TimedOut, "{killed:?}");
    assert!(killed.duration >= Duration::from_millis(700), "{killed:?}");
    assert!(killed.logs.contains("step 1 of k\n") && !killed.logs.contains("step 2"), "{}", killed.logs);
    assert_eq!(scene.lambda.process(killed.environment), None);
    // The lock of the dead is not asked for here.
    let next = scene.invoke(json!({ "key": "another" })).await;
    assert_eq!(answer(&next)["steps"], 0);
    assert!(next.cold_start);
    assert_eq!(next.environment, killed.environment);
}

#[tokio::test]
async fn the_deadline_counts_from_delivery_and_the_function_is_told() {
    let scene = Scene::new(LONG).await;
    for _cold_and_warm in 0..2 {
        let before = epoch_millis();
        let invocation = scene.invoke(json!({ "key": "k" })).await;
        let deadline = answer(&invocation)["deadlineAt"].as_u64().unwrap() - 30_000;
        let init = invocation.init.unwrap_or_default().as_millis() as u64;
        assert!((before + init..=epoch_millis()).contains(&deadline), "{before} + {init} … {deadline}");
    }
}

fn epoch_millis() -> u64 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_millis() as u64
}

#[tokio::test]
async fn a_crash_is_said_and_the_next_invocation_starts_another_process() {
    let scene = Scene::new(LONG).await;
    let crashed = scene.invoke(json!({ "key": "k", "steps": [1, 1], "crashAt": 1 })).await;
    assert_eq!(crashed.outcome, Outcome::Exited("exit status 70".to_owned()));
    assert!(crashed.logs.ends_with("step 1 of k crashes\n"), "{}", crashed.logs);
    assert!(scene.invoke(json!({ "key": "another" })).await.cold_start);
}

#[tokio::test]
async fn a_process_killed_in_the_middle_of_its_work_or_between_two_is_replaced() {
    let scene = Scene::new(LONG).await;
    let working = begin(&scene, json!({ "key": "k", "steps": [60_000] }));
    scene.until_logged("step 0 of k").await;
    scene.lambda.kill(scene.only()).unwrap();
    assert_eq!(working.await.unwrap().outcome, Outcome::Exited("signal: killed".to_owned()));

    answer(&scene.invoke(json!({ "key": "another" })).await);
    scene.lambda.kill(scene.only()).unwrap();
    let next = scene.invoke(json!({ "key": "another" })).await;
    answer(&next);
    assert!(next.cold_start);
}

#[tokio::test]
async fn an_error_has_its_name_and_the_process_stays() {
    let scene = Scene::new(LONG).await;
    let failed = scene.invoke(json!({ "key": "" })).await;
    let Outcome::Error { error_type, message } = &failed.outcome else { panic!("{failed:?}") };
    assert_eq!(error_type, "InvalidRequest");
    assert!(!message.is_empty());
    assert!(!scene.invoke(json!({ "key": "k" })).await.cold_start);
}

#[tokio::test]
async fn two_at_once_get_two_environments_and_one_after_the_other_one() {
    let scene = Scene::new(LONG).await;
    let first = begin(&scene, json!({ "key": "a", "steps": [60_000] }));
    scene.until_logged("step 0 of a").await;
    let second = scene.invoke(json!({ "key": "b" })).await;
    let third = scene.invoke(json!({ "key": "c" })).await;
    assert!(answer(&second).is_object() && second.cold_start);
    assert!(!third.cold_start);
    assert_eq!(third.environment, second.environment);
    let environments = scene.lambda.environments(NAME);
    assert_eq!(environments.len(), 2);
    assert_eq!(environments[1], second.environment);
    assert!(!first.is_finished());
    assert!(scene.lambda.environments("nothing").is_empty());
}

#[tokio::test]
async fn a_function_that_cannot_start_says_why_and_nothing_was_delivered() {
    let scene = Scene::with(LONG, &[]).await;
    let failed = scene.invoke(json!({ "key": "k" })).await;
    let Outcome::InitFailed(why) = &failed.outcome else { panic!("{failed:?}") };
    assert!(why.starts_with("Runtime.ExitError: RequestId: ") && why.ends_with("exit status 1"), "{why}");
    assert!(failed.logs.contains("LOCK_TABLE is not set"), "{}", failed.logs);
    assert_eq!((failed.duration, failed.init), (Duration::ZERO, None));
}

#[tokio::test]
async fn a_binary_that_does_not_exist_is_said_at_the_start() {
    let missing = Function {
        name: NAME.to_owned(),
        binary: "no/such/binary".into(),
        environment: [].into(),
        timeout: LONG,
        memory_mb: 128,
    };
    assert!(Lambda::start(vec![missing]).await.unwrap_err().to_string().contains("no/such/binary"));
}

#[tokio::test]
async fn a_caller_that_does_not_wait_leaves_the_invocation_alone() {
    let scene = Scene::new(LONG).await;
    let impatient = begin(&scene, json!({ "key": "k", "steps": [200] }));
    scene.until_logged("step 0 of k").await;
    impatient.abort();
    // Its environment is busy, and its lock held, until it is done.
    let next = scene.invoke(json!({ "key": "k" })).await;
    answer(&next);
    assert_eq!(scene.lambda.environments(NAME).len(), 2);
}

#[cfg(target_os = "linux")]
mod linux {
    use super::*;

    fn state(process: u32) -> Option<String> {
        let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
        Some(stat.rsplit_once(") ")?.1.split(' ').next()?.to_owned())
    }

    async fn until_state(process: u32, is_it: impl Fn(Option<&str>) -> bool) {
        let reached = async {
            while !is_it(state(process).as_deref()) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        let last = || format!("{process} is {:?}", state(process));
        tokio::time::timeout(Duration::from_secs(10), reached).await.unwrap_or_else(|_| panic!("{}", last()));
    }

    #[tokio::test]
    async fn between_two_invocations_the_process_is_stopped_and_the_next_one_continues_it() {
        let scene = Scene::new(LONG).await;
        scene.invoke(json!({ "key": "k" })).await;
        let process = scene.lambda.process(scene.only()).unwrap();
        until_state(process, |state| state == Some("T")).await;
        assert!(!scene.invoke(json!({ "key": "k" })).await.cold_start);
        assert_eq!(scene.lambda.process(scene.only()), Some(process));
        until_state(process, |state| state == Some("T")).await;
    }

    #[tokio::test]
    async fn an_invocation_that_is_frozen_in_the_middle_goes_on_when_it_is_thawed() {
        let scene = Scene::new(LONG).await;
        let working = begin(&scene, json!({ "key": "k", "steps": [100, 1] }));
        scene.until_logged("step 0 of k").await;
        scene.lambda.freeze(scene.only()).unwrap();
        let process = scene.lambda.process(scene.only()).unwrap();
        until_state(process, |state| state == Some("T")).await;
        tokio::time::sleep(Duration::from_millis(300)).await;
        assert!(!working.is_finished());
        scene.lambda.thaw(scene.only()).unwrap();
        let thawed = working.await.unwrap();
        assert_eq!(answer(&thawed)["steps"], 2);
        assert!(thawed.duration >= Duration::from_millis(300), "{thawed:?}");
    }

    #[tokio::test]
    async fn a_frozen_invocation_is_killed_at_its_deadline() {
        let scene = Scene::new(Duration::from_millis(800)).await;
        let working = begin(&scene, json!({ "key": "k", "steps": [60_000] }));
        scene.until_logged("step 0 of k").await;
        scene.lambda.freeze(scene.only()).unwrap();
        assert_eq!(working.await.unwrap().outcome, Outcome::TimedOut);
        assert_eq!(scene.lambda.process(scene.only()), None);
    }

    #[tokio::test]
    async fn no_process_outlives_the_last_handle_neither_a_frozen_nor_a_busy_one() {
        let scene = Scene::new(LONG).await;
        let busy = begin(&scene, json!({ "key": "a", "steps": [60_000] }));
        scene.until_logged("step 0 of a").await;
        scene.invoke(json!({ "key": "b" })).await;
        let environments = scene.lambda.environments(NAME);
        let processes: Vec<_> = environments.iter().map(|one| scene.lambda.process(*one).unwrap()).collect();
        assert_eq!(processes.len(), 2);
        busy.abort();
        let _ = busy.await;
        drop(scene);
        for process in processes {
            until_state(process, |state| matches!(state, None | Some("Z"))).await;
        }
    }
}

/// Invokes beside the test.
fn begin(scene: &Scene, payload: Value) -> tokio::task::JoinHandle<Invocation> {
    let lambda = scene.lambda.clone();
    tokio::spawn(async move { lambda.invoke(NAME, &payload.to_string()).await.unwrap() })
}

impl Scene {
    /// The only environment there is.
    fn only(&self) -> u32 {
        let environments = self.lambda.environments(NAME);
        assert_eq!(environments.len(), 1);
        environments[0]
    }

    /// Waits until a function writes this line; what was written before does not count.
    async fn until_logged(&self, this: &str) {
        let mut lines = self.lambda.log_lines();
        let logged = async { while lines.recv().await.unwrap().line != this {} };
        tokio::time::timeout(LONG, logged).await.unwrap_or_else(|_| panic!("nobody wrote {this:?}"));
    }
}
