//! `watch`: looks at locks again and again, and tells what changed.

use crate::arguments::WatchOptions;
use crate::changes::{Between, Image, between, event, of_freeze};
use crate::connection;
use crate::exit::{self, Failure};
use crate::record;
use crate::row::State;
use crate::screen::{self, LAST_WORDS};
use crate::show::of_work;
use crate::signals::Signals;
use lambda_lock::{ErrorKind, LockClient, LockKey, operator::ListedRow};
use lambda_lock_timeline::{Change, Event};
use std::collections::HashMap;
use std::process::ExitCode;
use std::time::{Duration, Instant, SystemTime};
use tokio::time::{sleep, timeout};

type Rows = HashMap<LockKey, Image>;

pub(crate) async fn watch(connection: &connection::Options, options: &WatchOptions) -> Result<ExitCode, Failure> {
    options.keys().try_for_each(|key| connection.check_sort_key(&key))?;
    let locks = connection.open().await?;
    let mut signals = Signals::new()?;
    tokio::select! {
        watched = watch_until_it_is_over(&locks, connection, options) => watched?,
        _ = signals.next_ending() => {}
    }
    Ok(ExitCode::SUCCESS)
}

async fn watch_until_it_is_over(
    locks: &LockClient,
    connection: &connection::Options,
    options: &WatchOptions,
) -> Result<(), Failure> {
    let (begun, json) = (Instant::now(), options.format.json);
    let mut before: Option<Rows> = None;
    loop {
        let looked = look_again(locks, options, before.as_ref()).await;
        let now = SystemTime::now();
        let (events, wrong) = match looked {
            Ok(after) => {
                let events = match &before {
                    None => first_seen(&after, connection, now),
                    Some(before) => changed(before, &after, now),
                };
                before = Some(after);
                (events, None)
            }
            // The next look may see it. What happened meanwhile is told then.
            Err(Failure::Lock(error)) if matches!(error.kind(), ErrorKind::Unknown | ErrorKind::Unavailable) => {
                if before.is_none() && left(options, begun).is_zero() {
                    return Err(Failure::Lock(error));
                }
                (Vec::new(), Some(screen::plain(&exit::with_reasons(&error))))
            }
            Err(failure) => return Err(failure),
        };
        let told = screen::aside(move || {
            wrong.iter().for_each(screen::tell);
            let mut out = anstream::stdout();
            events.iter().try_for_each(|event| record::write(&mut out, event, json))
        });
        // Nobody may read it.
        let Ok(told) = timeout(left(options, begun).max(LAST_WORDS), told).await else { return Ok(()) };
        told?;
        let left = left(options, begun);
        if left.is_zero() {
            return Ok(());
        }
        // The last look is at the end of the time.
        sleep(left.min(options.interval)).await;
    }
}

fn left(options: &WatchOptions, begun: Instant) -> Duration {
    options.duration.map_or(Duration::MAX, |duration| duration.saturating_sub(begun.elapsed()))
}

/// What there is at the first look.
fn first_seen(rows: &Rows, connection: &connection::Options, now: SystemTime) -> Vec<Event> {
    let mut first: Vec<_> = rows.iter().collect();
    first.sort_by_key(|(key, _)| (key.key(), key.sort_key()));
    let events = first.into_iter().flat_map(|(key, image)| {
        let Image::Lock(lock) = image else { return Vec::new() };
        let held = match State::of(lock, now, connection.max_clock_skew()) {
            State::Released => None,
            State::Dead => Some(event(key, Change::Dead, lock, now)),
            _ => Some(event(key, Change::Held, lock, now)),
        };
        let frozen = lock.freeze_reason.as_ref().map(|_| of_freeze(key, Change::Frozen, lock, now));
        held.into_iter().chain(frozen).collect()
    });
    events.collect()
}

/// What has changed between two looks.
fn changed(before: &Rows, after: &Rows, now: SystemTime) -> Vec<Event> {
    let keys = after.keys().chain(before.keys().filter(|key| !after.contains_key(key)));
    let mut events: Vec<Vec<_>> =
        keys.map(|key| between(key, image(before, key), image(after, key), Between::Looks, now)).collect();
    // Those of one lock stay in their order.
    events.sort_by_key(|of_key| of_key.first().map(|event: &Event| event.at));
    events.into_iter().flatten().collect()
}

fn image<'a>(rows: &'a Rows, key: &LockKey) -> &'a Image {
    rows.get(key).unwrap_or(&Image::Missing)
}

/// Looks, and tells work that was settled from a row that was deleted.
async fn look_again(locks: &LockClient, options: &WatchOptions, before: Option<&Rows>) -> Result<Rows, Failure> {
    let mut found = look(locks, options).await?;
    let Some(before) = before else { return Ok(found) };
    for key in options.keys() {
        let was_there = matches!(before.get(&key), Some(Image::Lock(_) | Image::Settled));
        if was_there && !found.contains_key(&key) && of_work(locks, &key).await?.is_some() {
            found.insert(key, Image::Settled);
        }
    }
    Ok(found)
}

/// The locks that are watched: those that were named, or all.
async fn look(locks: &LockClient, options: &WatchOptions) -> Result<Rows, Failure> {
    let mut found = Rows::new();
    for key in options.keys() {
        let image = match locks.operator().peek(key.clone()).await {
            Ok(Some(lock)) => Image::Lock(Box::new(lock)),
            Ok(None) => continue,
            Err(error) if error.kind() == ErrorKind::InvalidRecord => Image::Other,
            Err(error) => return Err(error.into()),
        };
        found.insert(key, image);
    }
    if options.keys.is_empty() {
        let mut pages = locks.operator().list();
        while let Some(page) = pages.next().await? {
            for listed in page.rows {
                let image = match listed.row {
                    ListedRow::Lock(lock) => Image::Lock(Box::new(lock)),
                    ListedRow::Outcome => Image::Settled,
                    _ => Image::Other,
                };
                found.insert(listed.key, image);
            }
        }
    }
    Ok(found)
}
