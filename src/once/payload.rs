//! The fingerprint of a payload. Two calls for one key must mean the same work.

use crate::protocol::Invalid;
use serde::Serialize;
use sha2::{Digest, Sha256};
use std::fmt::Write;

/// Returns the SHA-256 of the payload's canonical JSON (RFC 8785: the keys are sorted, and there are no spaces), in
/// hexadecimal. Whole numbers keep all their digits, which is more than that standard demands. Two amounts that differ
/// are therefore never the same payload.
pub(super) fn fingerprint(payload: &impl Serialize) -> Result<String, Invalid> {
    let mut json = Vec::new();
    let formatter = canon_json::CanonicalFormatter::new();
    payload.serialize(&mut serde_json::Serializer::with_formatter(&mut json, formatter)).map_err(|error| {
        Invalid::new(format!("the payload cannot be written as JSON, so there is nothing to compare: {error}"))
    })?;
    let mut text = String::with_capacity(64);
    for byte in Sha256::digest(&json) {
        // Writing into a string cannot fail.
        let _ = write!(text, "{byte:02x}");
    }
    Ok(text)
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
}
