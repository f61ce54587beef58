//! `watch`: looks at locks again and again, and tells what changed.

use crate::arguments::WatchOptions;
use crate::changes::{between, event};
use crate::connection;
use crate::exit::{self, Failure};
use crate::record;
use crate::row::State;
use crate::screen;
use crate::signals::Signals;
use lambda_lock::{ErrorKind, ListedRow, LockClient, LockKey, PeekedLock};
use lambda_lock_timeline::Change;
use std::collections::HashMap;
use std::process::ExitCode;
use std::time::{Instant, SystemTime};

type Locks = HashMap<LockKey, PeekedLock>;

pub(crate) async fn watch(connection: &connection::Options, options: &WatchOptions) -> Result<ExitCode, Failure> {
    let locks = connection.open().await?;
    let (mut signals, begun) = (Signals::new()?, Instant::now());
    let mut out = anstream::stdout();
    let mut before = tokio::select! {
        before = look(&locks, options) => before?,
        _ = signals.next_ending() => return Ok(ExitCode::SUCCESS),
    };
    for (key, lock) in before.iter().filter(|(_, lock)| !lock.released) {
        let now = SystemTime::now();
        let change = match State::of(lock, now, connection.max_clock_skew()) {
            State::Dead => Change::Dead,
            _ => Change::Held,
        };
        record::write(&mut out, &event(key, change, lock, now), options.format.json)?;
    }
    while options.duration.is_none_or(|duration| begun.elapsed() < duration) {
        tokio::select! {
            () = tokio::time::sleep(options.interval) => {}
            _ = signals.next_ending() => break,
        }
        let after = tokio::select! {
            after = look(&locks, options) => after,
            _ = signals.next_ending() => break,
        };
        let after = match after {
            Ok(after) => after,
            // The next look may see it. What happened meanwhile is told then.
            Err(Failure::Lock(error)) if matches!(error.kind(), ErrorKind::Unknown | ErrorKind::Unavailable) => {
                screen::tell(screen::plain(&exit::with_reasons(&error)));
                continue;
            }
            Err(failure) => return Err(failure),
        };
        let now = SystemTime::now();
        let keys = after.keys().chain(before.keys().filter(|key| !after.contains_key(key)));
        let mut events: Vec<_> = keys.filter_map(|key| between(key, before.get(key), after.get(key), now)).collect();
        events.sort_by_key(|event| event.at);
        for event in events {
            record::write(&mut out, &event, options.format.json)?;
        }
        before = after;
    }
    Ok(ExitCode::SUCCESS)
}

/// The locks that are watched: those that were named, or all.
async fn look(locks: &LockClient, options: &WatchOptions) -> Result<Locks, Failure> {
    let mut found = HashMap::new();
    for key in &options.keys {
        let key = LockKey::new(key.clone(), options.sort_key.clone());
        if let Some(lock) = locks.peek(key.clone()).await? {
            found.insert(key, lock);
        }
    }
    if options.keys.is_empty() {
        let mut pages = locks.list();
        while let Some(page) = pages.next().await? {
            for listed in page.rows {
                if let ListedRow::Lock(lock) = listed.row {
                    found.insert(listed.key, lock);
                }
            }
        }
    }
    Ok(found)
}
