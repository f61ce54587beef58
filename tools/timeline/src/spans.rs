//! What each holder did, and from when to when.

use crate::event::{Change, Event};
use std::collections::HashMap;

/// Who did what with the locks of some events, over time.
#[derive(Debug, Default)]
pub(crate) struct Drawing<'a> {
    /// In the order of their first events.
    pub(crate) lanes: Vec<Lane<'a>>,
    pub(crate) begin: u64,
    pub(crate) end: u64,
}

/// The line of one holder of one lock.
#[derive(Debug)]
pub(crate) struct Lane<'a> {
    pub(crate) key: &'a str,
    pub(crate) holder: &'a str,
    pub(crate) spans: Vec<Span>,
    pub(crate) marks: Vec<Mark>,
    waits_since: Option<u64>,
    holds: Option<Hold>,
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

/// A moment in a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mark {
    /// Somebody else took the lock over, or broke it.
    Lost(u64),
    /// It took the lock over from the holder in another lane.
    TookOver { at: u64, from: usize },
}

/// A grant that has not come to an end yet.
#[derive(Clone, Copy, Debug)]
struct Hold {
    from: u64,
    lease_ends_at: Option<u64>,
}

impl<'a> Lane<'a> {
    fn of(event: &'a Event) -> Self {
        let (key, holder) = (event.key.as_str(), event.holder.as_str());
        Self { key, holder, spans: Vec::new(), marks: Vec::new(), waits_since: None, holds: None }
    }

    /// What the lane is called, in this many characters at most. A name from a table may hold anything, and must change
    /// neither a terminal nor a picture.
    pub(crate) fn label(&self, most: usize) -> String {
        let is_hidden = |c: char| c.is_control() || c.escape_debug().len() > 2;
        let printable = |c| if is_hidden(c) { char::REPLACEMENT_CHARACTER } else { c };
        let label: Vec<_> = self.key.chars().chain([' ']).chain(self.holder.chars()).map(printable).collect();
        if label.len() <= most {
            return label.into_iter().collect();
        }
        // The key is at its beginning, and what tells owners apart is at its end.
        let (head, tail) = (most / 2, most.saturating_sub(most / 2 + 1));
        label[..head].iter().chain(&['…']).chain(&label[label.len() - tail..]).collect()
    }

    fn end_waiting(&mut self, at: u64) {
        if let Some(from) = self.waits_since.take() {
            self.spans.push(Span { what: What::Waiting, from, to: at });
        }
    }

    fn end_hold(&mut self, at: u64) {
        let Some(Hold { from, lease_ends_at }) = self.holds.take() else { return };
        match lease_ends_at.filter(|end| (from..at).contains(end)) {
            Some(end) => {
                if from < end {
                    self.spans.push(Span { what: What::Held, from, to: end });
                }
                self.spans.push(Span { what: What::Dead, from: end, to: at });
            }
            None => self.spans.push(Span { what: What::Held, from, to: at }),
        }
    }
}

impl<'a> Drawing<'a> {
    pub(crate) fn of(events: &'a [Event]) -> Self {
        // A freeze changes nobody's hold, and its row may have had no holder at all.
        let is_drawn = |event: &&Event| !matches!(event.change, Change::Frozen | Change::Thawed | Change::Reset);
        let mut sorted: Vec<_> = events.iter().filter(is_drawn).collect();
        sorted.sort_by_key(|event| event.at);
        let (Some(first), Some(last)) = (sorted.first(), sorted.last()) else { return Self::default() };
        let mut drawing = Self { lanes: Vec::new(), begin: first.at, end: last.at };
        // The lane of each holder, and the lane that has the lock.
        let (mut numbers, mut has) = (HashMap::new(), HashMap::new());
        for event in sorted {
            let lane = *numbers.entry((&event.key, &event.holder)).or_insert_with(|| {
                drawing.lanes.push(Lane::of(event));
                drawing.lanes.len() - 1
            });
            drawing.add(event, lane, &mut has);
        }
        for lane in &mut drawing.lanes {
            lane.end_waiting(drawing.end);
            lane.end_hold(drawing.end);
        }
        drawing
    }

    fn add(&mut self, event: &'a Event, lane: usize, has: &mut HashMap<&'a str, usize>) {
        let &Event { at, change, lease_ends_at, .. } = event;
        let one = &mut self.lanes[lane];
        match change {
            Change::Waiting => {
                one.waits_since.get_or_insert(at);
            }
            Change::Refused => one.end_waiting(at),
            Change::Granted | Change::TakenOver | Change::Held | Change::Dead => {
                one.end_waiting(at);
                if let Some(before) = has.insert(&event.key, lane) {
                    self.lanes[before].end_hold(at);
                    if change == Change::TakenOver && before != lane {
                        self.lanes[before].marks.push(Mark::Lost(at));
                        self.lanes[lane].marks.push(Mark::TookOver { at, from: before });
                    }
                }
                let lease_ends_at = if change == Change::Dead { Some(at) } else { lease_ends_at };
                self.lanes[lane].holds = Some(Hold { from: at, lease_ends_at });
            }
            Change::Renewed => match &mut one.holds {
                Some(hold) => hold.lease_ends_at = lease_ends_at,
                // The record began later.
                None => {
                    let from = if one.spans.is_empty() { self.begin } else { at };
                    one.holds = Some(Hold { from, lease_ends_at });
                    if let Some(before) = has.insert(&event.key, lane) {
                        self.lanes[before].end_hold(at);
                    }
                }
            },
            Change::Frozen | Change::Thawed | Change::Reset => {}
            Change::Released | Change::Broken | Change::Settled | Change::Deleted => {
                if one.holds.is_some() {
                    one.end_hold(at);
                    has.remove(event.key.as_str());
                    if change == Change::Broken {
                        one.marks.push(Mark::Lost(at));
                    }
                }
            }
        }
    }
}
