//! `lambda-lock-conformance`: plays the scenarios with the given subjects, or measures them.

#![allow(clippy::print_stdout, reason = "a command line tool")]

use anyhow::{Context, ensure};
use clap::{Args, Parser, Subcommand};
use lambda_lock_conformance::scenarios::{self, Played};
use lambda_lock_conformance::{Host, Native, Subject, World, overhead, report};
use serde_json::json;
use std::io::BufRead;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Plays one list of scenarios with every form of the lock, on an embedded DynamoDB.
#[derive(Parser)]
#[command(name = "lambda-lock-conformance", version)]
struct Command {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Plays all scenarios with each subject, starting with the crate itself.
    Play {
        #[command(flatten)]
        hosts: Hosts,
        /// Only the scenarios whose names contain this text.
        #[arg(long, default_value = "")]
        only: String,
    },
    /// Measures a pair of acquire and release in each subject and in the crate itself, in turns.
    Overhead {
        #[command(flatten)]
        hosts: Hosts,
        /// The number of turns of each subject.
        #[arg(long, default_value_t = 15)]
        rounds: u32,
        /// The number of pairs in a turn.
        #[arg(long, default_value_t = 200)]
        pairs: u32,
        /// After this many seconds no further round begins. The first round always runs.
        #[arg(long, default_value_t = 240)]
        at_most: u64,
        /// Also writes the table into this Markdown file, between its two marks.
        #[arg(long, value_name = "FILE", requires = "machine")]
        write: Option<PathBuf>,
        /// The first words of the report: when and where it was measured.
        #[arg(long, value_name = "TEXT")]
        machine: Option<String>,
    },
    /// Lists the scenarios.
    List,
    /// Answers the JSON lines that a host gets, with the crate itself.
    #[command(hide = true)]
    Serve,
}

#[derive(Args)]
struct Hosts {
    /// A host of the world `client`: a name and the command that starts it, separated by spaces.
    #[arg(long, value_name = "NAME=COMMAND")]
    client: Vec<String>,
    /// A host of the world `protocol`, in the same form.
    #[arg(long, value_name = "NAME=COMMAND")]
    protocol: Vec<String>,
}

impl Hosts {
    fn start(self) -> anyhow::Result<Vec<(String, Host)>> {
        let clients = self.client.into_iter().map(|host| (World::Client, host));
        let all = clients.chain(self.protocol.into_iter().map(|host| (World::Protocol, host)));
        all.map(|(world, host)| {
            let (name, command) =
                host.split_once('=').with_context(|| format!("{host:?} has no command: use NAME=COMMAND"))?;
            Ok((name.to_owned(), Host::start(world, command)?))
        })
        .collect()
    }
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    match Command::parse().what {
        What::Play { hosts, only } => play(hosts.start()?, &only).await,
        What::Overhead { hosts, rounds, pairs, at_most, write, machine } => {
            let measured = measure(hosts.start()?, rounds, pairs, Duration::from_secs(at_most)).await?;
            println!("\n{measured}");
            match (write, machine) {
                (Some(file), Some(machine)) => report::write(&file, &format!("{machine}: {measured}")),
                _ => Ok(()),
            }
        }
        What::Serve => serve().await,
        What::List => {
            for scenario in scenarios::all() {
                println!("{}{}", scenario.name, if scenario.of_clients_only { " (client only)" } else { "" });
            }
            Ok(())
        }
    }
}

/// Plays with all subjects at the same time, each on a stage of its own, because most scenarios wait. Prints a subject's
/// results when all subjects before it have ended.
async fn play(hosts: Vec<(String, Host)>, only: &str) -> anyhow::Result<()> {
    let mut plays = vec![tokio::spawn(play_one("the crate itself".to_owned(), Native::default(), only.to_owned()))];
    plays.extend(hosts.into_iter().map(|(name, host)| tokio::spawn(play_one(name, host, only.to_owned()))));
    let mut failed = 0;
    for play in plays {
        let (text, failures) = play.await??;
        println!("{text}");
        failed += failures;
    }
    ensure!(failed == 0, "{failed} scenarios failed");
    Ok(())
}

/// Returns what to print, and the number of scenarios that failed.
async fn play_one(name: String, subject: impl Subject, only: String) -> anyhow::Result<(String, usize)> {
    let started = Instant::now();
    let played = scenarios::play(&subject, &only).await?;
    ensure!(!played.is_empty(), "no scenario has {only:?} in its name: run `list` for all names");
    let count = |wanted: fn(&Played) -> bool| played.iter().filter(|played| wanted(played)).count();
    let passed = count(|played| matches!(played.result, Some(Ok(()))));
    let not_for_it = count(|played| played.result.is_none());
    let took = started.elapsed().as_secs_f64();
    let lines: Vec<_> = played.iter().map(line).collect();
    let lines = lines.join("\n");
    let sum = format!("{passed} of {} passed, {not_for_it} not for this world, {took:.1} s", played.len());
    Ok((format!("\n{name}\n{lines}\n  {sum}"), played.len() - passed - not_for_it))
}

fn line(played: &Played) -> String {
    let Played { name, result, took } = played;
    match result {
        None => format!("  not for this world  {name}"),
        Some(Ok(())) => format!("  ok    {:6} ms  {name}", took.as_millis()),
        Some(Err(error)) => format!("  FAILED {:5} ms  {name}\n      {error:#}", took.as_millis()),
    }
}

/// Measures a pair in each host, and returns a Markdown table.
async fn measure(hosts: Vec<(String, Host)>, rounds: u32, pairs: u32, at_most: Duration) -> anyhow::Result<String> {
    let mut all = vec![("the crate itself".to_owned(), Host::native()?)];
    all.extend(hosts);
    println!("{} hosts in turns, {pairs} pairs of acquire and release each: {rounds} rounds or fewer", all.len());
    let started = Instant::now();
    let tell = |round| println!("  round {round}, after {:.0} s", started.elapsed().as_secs_f64());
    let measured = overhead::measure(&all, rounds, pairs, at_most, tell).await?;
    let names: Vec<_> = all.iter().map(|(name, _)| name.as_str()).collect();
    let rounds = measured.rounds;
    Ok(format!("all hosts in turns, {rounds} rounds of {pairs} pairs each.\n\n{}", report::table(&names, &measured)))
}

async fn serve() -> anyhow::Result<()> {
    let native = Native::default();
    for line in std::io::stdin().lock().lines() {
        let told = match native.ask(serde_json::from_str(&line?)?).await? {
            Ok(told) => json!({"ok": told}),
            Err(failure) => json!({"error": failure}),
        };
        println!("{told}");
    }
    Ok(())
}
