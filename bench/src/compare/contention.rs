//! Many contenders for one key: the time of a hand-over, and the number of requests.

use super::client::Client::{self, Go, Java, Ours};
use super::client::LOCKS;
use super::drivers::Drivers;
use crate::Error;
use lambda_lock_local::CountingProxy;
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::fmt;
use std::time::Duration;

pub(crate) const CONTENDERS: [u32; 6] = [1, 2, 4, 8, 16, 32];
/// The work of each contender while it holds the lock.
pub(crate) const WORK_MILLIS: [u64; 2] = [0, 50];
pub(crate) const ROUNDS: u32 = 10;
/// Bursts: this many callers arrive at once, for one turn each.
pub(crate) const CALLERS: [u32; 2] = [8, 32];
pub(crate) const BURST_WORK_MILLIS: [u64; 3] = [0, 50, 500];
pub(crate) const BURST_CLIENTS: [Client; 3] = [Ours, Java, Go];
/// With more contenders, a client that sleeps for a second takes half a minute.
const FEW: u32 = 8;
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
}

impl Scene {
    pub(crate) fn turns(&self) -> f64 {
        f64::from(self.contenders * self.rounds)
    }

    /// The approximate duration. A client that polls once a second serves one contender per second.
    pub(crate) fn expected(&self) -> Duration {
        let work = Duration::from_millis(self.work_millis);
        let (turns, start) = (self.contenders * self.rounds, Duration::from_millis(800));
        let seconds = Duration::from_secs(u64::from(self.contenders.saturating_sub(1)));
        start
            + match (self.client, self.rounds) {
                (Ours, 1) => turns * (work * 5 / 4 + Duration::from_millis(10)),
                (Ours, _) => turns * (work + Duration::from_millis(10)),
                (_, 1) => seconds,
                _ => seconds.max(turns * (work + Duration::from_millis(50)) * u32::from(self.work_millis > 0)),
            }
    }
}

impl fmt::Display for Scene {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { client, contenders, rounds, work_millis } = self;
        write!(f, "{client}: {contenders} contenders, {rounds} turns each, {work_millis} ms of work")
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
                let scene = |client| Scene { client, contenders, rounds: ROUNDS, work_millis };
                scenes.extend(LOCKS.map(scene).into_iter().filter(again));
            }
        }
        for contenders in CALLERS.into_iter().filter(|callers| contenders.contains(callers)) {
            for work_millis in BURST_WORK_MILLIS {
                let scene = |client| Scene { client, contenders, rounds: 1, work_millis };
                scenes.extend(BURST_CLIENTS.map(scene).into_iter().filter(again));
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
    let Scene { client, contenders, rounds, work_millis } = scene;
    let proxy = CountingProxy::start(endpoint).await?;
    let mut peer = drivers.start(client, proxy.endpoint(), LEASE).await?;
    // Warms up the process and its connection, so that only the contention counts.
    peer.measure("pairs", json!({ "keys": [format!("warm-{client}")], "count": 20 })).await?;
    proxy.take();
    let options = json!({
        "key": format!("contended-{client}-{contenders}-{rounds}-{work_millis}-{repeat}"),
        "contenders": contenders,
        "rounds": rounds,
        "workMillis": work_millis,
        "waitMillis": u64::try_from(WAIT.as_millis())?,
    });
    let told = peer.measure("contend", options).await?;
    if told["overlaps"] != 0 {
        return Err(format!("two contenders held a lock of {client} at once: {told}").into());
    }
    let micros = told["micros"].as_u64().ok_or("the driver tells no time")?;
    Ok(Contended { scene, micros, requests: proxy.take().total() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slow_scenes_of_other_clients_are_measured_once_and_all_of_ours_each_time() {
        let plan = plan(&CONTENDERS, 3);
        let times = |client, contenders, rounds, work_millis| {
            let scene = Scene { client, contenders, rounds, work_millis };
            plan.iter().filter(|planned| **planned == scene).count()
        };
        assert_eq!([8, 32].map(|contenders| times(Java, contenders, ROUNDS, 50)), [3, 1]);
        assert_eq!([8, 32].map(|contenders| times(Ours, contenders, ROUNDS, 50)), [3, 3]);
        assert_eq!([8, 32].map(|callers| times(Ours, callers, 1, 500)), [3, 3]);
        assert_eq!([8, 32].map(|callers| times(Go, callers, 1, 500)), [3, 1]);
    }

    #[test]
    fn a_run_with_one_number_of_contenders_has_no_bursts_of_others() {
        assert!(plan(&[2], 1).iter().all(|scene| scene.contenders == 2 && scene.rounds == ROUNDS));
    }
}
