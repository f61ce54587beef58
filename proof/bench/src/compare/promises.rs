//! The ratios that this crate promises in comparison with the other clients, from one run.

use super::client::Client::{self, Go, Java, Ours};
use super::contention::{CALLERS, ROUNDS, Scene};
use super::results::Results;
use super::takeover::Arrival;

/// A ratio, and its maximum.
pub(crate) struct Promise {
    pub(crate) what: String,
    pub(crate) at_most: f64,
    pub(crate) ratio: f64,
}

impl Promise {
    pub(crate) fn is_kept(&self) -> bool {
        self.ratio <= self.at_most
    }
}

/// All promises for which this run has figures.
pub(crate) fn of(results: &Results) -> Vec<Promise> {
    let mut promises = Vec::new();
    let mut promise = |what: String, at_most: f64, ours: Option<f64>, theirs: Option<f64>| {
        if let (Some(ours), Some(theirs)) = (ours, theirs) {
            promises.push(Promise { what, at_most, ratio: ours / theirs });
        }
    };
    let acquire = |client| results.wire(client).map(|wire| wire.acquire.requests_each());
    let pair = |client| results.wire(client).map(|wire| wire.acquire.requests_each() + wire.release.requests_each());
    let late = |client| Some(results.takeover(client, Arrival::Late));
    let eight = |client, work| results.contended(client, 8, work);
    let price = |scene: Scene| results.of_order(scene, |order| order.price() / scene.turns());
    for other in [Java, Go] {
        promise(format!("requests of an acquire, next to {other}"), 0.5, acquire(Ours), acquire(other));
        promise(format!("requests of acquire and release, next to {other}"), 2.0 / 3.0, pair(Ours), pair(other));
        let requests = |client| late(client).map(|(_, requests)| requests);
        promise(format!("requests of a late takeover, next to {other}"), 0.2, requests(Ours), requests(other));
        let millis = |client| late(client).map(|(millis, _)| millis);
        promise(format!("time of a late takeover, next to {other}"), 0.2, millis(Ours), millis(other));
        let price = |client| price(Scene::new(client, 8, ROUNDS, 0));
        let what = format!("price of 8 contenders × {ROUNDS} rounds without work, next to {other}");
        promise(what, 1.2, price(Ours), price(other));
        let millis = |client: Client| eight(client, 0).map(|(hand_over, _)| hand_over);
        let what = format!("time of 8 contenders × {ROUNDS} rounds without work, next to {other}");
        promise(what, 0.1, millis(Ours), millis(other));
    }
    for (callers, other) in CALLERS.into_iter().flat_map(|callers| [(callers, Java), (callers, Go)]) {
        let burst = |client| Scene::new(client, callers, 1, 500);
        let what = format!("price of a turn, a burst of {callers} with 500 ms of work, next to {other}");
        promise(what, 1.6, price(burst(Ours)), price(burst(other)));
        let hand_over = |client| results.of_order(burst(client), |order| order.hand_over.median);
        let what = format!("hand-over, a burst of {callers} with 500 ms of work, next to {other}");
        promise(what, 0.2, hand_over(Ours), hand_over(other));
    }
    // The ideal: a single contender that never waits.
    let turn = |contenders| results.contended(Ours, contenders, 50).map(|(hand_over, _)| 50.0 + hand_over);
    promise("time of 8 contenders with 50 ms of work, next to one alone".to_owned(), 1.5, turn(8), turn(1));
    for work in [0, 50] {
        let of = |contenders| price(Scene::new(Ours, contenders, ROUNDS, work));
        let what = format!("price of a turn with {work} ms of work: 32 contenders, next to 2");
        promise(what, 3.0, of(32), of(2));
    }
    promises
}
