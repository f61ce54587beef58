//! The expected outcome of an operation, computed without a DynamoDB.

use crate::requests::Operation;
use lambda_lock_protocol::{
    Action, Expression, FailedWrite, Fault, Item, LockKey, Rejection, Reply, RowRead, Schema, Transacted, Value,
};
use lambda_lock_simulation::{Answer, Rows, expression};
use std::collections::BTreeMap;

/// The attributes of an item, in order, and the members of its sets.
pub(crate) type Attributes = Vec<(String, Value)>;

/// The outcome of an operation, as far as it must be the same everywhere.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Outcome {
    pub(crate) what: String,
    /// What was returned or found.
    pub(crate) row: Attributes,
    /// For a cancelled transaction: why each write was refused, and the item if the write requested it.
    pub(crate) reasons: Vec<(String, Option<Attributes>)>,
}

impl Outcome {
    /// Of a request that is about one lock. Without the order of attributes, and without error texts, because each engine has
    /// its own.
    pub(crate) fn of(answer: Answer) -> Self {
        let (what, row) = match answer {
            Answer::Applied(item) => ("applied".to_owned(), Some(item)),
            Answer::Refused(row) => (format!("refused, {}", there(row.as_ref())), row),
            Answer::Found(row) => (format!("found, {}", there(row.as_ref())), row),
            Answer::Cancelled(failed) => (cancelled(&failed), None),
            Answer::Fault(fault) => (named(&fault), None),
        };
        Self { what, row: row.map(sorted).unwrap_or_default(), reasons: Vec::new() }
    }

    /// Of a transaction over several locks.
    pub(crate) fn of_set(reply: &Reply<Transacted>) -> Self {
        Self::named(&match reply {
            Ok(Transacted::Applied) => "applied".to_owned(),
            Ok(Transacted::Refused(refusals)) => {
                let by = refusals.iter().map(|refusal| (refusal.index, there(refusal.row.as_ref())));
                format!("refused by {:?}", by.collect::<Vec<_>>())
            }
            Ok(Transacted::Cancelled(failed)) => cancelled(failed),
            Ok(Transacted::InProgress) => "in progress".to_owned(),
            Err(fault) => named(fault),
        })
    }

    /// Of a read of several rows.
    pub(crate) fn of_rows(reply: Reply<Vec<RowRead>>) -> Self {
        let row = |row| match row {
            RowRead::Unread => "unread".to_owned(),
            RowRead::Missing => "missing".to_owned(),
            RowRead::Row(row) => format!("{:?}", sorted(row)),
        };
        Self::named(&match reply {
            Ok(rows) => format!("{:?}", rows.into_iter().map(row).collect::<Vec<_>>()),
            Err(fault) => named(&fault),
        })
    }

    fn named(what: &str) -> Self {
        Self { what: what.to_owned(), ..Self::default() }
    }
}

fn there(row: Option<&Item>) -> &'static str {
    if row.is_some() { "a row" } else { "no row" }
}

fn cancelled(failed: &[FailedWrite]) -> String {
    let failed: Vec<_> = failed.iter().map(|failed| (failed.index, failed.code.as_str())).collect();
    format!("cancelled by {failed:?}")
}

fn named(fault: &Fault) -> String {
    match fault {
        Fault::Rejected(Rejection::Invalid(_)) => "invalid".to_owned(),
        other => format!("{other:?}"),
    }
}

pub(crate) fn sorted(item: Item) -> Attributes {
    let value = |value: &Value| match value {
        Value::Ns(members) => expression::numbers(members.clone()),
        other => other.clone(),
    };
    let mut list: Vec<_> = item.iter().map(|(name, given)| (name.to_owned(), value(given))).collect();
    list.sort_by(|one, other| one.0.cmp(&other.0));
    list
}

/// All rows of one sequence.
pub(crate) struct Evaluation {
    schema: Schema,
    rows: Rows,
    work: BTreeMap<String, Option<Item>>,
    /// Transactions that were applied.
    applied: Vec<Operation>,
}

impl Evaluation {
    pub(crate) fn new(schema: Schema) -> Self {
        Self { rows: Rows::new(schema.clone()), schema, work: BTreeMap::new(), applied: Vec::new() }
    }

    pub(crate) fn row(&self, key: &LockKey) -> Option<&Item> {
        self.rows.get(key)
    }

    /// One of the caller's own items.
    pub(crate) fn work(&self, id: &str) -> Option<Attributes> {
        self.work.get(id).cloned().flatten().map(sorted)
    }

    pub(crate) fn apply(&mut self, operation: &Operation) -> Outcome {
        let Some(transaction) = &operation.request.transaction else {
            return Outcome::of(self.rows.apply(&operation.request));
        };
        // A token stands for one content for ten minutes after it was applied.
        let earlier = self.applied.iter().find(|earlier| earlier.request.transaction.as_ref() == Some(transaction));
        if let Some(earlier) = earlier {
            let same = (&earlier.request, &earlier.writes) == (&operation.request, &operation.writes);
            return if same { Outcome::of(self.rows.apply(&operation.request)) } else { Outcome::named("invalid") };
        }
        let reasons = self.reasons(operation);
        let refused: Vec<_> = reasons.iter().enumerate().filter(|(_, (code, _))| code != "None").collect();
        if refused.is_empty() {
            self.applied.push(operation.clone());
            for write in &operation.writes {
                write.apply(self.work.entry(write.id.clone()).or_default());
            }
            return match self.rows.apply(&operation.request) {
                // A Fence writes nothing.
                Answer::Found(_) if matches!(operation.request.action, Action::Fence { .. }) => {
                    Outcome::named("applied")
                }
                answer => Outcome::of(answer),
            };
        }
        // The lock's own condition counts first.
        if refused.iter().any(|(index, _)| *index == operation.writes.len()) {
            return Outcome { reasons, ..Outcome::of(self.rows.apply(&operation.request)) };
        }
        let failed: Vec<_> = refused.iter().map(|(index, (code, _))| (*index, code.as_str())).collect();
        Outcome { what: format!("cancelled by {failed:?}"), row: Vec::new(), reasons }
    }

    /// For each write, with the lock's write last: why it is refused.
    fn reasons(&self, operation: &Operation) -> Vec<(String, Option<Attributes>)> {
        let mut reasons: Vec<_> = operation
            .writes
            .iter()
            .map(|write| {
                let row = self.work.get(&write.id).cloned().flatten();
                reason(write.holds(row.as_ref()), row.filter(|_| write.all_old))
            })
            .collect();
        let row = self.row(&operation.request.key);
        let holds = expression::holds(&Expression::of(&operation.request, &self.schema), row);
        reasons.push(reason(holds, row.cloned()));
        reasons
    }
}

pub(crate) fn reason(holds: bool, row: Option<Item>) -> (String, Option<Attributes>) {
    if holds { ("None".to_owned(), None) } else { ("ConditionalCheckFailed".to_owned(), row.map(sorted)) }
}
