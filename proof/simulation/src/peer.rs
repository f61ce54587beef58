//! Clients of other projects that write the row by their own rules: `amazon-dynamodb-lock-client` (Java) and
//! `cirello.io/dynamolock` (Go), as far as a row shows the difference.
//!
//! Both read the row, and write if its version is still the one that they read. They send heartbeats. They observe a
//! version for its whole lease before they take over, without any margin. Java puts a new row; Go copies the attributes
//! that it does not know.

use crate::ledger::{CallKind, Ended};
use crate::network::{Outcome, Pending};
use crate::plan::Peer;
use crate::table::{Answer, Rows};
use crate::worker::Me;
use crate::world::SORT;
use lambda_lock_protocol::{Dialect, Instants, Item, Lease, LockKey, Record, Schema, Value, schema};
use std::time::Duration;

/// A peer's request.
#[derive(Clone, Debug)]
pub(crate) struct Op {
    pub(crate) key: usize,
    pub(crate) what: What,
}

#[derive(Clone, Debug)]
pub(crate) enum What {
    Read,
    /// `PutItem`, if the row still has this version. `None`: if there is no row.
    Put {
        expected: Option<String>,
        row: Item,
    },
    /// `UpdateItem`, if the row still has this version.
    Update {
        expected: String,
        set: Vec<(&'static str, Value)>,
    },
    /// `DeleteItem`, if the row still has this version.
    Delete {
        expected: String,
    },
}

impl Op {
    /// Carries it out.
    pub(crate) fn apply(self, rows: &mut Rows, key: &LockKey) -> Answer {
        let stands = |expected: Option<&String>, row: Option<&Item>| match (expected, row.map(version_of)) {
            (None, None) => true,
            (Some(expected), Some(found)) => found.as_ref() == Some(expected),
            _ => false,
        };
        match self.what {
            What::Read => Answer::Found(rows.get(key).cloned()),
            What::Put { expected, row } if stands(expected.as_ref(), rows.get(key)) => {
                rows.set(key, Some(row));
                Answer::Applied(Item::default())
            }
            What::Update { expected, set } if stands(Some(&expected), rows.get(key)) => {
                let mut row = rows.get(key).cloned().unwrap_or_default();
                for (name, value) in set {
                    row.set(name, value);
                }
                rows.set(key, Some(row));
                Answer::Applied(Item::default())
            }
            What::Delete { expected } if stands(Some(&expected), rows.get(key)) => {
                rows.set(key, None);
                Answer::Applied(Item::default())
            }
            _ => Answer::Refused(None),
        }
    }
}

fn version_of(row: &Item) -> Option<String> {
    match row.get(schema::VERSION) {
        Some(Value::S(version)) => Some(version.clone()),
        _ => None,
    }
}

pub(crate) async fn live(me: Me, peer: Peer) {
    while !me.is_calm() {
        me.sleep(me.part_of_lease(2.0)).await;
        let key = me.some_key();
        let lease = me.part_of_lease(0.8) + me.part_of_lease(0.4);
        let client = Client { me: &me, peer, key, lease };
        if let Some(held) = client.acquire().await {
            client.hold(held).await;
        }
    }
}

struct Client<'a> {
    me: &'a Me,
    peer: Peer,
    key: usize,
    lease: Duration,
}

/// A lock that a peer holds.
struct HeldByPeer {
    granted: usize,
    version: String,
    /// The clocks before the write that renewed it last.
    since: Instants,
}

impl Client<'_> {
    async fn ask(&self, what: What) -> Answer {
        let slot = {
            let mut state = self.me.state();
            state.send_peers(self.me.id, Op { key: self.key, what })
        };
        Pending::new(&self.me.world, slot).await.0
    }

    fn now(&self) -> Instants {
        self.me.state().read_clocks(self.me.id)
    }

    fn new_version(&self) -> String {
        format!("{:032x}", self.me.state().rng.u128(..))
    }

    async fn acquire(&self) -> Option<HeldByPeer> {
        let begun = self.now();
        let mut seen: Option<(String, Instants)> = None;
        // Go copies what it read first, however old that is when it writes.
        let mut first = None;
        loop {
            let Answer::Found(row) = self.ask(What::Read).await else { return None };
            let now = self.now();
            let expected = row.as_ref().and_then(version_of);
            let copied = first.get_or_insert_with(|| row.clone()).clone();
            let free = match row.map(|row| Record::read(row, &Schema::default())) {
                None => true,
                Some(Err(_)) => return None,
                Some(Ok(record)) => {
                    let watched = seen.take().filter(|(version, _)| *version == record.version);
                    let (version, since) = watched.unwrap_or((record.version, now));
                    seen = Some((version, since));
                    record.released || since_by_own_clock(now, since) > record.lease.duration()
                }
            };
            if free {
                return self.put(expected, copied).await;
            }
            if self.me.is_calm() || since_by_own_clock(now, begun) > self.lease * 4 {
                return None;
            }
            self.me.sleep(self.lease / 4).await;
        }
    }

    async fn put(&self, expected: Option<String>, copied: Option<Item>) -> Option<HeldByPeer> {
        let version = self.new_version();
        let since = self.now();
        self.me.state().call_begins(self.me.id, self.key, CallKind::Peer);
        let call = self.me.state().processes[self.me.id].call;
        let row = self.row(copied, &version);
        let answer = self.ask(What::Put { expected, row }).await;
        let mut state = self.me.state();
        state.call_ends(self.me.id, Ended::Done, None);
        if !matches!(answer, Answer::Applied(_)) {
            return None;
        }
        let granted = state.ledger.grants.iter().rposition(|one| Some(one.call) == call)?;
        state.processes[self.me.id].holds = Some(granted);
        Some(HeldByPeer { granted, version, since })
    }

    /// The row as this client writes it.
    fn row(&self, found: Option<Item>, version: &str) -> Item {
        let state = self.me.state();
        let dialect = if self.peer == Peer::Go { Dialect::Go } else { Dialect::Java };
        let mut row = match (self.peer, found) {
            (Peer::Go, Some(found)) => found,
            _ => Item::default(),
        };
        row.remove(schema::RELEASED);
        row.set("key", Value::S(state.keys[self.key].key().to_owned()));
        if let Some(sort) = state.keys[self.key].sort_key() {
            row.set(SORT, Value::S(sort.to_owned()));
        }
        row.set(schema::OWNER, Value::S(format!("peer {}", self.me.id)));
        row.set(schema::LEASE, Value::S(Lease::new(self.lease, dialect).text().to_owned()));
        row.set(schema::VERSION, Value::S(version.to_owned()));
        row
    }

    async fn hold(&self, mut held: HeldByPeer) {
        self.check(&held, true);
        let beats = self.me.state().rng.u32(0..6);
        for _ in 0..beats {
            self.me.rest(self.lease / 3).await;
            self.check(&held, false);
            if self.me.one_in(12) {
                // The peer dies without a release.
                return self.forget();
            }
            let (version, since) = (self.new_version(), self.now());
            let set = vec![(schema::VERSION, Value::S(version.clone()))];
            let beat = What::Update { expected: held.version.clone(), set };
            if !matches!(self.ask(beat).await, Answer::Applied(_)) {
                return self.forget();
            }
            held = HeldByPeer { version, since, ..held };
            self.check(&held, false);
        }
        self.forget();
        let (expected, deletes) = (held.version, self.me.state().plan.peer_deletes);
        let released = vec![(schema::RELEASED, Value::S("1".to_owned()))];
        self.ask(if deletes { What::Delete { expected } } else { What::Update { expected, set: released } }).await;
    }

    fn forget(&self) {
        self.me.state().processes[self.me.id].holds = None;
    }

    fn check(&self, held: &HeldByPeer, fresh: bool) {
        if since_by_own_clock(self.now(), held.since) < self.lease {
            self.me.state().says_mine(self.me.id, held.granted, fresh);
        }
    }
}

/// Peers read one clock. It is assumed to keep its rate; what peers do otherwise is not checked.
fn since_by_own_clock(now: Instants, earlier: Instants) -> Duration {
    now.monotonic.saturating_sub(earlier.monotonic)
}

/// The outcome of a peer's request.
impl From<Answer> for Outcome {
    fn from(answer: Answer) -> Self {
        Outcome::Answer(answer)
    }
}
