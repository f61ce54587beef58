//! Writes `BENCHMARKS.md` from the raw data of a run.

use super::behind;
use super::client::{ALL, Client, LOCKS};
use super::contention::{
    BURST_WORK_MILLIS, CALLERS, CONTENDERS, ORDERED, Order, PLAYS, ROUNDS, Scene, WORK_MILLIS, Waiting,
};
use super::promises;
use super::results::Results;
use super::takeover::{Arrival, LATE, LEASE};
use crate::statistics::quantile;
use std::fmt::Write;

/// The whole file. Every ratio is the figure of another client divided by ours, unless its heading says otherwise.
pub(crate) fn markdown(results: &Results) -> String {
    let mut text = String::new();
    let parts =
        [introduction, promised, behind, requests, latency, takeover, contention, burst, order, cold_start, noise];
    for part in parts {
        text.push_str(&part(results));
    }
    text
}

fn introduction(results: &Results) -> String {
    let machine = &results.machine;
    let mut text = format!(
        "# Benchmarks\n\n\
         Measured on {date} by one command, on one emulator, all clients in turns:\n\n\
         ```text\nproof/interop/build\ncargo run --profile bench -p lambda-lock-bench -- compare\n```\n\n\
         It writes this file and the raw data ([`proof/bench/results/raw.json`](proof/bench/results/raw.json)). CI runs \
         only a short form of it. Compare the ratios, not the times: the times are those of a \
         loopback connection to an embedded DynamoDB, not of AWS.\n\n\
         | what | version |\n|---|---|\n",
        date = results.date,
    );
    for client in ALL {
        let _ = writeln!(text, "| {client} | {} |", client.version());
    }
    let _ = writeln!(
        text,
        "| machine | {}, {} cores, {} |\n| compilers | {}; {}; {}; {} |\n",
        machine.cpu, machine.cores, machine.system, machine.rust, machine.java, machine.go, machine.python
    );
    text
}

fn promised(results: &Results) -> String {
    let mut text = "## Promises\n\n| ratio of ours | at most | measured | kept |\n|---|---|---|---|\n".to_owned();
    for promise in promises::of(results) {
        let kept = if promise.is_kept() { "yes" } else { "**no**" };
        let _ = writeln!(text, "| {} | {:.2} | {:.3} | {kept} |", promise.what, promise.at_most, promise.ratio);
    }
    text + "\n"
}

fn behind(results: &Results) -> String {
    let all = behind::of(results);
    if all.is_empty() {
        return "In no figure of this run is lambda-lock behind another client by more than 5 %.\n\n".to_owned();
    }
    let mut text = "### Where lambda-lock is behind by more than 5 %\n\n\
        | figure | next to | ours / theirs | why |\n|---|---|---|---|\n"
        .to_owned();
    for one in all {
        let _ = writeln!(text, "| {} | {} | {:.2} | {} |", one.what, one.other, one.ratio, one.why);
    }
    text + "\n"
}

fn requests(results: &Results) -> String {
    let mut text = "## Requests and bytes\n\n\
         The lock is free and its row exists. Bytes are those of requests and responses with headers, without TLS.\n\n\
         | client | acquire | release | acquire + release / ours | bytes of acquire | of release | both / ours |\n\
         |---|---|---|---|---|---|---|\n"
        .to_owned();
    let Some(ours) = results.wire(Client::Ours) else { return String::new() };
    let both = |wire: &super::pairs::Wire| wire.acquire.requests_each() + wire.release.requests_each();
    let bytes = |wire: &super::pairs::Wire| wire.acquire.bytes_each() + wire.release.bytes_each();
    for wire in &results.wire {
        let operations = |operation: &super::pairs::Operation| -> String {
            let each = operation
                .requests
                .iter()
                .map(|(name, count)| format!("{} {name}", count / operation.operations.max(1)));
            each.collect::<Vec<_>>().join(" + ")
        };
        let _ = writeln!(
            text,
            "| {} | {} | {} | {:.2} | {:.0} | {:.0} | {:.2} |",
            wire.client,
            operations(&wire.acquire),
            operations(&wire.release),
            both(wire) / both(ours),
            wire.acquire.bytes_each(),
            wire.release.bytes_each(),
            bytes(wire) / bytes(ours),
        );
    }
    text + "\n"
}

fn latency(results: &Results) -> String {
    let mut text = format!(
        "## Latency and CPU\n\n\
         Acquire and release of a free lock, one after the other, in {}. Each client uses {}. The clients take turns, \
         in a random order in each round. CPU is the user and system time of the client's process. Its ratios have a \
         95 % interval (a bootstrap over the processes). Milliseconds of the loopback connection are in brackets.\n\n\
         | client | pair, median / ours | 90 % / ours | 99 % / ours | CPU of a pair / ours |\n|---|---|---|---|---|\n",
        match results.processes() {
            1 => "a warm process".to_owned(),
            count => format!("warm processes, {count} of each client one after the other"),
        },
        if results.locks == 1 { "one lock".to_owned() } else { format!("{} locks", results.locks) },
    );
    let ours = results.latencies(Client::Ours);
    let our_cpu = results.cpu_per_pair(Client::Ours);
    for client in ALL {
        let pair = results.latencies(client);
        let _ = write!(text, "| {client} ");
        for fraction in [0.5, 0.9, 0.99] {
            let micros = quantile(&pair, fraction);
            let _ = write!(text, "| {:.2} ({:.2}) ", micros / quantile(&ours, fraction), micros / 1e3);
        }
        let cpu = results.cpu_per_pair(client);
        let interval = if client == Client::Ours {
            String::new()
        } else {
            let (low, high) = results.cpu_interval(client, Client::Ours);
            format!(", {low:.3} to {high:.3}")
        };
        let _ = writeln!(text, "| {:.3}{interval} ({:.2}) |", cpu / our_cpu, cpu / 1e3);
    }
    text + "\nA release writes an end of the lease at least a millisecond after the grant, so that a delayed copy of the \
            grant cannot be applied again. A caller that acquires the same lock more than a thousand times a second is \
            refused because of that end and needs a second request. No client on AWS is so fast. A client with one \
            lock on a loopback connection is, so the run uses many locks.\n\n"
}

fn takeover(results: &Results) -> String {
    let mut text = format!(
        "## Takeover\n\n\
         A holder with a lease of {LEASE:?} is killed. The next caller uses the same client. It comes late ({LATE:?} after \
         the kill, when the lease and the clock skew of 2 s are over), or at once. If it comes at once, it waits with \
         its library's defaults. The figures are medians. The seconds are those until it has the lock.\n\n\
         | client | late: seconds | requests | ours / it | at once: seconds | requests |\n|---|---|---|---|---|---|\n",
    );
    let ours = results.takeover(Client::Ours, Arrival::Late).0;
    for client in LOCKS {
        let late = results.takeover(client, Arrival::Late);
        let at_once = results.takeover(client, Arrival::AtOnce);
        let _ = writeln!(
            text,
            "| {client} | {:.3} | {:.0} | {:.4} | {:.2} | {:.0} |",
            late.0 / 1e3,
            late.1,
            ours / late.0,
            at_once.0 / 1e3,
            at_once.1
        );
    }
    text + "\nA caller that waits from the beginning must wait until the lease has ended, with every client. lambda-lock \
            waits 5 % longer, because clock rates may differ, and polls more often meanwhile. So it notices a release \
            sooner (see Contention, below). A poll is one read unit, \
            [$0.125 per million](https://aws.amazon.com/dynamodb/pricing/on-demand/) in `us-east-1`. That is as much as \
            60 ms of a function with 128 MB ([$16.67 per million GB-seconds](https://aws.amazon.com/lambda/pricing/)). \
            Five polls a second cost a third of what that function costs while it waits, and a fortieth of what one with \
            1,769 MB costs.\n\n"
}

fn contention(results: &Results) -> String {
    let mut text = format!(
        "## Contention\n\n\
         Each contender takes {ROUNDS} turns at one key, with its library's defaults. The other clients poll once a \
         second. The figures are medians: the time of a turn without the work in ms, and the requests of a turn. With \
         16 and more contenders the other clients are measured once. A loop of ours without work ends with the last \
         sleep of one caller, so one loop takes up to five times as long as another. With up to 8 contenders, each \
         repetition has {PLAYS} of them.\n"
    );
    for work in WORK_MILLIS {
        let _ = write!(text, "\n{work} ms of work in each turn:\n\n| contenders ");
        for client in LOCKS {
            let _ = write!(text, "| {client}: ms | requests ");
        }
        let _ = writeln!(text, "|\n|---{}|", "|---".repeat(2 * LOCKS.len()));
        for contenders in CONTENDERS {
            let _ = write!(text, "| {contenders} ");
            for client in LOCKS {
                match results.contended(client, contenders, work) {
                    Some((hand_over, requests)) => _ = write!(text, "| {hand_over:.1} | {requests:.2} "),
                    None => text.push_str("| – | – "),
                }
            }
            text.push_str("|\n");
        }
    }
    text + "\nThe caller that has just released is the first to try again, so one contender often takes several turns in \
            a row, with every client. Callers of lambda-lock wait in line where two looks show the same grant, and always if \
            they ask for it (see [Order](#order)). A turn takes two requests, and at least two more if it had to wait: the \
            one that was refused, and a look.\n\n"
}

fn burst(results: &Results) -> String {
    let scenes = CALLERS.iter().flat_map(|callers| BURST_WORK_MILLIS.map(|work| (*callers, work)));
    ordered(
        results,
        scenes.flat_map(|(callers, work)| in_each_way(callers, 1, work)),
        "## Bursts\n\n\
         All callers arrive at once, as if one event had started them, and take one turn each.\n\n",
    )
}

/// A scene with each client, and with each way in which ours can wait.
fn in_each_way(callers: u32, rounds: u32, work: u64) -> [Scene; 4] {
    ORDERED.map(|(client, waiting)| Scene { waiting, ..Scene::new(client, callers, rounds, work) })
}

fn order(results: &Results) -> String {
    let scenes = CALLERS.iter().flat_map(|callers| WORK_MILLIS.map(|work| (*callers, work)));
    ordered(
        results,
        scenes.flat_map(|(callers, work)| in_each_way(callers, ROUNDS, work)),
        &format!(
            "## Order\n\n\
             {ROUNDS} turns of each caller, as in [Contention](#contention). Whoever has released is the first to ask again, so \
             others are passed, unless they wait in line.\n\n"
        ),
    )
}

/// A table of scenes with the order of their turns.
fn ordered(results: &Results, scenes: impl Iterator<Item = Scene>, heading: &str) -> String {
    let mut rows = String::new();
    for scene in scenes {
        let orders = results.orders(scene);
        let (Some((_, requests)), false) = (results.scene(scene), orders.is_empty()) else { continue };
        let middle = |figure: fn(&Order) -> f64| results.of_order(scene, figure).unwrap_or_default();
        let way = if scene.waiting == Waiting::InTurn { ", in turn" } else { "" };
        let most_passed = orders.iter().map(|order| order.most_passed).max().unwrap_or_default();
        let _ = writeln!(
            rows,
            "| {} | {} ms | {}{way} | {requests:.2} | {:.2} | {:.2} | {:.0} | {:.0} | {most_passed} |",
            scene.contenders,
            scene.work_millis,
            scene.client,
            middle(|order| order.writes as f64) / scene.turns(),
            middle(|order| order.reads as f64) / scene.turns(),
            middle(|order| order.hand_over.median),
            middle(|order| order.hand_over.most),
        );
    }
    if rows.is_empty() {
        return String::new();
    }
    format!(
        "{heading}The hand-over is the time from a release to the next grant in ms, while somebody waits. Writes and reads are \
         those of a turn: a write is one write unit, a read one read unit. *Most passed*: how often the caller that was passed \
         most often was passed by those who came at least 20 ms later, in the worst repetition. Otherwise the figures are \
         medians of the repetitions.\n\n\
         | callers | work | client | requests | writes | reads | hand-over, median | 99 % | most passed |\n\
         |---:|---:|---|---:|---:|---:|---:|---:|---:|\n{rows}\n"
    )
}

fn cold_start(results: &Results) -> String {
    let Some(measured) = &results.cold_starts else {
        return "## Cold start\n\nNot measured in this run.\n\n".to_owned();
    };
    let mut text = format!(
        "## Cold start, memory, size\n\n\
         {} cold starts of each function, in turns. [`proof/bench/cold-start`](proof/bench/cold-start/README.md) describes the \
         measurement, and has the newest figures. `lock-task` is built as the template builds it, and linked statically \
         with musl. The two bare functions have no lock: `bare-lean` is configured and linked like `lock-task`, and \
         `bare-defaults` has all defaults, including the GNU C library.\n\n\
         | what | next to | lock-task | the other | the other / lock-task |\n|---|---|---|---|---|\n",
        measured.starts
    );
    for row in &measured.comparisons {
        let unit = row.unit.trim();
        let (ours, theirs) = (row.lock_task, row.other_median);
        let _ = writeln!(
            text,
            "| {} | {} | {ours:.2} {unit} | {theirs:.2} {unit} | {:.2} |",
            row.what,
            row.other,
            1.0 / row.ratio
        );
    }
    let bytes =
        |function: &str| measured.binaries.iter().find(|binary| binary.function == function).map(|one| one.bytes);
    for binary in &measured.binaries {
        if let Some(ours) = bytes("lock-task") {
            let _ = writeln!(
                text,
                "| size | {} | {:.2} MB | {:.2} MB | {:.2} |",
                binary.function,
                ours as f64 / 1e6,
                binary.bytes as f64 / 1e6,
                binary.bytes as f64 / ours as f64
            );
        }
    }
    text + "\n"
}

fn noise(results: &Results) -> String {
    let load = results.load.iter().map(|load| format!("{load:.1}")).collect::<Vec<_>>().join(", ");
    let mut text = format!(
        "## Noise\n\n\
         The load of the machine before, between and after the parts of the run was {load}. The run itself keeps one \
         to two processes busy. Each batch of a client has a median time of a pair. The middle half of these medians \
         lies between these fractions of their own median:\n\n| client | 25 % | 75 % |\n|---|---|---|\n"
    );
    for client in ALL {
        let batches = results.batches.iter().filter(|batch| batch.client == client);
        let mut medians: Vec<f64> = batches
            .map(|batch| {
                let mut pairs: Vec<f64> =
                    batch.acquire_micros.iter().zip(&batch.release_micros).map(|(a, r)| (a + r) as f64).collect();
                pairs.sort_by(f64::total_cmp);
                quantile(&pairs, 0.5)
            })
            .collect();
        medians.sort_by(f64::total_cmp);
        let all = quantile(&medians, 0.5);
        let _ = writeln!(
            text,
            "| {client} | {:.2} | {:.2} |",
            quantile(&medians, 0.25) / all,
            quantile(&medians, 0.75) / all
        );
    }
    for note in &results.notes {
        let _ = write!(text, "\n{note}\n");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::path::Path;

    /// The next run would overwrite an edit of the report by hand. Notes belong into the raw data.
    #[test]
    fn the_projects_report_follows_from_its_raw_data() {
        let project = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let raw = fs::read(project.join("proof/bench/results/raw.json")).unwrap();
        let report = fs::read_to_string(project.join("BENCHMARKS.md")).unwrap();
        let written = markdown(&serde_json::from_slice(&raw).unwrap());
        // Compared line by line, so that a failure shows only the first difference.
        let differs = written.lines().zip(report.lines()).find(|(written, report)| written != report);
        assert!(written == report, "run `compare --only-report`: {differs:#?}");
    }
}
