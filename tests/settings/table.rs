//! Creating and checking the table.

use lambda_lock::{ErrorKind, LockClientBuilder};
use lambda_lock_testkit::{Fault, Process, Table, case};
use serde_json::{Value, json};

/// `create_table` on a table that is not a lock table must not switch TTL on, because TTL deletes rows.
#[tokio::test(start_paused = true)]
async fn create_table_does_not_switch_ttl_on_in_another_kind_of_table() {
    let table = Table::with_keys(&["id"]);
    let locks = table.process().builder().ttl_attribute("expiresAt").build().unwrap();

    assert_eq!(locks.operator().create_table().await.unwrap_err().kind(), ErrorKind::Table);

    let described = table.call("DescribeTimeToLive", &json!({"TableName": "locks"}));
    let status = described["TimeToLiveDescription"]["TimeToLiveStatus"].as_str().unwrap_or_default().to_owned();
    assert!(!status.starts_with("ENABL"), "TTL was switched on at a table that is no lock table: {status}");
}

/// On AWS, DescribeTable may return ResourceNotFoundException right after CreateTable.
#[tokio::test(start_paused = true)]
async fn a_new_table_that_is_not_described_yet_is_waited_for() {
    let table = Table::none();
    let process = table.process();
    process.next([Fault::None, Fault::error("ResourceNotFoundException")]);

    process.locks("me").operator().create_table().await.unwrap();
}

/// `create_table` promises the error `Table` for a table that does not fit.
#[tokio::test(start_paused = true)]
async fn a_ttl_on_another_attribute_is_an_error_about_the_table() {
    let table = Table::new();
    table.call(
        "UpdateTimeToLive",
        &json!({"TableName": "locks", "TimeToLiveSpecification": {"AttributeName": "other", "Enabled": true}}),
    );
    let process = table.process();
    let locks = process.builder().ttl_attribute("expiresAt").build().unwrap();
    assert_eq!(locks.operator().check_table().await.unwrap_err().kind(), ErrorKind::Table);
    process.take_sent();

    let error = locks.operator().create_table().await.unwrap_err();

    // AWS rejects it ("TimeToLive is active on a different AttributeName"), which was once reported as
    // `InvalidRequest`.
    assert_eq!(process.take_counts().get("UpdateTimeToLive"), None);
    assert!(
        error.kind() == ErrorKind::Table && error.to_string().contains("its TTL attribute is \"other\""),
        "{error}"
    );
}

/// A global table, as `DescribeTable` describes it. No embedded server has one.
fn described(more: Value) -> Fault {
    let mut table = json!({
        "TableName": "locks",
        "TableStatus": "ACTIVE",
        "AttributeDefinitions": [{"AttributeName": "key", "AttributeType": "S"}],
        "KeySchema": [{"AttributeName": "key", "KeyType": "HASH"}],
        "GlobalTableVersion": "2019.11.21",
    });
    table.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    Fault::Says(200, json!({ "Table": table }).to_string().leak())
}

fn replicas(of_the_second: &str) -> Value {
    json!([
        {"RegionName": "eu-central-1", "ReplicaStatus": "ACTIVE"},
        {"RegionName": "eu-west-1", "ReplicaStatus": of_the_second},
    ])
}

fn with_strong_consistency(of_the_second: &str, of_the_witness: &str) -> Value {
    json!({
        "MultiRegionConsistency": "STRONG",
        "Replicas": replicas(of_the_second),
        "GlobalTableWitnesses": [{"RegionName": "eu-west-3", "WitnessStatus": of_the_witness}],
    })
}

/// What `check_table` finds, and the requests that it takes. An empty text: nothing.
async fn found(
    description: Value,
    change: impl FnOnce(LockClientBuilder) -> LockClientBuilder,
) -> (String, Vec<String>) {
    let process: Process = Table::new().process();
    process.next([described(description)]);
    let checked = change(process.builder()).build().unwrap().operator().check_table().await;
    if let Err(error) = &checked {
        assert_eq!(error.kind(), ErrorKind::Table, "{error:?}");
    }
    (checked.map_or_else(|error| error.to_string(), |()| String::new()), process.take_operations())
}

#[tokio::test(start_paused = true)]
async fn a_table_in_several_regions_must_have_strong_consistency() {
    for consistency in [json!({}), json!({"MultiRegionConsistency": "EVENTUAL"})] {
        let _case = case(&consistency);
        let mut eventual = json!({ "Replicas": replicas("ACTIVE") });
        eventual.as_object_mut().unwrap().extend(consistency.as_object().unwrap().clone());

        let (text, _) = found(eventual.clone(), |builder| builder).await;
        assert!(text.contains("eventual consistency (replicas in eu-central-1, eu-west-1)"), "{text}");
        assert!(text.contains("set one_home_region"), "{text}");

        assert_eq!(found(eventual, LockClientBuilder::one_home_region).await.0, "");
    }

    assert_eq!(found(with_strong_consistency("ACTIVE", "ACTIVE"), |builder| builder).await.0, "");
    assert_eq!(found(json!({}), |builder| builder).await.0, "", "in one Region there is nothing to agree on");
}

#[tokio::test(start_paused = true)]
async fn strong_consistency_between_regions_knows_no_ttl() {
    let strong = with_strong_consistency("ACTIVE", "ACTIVE");

    let (text, requests) = found(strong, |builder| builder.ttl_attribute("expiresAt")).await;

    assert!(text.contains(r#"has no TTL, but this client writes "expiresAt": idle rows would stay forever"#), "{text}");
    assert_eq!(requests, ["DescribeTable"], "there is no TTL to ask for");
}

/// AWS refuses TTL on such a table. `create_table` promises `Table` for a table that does not fit.
#[tokio::test(start_paused = true)]
async fn creating_the_table_switches_no_ttl_on_where_replicas_are_strongly_consistent() {
    let process = Table::new().process();
    let strong = with_strong_consistency("ACTIVE", "ACTIVE");
    process.next([Fault::error("ResourceInUseException"), described(strong.clone()), described(strong)]);
    let locks = process.builder().ttl_attribute("expiresAt").build().unwrap();

    let error = locks.operator().create_table().await.unwrap_err();

    assert!(error.kind() == ErrorKind::Table && error.to_string().contains("has no TTL"), "{error}");
    assert_eq!(process.take_operations(), ["CreateTable", "DescribeTable", "DescribeTable"]);
}

#[tokio::test(start_paused = true)]
async fn tables_replicas_and_witnesses_that_are_not_active_are_named() {
    for (replica, witness, finding) in [
        ("CREATING", "ACTIVE", "its replica in eu-west-1 is CREATING, not ACTIVE"),
        ("REGION_DISABLED", "ACTIVE", "its replica in eu-west-1 is REGION_DISABLED, not ACTIVE"),
        ("ACTIVE", "DELETING", "its witness in eu-west-3 is DELETING, not ACTIVE"),
    ] {
        let _case = case(finding);
        let (text, _) = found(with_strong_consistency(replica, witness), |builder| builder).await;
        assert!(text.ends_with(&format!("cannot be used as it is: {finding}")), "{text}");
    }

    let archived = json!({"TableStatus": "ARCHIVED"});
    let (text, _) = found(archived, |builder| builder).await;
    assert!(text.ends_with("its status is ARCHIVED, not ACTIVE"), "{text}");
    assert_eq!(found(json!({"TableStatus": "UPDATING"}), |builder| builder).await.0, "");

    // It serves requests, as a table that is being updated does.
    assert_eq!(found(with_strong_consistency("UPDATING", "ACTIVE"), |builder| builder).await.0, "");
}

/// A client that does not know of the table's TTL leaves an old time on the rows that it holds.
#[tokio::test(start_paused = true)]
async fn a_ttl_that_this_client_does_not_write_is_reported() {
    let process = Table::new().process();
    let on = r#"{"TimeToLiveDescription": {"AttributeName": "expiresAt", "TimeToLiveStatus": "ENABLED"}}"#;
    let off = r#"{"TimeToLiveDescription": {"AttributeName": "expiresAt", "TimeToLiveStatus": "DISABLED"}}"#;
    process.next([described(json!({})), Fault::Says(200, on), described(json!({})), Fault::Says(200, off)]);
    let locks = process.locks("me");

    let text = locks.operator().check_table().await.unwrap_err().to_string();

    assert!(text.contains(r#"its TTL attribute is "expiresAt", but this client does not write it"#), "{text}");
    assert_eq!(process.take_operations(), ["DescribeTable", "DescribeTimeToLive"]);
    locks.operator().check_table().await.unwrap();
}
