//! The fingerprint of a payload. Two calls for one key must mean the same work.

use super::finite::is_finite;
use canon_json::CanonJsonSerialize;
use lambda_lock_protocol::Invalid;
use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;

/// Returns the fingerprint of the payload: the SHA-256, in hexadecimal, of its canonical JSON (RFC 8785: the names are sorted, and
/// there are no spaces). Whole numbers keep all their digits, which is more than that standard demands. Two amounts that differ are
/// therefore never the same payload. A field that is `null` is left out, so that a deployment may add an optional field while
/// calls are retried.
pub(super) fn fingerprint(payload: &impl Serialize) -> Result<String, Invalid> {
    if !is_finite(payload) {
        return Err(Invalid::new(
            "the payload has a number that is NaN or infinite, which JSON cannot write, so it would compare as null: leave it \
             out, or give it as text",
        ));
    }
    let json = to_raw_value(payload).map_err(|error| {
        Invalid::new(format!("the payload cannot be written as JSON, so there is nothing to compare: {error}"))
    })?;
    let canonical = canonical(&json).ok_or_else(|| {
        Invalid::new("the payload is written as JSON that cannot be read, so there is nothing to compare")
    })?;
    Ok(Sha256::digest(canonical).iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Makes JSON canonical.
fn canonical(json: &RawValue) -> Option<String> {
    let json = json.get();
    match json.chars().next()? {
        '{' => {
            let members: BTreeMap<String, &RawValue> = serde_json::from_str(json).ok()?;
            let mut members: Vec<_> = members.into_iter().collect();
            members.sort_by_cached_key(|(name, _)| name.encode_utf16().collect::<Vec<_>>());
            let mut texts = Vec::new();
            for (name, value) in members {
                let value = canonical(value)?;
                if value != "null" {
                    texts.push(format!("{}:{value}", serde_json::to_string(&name).ok()?));
                }
            }
            Some(format!("{{{}}}", texts.join(",")))
        }
        '[' => {
            let elements: Vec<&RawValue> = serde_json::from_str(json).ok()?;
            let texts: Option<Vec<_>> = elements.into_iter().map(canonical).collect();
            Some(format!("[{}]", texts?.join(",")))
        }
        '"' => serde_json::to_string(&serde_json::from_str::<String>(json).ok()?).ok(),
        first if first.is_ascii_alphabetic() || !json.contains(['.', 'e', 'E']) => Some(json.to_owned()),
        _ => json.parse::<f64>().ok()?.to_canon_json_string().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn of(payload: serde_json::Value) -> String {
        fingerprint(&payload).unwrap()
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
        let order = fingerprint(&Order { id: 7, amount: 1250 }).unwrap();
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

    /// Returns the canonical JSON as a library makes it, and the fingerprint of this text.
    fn hash_by_library(payload: &impl Serialize) -> (String, String) {
        let json = payload.to_canon_json_string().unwrap();
        let digest = Sha256::digest(&json);
        (json, digest.iter().map(|byte| format!("{byte:02x}")).collect())
    }

    #[test]
    fn a_payload_without_null_and_single_precision_has_the_fingerprint_of_the_standard() {
        for payload in [
            json!(null),
            json!(true),
            json!({}),
            json!([]),
            json!([null, {}, [], ""]),
            json!({"a": [1, -2, 0.1, -0.0, 1e300, 5e-324, 1.0, 1e21, 123_456_789_012_345_680.0_f64, u64::MAX, i64::MIN]}),
            json!({"é": "é\u{1F600}\u{0}\u{7f}\\ \" / \n", "\u{1F600}": 1, "\u{FB33}": 2, "\"\\{}[],:": "}{][,:\\\""}),
        ] {
            let (json, expected) = hash_by_library(&payload);
            assert_eq!(fingerprint(&payload).unwrap(), expected, "{json}");
        }
        let large = (u128::MAX, i128::MIN, u64::MAX, f64::MAX, "x");
        assert_eq!(fingerprint(&large).unwrap(), hash_by_library(&large).1);
    }

    #[test]
    fn a_field_that_is_null_is_the_same_as_none_and_a_null_in_an_array_is_not() {
        let nulls = json!({"a": null, "b": {"c": null, "d": [null, {"e": null}]}});
        assert_eq!(of(nulls.clone()), of(json!({"b": {"d": [null, {}]}})));
        assert_ne!(of(json!([1, null])), of(json!([1])));
        assert_ne!(of(json!({"a": "null"})), of(json!({})));
    }

    #[test]
    fn the_precision_of_a_number_does_not_matter_where_its_digits_are_the_same() {
        for single in [0.1_f32, -12.5, 3.0e-40, f32::MAX, 16_777_216.0, 1e10, 0.0] {
            let double: f64 = format!("{single}").parse().unwrap();
            assert_eq!(fingerprint(&single).unwrap(), fingerprint(&double).unwrap(), "{single}");
        }
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
        assert_eq!(fingerprint(&numbers).unwrap(), of(json!({"10": "a", "9": "b"})));
    }
}
