//! Requests that make a lock ours, or give a place in line.

use crate::{Case, case, grant, with_ttl};
use lambda_lock_protocol::{
    Action, AttributesChange, DataChange, EarlierNames, LineRule, NewGrant, NextToken, OnceClaim, Schema,
};
use std::time::Duration;

pub(crate) fn cases() -> Vec<Case> {
    [claims(), in_line(), takes(), of_work()].into_iter().flatten().collect()
}

fn claim(grant: NewGrant, trusted: Option<u64>) -> Action {
    Action::Claim { grant, trusted, looks_at_line: false, token: NextToken::FromRow }
}

/// A take of a version that was seen free.
fn take(grant: NewGrant, names: EarlierNames) -> Action {
    Action::Take {
        grant,
        seen: "ll1-x".to_owned(),
        held: false,
        reclaims: false,
        line: LineRule::Ignored,
        token: NextToken::FromRow,
        names,
    }
}

fn no_names() -> EarlierNames {
    EarlierNames::Seen(None)
}

fn names(names: &str) -> EarlierNames {
    EarlierNames::Seen(Some(names.to_owned()))
}

fn keeping() -> NewGrant {
    NewGrant { attributes: AttributesChange::Keep, ..grant() }
}

fn with_attributes(given: &[(&str, &str)]) -> NewGrant {
    let given = given.iter().map(|(name, value)| ((*name).to_owned(), (*value).into())).collect();
    NewGrant { attributes: AttributesChange::Replace(given), ..grant() }
}

fn with_all() -> NewGrant {
    NewGrant { data: DataChange::Set(vec![1]), workflow: Some("arn".to_owned()), ..grant() }
}

fn claims() -> Vec<Case> {
    let in_order = |trusted| Action::Claim { grant: grant(), trusted, looks_at_line: true, token: NextToken::FromRow };
    let of_a_set = Action::Claim { grant: grant(), trusted: None, looks_at_line: false, token: NextToken::Larger(8) };
    let named = Schema { key_attribute: "pk".to_owned(), ..Schema::default() };
    vec![
        case("claim by the wall clock, where the key has another name", claim(grant(), Some(3_000))).schema(named),
        case("claim without a wall clock", claim(grant(), None)),
        case("claim with data and a workflow, where rows have a TTL", claim(with_all(), None)).schema(with_ttl("ttl")),
        case("claim that leaves the lock to those in line", in_order(None)),
        case("claim by the wall clock that leaves the lock to those in line", in_order(Some(3_000))),
        case("claim that keeps the additional attributes", claim(keeping(), None)),
        case("claim with additional attributes", claim(with_attributes(&[("job", "nightly"), ("shard", "5")]), None)),
        case("claim of one of several locks", of_a_set).in_transaction(),
    ]
}

fn in_line() -> Vec<Case> {
    let with_line = |line| match take(grant(), no_names()) {
        Action::Take { grant, seen, held, reclaims, token, names, .. } => {
            Action::Take { grant, seen, held, reclaims, line, token, names }
        }
        other => other,
    };
    vec![
        case("join", Action::Join { sleeps: false }),
        case("join of a caller that sleeps", Action::Join { sleeps: true }),
        case("leave", Action::Leave { ticket: 7 }),
        case("take that serves a ticket", with_line(LineRule::Serves { ticket: 7, over: Vec::new() })),
        case(
            "take that serves a ticket behind others who have left",
            with_line(LineRule::Serves { ticket: 7, over: vec![5, 6] }),
        ),
        case("take where all have left", with_line(LineRule::Ends(7))),
        case("take where nobody may wait", with_line(LineRule::NobodyWaits)),
    ]
}

fn takes() -> Vec<Case> {
    let of_a_holder = |held, reclaims| match take(grant(), no_names()) {
        Action::Take { grant, seen, line, token, names, .. } => {
            Action::Take { grant, seen, held, reclaims, line, token, names }
        }
        other => other,
    };
    let with_token = |grant, token| match take(grant, no_names()) {
        Action::Take { grant, seen, held, reclaims, line, names, .. } => {
            Action::Take { grant, seen, held, reclaims, line, token, names }
        }
        other => other,
    };
    let hostile = "job,job,,key,ownerName,expiresAt,attributeNames,shard";
    vec![
        case("take of a free lock", of_a_holder(false, false)),
        case("take from a dead holder", of_a_holder(true, false)),
        // Its holder may go on with a frozen lock.
        case("reclaim from its holder", of_a_holder(true, true)),
        case("reclaim of a lock that may be free", of_a_holder(false, true)),
        case(
            "take of a row of another client, with data and a workflow",
            with_token(with_all(), NextToken::Exactly(8)),
        ),
        case("take of one of several locks", with_token(grant(), NextToken::Larger(8))).in_transaction(),
        case("take that removes what a row lists, and nothing of the record", take(grant(), names(hostile)))
            .schema(with_ttl("expiresAt")),
        case(
            "take that replaces additional attributes",
            take(with_attributes(&[("shard", "6"), ("zone", "a")]), names("job,shard")),
        ),
        case("take that keeps the additional attributes", take(keeping(), names("job"))),
        case("take of a row that was not read", take(grant(), EarlierNames::Unseen)),
        case(
            "take with additional attributes of a row that was not read",
            take(with_attributes(&[("job", "nightly")]), EarlierNames::Unseen),
        ),
        case("take that keeps the attributes of a row that was not read", take(keeping(), EarlierNames::Unseen)),
    ]
}

fn of_work() -> Vec<Case> {
    let once = |payload: Option<&str>, anew| {
        let once = OnceClaim { payload: payload.map(str::to_owned), keep: Duration::from_secs(60), anew };
        NewGrant { once: Some(once), ..keeping() }
    };
    let anew = |payload| match take(once(payload, true), no_names()) {
        Action::Take { grant, held, reclaims, line, names, .. } => {
            Action::Take { grant, seen: "lo1-x".to_owned(), held, reclaims, line, token: NextToken::Exactly(8), names }
        }
        other => other,
    };
    vec![
        case("claim of work by the wall clock", claim(once(Some("hash"), false), Some(3_000))),
        case("claim of work without a payload", claim(once(None, false), None)),
        case("take of work", take(once(Some("hash"), false), no_names())),
        case("take of work whose time is over", anew(Some("hash"))),
        case("take of work without a payload whose time is over", anew(None)),
    ]
}
