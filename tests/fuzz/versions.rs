//! Versions: which texts are versions of ours, and in which order.

use crate::{Checked, fuzz};
use lambda_lock_protocol::{OURS, Stamp, Version};
use proptest::prelude::*;

pub(crate) const GRANTS: [&str; 2] = ["0123456789ab4def8123456789abcdef", "fedcba9876544210bedcba9876543210"];

/// Texts that look like a version of ours, but are not.
pub(crate) fn nearly() -> impl Strategy<Value = String> {
    let grant = prop_oneof![
        prop::sample::select(GRANTS.to_vec()).prop_map(str::to_owned),
        "[0-9a-f]{30,34}",
        "[0-9A-F]{32}",
        "[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-8[0-9a-f]{3}-[0-9a-f]{12}",
        "\\{[0-9a-f]{30}\\}",
        Just(String::new()),
    ];
    let stamp =
        prop_oneof!["[0-9a-f]{27,29}", "[0-9A-Fg+ -]{28}", "[0-9a-f]{16}", "0", "g", "", "[0-9a-f]{28}\n", "\\PC{28}"];
    prop_oneof![
        6 => (grant, stamp).prop_map(|(grant, stamp)| format!("{OURS}{grant}-{stamp}")),
        1 => "(ll1-|LL1-|ll1|lo1-|ll2-)?\\PC{0,60}",
        1 => (0..70_000_usize).prop_map(|length| format!("{OURS}{}", "0".repeat(length))),
    ]
}

fn check(text: &str) -> Checked {
    // The form again, without a parser: 32 and 28 lower-case hexadecimal digits.
    let parts: Vec<&str> = text.split('-').collect();
    let digits = |part: &str, count| part.len() == count && part.bytes().all(|b| b"0123456789abcdef".contains(&b));
    let ours = parts.len() == 3 && parts[0] == "ll1" && digits(parts[1], 32) && digits(parts[2], 28);
    let read = Version::parse(text);
    prop_assert_eq!(read.is_some(), ours, "{:?}", text.chars().take(80).collect::<String>());
    let Some(version) = read else { return Ok(()) };
    prop_assert_eq!(version.text(), text);
    // The bounds of all versions of a grant, in the order in which DynamoDB compares texts.
    prop_assert!(version.grant.first_version().as_str() <= text && text <= version.grant.last_version().as_str());
    prop_assert_eq!(Version::parse(&version.settled()), None);
    Ok(())
}

#[test]
fn only_versions_that_we_write_count_as_ours() {
    fuzz(1000, nearly(), |text| check(&text));
    fuzz(500, ("[0-9a-f]{32}", "[0-9a-f]{28}"), |(grant, stamp)| check(&format!("{OURS}{grant}-{stamp}")));
}

#[test]
fn stamps_are_ordered_as_dynamodb_orders_their_texts() {
    fuzz(1000, ("[0-9a-f]{28}", "[0-9a-f]{28}"), |(one, other)| {
        let read = |stamp: &str| Version::parse(&format!("{OURS}{}-{stamp}", GRANTS[0])).unwrap();
        prop_assert_eq!(read(&one).stamp.cmp(&read(&other).stamp), one.cmp(&other));
        Ok(())
    });
}

#[test]
fn a_new_stamp_is_newer_than_the_last_one_whatever_the_clock_says() {
    let clock = prop_oneof![any::<u64>(), 0..2_000_000_000_000_u64, Just(u64::MAX)];
    fuzz(1000, ("[0-9a-f]{28}", clock, any::<u64>()), |(last, now, random)| {
        let last = Version::parse(&format!("{OURS}{}-{last}", GRANTS[0])).unwrap().stamp;
        let next = Stamp::after(Some(last), now, random);
        // The last millisecond that a stamp can contain is in the year 10889.
        prop_assert!(next > last || last.millis() == 0xffff_ffff_ffff, "{:?} after {:?}", next, last);
        prop_assert!(Stamp::after(None, now, random).millis() <= now);
        Ok(())
    });
}
