//! A table in several Regions with strong consistency, as a proxy in front of one embedded DynamoDB.
//!
//! It plays what AWS documents of such a table
//! (<https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/bp-global-table-design.html>), as far as a lock
//! meets with it. The embedded server always has the latest version, so what is left to play is the distance, the
//! conflicts and the refusals.

use crate::authorize::refusal;
use crate::proxy::{self, Answer, Handle, Serving, Upstream};
use anyhow::{Context, ensure};
use http_body_util::{BodyExt, Full};
use hyper::Request;
use hyper::body::Bytes;
use hyper::header::{CONTENT_LENGTH, HeaderMap};
use hyper::http::request::Parts;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Replicas of one table, each with an endpoint of its own on a loopback port.
///
/// | request | becomes |
/// |---|---|
/// | write, consistent read | answered after two ways to another Region |
/// | `UpdateItem` or `DeleteItem` of a row that another Region writes | `ReplicatedWriteConflictException`, not applied |
/// | write, consistent read in an [isolated](MultiRegion::isolate) Region | 500 |
/// | transaction, TTL | `ValidationException` |
/// | `DescribeTable` | also names the replicas, the witness and the consistency |
/// | anything else | passed on |
///
/// It serves from when it is made until it is dropped.
pub struct MultiRegion {
    shared: Arc<Shared>,
    endpoints: BTreeMap<String, Serving>,
}

/// How often requests were refused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Refusals {
    /// Because another Region wrote the same row.
    pub conflicts: u64,
    /// Because the Region was isolated.
    pub isolated: u64,
}

struct Shared {
    upstream: Upstream,
    replicas: Vec<String>,
    witness: Option<String>,
    /// From one Region to another.
    one_way: Duration,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    isolated: BTreeSet<String>,
    /// The Region that writes a row now, and its writes that are under way.
    writes: BTreeMap<String, (String, u32)>,
    refusals: Refusals,
}

/// What is served in one Region.
struct Replica {
    region: String,
    shared: Arc<Shared>,
}

/// A write that is under way, until this is dropped.
struct UnderWay<'a> {
    shared: &'a Shared,
    row: String,
}

impl MultiRegion {
    /// How long a request takes from one Region to another unless [`start`](MultiRegion::start) is told otherwise.
    pub const ONE_WAY: Duration = Duration::from_millis(40);

    /// Begins to serve in front of an endpoint such as `http://127.0.0.1:8000`: an endpoint for each replica, none for
    /// the witness.
    ///
    /// # Errors
    /// When these are not three Regions, when the endpoint is none, or when no loopback port can be had.
    pub async fn start(
        upstream: &str,
        replicas: &[&str],
        witness: Option<&str>,
        one_way: Duration,
    ) -> anyhow::Result<Self> {
        let regions: BTreeSet<_> = replicas.iter().copied().chain(witness).collect();
        ensure!(
            regions.len() == 3 && replicas.len() + usize::from(witness.is_some()) == 3,
            "{replicas:?}, {witness:?}: give three replicas, or two and a witness, each in a Region of its own"
        );
        let shared = Arc::new(Shared {
            upstream: Upstream::new(upstream)?,
            replicas: replicas.iter().map(|region| (*region).to_owned()).collect(),
            witness: witness.map(str::to_owned),
            one_way,
            state: Mutex::default(),
        });
        let mut endpoints = BTreeMap::new();
        for region in &shared.replicas {
            let replica = Replica { region: region.clone(), shared: Arc::clone(&shared) };
            endpoints.insert(region.clone(), proxy::serve(Arc::new(replica)).await?);
        }
        Ok(Self { shared, endpoints })
    }

    /// The URL of a replica's endpoint. `None`: there is no replica in this Region.
    pub fn endpoint(&self, region: &str) -> Option<&str> {
        self.endpoints.get(region).map(|serving| serving.endpoint.as_str())
    }

    /// Cuts this Region off from the others. Of what is under way there, nothing is answered, applied or not.
    pub fn isolate(&self, region: &str) {
        self.shared.state().isolated.insert(region.to_owned());
    }

    /// Ends the isolation of this Region.
    pub fn rejoin(&self, region: &str) {
        self.shared.state().isolated.remove(region);
    }

    /// How often requests were refused until now.
    pub fn refusals(&self) -> Refusals {
        self.shared.state().refusals
    }
}

impl fmt::Debug for MultiRegion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MultiRegion").field("endpoints", &self.endpoints).finish_non_exhaustive()
    }
}

impl Handle for Replica {
    async fn handle(&self, request: Request<Bytes>) -> anyhow::Result<Answer> {
        let (Parts { headers, .. }, body) = request.into_parts();
        // `DynamoDB_20120810.UpdateItem`: the API's version, then the operation.
        let target = headers.get("x-amz-target").and_then(|target| target.to_str().ok()).unwrap_or_default();
        let operation = target.rsplit('.').next().unwrap_or_default();
        let asked = serde_json::from_slice::<Value>(&body).unwrap_or_default();
        match operation {
            "TransactWriteItems" | "TransactGetItems" => Ok(refusal::not_understood(
                "Transactions are not supported on global tables with multi-Region strong consistency",
            )),
            "UpdateTimeToLive" | "DescribeTimeToLive" => Ok(refusal::not_understood(
                "Time to Live is not supported on global tables with multi-Region strong consistency",
            )),
            "DescribeTable" => self.shared.described(self.shared.upstream.forward(headers, body).await?).await,
            "UpdateItem" | "DeleteItem" => {
                let row = format!("{} {}", asked["TableName"], asked["Key"]);
                match self.begins_to_write(row) {
                    Some(_under_way) => self.across_regions(headers, body).await,
                    None => Ok(conflict()),
                }
            }
            "PutItem" | "BatchWriteItem" => self.across_regions(headers, body).await,
            _ if asked["ConsistentRead"] == true => self.across_regions(headers, body).await,
            _ => self.shared.upstream.forward(headers, body).await,
        }
    }
}

impl Replica {
    /// `None`: another Region writes this row.
    fn begins_to_write(&self, row: String) -> Option<UnderWay<'_>> {
        let mut state = self.shared.state();
        let State { writes, refusals, .. } = &mut *state;
        let (writer, count) = writes.entry(row.clone()).or_insert_with(|| (self.region.clone(), 0));
        if *writer != self.region {
            refusals.conflicts += 1;
            return None;
        }
        *count += 1;
        Some(UnderWay { shared: &self.shared, row })
    }

    async fn across_regions(&self, headers: HeaderMap, body: Bytes) -> anyhow::Result<Answer> {
        tokio::time::sleep(self.shared.one_way).await;
        if self.is_isolated() {
            return Ok(refusal::failed());
        }
        let answer = self.shared.upstream.forward(headers, body).await?;
        tokio::time::sleep(self.shared.one_way).await;
        Ok(if self.is_isolated() { refusal::failed() } else { answer })
    }

    fn is_isolated(&self) -> bool {
        let mut state = self.shared.state();
        let isolated = state.isolated.contains(&self.region);
        state.refusals.isolated += u64::from(isolated);
        isolated
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        let mut state = self.shared.state();
        let left = state.writes.get_mut(&self.row).map(|(_, count)| {
            *count -= 1;
            *count
        });
        if left == Some(0) {
            state.writes.remove(&self.row);
        }
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A description of the table, with what is known here alone.
    async fn described(&self, answer: Answer) -> anyhow::Result<Answer> {
        if !answer.status().is_success() {
            return Ok(answer);
        }
        let (mut head, body) = answer.into_parts();
        let mut described: Value = serde_json::from_slice(&body.collect().await?.to_bytes())?;
        let table = described["Table"].as_object_mut().context("a table is described as nothing")?;
        let replica = |region: &String| json!({ "RegionName": region, "ReplicaStatus": "ACTIVE" });
        table.insert("GlobalTableVersion".to_owned(), json!("2019.11.21"));
        table.insert("MultiRegionConsistency".to_owned(), json!("STRONG"));
        table.insert("Replicas".to_owned(), self.replicas.iter().map(replica).collect());
        if let Some(witness) = &self.witness {
            let witness = json!([{ "RegionName": witness, "WitnessStatus": "ACTIVE" }]);
            table.insert("GlobalTableWitnesses".to_owned(), witness);
        }
        head.headers.remove(CONTENT_LENGTH);
        head.headers.remove("x-amz-crc32");
        Ok(Answer::from_parts(head, Full::new(Bytes::from(described.to_string()))))
    }
}

fn conflict() -> Answer {
    let sentence = "One or more items in this request are being modified in another Region";
    refusal::refusal("com.amazonaws.dynamodb.v20120810#ReplicatedWriteConflictException", "message", sentence)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{LocalDynamoDb, config};
    use aws_sdk_dynamodb::Client;
    use aws_sdk_dynamodb::config::retry::RetryConfig;
    use aws_sdk_dynamodb::error::ProvideErrorMetadata;
    use aws_sdk_dynamodb::types::{AttributeValue, ConditionCheck, TransactWriteItem};
    use lambda_lock::{ErrorKind, LockClient};

    const REGIONS: [&str; 2] = ["eu-central-1", "eu-west-1"];
    const LEASE: Duration = Duration::from_secs(9);

    async fn two_regions() -> (LocalDynamoDb, MultiRegion) {
        let dynamodb = LocalDynamoDb::with_tables(&[("locks", "key")]).await.unwrap();
        let regions = MultiRegion::start(dynamodb.endpoint(), &REGIONS, Some("eu-west-3"), MultiRegion::ONE_WAY);
        let regions = regions.await.unwrap();
        (dynamodb, regions)
    }

    fn client(regions: &MultiRegion, region: &str) -> Client {
        let config = config(regions.endpoint(region).unwrap()).retry_config(RetryConfig::disabled());
        Client::from_conf(config.build())
    }

    fn locks(regions: &MultiRegion, region: &str) -> LockClient {
        LockClient::builder(client(regions, region), "locks").owner(region).build().unwrap()
    }

    fn key(key: &str) -> AttributeValue {
        AttributeValue::S(key.to_owned())
    }

    /// The error's code, or an empty text.
    async fn write(regions: &MultiRegion, region: &str, row: &str) -> String {
        let update = client(regions, region).update_item().table_name("locks").key("key", key(row));
        update.send().await.err().and_then(|error| error.code().map(str::to_owned)).unwrap_or_default()
    }

    #[tokio::test]
    async fn a_row_that_another_region_writes_is_not_written() {
        let (_dynamodb, regions) = two_regions().await;

        let later = async |region: &str, row: &str| {
            tokio::time::sleep(MultiRegion::ONE_WAY / 2).await;
            write(&regions, region, row).await
        };
        let (first, same_region, other_region, other_row) = tokio::join!(
            write(&regions, REGIONS[0], "k"),
            later(REGIONS[0], "k"),
            later(REGIONS[1], "k"),
            later(REGIONS[1], "another"),
        );

        assert_eq!([first, same_region, other_row], ["", "", ""]);
        assert_eq!(other_region, "ReplicatedWriteConflictException");
        assert_eq!(write(&regions, REGIONS[1], "k").await, "", "nobody writes any more");
        assert_eq!(regions.refusals(), Refusals { conflicts: 1, isolated: 0 });
    }

    #[tokio::test]
    async fn a_lock_is_seen_in_every_region_and_waits_conflicts_out() {
        let (_dynamodb, regions) = two_regions().await;
        let [here, there] = REGIONS.map(|region| locks(&regions, region));
        here.operator().check_table().await.unwrap();

        let [one, two] = [&here, &there].map(|locks| locks.acquire("k").lease(LEASE).try_once().into_future());
        let (one, two) = tokio::join!(one, two);

        let granted: Vec<_> = [one, two].into_iter().filter_map(|tried| tried.unwrap().granted()).collect();
        let [lock] = <[_; 1]>::try_from(granted).unwrap();
        assert_eq!(here.operator().peek("k").await.unwrap(), there.operator().peek("k").await.unwrap());
        lock.release().await.unwrap();
    }

    #[tokio::test]
    async fn there_are_no_transactions_and_no_ttl() {
        let (_dynamodb, regions) = two_regions().await;

        let check = ConditionCheck::builder().table_name("locks").key("key", key("k"));
        let check = check.condition_expression("attribute_not_exists(#k)").expression_attribute_names("#k", "key");
        let check = TransactWriteItem::builder().condition_check(check.build().unwrap()).build();
        let refused = client(&regions, REGIONS[0]).transact_write_items().transact_items(check).send().await;
        assert_eq!(refused.unwrap_err().code(), Some("ValidationException"));

        let with_ttl = LockClient::builder(client(&regions, REGIONS[0]), "locks").ttl_attribute("expiresAt");
        let error = with_ttl.build().unwrap().operator().check_table().await.unwrap_err();
        assert!(error.kind() == ErrorKind::Table && error.to_string().contains("has no TTL"), "{error}");
    }

    #[tokio::test]
    async fn an_isolated_region_reads_only_what_may_be_old() {
        let (_dynamodb, regions) = two_regions().await;
        let read = async |consistent: bool| {
            let get = client(&regions, REGIONS[1]).get_item().table_name("locks").key("key", key("k"));
            get.consistent_read(consistent).send().await.is_ok()
        };

        regions.isolate(REGIONS[1]);
        assert_eq!(write(&regions, REGIONS[1], "k").await, "InternalServerError");
        assert_eq!((read(true).await, read(false).await), (false, true));
        assert_eq!(write(&regions, REGIONS[0], "k").await, "", "the others go on");
        assert_eq!(regions.refusals(), Refusals { conflicts: 0, isolated: 2 });

        regions.rejoin(REGIONS[1]);
        assert_eq!(write(&regions, REGIONS[1], "k").await, "");
        assert!(read(true).await);
    }

    #[tokio::test]
    async fn strong_consistency_needs_three_regions() {
        for (replicas, witness) in [
            (&["a", "b"][..], None),
            (&["a", "b"], Some("b")),
            (&["a", "b", "c"], Some("d")),
            (&["a", "b", "b"], Some("c")),
            (&["a"], Some("b")),
        ] {
            let started = MultiRegion::start("http://127.0.0.1:1", replicas, witness, MultiRegion::ONE_WAY).await;
            assert!(started.unwrap_err().to_string().contains("give three replicas, or two and a witness"));
        }
    }
}
