//! Renders the states next to what the crate sends and decides. The first difference is an error.

use super::crate_requests::{
    self as of_crate, Decision, EXECUTION, KEY, SORT_KEY, as_sent, item, releasing, renewal, scene_of, settings,
};
use super::node::{Node, Scene};
use crate::options::Options;
use lambda_lock_protocol::{Lease, Observation};
use serde_json::{Value, json};
use std::time::Duration;

/// When the grant was made.
const GRANTED: u64 = 1_790_000_000_000;
/// How many requests [`requests`] compares.
pub(super) const REQUESTS: usize = 1 + 2 * 2;

/// What the expressions of a state see, without a result.
fn bindings() -> Value {
    let context = json!({ "Execution": { "Id": EXECUTION, "RedriveCount": 0 } });
    json!({ "states": { "input": { "key": KEY, "invoice": SORT_KEY }, "context": context } })
}

fn with(mut bindings: Value, name: &str, value: &Value) -> Value {
    bindings[name] = value.clone();
    bindings
}

fn with_result(mut bindings: Value, result: Value) -> Value {
    bindings["states"]["result"] = result;
    bindings
}

/// Renders the arguments of a state, and compares them with this request.
fn same(node: &mut Node, state: &Value, sent: &Value, millis: u64, bindings: Value, what: &str) -> Result<(), String> {
    let mut rendered = node
        .render(&state["Arguments"], &scene_of(sent, millis, bindings))
        .map_err(|error| format!("{what}: {error}"))?;
    let returns = rendered.as_object_mut().and_then(|fields| fields.remove("ReturnValues"));
    // A release has no answer that a state needs. Of the other requests it needs what they have written.
    let expected = if state.get("Assign").is_some() { "UPDATED_NEW" } else { "NONE" };
    if returns != Some(json!(expected)) {
        return Err(format!("{what} returns {returns:?}"));
    }
    if &rendered != sent {
        return Err(format!("{what}\n  state: {rendered:#}\n  crate: {sent:#}"));
    }
    Ok(())
}

/// Returns `$lock` as a state assigns it after this request was applied.
fn locked(node: &mut Node, state: &Value, sent: &Value, lock: &Value) -> Result<Value, String> {
    let values = &sent["ExpressionAttributeValues"];
    let text = |name: &str| values[name]["N"].as_str().map_or(0, |number| number.parse::<u64>().unwrap());
    let token = if values.get(":token").is_some() { text(":token") } else { text(":now") + text(":one") };
    let written = json!({
        "ownerName": values[":owner"], "recordVersionNumber": values[":rvn"], "leaseEndsAt": values[":ends"],
        "fencingToken": { "N": token.to_string() },
    });
    let bindings = with_result(with(bindings(), "lock", lock), json!({ "Attributes": written }));
    let assigned = node.render(&state["Assign"], &Scene { bindings, ..Scene::default() })?;
    Ok(assigned["lock"].clone())
}

/// Compares what Lock, Renew and Unlock send, also with a clock that is behind. Returns how many were compared.
pub(super) fn requests(node: &mut Node, options: &Options, states: &Value) -> Result<usize, String> {
    let claim = as_sent(options, &of_crate::claim(options, GRANTED));
    same(node, &states["Lock"], &claim, GRANTED, bindings(), "Lock")?;
    let granted = locked(node, &states["Lock"], &claim, &Value::Null)?;
    let mut compared = 1;
    for (what, millis) in [("later", GRANTED + 1_234), ("by a clock that is behind", GRANTED - 300)] {
        let renew = as_sent(options, &renewal(options, millis, &granted));
        let bindings = with(bindings(), "lock", &granted);
        same(node, &states["Renew"], &renew, millis, bindings, &format!("Renew, {what}"))?;
        let renewed = locked(node, &states["Renew"], &renew, &granted)?;
        if renewed["fencingToken"] != granted["fencingToken"] || renewed["owner"] != granted["owner"] {
            return Err(format!("Renew, {what}: another grant, {renewed}"));
        }
        let release = as_sent(options, &releasing(options, millis, &renewed));
        for state in ["Unlock", "UnlockAfterFailure"] {
            let bindings = with(super::compare::bindings(), "lock", &renewed);
            same(node, &states[state], &release, millis, bindings, &format!("{state}, {what}"))?;
        }
        compared += 2;
    }
    Ok(compared)
}

/// A row, when it is looked at, and what was seen before.
struct Row {
    what: &'static str,
    row: Value,
    /// Milliseconds from the end of the lease that stands on the row.
    after_end: i64,
    /// The version that was seen before, for how many seconds, and how long the last pause was.
    seen: (&'static str, u64, u64),
    expected: &'static str,
}

const OWN_VERSION: &str = "ll1-0123456789ab4cdef0123456789abcde-01a20353eece0123456789ab54b4";
const PEERS_VERSION: &str = "b2c6a6e2-37cb-4bd9-9cdd-1b0f0d1f9c3e";

fn rows_of(options: &Options) -> Vec<Row> {
    let lease = Lease::new(options.lease, options.dialect);
    let ours = json!({
        "ownerName": { "S": "somebody" }, "leaseDuration": { "S": lease.text() },
        "recordVersionNumber": { "S": OWN_VERSION }, "fencingToken": { "N": "7" },
        "leaseEndsAt": { "N": GRANTED.to_string() }, "workflow": { "S": "arn" },
    });
    let peers = |lease: &str| {
        json!({
            "ownerName": { "S": "peer" }, "leaseDuration": { "S": lease },
            "recordVersionNumber": { "S": PEERS_VERSION },
        })
    };
    let and = |row: &Value, name: &str, value: Value| with(row.clone(), name, &value);
    let without = |row: &Value, name: &str| {
        let mut row = row.clone();
        row.as_object_mut().unwrap().remove(name);
        row
    };
    let skew = i64::try_from(options.max_clock_skew.as_millis()).unwrap();
    let nothing = ("", 0, 0);
    let released = || json!({ "S": "1" });
    let stretched = |millis: u64| settings(options).clock_bounds.stretched(Duration::from_millis(millis)).as_secs();
    let mut rows = Vec::new();
    let mut add = |what, row: &Value, after_end, seen, expected| {
        rows.push(Row { what, row: row.clone(), after_end, seen, expected });
    };
    add("held", &ours, -2_000, nothing, "Wait");
    add("held, over soon", &ours, -700, nothing, "Wait");
    add("over, within the skew", &ours, skew, nothing, "Wait");
    add("dead by the wall clock", &ours, skew + 1, nothing, "Take");
    add("released", &and(&ours, "isReleased", released()), 5, nothing, "Claim");
    add("released in this millisecond", &and(&ours, "isReleased", released()), 0, nothing, "Claim");
    add("released by a clock that is ahead", &and(&ours, "isReleased", released()), -5, nothing, "Take");
    add("released, without an end", &without(&and(&ours, "isReleased", released()), "leaseEndsAt"), 5, nothing, "Take");
    let own = and(&ours, "ownerName", json!({ "S": format!("{EXECUTION}/0") }));
    add("of this owner", &own, -2_000, nothing, "Take");
    add(
        "of an earlier attempt",
        &and(&ours, "ownerName", json!({ "S": format!("{EXECUTION}/1") })),
        -2_000,
        nothing,
        "Wait",
    );
    add("without a token", &without(&ours, "fencingToken"), skew + 1, nothing, "Take");
    let lease_seconds = stretched(options.lease.as_millis() as u64);
    add("nearly a lease unchanged", &ours, -2_000, (OWN_VERSION, lease_seconds - 1, 0), "Wait");
    add("a lease unchanged", &ours, -2_000, (OWN_VERSION, lease_seconds, 1), "Take");
    add("renewed meanwhile", &ours, -2_000, (PEERS_VERSION, 10_000, 5), "Wait");

    add("of a Java client", &peers("20000"), 10_000_000, nothing, "Wait");
    let java = stretched(20_000);
    add("of a Java client, nearly dead", &peers("20000"), 0, (PEERS_VERSION, 10, java - 11), "Wait");
    add("of a Java client, dead", &peers("20000"), 0, (PEERS_VERSION, 10, java - 10), "Take");
    let stale = and(&peers("20000"), "leaseEndsAt", json!({ "N": "5" }));
    add("of a Java client, with an old end of ours", &stale, 0, nothing, "Wait");
    let stale = and(&peers("20000"), "fencingToken", json!({ "N": "41" }));
    add("of a Java client, with an old token of ours", &stale, 0, (PEERS_VERSION, java, 0), "Take");
    let ahead = and(&peers("20000"), "fencingToken", json!({ "N": "100000000000000" }));
    add("of a Java client, with a token ahead of the clock", &ahead, 0, (PEERS_VERSION, java, 0), "Take");
    add("released by a Java client", &and(&peers("20000"), "isReleased", released()), 0, nothing, "Take");
    let as_us = and(&peers("20000"), "ownerName", json!({ "S": format!("{EXECUTION}/0") }));
    add("of a Java client with the name of this owner", &as_us, 0, nothing, "Wait");
    for (text, millis) in [
        ("1m30.5s", 90_500),
        ("20s", 20_000),
        ("1h", 3_600_000),
        ("2m", 120_000),
        ("1500ms", 1_500),
        (".5s", 500),
        ("3.s", 3_000),
        ("+4s", 4_000),
        ("5000000us", 5_000),
        ("5000000\u{b5}s", 5_000),
        ("5000000\u{3bc}s", 5_000),
        ("7000000000ns", 7_000),
    ] {
        let seconds = stretched(millis);
        add("of a Go client", &peers(text), 0, nothing, "Wait");
        add("of a Go client, nearly dead", &peers(text), 0, (PEERS_VERSION, seconds.saturating_sub(1), 0), "Wait");
        add("of a Go client, dead", &peers(text), 0, (PEERS_VERSION, seconds, 1), "Take");
    }
    for text in ["soon", "", "-5", "1h-3m", "5 s", "1.5.5s", "s", "1m30", "1e3", "."] {
        add("unreadable lease", &peers(text), 0, (PEERS_VERSION, 1_000_000, 0), "Invalid");
    }
    for (name, value) in [
        ("leaseDuration", json!({ "N": "5" })),
        ("ownerName", json!({ "N": "5" })),
        ("recordVersionNumber", json!({ "BOOL": true })),
        ("isReleased", json!({ "BOOL": true })),
        ("workflow", json!({ "N": "1" })),
        ("freezeReason", json!({ "N": "1" })),
        ("freezeReason", json!({ "NULL": true })),
        // Of a client with another TTL attribute.
        ("ttlAttribute", json!({ "S": "goneAt" })),
        ("ttlAttribute", json!({ "N": "1" })),
        ("fencingToken", json!({ "S": "7" })),
        ("fencingToken", json!({ "N": "-7" })),
        ("fencingToken", json!({ "N": "1.5" })),
        ("leaseEndsAt", json!({ "S": "7" })),
        ("leaseEndsAt", json!({ "N": "-7" })),
    ] {
        add("unreadable attribute", &and(&ours, name, value), skew + 1, nothing, "Invalid");
    }
    for name in ["leaseDuration", "ownerName", "recordVersionNumber"] {
        add("missing attribute", &without(&ours, name), skew + 1, nothing, "Invalid");
    }
    let frozen = |row: &Value| {
        let row = and(row, "freezeReason", json!({ "S": "a migration" }));
        and(&row, "freezeChangedAt", json!({ "N": GRANTED.to_string() }))
    };
    let dead = (PEERS_VERSION, java, 0);
    add("frozen, held", &frozen(&ours), -2_000, nothing, "Wait");
    add("frozen, held by this owner", &frozen(&own), -2_000, nothing, "Take");
    add("frozen, held by this owner, over", &frozen(&own), skew + 1, nothing, "Take");
    let earlier = and(&ours, "ownerName", json!({ "S": format!("{EXECUTION}/1") }));
    add("frozen, of an earlier attempt", &frozen(&earlier), skew + 1, nothing, "Wait");
    add("frozen, dead by the wall clock", &frozen(&ours), skew + 1, nothing, "Wait");
    add("frozen, a lease unchanged", &frozen(&ours), -2_000, (OWN_VERSION, lease_seconds, 1), "Wait");
    add("frozen, released", &frozen(&and(&ours, "isReleased", released())), 5, nothing, "Wait");
    add("frozen, released by this owner", &frozen(&and(&own, "isReleased", released())), 5, nothing, "Wait");
    add("frozen, of a Java client, dead", &frozen(&peers("20000")), 0, dead, "Wait");
    add("frozen, of a Java client with the name of this owner", &frozen(&as_us), 0, dead, "Wait");
    add("frozen, released by a Java client", &frozen(&and(&peers("20000"), "isReleased", released())), 0, dead, "Wait");
    add("thawed", &without(&frozen(&and(&ours, "isReleased", released())), "freezeReason"), 5, nothing, "Claim");
    add("no lock at all", &json!({ "balance": { "N": "5" } }), 0, nothing, "Invalid");
    add("no row", &Value::Null, 0, nothing, "Claim");
    rows
}

/// Compares what Look makes of each row with what the crate does, and what Take then sends.
pub(super) fn rows(node: &mut Node, options: &Options, states: &Value) -> Result<(), String> {
    for row in rows_of(options) {
        judged(node, options, states, &row).map_err(|error| format!("{}: {} {error}", row.what, row.row))?;
    }
    Ok(())
}

fn judged(node: &mut Node, options: &Options, states: &Value, row: &Row) -> Result<(), String> {
    let millis = GRANTED.checked_add_signed(row.after_end).unwrap();
    let (version, unchanged, wait) = row.seen;
    let before = json!({ "version": version, "unchanged": unchanged, "wait": wait });
    let bindings = with(bindings(), "look", &before);
    let result = row.row.as_object().map(|_| json!({ "Item": projected(&states["Look"], &row.row) }));
    let seen = with_result(bindings.clone(), result.unwrap_or(json!({})));
    let look = node.render(&states["Look"]["Assign"]["look"], &Scene { bindings: seen, millis, uuids: vec![] })?;
    let observed = Observation::from_parts(version.to_owned(), options.lease, Duration::from_secs(unchanged))
        .and_waited(Duration::from_secs(wait));
    let found = row.row.as_object().map(|_| item(&row.row));
    let decision = of_crate::decision(options, millis, found, Some(observed));
    let next = decided(node, states, &look)?;
    let wanted = match &decision {
        Decision::Claims => ("Claim", "Lock"),
        Decision::Takes(_) => ("Take", "Take"),
        Decision::Waits { .. } => ("Wait", "WaitForHolder"),
        Decision::Refuses => ("Invalid", "InvalidRecord"),
    };
    // Only a pause that follows counts as time in which the version was seen unchanged.
    if next != "WaitForHolder" && look["wait"] != json!(0) {
        return Err(format!("goes to {next}, and counts a pause of {} s", look["wait"]));
    }
    if (row.expected, next.as_str()) != wanted {
        return Err(format!("expected {}, the state machine goes to {next}, the crate {decision:?}", row.expected));
    }
    match decision {
        Decision::Takes(request) => {
            let sent = as_sent(options, &request);
            let bindings = with(bindings, "look", &look);
            same(node, &states["Take"], &sent, millis, bindings, "Take")?;
            let lock = locked(node, &states["Take"], &sent, &Value::Null)?;
            if lock["version"] != sent["ExpressionAttributeValues"][":rvn"]["S"] {
                return Err(format!("Take assigns {lock}"));
            }
        }
        Decision::Waits { retry_after, unchanged } => {
            let seconds = (retry_after.as_nanos().div_ceil(1_000_000_000) as u64).clamp(1, options.poll_seconds);
            let expected = json!([seconds, unchanged.as_secs()]);
            let found = json!([look["wait"], look["unchanged"]]);
            if found != expected {
                return Err(format!("[wait, unchanged] is {found}, and should be {expected}"));
            }
        }
        Decision::Claims | Decision::Refuses => {}
    }
    Ok(())
}

/// What the read returns of a row.
fn projected(look: &Value, row: &Value) -> Value {
    let names: Vec<_> = look["Arguments"]["ProjectionExpression"].as_str().unwrap().split(", ").collect();
    let mut row = row.clone();
    row.as_object_mut().unwrap().retain(|name, _| names.contains(&name.as_str()));
    row
}

/// The state that Decide goes to.
fn decided(node: &mut Node, states: &Value, look: &Value) -> Result<String, String> {
    let bindings = with(with(bindings(), "look", look), "unanswered", &json!(1));
    let scene = Scene { bindings, ..Scene::default() };
    for choice in states["Decide"]["Choices"].as_array().unwrap() {
        if node.render(&choice["Condition"], &scene)? == json!(true) {
            return Ok(choice["Next"].as_str().unwrap().to_owned());
        }
    }
    Ok(states["Decide"]["Default"].as_str().unwrap().to_owned())
}

/// The owner is in this variable. Only a row with its value is this execution's own.
pub(super) fn owner_in_a_variable(node: &mut Node, states: &Value, name: &str) {
    let bindings = with(bindings(), name, &json!("me"));
    let uuids = vec!["01234567-89ab-4cde-f012-3456789abcde".to_owned(); 2];
    let scene = Scene { bindings: bindings.clone(), millis: GRANTED, uuids };
    let claim = node.render(&states["Lock"]["Arguments"], &scene).unwrap();
    assert_eq!(claim["ExpressionAttributeValues"][":owner"], json!({ "S": "me" }), "{name}");

    let before = json!({ "version": "", "unchanged": 0, "wait": 0 });
    for (holder, expected) in [("somebody", "WaitForHolder"), ("me", "Take")] {
        let row = json!({
            "ownerName": { "S": holder }, "leaseDuration": { "S": "60000" }, "recordVersionNumber": { "S": OWN_VERSION },
            "fencingToken": { "N": "7" }, "leaseEndsAt": { "N": (GRANTED + 60_000).to_string() },
        });
        let seen = with_result(with(bindings.clone(), "look", &before), json!({ "Item": row }));
        let scene = Scene { bindings: seen, millis: GRANTED, uuids: vec![] };
        let look = node.render(&states["Look"]["Assign"]["look"], &scene).unwrap();
        assert_eq!(decided(node, states, &look).as_deref(), Ok(expected), "${name}, held by {holder}");
    }
}

/// A token of 16 digits is neither taken nor kept.
pub(super) fn too_large_a_token(node: &mut Node, states: &Value) {
    let row = json!({
        "ownerName": { "S": "o" }, "leaseDuration": { "S": "5" }, "recordVersionNumber": { "S": OWN_VERSION },
        "isReleased": { "S": "1" }, "leaseEndsAt": { "N": "5" }, "fencingToken": { "N": "1234567890123456" },
    });
    let before = json!({ "version": "", "unchanged": 0, "wait": 0 });
    let seen = with_result(with(bindings(), "look", &before), json!({ "Item": row }));
    let scene = Scene { bindings: seen, millis: GRANTED, uuids: vec![] };
    let look = node.render(&states["Look"]["Assign"]["look"], &scene).unwrap();
    assert_eq!(decided(node, states, &look), Ok("InvalidRecord".to_owned()));
    let written = with_result(bindings(), json!({ "Attributes": row }));
    let error = node.render(&states["Lock"]["Assign"], &Scene { bindings: written, ..Scene::default() }).unwrap_err();
    assert!(error.contains("has more than 15 digits"), "{error}");
}
