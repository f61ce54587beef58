//! Reads and writes `leaseDuration`, in the two dialects that other clients use.

use super::instants::millis_rounded_up;
use super::invalid::Invalid;
use std::time::Duration;

/// The longest lease that a caller may ask for. The longest Step Functions execution takes as long.
pub const MAX_LEASE: Duration = Duration::from_secs(366 * 24 * 60 * 60);

/// How `leaseDuration` is written. Both dialects are always read.
///
/// Java's and Go's clients cannot read each other's rows. So a key that is shared with one of them needs that
/// client's dialect.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Dialect {
    /// Decimal milliseconds, `"20000"`, as `amazon-dynamodb-lock-client` writes them.
    #[default]
    Java,
    /// A Go duration, `"20s"` or `"1m30s"`, as `cirello.io/dynamolock` writes them.
    Go,
}

/// A lease as it is written on a row: its text, and the duration that the text means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lease {
    text: String,
    duration: Duration,
}

impl Lease {
    /// Makes a lease of this length, rounded up to whole milliseconds, in this dialect.
    pub fn new(duration: Duration, dialect: Dialect) -> Self {
        let millis = millis_rounded_up(duration);
        let text = match dialect {
            Dialect::Java => millis.to_string(),
            Dialect::Go => go_text(millis),
        };
        Self { text, duration: Duration::from_millis(millis) }
    }

    /// Checks a lease that a caller asked for.
    pub fn check(duration: Duration) -> Result<(), Invalid> {
        if duration.is_zero() {
            return Err(Invalid::new("the lease must be longer than 0; got 0: give at least one millisecond"));
        }
        if duration > MAX_LEASE {
            return Err(Invalid::new(format!(
                "the lease must be at most {} days, because a dead holder would block the lock that long; got \
                 {duration:?}: give a shorter lease and renew it",
                MAX_LEASE.as_secs() / 86_400
            )));
        }
        Ok(())
    }

    /// Reads a lease in either dialect. Returns `None` when the text is in neither.
    pub fn parse(text: &str) -> Option<Self> {
        let duration = if !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit()) {
            Duration::from_millis(text.parse().ok()?)
        } else {
            go_duration(text)?
        };
        Some(Self { text: text.to_owned(), duration })
    }

    pub fn text(&self) -> &str {
        &self.text
    }

    pub fn duration(&self) -> Duration {
        self.duration
    }
}

/// Writes milliseconds as Go's `Duration.String` does.
fn go_text(millis: u64) -> String {
    if millis < 1000 {
        return if millis == 0 { "0s".to_owned() } else { format!("{millis}ms") };
    }
    let (hours, minutes) = (millis / 3_600_000, millis / 60_000 % 60);
    let (seconds, fraction) = (millis / 1000 % 60, millis % 1000);
    let mut text = String::new();
    if hours > 0 {
        text.push_str(&format!("{hours}h"));
    }
    if hours > 0 || minutes > 0 {
        text.push_str(&format!("{minutes}m"));
    }
    text.push_str(&seconds.to_string());
    if fraction > 0 {
        text.push_str(format!(".{fraction:03}").trim_end_matches('0'));
    }
    text.push('s');
    text
}

/// Reads a sequence of `number unit` as Go's `ParseDuration` does. Refuses negative durations, because such a lease
/// would end before it begins.
fn go_duration(text: &str) -> Option<Duration> {
    let mut rest = text.strip_prefix('+').unwrap_or(text);
    if rest.is_empty() {
        return None;
    }
    let mut nanos: u128 = 0;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (number, tail) = rest.split_at(digits);
        let unit_len = tail.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(unit_len);
        let unit_nanos: u128 = match unit {
            "ns" => 1,
            "us" | "µs" | "μs" => 1_000,
            "ms" => 1_000_000,
            "s" => 1_000_000_000,
            "m" => 60_000_000_000,
            "h" => 3_600_000_000_000,
            _ => return None,
        };
        nanos = nanos.checked_add(decimal_times(number, unit_nanos)?)?;
        rest = tail;
    }
    Some(Duration::from_nanos(u64::try_from(nanos).ok()?))
}

/// Returns `number × unit` for a plain decimal such as `1.5`, without floating point.
fn decimal_times(number: &str, unit: u128) -> Option<u128> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    let whole: u128 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
    let mut nanos = whole.checked_mul(unit)?;
    let mut place = unit;
    for digit in fraction.chars() {
        place /= 10;
        nanos = nanos.checked_add(u128::from(digit.to_digit(10)?) * place)?;
    }
    Some(nanos)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn millis(text: &str) -> Option<u64> {
        Lease::parse(text).map(|lease| lease.duration().as_millis() as u64)
    }

    #[test]
    fn both_dialects_are_read() {
        assert_eq!(millis("20000"), Some(20_000));
        assert_eq!(millis("20s"), Some(20_000));
        assert_eq!(millis("1m30s"), Some(90_000));
        assert_eq!(millis("1.5s"), Some(1_500));
        assert_eq!(millis("1h0m0.25s"), Some(3_600_250));
        assert_eq!(millis("250ms"), Some(250));
        assert_eq!(millis("1500us"), Some(1));
        assert_eq!(millis("1500µs"), Some(1));
        assert_eq!(millis(".5s"), Some(500));
    }

    #[test]
    fn what_is_no_lease_is_refused() {
        for text in
            ["", "s", "-5s", "5", "five", "5 s", "5d", "1.2.3s", ".s", "5s!", "+", "99999999999999999999", "9e3s"]
        {
            if text != "5" {
                assert_eq!(Lease::parse(text), None, "{text}");
            }
        }
    }

    #[test]
    fn leases_are_written_as_the_peers_write_them() {
        let text = |ms, dialect| Lease::new(Duration::from_millis(ms), dialect).text().to_owned();
        assert_eq!(text(20_000, Dialect::Java), "20000");
        assert_eq!(text(20_000, Dialect::Go), "20s");
        assert_eq!(text(90_000, Dialect::Go), "1m30s");
        assert_eq!(text(1_500, Dialect::Go), "1.5s");
        assert_eq!(text(3_600_000, Dialect::Go), "1h0m0s");
        assert_eq!(text(250, Dialect::Go), "250ms");
    }

    #[test]
    fn a_lease_is_never_written_shorter_than_asked_for() {
        let lease = Lease::new(Duration::from_nanos(1_000_001), Dialect::Java);
        assert_eq!(lease.text(), "2");
        assert_eq!(lease.duration(), Duration::from_millis(2));
    }

    #[test]
    fn zero_and_absurd_leases_are_refused() {
        assert!(Lease::check(Duration::ZERO).is_err());
        assert!(Lease::check(MAX_LEASE + Duration::from_nanos(1)).is_err());
        assert!(Lease::check(Duration::from_millis(1)).is_ok());
    }

    proptest! {
        #[test]
        fn every_lease_is_read_back_as_it_was_written(ms in 0..MAX_LEASE.as_millis() as u64) {
            for dialect in [Dialect::Java, Dialect::Go] {
                let written = Lease::new(Duration::from_millis(ms), dialect);
                prop_assert_eq!(Lease::parse(written.text()), Some(written));
            }
        }

        #[test]
        fn no_text_breaks_the_reader(text in "\\PC*") {
            let _ = Lease::parse(&text);
        }
    }
}
