//! Many contenders for one key: the time of a hand-over, the number of requests, and their order.

use super::client::Client::{self, Go, Java, Ours};
use super::client::LOCKS;
use super::drivers::Drivers;
use crate::Error;
use crate::turns::{HandOver, Turn, hand_overs, most_passed};
use lambda_lock_local::CountingProxy;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::fmt;
use std::iter::repeat_n;
use std::time::Duration;

pub(crate) const CONTENDERS: [u32; 6] = [1, 2, 4, 8, 16, 32];
/// The work of each contender while it holds the lock.
pub(crate) const WORK_MILLIS: [u64; 2] = [0, 50];
pub(crate) const ROUNDS: u32 = 10;
/// Bursts: this many callers arrive at once, for one turn each.
pub(crate) const CALLERS: [u32; 2] = [8, 32];
pub(crate) const BURST_WORK_MILLIS: [u64; 3] = [0, 50, 500];
pub(crate) const BURST_CLIENTS: [Client; 3] = [Ours, Java, Go];
/// Those with an order: which of them come first after a release is measured for these.
pub(crate) const ORDERED: [(Client, Waiting); 4] =
    [(Ours, Waiting::Default), (Ours, Waiting::InTurn), (Java, Waiting::Default), (Go, Waiting::Default)];
/// With more contenders, a client that sleeps for a second takes half a minute.
const FEW: u32 = 8;
/// How often our loops without work are played in each repetition. They end with the last sleep of one caller, so that one of
/// them takes up to five times as long as another.
pub(crate) const PLAYS: usize = 8;
/// Long enough that no lease ends and no caller gives up.
const LEASE: Duration = Duration::from_secs(20);
const WAIT: Duration = Duration::from_secs(3600);

/// The number of contenders, and of turns that each takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Scene {
    pub(crate) client: Client,
    pub(crate) contenders: u32,
    #[serde(default = "rounds")]
    pub(crate) rounds: u32,
    pub(crate) work_millis: u64,
    #[serde(default)]
    pub(crate) waiting: Waiting,
}

/// How callers of lambda-lock wait. Other clients have one way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Waiting {
    #[default]
    Default,
    InTurn,
}

fn rounds() -> u32 {
    ROUNDS
}

/// The result of a scene.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Contended {
    #[serde(flatten)]
    pub(crate) scene: Scene,
    pub(crate) micros: u64,
    pub(crate) requests: u64,
    /// `None` in runs before it was measured, and of a client whose driver does not tell its turns.
    #[serde(default)]
    pub(crate) order: Option<Order>,
}

/// What the turns show.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Order {
    pub(crate) hand_over: HandOver,
    pub(crate) most_passed: u64,
    /// Requests that write: a write unit each, also when their condition fails.
    pub(crate) writes: u64,
    /// Consistent reads: a read unit each.
    pub(crate) reads: u64,
}

impl Scene {
    /// A scene as the client's defaults have it.
    pub(crate) fn new(client: Client, contenders: u32, rounds: u32, work_millis: u64) -> Self {
        Self { client, contenders, rounds, work_millis, waiting: Waiting::Default }
    }

    pub(crate) fn turns(&self) -> f64 {
        f64::from(self.contenders * self.rounds)
    }
}

impl fmt::Display for Scene {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { client, contenders, rounds, work_millis, waiting } = self;
        write!(f, "{client}: {contenders} contenders, {rounds} turns each, {work_millis} ms of work")?;
        f.write_str(if *waiting == Waiting::InTurn { ", in turn" } else { "" })
    }
}

impl Order {
    /// What the requests of a scene cost next to each other: a write five times as much as a read.
    pub(crate) fn price(&self) -> f64 {
        (5 * self.writes + self.reads) as f64
    }
}

impl Contended {
    /// Milliseconds for each turn, without the work.
    pub(crate) fn hand_over(&self) -> f64 {
        self.micros as f64 / 1e3 / self.scene.turns() - self.scene.work_millis as f64
    }

    pub(crate) fn requests_per_turn(&self) -> f64 {
        self.requests as f64 / self.scene.turns()
    }
}

/// All scenes with their repetitions, the clients one after the other. Scenes in which a client takes minutes because
/// it sleeps for a second are measured once.
pub(crate) fn plan(contenders: &[u32], repeats: u32) -> Vec<Scene> {
    let mut scenes = Vec::new();
    for repeat in 0..repeats {
        let again = |scene: &Scene| repeat == 0 || scene.client == Ours || scene.contenders <= FEW;
        for &contenders in contenders {
            for work_millis in WORK_MILLIS {
                let scene = |client| Scene::new(client, contenders, ROUNDS, work_millis);
                scenes.extend(LOCKS.map(scene).into_iter().filter(again));
                if work_millis == 0 && contenders <= FEW {
                    scenes.extend(repeat_n(scene(Ours), PLAYS - 1));
                }
                if CALLERS.contains(&contenders) {
                    scenes.push(Scene { waiting: Waiting::InTurn, ..scene(Ours) });
                }
            }
        }
        for contenders in CALLERS.into_iter().filter(|callers| contenders.contains(callers)) {
            for work_millis in BURST_WORK_MILLIS {
                let scene = |client| Scene::new(client, contenders, 1, work_millis);
                scenes.extend(BURST_CLIENTS.map(scene).into_iter().filter(again));
                scenes.push(Scene { waiting: Waiting::InTurn, ..scene(Ours) });
            }
        }
    }
    scenes
}

/// Plays a scene. `repeat` gives it a key of its own.
pub(crate) async fn measure(
    drivers: &Drivers,
    endpoint: &str,
    scene: Scene,
    repeat: usize,
) -> Result<Contended, Error> {
    let Scene { client, contenders, rounds, work_millis, waiting } = scene;
    let proxy = CountingProxy::start(endpoint).await?;
    let mut peer = drivers.start(client, proxy.endpoint(), LEASE).await?;
    // Warms up the process and its connection, so that only the contention counts.
    peer.measure("pairs", json!({ "keys": [format!("warm-{client}")], "count": 20 })).await?;
    let options = json!({
        "key": format!("contended-{client}-{contenders}-{rounds}-{work_millis}-{waiting:?}-{repeat}"),
        "contenders": contenders,
        "rounds": rounds,
        "workMillis": work_millis,
        "waitMillis": u64::try_from(WAIT.as_millis())?,
        "inTurn": waiting == Waiting::InTurn,
    });
    proxy.take();
    let told = peer.measure("contend", options).await?;
    if told["overlaps"] != 0 {
        return Err(format!("two contenders held a lock of {client} at once: {told}").into());
    }
    let micros = told["micros"].as_u64().ok_or("the driver tells no time")?;
    let counts = proxy.take();
    let of = |operation: &str| counts.requests.get(operation).copied().unwrap_or_default();
    let order = turns(&told["turns"]).map(|mut turns| Order {
        hand_over: HandOver::of(&hand_overs(&mut turns)),
        most_passed: most_passed(&mut turns) as u64,
        writes: of("UpdateItem") + of("PutItem"),
        reads: of("GetItem"),
    });
    Ok(Contended { scene, micros, requests: counts.total(), order })
}

/// Reads the turns that a driver tells.
fn turns(told: &Value) -> Option<Vec<Turn>> {
    let micros = |value: &Value| value.as_u64().map(Duration::from_micros);
    let turn = |turn: &Value| {
        Some(Turn { came: micros(&turn[0])?, granted: micros(&turn[1])?, released: micros(&turn[2])?, ticket: None })
    };
    told.as_array()?.iter().map(turn).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slow_scenes_of_other_clients_are_measured_once_and_all_of_ours_each_time() {
        let plan = plan(&CONTENDERS, 3);
        let times = |client, contenders, rounds, work_millis| {
            let scene = Scene::new(client, contenders, rounds, work_millis);
            plan.iter().filter(|planned| **planned == scene).count()
        };
        assert_eq!([8, 32].map(|contenders| times(Java, contenders, ROUNDS, 50)), [3, 1]);
        assert_eq!([8, 32].map(|contenders| times(Ours, contenders, ROUNDS, 50)), [3, 3]);
        assert_eq!([8, 32].map(|contenders| times(Ours, contenders, ROUNDS, 0)), [24, 3]);
        assert_eq!([8, 32].map(|contenders| times(Go, contenders, ROUNDS, 0)), [3, 1]);
        assert_eq!([8, 32].map(|callers| times(Ours, callers, 1, 500)), [3, 3]);
        assert_eq!([8, 32].map(|callers| times(Go, callers, 1, 500)), [3, 1]);
        let in_turn = Scene { waiting: Waiting::InTurn, ..Scene::new(Ours, 8, 1, 500) };
        assert_eq!(plan.iter().filter(|planned| **planned == in_turn).count(), 3);
    }

    #[test]
    fn the_turns_of_a_driver_are_read_or_missing() {
        let [came, granted, released] = [1, 2, 3].map(Duration::from_micros);
        assert_eq!(turns(&json!([[1, 2, 3]])), Some(vec![Turn { came, granted, released, ticket: None }]));
        assert_eq!([turns(&Value::Null), turns(&json!([[1, 2]]))], [None, None]);
    }

    #[test]
    fn a_run_with_one_number_of_contenders_has_no_bursts_of_others() {
        assert!(plan(&[2], 1).iter().all(|scene| scene.contenders == 2 && scene.rounds == ROUNDS));
    }
}
