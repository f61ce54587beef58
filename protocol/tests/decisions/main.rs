//! Every decision, in `decisions.txt`: what an operation sends, what a response shows, and what follows. A case begins at
//! 0 ms, and each response takes 5 ms as a rule. Pauses have their full length. `SNAPSHOTS=overwrite` writes the file anew.
//! A change of it is a change of behaviour, and needs a reason.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking, in its helpers too")]

mod acquiring;
mod committing;
mod holding;
mod operators;
mod places;
mod releasing;
mod row;
mod script;
mod sets;
mod settling;
mod verdicts;
mod waiting;
mod words;
mod work;

/// A case: its name and its transcript.
type Case = (&'static str, String);

#[test]
fn every_decision_is_as_it_was() {
    let cases = [
        verdicts::cases(),
        acquiring::cases(),
        waiting::cases(),
        waiting::leaving(),
        sets::cases(),
        places::cases(),
        work::cases(),
        holding::cases(),
        releasing::cases(),
        committing::cases(),
        settling::cases(),
        operators::cases(),
    ]
    .concat();
    let text: Vec<String> = cases.iter().map(|(name, transcript)| format!("=== {name}\n{transcript}")).collect();
    snapbox::assert_data_eq!(text.join("\n"), snapbox::file!["decisions.txt"].raw());
}
