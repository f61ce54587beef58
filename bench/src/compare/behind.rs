//! Where ours is behind anyone else by more than 5 %, and why: found by the figures, so that no run hides it.

use super::client::Client::{self, BareSdk, Go, Java, Ours, Python};
use super::contention::{BURST_CLIENTS, BURST_WORK_MILLIS, CALLERS, CONTENDERS, WORK_MILLIS};
use super::results::{Results, quantile};
use super::takeover::Arrival;

/// What is smaller does not count.
pub(crate) const MARGIN: f64 = 1.05;

const LOOKS: &str = "ours looks more often than once a second, and hands over sooner for it";
const DRIFT: &str = "ours waits 5 % longer than the lease, because clocks may run apart by that much";
const RELEASES: &str = "ours looks up to four times a second, because a holder may also release early";
const ENDS: &str = "the wait for the last contender counts: one look sooner or later";
const TAIL: &str = "of the slowest hundredth of calls, with any client, the machine is the reason more than the client";
const CPU: &str = "recognition of lost answers, both clocks, a span and the timeout of each request";
const COLD: &str = "what lock-task does beside its two requests: `bench/cold-start/README.md`";

/// One figure of ours that is larger than another's.
pub(crate) struct Behind {
    pub(crate) what: String,
    pub(crate) other: String,
    pub(crate) ratio: f64,
    pub(crate) why: &'static str,
}

/// All of them.
pub(crate) fn of(results: &Results) -> Vec<Behind> {
    let mut found = Found(Vec::new());
    pairs(results, &mut found);
    takeovers(results, &mut found);
    contention(results, &mut found);
    if let Some(measured) = &results.cold_starts {
        for row in &measured.comparisons {
            found.compare(&row.what, &row.other, Some(row.lock_task), Some(row.other_median), COLD);
        }
    }
    found.0
}

struct Found(Vec<Behind>);

impl Found {
    fn compare(&mut self, what: &str, other: &str, ours: Option<f64>, theirs: Option<f64>, why: &'static str) {
        if let (Some(ours), Some(theirs)) = (ours, theirs)
            && ours > theirs * MARGIN
        {
            self.0.push(Behind { what: what.to_owned(), other: other.to_owned(), ratio: ours / theirs, why });
        }
    }
}

fn pairs(results: &Results, found: &mut Found) {
    for other in [BareSdk, Java, Go, Python] {
        let name = other.to_string();
        let bytes = |client| results.wire(client).map(|wire| wire.acquire.bytes_each() + wire.release.bytes_each());
        found.compare("bytes of acquire and release", &name, bytes(Ours), bytes(other), "the row that a Claim returns");
        let cpu = |client| Some(results.cpu_per_pair(client));
        found.compare("CPU of acquire and release", &name, cpu(Ours), cpu(other), CPU);
        for (fraction, what, why) in [(0.5, "median", CPU), (0.9, "90 %", TAIL), (0.99, "99 %", TAIL)] {
            let latency = |client: Client| Some(quantile(&results.latencies(client).pair, fraction));
            let what = format!("latency of acquire and release, {what}");
            found.compare(&what, &name, latency(Ours), latency(other), why);
        }
    }
}

fn takeovers(results: &Results, found: &mut Found) {
    for other in [Java, Go, Python] {
        for (arrival, name) in [(Arrival::Late, "late"), (Arrival::AtOnce, "at once")] {
            let (ours, theirs) = (results.takeover(Ours, arrival), results.takeover(other, arrival));
            let other = other.to_string();
            found.compare(&format!("time of a takeover, {name}"), &other, Some(ours.0), Some(theirs.0), DRIFT);
            found.compare(&format!("requests of a takeover, {name}"), &other, Some(ours.1), Some(theirs.1), RELEASES);
        }
    }
}

fn contention(results: &Results, found: &mut Found) {
    let mut compare = |what: String, other: Client, ours: Option<(f64, f64)>, theirs: Option<(f64, f64)>| {
        let (ours, theirs) = (ours.unzip(), theirs.unzip());
        found.compare(&format!("time of {what}"), &other.to_string(), ours.0, theirs.0, ENDS);
        found.compare(&format!("requests of {what}"), &other.to_string(), ours.1, theirs.1, LOOKS);
    };
    for other in [Java, Go, Python] {
        for (contenders, work) in CONTENDERS.iter().flat_map(|n| WORK_MILLIS.map(|work| (*n, work))) {
            let of = |client| results.contended(client, contenders, work);
            compare(format!("a turn, {contenders} contenders, {work} ms of work"), other, of(Ours), of(other));
        }
    }
    for other in BURST_CLIENTS.into_iter().filter(|client| *client != Ours) {
        for (callers, work) in CALLERS.iter().flat_map(|n| BURST_WORK_MILLIS.map(|work| (*n, work))) {
            let of = |client| results.burst(client, callers, work);
            compare(format!("a turn in a burst of {callers}, {work} ms of work"), other, of(Ours), of(other));
        }
    }
}
