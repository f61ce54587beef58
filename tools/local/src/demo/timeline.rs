//! Who waited for the lock, held it, lost it and took it over: the timeline of the demo.

use super::crew::WorkerId;
use super::message::Event as Said;
use super::{LOCK_KEY, screen};
use anyhow::Context;
use lambda_lock_timeline::{Change, Event, svg, text};
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

/// As wide as the other lines of the demo.
const COLUMNS: usize = 110;

/// What the workers report about the lock.
#[derive(Debug, Default)]
pub(crate) struct Timeline(Vec<Event>);

impl Timeline {
    pub(crate) fn note(&mut self, worker: WorkerId, said: &Said) -> anyhow::Result<()> {
        let (change, at, fencing_token, lease_ends_at) = match *said {
            Said::Waits { at } => (Change::Waiting, at, None, None),
            Said::Acquired { token, at, lease_ends_at } => (Change::Granted, at, Some(token), Some(lease_ends_at)),
            Said::Released { token, at, already_gone: false } => (Change::Released, at, Some(token), Some(at)),
            _ => return Ok(()),
        };
        self.0.push(Event {
            at: epoch_millis(at)?,
            key: LOCK_KEY.to_owned(),
            change,
            holder: worker.to_string(),
            fencing_token,
            lease_ends_at: lease_ends_at.map(epoch_millis).transpose()?,
            reason: None,
        });
        Ok(())
    }

    /// In the order of time. The events of two workers arrive in any order.
    pub(crate) fn events(mut self) -> Vec<Event> {
        self.0.sort_by_key(|event| event.at);
        let mut is_held = false;
        for event in &mut self.0 {
            match event.change {
                Change::Granted if is_held => event.change = Change::TakenOver,
                Change::Granted => is_held = true,
                Change::Released => is_held = false,
                _ => {}
            }
        }
        self.0
    }
}

/// Prints the timeline, and draws it into a file. What is drawn is written beside it, as `lambda-lock timeline` reads it.
pub(crate) fn show(events: &[Event], picture: Option<&Path>) -> anyhow::Result<()> {
    screen::drawing("Who had the lock, over time", &text(events, COLUMNS));
    let Some(picture) = picture else { return Ok(()) };
    let mut record = String::new();
    for event in events {
        record += &format!("{}\n", serde_json::to_string(event)?);
    }
    for (path, content) in [(picture.to_owned(), svg(events) + "\n"), (picture.with_extension("jsonl"), record)] {
        std::fs::write(&path, content).with_context(|| format!("{} cannot be written", path.display()))?;
    }
    Ok(())
}

fn epoch_millis(at: SystemTime) -> anyhow::Result<u64> {
    Ok(at.duration_since(UNIX_EPOCH)?.as_millis().try_into()?)
}
