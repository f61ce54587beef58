//! `lock-task` in three Regions, on a table that is replicated with strong consistency. One Region is cut off while it
//! holds a lock, and comes back.

use crate::LONGEST;
use lambda_lock_local::lambda::build;
use lambda_lock_local::{Function, Lambda, LocalDynamoDb, MultiRegion, Outcome, Refusals};
use lambda_lock_testkit::ends_within;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::task::JoinSet;
use tokio::time::sleep;

const REGIONS: [&str; 3] = ["eu-central-1", "eu-west-1", "eu-west-3"];
const KEYS: [&str; 3] = ["a", "b", "c"];
/// The Region that is cut off.
const CUT_OFF: &str = REGIONS[2];
/// The lock that it holds then.
const HELD: &str = KEYS[0];

const LEASE: Duration = Duration::from_secs(4);
const SKEW: Duration = Duration::from_millis(300);
/// For how long the lock of a dead holder is left to those ahead in line, at most.
const LINE: Duration = Duration::from_millis(3_700);
/// What two busy processors may add.
const SLACK: Duration = Duration::from_secs(3);
/// How long each holder works.
const WORK: Duration = Duration::from_millis(100);
/// How long it does something else then. Who asks again at once would get the lock again: its way is the shortest.
const REST: Duration = Duration::from_millis(600);
/// How often each lock is granted before the Region is cut off, while it is, and in the Region when it is back.
const GRANTS: usize = 5;

/// One grant, as its caller learnt of it.
#[derive(Clone, Copy, Debug)]
struct Grant {
    region: &'static str,
    at: Instant,
}

/// What is left when a run is over.
pub(crate) struct Run {
    /// By key, in the order of the grants.
    grants: BTreeMap<&'static str, Vec<Grant>>,
    /// What the counter of each key says, and how many increments the callers were told of.
    pub(crate) counts: Vec<(u64, u64)>,
    pub(crate) refusals: Refusals,
    cut_off: Instant,
    back: Instant,
}

impl Run {
    /// Somebody waits for each lock nearly all the time, so the time between two grants is a wait. It ends no later
    /// than a lease and one poll after the grant before.
    pub(crate) fn nobody_waited_too_long(&self) {
        let pairs = self.grants.values().flat_map(|grants| grants.windows(2));
        let longest = pairs.map(|pair| pair[1].at - pair[0].at).max().unwrap();
        assert!(longest < LEASE + SKEW + LINE + SLACK, "somebody waited {longest:?}");
    }

    /// What was on its way when the Region was cut off has a second to arrive.
    pub(crate) fn nobody_was_granted_a_lock_where_no_other_region_is_reached(&self) {
        let cut_off = self.cut_off + Duration::from_secs(1)..self.back;
        let granted =
            self.grants.values().flatten().find(|grant| grant.region == CUT_OFF && cut_off.contains(&grant.at));
        assert!(granted.is_none(), "{granted:?} between {cut_off:?}");
    }

    /// Its holder cannot release it. A lease begins before its holder learns of the grant, by less than a second.
    pub(crate) fn the_lock_of_the_holder_that_was_cut_off_was_not_taken_before_its_lease_was_over(&self) {
        let next = self.grants[HELD].iter().find(|grant| grant.at > self.cut_off).unwrap();
        let after = next.at - self.cut_off;
        assert!(after + Duration::from_secs(1) > LEASE, "{next:?} after {after:?}");
    }
}

/// What a lock guards. It refuses whoever has an older token than the last writer.
#[derive(Default)]
struct Counter {
    count: u64,
    token: u64,
    told: u64,
}

struct Crowd {
    lambda: Lambda,
    regions: MultiRegion,
    counters: Mutex<BTreeMap<&'static str, Counter>>,
    grants: Mutex<BTreeMap<&'static str, Vec<Grant>>>,
    /// The next holder in this Region cuts it off.
    cut: Mutex<Option<&'static str>>,
    cut_off: Mutex<Option<Instant>>,
    over: Mutex<bool>,
}

pub(crate) async fn contend() -> Run {
    let dynamodb = LocalDynamoDb::with_tables(&[("locks", "key")]).await.unwrap();
    let regions = MultiRegion::start(dynamodb.endpoint(), &REGIONS, None, MultiRegion::ONE_WAY).await.unwrap();
    let binary = build(&["lock-task".to_owned()]).await.unwrap().remove("lock-task").unwrap();
    let function = |region: &str| Function {
        name: region.to_owned(),
        binary: binary.clone(),
        environment: [
            ("LOCK_TABLE", "locks"),
            ("LOCK_MAX_CLOCK_SKEW_MS", "300"),
            ("AWS_REGION", region),
            ("AWS_ENDPOINT_URL_DYNAMODB", regions.endpoint(region).unwrap()),
        ]
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .into(),
        timeout: Duration::from_secs(30),
        memory_mb: 256,
        concurrency: 1,
        kills: true,
    };
    let lambda = Lambda::start(REGIONS.map(function).into()).await.unwrap();
    let crowd = Arc::new(Crowd {
        lambda,
        regions,
        counters: Mutex::default(),
        grants: Mutex::default(),
        cut: Mutex::default(),
        cut_off: Mutex::default(),
        over: Mutex::default(),
    });
    let mut callers = JoinSet::new();
    for (region, key) in REGIONS.into_iter().flat_map(|region| KEYS.map(|key| (region, key))) {
        callers.spawn(call(Arc::clone(&crowd), region, key));
    }
    let back = ends_within(LONGEST, crowd.cut_off_and_back()).await;
    *crowd.over.lock().unwrap() = true;
    ends_within(LONGEST, callers.join_all()).await;
    let counters = std::mem::take(&mut *crowd.counters.lock().unwrap());
    Run {
        grants: crowd.grants.lock().unwrap().clone(),
        counts: counters.into_values().map(|counter| (counter.count, counter.told)).collect(),
        refusals: crowd.regions.refusals(),
        cut_off: crowd.cut_off.lock().unwrap().unwrap(),
        back,
    }
}

impl Crowd {
    /// Says when the Region was back.
    async fn cut_off_and_back(&self) -> Instant {
        self.until_each_key_was_granted(Instant::now(), &REGIONS).await;
        *self.cut.lock().unwrap() = Some(CUT_OFF);
        let cut_off = loop {
            let cut_off = *self.cut_off.lock().unwrap();
            match cut_off {
                Some(cut_off) => break cut_off,
                None => sleep(WORK).await,
            }
        };
        self.until_each_key_was_granted(cut_off, &REGIONS[..2]).await;
        self.regions.rejoin(CUT_OFF);
        let back = Instant::now();
        self.until_each_key_was_granted(back, &[CUT_OFF]).await;
        back
    }

    async fn until_each_key_was_granted(&self, since: Instant, regions: &[&str]) {
        let often_enough = |key: &&str| {
            let grants = self.grants.lock().unwrap();
            let grants = grants.get(*key).into_iter().flatten();
            grants.filter(|grant| grant.at > since && regions.contains(&grant.region)).count() >= GRANTS
        };
        while !KEYS.iter().all(often_enough) {
            sleep(WORK).await;
        }
    }

    /// What `lock-task` answers in this Region; `None` where asking again is safe and needed.
    async fn ask(&self, region: &str, request: &Value) -> Option<Value> {
        let invocation = self.lambda.invoke(region, &request.to_string()).await.unwrap();
        match invocation.outcome {
            Outcome::Answer(answer) => Some(serde_json::from_str(&answer).unwrap()),
            Outcome::Error { error_type, .. } if ["LockHeld", "LockUnknown"].contains(&error_type.as_str()) => None,
            other => panic!("{region}: {request}: {other:?}\n{}", invocation.logs),
        }
    }

    /// Reads the counter and writes one more, so that two holders at once would lose an increment.
    async fn work(&self, key: &'static str, token: u64) {
        let count = self.counters.lock().unwrap().entry(key).or_default().count;
        sleep(WORK).await;
        let mut counters = self.counters.lock().unwrap();
        let counter = counters.get_mut(key).unwrap();
        if token > counter.token {
            *counter = Counter { count: count + 1, token, told: counter.told + 1 };
        }
    }
}

/// Acquires, works and releases until the run is over.
async fn call(crowd: Arc<Crowd>, region: &'static str, key: &'static str) {
    let mut holders = 0;
    while !*crowd.over.lock().unwrap() {
        let acquire = json!({
            "action": "acquire", "key": key, "owner": format!("{region}/{key}/{holders}"), "reclaim": true,
            "leaseSeconds": LEASE.as_secs(), "waitSeconds": 10,
        });
        let Some(granted) = crowd.ask(region, &acquire).await else { continue };
        holders += 1;
        let lock = &granted["lock"];
        crowd.grants.lock().unwrap().entry(key).or_default().push(Grant { region, at: Instant::now() });
        if key == HELD && crowd.cut.lock().unwrap().take_if(|cut| *cut == region).is_some() {
            crowd.regions.isolate(region);
            *crowd.cut_off.lock().unwrap() = Some(Instant::now());
        }
        crowd.work(key, lock["fencingToken"].as_u64().unwrap()).await;
        // Where that does not work, the lease ends.
        crowd.ask(region, &json!({ "action": "release", "lock": lock })).await;
        sleep(REST).await;
    }
}
