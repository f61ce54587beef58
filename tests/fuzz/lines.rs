//! Rows whose line has any content: each call ends, nobody is granted a lock that somebody holds, and a free lock does not stay
//! free.

use crate::decisions::{LEASE_OF_OURS, Stage, is_invalid};
use crate::rows::{Attribute, Sketch, of_any_type};
use crate::{Checked, fuzz};
use lambda_lock::{ReleaseOutcome, Tried};
use lambda_lock_protocol::schema::{
    ENDS, LAST_SLEEPER, LAST_TICKET, LEASE, LEFT_TICKETS, OWNER, RELEASED, SERVED_TICKET, TOKEN, VERSION,
};
use proptest::prelude::*;
use std::time::Duration;

/// Longer than a line that nobody is in keeps others from the lock, and than a dead holder does.
const WAIT: Duration = Duration::from_secs(11);
/// A holder that is alive for longer than that.
const ALIVE: i64 = 60_000;

fn attribute() -> impl Strategy<Value = Option<Attribute>> {
    let number = |of: Vec<&'static str>| prop::sample::select(of).prop_map(|text| Attribute::Number(text.to_owned()));
    let whole =
        vec!["0", "1", "2", "3", "7", "300", "18446744073709551613", "18446744073709551614", "18446744073709551615"];
    prop_oneof![
        2 => Just(None),
        12 => number(whole).prop_map(Some),
        1 => number(vec!["18446744073709551616", "-1", "1.5", "1E30"]).prop_map(Some),
        1 => of_any_type().prop_map(Some),
    ]
}

/// The tickets that were given up, or what somebody has written there instead.
fn left() -> impl Strategy<Value = Option<Attribute>> {
    let ticket =
        prop::sample::select(vec!["1", "2", "3", "6", "7", "300", "18446744073709551614", "-1", "1.5", "1E30"]);
    let texts = |tickets: std::collections::BTreeSet<&'static str>| tickets.into_iter().map(str::to_owned).collect();
    let list = prop::collection::btree_set(ticket, 1..9).prop_map(move |tickets| Attribute::Numbers(texts(tickets)));
    let all = (1..400_u32).prop_map(|last| Attribute::Numbers((1..=last).map(|ticket| ticket.to_string()).collect()));
    prop_oneof![
        4 => Just(None),
        8 => list.prop_map(Some),
        2 => all.prop_map(Some),
        1 => of_any_type().prop_map(Some),
    ]
}

/// A row of ours with any line, and whether its holder is alive for longer than a call waits.
fn rows() -> impl Strategy<Value = (Sketch, bool)> {
    let ends = prop::sample::select(vec![-10_000, -2_500, 0, ALIVE]);
    let line = [LAST_TICKET, SERVED_TICKET, LAST_SLEEPER];
    (ends, any::<bool>(), line.map(|_| attribute()), left()).prop_map(move |(ends, released, attributes, left)| {
        let text = |text: &str| Attribute::Text(text.to_owned());
        let mut row = vec![
            (VERSION, Attribute::Ours(1, -30_000, 1)),
            (OWNER, text("somebody")),
            (LEASE, text("20000")),
            (TOKEN, Attribute::Number("1760000000001".to_owned())),
            (ENDS, Attribute::FromNow(ends)),
        ];
        row.extend(released.then(|| (RELEASED, text("1"))));
        let attributes = line.into_iter().zip(attributes).chain([(LEFT_TICKETS, left)]);
        row.extend(attributes.filter_map(|(name, attribute)| Some((name, attribute?))));
        (Sketch(row), !released && ends == ALIVE)
    })
}

/// The counters that are no whole numbers. The other attributes of a line decide nothing.
fn wrong(sketch: &Sketch) -> Vec<&'static str> {
    let row = sketch.at(0);
    let is_wrong = |name: &&str| row.has(name) && row.number(name).and_then(|number| number.as_u64()).is_none();
    [LAST_TICKET, SERVED_TICKET].into_iter().filter(is_wrong).collect()
}

fn ends_as_it_should(stage: &Stage, sketch: &Sketch, is_alive: bool, queueing: u8) -> Checked {
    let scene = stage.begin(sketch);
    let locks = scene.process.locks("asker");
    let acquired = scene.run(async {
        let budget = scene.process.budget(WAIT).reserve(Duration::from_secs(1));
        let acquire = locks.acquire("k").within(&budget).lease(LEASE_OF_OURS);
        match queueing {
            0 => acquire.await,
            1 => acquire.in_turn().await,
            _ => acquire.out_of_turn().await,
        }
    });
    match acquired {
        Ok(lock) => {
            prop_assert!(!is_alive, "two callers hold the lock");
            match scene.run(async { lock.release().await }) {
                Ok(outcome) => prop_assert_eq!(outcome, ReleaseOutcome::Released),
                Err(error) => is_invalid(&error, &wrong(sketch))?,
            }
        }
        Err(error) if error.is_held() => prop_assert!(is_alive, "a free lock stays free: {error}"),
        Err(error) => is_invalid(&error, &wrong(sketch))?,
    }
    // A caller that sleeps between its calls asks once.
    let scene = stage.begin(sketch);
    let locks = scene.process.locks("asker");
    match scene.run(async { locks.acquire("k").lease(LEASE_OF_OURS).between_calls().try_once().await }) {
        Ok(Tried::Granted(_)) => prop_assert!(!is_alive, "two callers hold the lock"),
        Ok(Tried::Refused(held)) => prop_assert!(held.retry_after > Duration::ZERO),
        Err(error) => is_invalid(&error, &wrong(sketch))?,
    }
    Ok(())
}

#[test]
fn whatever_the_line_of_a_row_says_each_call_ends_as_the_lock_is_free_or_held() {
    let stage = Stage::new();
    fuzz(100, (rows(), 0..3_u8), |((sketch, is_alive), queueing)| {
        ends_as_it_should(&stage, &sketch, is_alive, queueing)
    });
}
