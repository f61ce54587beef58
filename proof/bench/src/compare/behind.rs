//! Finds the figures in which our client is behind another by more than 5 %, so that no run can hide them. It adds the
//! reason where the code or a measurement shows it.

use super::client::Client::{self, BareSdk, Go, Java, Ours, Python};
use super::contention::{BURST_CLIENTS, BURST_WORK_MILLIS, CALLERS, CONTENDERS, WORK_MILLIS};
use super::results::Results;
use super::takeover::Arrival;
use crate::statistics::quantile;

/// Smaller differences do not count.
const MARGIN: f64 = 1.05;

const POLLS: &str = "a caller without a ticket looks again after 15 to 250 ms. The others poll after a \
     second. Five looks a second cost less than the function that waits for that second: [Takeover](#takeover)";
const LINE: &str = "a caller that waits in line sends four requests at least: the refused one, the one for its ticket, the grant and \
     the release. The rest are looks: nobody can call a caller, so it must ask. The others come once a second. Some find the lock \
     free, and it stands idle for about half a second at each hand-over ([Order](#order)). Out of turn our callers send fewer in \
     such loops, and pass each other: [Waiting in line](proof/bench/results/line.md)";
const DRIFT: &str =
    "lambda-lock waits 5 % longer than the lease, because clock rates may differ (`protocol/src/clock_bounds.rs`)";
const COLD: &str = "the known reasons: [proof/bench/cold-start](proof/bench/cold-start/README.md)";
const LINES: &str = "lambda-lock runs 2 % more instructions (callgrind), and its code and memory cover 1.05 \
     times the cache lines (valgrind's lackey, one pair). This costs time because other processes use the caches \
     between two requests";
const UNKNOWN: &str = "not explained";

/// A figure of ours that is larger than that of another client.
pub(crate) struct Behind {
    pub(crate) what: String,
    pub(crate) other: String,
    pub(crate) ratio: f64,
    pub(crate) why: &'static str,
}

/// All of these figures.
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
        found.compare("bytes of acquire and release", &name, bytes(Ours), bytes(other), UNKNOWN);
        let cpu = |client| Some(results.cpu_per_pair(client));
        let why = if other == BareSdk { LINES } else { UNKNOWN };
        found.compare("CPU of acquire and release", &name, cpu(Ours), cpu(other), why);
        for (fraction, what) in [(0.5, "median"), (0.9, "90 %"), (0.99, "99 %")] {
            let latency = |client: Client| Some(quantile(&results.latencies(client), fraction));
            let what = format!("latency of acquire and release, {what}");
            found.compare(&what, &name, latency(Ours), latency(other), why);
        }
    }
}

fn takeovers(results: &Results, found: &mut Found) {
    for other in [Java, Go, Python] {
        // A late caller neither waits nor reads first, so these reasons do not apply to it.
        for (arrival, name, time, requests) in
            [(Arrival::Late, "late", UNKNOWN, UNKNOWN), (Arrival::AtOnce, "at once", DRIFT, POLLS)]
        {
            let (ours, theirs) = (results.takeover(Ours, arrival), results.takeover(other, arrival));
            let other = other.to_string();
            found.compare(&format!("time of a takeover, {name}"), &other, Some(ours.0), Some(theirs.0), time);
            found.compare(&format!("requests of a takeover, {name}"), &other, Some(ours.1), Some(theirs.1), requests);
        }
    }
}

fn contention(results: &Results, found: &mut Found) {
    let mut compare = |what: String, other: Client, ours: Option<(f64, f64)>, theirs: Option<(f64, f64)>| {
        let (ours, theirs) = (ours.unzip(), theirs.unzip());
        found.compare(&format!("hand-over, {what}"), &other.to_string(), ours.0, theirs.0, UNKNOWN);
        found.compare(&format!("requests of a turn, {what}"), &other.to_string(), ours.1, theirs.1, LINE);
    };
    for other in [Java, Go, Python] {
        for (contenders, work) in CONTENDERS.iter().flat_map(|n| WORK_MILLIS.map(|work| (*n, work))) {
            let of = |client| results.contended(client, contenders, work);
            compare(format!("{contenders} contenders, {work} ms of work"), other, of(Ours), of(other));
        }
    }
    for other in BURST_CLIENTS.into_iter().filter(|client| *client != Ours) {
        for (callers, work) in CALLERS.iter().flat_map(|n| BURST_WORK_MILLIS.map(|work| (*n, work))) {
            let of = |client| results.burst(client, callers, work);
            compare(format!("a burst of {callers}, {work} ms of work"), other, of(Ours), of(other));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::takeover::Takeover;
    use super::*;

    fn takeover(client: Client, arrival: Arrival, micros: u64, requests: u64) -> Takeover {
        Takeover { client, arrival, micros, requests }
    }

    #[test]
    fn figures_more_than_five_percent_larger_are_found_with_only_the_reasons_that_apply() {
        let mut results = Results::none(String::new());
        results.takeovers = vec![
            takeover(Ours, Arrival::AtOnce, 3_150, 21),
            takeover(Go, Arrival::AtOnce, 2_999, 5),
            takeover(Java, Arrival::AtOnce, 3_001, 21),
            takeover(Ours, Arrival::Late, 20, 1),
            takeover(Go, Arrival::Late, 10, 5),
        ];
        let found: Vec<_> = of(&results).into_iter().map(|one| (one.what, one.other, one.why)).collect();
        let row = |what: &str, why| (what.to_owned(), "Go".to_owned(), why);
        let expected = [
            row("time of a takeover, late", UNKNOWN),
            row("time of a takeover, at once", DRIFT),
            row("requests of a takeover, at once", POLLS),
        ];
        assert_eq!(found, expected);
    }
}
