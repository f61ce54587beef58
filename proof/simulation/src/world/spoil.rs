//! Rows into which somebody writes nonsense, and repairs it later.

use super::queue::Event;
use super::{State, nanos};
use crate::clocks::EPOCH;
use crate::expression::Decimal;
use crate::table::Mark;
use lambda_lock_protocol::{Value, schema};
use std::time::Duration;

/// What was written, and what was there before.
#[derive(Clone, Debug)]
pub(super) struct Spoiled {
    attribute: &'static str,
    written: Value,
    before: Option<Value>,
    unreadable: bool,
}

/// Values that are not a `u64`, or that cannot be increased.
const NUMBERS: [&str; 6] = [
    "7.5",
    "-3",
    "1000000000000000000000000000000",
    "18446744073709551615",
    "99999999999999999999999999999999999999",
    "0.1",
];

/// None of these is a lease, whatever the size of its number.
const LEASES: [&str; 8] = [
    "",
    "soon",
    "-5",
    "1e9",
    "99999999999999999999999",
    "340282366920938463463374607431768211.999us",
    "94522879700260684295381835.9999h",
    "1h 5",
];

/// Ends of leases far in the future. The last one is beyond all years that a clock can show.
const ENDS: [&str; 3] = ["4102444800000", "9000000000000000", "99999999999999999999999999999999999999"];

impl State {
    pub(super) fn spoil(&mut self) {
        let key = self.rng.usize(..self.plan.keys);
        let Some(row) = self.rows.get(&self.keys[key]).cloned() else { return };
        if self.spoiled[key].is_some() {
            return;
        }
        let number = |text: &str| Value::N(text.to_owned());
        let held = row.get(schema::RELEASED).is_none();
        let (attribute, written, unreadable) = match self.rng.u8(..10) {
            0..4 => {
                let which = self.rng.usize(..NUMBERS.len());
                (schema::TOKEN, number(NUMBERS[which]), which != 3)
            }
            4 => (schema::TOKEN, Value::S("seven".to_owned()), true),
            5..7 => (schema::LEASE, Value::S(LEASES[self.rng.usize(..LEASES.len())].to_owned()), true),
            // Not for a held lease, because everybody may believe that such a lease ended long ago.
            7 if !held => (schema::ENDS, number("-1"), true),
            7..9 => {
                let which = self.rng.usize(..ENDS.len());
                (schema::ENDS, number(ENDS[which]), which == 2)
            }
            _ => (schema::OWNER, number("7"), true),
        };
        self.say(|_| format!("{attribute} of row {key} is made {written:?}"));
        self.counts().spoiled += 1;
        let before = row.get(attribute).cloned();
        self.put(key, attribute, Some(written.clone()));
        self.spoiled[key] = Some(Spoiled { attribute, written, before, unreadable });
        let at = self.now + self.rng.u64(0..=4 * nanos(self.plan.lease));
        self.at(at, Event::Repair(key));
    }

    /// Restores the earlier value, unless somebody else has written the row since.
    pub(crate) fn repair(&mut self, key: usize) {
        let Some(spoiled) = self.spoiled[key].take() else { return };
        let Some(row) = self.rows.get(&self.keys[key]) else { return };
        let Spoiled { attribute, ref written, ref before, .. } = spoiled;
        let found = row.get(attribute).cloned();
        let no_u64 = |value: &Value| matches!(value, Value::N(number) if number.parse::<u64>().is_err());
        let counted_on =
            attribute == schema::TOKEN && found.as_ref().is_some_and(no_u64) && found.as_ref() != Some(written);
        if counted_on && row.get(schema::RELEASED).is_none() {
            // The writer of that grant releases it, and would otherwise take the new value for its token.
            if self.calm {
                return self.delete(key);
            }
            self.spoiled[key] = Some(spoiled);
            return self.at(self.now + nanos(self.plan.lease), Event::Repair(key));
        }
        let (written, mut before) = (written.clone(), before.clone());
        if attribute == schema::ENDS && row.get(schema::RELEASED).is_none() {
            // As late as the holder of the lock can accept by now.
            let lease = Duration::from_millis(Mark::of(row).lease);
            let latest = EPOCH + Duration::from_nanos(self.now) + lease + self.plan.skew * 2;
            before = Some(Value::N(latest.as_millis().to_string()));
        }
        if found.as_ref() == Some(&written) || counted_on {
            self.say(|_| format!("{attribute} of row {key} is made {before:?} again"));
            self.put(key, attribute, before);
        }
    }

    fn put(&mut self, key: usize, attribute: &str, value: Option<Value>) {
        let name = self.keys[key].clone();
        let Some(mut row) = self.rows.get(&name).cloned() else { return };
        match value {
            Some(value) => row.set(attribute, value),
            None => drop(row.remove(attribute)),
        }
        self.rows.set(&name, Some(row));
        self.mirror(key);
        self.ledger.written_by_hand(key, attribute == schema::ENDS);
    }

    /// Whether a row, as it was shown, is no lock record because of what was written into it.
    pub(super) fn is_unreadable(&self, key: usize, shown: Option<&Mark>) -> bool {
        let Some(spoiled) = self.spoiled.get(key).and_then(Option::as_ref).filter(|spoiled| spoiled.unreadable) else {
            return false;
        };
        shown.is_some_and(|shown| shown.has(spoiled.attribute, &spoiled.written))
    }
}

/// Whether two values are equal for DynamoDB.
pub(crate) fn same(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::N(one), Value::N(other)) => one == other || Decimal::parse(one) == Decimal::parse(other),
        _ => one == other,
    }
}
