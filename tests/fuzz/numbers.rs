//! Decimal numbers of any size, as DynamoDB has them. This is a second way to read them, for
//! comparison.

use std::cmp::Ordering;

/// A number of any size: the digits of its whole part, and whether it has a fraction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Decimal {
    negative: bool,
    /// Has no leading zeros, so it is empty for zero.
    whole: String,
    fraction: bool,
}

impl Decimal {
    /// Reads a text that DynamoDB accepts as a number.
    pub(crate) fn of(text: &str) -> Self {
        let (mantissa, exponent) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
        let exponent: i32 = exponent.parse().unwrap();
        let negative = mantissa.starts_with('-');
        let (before, after) = mantissa.trim_start_matches(['-', '+']).split_once('.').unwrap_or((mantissa, ""));
        let before = before.trim_start_matches(['-', '+']);
        let digits = format!("{before}{after}");
        let point = before.len() as i32 + exponent;
        let whole: String = (0..point.max(0)).map(|at| digits.chars().nth(at as usize).unwrap_or('0')).collect();
        let behind = digits.chars().enumerate().filter(|(at, _)| *at as i32 >= point);
        let fraction = behind.map(|(_, digit)| digit).any(|digit| digit != '0');
        let whole = whole.trim_start_matches('0').to_owned();
        Self { negative: negative && (fraction || !whole.is_empty()), whole, fraction }
    }

    /// Returns the number, if it is whole and fits.
    pub(crate) fn as_u64(&self) -> Option<u64> {
        let largest = u64::MAX.to_string();
        let fits = self.whole.len() < largest.len() || self.whole.len() == largest.len() && self.whole <= largest;
        let value = self.whole.bytes().take(20).fold(0_u128, |sum, digit| sum * 10 + u128::from(digit - b'0'));
        (!self.negative && !self.fraction && fits).then_some(value as u64)
    }

    pub(crate) fn compare(&self, other: u64) -> Ordering {
        if self.negative {
            return Ordering::Less;
        }
        let other = Some(other).filter(|other| *other > 0).map_or_else(String::new, |other| other.to_string());
        let whole = self.whole.len().cmp(&other.len()).then_with(|| self.whole.cmp(&other));
        whole.then(if self.fraction { Ordering::Greater } else { Ordering::Equal })
    }
}

#[test]
fn the_reference_itself_reads_decimals() {
    let read = |text| Decimal::of(text).as_u64();
    for (text, value) in
        [("0", 0), ("7", 7), ("007", 7), ("7.0", 7), ("0.7E1", 7), ("7E3", 7000), ("70e-1", 7), ("-0", 0)]
    {
        assert_eq!(read(text), Some(value), "{text}");
    }
    assert_eq!(read("18446744073709551615"), Some(u64::MAX));
    for text in ["7.5", "-3", "1E30", "18446744073709551616", "1E-1", "-0.5", "99999999999999999999999999999999999999"]
    {
        assert_eq!(read(text), None, "{text}");
    }
    assert_eq!(Decimal::of("7.5").compare(7), Ordering::Greater);
    assert_eq!(Decimal::of("7.5").compare(8), Ordering::Less);
    assert_eq!(Decimal::of("-7").compare(0), Ordering::Less);
    assert_eq!(Decimal::of("0").compare(0), Ordering::Equal);
    assert_eq!(Decimal::of("1E30").compare(u64::MAX), Ordering::Greater);
}
