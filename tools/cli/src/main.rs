//! `lambda-lock`: who holds which lock, since when, and may I break it? The manual is `docs/command.md`.

mod arguments;
mod asking;
mod asl;
mod breaking;
mod changes;
mod confirm;
mod connection;
mod credentials;
mod deployed;
mod doctor;
mod execution;
mod exit;
mod family;
mod freeze;
mod held;
mod history;
mod https;
mod list;
mod once_reset;
mod proc;
mod raise_tokens;
mod record;
mod request_id;
mod row;
mod run;
mod running;
mod screen;
mod server_date;
mod show;
mod signals;
mod starter;
mod timeline;
mod watch;
mod words;

use crate::arguments::{Arguments, Command, OnTable};
use crate::exit::Failure;
use crate::signals::Signals;
use clap::CommandFactory;
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::process::ExitCode;
use std::thread;
use std::time::Duration;
use tokio::runtime::{Builder, Runtime};

/// How many files a command has open at once at most: for the runtime, the requests, and what it starts.
const FILES: usize = 16;

fn main() -> ExitCode {
    starter::become_the_command().or_else(starter::end_in_the_last_stage).unwrap_or_else(lambda_lock)
}

fn lambda_lock() -> ExitCode {
    let runtime = match runtime() {
        Ok(runtime) => runtime,
        Err(error) => {
            screen::tell(format_args!("{}error:{:#} {error}", screen::WRONG, screen::WRONG));
            return ExitCode::FAILURE;
        }
    };
    let code = runtime.block_on(acted());
    // A resolver that does not answer keeps a thread for up to a minute.
    runtime.shutdown_background();
    code
}

/// A thread of the runtime looks up names, also for a renewal, when the user may have no further thread. Where it has none, the
/// runtime panics. So it starts one now, and keeps it.
fn runtime() -> io::Result<Runtime> {
    can_open_files().map_err(|error| {
        io::Error::other(format!("{error}: this process may open too few files. Allow it more: ulimit -n 1024"))
    })?;
    let a_year = Duration::from_secs(366 * 24 * 60 * 60);
    let runtime = Builder::new_current_thread().enable_all().thread_keep_alive(a_year).build()?;
    let tried = thread::Builder::new().spawn(|| {});
    let tried = tried.map_err(|error| io::Error::other(format!("no thread can be started: {error}")))?;
    let _ = tried.join();
    // Linux may count it for a moment still, until it lists it no more.
    for _ in 0..100 {
        if !std::fs::read_dir("/proc/self/task").is_ok_and(|threads| threads.count() > 1) {
            break;
        }
        thread::sleep(Duration::from_millis(1));
    }
    runtime.spawn_blocking(|| {});
    Ok(runtime)
}

/// The runtime panics where it may open none, and a command is not begun without those that its end needs.
fn can_open_files() -> io::Result<()> {
    let opened: io::Result<Vec<_>> = (0..FILES).map(|_| File::open("/dev/null")).collect();
    opened.map(drop)
}

async fn acted() -> ExitCode {
    let acted = match without_empty_variables() {
        Ok(()) => act(Arguments::of_command_line().command).await,
        Err(failure) => Err(failure),
    };
    let failure = match acted {
        Ok(code) => return code,
        Err(failure) => failure,
    };
    let said = match failure {
        // Nothing went wrong: somebody was asked, and has answered.
        Failure::Declined => failure.to_string(),
        _ => format!("{}error:{:#} {failure}", screen::WRONG, screen::WRONG),
    };
    let code = failure.code();
    // The command may have handled signals, so that they end this process no longer by themselves.
    let Ok(mut signals) = Signals::new() else {
        screen::tell(said);
        return code;
    };
    let tell = move || {
        screen::tell(said);
        Ok(())
    };
    tokio::select! {
        _ = screen::aside(tell) => code,
        signal = signals.next_ending() => run::end_as_by(signal),
    }
}

/// Begins anew without the variables that are set and empty, if there are any. The SDK reads its variables itself, and takes an
/// empty one for a value. `AWS_PAGER` means something when it is empty. The command that `run` starts has them all.
fn without_empty_variables() -> Result<(), Failure> {
    let is_ours = |name: &str| {
        (name.starts_with("AWS_") && name != "AWS_PAGER") || name.starts_with("LOCK_") || name == "COLUMNS"
    };
    let variables = std::env::vars_os().filter(|(_, value)| value.is_empty());
    let empty: Vec<_> =
        variables.filter_map(|(name, _)| name.into_string().ok()).filter(|name| is_ours(name)).collect();
    if empty.is_empty() {
        return Ok(());
    }
    let mut anew = std::process::Command::new(std::env::current_exe()?);
    anew.args(std::env::args_os().skip(1));
    empty.iter().for_each(|name| {
        anew.env_remove(name);
    });
    anew.env(starter::EMPTY, empty.join(" "));
    Err(Failure::Usage(format!(
        "{} cannot be read, because they are empty: unset them ({})",
        empty.join(", "),
        anew.exec()
    )))
}

/// Whoever reads all that a command is for has what he wanted, as with `head`.
fn read_enough(printed: Result<ExitCode, Failure>) -> Result<ExitCode, Failure> {
    match printed {
        Err(Failure::Io(error)) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(ExitCode::SUCCESS),
        printed => printed,
    }
}

async fn act(command: Command) -> Result<ExitCode, Failure> {
    match command {
        Command::Ls(OnTable { options, connection }) => read_enough(list::list(&connection, &options).await),
        Command::Show(OnTable { options, connection }) => read_enough(show::show(&connection, &options).await),
        Command::Break(OnTable { options, connection }) => breaking::break_lock(&connection, &options).await,
        Command::Acquire(OnTable { options, connection }) => held::acquire(&connection, &options).await,
        Command::Renew(OnTable { options, connection }) => held::renew(&connection, &options).await,
        Command::Release(OnTable { options, connection }) => held::release(&connection, &options).await,
        Command::Run(OnTable { options, connection }) => run::run(&connection, &options).await,
        Command::Watch(OnTable { options, connection }) => read_enough(watch::watch(&connection, &options).await),
        Command::History(OnTable { options, connection }) => read_enough(history::history(&connection, &options).await),
        Command::Doctor(OnTable { options, connection }) => doctor::doctor(&connection, &options).await,
        Command::Freeze(OnTable { options, connection }) => freeze::freeze(&connection, &options).await,
        Command::Thaw(OnTable { options, connection }) => freeze::thaw(&connection, &options).await,
        Command::OnceReset(OnTable { options, connection }) => once_reset::once_reset(&connection, &options).await,
        Command::RaiseTokens(OnTable { options, connection }) => {
            raise_tokens::raise_tokens(&connection, &options).await
        }
        Command::Timeline(options) => read_enough(timeline::draw(&options)),
        Command::Asl(options) => read_enough(asl::print(options)),
        Command::Completions { shell } => {
            // It panics where it cannot write.
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Arguments::command(), "lambda-lock", &mut script);
            read_enough(std::io::stdout().write_all(&script).map(|()| ExitCode::SUCCESS).map_err(Failure::from))
        }
        Command::Man { directory } => {
            match directory {
                Some(directory) => {
                    let wrong = |error| Failure::Usage(format!("{} cannot be written: {error}", directory.display()));
                    std::fs::create_dir_all(&directory).map_err(wrong)?;
                    clap_mangen::generate_to(Arguments::command(), &directory).map_err(wrong)?;
                }
                None => {
                    let rendered = clap_mangen::Man::new(Arguments::command()).render(&mut std::io::stdout());
                    return read_enough(rendered.map(|()| ExitCode::SUCCESS).map_err(Failure::from));
                }
            }
            Ok(ExitCode::SUCCESS)
        }
    }
}
