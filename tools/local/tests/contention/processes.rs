//! The demo's worker processes. Each one acquires the lock, reads the counter, writes it plus one, and
//! releases the lock.

use crate::accidents::Accidents;
use crate::stage::Stage;
use lambda_lock_testkit::soon;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use std::process::Stdio;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::sync::mpsc;

pub(crate) const PROCESSES: u64 = 5;
/// How often each process adds one before holders are paused.
pub(crate) const ROUNDS: u64 = 10;
/// How many holders are paused, one after another.
pub(crate) const PAUSES: u64 = 3;
/// One of this many requests has each kind of accident.
const RARE: usize = 40;
/// Twice the lease of the workers.
const LATEST: Duration = Duration::from_millis(2400);

/// The result of a run.
pub(crate) struct Run {
    /// How many increments were applied, as the workers report.
    pub(crate) told: u64,
    /// How many of them were applied after one with a larger token.
    pub(crate) overwritten: u64,
    /// How many reads and writes were refused.
    pub(crate) refused: u64,
    /// How many of them were refused while the guard relied on the lock.
    pub(crate) refused_while_held: u64,
    /// The value of the counter at the end.
    pub(crate) counted: u64,
    pub(crate) accidents: Accidents,
}

/// All workers contend. Then holders are stopped right before their write, one after another, until all
/// others have added one.
pub(crate) async fn contend(options: &[&str]) -> Run {
    let accidents = Accidents::new(RARE, LATEST);
    let stage = Stage::new(Some(&accidents)).await;
    let mut crew = Crew::start(stage.proxy.endpoint(), &[options; PROCESSES as usize]);
    let all: Vec<_> = (0..PROCESSES as usize).collect();
    crew.work(&all, ROUNDS).await;
    for paused in 0..PAUSES as usize {
        crew.tell(paused, json!({ "order": "work_and_pause" })).await;
        let token = crew.until(paused, "about_to_write").await["token"].as_u64().unwrap();
        crew.signal(paused, Signal::STOP);
        // The worker reads this order when it is continued. The write is then its next step.
        crew.tell(paused, json!({ "order": "write" })).await;
        let others: Vec<_> = all.iter().copied().filter(|other| *other != paused).collect();
        crew.work(&others, 1).await;
        assert!(crew.newest > token, "no worker wrote with a larger token; {accidents}");
        crew.signal(paused, Signal::CONT);
        crew.until(paused, "finished").await;
    }
    // Waits until late requests have arrived.
    tokio::time::sleep(LATEST).await;
    let Crew { told, overwritten, refused, refused_while_held, .. } = crew;
    Run { told, overwritten, refused, refused_while_held, counted: stage.count("the counter").await, accidents }
}

/// The first of two workers is stopped right before its write. It is continued when the next holder has read the counter, and
/// has not written it yet. Returns how many writes were applied, as the workers report, how many were refused, and the value of
/// the counter.
pub(crate) async fn a_write_between_the_read_and_the_write_of_the_next_holder() -> [u64; 3] {
    let stage = Stage::new(None).await;
    let mut crew = Crew::start(stage.proxy.endpoint(), &[&[], &[]]);
    for worker in [0, 1] {
        crew.tell(worker, json!({ "order": "work_and_pause" })).await;
        crew.until(worker, "about_to_write").await;
        if worker == 0 {
            crew.signal(worker, Signal::STOP);
        }
    }
    crew.tell(0, json!({ "order": "write" })).await;
    crew.signal(0, Signal::CONT);
    while crew.told + crew.refused == 0 {
        crew.hear().await;
    }
    crew.tell(1, json!({ "order": "write" })).await;
    crew.until_all_finished(&[0, 1]).await;
    [crew.told, crew.refused, stage.count("the counter").await]
}

/// The first of two workers has a wall clock that is this many seconds behind, and the other one a right clock. The
/// second one asks for the lock while the first one is about to write. Returns how many writes were applied, and how
/// many were refused while the writer relied on the lock.
pub(crate) async fn contend_with_a_clock_behind(seconds: &str) -> (u64, u64) {
    let stage = Stage::new(None).await;
    let mut crew = Crew::start(stage.proxy.endpoint(), &[&["--clock-behind", seconds], &[]]);
    crew.tell(0, json!({ "order": "work_and_pause" })).await;
    crew.until(0, "about_to_write").await;
    crew.tell(1, json!({ "order": "work", "rounds": 1 })).await;
    // If the second worker were granted the lock, the fourth request would be its release.
    for _ in 0..4 {
        crew.until(1, "sent").await;
    }
    crew.tell(0, json!({ "order": "write" })).await;
    crew.until_all_finished(&[0, 1]).await;
    (stage.count("the counter").await, crew.refused_while_held)
}

/// The processes, and what they have reported. Dropping them kills them.
struct Crew {
    workers: Vec<Worker>,
    said: mpsc::UnboundedReceiver<(usize, String)>,
    told: u64,
    overwritten: u64,
    refused: u64,
    /// How many of them were refused while the guard relied on the lock.
    refused_while_held: u64,
    /// The largest token that has written.
    newest: u64,
}

struct Worker {
    process: Child,
    orders: ChildStdin,
}

impl Crew {
    /// Starts a worker for each of these sets of options.
    fn start(endpoint: &str, options: &[&[&str]]) -> Self {
        let (hear, said) = mpsc::unbounded_channel();
        let workers = options.iter().enumerate();
        let workers = workers.map(|(number, options)| Worker::start(number, endpoint, options, hear.clone()));
        Self { workers: workers.collect(), said, told: 0, overwritten: 0, refused: 0, refused_while_held: 0, newest: 0 }
    }

    /// Lets each of these workers add one this many times, and waits until they have.
    async fn work(&mut self, workers: &[usize], rounds: u64) {
        for worker in workers {
            self.tell(*worker, json!({ "order": "work", "rounds": rounds })).await;
        }
        self.until_all_finished(workers).await;
    }

    async fn until_all_finished(&mut self, workers: &[usize]) {
        let mut busy = workers.to_vec();
        while !busy.is_empty() {
            let (who, event) = self.hear().await;
            busy.retain(|worker| *worker != who || event["event"] != "finished");
        }
    }

    async fn tell(&mut self, worker: usize, order: Value) {
        self.workers[worker].orders.write_all(format!("{order}\n").as_bytes()).await.unwrap();
    }

    /// Waits for this event of this worker and returns it.
    async fn until(&mut self, worker: usize, what: &str) -> Value {
        loop {
            let (who, event) = self.hear().await;
            if who == worker && event["event"] == what {
                return event;
            }
        }
    }

    async fn hear(&mut self) -> (usize, Value) {
        let said = soon("a worker reports something", self.said.recv()).await;
        let (who, line) = said.expect("all workers are gone");
        let event: Value = serde_json::from_str(&line).unwrap_or_else(|error| panic!("{who}: {line}: {error}"));
        match event["event"].as_str().unwrap() {
            "applied" => {
                let token = event["token"].as_u64().unwrap();
                self.told += 1;
                self.overwritten += u64::from(token < self.newest);
                self.newest = self.newest.max(token);
            }
            "refused" => {
                self.refused += 1;
                let left: Duration = serde_json::from_value(event["lease_left"].clone()).unwrap();
                self.refused_while_held += u64::from(!left.is_zero());
            }
            "failed" => panic!("worker {who} cannot go on: {}", event["why"]),
            _ => {}
        }
        (who, event)
    }

    fn signal(&self, worker: usize, signal: Signal) {
        let pid = self.workers[worker].process.id().and_then(|pid| Pid::from_raw(pid.cast_signed())).unwrap();
        kill_process(pid, signal).unwrap();
    }
}

impl Worker {
    fn start(number: usize, endpoint: &str, options: &[&str], hear: mpsc::UnboundedSender<(usize, String)>) -> Self {
        let mut process = Command::new(env!("CARGO_BIN_EXE_lambda-lock-local"))
            .args(["worker", "--endpoint", endpoint, "--name", &format!("worker-{number}")])
            .args(options)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let orders = process.stdin.take().unwrap();
        tokio::spawn(listen(number, process.stdout.take().unwrap(), hear));
        Self { process, orders }
    }
}

async fn listen(number: usize, events: ChildStdout, hear: mpsc::UnboundedSender<(usize, String)>) {
    let mut lines = BufReader::new(events).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        // The receiver is gone when the test has ended.
        let _ = hear.send((number, line));
    }
}
