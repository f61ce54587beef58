//! Lease texts, compared with a reference that calculates with numbers of any length.

use crate::{Checked, fuzz};
use lambda_lock_protocol::{ClockBounds, Dialect, Lease, Observation};
use proptest::prelude::*;
use std::cmp::Ordering;
use std::time::Duration;

/// A whole number of any length: its decimal digits, the last one first.
#[derive(Clone, Debug)]
struct Big(Vec<u8>);

impl Big {
    fn of(digits: &str) -> Self {
        Self(digits.bytes().rev().map(|digit| digit - b'0').collect())
    }

    /// Returns `self × factor`. `factor` must have few digits.
    fn times(&self, factor: u64) -> Self {
        let (mut digits, mut carry) = (Vec::new(), 0_u128);
        for digit in &self.0 {
            carry += u128::from(*digit) * u128::from(factor);
            digits.push((carry % 10) as u8);
            carry /= 10;
        }
        while carry > 0 {
            digits.push((carry % 10) as u8);
            carry /= 10;
        }
        Self(digits)
    }

    fn plus(&self, other: &Self) -> Self {
        let (mut digits, mut carry) = (Vec::new(), 0);
        for place in 0..self.0.len().max(other.0.len()) {
            let sum = self.0.get(place).unwrap_or(&0) + other.0.get(place).unwrap_or(&0) + carry;
            digits.push(sum % 10);
            carry = sum / 10;
        }
        digits.push(carry);
        Self(digits)
    }

    /// Returns the number with this many zeros appended.
    fn shifted(&self, zeros: usize) -> Self {
        Self([vec![0; zeros], self.0.clone()].concat())
    }

    fn compare(&self, other: &Self) -> Ordering {
        let places = (0..self.0.len().max(other.0.len())).rev();
        places
            .map(|place| self.0.get(place).unwrap_or(&0).cmp(other.0.get(place).unwrap_or(&0)))
            .fold(Ordering::Equal, |so_far, here| so_far.then(here))
    }
}

/// The exact nanoseconds of a text: `number / 10^places`. `None` if it is not a duration.
struct Exactly {
    number: Big,
    places: usize,
    parts: u64,
}

impl Exactly {
    fn of(text: &str) -> Option<Self> {
        if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
            return Some(Self { number: Big::of(text).times(1_000_000), places: 0, parts: 1 });
        }
        let mut rest: &str = text.strip_prefix('+').unwrap_or(text);
        let mut sum = Self { number: Big::of("0"), places: 0, parts: 0 };
        while !rest.is_empty() {
            let numeric = |c: char| c.is_ascii_digit() || c == '.';
            let (number, unit) = rest.split_at(rest.find(|c| !numeric(c))?);
            let (unit, after) = unit.split_at(unit.find(numeric).unwrap_or(unit.len()));
            rest = after;
            let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
            let digits = format!("{whole}{fraction}");
            if digits.is_empty() || digits.contains('.') {
                return None;
            }
            let unit = match unit {
                "ns" => 1,
                "us" | "µs" | "μs" => 1_000,
                "ms" => 1_000_000,
                "s" => 1_000_000_000,
                "m" => 60_000_000_000,
                "h" => 3_600_000_000_000,
                _ => return None,
            };
            let (own, places) = (fraction.len(), sum.places.max(fraction.len()));
            let part = Big::of(&digits).times(unit).shifted(places - own);
            sum.number = sum.number.shifted(places - sum.places).plus(&part);
            sum.places = places;
            sum.parts += 1;
        }
        (sum.parts > 0).then_some(sum)
    }

    /// Returns this many nanoseconds as a number with the same places.
    fn nanos(&self, nanos: u128) -> Big {
        Big::of(&nanos.to_string()).shifted(self.places)
    }
}

fn check(text: &str) -> Checked {
    let read = Lease::parse(text);
    let Some(exactly) = Exactly::of(text) else {
        prop_assert_eq!(read, None, "{:?} is no duration", shortened(text));
        return Ok(());
    };
    // Digits after the nanosecond are cut off, in each part of the text.
    let cut_off = u128::from(10 * exactly.parts);
    let all_digits = text.bytes().all(|byte| byte.is_ascii_digit());
    let longest = if all_digits { u128::from(u64::MAX) * 1_000_000 } else { u128::from(u64::MAX) };
    let Some(read) = read else {
        let fits = exactly.number.compare(&exactly.nanos(longest)).is_le();
        prop_assert!(!fits, "{:?} is a duration that fits", shortened(text));
        return Ok(());
    };
    prop_assert_eq!(read.text(), text);
    let nanos = read.duration().as_nanos();
    prop_assert!(nanos <= longest);
    prop_assert!(
        exactly.nanos(nanos).compare(&exactly.number).is_le()
            && exactly.nanos(nanos + cut_off).compare(&exactly.number).is_ge(),
        "{:?} was read as {:?}",
        shortened(text),
        read.duration()
    );
    // Everything that is calculated from a lease.
    for rules in [ClockBounds::default(), ClockBounds::default().with_drift(1.0).unwrap()] {
        prop_assert!(rules.believed(read.duration()) <= rules.stretched(read.duration()));
    }
    let _ = Lease::check(read.duration());
    let seen = Observation::from_parts("v".to_owned(), read.duration(), read.duration()).and_waited(Duration::MAX);
    prop_assert_eq!(seen.unchanged_for(), Duration::from_millis(u64::MAX));
    Ok(())
}

fn shortened(text: &str) -> String {
    text.chars().take(80).collect()
}

/// Digits: few of them, as many as the largest numbers have, or very many.
fn digits() -> impl Strategy<Value = String> {
    prop_oneof![
        4 => "[0-9]{0,4}",
        2 => "[0-9]{17,21}",
        2 => "[0-9]{36,40}",
        1 => "0{0,60}[0-9]{1,20}",
        1 => (1..1000_usize).prop_map(|length| "9".repeat(length)),
        2 => prop::sample::select(vec![u128::MAX, u128::from(u64::MAX), i64::MAX as u128]).prop_flat_map(|largest| {
            // The largest numbers that fit, in each unit.
            let unit = prop::sample::select(vec![1_u128, 1_000, 1_000_000, 1_000_000_000, 60_000_000_000, 3_600_000_000_000]);
            (unit, 0..3_u128).prop_map(move |(unit, more)| (largest / unit - 1 + more.min(1)).to_string())
        }),
    ]
}

pub(crate) fn texts() -> impl Strategy<Value = String> {
    let fraction = prop_oneof![3 => Just(String::new()), 2 => digits().prop_map(|digits| format!(".{digits}"))];
    let unit = prop::sample::select(vec!["ns", "us", "µs", "μs", "ms", "s", "m", "h", "", "d", "S", "sec", " s"]);
    let part = (digits(), fraction, unit).prop_map(|(whole, fraction, unit)| format!("{whole}{fraction}{unit}"));
    let sign = prop::sample::select(vec!["", "", "", "", "+", "-"]);
    prop_oneof![
        6 => (sign, prop::collection::vec(part, 0..4)).prop_map(|(sign, parts)| format!("{sign}{}", parts.concat())),
        3 => digits(),
        1 => "\\PC{0,20}",
        1 => any::<String>(),
    ]
}

#[test]
fn every_lease_text_is_read_as_a_reference_with_big_integers_reads_it() {
    fuzz(2000, texts(), |text| check(&text));
}

#[test]
fn lease_texts_that_were_once_read_wrongly() {
    for text in [
        "340282366920938463463374607431768211.999us",
        "94522879700260684295381835.9999h",
        "5671372782015641057722910.999999m",
        "340282366920938463463374607431.9999999s",
        "340282366920938463463374607431768211455.9ns",
        "340282366920938463463374607431768211455ns1ns",
        // The smallest product of each unit that does not fit into 128 bits. Without the overflow it is less than an hour.
        "340282366920938463463374607431768212us",
        "340282366920938463463374607431769ms",
        "340282366920938463463374607432s",
        "5671372782015641057722910124m",
        "94522879700260684295381836h",
        "18446744073709551615",
        "18446744073709551616",
        "18446744073709551615ns",
        "18446744073709551616ns",
        "0.00000000000000000000000000000000000000001ns",
        "1.99999999999999999999999h",
        ".",
        ".s",
        "+",
        "1.2.3s",
    ] {
        check(text).unwrap();
    }
}

#[test]
fn a_lease_of_any_length_is_written_so_that_it_is_read_back() {
    fuzz(500, (any::<u64>(), 0..1_000_000_000_u32), |(secs, nanos)| {
        // This includes longer leases than a caller may set, because other clients may have written
        // them.
        let asked = Duration::new(secs >> (secs % 64), nanos);
        let millis = asked.as_nanos().div_ceil(1_000_000).min(u128::from(u64::MAX)) as u64;
        let written = Lease::new(asked, Dialect::Java);
        prop_assert_eq!(written.duration(), Duration::from_millis(millis));
        prop_assert_eq!(Lease::parse(written.text()), Some(written));
        let written = Lease::new(asked, Dialect::Go);
        check(written.text())?;
        if millis <= u64::MAX / 1_000_000 {
            prop_assert_eq!(Lease::parse(written.text()), Some(written));
        }
        Ok(())
    });
}
