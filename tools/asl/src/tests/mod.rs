//! The states send the crate's requests and decide as it does. The expectation is written by the crate's own operations
//! ([`crate_requests`]), the states are rendered by jsonata ([`node`]), with the same clock and random digits.

mod compare;
mod crate_requests;
mod mistakes;
mod node;
mod options;

use crate::options::Options;
use lambda_lock_protocol::Dialect;
use node::Node;
use serde_json::Value;
use std::time::Duration;

/// The states of these options.
fn states(options: &Options) -> Value {
    serde_json::to_value(crate::states(options, "test").unwrap()).unwrap()["States"].clone()
}

/// Every option at least once.
fn variants() -> Vec<(&'static str, Options)> {
    let plain = Options { table: crate_requests::TABLE.to_owned(), ..Options::default() };
    vec![
        ("plain", plain.clone()),
        (
            "TTL, sort key, Go's dialect, another name of the key",
            Options {
                ttl_attribute: Some("expiresAt".to_owned()),
                key_attribute: "name".to_owned(),
                sort_key: Some("$states.input.invoice".to_owned()),
                sort_key_attribute: Some("invoice".to_owned()),
                dialect: Dialect::Go,
                ..plain.clone()
            },
        ),
        (
            "other clocks, a lease with a fraction",
            Options {
                poll_seconds: 3,
                max_clock_skew: Duration::from_millis(500),
                clock_drift: 0.2,
                lease: Duration::from_millis(2_500),
                ttl_attribute: Some("expiresAt".to_owned()),
                ..plain
            },
        ),
    ]
}

#[test]
fn every_request_is_the_one_that_the_crate_sends() {
    let Some(mut node) = Node::start() else { return };
    for (name, options) in variants() {
        let compared =
            compare::requests(&mut node, &options, &states(&options)).unwrap_or_else(|e| panic!("{name}: {e}"));
        assert_eq!(compared, compare::REQUESTS, "{name}");
    }
}

#[test]
fn every_row_is_judged_as_the_crate_judges_it() {
    let Some(mut node) = Node::start() else { return };
    for (name, options) in variants() {
        compare::rows(&mut node, &options, &states(&options)).unwrap_or_else(|e| panic!("{name}: {e}"));
    }
}

/// The expressions use names of their own. Where one of them hid the variable of the owner, each execution would take
/// the lock of every other one for its own.
#[test]
fn the_owner_may_be_in_a_variable_of_any_name() {
    let Some(mut node) = Node::start() else { return };
    let names = ["row", "version", "owner", "text", "lease", "readable", "released", "ours", "mine", "ends"];
    for name in names.into_iter().chain(["now", "unchanged", "left", "next", "stamp", "me"]) {
        let options = Options { owner: format!("${name}"), ..Options::default() };
        compare::owner_in_a_variable(&mut node, &states(&options), name);
    }
}

#[test]
fn a_token_that_json_would_round_fails_instead_of_fencing_with_another_one() {
    let Some(mut node) = Node::start() else { return };
    let options = Options::default();
    let states = states(&options);
    compare::too_large_a_token(&mut node, &states);
}
