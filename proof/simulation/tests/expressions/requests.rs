//! Random requests with few different values, so that conditions hold about as often as not.

use crate::writes::{self, Write};
use fastrand::Rng;
use lambda_lock_protocol::{
    Action, AttributesChange, DataChange, Dialect, EarlierNames, FrozenRow, Grant, Item, Lease, LineRule, LockKey,
    NewGrant, NextToken, OnceClaim, Request, Scope, Stamp, StoredOutcome, TransactionId, Value, Version,
};
use std::time::Duration;

/// One request as it is sent, with the caller's own writes if it is part of a transaction.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Operation {
    pub(crate) request: Request,
    pub(crate) writes: Vec<Write>,
    /// The token of its transaction was used before.
    pub(crate) repeats: bool,
}

impl Operation {
    pub(crate) fn name(&self) -> String {
        let action = match &self.request.action {
            Action::Claim { grant, .. } => claimed("claim", grant),
            Action::Take { grant, .. } => claimed("take", grant),
            Action::Join { .. } => "join",
            Action::Leave { .. } => "leave",
            Action::Renew { .. } => "renew",
            Action::Release { .. } => "release",
            Action::Break { .. } => "break",
            Action::Reset { .. } => "reset",
            Action::Freeze { row: FrozenRow::Missing(_), .. } => "freeze of no row",
            Action::Freeze { .. } => "freeze",
            Action::Thaw { .. } => "thaw",
            Action::Settle { outcome: StoredOutcome::Done(_), .. } => "complete",
            Action::Settle { outcome: StoredOutcome::Failed(_), .. } => "fail",
            Action::Fence { .. } => "fence",
        };
        if self.request.transaction.is_some() { format!("transaction with {action}:") } else { format!("{action}:") }
    }
}

fn claimed(plain: &'static str, grant: &NewGrant) -> &'static str {
    match (plain, &grant.once) {
        ("claim", Some(_)) => "claim of a work",
        ("take", Some(OnceClaim { anew: true, .. })) => "take of a work anew",
        ("take", Some(_)) => "take of a work",
        _ => plain,
    }
}

/// The operations on one row of the lock table and two rows of the caller's.
pub(crate) struct Sequence {
    pub(crate) key: LockKey,
    pub(crate) work: [String; 2],
    /// Whether the row belongs to idempotent work.
    once: bool,
    transactions: Vec<Operation>,
}

impl Sequence {
    pub(crate) fn new(seed: u64) -> Self {
        let once = seed % 2 == 1;
        let key = LockKey::from(format!("{}sequence {seed}", if once { "once/" } else { "" }));
        Self { key, work: ["a", "b"].map(|id| format!("{seed}/{id}")), once, transactions: Vec::new() }
    }

    /// The next operation. `row` is the current row.
    pub(crate) fn next(&mut self, row: Option<&Item>, rng: &mut Rng) -> Operation {
        if rng.u8(..10) == 0
            && let Some(earlier) = rng.choice(&self.transactions)
        {
            // Unchanged, as after a lost response; or with other content, which this crate never sends.
            let mut again = Operation { repeats: true, ..earlier.clone() };
            if rng.u8(..4) == 0 {
                again.writes = writes::any(&self.work, rng);
                again.repeats = again.writes == earlier.writes;
            }
            return again;
        }
        let operation = self.operation(row, rng);
        if operation.request.transaction.is_some() {
            self.transactions.push(operation.clone());
        }
        operation
    }

    fn operation(&self, row: Option<&Item>, rng: &mut Rng) -> Operation {
        let action = self.action(row, rng);
        let in_transaction = match action {
            Action::Fence { .. } => true,
            Action::Renew { .. } | Action::Release { .. } | Action::Settle { .. } => rng.bool(),
            _ => false,
        };
        let transaction = in_transaction.then(|| TransactionId::from_random(rng.u128(..).to_le_bytes()));
        let writes = if in_transaction { writes::any(&self.work, rng) } else { Vec::new() };
        let request = Request { transaction, ..Request::alone(self.key.clone(), action) };
        Operation { request, writes, repeats: false }
    }

    pub(crate) fn action(&self, row: Option<&Item>, rng: &mut Rng) -> Action {
        let seen = text(row, "recordVersionNumber").filter(|_| rng.u8(..4) > 0);
        // Mostly the grant and the token that are on the row.
        let own = seen.as_deref().and_then(|seen| Version::parse(&seen.replacen("lo1-", "ll1-", 1)));
        let there = text(row, "fencingToken").and_then(|token| token.parse().ok()).filter(|_| rng.u8(..8) > 0);
        let token = there.unwrap_or_else(|| rng.u64(1000..1008));
        let mut current = version(rng);
        if let Some(own) = own {
            current.grant = own.grant;
            current.stamp = current.stamp.max(own.stamp);
        }
        let keep = self.once.then(|| keep(rng));
        // Few operations make sense without a row.
        let choice = if row.is_none() && rng.u8(..4) > 0 { [0, 0, 0, 16][rng.usize(..4)] } else { rng.u8(..21) };
        match choice {
            2..4 => Action::Take {
                seen: seen.unwrap_or_else(|| version(rng).to_string()),
                held: rng.bool(),
                reclaims: rng.bool(),
                line: match rng.u8(..4) {
                    0 => LineRule::Ignored,
                    1 => LineRule::NobodyWaits,
                    2 => LineRule::Ends(rng.u64(..4)),
                    _ => LineRule::Serves { ticket: rng.u64(..4), over: over(rng) },
                },
                token: if rng.bool() { NextToken::FromRow } else { NextToken::Exactly(rng.u64(1000..1008)) },
                names: if rng.bool() { EarlierNames::Seen(text(row, "attributeNames")) } else { EarlierNames::Unseen },
                grant: self.grant(rng),
            },
            4..8 => Action::Renew {
                version: current,
                token,
                known_lease: text(row, "leaseDuration").and_then(|lease| Lease::parse(&lease)).unwrap_or(lease(rng)),
                lease: lease(rng),
                ends_at_ms: rng.u64(1004..1012),
                data: data(rng),
                keep,
            },
            8..10 if self.once => Action::Settle {
                version: current,
                token,
                outcome: if rng.bool() { StoredOutcome::Done("[1]".into()) } else { StoredOutcome::Failed("2".into()) },
                now: rng.u64(1000..1006),
                keep: keep.unwrap_or_default(),
            },
            8..11 | 13 => Action::Release {
                scope: scope(seen, current, token, rng),
                ends_at_ms: rng.u64(1000..1010),
                data: data(rng),
                keep,
                returns_row: rng.bool(),
            },
            11..13 => Action::Fence { grant: current.grant, token },
            15 => Action::Break {
                version: seen.is_none().then(|| "of the break".to_owned()),
                seen: seen.unwrap_or_else(|| "a peer's".to_owned()),
                ends_at_ms: rng.u64(1000..1010),
                reason: "why not".to_owned(),
            },
            14 if self.once => {
                let seen = seen.filter(|_| rng.u8(..8) != 0).unwrap_or_else(|| current.settled());
                let version = seen.replacen("lo1-", "ll1-", 1);
                Action::Reset { seen, version, ends_at_ms: rng.u64(1000..1010), reason: "why not".to_owned() }
            }
            16 if !self.once => {
                let changed = text(row, "freezeChangedAt").and_then(|at| at.parse().ok()).filter(|_| rng.u8(..8) > 0);
                let at = changed.map_or(1000, |changed: u64| changed + 1);
                match rng.u8(..5) {
                    0..3 if row.is_some() => Action::Thaw { seen: changed, at },
                    3 if row.is_some() => {
                        Action::Freeze { row: FrozenRow::Seen(changed), at, reason: "why not".to_owned() }
                    }
                    _ => Action::Freeze { row: FrozenRow::Missing(version(rng)), at, reason: "why not".to_owned() },
                }
            }
            17 if !self.once => Action::Join { sleeps: rng.bool() },
            18..21 if !self.once => {
                let served = text(row, "servedTicket").and_then(|served| served.parse().ok()).unwrap_or(0);
                Action::Leave { ticket: served + u64::from(rng.u8(..4) > 0) }
            }
            _ => Action::Claim {
                grant: self.grant(rng),
                trusted: rng.bool().then(|| rng.u64(1000..1010)),
                looks_at_line: rng.bool(),
                token: NextToken::FromRow,
            },
        }
    }

    fn grant(&self, rng: &mut Rng) -> NewGrant {
        let once = self.once.then(|| OnceClaim {
            payload: [None, Some("hash of one"), Some("hash of another")][rng.usize(..3)].map(str::to_owned),
            keep: keep(rng),
            anew: rng.u8(..4) == 0,
        });
        NewGrant {
            version: version(rng),
            owner: "me".into(),
            lease: lease(rng),
            now: rng.u64(1000..1006),
            ends_at_ms: rng.u64(1000..1010),
            data: data(rng),
            attributes: if self.once { AttributesChange::Keep } else { attributes(rng) },
            workflow: rng.bool().then(|| "arn".into()),
            once,
        }
    }
}

fn text(row: Option<&Item>, name: &str) -> Option<String> {
    match row?.get(name)? {
        Value::S(text) | Value::N(text) => Some(text.clone()),
        _ => None,
    }
}

/// The tickets of some who have given up, or of nobody.
fn over(rng: &mut Rng) -> Vec<u64> {
    [&[][..], &[1], &[1, 2], &[3]][rng.usize(..4)].to_vec()
}

fn scope(seen: Option<String>, current: Version, token: u64, rng: &mut Rng) -> Scope {
    match rng.u8(..4) {
        0 => Scope::Exactly {
            version: seen.unwrap_or_else(|| "a peer's".to_owned()),
            workflow: rng.bool().then(|| "arn".into()),
        },
        _ => Scope::Mine { up_to: current, token: rng.bool().then_some(token) },
    }
}

fn version(rng: &mut Rng) -> Version {
    Version { grant: Grant::from_random([rng.u8(1..4); 16]), stamp: Stamp::after(None, rng.u64(1000..1006), 7) }
}

fn lease(rng: &mut Rng) -> Lease {
    Lease::new(Duration::from_millis(rng.u64(1..4) * 100), Dialect::Java)
}

/// How long a record is kept: about as long as the clock difference.
fn keep(rng: &mut Rng) -> Duration {
    millis(rng)
}

fn millis(rng: &mut Rng) -> Duration {
    Duration::from_millis(rng.u64(..6))
}

fn attributes(rng: &mut Rng) -> AttributesChange {
    if rng.u8(..4) == 0 {
        return AttributesChange::Keep;
    }
    let given = [("job", "nightly".into()), ("shard", 5.into())].into_iter().filter(|_| rng.bool());
    AttributesChange::Replace(given.map(|(name, value)| (name.to_owned(), value)).collect())
}

fn data(rng: &mut Rng) -> DataChange {
    match rng.u8(..4) {
        0 => DataChange::Set(vec![rng.u8(..)]),
        1 => DataChange::Remove,
        _ => DataChange::Keep,
    }
}
