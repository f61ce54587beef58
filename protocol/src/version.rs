//! The record version number: which grant wrote a row, and in which order.
//!
//! Ours reads `ll1-{grant}-{stamp}`. Peers write versions of other forms, which are only compared for equality.

use super::invalid::Invalid;
use serde::{Deserialize, Serialize};
use std::fmt::{self, Write as _};
use uuid::Uuid;

/// The prefix of every version of ours. Peers' versions are UUIDs, which have other prefixes.
pub const OURS: &str = "ll1-";

/// The prefix of the version of a settled record of idempotent work.
pub(super) const SETTLED: &str = "lo1-";

/// The length of a stamp's text: the digits of its time, and the random ones.
const DIGITS: usize = DIGITS_OF_TIME + 16;
const DIGITS_OF_TIME: usize = 12;

/// One grant of a lock: a UUID v4, drawn for each call that acquires.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Grant(Uuid);

impl Grant {
    /// Makes a grant from random bytes.
    pub fn from_random(bytes: [u8; 16]) -> Self {
        Self(uuid::Builder::from_random_bytes(bytes).into_uuid())
    }

    /// The lower bound of all versions of this grant, for `BETWEEN`.
    pub fn first_version(self) -> String {
        self.with(OURS, "0")
    }

    /// An upper bound of all versions of this grant. Stamps are hexadecimal digits, which sort before `g`.
    pub fn last_version(self) -> String {
        self.with(OURS, "g")
    }

    /// What the version of a record begins with that this grant has settled.
    pub(super) fn settled_versions(self) -> String {
        self.with(SETTLED, "")
    }

    fn with(self, prefix: &str, stamp: &str) -> String {
        let mut digits = Uuid::encode_buffer();
        [prefix, self.0.simple().encode_lower(&mut digits), "-", stamp].concat()
    }
}

impl fmt::Display for Grant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.simple().fmt(f)
    }
}

/// Orders the writes of one grant: epoch milliseconds, then random digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Stamp {
    millis: u64,
    random: u64,
}

/// The 28 hexadecimal digits at the end of a version: 12 of the time, 16 random ones.
impl fmt::Display for Stamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:012x}{:016x}", self.millis, self.random)
    }
}

impl From<Stamp> for String {
    fn from(stamp: Stamp) -> Self {
        stamp.to_string()
    }
}

impl TryFrom<String> for Stamp {
    type Error = Invalid;

    fn try_from(text: String) -> Result<Self, Invalid> {
        Stamp::parse(&text).ok_or_else(|| {
            Invalid::new(
                "the stamp of the commit must be 28 lowercase hexadecimal digits: pass the saved lock on unchanged",
            )
        })
    }
}

impl Stamp {
    const MILLIS: u64 = 0xffff_ffff_ffff;

    /// The stamp of a new attempt: `now`, or one millisecond after the last known stamp when `now` is not newer. The
    /// random digits keep two copies of one grant from writing the same version, and from taking the other's write for their
    /// own. Copies whose clocks are behind the last stamp all write the same millisecond, so only these 64 bits tell them apart.
    pub fn after(last: Option<Stamp>, now_millis: u64, random: u64) -> Self {
        let floor = last.map_or(0, |stamp| stamp.millis() + 1);
        Self { millis: now_millis.max(floor).min(Self::MILLIS), random }
    }

    fn parse(text: &str) -> Option<Self> {
        let (millis, random) = text.split_at_checked(DIGITS_OF_TIME)?;
        if text.len() != DIGITS || !is_lowercase_hex(text) {
            return None;
        }
        let number = |digits| u64::from_str_radix(digits, 16).ok();
        Some(Self { millis: number(millis)?, random: number(random)? })
    }

    pub fn millis(self) -> u64 {
        self.millis
    }
}

/// A parsed version of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Version {
    /// The grant that wrote the row.
    pub grant: Grant,
    /// The position of that write among the grant's writes.
    pub stamp: Stamp,
}

impl Version {
    /// Parses a version of ours. Returns `None` for a peer's.
    pub fn parse(text: &str) -> Option<Self> {
        let (grant, stamp) = text.strip_prefix(OURS)?.split_once('-')?;
        if grant.len() != 32 || !is_lowercase_hex(grant) {
            return None;
        }
        Some(Self { grant: Grant(Uuid::try_parse(grant).ok()?), stamp: Stamp::parse(stamp)? })
    }

    /// The version as it stands on the row.
    pub fn text(self) -> String {
        // Of its length from the beginning: each request has one.
        let mut text = String::with_capacity(OURS.len() + 32 + 1 + DIGITS);
        // Writing into a string cannot fail.
        let _ = write!(text, "{self}");
        text
    }

    /// The version of the settled record that this grant writes. It is not the version of a lock.
    pub fn settled(self) -> String {
        self.text().replacen(OURS, SETTLED, 1)
    }
}

fn is_lowercase_hex(text: &str) -> bool {
    text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
}

/// The version that a settled record had before. `None` for the version of a lock.
pub(super) fn before_settled(settled: &str) -> Option<String> {
    settled.strip_prefix(SETTLED).map(|rest| format!("{OURS}{rest}"))
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{OURS}{}-{}", self.grant, self.stamp)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn version(grant: u8, stamp: Stamp) -> Version {
        Version { grant: Grant::from_random([grant; 16]), stamp }
    }

    #[test]
    fn a_version_reads_back_as_it_was_written() {
        let version = version(7, Stamp::after(None, 1_760_000_000_000, 0xbeef));
        let text = version.to_string();
        assert_eq!(text.len(), 4 + 32 + 1 + 12 + 16);
        assert!(text.ends_with("beef"), "{text}");
        assert_eq!(Version::parse(&text), Some(version));
    }

    #[test]
    fn versions_of_peers_are_not_ours() {
        for text in ["", "ll1-", "ll1-x-y", "b2c6a6e2-37cb-4bd9-9cdd-1b0f0d1f9c3e", "ll2-0-0"] {
            assert_eq!(Version::parse(text), None, "{text}");
        }
    }

    #[test]
    fn a_clock_that_stands_still_or_goes_back_still_orders_the_writes() {
        let first = Stamp::after(None, 1_000, u64::MAX);
        let second = Stamp::after(Some(first), 1_000, 0);
        let third = Stamp::after(Some(second), 10, 0);
        assert!(first < second && second < third);
        assert_eq!(third.millis(), 1_002);
        assert_eq!(String::from(Stamp::after(Some(second), 10, u64::MAX)), "0000000003eaffffffffffffffff");
    }

    proptest! {
        #[test]
        fn text_order_is_stamp_order(a in 0..1u64 << 48, b in 0..1u64 << 48, ra: u64, rb: u64) {
            let (a, b) = (Stamp::after(None, a, ra), Stamp::after(None, b, rb));
            let (x, y) = (version(1, a).to_string(), version(1, b).to_string());
            prop_assert_eq!(a.cmp(&b), x.cmp(&y));
            prop_assert!(version(1, a).grant.first_version() < x && x < version(1, a).grant.last_version());
        }

        #[test]
        fn no_text_breaks_the_reader(text in "ll1-\\PC*") {
            let _ = Version::parse(&text);
        }
    }
}
