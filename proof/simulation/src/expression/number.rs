//! DynamoDB's numbers: decimal, with at most 38 significant digits.

use std::cmp::Ordering;

/// The maximum number of significant digits.
const MAX_DIGITS: u32 = 38;

/// The largest power of ten, and the smallest.
const LARGEST: i32 = 125;
const SMALLEST: i32 = -130;

/// A number as DynamoDB stores it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Decimal {
    negative: bool,
    /// Without trailing zeros.
    digits: u128,
    exponent: i32,
}

impl Decimal {
    /// `None`: DynamoDB does not accept this number.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (negative, unsigned) = match text.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, text.strip_prefix('+').unwrap_or(text)),
        };
        let (mantissa, exponent) = match unsigned.split_once(['e', 'E']) {
            Some((mantissa, exponent)) => (mantissa, exponent.parse().ok()?),
            None => (unsigned, 0),
        };
        let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        let all = format!("{whole}{fraction}");
        if all.is_empty() || !all.bytes().all(|digit| digit.is_ascii_digit()) {
            return None;
        }
        let significant = all.trim_start_matches('0').trim_end_matches('0');
        if significant.len() > MAX_DIGITS as usize {
            return None;
        }
        let zeros = all.len() - all.trim_end_matches('0').len();
        let exponent = i32::checked_add(exponent, i32::try_from(zeros).ok()? - i32::try_from(fraction.len()).ok()?)?;
        Self { negative, digits: significant.parse().unwrap_or(0), exponent }.normal()
    }

    fn normal(mut self) -> Option<Self> {
        if self.digits == 0 {
            return Some(Self { negative: false, digits: 0, exponent: 0 });
        }
        while self.digits.is_multiple_of(10) {
            self.digits /= 10;
            self.exponent += 1;
        }
        let fits = self.length() <= MAX_DIGITS && (SMALLEST..=LARGEST).contains(&self.magnitude());
        fits.then_some(self)
    }

    fn length(self) -> u32 {
        self.digits.checked_ilog10().map_or(1, |log| log + 1)
    }

    /// The power of ten of the first digit.
    fn magnitude(self) -> i32 {
        self.exponent + self.length() as i32 - 1
    }

    fn is_zero(self) -> bool {
        self.digits == 0
    }

    /// `None`: the sum has more digits than DynamoDB stores.
    pub(super) fn plus(self, other: Self) -> Option<Self> {
        if self.is_zero() || other.is_zero() {
            return Some(if self.is_zero() { other } else { self });
        }
        let exponent = self.exponent.min(other.exponent);
        let aligned = |one: Self| {
            let power = 10_i128.checked_pow(u32::try_from(one.exponent - exponent).ok()?)?;
            let value = i128::try_from(one.digits).ok()?.checked_mul(power)?;
            Some(if one.negative { -value } else { value })
        };
        let sum = aligned(self)?.checked_add(aligned(other)?)?;
        Self { negative: sum < 0, digits: sum.unsigned_abs(), exponent }.normal()
    }
}

impl Ord for Decimal {
    fn cmp(&self, other: &Self) -> Ordering {
        let sign = |one: &Self| if one.is_zero() { 0 } else { 1 - 2 * i32::from(one.negative) };
        let by_size = || {
            // Pads both numbers to the maximum number of digits, so that their first digits line up.
            let padded = |one: &Self| one.digits * 10_u128.pow(MAX_DIGITS - one.length());
            let order = self.magnitude().cmp(&other.magnitude()).then_with(|| padded(self).cmp(&padded(other)));
            if self.negative { order.reverse() } else { order }
        };
        sign(self).cmp(&sign(other)).then_with(|| if self.is_zero() { Ordering::Equal } else { by_size() })
    }
}

impl PartialOrd for Decimal {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// As DynamoDB returns it: without an exponent and without redundant zeros.
impl std::fmt::Display for Decimal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let digits = self.digits.to_string();
        let sign = if self.negative { "-" } else { "" };
        if self.exponent >= 0 {
            return write!(f, "{sign}{digits}{}", "0".repeat(self.exponent as usize));
        }
        let behind = self.exponent.unsigned_abs() as usize;
        let digits = format!("{digits:0>width$}", width = behind + 1);
        let (whole, fraction) = digits.split_at(digits.len() - behind);
        write!(f, "{sign}{whole}.{fraction}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number(text: &str) -> Decimal {
        Decimal::parse(text).unwrap_or_else(|| panic!("{text} is not a number"))
    }

    #[test]
    fn numbers_are_compared_by_their_value() {
        let ordered =
            ["-1E30", "-3", "-0.5", "0", "1e-130", "0.07", "7.5", "8", "18446744073709551616", "1E30", "9E125"];
        for pair in ordered.windows(2) {
            assert!(number(pair[0]) < number(pair[1]), "{pair:?}");
        }
        for (one, same) in [("1E3", "1000"), ("-0", "0"), ("7.50", "7.5"), ("+0012", "12"), ("0.10e1", "1")] {
            assert_eq!(number(one).cmp(&number(same)), Ordering::Equal, "{one} {same}");
        }
    }

    #[test]
    fn sums_are_exact_or_refused() {
        let nines = "9".repeat(38);
        for (left, right, sum) in [
            ("7.5", "1", "8.5"),
            ("-3", "1", "-2"),
            ("-1", "1", "0"),
            ("1E30", "1", "1000000000000000000000000000001"),
            ("18446744073709551615", "1", "18446744073709551616"),
            (nines.as_str(), "1", "100000000000000000000000000000000000000"),
        ] {
            assert_eq!(number(left).plus(number(right)).map(|sum| sum.to_string()).as_deref(), Some(sum), "{left}");
        }
        assert_eq!(number("1E100").plus(number("1")), None, "101 digits");
    }

    #[test]
    fn values_that_dynamodb_does_not_accept_are_not_numbers() {
        for text in ["", "-", "1.2.3", "ten", "1E126", "1E-131", &"1".repeat(39), "0x10", "1e", "1E99999999999"] {
            assert_eq!(Decimal::parse(text), None, "{text}");
        }
        assert_eq!(number(&"1".repeat(38)).to_string(), "1".repeat(38));
        assert_eq!(number("-0.0750").to_string(), "-0.075");
    }
}
