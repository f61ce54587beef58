//! The WIT package has a case for every error kind of the crate that a component can return.
//!
//! The crate's kinds can grow without breaking a build, so only this list notices a new one. For a new kind, decide
//! whether a component can return it. If so, add a case to `component/wit/types.wit`, and handle the kind in
//! `component/client/src/error.rs`, in `component/conformance/src/native.rs` and, for `protocol`, in
//! `component/protocol/src/error.rs`.

const CRATE: &str = include_str!("../../../src/engine/error.rs");
const WIT: &str = include_str!("../../wit/types.wit");

/// Each kind of the crate, with its case in the WIT package.
const KINDS: [(&str, Option<&str>); 13] = [
    ("Held", Some("held")),
    ("Lost", Some("lost")),
    ("Unknown", Some("unknown")),
    // Only a commit returns it. It takes the caller's own writes, which no function of the components does.
    ("Cancelled", None),
    // Only calls that take the caller's own future return these: idempotent work, and work that a guard runs.
    ("PayloadMismatch", None),
    ("CutShort", None),
    ("FailedBefore", None),
    ("Unavailable", Some("unavailable")),
    ("OutOfTime", Some("out-of-time")),
    ("InvalidRequest", Some("invalid-request")),
    ("InvalidRecord", Some("invalid-record")),
    ("Table", Some("table")),
    ("Denied", Some("denied")),
];

/// The names of an enumeration's cases: the lines between its head and its end that are indented by `indent`, without
/// the data of the case.
fn cases<'a>(text: &'a str, head: &str, indent: &str) -> Vec<&'a str> {
    let body = text.split_once(head).map_or("", |(_, after)| after);
    let lines = body.lines().take_while(|line| line.trim_end() != format!("{}}}", &indent[4..]));
    let names = lines.filter_map(|line| line.strip_prefix(indent)?.split(['(', ',', ' ', '{']).next());
    names.filter(|name| name.starts_with(|first: char| first.is_ascii_alphabetic())).collect()
}

#[test]
fn every_error_kind_of_the_crate_is_in_the_list() {
    let mut thought_of = KINDS.map(|(kind, _)| kind);
    let mut known = cases(CRATE, "pub enum ErrorKind {", "    ");
    known.sort_unstable();
    thought_of.sort_unstable();
    assert_eq!(known, thought_of);
}

#[test]
fn the_wit_package_has_a_case_for_each_kind_that_a_component_can_return() {
    let mut wanted: Vec<_> = KINDS.iter().filter_map(|(_, case)| *case).collect();
    let mut offered = cases(WIT, "variant error-kind {", "        ");
    wanted.sort_unstable();
    offered.sort_unstable();
    assert_eq!(offered, wanted);
}
