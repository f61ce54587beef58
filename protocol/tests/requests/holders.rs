//! Requests of a holder, or of whoever releases a lock for a workflow.

use crate::{Case, case, lease, version, with_ttl};
use lambda_lock_protocol::{Action, DataChange, Schema, Scope, StoredOutcome};
use std::time::Duration;

pub(crate) fn cases() -> Vec<Case> {
    [renewals(), releases(), ends()].into_iter().flatten().collect()
}

fn renew(known: u64, data: DataChange, keep: Option<Duration>) -> Action {
    Action::Renew {
        version: version(),
        token: 7,
        known_lease: lease(known),
        lease: lease(20_000),
        ends_at_ms: 25_000,
        data,
        keep,
    }
}

fn renewals() -> Vec<Case> {
    let usual = || renew(20_000, DataChange::Keep, None);
    // DynamoDB refuses to remove a key.
    let partition = Schema { key_attribute: "expiresAt".to_owned(), ..Schema::default() };
    let sort = Schema { sort_key_attribute: Some("expiresAt".to_owned()), ..Schema::default() };
    let of_work = renew(20_000, DataChange::Keep, Some(Duration::from_secs(60)));
    vec![
        case("renew", usual()),
        case("renew for longer that removes the data", renew(10_000, DataChange::Remove, None)),
        case("renew where rows have the usual TTL", usual()).schema(with_ttl("expiresAt")),
        case("renew where rows have a TTL of another name", usual()).schema(with_ttl("ttl")),
        case("renew where the key is called like the usual TTL", usual()).schema(partition),
        case("renew where the sort key is called like the usual TTL", usual()).schema(sort),
        case("renew of work", of_work).schema(with_ttl("expiresAt")),
        // A late copy that DynamoDB no longer recognises must not be applied a second time.
        case("commit", usual()).in_transaction(),
    ]
}

fn mine() -> Scope {
    Scope::Mine { up_to: version(), token: Some(7) }
}

fn release(scope: Scope) -> Action {
    Action::Release { scope, ends_at_ms: 6_000, data: DataChange::Keep, keep: None, returns_row: false }
}

fn releases() -> Vec<Case> {
    let exactly = |workflow: Option<&str>| {
        release(Scope::Exactly { version: "ll1-x".to_owned(), workflow: workflow.map(str::to_owned) })
    };
    let of_an_attempt = Scope::Mine { up_to: version(), token: None };
    let shown =
        Action::Release { scope: mine(), ends_at_ms: 6_000, data: DataChange::Keep, keep: None, returns_row: true };
    let without_data =
        Action::Release { scope: mine(), ends_at_ms: 6_000, data: DataChange::Remove, keep: None, returns_row: false };
    let keep = Some(Duration::from_secs(60));
    let of_work =
        Action::Release { scope: mine(), ends_at_ms: 6_000, data: DataChange::Keep, keep, returns_row: false };
    vec![
        case("release", release(mine())),
        case("release that removes the data", without_data).schema(with_ttl("expiresAt")),
        case("release where rows have a TTL of another name", release(mine())).schema(with_ttl("ttl")),
        case("release that returns the row", shown),
        case("release of work", of_work),
        case("release of an attempt without a response", release(of_an_attempt)),
        case("release of a later grant of the owner", exactly(None)),
        case("release for a workflow", exactly(Some("arn"))),
        // The caller's writes may not be applied twice.
        case("commit and release", release(mine())).in_transaction(),
    ]
}

fn ends() -> Vec<Case> {
    let settle =
        |outcome| Action::Settle { version: version(), token: 7, outcome, now: 6_500, keep: Duration::from_secs(60) };
    let fence = Action::Fence { grant: version().grant, token: 7 };
    vec![
        case("work is done", settle(StoredOutcome::Done("[1]".to_owned()))).schema(with_ttl("expiresAt")),
        case("work failed for good", settle(StoredOutcome::Failed("2".to_owned()))),
        case("fence: every version of the grant until it is released", fence).in_transaction(),
    ]
}
