//! The raw data of a run, and the figures computed from them.

use super::client::Client;
use super::cold_start::ColdStarts;
use super::contention::{Contended, Order, ROUNDS, Scene};
use super::machine::Machine;
use super::pairs::{self, Batch, Wire};
use super::takeover::{Arrival, Takeover};
use crate::statistics::{interval, quantile};
use serde::{Deserialize, Serialize};

/// All measurements of a run.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Results {
    /// From `date --utc`, to the minute.
    pub(crate) date: String,
    pub(crate) machine: Machine,
    /// Facts about this run that its figures do not show.
    #[serde(default)]
    pub(crate) notes: Vec<String>,
    /// The load before, between and after the parts.
    pub(crate) load: Vec<f64>,
    pub(crate) wire: Vec<Wire>,
    /// The number of locks that the batches used in turn.
    pub(crate) locks: u32,
    pub(crate) batches: Vec<Batch>,
    pub(crate) takeovers: Vec<Takeover>,
    pub(crate) contention: Vec<Contended>,
    pub(crate) cold_starts: Option<ColdStarts>,
}

impl Results {
    /// A run without any measurement.
    pub(crate) fn none(date: String) -> Self {
        Self {
            date,
            machine: Machine::here(),
            notes: Vec::new(),
            load: Vec::new(),
            wire: Vec::new(),
            locks: pairs::LOCKS,
            batches: Vec::new(),
            takeovers: Vec::new(),
            contention: Vec::new(),
            cold_starts: None,
        }
    }

    pub(crate) fn wire(&self, client: Client) -> Option<&Wire> {
        self.wire.iter().find(|wire| wire.client == client)
    }

    /// Microseconds of each pair of a client, sorted.
    pub(crate) fn latencies(&self, client: Client) -> Vec<f64> {
        let batches = self.batches.iter().filter(|batch| batch.client == client);
        sorted(batches.flat_map(|batch| {
            batch.acquire_micros.iter().zip(&batch.release_micros).map(|(acquire, release)| (acquire + release) as f64)
        }))
    }

    /// The number of processes of each client that ran the batches.
    pub(crate) fn processes(&self) -> u32 {
        self.batches.iter().map(|batch| batch.process + 1).max().unwrap_or_default()
    }

    /// Microseconds of CPU for a pair, over all processes.
    pub(crate) fn cpu_per_pair(&self, client: Client) -> f64 {
        mean((0..self.processes()).map(|process| self.cpu_in(process, client)))
    }

    /// The 95 % interval of the ratio of two clients' CPU for a pair. Processes that ran in the same turn are drawn
    /// together.
    pub(crate) fn cpu_interval(&self, client: Client, other: Client) -> (f64, f64) {
        let of = |process| (self.cpu_in(process, client), self.cpu_in(process, other));
        let processes: Vec<_> = (0..self.processes()).map(of).collect();
        interval(&processes, |drawn| mean(drawn.iter().map(|both| both.0)) / mean(drawn.iter().map(|both| both.1)))
    }

    /// The CPU of all batches of a process.
    fn cpu_in(&self, process: u32, client: Client) -> f64 {
        let batches = self.batches.iter().filter(|batch| (batch.process, batch.client) == (process, client));
        let (cpu, pairs) =
            batches.fold((0, 0), |(cpu, pairs), batch| (cpu + batch.cpu_micros, pairs + batch.acquire_micros.len()));
        cpu as f64 / pairs as f64
    }

    /// Milliseconds and requests of a takeover: medians.
    pub(crate) fn takeover(&self, client: Client, arrival: Arrival) -> (f64, f64) {
        let of = |takeover: &&Takeover| takeover.client == client && takeover.arrival == arrival;
        let millis = sorted(self.takeovers.iter().filter(of).map(|takeover| takeover.micros as f64 / 1e3));
        let requests = sorted(self.takeovers.iter().filter(of).map(|takeover| takeover.requests as f64));
        (quantile(&millis, 0.5), quantile(&requests, 0.5))
    }

    /// Milliseconds of a hand-over without the work, and requests for each turn: medians.
    pub(crate) fn contended(&self, client: Client, contenders: u32, work_millis: u64) -> Option<(f64, f64)> {
        self.scene(Scene::new(client, contenders, ROUNDS, work_millis))
    }

    /// The same for bursts, in which each caller takes one turn.
    pub(crate) fn burst(&self, client: Client, contenders: u32, work_millis: u64) -> Option<(f64, f64)> {
        self.scene(Scene::new(client, contenders, 1, work_millis))
    }

    /// The order in a scene, of each time it was measured.
    pub(crate) fn orders(&self, scene: Scene) -> Vec<Order> {
        self.contention.iter().filter(|one| one.scene == scene).filter_map(|one| one.order).collect()
    }

    /// A figure of the order in a scene: the median.
    pub(crate) fn of_order(&self, scene: Scene, figure: impl Fn(&Order) -> f64) -> Option<f64> {
        let figures = sorted(self.orders(scene).iter().map(figure));
        (!figures.is_empty()).then(|| quantile(&figures, 0.5))
    }

    pub(crate) fn scene(&self, scene: Scene) -> Option<(f64, f64)> {
        let of = |one: &&Contended| one.scene == scene;
        let hand_over = sorted(self.contention.iter().filter(of).map(Contended::hand_over));
        let requests = sorted(self.contention.iter().filter(of).map(Contended::requests_per_turn));
        (!hand_over.is_empty()).then(|| (quantile(&hand_over, 0.5), quantile(&requests, 0.5)))
    }
}

fn mean(figures: impl ExactSizeIterator<Item = f64>) -> f64 {
    let count = figures.len() as f64;
    figures.sum::<f64>() / count
}

fn sorted(figures: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut figures: Vec<f64> = figures.collect();
    figures.sort_by(f64::total_cmp);
    figures
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cpu_interval_depends_on_differences_of_processes_and_not_of_batches() {
        let batch = |process, client, cpu_micros| Batch {
            client,
            process,
            acquire_micros: vec![0; 10],
            release_micros: vec![0; 10],
            cpu_micros,
        };
        let mut results = Results::none(String::new());
        for process in 0..8 {
            for cpu_micros in [0, 2_000, 1_000] {
                results.batches.push(batch(process, Client::Go, cpu_micros));
                results.batches.push(batch(process, Client::Ours, cpu_micros / 2));
            }
        }
        assert_eq!((results.cpu_per_pair(Client::Ours), results.cpu_per_pair(Client::Go)), (50.0, 100.0));
        assert_eq!(results.cpu_interval(Client::Ours, Client::Go), (0.5, 0.5));
        results.batches[0].cpu_micros += 1_000;
        let (low, high) = results.cpu_interval(Client::Ours, Client::Go);
        assert!(low < high && high == 0.5, "{low} {high}");
    }
}
