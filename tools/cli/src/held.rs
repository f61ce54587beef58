//! `acquire`, `renew` and `release`: a lock that is written down between two commands.

use crate::arguments::{AcquireOptions, HowToAcquire, ReleaseOptions, RenewOptions};
use crate::connection;
use crate::exit::{self, Failure};
use crate::row::prefix_of_work;
use crate::run;
use crate::screen;
use crate::signals::Signals;
use lambda_lock::{Error, ErrorKind, Lock, LockClient, Observation, Refusal, ReleaseOutcome, SavedLock, Tried};
use rustix::process::Signal;
use serde_json::json;
use std::io::{Read, Write};
use std::path::Path;
use std::pin::pin;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// The longest pause between two tries.
const MAX_PAUSE: Duration = Duration::from_secs(1);

pub(crate) async fn acquire(connection: &connection::Options, options: &AcquireOptions) -> Result<ExitCode, Failure> {
    connection.check_sort_key(&options.how.key.key())?;
    let locks = connection.open().await?;
    screen::has_standard_output().map_err(Failure::Unprinted)?;
    let mut signals = Signals::new()?;
    let lock = match acquire_or_end(&locks, &options.how, &mut signals).await? {
        Ok(lock) => lock,
        Err(code) => return Ok(code),
    };
    let (saved, watch) = (lock.to_saved(), lock.watch());
    let printed = tokio::select! {
        biased;
        () = watch.ended() => Err(std::io::Error::other("its lease has ended before it was written")),
        signal = signals.next_ending() => {
            return Ok(run::release(lock, None).await.unwrap_or_else(|| run::end_as_by(signal)));
        }
        printed = screen::aside(move || print(&saved)) => printed,
    };
    match printed {
        Ok(()) => Ok(ExitCode::SUCCESS),
        // Nobody could renew or release it.
        Err(error) => match (run::release(lock, None).await, Failure::Unprinted(error)) {
            (None, unprinted) => Err(unprinted),
            (Some(code), unprinted) => {
                run::complain(&unprinted.to_string());
                Ok(code)
            }
        },
    }
}

pub(crate) async fn renew(connection: &connection::Options, options: &RenewOptions) -> Result<ExitCode, Failure> {
    let (locks, saved) = (connection.open().await?, read(options.file.as_deref())?);
    connection.check_sort_key(&saved.key())?;
    let mut resume = locks.resume(saved);
    if let Some(lease) = options.lease {
        resume = resume.lease(lease);
    }
    // The lock as it was before can be renewed and released too.
    let renewed = resume.await?;
    print(&renewed.to_saved()).map_err(|error| Failure::Untold("the lock was renewed", error))?;
    Ok(ExitCode::SUCCESS)
}

pub(crate) async fn release(connection: &connection::Options, options: &ReleaseOptions) -> Result<ExitCode, Failure> {
    let (locks, saved) = (connection.open().await?, read(options.file.as_deref())?);
    let key = saved.key();
    connection.check_sort_key(&key)?;
    match locks.release(saved).await? {
        ReleaseOutcome::Released if options.format.json => {
            let said = screen::json_of(&key, json!({ "released": true }))?;
            screen::print_done(&said, "the lock was released")?;
        }
        ReleaseOutcome::Released => {}
        ReleaseOutcome::AlreadyGone => {
            return Err(Failure::Lost(format!(
                "\"{key}\" was no longer held in this table: it was lost or broken before, or released already"
            )));
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Waits for the lock. A signal ends the wait: then what to exit with.
pub(crate) async fn acquire_or_end(
    locks: &LockClient,
    how: &HowToAcquire,
    signals: &mut Signals,
) -> Result<Result<Lock, ExitCode>, Failure> {
    let mut waiting = Waiting::new(how);
    tokio::select! {
        blocks_no_work = waiting.blocks_no_work(locks) => blocks_no_work?,
        signal = signals.next_ending() => return waiting.ended_by(signal),
    }
    loop {
        let (outcome, signal) = {
            let mut tried = pin!(waiting.try_once(locks));
            tokio::select! {
                outcome = &mut tried => (outcome, None),
                // It may have been granted already. A second signal does not wait for that.
                signal = signals.next_ending() => tokio::select! {
                    outcome = &mut tried => (outcome, Some(signal)),
                    _ = signals.next_ending() => {
                        run::complain("ended while the lock was being acquired: it may be held until its lease ends");
                        return Ok(Err(ExitCode::from(exit::UNAVAILABLE)));
                    }
                },
            }
        };
        let pause = match (outcome, signal) {
            // Where the answer came late, or this process was stopped meanwhile, it was renewed.
            (Ok(Tried::Granted(lock)), None) => return Ok(Ok(lock)),
            (Ok(Tried::Granted(lock)), Some(signal)) => {
                return Ok(Err(run::release(lock, None).await.unwrap_or_else(|| run::end_as_by(signal))));
            }
            (Ok(Tried::Refused(_)), Some(signal)) => return waiting.ended_by(signal),
            (Ok(Tried::Refused(held)), None) => waiting.pause(held)?,
            (Err(error), None) => waiting.pause_after(error)?,
            // Nothing was applied.
            (Err(error), Some(signal)) if error.kind() == ErrorKind::Unavailable => return waiting.ended_by(signal),
            (Err(error), Some(_)) => return Err(waiting.failed(error.into())),
        };
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            signal = signals.next_ending() => return waiting.ended_by(signal),
        }
    }
}

/// An acquire that tries again and again, for as long as it was told to wait.
struct Waiting<'a> {
    how: &'a HowToAcquire,
    owner: String,
    begun: Instant,
    /// What the tries before have observed, and when.
    seen: Option<(Observation, Instant)>,
    /// A try of which nobody knows whether it got the lock. No later answer tells.
    unknown: Option<Error>,
}

impl<'a> Waiting<'a> {
    fn new(how: &'a HowToAcquire) -> Self {
        let owner = how.owner.clone().unwrap_or_else(owner);
        Self { how, owner, begun: Instant::now(), seen: None, unknown: None }
    }

    /// Fails where the lock would be made in the place of the record of idempotent work.
    async fn blocks_no_work(&self, locks: &LockClient) -> Result<(), Failure> {
        let key = self.how.key.key();
        let Some(prefix) = prefix_of_work(&key) else { return Ok(()) };
        loop {
            let pause = match locks.operator().peek(key.clone()).await {
                Ok(Some(_)) => return Ok(()),
                Ok(None) => break,
                Err(error) => {
                    let may_respond_later = error.is_unknown() || error.kind() == ErrorKind::Unavailable;
                    self.pause_of_try().filter(|_| may_respond_later).ok_or(error)?
                }
            };
            tokio::time::sleep(pause).await;
        }
        Err(Failure::Usage(format!(
            "{} is the key of idempotent work of a client with the prefix {}/: a lock there would block the work. Give another key",
            screen::named_key(&key),
            screen::plain(prefix)
        )))
    }

    async fn try_once(&mut self, locks: &LockClient) -> Result<Tried<Lock>, Error> {
        // It tries again and again instead of waiting in line, so that a signal ends it between two tries.
        let mut request = locks.acquire(self.how.key.key()).owner(&self.owner).lease(self.how.lease).out_of_turn();
        // A try that fails has observed nothing else.
        if let Some((observation, then)) = &self.seen {
            request = request.observation(observation.clone().and_waited(then.elapsed()));
        }
        // It may be held by such a try. A name that was given may be that of others too.
        if self.unknown.is_some() && self.how.owner.is_none() {
            request = request.reclaim_own();
        }
        request.try_once().await
    }

    /// How long to pause before the next try. It fails when the time is over.
    fn pause(&mut self, held: Refusal) -> Result<Duration, Failure> {
        let until_dead = held.retry_after.max(Duration::from_millis(10));
        let Some(pause) = self.pause_of_try() else {
            return Err(self.failed(Failure::Held(self.how.key.key(), Box::new(held))));
        };
        self.seen = Some((held.observation, Instant::now()));
        Ok(pause.min(until_dead))
    }

    /// The same, where DynamoDB does not respond or throttles: it may respond before the time is over.
    fn pause_after(&mut self, error: Error) -> Result<Duration, Failure> {
        let may_respond_later = error.is_unknown() || error.kind() == ErrorKind::Unavailable;
        match self.pause_of_try().filter(|_| may_respond_later) {
            Some(pause) => {
                self.unknown = if error.is_unknown() { Some(error) } else { self.unknown.take() };
                Ok(pause)
            }
            None => Err(self.failed(error.into())),
        }
    }

    /// Why it failed in the end. After a try without an answer only that it is unknown who has the lock.
    fn failed(&mut self, last: Failure) -> Failure {
        match self.unknown.take() {
            Some(unknown) if !matches!(&last, Failure::Lock(error) if error.is_unknown()) => {
                run::complain(&format!("the last try: {last}"));
                unknown.into()
            }
            _ => last,
        }
    }

    /// What to exit with.
    fn ended_by(&mut self, signal: Signal) -> Result<Result<Lock, ExitCode>, Failure> {
        self.unknown.take().map_or_else(|| Ok(Err(run::end_as_by(signal))), |unknown| Err(unknown.into()))
    }

    fn pause_of_try(&self) -> Option<Duration> {
        let left = self.how.wait.saturating_sub(self.begun.elapsed());
        let pause = MAX_PAUSE.mul_f64(0.5 + fastrand::f64() / 2.0);
        (!left.is_zero()).then_some(pause.min(left))
    }
}

/// The name of this machine, process and call, such as `cron-host-3/4711/ef174d5f`.
pub(crate) fn owner() -> String {
    let host = rustix::system::uname();
    format!("{}/{}/{:08x}", host.nodename().to_string_lossy(), std::process::id(), fastrand::u32(..))
}

fn print(lock: &SavedLock) -> std::io::Result<()> {
    let mut out = std::io::stdout();
    writeln!(out, "{}", screen::json(lock)?)?;
    out.flush()
}

fn read(file: Option<&Path>) -> Result<SavedLock, Failure> {
    let text = text_of(file)?;
    if text.trim().is_empty() {
        let what = file.map_or("standard input".to_owned(), |file| file.display().to_string());
        return Err(Failure::Usage(format!(
            "{what} is empty. A shell empties the file behind > before this command reads it: write what renew prints into \
             another file, and then move it"
        )));
    }
    serde_json::from_str(&text).or_else(|error| {
        let wrong = || Failure::Usage(format!("this is not what acquire or renew prints: {error}"));
        serde_json::from_value(with_whole_numbers(&text).ok_or_else(wrong)?).map_err(|_| wrong())
    })
}

/// A saved lock that went through a program which writes all numbers with a fraction, as lock-task takes it too.
fn with_whole_numbers(text: &str) -> Option<serde_json::Value> {
    let mut saved = serde_json::from_str::<serde_json::Value>(text).ok()?;
    for name in ["fencingToken", "leaseEndsAt"] {
        let number = saved.get_mut(name)?;
        if let Some(float) = number.as_f64().filter(|float| float.fract() == 0.0 && (0.0..9.0e15).contains(float)) {
            *number = (float as u64).into();
        }
    }
    Some(saved)
}

/// What a file or standard input has, without the mark with which some editors begin a file.
pub(crate) fn text_of(file: Option<&Path>) -> Result<String, Failure> {
    let mut text = match file {
        Some(path) => std::fs::read_to_string(path)
            .map_err(|error| Failure::Usage(format!("{} cannot be read: {error}", path.display())))?,
        None => {
            let mut text = String::new();
            std::io::stdin().read_to_string(&mut text)?;
            text
        }
    };
    if text.starts_with(MARK) {
        text.drain(..MARK.len_utf8());
    }
    Ok(text)
}

const MARK: char = '\u{feff}';
