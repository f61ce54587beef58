//! `lambda-lock`: who holds which lock, since when, and may I break it? The manual is `docs/command.md`.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a command prints to its user")]

mod arguments;
mod breaking;
mod connection;
mod exit;
mod held;
mod list;
mod row;
mod run;
mod screen;
mod show;
mod signals;

use crate::arguments::{Arguments, Command};
use crate::exit::Failure;
use clap::{CommandFactory, Parser};
use std::process::ExitCode;

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let Arguments { command, connection, json } = Arguments::parse();
    match act(command, &connection, json).await {
        Ok(code) => code,
        // Whoever reads the output has what he wanted, as with `head`.
        Err(Failure::Io(error)) if error.kind() == std::io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(failure) => {
            anstream::eprintln!("{}error:{:#} {failure}", screen::WRONG, screen::WRONG);
            failure.code()
        }
    }
}

async fn act(command: Command, connection: &connection::Options, json: bool) -> Result<ExitCode, Failure> {
    match command {
        Command::Ls(options) => list::list(&connection.open().await?, connection, &options, json).await,
        Command::Show(options) => show::show(&connection.open().await?, connection, &options, json).await,
        Command::Break(options) => breaking::break_lock(&connection.open().await?, connection, &options, json).await,
        Command::Acquire(options) => held::acquire(&connection.open().await?, &options).await,
        Command::Renew(options) => held::renew(&connection.open().await?, &options).await,
        Command::Release(options) => held::release(&connection.open().await?, &options, json).await,
        Command::Run(options) => run::run(&connection.open().await?, &options).await,
        Command::Completions { shell } => {
            clap_complete::generate(shell, &mut Arguments::command(), "lambda-lock", &mut std::io::stdout());
            Ok(ExitCode::SUCCESS)
        }
        Command::Man { directory } => {
            match directory {
                Some(directory) => clap_mangen::generate_to(Arguments::command(), directory)?,
                None => clap_mangen::Man::new(Arguments::command()).render(&mut std::io::stdout())?,
            }
            Ok(ExitCode::SUCCESS)
        }
    }
}
