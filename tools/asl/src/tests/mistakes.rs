//! Mistakes that somebody could make in a definition. The comparison notices each of them.

use super::node::Node;
use super::{compare, states, variants};
use serde_json::Value;

/// The state, the text in it, and the text of the mistake.
const MISTAKES: [(&str, &str, &str); 30] = [
    ("Lock", "leaseEndsAt < :trusted", "leaseEndsAt <= :trusted"),
    ("Lock", "leaseEndsAt <= :now OR", "leaseEndsAt < :now OR"),
    ("Lock", "begins_with(recordVersionNumber, :ours) AND ", ""),
    ("Lock", "$now - 500", "$now"),
    ("Lock", "$now + 2500", "$now + 2501"),
    ("Lock", ", :now) + :one", ", :one)"),
    ("Lock", " REMOVE isReleased", ""),
    ("Lock", ", workflow = :workflow", ""),
    ("Lock", "$ceil($ends / 1000)", "$floor($ends / 1000)"),
    ("Lock", "-12, '0'", "-11, '0'"),
    ("Take", " AND attribute_not_exists(isReleased)", ""),
    ("Take", "$max([$look.token + 1, $now])", "$look.token + 1"),
    ("Take", "$look.ours ? 'SET", "true ? 'SET"),
    ("Renew", " AND fencingToken = :token", ""),
    ("Renew", "$max([$now, $number", "$min([$now, $number"),
    ("Renew", ", $lock.leaseEndsAt])", "])"),
    ("Unlock", " REMOVE workflow", ""),
    ("Unlock", " AND fencingToken = :token", ""),
    ("Look", "+ 500 + 1 - $now", "+ 500 - $now"),
    ("Look", "* 1200 / 1000", ""),
    ("Look", "$left <= 0", "$left < 0"),
    ("Look", "$look.unchanged + $look.wait", "$look.unchanged"),
    ("Look", "'wait': $next = 'Wait' ?", "'wait': true ?"),
    ("Look", "$mine := $ours and ", "$mine := "),
    ("Look", "$ends := $readable and $ours and ", "$ends := $readable and "),
    ("Look", "$not($mine) or $released", "true"),
    ("Look", "$frozen ? 'Wait' : ", ""),
    ("Look", "'wait': $next = 'Wait' ? ($frozen ? 3 : ", "'wait': $next = 'Wait' ? (false ? 3 : "),
    ("Look", " and ($exists($row.freezeReason) ? $exists($row.freezeReason.S) : true)", ""),
    ("Look", ", freezeReason", ""),
];

#[test]
fn each_mistake_in_a_definition_is_noticed() {
    let Some(mut node) = Node::start() else { return };
    // The one with other clocks: it has every value that a mistake is about.
    let (_, options) = variants().pop().unwrap();
    let right = states(&options);
    for (state, text, mistake) in MISTAKES {
        let definition = right[state].to_string();
        assert!(definition.contains(text), "{state} has no {text:?} any more: write the mistake again");
        let mut wrong = right.clone();
        wrong[state] = definition.replacen(text, mistake, 1).parse::<Value>().unwrap();
        let found =
            compare::requests(&mut node, &options, &wrong).and_then(|_| compare::rows(&mut node, &options, &wrong));
        assert!(found.is_err(), "{state}: {mistake:?} instead of {text:?} was not noticed");
    }
}
