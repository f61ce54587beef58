//! Records of idempotent work. `OnceRecord` and `Record` read the same row. Neither lets work with a stored
//! outcome be done again.

use crate::rows::{Attribute, NUMBERS, Row, Sketch, lock_attributes, maybe, number};
use crate::versions::GRANTS;
use crate::{Checked, fuzz};
use lambda_lock::once::OnceState;
use lambda_lock::{Error, ErrorKind};
use lambda_lock_protocol::schema::{
    ATTEMPTS, ENDS, FIRST_SEEN, KEPT_UNTIL, LEASE, OUTCOME, OUTCOME_AT, OWNER, PAYLOAD, RELEASED, STATE, TOKEN, VERSION,
};
use lambda_lock_protocol::{OnceRecord, Schema};
use lambda_lock_testkit::{Process, Table};
use proptest::prelude::*;
use serde_json::Value as Json;
use std::cell::Cell;
use std::time::Duration;

const NUMERIC: [&str; 3] = [ATTEMPTS, FIRST_SEEN, KEPT_UNTIL];

fn rows() -> impl Strategy<Value = Sketch> {
    let fixed =
        |texts: Vec<&'static str>| prop::sample::select(texts).prop_map(|text| Attribute::Text(text.to_owned()));
    let settled = "[0-9a-f]{28}".prop_map(|stamp| Attribute::Text(format!("lo1-{}-{stamp}", GRANTS[0])));
    let once = (
        maybe(ATTEMPTS, 95, number()),
        maybe(FIRST_SEEN, 95, number()),
        maybe(KEPT_UNTIL, 95, number()),
        maybe(PAYLOAD, 20, fixed(vec!["", "x"])),
        maybe(STATE, 60, fixed(vec!["done", "failed", "open", ""])),
        maybe(OUTCOME, 60, fixed(vec!["\"result\"", "7", "{", ""])),
        maybe(OUTCOME_AT, 60, number()),
        maybe(VERSION, 40, settled),
    );
    (lock_attributes(), once).prop_map(|(mut all, once)| {
        if once.7.is_some() {
            all.retain(|attribute| attribute.as_ref().is_none_or(|(name, _)| *name != VERSION));
        }
        all.extend([once.0, once.1, once.2, once.3, once.4, once.5, once.6, once.7]);
        Sketch(all.into_iter().flatten().collect())
    })
}

fn is_settled(row: &Row) -> bool {
    row.text(VERSION).is_some_and(|version| version.starts_with("lo1-"))
}

/// Returns which attributes prevent the row from being a record of idempotent work.
fn wrong(row: &Row) -> Vec<&'static str> {
    let mut wrong = row.wrong_numbers(&NUMERIC);
    wrong.extend(NUMERIC.iter().filter(|name| !row.has(name)));
    wrong.extend((row.has(PAYLOAD) && row.text(PAYLOAD).is_none()).then_some(PAYLOAD));
    if is_settled(row) {
        wrong.extend((!matches!(row.text(STATE), Some("done" | "failed"))).then_some(STATE));
        wrong.extend(row.text(OUTCOME).is_none().then_some(OUTCOME));
        wrong.extend(row.number(OUTCOME_AT).and_then(|at| at.as_u64()).is_none().then_some(OUTCOME_AT));
    }
    wrong
}

struct Stage {
    runtime: tokio::runtime::Runtime,
    table: Table,
}

impl Stage {
    fn new() -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        let table = runtime.block_on(async { Table::new() });
        Self { runtime, table }
    }

    fn put(&self, sketch: &Sketch) -> (Process, Row, Json, u64) {
        self.runtime.block_on(async {
            let process = self.table.process();
            process.set_latency(Duration::from_millis(10));
            let now = process.clock.wall_millis();
            let row = sketch.at(now);
            self.table.put(row.json("once/w"));
            (process, row, self.row(), now)
        })
    }

    fn row(&self) -> Json {
        self.table.row("once/w").unwrap()
    }

    fn bounded<T>(&self, operation: impl Future<Output = T>) -> T {
        let bounded = async { tokio::time::timeout(Duration::from_secs(600), operation).await };
        self.runtime.block_on(bounded).unwrap_or_else(|_| panic!("it did not end"))
    }
}

fn is_invalid(error: &Error) -> Checked {
    prop_assert_eq!(error.kind(), ErrorKind::InvalidRecord, "{}", error);
    prop_assert!(error.to_string().len() < 1000, "an error of {} bytes", error.to_string().len());
    Ok(())
}

fn status(stage: &Stage, sketch: &Sketch) -> Checked {
    let (process, row, before, _) = stage.put(sketch);
    let wrong = wrong(&row);
    let read = OnceRecord::read(row.as_spelled(&before).item(), &Schema::default());
    let locks = process.locks("asker");
    let status = stage.bounded(async { locks.once("w").status().await });
    prop_assert_eq!(read.is_ok(), wrong.is_empty(), "{:?}, although {:?} is wrong", read, wrong);
    match (read, status) {
        (Err(invalid), Err(error)) => {
            prop_assert!(wrong.contains(&invalid.attribute()), "{invalid}, although {wrong:?} is wrong");
            is_invalid(&error)?;
        }
        (Ok(record), Ok(Some(status))) => {
            let whole = |name| row.number(name).and_then(|number| number.as_u64());
            prop_assert_eq!(Some(record.attempts), whole(ATTEMPTS));
            prop_assert_eq!(Some(record.first_seen), whole(FIRST_SEEN));
            prop_assert_eq!(Some(record.kept_until), whole(KEPT_UNTIL));
            prop_assert_eq!(status.attempts, record.attempts);
            prop_assert_eq!(status.state == OnceState::Open, !is_settled(&row));
        }
        (read, status) => prop_assert!(false, "read as {read:?}, and its status as {status:?}"),
    }
    prop_assert_eq!(stage.row(), before, "a look changed the row");
    Ok(())
}

fn run(stage: &Stage, sketch: &Sketch) -> Checked {
    let (process, row, before, now) = stage.put(sketch);
    let locks = process.locks("asker");
    let worked = Cell::new(0);
    let work = async |_: &mut lambda_lock::once::Attempt| {
        worked.set(worked.get() + 1);
        Ok::<_, Error>("anew".to_owned())
    };
    let result = stage.bounded(async {
        let budget = process.budget(Duration::from_secs(10));
        locks.once("w").within(&budget).without_waiting().run(work).await
    });
    let kept = row.number(KEPT_UNTIL).is_some_and(|until| until.compare(now).is_ge());
    if is_settled(&row) && wrong(&row).is_empty() && kept {
        prop_assert_eq!(worked.get(), 0, "the work was done again");
        prop_assert_eq!(stage.row(), before.clone(), "the record was changed");
    }
    match result {
        Ok(_) => {
            let after = stage.row();
            prop_assert!(worked.get() <= 1, "the work was done {} times", worked.get());
            prop_assert_eq!(worked.get() == 0, after == before, "worked {} times", worked.get());
        }
        Err(error) => {
            prop_assert_eq!(worked.get(), 0, "{}", error);
            let after = stage.row();
            prop_assert!(after == before || after.get(RELEASED).is_some(), "{}; the row stays taken: {}", error, after);
            match error.kind() {
                // The error may contain a whole name of up to 2,048 bytes.
                ErrorKind::Held => prop_assert!(error.to_string().len() < 3000, "{} bytes", error.to_string().len()),
                ErrorKind::FailedBefore => {}
                _ => is_invalid(&error)?,
            }
        }
    }
    Ok(())
}

fn all(stage: &Stage, sketch: &Sketch) -> Checked {
    status(stage, sketch)?;
    run(stage, sketch)
}

#[test]
fn dynamodb_and_this_crate_read_every_record_of_idempotent_work_in_the_same_way() {
    let stage = Stage::new();
    fuzz(150, rows(), |sketch| all(&stage, &sketch));
}

fn open() -> Vec<(&'static str, Attribute)> {
    let text = |text: &str| Attribute::Text(text.to_owned());
    vec![
        (VERSION, Attribute::Ours(0, -60_000, 7)),
        (OWNER, text("me")),
        (LEASE, text("20000")),
        (RELEASED, text("1")),
        (ENDS, Attribute::FromNow(-60_000)),
        (TOKEN, Attribute::Number("7".to_owned())),
        (ATTEMPTS, Attribute::Number("1".to_owned())),
        (FIRST_SEEN, Attribute::FromNow(-60_000)),
        (KEPT_UNTIL, Attribute::FromNow(1_000_000)),
    ]
}

#[test]
fn wrong_numbers_leave_a_record_free() {
    let stage = Stage::new();
    for name in [ATTEMPTS, FIRST_SEEN, KEPT_UNTIL, TOKEN] {
        for number in NUMBERS {
            let mut sketch = Sketch(open());
            sketch.0.retain(|(known, _)| *known != name);
            sketch.0.push((name, Attribute::Number(number.to_owned())));
            all(&stage, &sketch).unwrap_or_else(|error| panic!("{name} {number}: {error}"));
        }
    }
}

#[test]
fn attributes_of_wrong_types_leave_a_record_free() {
    let stage = Stage::new();
    for name in [ATTEMPTS, FIRST_SEEN, KEPT_UNTIL, PAYLOAD, TOKEN] {
        for wrong in [Attribute::Other("BOOL"), Attribute::Bytes(b"step 2")] {
            let mut sketch = Sketch(open());
            sketch.0.retain(|(known, _)| *known != name);
            sketch.0.push((name, wrong.clone()));
            all(&stage, &sketch).unwrap_or_else(|error| panic!("{name} {wrong:?}: {error}"));
        }
    }
}

#[test]
fn a_settled_record_is_not_worked_on_again() {
    let stage = Stage::new();
    for (state, outcome) in
        [("done", "\"result\""), ("done", "{"), ("failed", "\"why\""), ("failed", "{"), ("open", "7")]
    {
        let mut sketch = Sketch(open());
        sketch.0.retain(|(known, _)| ![VERSION, LEASE, RELEASED, ENDS].contains(known));
        let text = |text: &str| Attribute::Text(text.to_owned());
        sketch.0.extend([
            (VERSION, text(&format!("lo1-{}-0000000000000000000000000001", GRANTS[0]))),
            (STATE, text(state)),
            (OUTCOME, text(outcome)),
            (OUTCOME_AT, Attribute::FromNow(-1_000)),
        ]);
        all(&stage, &sketch).unwrap_or_else(|error| panic!("{state} {outcome}: {error}"));
    }
}
