//! What the state `Look` makes of a row: the decision of the crate's `acquire`, with `Reclaim::SameOwner`.

use crate::jsonata::{literal, query};
use crate::options::Options;
use lambda_lock_protocol::schema::{
    DEFAULT_TTL, ENDS, FREEZE_REASON, LEASE, OWNER, RELEASED, TOKEN, TTL_NAME, VERSION, WORKFLOW,
};
use lambda_lock_protocol::{OURS, Settings, millis_rounded_up};
use std::time::Duration;

/// What follows a look. The state `Decide` compares with these texts.
pub(crate) const CLAIM: &str = "Claim";
pub(crate) const TAKE: &str = "Take";
pub(crate) const WAIT: &str = "Wait";
const INVALID: &str = "Invalid";

/// The units of a Go duration in milliseconds.
const UNITS: [(&str, &str); 8] = [
    ("ns", "0.000001"),
    ("us", "0.001"),
    // The micro sign, and the Greek letter.
    ("\u{b5}s", "0.001"),
    ("\u{3bc}s", "0.001"),
    ("ms", "1"),
    ("s", "1000"),
    ("m", "60000"),
    ("h", "3600000"),
];

/// Returns the expression of `$look`. It needs the last `$look`, whose `wait` has passed since.
///
/// `unchanged` is for how many seconds the version was seen unchanged. Only the pauses of `Wait` states count.
pub(crate) fn look(options: &Options, settings: &Settings) -> String {
    let bounds = &settings.clock_bounds;
    let skew = millis_rounded_up(options.max_clock_skew);
    // Thousandths, so that no fraction has to be written.
    let stretched = bounds.stretched(Duration::from_secs(1000)).as_secs();
    let number = "([0-9]+[.]?[0-9]*|[.][0-9]+)";
    let unit = UNITS.map(|(unit, _)| unit).join("|");
    let millis: Vec<_> = UNITS.iter().map(|(unit, millis)| format!("{}: {millis}", literal(unit))).collect();
    let millis = format!("{{{}}}", millis.join(", "));
    let optional = |name: &str| format!("($exists($row.{name}) ? $exists($row.{name}.S) : true)");
    let whole = |name: &str| {
        format!(
            "($exists($row.{name}) ? ($exists($row.{name}.N) ? $contains($row.{name}.N, /^[0-9]{{1,15}}$/) : false) : true)"
        )
    };
    // DynamoDB would delete the row by the TTL of a client with another TTL attribute.
    let same_ttl = match settings.schema.ttl_name().filter(|name| *name != DEFAULT_TTL) {
        Some(name) => format!("($exists($row.{TTL_NAME}) ? $row.{TTL_NAME}.S = {} : true)", literal(name)),
        None => format!("$not($exists($row.{TTL_NAME}))"),
    };
    let steps = [
        // First: none of the names below hides a variable of the state machine.
        format!("$me := ({})", options.owner),
        "$row := $states.result.Item".to_owned(),
        format!("$version := $row.{VERSION}.S"),
        format!("$owner := $row.{OWNER}.S"),
        format!("$text := $row.{LEASE}.S"),
        // In milliseconds, or nothing where the text is in neither dialect.
        format!(
            "$lease := $exists($text) ? ($contains($text, /^[0-9]{{1,19}}$/) ? $number($text) : \
             $contains($text, /^[+]?({number}({unit}))+$/) ? $sum($match($text, /{number}({unit})/).\
             ($number('0' & $replace(groups[0], /[.]$/, '')) * $lookup({millis}, groups[1]))))"
        ),
        format!(
            "$readable := $exists($version) and $exists($owner) and $exists($lease) and {same_ttl} and {} and {} and {} and {} and {}",
            optional(RELEASED),
            optional(WORKFLOW),
            optional(FREEZE_REASON),
            whole(TOKEN),
            whole(ENDS)
        ),
        format!("$released := $exists($row.{RELEASED}.S)"),
        format!("$ours := $exists($version) ? $substring($version, 0, {}) = {} : false", OURS.len(), literal(OURS)),
        "$mine := $ours and $exists($owner) ? $owner = $me : false".to_owned(),
        // Nobody is granted a frozen lock but its holder.
        format!("$frozen := $exists($row.{FREEZE_REASON}) ? $not($mine) or $released : false"),
        format!("$ends := $readable and $ours and $exists($row.{ENDS}) ? $number($row.{ENDS}.N) : 1e15"),
        "$now := $millis()".to_owned(),
        "$unchanged := $exists($version) ? ($version = $look.version ? $look.unchanged + $look.wait : 0) : 0"
            .to_owned(),
        // Both in milliseconds: until the wall clock proves the holder dead, and until the watching does.
        format!(
            "$left := $min([$ends + {skew} + 1 - $now, ($exists($lease) ? $lease * {stretched} / 1000 : 1e15) - $unchanged * 1000])"
        ),
        format!(
            "$next := $not($exists($row)) ? {claim} : $not($readable) ? {} : $frozen ? {wait} : $released and $ours and $ends <= $now ? {claim} : \
             $released or $mine or $left <= 0 ? {} : {wait}",
            literal(INVALID),
            literal(TAKE),
            wait = literal(WAIT),
            claim = literal(CLAIM)
        ),
        format!(
            "{{'next': $next, 'version': $exists($version) ? $version : '', 'ours': $ours, 'released': $released, 'mine': $mine, \
             'token': $readable and $exists($row.{TOKEN}) ? $number($row.{TOKEN}.N) : 0, 'unchanged': $unchanged, \
             'wait': $next = {} ? ($frozen ? {poll} : $max([1, $min([{poll}, $ceil($left / 1000)])])) : 0}}",
            literal(WAIT),
            poll = options.poll_seconds
        ),
    ];
    query(&format!("({})", steps.join("; ")))
}
