//! The command line of `lambda-lock-local`.

#![allow(clippy::disallowed_methods, reason = "the demo waits, reads clocks and runs tasks in the background")]
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a command prints to its user")]

mod demo;
mod serve;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

/// Run lambda-lock on your own machine, without an AWS account.
#[derive(Parser)]
#[command(name = "lambda-lock-local", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Demo(demo::Options),
    Local(serve::Options),
    #[command(hide = true)]
    Worker(demo::WorkerOptions),
}

#[tokio::main]
async fn main() -> ExitCode {
    let done = match Cli::parse().command {
        Command::Demo(options) => demo::run(options).await,
        Command::Local(options) => serve::run(options).await,
        Command::Worker(options) => demo::work(options).await,
    };
    done.unwrap_or_else(|error| {
        eprintln!("error: {error:#}");
        ExitCode::from(2)
    })
}
