//! Acquires: what follows a response that is lost or says no.

use crate::Case;
use crate::row::{Row, Wrote, saved};
use crate::script::{BEGIN, Says, Script};
use crate::words::{at, state};
use Says::{
    Applied, AppliedTo, AppliedWithoutRow, Denied, Invalid, Is, NoResponse, NoRow, Refused, RefusedWithoutRow,
    Throttled,
};
use lambda_lock_protocol::{
    AcquireOptions, Acquired, AttributesChange, DataChange, HolderSeen, Observation, PendingCommit, Queueing, Reclaim,
    Settings, Version, acquire,
};
use serde_json::json;
use std::time::Duration;

pub(crate) fn options() -> AcquireOptions {
    AcquireOptions {
        key: "k".into(),
        owner: "me".to_owned(),
        workflow: None,
        data: DataChange::Keep,
        attributes: AttributesChange::default(),
        reclaim: Reclaim::Nobody,
        queueing: Queueing::default(),
        observation: None,
        commit: None,
    }
}

pub(crate) fn with_reclaim(reclaim: Reclaim) -> AcquireOptions {
    AcquireOptions { reclaim, ..options() }
}

/// A caller that has saved a lock.
pub(crate) fn resumes() -> AcquireOptions {
    with_reclaim(Reclaim::Only(saved(0)))
}

pub(crate) fn with_queueing(queueing: Queueing) -> AcquireOptions {
    AcquireOptions { queueing, ..options() }
}

/// A caller that brings a ticket from an earlier call, with an observation of the row.
pub(crate) fn with_ticket(ticket: u64) -> AcquireOptions {
    let seen = Observation::from_parts("another version".to_owned(), Duration::from_secs(20), Duration::ZERO);
    AcquireOptions { observation: Some(seen.with_ticket(Some(ticket))), ..with_queueing(Queueing::BetweenCalls) }
}

/// A caller that brings the last ticket of eight from an earlier call. That call had left the free lock of this version to those
/// ahead, behind the ticket 5, and so many before it had lost the lock to others.
pub(crate) fn has_lost(turns: u32, version: &str) -> AcquireOptions {
    let seen = json!({ "version": version, "leaseMillis": 20_000, "unchangedForMillis": 0, "ticket": 8,
        "turns": { "served": 5, "left": true, "lost": turns } });
    AcquireOptions { observation: Some(serde_json::from_value(seen).unwrap()), ..with_ticket(8) }
}

/// A caller that brings an observation of this row.
pub(crate) fn has_observed(row: &Row, millis: u64) -> AcquireOptions {
    let seen = Observation::from_parts(row.version(&[]), Duration::from_secs(20), Duration::from_millis(millis));
    AcquireOptions { observation: Some(seen), ..options() }
}

pub(crate) fn ended(acquired: &Acquired, attempts: &[Version]) -> String {
    match acquired {
        Acquired::Granted { holding, renew_first, .. } => {
            let first = if *renew_first { ", to renew first" } else { "" };
            format!("granted{first} with token {}: {}", holding.token, state(holding, attempts))
        }
        Acquired::Held(seen) => held(seen),
    }
}

pub(crate) fn held(seen: &HolderSeen) -> String {
    let mut more = String::new();
    if seen.left_to_line {
        more += ", left to the line";
    }
    if let Some(reason) = &seen.freeze_reason {
        more += &format!(", frozen for {reason:?}");
    }
    if let Some(ticket) = seen.observation.ticket() {
        more += &format!(", ticket {ticket}");
    }
    if !seen.attributes.is_empty() {
        more += &format!(", has {:?}", seen.attributes);
    }
    let ends = seen.ends_at_ms.map_or(String::new(), |ends| format!(", ends {}", at(ends)));
    let (retry, unchanged) = (seen.retry_after.as_millis(), seen.observation.unchanged_for().as_millis());
    let (owner, waiting) = (&seen.owner, seen.waiting);
    format!("held by {owner:?}{ends}, retry after {retry} ms, {waiting} wait, unchanged for {unchanged} ms{more}")
}

pub(crate) fn of(name: &'static str, options: AcquireOptions, script: Script) -> Case {
    with(name, Settings::default(), options, script)
}

pub(crate) fn with(name: &'static str, settings: Settings, options: AcquireOptions, script: Script) -> Case {
    script.run(
        name,
        async |port| acquire(port, &settings, options).await,
        |end, attempts| match end {
            Ok(acquired) => ended(&acquired, attempts),
            Err(failure) => format!("{failure:?}"),
        },
    )
}

pub(crate) fn says(replies: impl IntoIterator<Item = Says>) -> Script {
    Script::new(replies)
}

/// What follows a response, or none.
pub(crate) fn cases() -> Vec<Case> {
    let own = Row::by(Wrote::Attempt(1)).owner("me").token(8);
    let commit = AcquireOptions { commit: Some(PendingCommit::Sent(saved(0).stamp)), ..resumes() };
    vec![
        of("no response, and the row shows this attempt", options(), says([NoResponse, Is(own.clone())])),
        of("no response, and there is no row", options(), says([NoResponse, NoRow, Applied])),
        of("no response, and another has it", options(), says([NoResponse, Is(Row::held()), Applied])),
        of(
            "no response, and the row shows this attempt, released since",
            options(),
            says([NoResponse, Is(own.clone().released()), Applied]),
        ),
        of(
            "no response twice, and the row shows the first attempt",
            options(),
            says([NoResponse, NoRow, NoResponse, Is(own.clone())]),
        ),
        of(
            "no response twice, and the row shows the second attempt",
            options(),
            says([NoResponse, NoRow, NoResponse, Is(Row::by(Wrote::Attempt(2)).owner("me").token(8))]),
        ),
        of("no response twice in one millisecond", options(), says([NoResponse, NoRow, Denied, Applied]).takes(0)),
        of(
            "no response to anything, until the time is over",
            options(),
            says([NoResponse, NoResponse, NoResponse, Applied]).time(40),
        ),
        of(
            "an attempt whose response was lost refuses the next one",
            options(),
            says([NoResponse, NoRow, Refused(own.clone())]),
        ),
        of(
            "an attempt whose response was lost refuses the next one, and was released since",
            options(),
            says([NoResponse, NoRow, Refused(own.clone().released()), Applied]),
        ),
        of("throttled once", options(), says([Throttled, Applied])),
        of("throttled until the time is over", options(), says([Throttled, Throttled]).time(50)),
        of("throttled, and then held", options(), says([Throttled, Refused(Row::held())])),
        of("throttled, and then without a response", options(), says([Throttled, NoResponse, NoRow, Applied])),
        of(
            "free, of a peer, and throttled until the time is over",
            options(),
            says([Refused(Row::by(Wrote::Peer).released()), Throttled]).time(30),
        ),
        of(
            "free, by a clock that is ahead, and throttled until the time is over",
            options(),
            says([Refused(Row::free().number("leaseEndsAt", BEGIN + 500)), Throttled]).time(30),
        ),
        of(
            "dead by observation, and throttled until the time is over",
            has_observed(&Row::held(), 60_000),
            says([Refused(Row::held()), Throttled]).time(30),
        ),
        of(
            "throttled until the time is over, after no response",
            options(),
            says([NoResponse, NoRow, Throttled, Applied]).time(30),
        ),
        of("no response, and the time is over", options(), says([NoResponse, Applied]).time(5)),
        of(
            "no response, and reads are throttled until the time is over",
            options(),
            says([NoResponse, Throttled, Applied]).time(20),
        ),
        of(
            "no response, and the row shows this attempt without its token",
            options(),
            says([NoResponse, Is(own.clone().without("fencingToken")), Applied]),
        ),
        of(
            "no response, and the row is no lock record",
            options(),
            says([NoResponse, Is(Row::held().text("leaseDuration", "soon")), Applied]),
        ),
        of(
            "no response, and this attempt is on a row that is no lock record",
            options(),
            says([NoResponse, Is(own.clone().text("leaseDuration", "soon")), Applied]),
        ),
        of(
            "no response, and this attempt is on a row whose token was below zero",
            options(),
            says([NoResponse, Is(own.clone().token(0)), Applied]),
        ),
        of(
            "no response, by a clock that writes later times",
            options(),
            says([NoResponse, Is(Row::held()), Applied]).writes_later(),
        ),
        of("invalid, and the row shows this attempt", options(), says([NoResponse, NoRow, Invalid, Is(own.clone())])),
        of("invalid, and another has it", options(), says([Invalid, Is(Row::held())])),
        of("invalid, and there is no row", options(), says([Invalid, NoRow])),
        of("denied", options(), says([Denied])),
        of("denied after no response", options(), says([NoResponse, NoRow, Denied, Applied])),
        of(
            "invalid after no response, and another has it",
            options(),
            says([NoResponse, NoRow, Invalid, Is(Row::held()), Applied]),
        ),
        of("a read that is denied after no response", options(), says([NoResponse, Denied, Applied])),
        of("refused without a row", options(), says([RefusedWithoutRow, Is(Row::held())])),
        of(
            "refused without a row, and reads are throttled until the time is over",
            options(),
            says([RefusedWithoutRow, Throttled]).time(40),
        ),
        of(
            "refused without a row, and reads have no response until the time is over",
            options(),
            says([RefusedWithoutRow, NoResponse]).time(40),
        ),
        of("a ticket whose row is gone", with_ticket(6), says([NoRow, Applied])),
        of(
            "a takeover that is refused without a row",
            options(),
            says([Refused(Row::held().dead()), RefusedWithoutRow, Applied]),
        ),
        of(
            "another was faster three times",
            options(),
            says([
                Refused(Row::free()),
                Refused(Row::by(Wrote::Theirs(500)).released()),
                Refused(Row::by(Wrote::Theirs(400)).released()),
                Applied,
            ]),
        ),
        of(
            "another was faster until the time is over",
            options(),
            says([Refused(Row::free()), Refused(Row::free())]).time(10),
        ),
        of(
            "another was faster, and then holds it when the time is over",
            options(),
            says([Refused(Row::free()), Refused(Row::held())]).time(10),
        ),
        of(
            "another was faster, and the first write that follows needs no time",
            options(),
            says([Refused(Row::free()), Applied]).time(5),
        ),
        of("a response that came late", options(), says([Applied]).takes(11_000)),
        of("a response without the row", options(), says([AppliedWithoutRow, Is(own.clone())])),
        of(
            "a response without the token",
            options(),
            says([AppliedTo(own.clone().without("fencingToken")), Is(own.clone())]),
        ),
        of(
            "a response without the row, which is another's by now",
            options(),
            says([AppliedWithoutRow, Is(Row::held()), Applied]),
        ),
        of(
            "a response with a row that is no lock record",
            options(),
            says([AppliedTo(own.clone().text("fencingToken", "8")), Applied]),
        ),
        of(
            "granted with a token that nothing can follow",
            options(),
            says([AppliedTo(own.clone().token(u64::MAX)), Applied]),
        ),
        of("granted in a row whose token was below zero", options(), says([AppliedTo(own.clone().token(0)), Applied])),
        of(
            "granted by a clock that is behind, but writes later times",
            options(),
            says([Applied]).writes_later().runs_behind(2_200),
        ),
        of("granted by a clock that is far behind", options(), says([Applied]).runs_behind(9_000)),
        of("granted by a clock that is behind as clocks may be", options(), says([Applied]).runs_behind(1_900)),
        of("a saved lock without a response, and the row shows this attempt", resumes(), says([NoResponse, Is(own)])),
        of(
            "a saved lock that is refused without a row, and is as it was saved",
            resumes(),
            says([RefusedWithoutRow, Is(Row::by(Wrote::Saved(0)).owner("me")), Applied]),
        ),
        of(
            "a saved lock that was renewed since, and whose reclaim is throttled until the time is over",
            resumes(),
            says([Refused(Row::by(Wrote::Saved(50))), Throttled]).time(30),
        ),
        of(
            "a lock of the same owner, whose reclaim is throttled until the time is over",
            with_reclaim(Reclaim::SameOwner),
            says([Refused(Row::held().owner("me")), Throttled]).time(30),
        ),
        of("a saved lock whose commit was the last write", commit.clone(), says([Applied])),
        of(
            "a saved lock that was renewed after its commit",
            commit.clone(),
            says([Refused(Row::by(Wrote::Saved(50))), Applied]),
        ),
        of(
            "a saved lock that its owner has acquired again after its commit",
            commit.clone(),
            says([Refused(Row::held().owner("me")), Applied]),
        ),
        of(
            "a saved lock whose commit was not applied",
            AcquireOptions {
                reclaim: Reclaim::Only(Version { stamp: saved(9).stamp, ..saved(0) }),
                commit: Some(PendingCommit::Sent(saved(20).stamp)),
                ..commit
            },
            says([Applied]),
        ),
    ]
}
