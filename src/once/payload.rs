//! The fingerprint of a payload. Two calls for one key must mean the same work.

use super::finite::is_finite;
use canon_json::CanonJsonSerialize;
use lambda_lock_protocol::Invalid;
use serde::Serialize;
use serde_json::ser::{Formatter, Serializer};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io;

/// What is compared of a payload: SHA-256 in hexadecimal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Fingerprint {
    pub(super) text: String,
    /// Of the same payload as rows have it from before, where that is another one: with each field that is `null`, and
    /// with an `f32` widened to an `f64`.
    pub(super) earlier: Option<String>,
}

/// Returns the fingerprint of the payload's canonical JSON (RFC 8785: the names are sorted, and there are no spaces).
/// Whole numbers keep all their digits, which is more than that standard demands. Two amounts that differ are therefore
/// never the same payload. A field that is `null` is left out, so that a deployment may add an optional field while
/// calls are retried.
pub(super) fn fingerprint(payload: &impl Serialize) -> Result<Fingerprint, Invalid> {
    if !is_finite(payload) {
        return Err(Invalid::new(
            "the payload has a number that is NaN or infinite, which JSON cannot write, so it would compare as null: leave it \
             out, or give it as text",
        ));
    }
    let hashed = |widens: bool| -> Result<String, Invalid> {
        let mut json = Vec::new();
        payload.serialize(&mut Serializer::with_formatter(&mut json, Singles { widens })).map_err(|error| {
            Invalid::new(format!("the payload cannot be written as JSON, so there is nothing to compare: {error}"))
        })?;
        let canonical = std::str::from_utf8(&json)
            .ok()
            .and_then(|json| Canonical { rest: json, keeps_nulls: widens }.value())
            .ok_or_else(|| {
                Invalid::new("the payload is written as JSON that cannot be read, so there is nothing to compare")
            })?;
        let mut text = String::with_capacity(64);
        for byte in Sha256::digest(canonical) {
            // Writing into a string cannot fail.
            let _ = write!(text, "{byte:02x}");
        }
        Ok(text)
    };
    let (text, earlier) = (hashed(false)?, hashed(true)?);
    Ok(Fingerprint { earlier: (earlier != text).then_some(earlier), text })
}

/// Writes an `f32` with its own digits, as JSON does, or widened to an `f64`, which has other digits.
struct Singles {
    widens: bool,
}

impl Formatter for Singles {
    fn write_f32<W: io::Write + ?Sized>(&mut self, writer: &mut W, value: f32) -> io::Result<()> {
        if self.widens { self.write_f64(writer, value.into()) } else { write!(writer, "{value:e}") }
    }
}

/// Makes JSON canonical.
struct Canonical<'a> {
    rest: &'a str,
    keeps_nulls: bool,
}

impl Canonical<'_> {
    fn value(&mut self) -> Option<String> {
        self.rest = self.rest.trim_start();
        match self.rest.chars().next()? {
            '{' => self.object(),
            '[' => self.array(),
            '"' => serde_json::to_string(&self.string()?).ok(),
            first => {
                let end = self.rest.find([',', ']', '}', ' ', '\n', '\r', '\t']).unwrap_or(self.rest.len());
                let (token, rest) = self.rest.split_at(end);
                self.rest = rest;
                let is_whole = !token.contains(['.', 'e', 'E']);
                if is_whole || first.is_ascii_alphabetic() {
                    return Some(token.to_owned());
                }
                token.parse::<f64>().ok()?.to_canon_json_string().ok()
            }
        }
    }

    fn object(&mut self) -> Option<String> {
        let mut members = BTreeMap::new();
        self.takes('{');
        while !self.takes('}') {
            self.takes(',');
            let name = self.string()?;
            if !self.takes(':') {
                return None;
            }
            let value = self.value()?;
            let key: Vec<u16> = name.encode_utf16().collect();
            if self.keeps_nulls || value != "null" {
                members.insert(key, format!("{}:{value}", serde_json::to_string(&name).ok()?));
            } else {
                members.remove(&key);
            }
        }
        Some(format!("{{{}}}", members.into_values().collect::<Vec<_>>().join(",")))
    }

    fn array(&mut self) -> Option<String> {
        let mut elements = Vec::new();
        self.takes('[');
        while !self.takes(']') {
            self.takes(',');
            elements.push(self.value()?);
        }
        Some(format!("[{}]", elements.join(",")))
    }

    fn string(&mut self) -> Option<String> {
        let inside = self.rest.trim_start().strip_prefix('"')?;
        let mut is_escaped = false;
        let ends = |(_, char): &(usize, char)| {
            let ends = *char == '"' && !is_escaped;
            is_escaped = *char == '\\' && !is_escaped;
            ends
        };
        let (inside, rest) = inside.split_at(inside.char_indices().find(ends)?.0);
        self.rest = rest.strip_prefix('"')?;
        serde_json::from_str(&format!("\"{inside}\"")).ok()
    }

    /// Whether this comes next. Then skips it.
    fn takes(&mut self, next: char) -> bool {
        self.rest = self.rest.trim_start();
        match self.rest.strip_prefix(next) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn of(payload: serde_json::Value) -> String {
        fingerprint(&payload).unwrap().text
    }

    #[test]
    fn a_fingerprint_is_the_sha_256_of_the_canonical_json() {
        // The expected value is the sha256sum of {"a":[1,2],"b":"é"}.
        let payload = json!({"b": "é", "a": [1, 2]});
        assert_eq!(of(payload), "d902c5ef87c42c33059e8d7b7aa30485809a5c0ff84b8d0d285616d5b03f23ea");
    }

    #[test]
    fn the_order_of_names_does_not_matter_and_everything_else_does() {
        #[derive(Serialize)]
        struct Order {
            id: u32,
            amount: u64,
        }
        let order = fingerprint(&Order { id: 7, amount: 1250 }).unwrap().text;
        assert_eq!(order, of(json!({"amount": 1250, "id": 7})));
        assert_ne!(order, of(json!({"amount": 1251, "id": 7})));
        assert_ne!(order, of(json!({"amount": 1250, "id": "7"})));
        assert_ne!(of(json!([1, 2])), of(json!([2, 1])));
        assert_ne!(of(json!(9_007_199_254_740_992_u64)), of(json!(9_007_199_254_740_993_u64)));
    }

    #[test]
    fn a_payload_that_is_no_json_is_refused() {
        let odd = std::collections::BTreeMap::from([((1, 2), 3)]);
        assert!(fingerprint(&odd).is_err());
    }

    /// Returns the text that was hashed before, and the fingerprint of this text.
    fn hash_before(payload: &impl Serialize) -> (String, String) {
        let json = payload.to_canon_json_string().unwrap();
        let digest = Sha256::digest(&json);
        (json, digest.iter().map(|byte| format!("{byte:02x}")).collect())
    }

    #[test]
    fn a_payload_without_null_and_single_precision_has_the_fingerprint_that_it_always_had() {
        for payload in [
            json!(null),
            json!(true),
            json!({}),
            json!([]),
            json!([null, {}, [], ""]),
            json!({"a": [1, -2, 0.1, -0.0, 1e300, 5e-324, 1.0, 1e21, 123_456_789_012_345_680.0_f64, u64::MAX, i64::MIN]}),
            json!({"é": "é\u{1F600}\u{0}\u{7f}\\ \" / \n", "\u{1F600}": 1, "\u{FB33}": 2, "\"\\{}[],:": "}{][,:\\\""}),
        ] {
            let (json, before) = hash_before(&payload);
            assert_eq!(fingerprint(&payload).unwrap(), Fingerprint { text: before, earlier: None }, "{json}");
        }
        let large = (u128::MAX, i128::MIN, u64::MAX, f64::MAX, "x");
        assert_eq!(fingerprint(&large).unwrap(), Fingerprint { text: hash_before(&large).1, earlier: None });
    }

    #[test]
    fn a_field_that_is_null_is_the_same_as_none_and_a_null_in_an_array_is_not() {
        let nulls = json!({"a": null, "b": {"c": null, "d": [null, {"e": null}]}});
        assert_eq!(of(nulls.clone()), of(json!({"b": {"d": [null, {}]}})));
        assert_eq!(fingerprint(&nulls).unwrap().earlier, Some(hash_before(&nulls).1));
        assert_ne!(of(json!([1, null])), of(json!([1])));
        assert_ne!(of(json!({"a": "null"})), of(json!({})));
    }

    #[test]
    fn the_precision_of_a_number_does_not_matter_where_its_digits_are_the_same() {
        for single in [0.1_f32, -12.5, 3.0e-40, f32::MAX, 16_777_216.0, 1e10, 0.0] {
            let double: f64 = format!("{single}").parse().unwrap();
            assert_eq!(fingerprint(&single).unwrap().text, fingerprint(&double).unwrap().text, "{single}");
        }
        assert_eq!(fingerprint(&0.1_f32).unwrap().earlier, Some(hash_before(&0.1_f32).1));
        assert_eq!(of(json!(1.0)), of(json!(1)));
    }

    #[test]
    fn a_number_that_is_not_finite_is_refused() {
        #[derive(Serialize)]
        enum Any {
            Unit,
            New(f64),
            Tuple(u8, f32),
            Struct { number: Option<f64> },
        }
        let finite = (Any::Unit, Any::New(1.0), Any::Tuple(1, 1.0), Any::Struct { number: None });
        assert!(fingerprint(&finite).is_ok());
        for wrong in [Any::New(f64::NAN), Any::Tuple(1, f32::INFINITY), Any::Struct { number: Some(f64::NEG_INFINITY) }]
        {
            let error = fingerprint(&BTreeMap::from([("a", [wrong])])).unwrap_err();
            assert!(error.to_string().contains("NaN"), "{error}");
        }
    }

    #[test]
    fn a_map_with_numbers_as_keys_is_the_object_that_it_is_written_as() {
        let numbers = std::collections::HashMap::from([(10, "a"), (9, "b")]);
        assert_eq!(fingerprint(&numbers).unwrap().text, of(json!({"10": "a", "9": "b"})));
    }
}
