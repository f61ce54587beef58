//! Rows for which a decision was once wrong, tested with every operation.

use crate::decisions::{LEASE_OF_OURS, OUR_TOKEN, Stage, all};
use crate::rows::{self, Attribute, Sketch};
use lambda_lock_protocol::schema::{
    DATA, ENDS, FREEZE_CHANGED_AT, FREEZE_REASON, LEASE, OWNER, RELEASED, TOKEN, VERSION, WORKFLOW,
};
use std::time::Duration;

/// A free row of ours that any caller may claim.
fn free() -> Vec<(&'static str, Attribute)> {
    vec![
        (VERSION, Attribute::Ours(0, -60_000, 7)),
        (OWNER, Attribute::Text("me".to_owned())),
        (LEASE, Attribute::Text("20000".to_owned())),
        (RELEASED, Attribute::Text("1".to_owned())),
        (ENDS, Attribute::FromNow(-60_000)),
        (TOKEN, Attribute::Number(OUR_TOKEN.to_string())),
    ]
}

fn with(mut row: Vec<(&'static str, Attribute)>, name: &'static str, attribute: Attribute) -> Sketch {
    row.retain(|(known, _)| *known != name);
    row.push((name, attribute));
    Sketch(row)
}

fn without(row: Vec<(&'static str, Attribute)>, names: &[&str]) -> Vec<(&'static str, Attribute)> {
    row.into_iter().filter(|(name, _)| !names.contains(name)).collect()
}

#[test]
fn a_free_row_with_a_wrong_fencing_token_is_an_invalid_record() {
    let stage = Stage::new();
    for number in rows::NUMBERS {
        let number = Attribute::Number(number.to_owned());
        all(&stage, &with(free(), TOKEN, number.clone()), 0).unwrap_or_else(|error| panic!("{number:?}: {error}"));
    }
}

#[test]
fn a_peers_free_row_with_the_largest_token_is_an_invalid_record() {
    let stage = Stage::new();
    let row = without(free(), &[VERSION]);
    for number in rows::NUMBERS {
        let mut row = row.clone();
        row.push((VERSION, Attribute::Text("v1".to_owned())));
        let number = Attribute::Number(number.to_owned());
        all(&stage, &with(row, TOKEN, number.clone()), 0).unwrap_or_else(|error| panic!("{number:?}: {error}"));
    }
}

#[test]
fn an_end_far_ahead_in_a_saved_lock_is_not_written_to_the_row() {
    let stage = Stage::new();
    let held = Sketch(without(free(), &[RELEASED]));
    for paper_ends_after in [0, 10_000_000_000_000, 1 << 60, i64::MAX] {
        all(&stage, &held, paper_ends_after).unwrap_or_else(|error| panic!("{paper_ends_after}: {error}"));
    }
}

#[test]
fn lease_texts_that_overflow_keep_a_row_from_being_taken_over() {
    let stage = Stage::new();
    for text in ["340282366920938463463374607431768211.999us", "94522879700260684295381835.9999h"] {
        for row in [free(), without(free(), &[RELEASED]), without(free(), &[RELEASED, ENDS])] {
            all(&stage, &with(row, LEASE, Attribute::Text(text.to_owned())), 0).unwrap();
        }
    }
}

#[test]
fn a_holder_with_a_long_name_does_not_make_a_long_error() {
    let stage = Stage::new();
    let mut held = without(free(), &[RELEASED, ENDS]);
    held.push((ENDS, Attribute::FromNow(60_000)));
    let scene = stage.begin(&with(held, OWNER, Attribute::Text("x".repeat(70_000))));
    let locks = scene.process.locks("asker");
    let error = scene.run(async {
        let budget = scene.process.budget(Duration::from_secs(2));
        locks.acquire("k").lease(LEASE_OF_OURS).within(&budget).await.map(drop).unwrap_err()
    });
    assert!(error.is_held() && error.to_string().len() < 3000, "an error of {} bytes", error.to_string().len());
}

#[test]
fn long_texts_on_a_row_do_not_make_long_errors() {
    let stage = Stage::new();
    for name in [VERSION, OWNER, LEASE, RELEASED, WORKFLOW, DATA, TOKEN, ENDS, FREEZE_REASON, FREEZE_CHANGED_AT] {
        for row in [free(), without(free(), &[RELEASED, ENDS])] {
            let sketch = with(row, name, Attribute::Text("x".repeat(70_000)));
            all(&stage, &sketch, 0).unwrap_or_else(|error| panic!("{name}: {error}"));
        }
    }
}
