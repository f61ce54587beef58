//! The lock table: in memory and evaluated purely, or a real DynamoDB engine behind the real SDK.

use crate::expression::{self, Outcome};
use lambda_lock::protocol::{
    Action, Answer, Expression, FailedWrite, Item, Lease, LockKey, Rejection, Request, Schema, TransactionId, Value,
    Version, schema,
};

/// A request as it travels.
#[derive(Clone, Debug)]
pub(crate) struct Typed {
    pub(crate) key: LockKey,
    pub(crate) kind: Kind,
    expression: Expression,
    /// Part of this transaction, with these writes of the caller's.
    pub(crate) transaction: Option<TransactionId>,
    pub(crate) writes: Vec<usize>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Claim,
    Take,
    Renew,
    Release,
    Delete,
    Settle,
    Peek,
}

impl Typed {
    pub(crate) fn of(request: &Request, writes: Vec<usize>, schema: &Schema) -> Self {
        let kind = match &request.action {
            Action::Claim { .. } => Kind::Claim,
            Action::Take { .. } => Kind::Take,
            Action::Renew { .. } => Kind::Renew,
            Action::Release { .. } => Kind::Release,
            Action::Delete { .. } => Kind::Delete,
            Action::Settle { .. } => Kind::Settle,
            // A Fence goes in a transaction of the caller's own.
            Action::Fence { .. } | Action::Peek => Kind::Peek,
        };
        let transaction = request.transaction.clone();
        Self { transaction, writes, expression: Expression::of(request, schema), kind, key: request.key.clone() }
    }
}

/// Rows in memory.
#[derive(Debug, Default)]
pub struct Rows {
    rows: Vec<(LockKey, Option<Item>)>,
    schema: Schema,
    /// Transactions that were applied: each is applied once.
    applied: Vec<TransactionId>,
    /// What the caller's own writes ask for does not hold now.
    pub(crate) refuses_writes: bool,
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

    /// Carries out a request, as DynamoDB would.
    pub fn apply(&mut self, request: &Request) -> Answer {
        let typed = Typed::of(request, Vec::new(), &self.schema);
        self.carry_out(&typed)
    }

    pub(crate) fn carry_out(&mut self, request: &Typed) -> Answer {
        let Some(transaction) = &request.transaction else { return self.alone(request) };
        if self.applied.contains(transaction) {
            return Answer::Applied(Item::default());
        }
        if !expression::holds(&request.expression, self.get(&request.key)) {
            return Answer::Refused(self.get(&request.key).cloned());
        }
        if self.refuses_writes {
            let code = "ConditionalCheckFailed".to_owned();
            return Answer::Cancelled(vec![FailedWrite { index: 0, code, message: None }]);
        }
        self.applied.push(transaction.clone());
        self.alone(request)
    }

    /// Whether this transaction was applied before.
    pub(crate) fn knows(&self, request: &Typed) -> bool {
        request.transaction.as_ref().is_some_and(|transaction| self.applied.contains(transaction))
    }

    fn alone(&mut self, request: &Typed) -> Answer {
        let schema = &self.schema;
        let (name, sort) = (schema.key_attribute.clone(), schema.sort_key_attribute.clone());
        let row = self.slot(&request.key);
        if request.kind == Kind::Peek {
            return Answer::Found(row.clone());
        }
        let outcome = if request.kind == Kind::Delete {
            expression::delete(&request.expression, row)
        } else {
            expression::update(&request.expression, row, || {
                let mut made = Item::default();
                made.set(name, Value::S(request.key.key().to_owned()));
                if let (Some(name), Some(value)) = (sort, request.key.sort_key()) {
                    made.set(name, Value::S(value.to_owned()));
                }
                made
            })
        };
        match outcome {
            Outcome::Applied(returned) => Answer::Applied(returned),
            Outcome::Refused => Answer::Refused(row.clone()),
            Outcome::Invalid => Answer::Rejected(Rejection::Invalid("an operand of a wrong type".to_owned())),
        }
    }
}

/// What a row says to whoever keeps the books.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mark {
    pub(crate) version: String,
    pub(crate) own: Option<Version>,
    pub(crate) token: Option<u64>,
    pub(crate) released: bool,
    pub(crate) lease: u64,
    pub(crate) ends: Option<u64>,
    pub(crate) owner: String,
    pub(crate) workflow: Option<String>,
    /// The stored result of an idempotent work.
    pub(crate) outcome: Option<String>,
}

impl Mark {
    pub(crate) fn of(row: &Item) -> Self {
        let text = |name: &str| match row.get(name) {
            Some(Value::S(text)) => Some(text.clone()),
            _ => None,
        };
        let number = |name: &str| match row.get(name) {
            Some(Value::N(number)) => number.parse().ok(),
            _ => None,
        };
        let version = text(schema::VERSION).unwrap_or_default();
        let lease = text(schema::LEASE).and_then(|text| Lease::parse(&text));
        Self {
            own: Version::parse(&version),
            version,
            token: number(schema::TOKEN),
            released: row.get(schema::RELEASED).is_some(),
            lease: lease.map_or(0, |lease| lease.duration().as_millis() as u64),
            ends: number(schema::ENDS),
            owner: text(schema::OWNER).unwrap_or_default(),
            workflow: text(schema::WORKFLOW),
            outcome: text(schema::OUTCOME),
        }
    }
}
