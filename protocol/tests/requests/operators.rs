//! Requests of an operator. Each is about exactly what the operator has seen.

use crate::{Case, case, version, with_ttl};
use lambda_lock_protocol::{Action, FrozenRow};

pub(crate) fn cases() -> Vec<Case> {
    let broken = |version: Option<&str>| Action::Break {
        seen: "the version that was seen".to_owned(),
        version: version.map(str::to_owned),
        ends_at_ms: 6_000,
        reason: "gone".to_owned(),
    };
    let freeze = |row| Action::Freeze { row, at: 6_000, reason: "a deployment".to_owned() };
    let reset = Action::Reset {
        seen: "lo1-x".to_owned(),
        version: "ll1-x".to_owned(),
        ends_at_ms: 6_000,
        reason: "gone".to_owned(),
    };
    vec![
        case("break", broken(None)),
        case("break of a row of another client, whose next heartbeat then fails", broken(Some("another"))),
        case("freeze", freeze(FrozenRow::Seen(None))),
        case("freeze where rows have a TTL", freeze(FrozenRow::Seen(None))).schema(with_ttl("expiresAt")),
        case("freeze after an earlier freeze or thaw", freeze(FrozenRow::Seen(Some(5_000)))),
        case("freeze of a key without a row", freeze(FrozenRow::Missing(version()))),
        case("thaw", Action::Thaw { seen: Some(5_000), at: 6_000 }),
        case("thaw of a lock that was never frozen", Action::Thaw { seen: None, at: 6_000 }),
        case("reset of work that failed for good", reset),
    ]
}
