//! Additional attributes: texts and numbers that a grant puts into its row, for whoever reads the row.
//!
//! They are in the row under their own names, as those of the Java and the Go client are. So these clients read them,
//! and an index can have them as its key. `attributeNames` lists the names, so that the next grant can remove them.
//! DynamoDB removes only attributes that a request names, and a Claim has not seen the row. So a Claim is refused
//! where the row has other names than those that the Claim writes. The Take that follows names what the row showed.
//!
//! Attributes that the list does not name were put there by somebody else, and stay.

use super::value::Value;

/// The most additional attributes of a lock.
pub const MAX_ATTRIBUTES: usize = 20;
/// The longest name of an additional attribute, in bytes. An index of DynamoDB projects no longer names.
pub(super) const MAX_ATTRIBUTE_NAME_BYTES: usize = 255;
/// Between two names in `attributeNames`.
const SEPARATOR: &str = ",";

/// The value of an additional attribute, see `Acquire::attribute`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Attribute {
    /// A text. It may be empty.
    Text(String),
    /// A number as decimal text, such as `-1.5` or `1E20`. DynamoDB stores 38 digits, from 1E-130 to 9.9…E+125.
    Number(String),
}

impl Attribute {
    /// Reads a value of a row. `None` for types that are neither texts nor numbers.
    pub(super) fn read(value: &Value) -> Option<Self> {
        match value {
            Value::S(text) => Some(Attribute::Text(text.clone())),
            Value::N(number) => Some(Attribute::Number(number.clone())),
            Value::B(_) | Value::Ns(_) | Value::Other(_) => None,
        }
    }

    pub(super) fn value(&self) -> Value {
        match self {
            Attribute::Text(text) => Value::S(text.clone()),
            Attribute::Number(number) => Value::N(number.clone()),
        }
    }

    /// The size of the value, or a little more. A number takes a byte for two digits, one for its exponent, and one
    /// for its sign.
    pub(super) fn bytes(&self) -> usize {
        match self {
            Attribute::Text(text) => text.len(),
            Attribute::Number(number) => number.len().div_ceil(2) + 2,
        }
    }

    /// Whether DynamoDB accepts the value.
    pub(super) fn is_valid(&self) -> bool {
        match self {
            Attribute::Text(_) => true,
            Attribute::Number(number) => is_number(number),
        }
    }
}

impl From<&str> for Attribute {
    fn from(text: &str) -> Self {
        Attribute::Text(text.to_owned())
    }
}

impl From<String> for Attribute {
    fn from(text: String) -> Self {
        Attribute::Text(text)
    }
}

macro_rules! from_numbers {
    ($($number:ty)*) => {
        $(impl From<$number> for Attribute {
            fn from(number: $number) -> Self {
                Attribute::Number(number.to_string())
            }
        })*
    };
}

from_numbers!(i32 u32 i64 u64 f64);

/// What a grant does with the additional attributes of its row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AttributesChange {
    Keep,
    /// Removes those that earlier grants wrote, and writes these. They are sorted by name.
    Replace(Vec<(String, Attribute)>),
}

impl Default for AttributesChange {
    fn default() -> Self {
        AttributesChange::Replace(Vec::new())
    }
}

impl AttributesChange {
    /// Whether the change can be made without a look at the row, if the row lists these names.
    pub(super) fn needs_no_look(&self, in_row: Option<&str>) -> bool {
        match self {
            AttributesChange::Keep => true,
            AttributesChange::Replace(given) => in_row.is_none_or(|in_row| !given.is_empty() && in_row == list(given)),
        }
    }
}

/// The names of the additional attributes in the row that a Take replaces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EarlierNames {
    /// The row was not read.
    Unseen,
    /// The row has these, as it lists them.
    Seen(Option<String>),
}

/// The names as the row lists them.
pub(super) fn list(attributes: &[(String, Attribute)]) -> String {
    attributes.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>().join(SEPARATOR)
}

/// The names in a list.
pub(super) fn listed(names: &str) -> impl Iterator<Item = &str> {
    names.split(SEPARATOR).filter(|name| !name.is_empty())
}

/// Whether DynamoDB accepts this name, and the list can have it.
pub(super) fn is_name(name: &str) -> bool {
    (1..=MAX_ATTRIBUTE_NAME_BYTES).contains(&name.len()) && !name.contains(SEPARATOR)
}

/// Whether DynamoDB accepts this number: its form, at most 38 digits, and a power of ten from -130 to 125.
fn is_number(text: &str) -> bool {
    let unsigned = text.strip_prefix('-').unwrap_or(text);
    let (decimal, exponent) = match unsigned.split_once(['e', 'E']) {
        Some((decimal, exponent)) => match exponent.parse::<i32>() {
            Ok(exponent) => (decimal, i64::from(exponent)),
            Err(_) => return false,
        },
        None => (unsigned, 0),
    };
    let (whole, fraction) = decimal.split_once('.').unwrap_or((decimal, "0"));
    let digits = [whole, fraction].concat();
    if whole.is_empty() || fraction.is_empty() || !digits.bytes().all(|digit| digit.is_ascii_digit()) {
        return false;
    }
    let significant = digits.trim_start_matches('0');
    let leading_zeros = digits.len() - significant.len();
    let power = exponent + whole.len() as i64 - 1 - leading_zeros as i64;
    let significant = significant.trim_end_matches('0');
    significant.is_empty() || significant.len() <= 38 && (-130..=125).contains(&power)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_that_dynamodb_does_not_store_are_found_before_any_request() {
        for stored in ["0", "-0", "5", "-1.5", "007", "1E20", "1e-130", "9.9E125", "0.0001e126", &"9".repeat(38)] {
            assert!(is_number(stored), "{stored}");
        }
        assert!(is_number(&format!("1{}", "0".repeat(125))), "zeros at the end do not count as digits");
        for refused in
            ["", "-", ".", "5.", ".5", "+5", "1e", "1e2.5", "NaN", "inf", "1E126", "1E-131", "0x5", "1 2", "--1"]
        {
            assert!(!is_number(refused), "{refused}");
        }
        assert!(!is_number(&"9".repeat(39)));
        assert!(!Attribute::from(f64::NAN).is_valid() && !Attribute::from(1e300).is_valid());
        assert!(Attribute::from(0.1).is_valid() && Attribute::from(u64::MAX).is_valid());
    }

    /// [How AWS counts](https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/CapacityUnitCalculations.html):
    /// a byte for two significant digits, and one more.
    #[test]
    fn no_value_counts_less_than_in_an_item() {
        for (value, bytes) in [
            (Attribute::from(""), 0),
            ("ümlaut".into(), 7),
            (0.into(), 1),
            (5.into(), 2),
            ((-5).into(), 3),
            (u64::MAX.into(), 11),
            (Attribute::Number(format!("-0.{}", "9".repeat(38))), 21),
        ] {
            assert!((bytes..=bytes + 3).contains(&value.bytes()), "{value:?} counts {}", value.bytes());
        }
    }

    #[test]
    fn a_row_that_lists_the_same_names_or_none_needs_no_look() {
        let given = |names: &[&str]| {
            AttributesChange::Replace(names.iter().map(|name| ((*name).to_owned(), 1.into())).collect())
        };
        for (change, in_row, expected) in [
            (AttributesChange::Keep, Some("job"), true),
            (given(&[]), None, true),
            (given(&[]), Some("job"), false),
            (given(&[]), Some(""), false),
            (given(&["job", "shard"]), None, true),
            (given(&["job", "shard"]), Some("job,shard"), true),
            (given(&["job", "shard"]), Some("job"), false),
            (given(&["job"]), Some("job,shard"), false),
        ] {
            assert_eq!(change.needs_no_look(in_row), expected, "{change:?} in a row with {in_row:?}");
        }
    }
}
