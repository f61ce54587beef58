//! What each holder did, and from when to when.

use crate::event::{Change, Event};

/// The line of one holder of one lock.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Lane<'a> {
    pub(crate) key: &'a str,
    pub(crate) holder: &'a str,
    pub(crate) spans: Vec<Span>,
}

impl Lane<'_> {
    /// What the lane is called. A name from a table may hold anything, and must change neither a terminal nor a picture.
    pub(crate) fn label(&self) -> String {
        let printable = |c: char| if c.is_control() { char::REPLACEMENT_CHARACTER } else { c };
        format!("{} {}", self.key, self.holder).chars().map(printable).collect()
    }
}

/// A part of a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) what: What,
    pub(crate) from: u64,
    pub(crate) to: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum What {
    Waiting,
    Held,
    /// The lease is over, and nobody has the lock yet.
    Dead,
}

/// A holder that has not come to an end yet.
struct Open {
    lane: usize,
    what: What,
    from: u64,
    lease_ends_at: Option<u64>,
}

/// The lanes in the order of their first events, and the time that they cover.
pub(crate) fn lanes(events: &[Event]) -> (Vec<Lane<'_>>, u64, u64) {
    let mut sorted: Vec<_> = events.iter().collect();
    sorted.sort_by_key(|event| event.at);
    let (begin, end) = match (sorted.first(), sorted.last()) {
        (Some(first), Some(last)) => (first.at, last.at),
        _ => return (Vec::new(), 0, 0),
    };
    let mut lanes: Vec<Lane<'_>> = Vec::new();
    let mut open: Vec<Open> = Vec::new();
    for event in sorted {
        let lane = lane_of(&mut lanes, event);
        match event.change {
            Change::Waiting => open.push(Open { lane, what: What::Waiting, from: event.at, lease_ends_at: None }),
            Change::Refused => {
                close(&mut lanes, &mut open, event.at, |one| one.lane == lane && one.what == What::Waiting)
            }
            Change::Granted | Change::TakenOver | Change::Held => {
                let key = event.key.as_str();
                let of_key: Vec<_> = lanes.iter().map(|lane| lane.key == key).collect();
                // Its own waiting ends, and so does whoever held it before.
                close(&mut lanes, &mut open, event.at, |one| {
                    one.lane == lane || one.what == What::Held && of_key[one.lane]
                });
                open.push(Open { lane, what: What::Held, from: event.at, lease_ends_at: event.lease_ends_at });
            }
            Change::Renewed => match open.iter_mut().find(|one| one.lane == lane && one.what == What::Held) {
                Some(held) => held.lease_ends_at = event.lease_ends_at,
                // The record began later.
                None => {
                    open.push(Open { lane, what: What::Held, from: begin, lease_ends_at: event.lease_ends_at });
                }
            },
            Change::Released | Change::Broken | Change::Settled | Change::Deleted => {
                close(&mut lanes, &mut open, event.at, |one| one.lane == lane && one.what == What::Held);
            }
        }
    }
    close(&mut lanes, &mut open, end, |_| true);
    (lanes, begin, end)
}

fn lane_of<'a>(lanes: &mut Vec<Lane<'a>>, event: &'a Event) -> usize {
    let found = lanes.iter().position(|lane| lane.key == event.key && lane.holder == event.holder);
    found.unwrap_or_else(|| {
        lanes.push(Lane { key: &event.key, holder: &event.holder, spans: Vec::new() });
        lanes.len() - 1
    })
}

fn close(lanes: &mut [Lane<'_>], open: &mut Vec<Open>, at: u64, which: impl Fn(&Open) -> bool) {
    for Open { lane, what, from, lease_ends_at } in open.extract_if(.., |one| which(one)) {
        let spans = &mut lanes[lane].spans;
        match lease_ends_at.filter(|end| what == What::Held && (from..at).contains(end)) {
            Some(end) => {
                spans.push(Span { what, from, to: end });
                spans.push(Span { what: What::Dead, from: end, to: at });
            }
            None => spans.push(Span { what, from, to: at }),
        }
    }
}
