//! Rows as a response shows them.

use crate::script::BEGIN;
use lambda_lock_protocol::{Grant, Item, OURS, Stamp, Value, Version};

/// The version of a row, for tests that name it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Wrote {
    /// Another grant of ours, at this millisecond before the beginning.
    Theirs(u64),
    /// A client of Java.
    Peer,
    /// This attempt of the call itself, from 1.
    Attempt(usize),
    /// This attempt of the call, which stored the outcome of its work.
    Settled(usize),
    /// The grant that the caller holds or has saved, with this millisecond after its stamp.
    Saved(u64),
}

pub(crate) fn saved(later: u64) -> Version {
    Version { grant: Grant::from_random([3; 16]), stamp: Stamp::after(None, BEGIN - 5_000 + later, 3) }
}

/// A row. What it holds beside the version is that of a lock whose lease of 20 s ends in 10 s.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    wrote: Wrote,
    item: Item,
}

impl Row {
    pub(crate) fn by(wrote: Wrote) -> Self {
        let row = Self { wrote, item: Item::default() };
        let row =
            row.text("key", "k").text("ownerName", "other").text("leaseDuration", "20000").number("fencingToken", 7);
        match wrote {
            Wrote::Peer => row,
            _ => row.number("leaseEndsAt", BEGIN + 10_000),
        }
    }

    /// Held by another grant of ours.
    pub(crate) fn held() -> Self {
        Self::by(Wrote::Theirs(10_000))
    }

    /// As it was released a second ago.
    pub(crate) fn free() -> Self {
        Self::held().released()
    }

    pub(crate) fn released(self) -> Self {
        self.text("isReleased", "1").number("leaseEndsAt", BEGIN - 1_000)
    }

    /// Held, by a holder that is dead by the wall clock.
    pub(crate) fn dead(self) -> Self {
        self.number("leaseEndsAt", BEGIN - 60_000)
    }

    pub(crate) fn frozen(self) -> Self {
        self.text("freezeReason", "a deployment")
    }

    pub(crate) fn owner(self, name: &str) -> Self {
        self.text("ownerName", name)
    }

    /// With a line: the last ticket that was given, and the last one that was served.
    pub(crate) fn line(self, last: u64, served: u64) -> Self {
        self.number("lastTicket", last).number("servedTicket", served)
    }

    /// With the record of idempotent work that counts until this millisecond after the beginning.
    pub(crate) fn work(self, kept: i64) -> Self {
        let kept = BEGIN.saturating_add_signed(kept);
        self.number("attempts", 1).number("firstSeenAt", BEGIN - 60_000).number("keptUntilAt", kept)
    }

    /// With the outcome of idempotent work.
    pub(crate) fn settled(mut self, state: &str) -> Self {
        let settled = self.version(&[]).replacen(OURS, "lo1-", 1);
        self.item.remove("leaseDuration");
        self.item.remove("leaseEndsAt");
        let row = self.text("recordVersionNumber", &settled).text("onceState", state);
        row.text("outcome", "{}").number("outcomeAt", BEGIN - 1_000)
    }

    /// With the tickets of those who have given up.
    pub(crate) fn left(mut self, tickets: &[u64]) -> Self {
        self.item.set("leftTickets", Value::Ns(tickets.iter().map(u64::to_string).collect()));
        self
    }

    pub(crate) fn token(self, token: u64) -> Self {
        self.number("fencingToken", token)
    }

    pub(crate) fn text(mut self, name: &str, text: &str) -> Self {
        self.item.set(name, Value::S(text.to_owned()));
        self
    }

    pub(crate) fn number(mut self, name: &str, number: u64) -> Self {
        self.item.set(name, Value::N(number.to_string()));
        self
    }

    pub(crate) fn version(&self, attempts: &[Version]) -> String {
        match self.wrote {
            Wrote::Theirs(before) => {
                Version { grant: theirs(self.item.get("fencingToken")), stamp: Stamp::after(None, BEGIN - before, 2) }
                    .text()
            }
            Wrote::Peer => "b2c6a6e2-37cb-4bd9-9cdd-1b0f0d1f9c3e".to_owned(),
            Wrote::Attempt(number) => attempts[number - 1].text(),
            Wrote::Settled(number) => attempts[number - 1].settled(),
            Wrote::Saved(later) => saved(later).text(),
        }
    }

    pub(crate) fn without(mut self, name: &str) -> Self {
        self.item.remove(name);
        self
    }

    /// As a response has it, after these attempts of the call.
    pub(crate) fn item(mut self, attempts: &[Version]) -> Item {
        if self.item.get("recordVersionNumber").is_none() {
            let version = self.version(attempts);
            self.item.set("recordVersionNumber", Value::S(version));
        }
        self.item
    }
}

/// The grant of others with this token.
fn theirs(token: Option<&Value>) -> Grant {
    let mut random = [2; 16];
    if let Some(Value::N(token)) = token {
        random[8..].copy_from_slice(&token.parse().unwrap_or(u64::MAX).to_be_bytes());
    }
    Grant::from_random(random)
}

/// The name of a version in a transcript.
pub(crate) fn named(version: &str, attempts: &[Version]) -> String {
    if let Some(attempt) = attempts.iter().position(|attempt| attempt.text() == version) {
        return format!("attempt {}", attempt + 1);
    }
    if let Some(settled) = version.strip_prefix("lo1-") {
        return format!("the outcome of {}", named(&format!("{OURS}{settled}"), attempts));
    }
    let Some(version) = Version::parse(version) else { return "the version of a peer".to_owned() };
    let after = |from: u64| version.stamp.millis() as i64 - from as i64;
    match version.grant {
        grant if grant == saved(0).grant => format!("the saved grant{:+} ms", after(BEGIN - 5_000)),
        grant if grant.first_version().starts_with("ll1-0202") => format!("their grant{:+} ms", after(BEGIN)),
        _ => format!("this grant{:+} ms", after(BEGIN)),
    }
}
