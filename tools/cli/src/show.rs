//! `show`: everything that is known about one lock, in sentences.

use crate::arguments::ShowOptions;
use crate::connection;
use crate::execution::Execution;
use crate::exit::Failure;
use crate::row::{ONCE, Row, State, epoch_millis, from_epoch_millis, work_of};
use crate::screen::{self, DOUBTFUL, STRONG, named_key, plain, span, time};
use crate::words::Said;
use lambda_lock::once::{OnceState, OnceStatus};
use lambda_lock::{Attribute, ErrorKind, LockClient, LockKey, operator::PeekedLock};
use serde::Serialize;
use std::io::Write;
use std::process::ExitCode;
use std::time::{Duration, SystemTime};

/// What `--json` prints.
#[derive(Serialize)]
struct Shown<'a> {
    key: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    work: Option<Work>,
    /// `null` where the lock has no row.
    lock: Option<Row>,
    /// Where the key is the name of a semaphore: the rows of its places.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    places: Vec<Row>,
    /// Where the holder is an execution of Step Functions.
    #[serde(skip_serializing_if = "Option::is_none")]
    execution: Option<Execution>,
}

/// The record of idempotent work. Times are in epoch milliseconds.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Work {
    state: &'static str,
    attempts: u64,
    /// With which failure it failed for good, as JSON.
    #[serde(skip_serializing_if = "Option::is_none")]
    failure: Option<String>,
    /// Why it was reset last.
    #[serde(skip_serializing_if = "Option::is_none")]
    reset_reason: Option<String>,
    first_seen_at: Option<u64>,
    settled_at: Option<u64>,
    kept_until: Option<u64>,
}

impl Work {
    fn of(work: &OnceStatus) -> Self {
        Self {
            state: settled(work).unwrap_or("open"),
            attempts: work.attempts,
            failure: work.failure.clone(),
            reset_reason: work.reset_reason.clone(),
            first_seen_at: work.first_seen_at.map(epoch_millis),
            settled_at: work.settled_at.map(epoch_millis),
            kept_until: work.kept_until.map(epoch_millis),
        }
    }
}

pub(crate) async fn show(connection: &connection::Options, options: &ShowOptions) -> Result<ExitCode, Failure> {
    let (locks, json) = (connection.open().await?, options.format.json);
    let typed = options.key.key();
    connection.check_sort_key(&typed)?;
    let mut out = anstream::stdout().lock();
    let Rows { key, work, lock, places } = Rows::of(&locks, &typed).await?;
    let now = SystemTime::now();
    let state_of = |lock: &PeekedLock| State::of(lock, now, connection.max_clock_skew());
    let state = lock.as_ref().map(state_of);
    let execution = match lock.as_ref().filter(|lock| !lock.released).and_then(|lock| lock.workflow.as_deref()) {
        Some(workflow) => Execution::of(connection, workflow).await,
        None => None,
    };
    if json {
        let shown = Shown {
            key: key.key(),
            work: work.as_ref().map(Work::of),
            lock: lock.as_ref().zip(state).map(|(lock, state)| Row::of_lock(&key, lock, state).with_attributes(lock)),
            places: places.iter().map(|(key, place)| Row::of_lock(key, place, state_of(place))).collect(),
            execution,
        };
        writeln!(out, "{}", screen::json(&shown)?)?;
        return Ok(ExitCode::SUCCESS);
    }
    if key != typed {
        let typed = named_key(&typed);
        writeln!(out, "{STRONG}{typed}{STRONG:#} has no row, but it is the name of idempotent work:")?;
    }
    if let Some(work) = &work {
        write_work(&mut out, &key, work)?;
    }
    match lock.as_ref().zip(state) {
        Some((lock, state)) => {
            write_lock(&mut out, &key, lock, state, now)?;
            if let Some(execution) = &execution {
                write_execution(&mut out, execution)?;
            }
            writeln!(out, "{}", advice(lock, state, connection.max_clock_skew()))?;
        }
        None if work.is_some() => {}
        None if !places.is_empty() => {
            let key = named_key(&key);
            writeln!(out, "{STRONG}{key}{STRONG:#} has no row, but it is the name of a semaphore:")?;
            for (key, place) in &places {
                let said = Said::of(place, state_of(place));
                writeln!(out, "  {STRONG}{}{STRONG:#} {}", named_key(key), said.of_holder(&place.holder))?;
                if let Some((who, reason)) = said.while_frozen().zip(place.freeze_reason.as_ref()) {
                    writeln!(out, "    {who} It is frozen, because: {}", plain(reason))?;
                }
            }
            writeln!(
                out,
                "A place without a row is free, if the semaphore has it. Look at one of them with its own key."
            )?;
        }
        None => {
            let key = named_key(&key);
            writeln!(out, "{STRONG}{key}{STRONG:#} has no row: nobody holds it. The next acquire gets it.")?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// What there is under a key, or under the key that a name stands for.
struct Rows {
    key: LockKey,
    work: Option<OnceStatus>,
    lock: Option<PeekedLock>,
    places: Vec<(LockKey, PeekedLock)>,
}

impl Rows {
    async fn of(locks: &LockClient, typed: &LockKey) -> Result<Self, Failure> {
        let rows = Self::under(locks, typed.clone()).await?;
        if rows.work.is_some() || rows.lock.is_some() || work_of(typed.key()).is_some() {
            return Ok(rows);
        }
        // The name of work, of a client without a prefix or with one.
        let name = typed.key();
        let begins = std::iter::once(0).chain(name.match_indices('/').map(|(at, _)| at + 1));
        for (prefix, name) in begins.map(|at| name.split_at(at)) {
            let key = LockKey::new(format!("{prefix}{ONCE}{name}"), typed.sort_key().map(str::to_owned));
            match Self::under(locks, key).await {
                Ok(rows) if rows.work.is_some() => return Ok(rows),
                Ok(_) => {}
                // No work can have this name.
                Err(Failure::Lock(error)) if error.kind() == ErrorKind::InvalidRequest => {}
                Err(failure) => return Err(failure),
            }
        }
        Ok(Self { places: places(locks, typed).await?, ..rows })
    }

    async fn under(locks: &LockClient, key: LockKey) -> Result<Self, Failure> {
        let work = match of_work(locks, &key).await {
            // Where a prefix could be before once/, the row says whether it is work.
            Err(Failure::Lock(error)) if error.kind() == ErrorKind::InvalidRecord && !key.key().starts_with(ONCE) => {
                None
            }
            work => work?,
        };
        // Work that has an outcome is no lock any more.
        let lock =
            if work.as_ref().and_then(settled).is_none() { locks.operator().peek(key.clone()).await? } else { None };
        Ok(Self { key, work, lock, places: Vec::new() })
    }
}

pub(crate) async fn of_work(locks: &LockClient, key: &LockKey) -> Result<Option<OnceStatus>, Failure> {
    let Some((prefix, name)) = work_of(key.key()) else { return Ok(None) };
    let name = LockKey::new(name, key.sort_key().map(str::to_owned));
    if prefix.is_empty() {
        return Ok(locks.once(name).status().await?);
    }
    match locks.prefixed(prefix) {
        Ok(prefixed) => Ok(prefixed.once(name).status().await?),
        // No client has such a prefix.
        Err(_) => Ok(None),
    }
}

/// So many places are looked for in one request, as their number is not known here.
const PLACES: u32 = 100;
/// And so many where only single rows may be read.
const SINGLE_PLACES: u32 = 10;

/// The places of a semaphore that have rows. Its callers take one at random.
async fn places(locks: &LockClient, name: &LockKey) -> Result<Vec<(LockKey, PeekedLock)>, Failure> {
    let key_of = |place: u32| LockKey::new(format!("{}/{place}", name.key()), name.sort_key().map(str::to_owned));
    let found = match locks.semaphore(name.clone(), PLACES).peek().await {
        Ok(found) => found,
        Err(error) if error.kind() == ErrorKind::Denied => {
            let mut found = Vec::new();
            for place in 0..SINGLE_PLACES {
                found.push(locks.operator().peek(key_of(place)).await?);
            }
            found
        }
        // No semaphore can have this name.
        Err(error) if error.kind() == ErrorKind::InvalidRequest => Vec::new(),
        Err(error) => return Err(error.into()),
    };
    Ok((0..).zip(found).filter_map(|(place, lock)| Some((key_of(place), lock?))).collect())
}

/// The word for work that has an outcome.
fn settled(work: &OnceStatus) -> Option<&'static str> {
    match work.state {
        OnceState::Done => Some("done"),
        OnceState::Failed => Some("failed"),
        _ => None,
    }
}

fn write_work(out: &mut impl Write, key: &LockKey, work: &OnceStatus) -> std::io::Result<()> {
    let name = plain(key.key());
    let sort_key =
        key.sort_key().map(|sort_key| format!(" --sort-key {}", in_a_shell(&plain(sort_key)))).unwrap_or_default();
    let key = named_key(key);
    let attempts = if work.attempts == 1 { "1 attempt".to_owned() } else { format!("{} attempts", work.attempts) };
    match settled(work) {
        Some(state) => writeln!(out, "{STRONG}{key}{STRONG:#} is idempotent work, and {state} after {attempts}.")?,
        None => writeln!(out, "{STRONG}{key}{STRONG:#} is idempotent work without an outcome, after {attempts}.")?,
    }
    if let Some(reason) = &work.reset_reason {
        writeln!(out, "  last reset, because: {}", plain(reason))?;
    }
    if let Some(failure) = &work.failure {
        writeln!(out, "  failure: {}", plain(failure))?;
    }
    for (what, at) in
        [("first requested", work.first_seen_at), ("settled", work.settled_at), ("kept until", work.kept_until)]
    {
        if let Some(at) = at {
            writeln!(out, "  {what}: {}", time(at))?;
        }
    }
    if work.state == OnceState::Failed {
        writeln!(
            out,
            "Its callers get this failure. To allow the work again: lambda-lock once-reset {}{sort_key} --reason TEXT",
            in_a_shell(&name)
        )?;
    }
    Ok(())
}

/// As an argument in a shell.
fn in_a_shell(text: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-:@".contains(c);
    if !text.is_empty() && text.chars().all(is_plain) {
        text.to_owned()
    } else {
        format!("'{}'", text.replace('\'', "'\\''"))
    }
}

fn write_lock(
    out: &mut impl Write,
    key: &LockKey,
    lock: &PeekedLock,
    state: State,
    now: SystemTime,
) -> std::io::Result<()> {
    writeln!(out, "{STRONG}{}{STRONG:#} {}", named_key(key), Said::of(lock, state).of_holder(&lock.holder))?;
    write_times(out, lock, state, now)?;
    if let Some(token) = lock.fencing_token {
        writeln!(out, "  fencing token: {token}")?;
    }
    match lock.waiting {
        0 => {}
        1 => writeln!(out, "  1 caller waits in line. It may be gone.")?,
        waiting => writeln!(out, "  {waiting} callers wait in line. Some of them may be gone.")?,
    }
    if let Some(workflow) = &lock.workflow {
        writeln!(out, "  workflow: {}", plain(workflow))?;
    }
    if let Some(reason) = &lock.freeze_reason {
        let since = lock.freeze_changed_at.map(|at| format!(" since {}", time(at))).unwrap_or_default();
        writeln!(out, "  {DOUBTFUL}frozen{DOUBTFUL:#}{since}, because: {}", plain(reason))?;
    }
    if let Some(reason) = &lock.break_reason {
        writeln!(out, "  last broken, because: {}", plain(reason))?;
    }
    writeln!(out, "  version: {}", plain(&lock.version))?;
    let shown = |(name, value): (&String, &Attribute)| match value {
        Attribute::Text(value) | Attribute::Number(value) => Some(format!("    {}: {}", plain(name), plain(value))),
        _ => None,
    };
    let shown: Vec<_> = lock.attributes.iter().filter_map(shown).collect();
    if !shown.is_empty() {
        writeln!(out, "  attributes:")?;
    }
    shown.iter().try_for_each(|line| writeln!(out, "{line}"))
}

fn write_execution(out: &mut impl Write, execution: &Execution) -> std::io::Result<()> {
    let at = |millis: Option<u64>| millis.and_then(from_epoch_millis).map(time).unwrap_or_default();
    match execution {
        Execution::Unknown { unknown } => writeln!(out, "  its execution is unknown: {}", plain(unknown)),
        Execution::Known { status, stopped_at, .. } if execution.has_ended() => {
            let (status, at) = (plain(status), at(*stopped_at));
            writeln!(
                out,
                "  its execution: {DOUBTFUL}{status}{DOUBTFUL:#} since {at}. It does not renew the lock any more."
            )?;
            writeln!(out, "    What its last state started may still run.")
        }
        Execution::Known { status, started_at, .. } => {
            writeln!(out, "  its execution: {}, started {}", plain(status), at(*started_at))
        }
    }
}

fn write_times(out: &mut impl Write, lock: &PeekedLock, state: State, now: SystemTime) -> std::io::Result<()> {
    let ago = |at: SystemTime| span(now.duration_since(at).unwrap_or_default());
    if let Some(at) = lock.renewed_at {
        writeln!(out, "  acquired or renewed: {}, {} ago", time(at), ago(at))?;
    }
    match (state, lock.lease_ends_at) {
        (State::Released, Some(at)) => writeln!(out, "  released: {}, {} ago", time(at), ago(at)),
        (_, Some(at)) => match at.duration_since(now) {
            Ok(left) => writeln!(out, "  lease of {} ends: {}, in {}", span(lock.lease), time(at), span(left)),
            Err(_) => writeln!(out, "  lease of {} ended: {}, {} ago", span(lock.lease), time(at), ago(at)),
        },
        (_, None) => writeln!(out, "  lease: {}", span(lock.lease)),
    }
}

/// What a caller would have to do.
fn advice(lock: &PeekedLock, state: State, max_clock_skew: Option<Duration>) -> String {
    let skew = max_clock_skew.map(span).unwrap_or_default();
    if let Some(who) = Said::of(lock, state).while_frozen() {
        return who.to_owned();
    }
    match (state, lock.lease_ends_at.and(max_clock_skew)) {
        (State::Released, _) if lock.waiting > 0 => {
            "Those in line get it first. The next acquire gets it if none of them comes within some seconds of the release."
                .to_owned()
        }
        (State::Released, _) => "The next acquire gets it.".to_owned(),
        (State::Dead, _) if lock.waiting > 0 => format!(
            "Its lease ended more than {skew} ago, so the first in line takes it over. If none of them comes within some \
             seconds, the next acquire does. A break is not needed."
        ),
        (State::Dead, _) => {
            format!("Its lease ended more than {skew} ago, so the next acquire takes it over. A break is not needed.")
        }
        (_, Some(_)) => format!(
            "A caller has to wait until it is released, or until {skew} after the end of its lease if it is not renewed. \
             Look again to see whether it is renewed, before you break it."
        ),
        (_, None) => format!(
            "No wall clock counts for it. It is dead when its version stays the same for {}. An acquire that waits for so \
             long sees that, and takes it over.",
            span(lock.lease)
        ),
    }
}
