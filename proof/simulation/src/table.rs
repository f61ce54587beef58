//! The lock table: in memory with pure evaluation, or a real DynamoDB engine behind the real SDK.

use crate::expression::{self, Outcome};
use aws_sdk_dynamodb::primitives::Blob;
use aws_sdk_dynamodb::types::{AttributeValue, CancellationReason, TransactWriteItem};
use lambda_lock_protocol::{
    Action, Expression, FailedWrite, Fault, Item, Lease, LockKey, Refusal, Rejection, Reply, Request, Schema,
    Transacted, TransactionId, Value, Version, Written, schema,
};
use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

/// How long DynamoDB remembers a transaction's token (documented by AWS for `TransactWriteItems`).
pub(crate) const TOKEN_MEMORY: Duration = Duration::from_secs(600);

/// A request in flight.
#[derive(Clone, Debug)]
pub(crate) struct Typed {
    pub(crate) key: LockKey,
    pub(crate) kind: Kind,
    expression: Expression,
    /// The transaction that it is part of, if any. `writes` are the caller's.
    pub(crate) transaction: Option<TransactionId>,
    pub(crate) writes: Vec<Write>,
}

/// The table of the caller's own writes, and the attribute that identifies them.
pub(crate) const WORK: &str = "work";

/// One of the caller's own writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Write {
    /// Its number in the ledger.
    pub(crate) number: Option<usize>,
    /// The item that it writes: table and key.
    item: String,
}

impl Write {
    /// All writes of a transaction.
    pub(crate) fn all(writes: &[TransactWriteItem]) -> Vec<Self> {
        writes.iter().map(Self::of).collect()
    }

    fn of(write: &TransactWriteItem) -> Self {
        let (table, attributes) = match (write.put(), write.update(), write.delete(), write.condition_check()) {
            (Some(put), ..) => (put.table_name(), put.item()),
            (_, Some(update), ..) => (update.table_name(), update.key()),
            (_, _, Some(delete), _) => (delete.table_name(), delete.key()),
            (.., Some(check)) => (check.table_name(), check.key()),
            _ => return Self { number: None, item: String::new() },
        };
        let text = |name: &str| attributes.get(name).and_then(|value| value.as_s().ok()).cloned().unwrap_or_default();
        let number = attributes.get(WORK).and_then(|value: &AttributeValue| value.as_n().ok()?.parse().ok());
        Self { number, item: format!("{table}/{}", text("key")) }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Claim,
    Take,
    Join,
    Leave,
    Renew,
    Release,
    Settle,
    /// A freeze, or a thaw.
    Freeze,
    Peek,
}

impl Typed {
    pub(crate) fn of(request: &Request, writes: Vec<Write>, schema: &Schema) -> Self {
        let kind = match &request.action {
            Action::Claim { .. } => Kind::Claim,
            Action::Take { .. } => Kind::Take,
            Action::Join { .. } => Kind::Join,
            Action::Leave { .. } => Kind::Leave,
            Action::Renew { .. } => Kind::Renew,
            Action::Release { .. } | Action::Break { .. } | Action::Reset { .. } => Kind::Release,
            Action::Freeze { .. } | Action::Thaw { .. } => Kind::Freeze,
            Action::Settle { .. } => Kind::Settle,
            // A Fence is part of the caller's own transaction.
            Action::Fence { .. } => Kind::Peek,
        };
        let transaction = request.transaction.clone();
        Self { transaction, writes, expression: Expression::of(request, schema), kind, key: request.key.clone() }
    }

    /// A read of this row.
    pub(crate) fn read(key: LockKey) -> Self {
        Self { key, kind: Kind::Peek, expression: Expression::default(), transaction: None, writes: Vec::new() }
    }
}

/// What the table answers to a request of any kind, which is about one lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// With the attributes that the request asked for.
    Applied(Item),
    /// The condition of the lock did not hold. Contains the row, if there is one and it comes with the refusal.
    Refused(Option<Item>),
    /// The caller's own writes were refused.
    Cancelled(Vec<FailedWrite>),
    /// The row that was read.
    Found(Option<Item>),
    /// There is no reply.
    Fault(Fault),
}

impl Answer {
    /// As the reply to a write says it.
    pub fn of_write(reply: Reply<Written>) -> Self {
        match reply {
            Ok(Written::Applied(row)) => Answer::Applied(row),
            Ok(Written::Refused(row)) => Answer::Refused(row),
            Err(fault) => Answer::Fault(fault),
        }
    }

    /// As the reply to a transaction says it.
    pub fn of_transaction(reply: Reply<Transacted>) -> Self {
        match reply {
            Ok(Transacted::Applied) => Answer::Applied(Item::default()),
            Ok(Transacted::Refused(mut refusals)) => Answer::Refused(refusals.pop().and_then(|refusal| refusal.row)),
            Ok(Transacted::Cancelled(failed)) => Answer::Cancelled(failed),
            Ok(Transacted::InProgress) => Answer::Fault(Fault::Unknown),
            Err(fault) => Answer::Fault(fault),
        }
    }

    /// As the reply to a write.
    pub fn written(self) -> Reply<Written> {
        match self {
            Answer::Applied(row) => Ok(Written::Applied(row)),
            Answer::Refused(row) => Ok(Written::Refused(row)),
            other => Err(other.fault()),
        }
    }

    /// As the reply to a transaction.
    pub fn transacted(self) -> Reply<Transacted> {
        match self {
            Answer::Applied(_) | Answer::Found(_) => Ok(Transacted::Applied),
            Answer::Refused(row) => Ok(Transacted::Refused(vec![Refusal { index: 0, row }])),
            Answer::Cancelled(failed) => Ok(Transacted::Cancelled(failed)),
            Answer::Fault(fault) => Err(fault),
        }
    }

    /// As the reply to a read.
    pub fn read(self) -> Reply<Option<Item>> {
        match self {
            Answer::Found(row) => Ok(row),
            other => Err(other.fault()),
        }
    }

    fn fault(self) -> Fault {
        match self {
            Answer::Fault(fault) => fault,
            other => panic!("an answer of another kind than the request: {other:?}"),
        }
    }
}

/// Rows in memory.
#[derive(Debug, Default)]
pub struct Rows {
    rows: Vec<(LockKey, Option<Item>)>,
    schema: Schema,
    /// Transactions that were applied, with time and content. Each is applied once, as long as its token is remembered.
    applied: Vec<(TransactionId, Duration, Typed)>,
    /// The condition of the caller's own writes does not hold now.
    pub(crate) refuses_writes: bool,
    /// The table's own clock.
    pub(crate) now: Duration,
    /// The complaint about a request that DynamoDB would refuse, whatever is on the row.
    pub(crate) malformed: Option<String>,
}

impl Rows {
    /// An empty table with these names.
    pub fn new(schema: Schema) -> Self {
        Self { schema, ..Self::default() }
    }

    fn slot(&mut self, key: &LockKey) -> &mut Option<Item> {
        let position = self.rows.iter().position(|(own, _)| own == key).unwrap_or_else(|| {
            self.rows.push((key.clone(), None));
            self.rows.len() - 1
        });
        &mut self.rows[position].1
    }

    /// The row as it is.
    pub fn get(&self, key: &LockKey) -> Option<&Item> {
        self.rows.iter().find(|(own, _)| own == key)?.1.as_ref()
    }

    /// Puts a row, or removes it.
    pub fn set(&mut self, key: &LockKey, row: Option<Item>) {
        *self.slot(key) = row;
    }

    /// How many transactions were applied.
    pub fn transactions(&self) -> usize {
        self.applied.len()
    }

    /// Applies a request as DynamoDB would.
    pub fn apply(&mut self, request: &Request) -> Answer {
        let typed = Typed::of(request, Vec::new(), &self.schema);
        self.carry_out(&typed)
    }

    pub(crate) fn carry_out(&mut self, request: &Typed) -> Answer {
        if let Some(complaint) = self.complaint(request) {
            let answer = Answer::Fault(Fault::of_error(Some("ValidationException"), Some(&complaint)));
            self.malformed = Some(complaint);
            return answer;
        }
        let Some(transaction) = &request.transaction else { return self.alone(request) };
        if let Some(answer) = self.remembered(transaction, request) {
            return answer;
        }
        if has_an_item_twice(request) {
            let message = "Transaction request cannot include multiple operations on one item";
            return Answer::Fault(Fault::of_error(Some("ValidationException"), Some(message)));
        }
        if !expression::holds(&request.expression, self.get(&request.key)) {
            return Answer::Refused(self.get(&request.key).cloned());
        }
        if self.refuses_writes {
            let code = "ConditionalCheckFailed".to_owned();
            return Answer::Cancelled(vec![FailedWrite { index: 0, code, message: None }]);
        }
        let answer = self.alone(request);
        // A Fence writes nothing, but its token is remembered too.
        if matches!(answer, Answer::Applied(_) | Answer::Found(_)) {
            self.applied.push((transaction.clone(), self.now, request.clone()));
        }
        answer
    }

    /// DynamoDB's response to a transaction with a token that it remembers.
    fn remembered(&mut self, transaction: &TransactionId, request: &Typed) -> Option<Answer> {
        let known = self.applied.iter().find(|(known, at, _)| known == transaction && *at + TOKEN_MEMORY > self.now)?;
        if known.2.expression == request.expression && known.2.writes == request.writes {
            return Some(Answer::Applied(Item::default()));
        }
        self.malformed = Some("a transaction's token came again with other content".to_owned());
        Some(Answer::Fault(Fault::of_error(Some("IdempotentParameterMismatchException"), None)))
    }

    /// Why DynamoDB refuses a request of this crate, whatever is on the row.
    fn complaint(&self, request: &Typed) -> Option<String> {
        let (key, sort) = (request.key.key(), request.key.sort_key());
        let sort_name = self.schema.sort_key_attribute.as_deref();
        let fits = |text: &str, most: usize| (1..=most).contains(&text.len());
        if !fits(key, 2048) || sort.is_some_and(|sort| !fits(sort, 1024)) || sort.is_some() != sort_name.is_some() {
            return Some(format!("One or more parameter values are not valid: the key {}", request.key));
        }
        if request.kind == Kind::Peek && request.transaction.is_none() {
            return None;
        }
        let names = [Some(self.schema.key_attribute.as_str()), sort_name];
        let names: Vec<_> = names.into_iter().flatten().collect();
        expression::complaint(&request.expression, &names)
    }

    /// How often this transaction was applied before and then forgotten.
    pub(crate) fn forgotten(&self, request: &Typed) -> usize {
        let Some(id) = &request.transaction else { return 0 };
        let over = |at: Duration| at + TOKEN_MEMORY <= self.now;
        self.applied.iter().filter(|(known, at, _)| known == id && over(*at)).count()
    }

    /// The cancellation reasons of a transaction if other transactions have its items, or its items are throttled: one
    /// reason for each item, with the lock's item last. The conditions of the caller's items may not have been
    /// evaluated.
    pub(crate) fn reasons(
        &self,
        request: &Typed,
        taken: &[Option<&'static str>],
        looked: bool,
    ) -> Vec<CancellationReason> {
        let failed = "ConditionalCheckFailed";
        let mut reasons: Vec<_> = (0..request.writes.len())
            .map(|index| {
                let refused = self.refuses_writes && looked && index == 0;
                let code = taken.get(index).copied().flatten().or(refused.then_some(failed)).unwrap_or("None");
                CancellationReason::builder().code(code).build()
            })
            .collect();
        let own = CancellationReason::builder();
        reasons.push(match taken.last().copied().flatten() {
            Some(code) => own.code(code).build(),
            None if self.holds(request) => own.code("None").build(),
            None => {
                let row = self
                    .get(&request.key)
                    .map(|row| row.iter().map(|(name, value)| (name.to_owned(), attribute(value))));
                own.code(failed).set_item(row.map(Iterator::collect)).build()
            }
        });
        reasons
    }

    /// Whether the condition of a request holds.
    pub(crate) fn holds(&self, request: &Typed) -> bool {
        expression::holds(&request.expression, self.get(&request.key))
    }

    /// Whether this transaction was applied before and its token is still remembered.
    pub(crate) fn knows(&self, request: &Typed) -> bool {
        let known =
            |id: &TransactionId| self.applied.iter().any(|(known, at, _)| known == id && *at + TOKEN_MEMORY > self.now);
        request.transaction.as_ref().is_some_and(known)
    }

    fn alone(&mut self, request: &Typed) -> Answer {
        let schema = &self.schema;
        let (name, sort) = (schema.key_attribute.clone(), schema.sort_key_attribute.clone());
        let row = self.slot(&request.key);
        if request.kind == Kind::Peek {
            return Answer::Found(row.clone());
        }
        let outcome = expression::update(&request.expression, row, || {
            let mut made = Item::default();
            made.set(name, Value::S(request.key.key().to_owned()));
            if let (Some(name), Some(value)) = (sort, request.key.sort_key()) {
                made.set(name, Value::S(value.to_owned()));
            }
            made
        });
        match outcome {
            Outcome::Applied(returned) => Answer::Applied(returned),
            Outcome::Refused => Answer::Refused(row.clone()),
            Outcome::Invalid(why) => Answer::Fault(Fault::Rejected(Rejection::Invalid(why.to_owned()))),
        }
    }
}

fn attribute(value: &Value) -> AttributeValue {
    match value {
        Value::S(text) => AttributeValue::S(text.clone()),
        Value::N(number) => AttributeValue::N(number.clone()),
        Value::B(bytes) => AttributeValue::B(Blob::new(bytes.clone())),
        Value::Ns(numbers) => AttributeValue::Ns(numbers.clone()),
        Value::Other(_) => AttributeValue::Null(true),
    }
}

/// DynamoDB refuses a transaction with two operations on one item.
fn has_an_item_twice(request: &Typed) -> bool {
    let own = format!("locks/{}", request.key.key());
    let mut places: HashMap<&str, usize> = HashMap::from([(own.as_str(), 1)]);
    request.writes.iter().any(|write| {
        let often = places.entry(write.item.as_str()).or_default();
        *often += 1;
        *often > 1
    })
}

/// The content of a row for the ledger.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mark {
    pub(crate) version: String,
    pub(crate) own: Option<Version>,
    pub(crate) token: Option<u64>,
    pub(crate) released: bool,
    pub(crate) lease: u64,
    pub(crate) ends_at_ms: Option<u64>,
    pub(crate) owner: String,
    pub(crate) workflow: Option<String>,
    pub(crate) frozen: bool,
    /// When it was last frozen or thawed, by the row.
    pub(crate) freeze_changed_at: Option<u64>,
    /// The last ticket that was given, and the last one that was served.
    pub(crate) last_ticket: Option<u64>,
    pub(crate) served_ticket: Option<u64>,
    /// The tickets after that one whose callers have given up.
    pub(crate) left: BTreeSet<u64>,
    /// The stored result of an idempotent work.
    pub(crate) outcome: Option<String>,
    /// The attributes token, lease, end and owner, if they cannot be read.
    pub(crate) odd: Vec<(&'static str, Value)>,
}

impl Mark {
    /// Whether this attribute has this value and cannot be read.
    pub(crate) fn has(&self, attribute: &str, value: &Value) -> bool {
        self.odd.iter().any(|(name, odd)| *name == attribute && odd == value)
    }

    pub(crate) fn of(row: &Item) -> Self {
        let text = |name: &str| match row.get(name) {
            Some(Value::S(text)) => Some(text.clone()),
            _ => None,
        };
        let number = |name: &str| match row.get(name) {
            Some(Value::N(number)) => number.parse().ok(),
            _ => None,
        };
        let odd = [schema::TOKEN, schema::LEASE, schema::ENDS, schema::OWNER].into_iter().filter_map(|name| {
            let value = row.get(name)?;
            let read = match name {
                schema::OWNER => matches!(value, Value::S(_)),
                schema::LEASE => matches!(value, Value::S(text) if text.parse::<u64>().is_ok() || text.ends_with('s')
                    && text.len() < 20 && !text.starts_with('-')),
                _ => matches!(value, Value::N(number) if number.parse::<u64>().is_ok()),
            };
            (!read).then(|| (name, value.clone()))
        });
        let odd: Vec<_> = odd.collect();
        let left = match row.get(schema::LEFT_TICKETS) {
            Some(Value::Ns(left)) => left.as_slice(),
            _ => &[],
        };
        let left = left.iter().filter_map(|ticket| ticket.parse().ok());
        let version = text(schema::VERSION).unwrap_or_default();
        let lease = text(schema::LEASE)
            .filter(|_| odd.iter().all(|(name, _)| *name != schema::LEASE))
            .and_then(|text| Lease::parse(&text));
        Self {
            own: Version::parse(&version),
            version,
            token: number(schema::TOKEN),
            released: row.get(schema::RELEASED).is_some(),
            lease: lease.map_or(0, |lease| lease.duration().as_millis() as u64),
            ends_at_ms: number(schema::ENDS),
            owner: text(schema::OWNER).unwrap_or_default(),
            workflow: text(schema::WORKFLOW),
            frozen: row.get(schema::FREEZE_REASON).is_some(),
            freeze_changed_at: number(schema::FREEZE_CHANGED_AT),
            last_ticket: number(schema::LAST_TICKET),
            served_ticket: number(schema::SERVED_TICKET),
            left: left.filter(|ticket| Some(*ticket) > number(schema::SERVED_TICKET)).collect(),
            outcome: text(schema::OUTCOME),
            odd,
        }
    }
}
