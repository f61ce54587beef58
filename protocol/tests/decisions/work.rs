//! Idempotent work: what its record says, and when it is granted again.

use crate::Case;
use crate::acquiring::{ended, options, says};
use crate::row::{Row, Wrote};
use crate::script::{BEGIN, Says, Script};
use Says::{Applied, AppliedTo, Denied, Is, NoResponse, NoRow, Refused, RefusedWithoutRow, Throttled};
use lambda_lock_protocol::once::{Started, peek_once, start};
use lambda_lock_protocol::{ClockBounds, OnceRecord, Settings};
use std::time::Duration;

fn told(record: &OnceRecord) -> String {
    let outcome = record.settled.as_ref().map_or("open".to_owned(), |(outcome, _)| outcome.state().to_owned());
    let kept = i128::from(record.kept_until) - i128::from(BEGIN);
    format!("attempt {}, {outcome}, counts until {kept:+}", record.attempts)
}

/// Work with a payload, whose record counts for a minute after its lease.
fn starts() -> Vec<Case> {
    let with = |name, settings: Settings, payload: Option<&str>, script: Script| {
        let payload = payload.map(str::to_owned);
        let started =
            async |port: &mut Script| start(port, &settings, options(), payload, Duration::from_secs(60)).await;
        script.run(name, started, |end, attempts| match end {
            Ok(Started::Lock(acquired, record)) => {
                let record = record.as_ref().map_or("without a record".to_owned(), told);
                format!("{}; {record}", ended(&acquired, attempts))
            }
            Ok(Started::Settled(record)) => format!("settled: {}", told(&record)),
            Ok(Started::Mismatch(record)) => format!("of another payload: {}", told(&record)),
            Err(failure) => format!("{failure:?}"),
        })
    };
    let of = |name, script| with(name, Settings::default(), Some("hash"), script);
    let without_payload = |name, script| with(name, Settings::default(), None, script);
    let no_skew = || Settings { clock_bounds: ClockBounds::default().with_max_clock_skew(None), ..Settings::default() };
    let held = |kept| Row::held().work(kept).text("payloadHash", "hash");
    let free = |kept| held(kept).released();
    let done = |kept| held(kept).settled("done");
    let other = |row: Row| row.text("payloadHash", "another");
    let own = || Row::by(Wrote::Attempt(1)).owner("me").token(8).work(80_000).text("payloadHash", "hash");
    vec![
        of("work that is new", says([Applied])),
        without_payload("work without a payload", says([Applied])),
        of("work that is done", says([Refused(done(60_000))])),
        of("work that failed for good", says([Refused(held(60_000).settled("failed"))])),
        of("work for another payload", says([Refused(other(held(60_000)))])),
        of("work that is done for another payload", says([Refused(other(done(60_000)))])),
        without_payload("work whose payload is not given", says([Refused(other(done(60_000)))])),
        of("work whose payload was never given", says([Refused(done(60_000).without("payloadHash"))])),
        of("work under way", says([Refused(held(60_000))])),
        of("work under way, of a dead holder", says([Refused(held(60_000).dead()), Applied])),
        of("work that was released", says([Refused(free(60_000)), Applied])),
        of("work that was released, and counts until now", says([Refused(free(5)), Applied])),
        of("work that was released, and counts for the skew of clocks only", says([Refused(free(4)), Applied])),
        of("work that was released, and no longer counts", says([Refused(free(-1_996)), Applied])),
        of("work that is done, and counts for the skew of clocks only", says([Refused(done(-1_995))])),
        of("work that is done, and no longer counts", says([Refused(done(-1_996)), Applied])),
        with(
            "work that no longer counts, where no skew is set",
            no_skew(),
            Some("hash"),
            says([Refused(done(-1_996)), Applied]),
        ),
        with("work that still counts, where no skew is set", no_skew(), Some("hash"), says([Refused(done(-1_995))])),
        of("work for another payload, which no longer counts", says([Refused(other(done(-9_000))), Applied])),
        of("work that no longer counts, and is held", says([Refused(held(-9_000))])),
        of("work that no longer counts, of a dead holder", says([Refused(held(-9_000).dead()), Applied])),
        of(
            "work that no longer counts, and then was claimed anew",
            says([Refused(free(-9_000)), Refused(Row::by(Wrote::Theirs(50)).work(60_000))]),
        ),
        of(
            "work that no longer counts, and whose row is deleted then",
            says([Refused(free(-9_000)), RefusedWithoutRow, Applied]),
        ),
        of("a lock that is no work", says([Refused(Row::held())])),
        of("work with an outcome of an unknown kind", says([Refused(held(60_000).settled("perhaps"))])),
        of(
            "work with the TTL attribute of other clients",
            says([Refused(free(60_000).text("ttlAttribute", "purgeAt"))]),
        ),
        of(
            "work that is over, with the TTL attribute of other clients",
            says([Refused(done(-9_000).text("ttlAttribute", "purgeAt"))]),
        ),
        of("work without a response, which was granted", says([NoResponse, Is(own())])),
        of("work without a response, and it is done", says([NoResponse, Is(done(60_000))])),
        of("work without a response, and it is under way", says([NoResponse, Is(held(60_000)), Applied])),
        of("work that is granted in a row that is no work", says([AppliedTo(own().without("attempts")), Applied])),
        of("work that is denied", says([Denied])),
        of("work whose row is gone", says([Refused(held(60_000).dead()), RefusedWithoutRow, Applied])),
    ]
}

fn looks() -> Vec<Case> {
    let of = |name, script: Script| {
        let settings = Settings::default();
        let seen = async |port: &mut Script| peek_once(port, &settings, &"k".into()).await;
        script.run(name, seen, |end, _| match end {
            Ok(record) => record.as_ref().map_or("none".to_owned(), told),
            Err(failure) => format!("{failure:?}"),
        })
    };
    vec![
        of("a look at work under way", says([Is(Row::held().work(60_000))])),
        of("a look at work that is done", says([Throttled, Is(Row::held().work(60_000).settled("done"))])),
        of("a look at work that was never requested", says([NoRow])),
        of("a look at a lock that is no work", says([Is(Row::held())])),
    ]
}

pub(crate) fn cases() -> Vec<Case> {
    [starts(), looks()].concat()
}
