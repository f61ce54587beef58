//! Transactions over several locks, and reads of several rows at once.

use crate::Outcomes;
use crate::engine::Engine;
use crate::evaluation::{Attributes, Outcome, reason, sorted};
use crate::requests::Sequence;
use crate::writes::{self, Write};
use fastrand::Rng;
use lambda_lock_protocol::{
    Action, Expression, Item, LineRule, LockKey, NextToken, Refusal, Request, RowRead, Schema, Transacted,
    TransactionId,
};
use lambda_lock_simulation::{Rows, expression};
use std::collections::BTreeMap;

/// Sequences of sets begin here, so that their rows are their own.
const FIRST: u64 = 1_000_000;
const SEQUENCES: u64 = 200;
const LONGEST: usize = 20;
/// How many requests are drawn to find one whose condition holds.
const MAX_DRAWN: usize = 60;

/// One transaction over several locks, with the caller's own writes.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Set {
    pub(crate) requests: Vec<Request>,
    pub(crate) writes: Vec<Write>,
}

/// What happens next.
#[derive(Debug)]
enum Next {
    Together(Set),
    Alone(Request),
    Read(Vec<LockKey>),
}

/// What all requests of a set do.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Acquire,
    Renew,
    Release,
    Fence,
}

impl Kind {
    fn has(self, action: &Action) -> bool {
        match action {
            Action::Claim { grant, .. } | Action::Take { grant, .. } => self == Self::Acquire && grant.once.is_none(),
            Action::Renew { .. } => self == Self::Renew,
            Action::Release { .. } => self == Self::Release,
            Action::Fence { .. } => self == Self::Fence,
            _ => false,
        }
    }
}

/// Up to four locks of one sequence, and the transactions that were sent.
struct Sets {
    schema: Schema,
    locks: Vec<Sequence>,
    transactions: Vec<Set>,
}

impl Sets {
    fn new(seed: u64, schema: Schema, rng: &mut Rng) -> Self {
        // Even numbers are locks, and odd ones idempotent work.
        let lock = |number: u64| Sequence::new(FIRST + 8 * seed + 2 * number);
        Self { schema, locks: (0..rng.u64(2..=4)).map(lock).collect(), transactions: Vec::new() }
    }

    fn keys(&self) -> Vec<LockKey> {
        self.locks.iter().map(|lock| lock.key.clone()).collect()
    }

    fn next(&mut self, rows: &Rows, rng: &mut Rng) -> Next {
        match rng.u8(..10) {
            0 | 1 => {
                let lock = &self.locks[rng.usize(..self.locks.len())];
                let row = rows.get(&lock.key);
                let mut actions = std::iter::repeat_with(|| lock.action(row, rng));
                // A condition check is always part of a transaction.
                let action = actions.find(|action| !Kind::Fence.has(action)).unwrap();
                Next::Alone(Request::alone(lock.key.clone(), action))
            }
            2 => {
                let mut keys = self.keys();
                rng.shuffle(&mut keys);
                keys.truncate(rng.usize(1..=keys.len()));
                Next::Read(keys)
            }
            3 if !self.transactions.is_empty() => {
                Next::Together(self.transactions[rng.usize(..self.transactions.len())].clone())
            }
            _ => {
                let set = self.set(rows, rng);
                self.transactions.push(set.clone());
                Next::Together(set)
            }
        }
    }

    fn set(&self, rows: &Rows, rng: &mut Rng) -> Set {
        let kind = [Kind::Acquire, Kind::Acquire, Kind::Renew, Kind::Release, Kind::Fence][rng.usize(..5)];
        let id = TransactionId::from_random(rng.u128(..).to_le_bytes());
        // One token for all, mostly larger than those on the rows.
        let common = rng.u64(1000..1012);
        let mut locks: Vec<&Sequence> = self.locks.iter().collect();
        rng.shuffle(&mut locks);
        locks.truncate(rng.usize(2..=locks.len()));
        // Otherwise hardly any set would be applied.
        let all_hold = rng.u8(..3) > 0;
        let request = |lock: &&Sequence| {
            let row = rows.get(&lock.key);
            let mut requests = std::iter::repeat_with(|| {
                let action = match lock.action(row, rng) {
                    Action::Claim { grant, trusted, .. } => {
                        Action::Claim { grant, trusted, looks_at_line: false, token: NextToken::Larger(common) }
                    }
                    Action::Take { grant, seen, held, reclaims, names, .. } => {
                        let (line, token) = (LineRule::Ignored, NextToken::Larger(common));
                        Action::Take { grant, seen, held, reclaims, line, names, token }
                    }
                    other => other,
                };
                Request { transaction: Some(id.clone()), ..Request::alone(lock.key.clone(), action) }
            })
            .filter(|request| kind.has(&request.action));
            let holds = |request: &Request| expression::holds(&Expression::of(request, &self.schema), row);
            let last = requests.next().unwrap();
            if all_hold { requests.take(MAX_DRAWN).find(holds).unwrap_or(last) } else { last }
        };
        let requests = locks.iter().map(request).collect();
        // An acquire of a set has no writes of the caller's.
        let writes = if kind == Kind::Acquire { Vec::new() } else { writes::any(&self.locks[0].work, rng) };
        Set { requests, writes }
    }
}

/// All rows of one sequence, without a DynamoDB.
struct Evaluation {
    schema: Schema,
    rows: Rows,
    work: BTreeMap<String, Option<Item>>,
    applied: Vec<Set>,
}

impl Evaluation {
    fn apply(&mut self, next: &Next) -> Outcome {
        match next {
            Next::Alone(request) => Outcome::of(self.rows.apply(request)),
            Next::Read(keys) => {
                let row = |key| self.rows.get(key).cloned().map_or(RowRead::Missing, RowRead::Row);
                Outcome::of_rows(Ok(keys.iter().map(row).collect()))
            }
            Next::Together(set) => self.together(set),
        }
    }

    /// All of it, or nothing.
    fn together(&mut self, set: &Set) -> Outcome {
        if self.applied.contains(set) {
            return Outcome::of_set(&Ok(Transacted::Applied));
        }
        let of_writes = set.writes.iter().map(|write| {
            let row = self.work.get(&write.id).cloned().flatten();
            reason(write.holds(row.as_ref()), row.filter(|_| write.all_old))
        });
        let mut reasons: Vec<(String, Option<Attributes>)> = of_writes.collect();
        let mut refusals = Vec::new();
        for (index, request) in set.requests.iter().enumerate() {
            let row = self.rows.get(&request.key);
            let holds = expression::holds(&Expression::of(request, &self.schema), row);
            if !holds {
                refusals.push(Refusal { index, row: row.cloned() });
            }
            reasons.push(reason(holds, row.cloned()));
        }
        if reasons.iter().all(|(code, _)| code == "None") {
            for write in &set.writes {
                write.apply(self.work.entry(write.id.clone()).or_default());
            }
            for request in &set.requests {
                self.rows.apply(&Request::alone(request.key.clone(), request.action.clone()));
            }
            self.applied.push(set.clone());
            return Outcome::of_set(&Ok(Transacted::Applied));
        }
        if !refusals.is_empty() {
            return Outcome { reasons, ..Outcome::of_set(&Ok(Transacted::Refused(refusals))) };
        }
        let failed = reasons.iter().enumerate().filter(|(_, (code, _))| code != "None");
        let failed: Vec<_> = failed.map(|(index, (code, _))| (index, code.as_str())).collect();
        Outcome { what: format!("cancelled by {failed:?}"), row: Vec::new(), reasons }
    }
}

/// Runs all sequences, and returns how often each outcome occurred.
pub(crate) async fn run_all(engines: Vec<Engine>) -> Outcomes {
    let mut outcomes = Outcomes::new();
    for seed in 0..SEQUENCES {
        run(seed, &engines, &mut outcomes).await;
    }
    outcomes
}

async fn run(seed: u64, engines: &[Engine], outcomes: &mut Outcomes) {
    let mut rng = Rng::with_seed(FIRST + seed);
    let schema = crate::names(seed);
    let mut sets = Sets::new(seed, schema.clone(), &mut rng);
    let (rows, work) = (Rows::new(schema.clone()), BTreeMap::new());
    let mut evaluation = Evaluation { schema: schema.clone(), rows, work, applied: Vec::new() };
    for number in 0..rng.usize(1..=LONGEST) {
        let next = sets.next(&evaluation.rows, &mut rng);
        let expected = evaluation.apply(&next);
        for engine in engines {
            let found = match &next {
                Next::Alone(request) => engine.alone(request, &schema).await,
                Next::Read(keys) => engine.read_all(keys, &schema).await,
                Next::Together(set) => engine.together(set, &schema).await,
            };
            assert_eq!(expected, found, "{}, set {seed}, operation {number}: {next:#?}", engine.name);
        }
        *outcomes.entry(summary(&next, &expected)).or_default() += 1;
    }
    for engine in engines {
        for key in sets.keys() {
            let expected = evaluation.rows.get(&key).cloned().map(sorted);
            assert_eq!(expected, engine.row(&key).await, "{}, set {seed}, {key}", engine.name);
        }
        for id in &sets.locks[0].work {
            let expected = evaluation.work.get(id).cloned().flatten().map(sorted);
            assert_eq!(expected, engine.work(id).await, "{}, set {seed}, {id}", engine.name);
        }
    }
}

fn summary(next: &Next, outcome: &Outcome) -> String {
    let what = outcome.what.split(' ').next().unwrap_or_default();
    match next {
        Next::Alone(_) => "between sets: one request".to_owned(),
        Next::Read(keys) => format!("read of {} rows", keys.len()),
        Next::Together(set) => {
            let kind = match set.requests.first().map(|request| &request.action) {
                Some(Action::Claim { .. } | Action::Take { .. }) => "acquire",
                Some(Action::Renew { .. }) => "renew",
                Some(Action::Release { .. }) => "release",
                _ => "fence",
            };
            format!("set of {}, {kind}: {what}", set.requests.len())
        }
    }
}
