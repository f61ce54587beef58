//! How a transcript names what is sent.

use crate::row::named;
use crate::script::BEGIN;
use lambda_lock_protocol::{
    Action, AttributesChange, DataChange, EarlierNames, FrozenRow, Holding, Instants, LineRule, NewGrant, NextToken,
    PendingCommit, Scope, Version,
};
use std::time::Duration;

/// An epoch millisecond, from the beginning of the call.
pub(crate) fn at(millis: u64) -> String {
    format!("{:+}", millis as i64 - BEGIN as i64)
}

pub(crate) fn described(action: &Action, attempts: &[Version]) -> String {
    match action {
        Action::Claim { grant, trusted, looks_at_line, token } => {
            let trusted = trusted.map_or("no wall clock".to_owned(), |at_ms| format!("dead before {}", at(at_ms)));
            let line = if *looks_at_line { "while nobody waits" } else { "whoever is in line" };
            format!("Claim ({trusted}, {line}{}){}", token_said(*token), grant_said(grant))
        }
        Action::Take { grant, seen, held, reclaims, line, token, names } => {
            let held = if *held { ", held" } else { "" };
            let reclaims = if *reclaims { ", reclaimed" } else { "" };
            let line = match line {
                LineRule::Ignored => String::new(),
                LineRule::NobodyWaits => ", while nobody waits".to_owned(),
                LineRule::Ends(ticket) => format!(", all up to ticket {ticket} have left"),
                LineRule::Serves { ticket, over } if over.is_empty() => format!(", serves ticket {ticket}"),
                LineRule::Serves { ticket, over } => format!(", serves ticket {ticket}, lists {over:?} no more"),
            };
            let names = match names {
                EarlierNames::Unseen => ", row not seen".to_owned(),
                EarlierNames::Seen(None) => String::new(),
                EarlierNames::Seen(Some(names)) => format!(", where it has {names}"),
            };
            let (seen, token, grant) = (named(seen, attempts), token_said(*token), grant_said(grant));
            format!("Take of {seen}{held}{reclaims}{line}{names}{token}{grant}")
        }
        Action::Leave { ticket } => format!("Leave of ticket {ticket}"),
        Action::Join { sleeps } => format!("Join{}", if *sleeps { ", and sleeps" } else { "" }),
        Action::Renew { version, token, known_lease, lease, ends_at_ms, data, keep } => {
            let known =
                if known_lease == lease { String::new() } else { format!(" instead of {}", known_lease.text()) };
            let (stamp, ends, data, kept) = (at(version.stamp.millis()), at(*ends_at_ms), data_said(data), kept(*keep));
            format!("Renew at {stamp} (token {token}, lease {}{known}, ends {ends}{kept}{data})", lease.text())
        }
        Action::Release { scope, ends_at_ms, data, keep, returns_row } => {
            let returns = if *returns_row { ", returns the row" } else { "" };
            let (scope, ends, data, kept) = (scoped(scope, attempts), at(*ends_at_ms), data_said(data), kept(*keep));
            format!("Release of {scope}, ends {ends}{kept}{data}{returns}")
        }
        Action::Settle { version, token, outcome, now, keep } => {
            let (stamp, outcome, time, kept) =
                (at(version.stamp.millis()), outcome.state(), at(*now), kept(Some(*keep)));
            format!("Settle at {stamp} (token {token}, {outcome} at {time}{kept})")
        }
        Action::Reset { seen, version, ends_at_ms, .. } => {
            format!("Reset of {} to {}, ends {}", named(seen, attempts), named(version, attempts), at(*ends_at_ms))
        }
        Action::Break { seen, version, ends_at_ms, .. } => {
            let anew = if version.is_some() { ", under a new version" } else { "" };
            format!("Break of {}, ends {}{anew}", named(seen, attempts), at(*ends_at_ms))
        }
        Action::Freeze { row, at: time, .. } => match row {
            FrozenRow::Seen(before) => format!("Freeze at {}, after {}", at(*time), change(*before)),
            FrozenRow::Missing(_) => format!("Freeze at {}, and makes the row", at(*time)),
        },
        Action::Thaw { seen, at: time } => format!("Thaw at {}, after {}", at(*time), change(*seen)),
        other => format!("{other:?}"),
    }
}

/// What a holder knows of its lock.
pub(crate) fn state(holding: &Holding, attempts: &[Version]) -> String {
    let of_grant = |stamp| named(&Version { stamp, ..holding.newest }.text(), attempts);
    let pending = match holding.pending {
        None => String::new(),
        Some(PendingCommit::Sent(stamp)) => format!(", commit pending as {}", of_grant(stamp)),
        Some(commit) => format!(", commit {commit:?}"),
    };
    let begin = Instants { monotonic: Duration::ZERO, wall: Duration::from_millis(BEGIN) };
    let (lease, ends, relied) =
        (holding.lease.text(), at(holding.ends_at_ms), holding.validity.remaining(begin).as_millis());
    let (newest, seen) = (of_grant(holding.newest.stamp), of_grant(holding.seen));
    let seen = if newest == seen { String::new() } else { format!(", seen {seen}") };
    format!("lease {lease}, ends {ends}, relies on {relied} ms, newest {newest}{seen}{pending}")
}

/// What a grant writes beside the lock.
fn grant_said(grant: &NewGrant) -> String {
    let work = grant.once.as_ref().map_or(String::new(), |once| {
        let (payload, anew) = (once.payload.is_some(), if once.anew { ", anew" } else { "" });
        let payload = if payload { ", with its payload's hash" } else { "" };
        format!(", for work{}{payload}{anew}", kept(Some(once.keep)))
    });
    let attributes = match &grant.attributes {
        AttributesChange::Keep => ", keeps the attributes",
        AttributesChange::Replace(given) if given.is_empty() => "",
        AttributesChange::Replace(_) => ", with attributes",
    };
    let workflow = grant.workflow.as_ref().map_or(String::new(), |workflow| format!(", of {workflow}"));
    workflow + &work + data_said(&grant.data) + attributes
}

fn data_said(data: &DataChange) -> &'static str {
    match data {
        DataChange::Keep => "",
        DataChange::Set(_) => ", with data",
        DataChange::Remove => ", removes the data",
    }
}

fn kept(keep: Option<Duration>) -> String {
    keep.map_or(String::new(), |keep| format!(", kept for {} s", keep.as_secs()))
}

/// The time of a freeze or thaw.
fn change(time: Option<u64>) -> String {
    time.map_or("none".to_owned(), at)
}

fn token_said(token: NextToken) -> String {
    match token {
        NextToken::FromRow => String::new(),
        NextToken::Exactly(token) if token > BEGIN / 2 => format!(", token {}", at(token)),
        NextToken::Exactly(token) => format!(", token {token}"),
        NextToken::Larger(token) if token > BEGIN / 2 => format!(", larger token {}", at(token)),
        NextToken::Larger(token) => format!(", larger token {token}"),
    }
}

fn scoped(scope: &Scope, attempts: &[Version]) -> String {
    match scope {
        Scope::Mine { up_to, token } => {
            let token = token.map_or("any token".to_owned(), |token| format!("token {token}"));
            format!("all up to {} ({token})", named(&up_to.text(), attempts))
        }
        Scope::Exactly { version, workflow } => {
            let of = workflow.as_ref().map_or(String::new(), |workflow| format!(" of {workflow}"));
            format!("exactly {}{of}", named(version, attempts))
        }
    }
}
