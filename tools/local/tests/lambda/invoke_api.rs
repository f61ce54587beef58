//! Tests of the Invoke API with an HTTP client.

use crate::scene::{LONG, Scene};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper::{HeaderMap, Request, StatusCode};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use serde_json::{Value, json};
use std::time::Duration;

struct Answered {
    status: StatusCode,
    headers: HeaderMap,
    body: String,
}

impl Answered {
    fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }

    fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|_| panic!("{:?}", self.body))
    }

    /// Returns `errorType` and `errorMessage` of a function that failed.
    fn error(&self) -> (String, String) {
        assert_eq!((self.status, self.header("x-amz-function-error")), (StatusCode::OK, Some("Unhandled")));
        let text = |name: &str| self.json()[name].as_str().unwrap().to_owned();
        (text("errorType"), text("errorMessage"))
    }

    fn request_id(&self) -> &str {
        self.header("x-amzn-requestid").unwrap()
    }
}

async fn post(scene: &Scene, function: &str, headers: &[(&str, &str)], body: &str) -> Answered {
    let url = format!("{}/2015-03-31/functions/{function}/invocations", scene.lambda.endpoint());
    let mut request = Request::post(url);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let client = Client::builder(TokioExecutor::new()).build_http();
    let response = client.request(request.body(Full::<Bytes>::from(body.to_owned())).unwrap()).await.unwrap();
    let (parts, body) = response.into_parts();
    let body = String::from_utf8(body.collect().await.unwrap().to_bytes().to_vec()).unwrap();
    Answered { status: parts.status, headers: parts.headers, body }
}

async fn invoke(scene: &Scene, payload: Value) -> Answered {
    post(scene, "demo-function", &[], &payload.to_string()).await
}

#[tokio::test]
async fn an_answer_is_the_body_and_the_request_has_an_id() {
    let scene = Scene::new(LONG).await;
    let answered = invoke(&scene, json!({ "key": "k" })).await;
    assert_eq!(answered.status, StatusCode::OK);
    let owner = answered.json()["owner"].as_str().unwrap().to_owned();
    assert!(owner.starts_with(&format!("demo-function:$LATEST/{}/", answered.request_id())), "{owner}");
    assert_eq!(answered.header("x-amz-function-error"), None);
    assert_eq!(answered.header("x-amz-executed-version"), Some("$LATEST"));
    assert_eq!(answered.header("x-amz-log-result"), None);
}

#[tokio::test]
async fn a_function_has_a_name_a_qualifier_and_an_arn() {
    let scene = Scene::new(LONG).await;
    let arn = "arn:aws:lambda:eu-central-1:123456789012:function:demo-function";
    let encoded = arn.replace(':', "%3A");
    let others = ["demo-function:$LATEST", "123456789012:function:demo-function", "demo-function"];
    for name in [arn, &encoded, &format!("{arn}:live")].into_iter().chain(others) {
        assert_eq!(post(&scene, name, &[], r#"{"key":"k"}"#).await.status, StatusCode::OK, "{name}");
    }
}

#[tokio::test]
async fn an_unknown_function_is_not_found() {
    let scene = Scene::new(LONG).await;
    let unknown = post(&scene, "unknown", &[], "{}").await;
    assert_eq!(unknown.status, StatusCode::NOT_FOUND);
    assert_eq!(unknown.header("x-amzn-errortype"), Some("ResourceNotFoundException"));
    let message = "Function not found: arn:aws:lambda:eu-central-1:123456789012:function:unknown";
    assert_eq!(unknown.json(), json!({ "Type": "User", "Message": message }));
}

#[tokio::test]
async fn a_payload_that_is_not_json_is_refused_and_a_missing_one_is_an_empty_object() {
    let scene = Scene::new(LONG).await;
    let malformed = post(&scene, "demo-function", &[], "{key").await;
    assert_eq!(malformed.status, StatusCode::BAD_REQUEST);
    assert_eq!(malformed.header("x-amzn-errortype"), Some("InvalidRequestContentException"));
    assert!(scene.lambda.environments("demo-function").is_empty());

    let (_, message) = post(&scene, "demo-function", &[], "").await.error();
    assert!(message.contains("missing field `key`"), "{message}");
}

#[tokio::test]
async fn a_timeout_is_worded_as_lambda_words_it() {
    let scene = Scene::new(Duration::from_millis(600)).await;
    let timed_out = invoke(&scene, json!({ "key": "k", "steps": [60_000] })).await;
    let message = format!("RequestId: {} Error: Task timed out after 0.60 seconds", timed_out.request_id());
    assert_eq!(timed_out.error(), ("Sandbox.Timedout".to_owned(), message));
}

#[tokio::test]
async fn a_crash_is_worded_as_lambda_words_it() {
    let scene = Scene::new(LONG).await;
    let crashed = invoke(&scene, json!({ "key": "k", "steps": [1], "crashAt": 0 })).await;
    let message = format!("RequestId: {} Error: Runtime exited with error: exit status 70", crashed.request_id());
    assert_eq!(crashed.error(), ("Runtime.ExitError".to_owned(), message));
}

#[tokio::test]
async fn a_function_that_cannot_start_is_a_failed_function() {
    let scene = Scene::with(LONG, &[]).await;
    let failed = invoke(&scene, json!({ "key": "k" })).await;
    let message = format!("RequestId: {} Error: Runtime exited with error: exit status 1", failed.request_id());
    assert_eq!(failed.error(), ("Runtime.ExitError".to_owned(), message));
}

#[tokio::test]
async fn an_error_of_the_function_keeps_its_own_words() {
    let scene = Scene::new(LONG).await;
    let (error_type, message) = invoke(&scene, json!({ "key": "" })).await.error();
    assert_eq!(error_type, "InvalidRequest");
    assert!(!message.contains("RequestId"), "{message}");
}

#[tokio::test]
async fn the_tail_of_the_log_comes_with_the_answer_when_it_is_asked_for() {
    let scene = Scene::new(LONG).await;
    let answered = post(&scene, "demo-function", &[("X-Amz-Log-Type", "Tail")], r#"{"key":"k","steps":[1]}"#).await;
    let log = BASE64_STANDARD.decode(answered.header("x-amz-log-result").unwrap()).unwrap();
    let (log, id) = (String::from_utf8(log).unwrap(), answered.request_id());
    assert!(log.starts_with(&format!("START RequestId: {id} Version: $LATEST\n")), "{log}");
    assert!(log.contains("step 0 of k\""), "{log}");
    let report = log.lines().last().unwrap();
    assert!(report.starts_with(&format!("REPORT RequestId: {id}\tDuration: ")), "{report}");
    assert!(report.contains("\tMemory Size: 128 MB\t") && report.contains("\tInit Duration: "), "{report}");

    let many: Vec<u64> = vec![0; 500];
    let payload = json!({ "key": "k", "steps": many }).to_string();
    let answered = post(&scene, "demo-function", &[("X-Amz-Log-Type", "Tail")], &payload).await;
    let log = BASE64_STANDARD.decode(answered.header("x-amz-log-result").unwrap()).unwrap();
    assert_eq!(log.len(), 4096);
}

#[tokio::test]
async fn an_event_is_accepted_at_once_and_runs_in_the_background() {
    let scene = Scene::new(LONG).await;
    let logged = scene.until_logged("step 0 of k");
    let event = async {
        let event = [("X-Amz-Invocation-Type", "Event")];
        post(&scene, "demo-function", &event, r#"{"key":"k","steps":[60000]}"#).await
    };
    let (accepted, ()) = tokio::join!(event, logged);
    assert_eq!((accepted.status, accepted.body.as_str()), (StatusCode::ACCEPTED, ""));
    assert!(!accepted.request_id().is_empty());
}

#[tokio::test]
async fn a_dry_run_runs_nothing() {
    let scene = Scene::new(LONG).await;
    let dry = post(&scene, "demo-function", &[("X-Amz-Invocation-Type", "DryRun")], "{}").await;
    assert_eq!(dry.status, StatusCode::NO_CONTENT);
    assert!(scene.lambda.environments("demo-function").is_empty());
}
