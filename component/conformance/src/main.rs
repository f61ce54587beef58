//! `lambda-lock-conformance`: plays the scenarios with subjects of one's choice, or measures them.

#![allow(clippy::print_stdout, reason = "a command line tool")]

use anyhow::{Context, ensure};
use clap::{Args, Parser, Subcommand};
use lambda_lock_conformance::scenarios::{self, Played};
use lambda_lock_conformance::{Host, Native, Subject, World, overhead};
use serde_json::json;
use std::io::BufRead;
use std::time::Instant;

/// One list of scenarios for every way to use the lock, against an embedded DynamoDB.
#[derive(Parser)]
#[command(name = "lambda-lock-conformance", version)]
struct Command {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Plays all scenarios with each subject, the crate itself first.
    Play {
        #[command(flatten)]
        hosts: Hosts,
        /// Only the scenarios whose names contain this text.
        #[arg(long, default_value = "")]
        only: String,
    },
    /// Measures a pair of acquire and release in each subject, in turns, next to the crate itself.
    Overhead {
        #[command(flatten)]
        hosts: Hosts,
        /// How many times each subject takes its turn.
        #[arg(long, default_value_t = 15)]
        rounds: u32,
        /// How many pairs a turn has.
        #[arg(long, default_value_t = 200)]
        pairs: u32,
    },
    /// Lists the scenarios.
    List,
    /// Answers the lines of JSON that a host is asked, as the crate itself.
    #[command(hide = true)]
    Serve,
}

#[derive(Args)]
struct Hosts {
    /// A host of the world `client`: a name, and the command that starts it, words separated by spaces.
    #[arg(long, value_name = "NAME=COMMAND")]
    client: Vec<String>,
    /// A host of the world `protocol`.
    #[arg(long, value_name = "NAME=COMMAND")]
    protocol: Vec<String>,
}

impl Hosts {
    fn start(self) -> anyhow::Result<Vec<(String, Host)>> {
        let clients = self.client.into_iter().map(|host| (World::Client, host));
        let all = clients.chain(self.protocol.into_iter().map(|host| (World::Protocol, host)));
        all.map(|(world, host)| {
            let (name, command) =
                host.split_once('=').with_context(|| format!("{host:?} names no command: give NAME=COMMAND"))?;
            Ok((name.to_owned(), Host::start(world, command)?))
        })
        .collect()
    }
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    match Command::parse().what {
        What::Play { hosts, only } => play(hosts.start()?, &only).await,
        What::Overhead { hosts, rounds, pairs } => measure(hosts.start()?, rounds, pairs).await,
        What::Serve => serve().await,
        What::List => {
            for scenario in scenarios::all() {
                println!("{}{}", scenario.name, if scenario.of_clients_only { " (client only)" } else { "" });
            }
            Ok(())
        }
    }
}

async fn play(hosts: Vec<(String, Host)>, only: &str) -> anyhow::Result<()> {
    let mut failed = play_one("the crate itself", &Native::default(), only).await?;
    for (name, host) in &hosts {
        failed += play_one(name, host, only).await?;
    }
    ensure!(failed == 0, "{failed} scenarios failed");
    Ok(())
}

/// How many scenarios failed.
async fn play_one(name: &str, subject: &dyn Subject, only: &str) -> anyhow::Result<usize> {
    println!("\n{name}");
    let started = Instant::now();
    let played = scenarios::play(subject, only, tell).await?;
    ensure!(!played.is_empty(), "no scenario contains {only:?} in its name: see `list`");
    let count = |wanted: fn(&Played) -> bool| played.iter().filter(|played| wanted(played)).count();
    let passed = count(|played| matches!(played.result, Some(Ok(()))));
    let not_for_it = count(|played| played.result.is_none());
    let took = started.elapsed().as_secs_f64();
    println!("  {passed} of {} passed, {not_for_it} not for this world, {took:.1} s", played.len());
    Ok(played.len() - passed - not_for_it)
}

fn tell(played: &Played) {
    let Played { name, result, took } = played;
    match result {
        None => println!("  not for this world  {name}"),
        Some(Ok(())) => println!("  ok    {:6} ms  {name}", took.as_millis()),
        Some(Err(error)) => println!("  FAILED {:5} ms  {name}\n      {error:#}", took.as_millis()),
    }
}

async fn measure(hosts: Vec<(String, Host)>, rounds: u32, pairs: u32) -> anyhow::Result<()> {
    println!("{pairs} pairs of acquire and release, {rounds} times in turns");
    println!("  {:36} {:>12} {:>7} {:>12} {:>7}", "", "time a pair", "", "CPU a pair", "");
    let mut all = vec![("the crate itself".to_owned(), Host::native()?)];
    all.extend(hosts);
    let costs = overhead::measure(&all, rounds, pairs).await?;
    let native = costs.first().copied();
    for ((name, _), cost) in all.iter().zip(costs) {
        let of_time = native.map(|native| cost.time.as_secs_f64() / native.time.as_secs_f64()).unwrap_or_default();
        let cpu = cost.cpu.map_or("unknown".to_owned(), |cpu| format!("{} µs", cpu.as_micros()));
        let of_cpu = cost.cpu.zip(native.and_then(|native| native.cpu));
        let of_cpu = of_cpu.map(|(ours, native)| ours.as_secs_f64() / native.as_secs_f64()).unwrap_or_default();
        println!("  {name:36} {:>9} µs {of_time:>5.2} × {cpu:>12} {of_cpu:>5.2} ×", cost.time.as_micros());
    }
    Ok(())
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
