//! `lambda-lock-conformance`: plays the scenarios with subjects of one's choice, or measures them.

#![allow(clippy::print_stdout, reason = "a command line tool")]

use anyhow::{bail, ensure};
use clap::{Args, Parser, Subcommand};
use lambda_lock_conformance::scenarios::{self, Played};
use lambda_lock_conformance::{Host, Native, Subject, World, overhead};
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
    fn start(self) -> anyhow::Result<Vec<(String, Box<dyn Subject>)>> {
        let mut subjects: Vec<(String, Box<dyn Subject>)> =
            vec![("the crate itself".to_owned(), Box::new(Native::default()))];
        let hosts = [(World::Client, self.client), (World::Protocol, self.protocol)];
        for (world, host) in
            hosts.into_iter().flat_map(|(world, hosts)| hosts.into_iter().map(move |host| (world, host)))
        {
            let Some((name, command)) = host.split_once('=') else {
                bail!("{host:?} names no command: give NAME=COMMAND")
            };
            subjects.push((name.to_owned(), Box::new(Host::start(world, command)?)));
        }
        Ok(subjects)
    }
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    match Command::parse().what {
        What::Play { hosts, only } => play(hosts.start()?, &only).await,
        What::Overhead { hosts, rounds, pairs } => measure(hosts.start()?, rounds, pairs).await,
        What::List => {
            for scenario in scenarios::all() {
                println!("{}{}", scenario.name, if scenario.of_clients_only { " (client only)" } else { "" });
            }
            Ok(())
        }
    }
}

async fn play(subjects: Vec<(String, Box<dyn Subject>)>, only: &str) -> anyhow::Result<()> {
    let mut failed = 0;
    for (name, subject) in &subjects {
        println!("\n{name}");
        let started = Instant::now();
        let played = scenarios::play(subject.as_ref(), only, tell).await?;
        let passed = played.iter().filter(|played| matches!(played.result, Some(Ok(())))).count();
        failed += played.iter().filter(|played| matches!(played.result, Some(Err(_)))).count();
        ensure!(passed > 0 || failed > 0, "no scenario contains {only:?} in its name: see `list`");
        println!("  {passed} of {} passed, {:.1} s", played.len(), started.elapsed().as_secs_f64());
    }
    ensure!(failed == 0, "{failed} scenarios failed");
    Ok(())
}

fn tell(played: &Played) {
    let Played { name, result, took } = played;
    match result {
        None => println!("  not for this world  {name}"),
        Some(Ok(())) => println!("  ok    {:6} ms  {name}", took.as_millis()),
        Some(Err(error)) => println!("  FAILED {:5} ms  {name}\n      {error:#}", took.as_millis()),
    }
}

async fn measure(subjects: Vec<(String, Box<dyn Subject>)>, rounds: u32, pairs: u32) -> anyhow::Result<()> {
    println!("{pairs} pairs of acquire and release, {rounds} times in turns; medians");
    let medians = overhead::measure(&subjects, rounds, pairs).await?;
    let native = medians.first().copied().unwrap_or(f64::NAN);
    for ((name, _), median) in subjects.iter().zip(medians) {
        println!(
            "  {name:32} {:8.0} µs a pair  {:+8.0} µs  {:5.2} ×",
            median / 1e3,
            (median - native) / 1e3,
            median / native
        );
    }
    Ok(())
}
