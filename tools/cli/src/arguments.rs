//! The command line.

use crate::asl::AslOptions;
use crate::connection;
use crate::exit::Failure;
use crate::row::{ONCE, epoch_millis};
use clap::builder::Resettable;
use clap::{CommandFactory, Parser, Subcommand};
use clap_complete::Shell;
use lambda_lock::LockKey;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

/// Who holds which lock, since when, and may I break it?
///
/// Reads and changes the locks of a DynamoDB table as lambda-lock does. It takes credentials, Region, proxies and trusted
/// certificates from where the AWS CLI takes them. A variable that is empty counts as unset.
#[derive(Debug, Parser)]
#[command(name = "lambda-lock", version, after_long_help = EXIT_CODES)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) command: Command,
}

impl Arguments {
    /// The arguments of this process. It ends where they are wrong.
    pub(crate) fn of_command_line() -> Self {
        let words: Vec<_> = std::env::args_os().collect();
        let read = Self::try_parse_from(&words);
        read.or_else(|error| Self::of_run_behind_hyphens(words).ok_or(error)).unwrap_or_else(|error| {
            // Of what is missing, clap says how it would be given, beside all that was given: a variable is no argument.
            let again = Self::without_variables().try_get_matches();
            let again = again.err().filter(|again| error.use_stderr() && again.kind() == error.kind());
            again.unwrap_or(error).exit()
        })
    }

    /// `run -- KEY -- COMMAND`, of which clap takes all behind the first `--` for the command.
    fn of_run_behind_hyphens(mut words: Vec<OsString>) -> Option<Self> {
        let hyphens = words.iter().position(|word| word == "--")?;
        let key = words.get(hyphens + 1)?.to_str()?.to_owned();
        if words.get(hyphens + 2)? != "--" {
            return None;
        }
        // The key may be an option too.
        words.splice(hyphens..hyphens + 2, ["KEY".into()]);
        let mut read = Self::try_parse_from(words).ok()?;
        let Command::Run(run) = &mut read.command else { return None };
        run.options.how.key.key = key;
        Some(read)
    }

    /// The commands, of which no argument is read from a variable.
    fn without_variables() -> clap::Command {
        Self::command().mut_subcommands(|command| command.mut_args(|arg| arg.env(Resettable::Reset)))
    }
}

const EXIT_CODES: &str = "\
Exit codes:
  0   done
  1   something else went wrong, or the question was answered with no
  2   the arguments are wrong, or a variable is
  69  DynamoDB did not respond: it is unknown what was applied
  75  another holder has the lock
  76  the lock was lost, could not be renewed, or changed since it was seen
  77  access was denied
  78  the table cannot be used, or the row is no lock record
  run exits with the code of its command, or 128 and the number of the signal that ended it.
  Where something is wrong with the lock, it exits with a code of this list, and says how its
  command ended.";

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// List the locks of the table. It reads the whole table, unless it is told to stop earlier.
    Ls(OnTable<ListOptions>),
    /// Show everything that is known about one lock: who holds it, since when, until when, and what a caller would have to do.
    Show(OnTable<ShowOptions>),
    /// Check whether the table, its permissions and the clock are as callers need them.
    ///
    /// It only reads, unless it is told to write.
    Doctor(OnTable<DoctorOptions>),
    /// Release a lock for its holder, which may still run.
    ///
    /// It is refused if the holder has renewed the lock since it was seen. The holder learns that it lost the lock at its next
    /// renewal. What it writes until then must be fenced.
    Break(OnTable<BreakOptions>),
    /// Let nobody but its holder have a lock, until it is thawed.
    ///
    /// The holder may renew the lock, and release it. Whoever asks for it meanwhile waits or is refused, and learns the reason.
    Freeze(OnTable<FreezeOptions>),
    /// Let callers have a frozen lock again.
    Thaw(OnTable<ThawOptions>),
    /// Tell what happens to locks, as it happens: grants, renewals, takeovers, releases.
    ///
    /// It looks at the rows again and again, so it misses what begins and ends between two looks. Without keys it reads the whole
    /// table each time.
    Watch(OnTable<WatchOptions>),
    /// Tell what happened to a lock, from the table's stream, which goes back 24 hours.
    History(OnTable<HistoryOptions>),
    /// Draw what watch --json or history --json printed: who held the lock, died and took over.
    Timeline(TimelineOptions),
    /// Acquire a lock, and print what renew and release need.
    Acquire(OnTable<AcquireOptions>),
    /// Renew a lock that acquire printed, and print it anew.
    Renew(OnTable<RenewOptions>),
    /// Release a lock that acquire printed.
    Release(OnTable<ReleaseOptions>),
    /// Run a command while a lock is held: acquire, run, renew, release.
    ///
    /// The command has LOCK_KEY and FENCING_TOKEN in its environment. When the lock cannot be renewed, it gets SIGTERM
    /// --kill-after before the lease ends, and SIGKILL at its end. When the lock is lost, it gets SIGTERM, and SIGKILL if it still
    /// runs after --kill-after. So does what it started: on Linux also outside of its process group. No signal reaches a command
    /// that changes its user, as sudo does: run sudo lambda-lock run.
    Run(OnTable<RunOptions>),
    /// Prints the states that acquire, renew and release a lock from a Step Functions state machine with DynamoDB alone, as
    /// JSON. They send the requests of this crate, so `lock-task` and other callers can share the locks.
    ///
    /// Put the states into the States of a state machine whose query language is JSONata, and write your own first and
    /// second step: FirstStep goes to Renew, SecondStep to Unlock. Each of them catches every error (States.ALL, and
    /// States.DataLimitExceeded by its name), assigns `failure` with `Error` and `Cause`, and goes to UnlockAfterFailure, or to
    /// LeftToItsLease if its function may still run. `--sample` prints a whole state machine to start from.
    Asl(AslOptions),
    /// Allow idempotent work again that failed for good.
    ///
    /// First make sure that the failed attempt left nothing behind: the next call does the work again.
    OnceReset(OnTable<OnceResetOptions>),
    /// Make the fencing tokens of a restored table larger than all that were ever given.
    ///
    /// It reads the whole table, and writes each row that has a smaller token. No caller may use the table meanwhile. It can
    /// be run again at any time.
    RaiseTokens(OnTable<RaiseTokensOptions>),
    /// Print what makes a shell complete these commands.
    Completions {
        /// The shell.
        shell: Shell,
    },
    /// Print the man page.
    Man {
        /// Write one page for each command into this directory instead.
        directory: Option<PathBuf>,
    },
}

#[derive(Debug, clap::Args)]
pub(crate) struct ListOptions {
    /// Only locks in this state. May be given several times.
    #[arg(long, value_enum)]
    pub(crate) state: Vec<crate::row::State>,
    /// Only locks that are frozen.
    #[arg(long)]
    pub(crate) frozen: bool,
    /// Only keys that begin like this.
    #[arg(long, value_name = "TEXT")]
    pub(crate) prefix: Option<String>,
    /// Only keys that contain this.
    #[arg(long, value_name = "TEXT")]
    pub(crate) contains: Option<String>,
    /// Only locks whose owner's name contains this.
    #[arg(long, value_name = "TEXT")]
    pub(crate) owner: Option<String>,
    /// Only locks that this workflow holds: the ARN of an execution.
    #[arg(long, value_name = "ARN")]
    pub(crate) workflow: Option<String>,
    /// Stop after so many locks.
    #[arg(long, value_name = "NUMBER")]
    pub(crate) limit: Option<u64>,
    /// Stop after about so many read units. One reads 8 KB.
    #[arg(long, value_name = "NUMBER", value_parser = read_units, allow_negative_numbers = true, default_value = "5000")]
    pub(crate) read_units: f64,
    #[command(flatten)]
    pub(crate) format: Format,
}

/// A command that works on a table.
#[derive(Debug, clap::Args)]
pub(crate) struct OnTable<Options: clap::Args> {
    #[command(flatten)]
    pub(crate) options: Options,
    #[command(flatten)]
    pub(crate) connection: connection::Options,
}

/// How the result is printed.
#[derive(Debug, clap::Args)]
pub(crate) struct Format {
    /// Print JSON instead of text.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Which lock.
#[derive(Debug, clap::Args)]
pub(crate) struct Key {
    /// The lock's key. To see or to break idempotent work, write once/ before its key.
    #[arg(allow_hyphen_values = true)]
    key: String,
    /// The lock's sort key, where the table has one.
    #[arg(long, value_name = "TEXT")]
    sort_key: Option<String>,
}

impl Key {
    pub(crate) fn key(&self) -> LockKey {
        LockKey::new(self.key.clone(), self.sort_key.clone())
    }
}

#[derive(Debug, clap::Args)]
pub(crate) struct ShowOptions {
    #[command(flatten)]
    pub(crate) key: Key,
    #[command(flatten)]
    pub(crate) format: Format,
}

/// What an operator decides.
#[derive(Debug, clap::Args)]
pub(crate) struct Decision {
    /// Why, for those who read the row later.
    #[arg(long, value_name = "TEXT")]
    pub(crate) reason: String,
    /// Do not ask.
    #[arg(long)]
    pub(crate) yes: bool,
    #[command(flatten)]
    pub(crate) format: Format,
}

#[derive(Debug, clap::Args)]
pub(crate) struct BreakOptions {
    #[command(flatten)]
    pub(crate) key: Key,
    /// The version that `show` printed.
    #[arg(long, value_name = "VERSION")]
    pub(crate) seen: String,
    #[command(flatten)]
    pub(crate) decision: Decision,
}

#[derive(Debug, clap::Args)]
pub(crate) struct FreezeOptions {
    #[command(flatten)]
    pub(crate) key: Key,
    #[command(flatten)]
    pub(crate) decision: Decision,
}

#[derive(Debug, clap::Args)]
pub(crate) struct ThawOptions {
    #[command(flatten)]
    pub(crate) key: Key,
    /// Do not ask.
    #[arg(long)]
    pub(crate) yes: bool,
    #[command(flatten)]
    pub(crate) format: Format,
}

#[derive(Debug, clap::Args)]
pub(crate) struct WatchOptions {
    /// The keys of the locks. By default all locks of the table. Before a key that begins with a hyphen, write --.
    pub(crate) keys: Vec<String>,
    /// The locks' sort key, where the table has one.
    #[arg(long, value_name = "TEXT")]
    sort_key: Option<String>,
    /// The pause between two looks.
    #[arg(long, value_parser = interval, default_value = "2s")]
    pub(crate) interval: Duration,
    /// Stop after this time, with a last look. By default at Ctrl-C.
    #[arg(long = "for", value_name = "DURATION", value_parser = duration)]
    pub(crate) duration: Option<Duration>,
    #[command(flatten)]
    pub(crate) format: Format,
}

impl WatchOptions {
    pub(crate) fn keys(&self) -> impl Iterator<Item = LockKey> {
        self.keys.iter().map(|key| LockKey::new(key.clone(), self.sort_key.clone()))
    }
}

#[derive(Debug, clap::Args)]
pub(crate) struct DoctorOptions {
    /// Acquire and release a lock of its own too, and delete its row.
    #[arg(long)]
    pub(crate) write: bool,
    #[command(flatten)]
    pub(crate) format: Format,
}

#[derive(Debug, clap::Args)]
pub(crate) struct OnceResetOptions {
    /// The key of the work, with or without once/ before it.
    #[arg(allow_hyphen_values = true)]
    key: String,
    /// The work's sort key, where the table has one.
    #[arg(long, value_name = "TEXT")]
    sort_key: Option<String>,
    #[command(flatten)]
    pub(crate) decision: Decision,
}

impl OnceResetOptions {
    pub(crate) fn name(&self) -> LockKey {
        LockKey::new(self.key.strip_prefix(ONCE).unwrap_or(&self.key), self.sort_key.clone())
    }
}

#[derive(Debug, clap::Args)]
pub(crate) struct RaiseTokensOptions {
    /// By how much a caller's clock may have been ahead. Tokens become the time after this, in epoch milliseconds.
    #[arg(long, value_parser = duration, default_value = "1h")]
    pub(crate) margin: Duration,
    /// What the tokens become instead.
    #[arg(long, value_name = "TOKEN", conflicts_with = "margin")]
    pub(crate) above: Option<u64>,
    /// Do not ask.
    #[arg(long)]
    pub(crate) yes: bool,
    #[command(flatten)]
    pub(crate) format: Format,
}

/// The largest number that all who read tokens can keep: a state machine keeps 15 digits. A larger token would make every lock
/// useless for good, because tokens only grow.
const LARGEST: u64 = 999_999_999_999_999;

impl RaiseTokensOptions {
    /// What the tokens become.
    pub(crate) fn floor(&self) -> Result<u64, Failure> {
        let later = SystemTime::now().checked_add(self.margin).map(epoch_millis);
        let floor = self.above.or(later).filter(|floor| *floor <= LARGEST);
        floor.ok_or_else(|| {
            Failure::Usage(format!("a token is at most {LARGEST}: give a smaller --above or a shorter --margin"))
        })
    }
}

#[derive(Debug, clap::Args)]
pub(crate) struct HistoryOptions {
    #[command(flatten)]
    pub(crate) key: Key,
    #[command(flatten)]
    pub(crate) format: Format,
}

#[derive(Debug, clap::Args)]
pub(crate) struct TimelineOptions {
    /// The file with the lines of JSON. By default standard input.
    pub(crate) file: Option<PathBuf>,
    /// Draw an SVG instead of text.
    #[arg(long)]
    pub(crate) svg: bool,
    /// How wide the text is.
    #[arg(long, env = "COLUMNS", hide_env_values = true, default_value_t = 100)]
    pub(crate) columns: usize,
}

/// How a lock is acquired.
#[derive(Debug, clap::Args)]
pub(crate) struct HowToAcquire {
    #[command(flatten)]
    pub(crate) key: Key,
    /// For how long the lock is held without a renewal, such as 30s or 5m.
    #[arg(long, value_parser = duration, default_value = "60s")]
    pub(crate) lease: Duration,
    /// How long to wait while another holder has the lock, or DynamoDB does not respond, such as 10m. By default it does not
    /// wait.
    #[arg(long, value_parser = duration, default_value = "0s")]
    pub(crate) wait: Duration,
    /// The owner's name in the row. By default it names this machine, process and call, such as cron-host-3/4711/ef174d5f.
    #[arg(long)]
    pub(crate) owner: Option<String>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct AcquireOptions {
    #[command(flatten)]
    pub(crate) how: HowToAcquire,
}

#[derive(Debug, clap::Args)]
pub(crate) struct RenewOptions {
    /// The file with what acquire printed. By default standard input.
    pub(crate) file: Option<PathBuf>,
    /// A longer lease.
    #[arg(long, value_parser = duration)]
    pub(crate) lease: Option<Duration>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct ReleaseOptions {
    /// The file with what acquire printed. By default standard input.
    pub(crate) file: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) format: Format,
}

#[derive(Debug, clap::Args)]
pub(crate) struct RunOptions {
    #[command(flatten)]
    pub(crate) how: HowToAcquire,
    /// How long the command, and what it started, may still run after SIGTERM: at most a third of the lease. By default 10s, or
    /// a third of the lease if that is less.
    #[arg(long, value_parser = duration)]
    pub(crate) kill_after: Option<Duration>,
    /// Leave the command in the process group of this one, so that it can read from the terminal. After fg it then continues
    /// for a moment before the lock is renewed. Elsewhere than on Linux, what it started is not ended and not stopped with it.
    #[arg(long)]
    pub(crate) foreground: bool,
    /// The command and its arguments.
    #[arg(last = true, required = true)]
    pub(crate) command: Vec<OsString>,
}

/// Reads how much a list may read. Nothing is more than NaN, so a list would never stop.
fn read_units(text: &str) -> Result<f64, String> {
    let units = text.parse().ok().filter(|units: &f64| units.is_finite() && *units > 0.0);
    units.ok_or_else(|| "give a finite number above zero, such as 5000".to_owned())
}

/// Reads the pause between two looks, each of which costs.
fn interval(text: &str) -> Result<Duration, String> {
    let interval = duration(text)?;
    if interval < Duration::from_millis(100) { Err("give 100ms or more".to_owned()) } else { Ok(interval) }
}

/// Reads a duration such as 90s, 5m or 1h 30m.
fn duration(text: &str) -> Result<Duration, String> {
    humantime::parse_duration(text).map_err(|error| format!("{error}: give a number with its unit, such as 30s or 5m"))
}
