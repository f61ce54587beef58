//! The command line of `lambda-lock-local`.

#![allow(clippy::disallowed_methods, reason = "the demo waits, reads clocks and runs tasks in the background")]
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a command prints to its user")]

mod demo;
mod serve;

use clap::{Parser, Subcommand};
use lambda_lock_local::LocalDynamoDb;
use lambda_lock_local::lambda::is_clone;
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
    /// Serve an embedded DynamoDB, print its endpoint, and end with the standard input.
    #[command(hide = true)]
    Dynamodb,
    #[command(hide = true)]
    Worker(demo::WorkerOptions),
}

#[tokio::main]
async fn main() -> ExitCode {
    let command = Cli::parse().command;
    if matches!(command, Command::Demo(_) | Command::Local(_)) && !is_clone() {
        eprintln!("error: this needs the functions of lambda-lock: run `cargo demo` or `cargo local` in a clone of it");
        return ExitCode::from(2);
    }
    let done = match command {
        Command::Demo(options) => demo::run(options).await,
        Command::Local(options) => serve::run(options).await,
        Command::Dynamodb => dynamodb().await,
        Command::Worker(options) => demo::work(options).await,
    };
    done.unwrap_or_else(|error| {
        eprintln!("error: {error:#}");
        ExitCode::from(2)
    })
}

/// What [`LocalDynamoDb::of_program`] starts. Whoever started it holds the other end of the standard input, so it ends also
/// when that process is killed.
async fn dynamodb() -> anyhow::Result<ExitCode> {
    let dynamodb = LocalDynamoDb::in_memory().await?;
    println!("{}", dynamodb.endpoint());
    tokio::io::copy(&mut tokio::io::stdin(), &mut tokio::io::sink()).await?;
    Ok(ExitCode::SUCCESS)
}
