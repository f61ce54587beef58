//! What `show` and `doctor` ask other services: Step Functions for the state of an execution, CloudFormation for the stack.

use crate::golden::{assert_golden, golden};
use crate::place::{Ended, LEASE, Place, TABLE, end};
use lambda_lock_local::LocalDynamoDb;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// A service that answers each request by its body, with a status and a body. Returns its endpoint.
pub(crate) async fn service(answer: impl Fn(&str) -> (u16, String) + Send + Sync + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let (status, body) = answer(&asked(&mut stream).await);
            let head = format!("HTTP/1.1 {status} .\r\nx-amzn-requestid: R1\r\nconnection: close\r\n");
            let head = format!("{head}content-length: {}\r\n\r\n", body.len());
            stream.write_all(format!("{head}{body}").as_bytes()).await.unwrap();
        }
    });
    endpoint
}

/// The body of a request.
async fn asked(stream: &mut TcpStream) -> String {
    let mut read = String::new();
    loop {
        let mut buffer = [0; 4096];
        let count = stream.read(&mut buffer).await.unwrap();
        read += std::str::from_utf8(&buffer[..count]).unwrap();
        let Some((head, body)) = read.split_once("\r\n\r\n") else { continue };
        let head = head.to_lowercase();
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap().parse().unwrap();
        if body.len() >= length {
            return body.to_owned();
        }
    }
}

const EXECUTION: &str = "arn:aws:states:eu-central-1:111122223333:execution:nightly";

/// Executions by their names.
fn step_functions(body: &str) -> (u16, String) {
    let error = |name: &str, message: &str| (400, json!({ "__type": name, "message": message }).to_string());
    let execution = |status: &str, stopped: Option<u64>| {
        let arn = format!("{EXECUTION}:{status}");
        let mut answer =
            json!({ "executionArn": arn, "stateMachineArn": "arn", "status": status, "startDate": 1.764e9 });
        if let Some(stopped) = stopped {
            answer["stopDate"] = json!(stopped);
        }
        (200, answer.to_string())
    };
    match body {
        _ if body.contains("execution:nightly:running") => execution("RUNNING", None),
        _ if body.contains("execution:nightly:newer") => execution("\u{1b}[2JNEWER", None),
        _ if body.contains("execution:nightly:empty") => (200, "{}".to_owned()),
        _ if body.contains("execution:nightly:aborted") => execution("ABORTED", Some(1_764_000_060)),
        _ if body.contains("execution:nightly:denied") => {
            error("AccessDeniedException", "states:DescribeExecution is needed")
        }
        _ => error("ExecutionDoesNotExist", "Execution Does Not Exist"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn show_tells_the_state_of_the_execution_that_holds_the_lock() {
    let place = Place::new().await;
    let endpoint = service(step_functions).await;
    let names =
        ["running", "aborted", "denied", "gone", "newer", "empty"].map(|name| (name, format!("{EXECUTION}:{name}")));
    let elsewhere = ("elsewhere", "arn:aws:states:eu-west-1:111122223333:execution:nightly:4711".to_owned());
    let hostile = ("hostile", "arn:aws:states:evil.example/:1:execution:\u{1b}[2J:\u{202e}".to_owned());
    let other = ("no-execution", "a workflow of another engine".to_owned());
    for (name, workflow) in names.into_iter().chain([elsewhere, hostile, other]) {
        let locks = place.locks("test");
        let held = locks.acquire(name).owner("nightly").workflow(workflow).lease(LEASE).try_once().await.unwrap();
        let _ = held.granted().unwrap().save();
        let show = async |more: &[&str]| {
            let mut command = place.command();
            command.env("AWS_ENDPOINT_URL_SFN", &endpoint).args(["show", name]).args(more);
            end(&mut command).await
        };
        assert_golden(&format!("show-execution-{name}"), &show(&[]).await);
        assert_golden(&format!("show-execution-{name}-json"), &show(&["--json"]).await);
    }
    let nowhere = place.command().env("AWS_ENDPOINT_URL_SFN", "http://127.0.0.1:1").args(["show", "running"]).output();
    let nowhere = nowhere.await.unwrap();
    let said = String::from_utf8(nowhere.stdout).unwrap();
    assert!(nowhere.status.success() && said.contains("its execution is unknown: dispatch failure"), "{said}");
}

const STACK: &str = "<member><StackName>locks-prod</StackName><LogicalResourceId>LockTable</LogicalResourceId>\
    <ResourceType>AWS::DynamoDB::Table</ResourceType><Timestamp>2026-01-01T00:00:00Z</Timestamp>\
    <ResourceStatus>CREATE_COMPLETE</ResourceStatus></member>";

fn resource(name: &str, kind: &str) -> String {
    format!(
        "<member><LogicalResourceId>{name}</LogicalResourceId><ResourceType>{kind}</ResourceType>\
         <LastUpdatedTimestamp>2026-01-01T00:00:00Z</LastUpdatedTimestamp>\
         <ResourceStatus>CREATE_COMPLETE</ResourceStatus></member>"
    )
}

/// A stack whose resources come on two pages.
fn cloud_formation(body: &str) -> (u16, String) {
    let result = |operation: &str, inner: String| {
        let answer =
            format!("<{operation}Response><{operation}Result>{inner}</{operation}Result></{operation}Response>");
        (200, answer)
    };
    let page = |resources: &[String], next: &str| {
        let resources = resources.concat();
        result("ListStackResources", format!("<StackResourceSummaries>{resources}</StackResourceSummaries>{next}"))
    };
    if body.contains("Action=DescribeStackResources") {
        assert!(body.contains(&format!("PhysicalResourceId={TABLE}")) && !body.contains("table"), "{body}");
        return result("DescribeStackResources", format!("<StackResources>{STACK}</StackResources>"));
    }
    assert!(body.contains("Action=ListStackResources") && body.contains("StackName=locks-prod"), "{body}");
    if body.contains("NextToken=more") {
        return page(&[resource("LockCleaner", "AWS::Lambda::Function")], "");
    }
    let first = [
        resource("LockTask", "AWS::Lambda::Function"),
        resource("LockTaskRole", "AWS::IAM::Role"),
        resource("ExclusiveWork", "AWS::StepFunctions::StateMachine"),
    ];
    page(&first, "<NextToken>more</NextToken>")
}

fn no_stack(_: &str) -> (u16, String) {
    let error = "<Type>Sender</Type><Code>ValidationError</Code><Message>Stack for locks does not exist</Message>";
    (400, format!("<ErrorResponse><Error>{error}</Error></ErrorResponse>"))
}

fn denied(_: &str) -> (u16, String) {
    let error = "<Type>Sender</Type><Code>AccessDenied</Code><Message>cloudformation:DescribeStackResources is needed</Message>";
    (403, format!("<ErrorResponse><Error>{error}</Error></ErrorResponse>"))
}

async fn doctor(place: &Place, endpoint: &str, more: &[&str]) -> Ended {
    end(place.command().env("AWS_ENDPOINT_URL_CLOUDFORMATION", endpoint).arg("doctor").args(more)).await
}

#[tokio::test(flavor = "multi_thread")]
async fn doctor_tells_what_is_deployed_and_what_it_cannot_see() {
    let place = Place::new().await;
    let endpoint = service(cloud_formation).await;
    assert_golden("doctor-stack", &doctor(&place, &endpoint, &[]).await);
    assert_golden("doctor-no-stack", &doctor(&place, &service(no_stack).await, &[]).await);
    assert_golden("doctor-stack-denied", &doctor(&place, &service(denied).await, &["--json"]).await);
}

/// The table of the template, and one with a sort key.
#[tokio::test(flavor = "multi_thread")]
async fn doctor_tries_the_index_and_tables_with_a_sort_key() {
    let local = LocalDynamoDb::in_memory().await.unwrap();
    let key = |name: &str, kind: &str| json!({ "AttributeName": name, "KeyType": kind });
    let text = |name: &str| json!({ "AttributeName": name, "AttributeType": "S" });
    let index = |on: &str| json!([{ "IndexName": "byWorkflow", "KeySchema": [key(on, "HASH")], "Projection": { "ProjectionType": "KEYS_ONLY" } }]);
    let table = |name: &str, on: &str| {
        json!({
            "TableName": name, "BillingMode": "PAY_PER_REQUEST", "KeySchema": [key("key", "HASH")],
            "AttributeDefinitions": [text("key"), text(on)], "GlobalSecondaryIndexes": index(on),
        })
    };
    let sorted = json!({
        "TableName": "sorted", "BillingMode": "PAY_PER_REQUEST", "KeySchema": [key("pk", "HASH"), key("sk", "RANGE")],
        "AttributeDefinitions": [text("pk"), text("sk")],
    });
    local.create_tables(&[table(TABLE, "workflow"), table("wrong", "ownerName"), sorted]).await.unwrap();
    let place = Place { local };
    golden(&place, "doctor-index", &["doctor", "--write"]).await;
    golden(&place, "doctor-index-wrong", &["doctor", "--table", "wrong"]).await;
    let sorted = ["--table", "sorted", "--key-attribute", "pk", "--sort-key-attribute", "sk"];
    golden(&place, "doctor-sorted", &[&["doctor", "--write"], &sorted[..]].concat()).await;
}
