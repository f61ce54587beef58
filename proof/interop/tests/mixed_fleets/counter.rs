//! One counter that is read and written without a condition. Only the lock prevents lost increments.

use crate::dialects::cannot_read;
use crate::fleet::{Fleet, LONG};
use aws_sdk_dynamodb::types::AttributeValue;
use lambda_lock::{Budget, Dialect, LockClient};
use lambda_lock_interop::{Language, Peer, Why};
use serde_json::json;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

/// How long a contender lets others go first, at most. Some of them are nearly done.
const MAX_REST: Duration = Duration::from_millis(60);
const BLINK: Duration = Duration::from_millis(1);

/// The counter, and the callers that have added to it, in order.
#[derive(Clone)]
struct Counter {
    fleet: Fleet,
    turns: Arc<Mutex<Vec<&'static str>>>,
}

impl Counter {
    fn new(fleet: Fleet) -> Self {
        Self { fleet, turns: Arc::default() }
    }

    async fn count(&self) -> u64 {
        self.fleet.attribute("counter", "count").await.map_or(0, |count| count.parse().unwrap())
    }

    /// Reads the counter, and writes it plus one a little later. Increments in between are lost.
    async fn increment(&self, who: &'static str) {
        let count = self.count().await + 1;
        tokio::time::sleep(BLINK).await;
        let put = self.fleet.put("counter").item("count", AttributeValue::N(count.to_string()));
        put.send().await.unwrap();
        self.turns.lock().unwrap().push(who);
    }

    /// Waits until another contender has had a turn, so that the contenders meet.
    async fn rest(&self, who: &'static str) {
        let began = Instant::now();
        while self.turns.lock().unwrap().last() == Some(&who) && began.elapsed() < MAX_REST {
            tokio::time::sleep(BLINK).await;
        }
    }

    /// Returns how often the lock went from one contender to another.
    fn hand_overs(&self) -> usize {
        let turns = self.turns.lock().unwrap();
        turns.windows(2).filter(|two| two[0] != two[1]).count()
    }
}

/// Whether rows are kept, as usual, or deleted, because Java and Go cannot read each other's rows.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Rows {
    Kept,
    Deleted,
}

/// Takes our turns. While rows are kept, each token must be larger than the one before.
async fn our_turns(counter: Counter, who: &'static str, locks: LockClient, turns: usize, rows: Rows) {
    let mut newest = 0;
    for _ in 0..turns {
        let budget = Budget::lasting(Duration::from_secs(120)).reserve(Duration::from_secs(1));
        let lock = locks.acquire("k").within(&budget).lease(LONG).await.unwrap();
        assert!(lock.fencing_token() > newest || rows == Rows::Deleted, "{} after {newest}", lock.fencing_token());
        newest = lock.fencing_token();
        counter.increment(who).await;
        lock.release().await.unwrap();
        if rows == Rows::Deleted {
            counter.fleet.delete_released("k").await;
        }
        counter.rest(who).await;
    }
}

async fn their_turns(counter: Counter, language: Language, mut peer: Peer, turns: usize, rows: Rows) {
    for _ in 0..turns {
        acquire(&mut peer, language, rows).await;
        counter.increment(language.name()).await;
        peer.release("k", rows == Rows::Deleted).await.unwrap().unwrap();
        counter.rest(language.name()).await;
    }
}

/// Acquires the lock for a peer. A row in the other dialect is an error for a peer, so it retries until
/// the row is gone.
async fn acquire(peer: &mut Peer, language: Language, rows: Rows) {
    loop {
        let options = json!({"waitMillis": 120_000, "pollMillis": 5});
        let Err(refusal) = peer.acquire("k", options).await.unwrap() else { return };
        let unreadable = refusal.why == Why::Failed && refusal.error.contains(cannot_read(language));
        assert!(unreadable && rows == Rows::Deleted, "{refusal}");
        tokio::time::sleep(BLINK).await;
    }
}

pub(crate) async fn a_hundred_acquisitions_shared_with_one_peer_count_exactly(fleet: Fleet) {
    let counter = Counter::new(fleet.clone());
    let mut contenders = JoinSet::new();
    let peer = fleet.peer("theirs", LONG).await;
    contenders.spawn(our_turns(counter.clone(), "ours", fleet.locks("ours"), 50, Rows::Kept));
    contenders.spawn(their_turns(counter.clone(), fleet.language, peer, 50, Rows::Kept));
    contenders.join_all().await;
    assert_eq!(counter.count().await, 100);
    // How often they take turns depends on the machine.
    assert!(counter.hand_overs() >= 5, "{} hand-overs are too few", counter.hand_overs());
}

pub(crate) async fn two_hundred_acquisitions_by_three_languages_count_exactly(fleet: Fleet) {
    if Language::Go.program().unwrap().is_none() {
        return;
    }
    let counter = Counter::new(fleet.clone());
    let mut contenders = JoinSet::new();
    let java = fleet.open(Language::Java, "java", LONG, Duration::ZERO).await;
    let go = fleet.open(Language::Go, "go", LONG, Duration::ZERO).await;
    for (who, dialect) in [("ours, as Java", Dialect::Java), ("ours, as Go", Dialect::Go)] {
        let locks = fleet.builder(who).dialect(dialect).build().unwrap();
        contenders.spawn(our_turns(counter.clone(), who, locks, 35, Rows::Deleted));
    }
    for (language, peer) in [(Language::Java, java), (Language::Go, go)] {
        contenders.spawn(their_turns(counter.clone(), language, peer, 65, Rows::Deleted));
    }
    contenders.join_all().await;
    assert_eq!(counter.count().await, 200);
    assert!(counter.hand_overs() >= 15, "{} hand-overs are too few", counter.hand_overs());
}
