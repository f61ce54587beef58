//! Whether the promises were kept: the end of the demo, and its exit code.

use super::Options;
use super::ledger::Ledger;
use super::message::About;
use super::screen::{self, Seconds};
use super::story::{LateWrite, Takeover};
use std::process::ExitCode;

/// The counter's increments, from three sides.
#[derive(Debug)]
pub(crate) struct Increments {
    /// That workers were told to make.
    pub(crate) expected: u64,
    /// That workers were told had been applied.
    pub(crate) told: u64,
    /// That the counter has.
    pub(crate) counted: u64,
}

/// Every round of the contention; then one of each worker but the one that is killed, and in the
/// last act one more, also of the one whose late write is refused: it begins anew.
pub(crate) fn expected_increments(options: &Options) -> u64 {
    let survivors = options.workers - 1;
    options.workers * options.rounds + survivors + survivors
}

/// Says what came of it all.
pub(crate) fn pronounce(
    increments: &Increments,
    takeover: &Takeover,
    late_write: &LateWrite,
    ledger: &Ledger,
) -> ExitCode {
    anstream::println!();
    let good = [exact(increments), refused(late_write), taken_over(takeover)];
    screen::figure("sent", format_args!("{}; {} grants", requests(ledger, About::Lock, "the lock"), ledger.grants()));
    screen::figure("", requests(ledger, About::Counter, "the counter"));
    let good = good.iter().all(|good| *good);
    screen::verdict(good);
    if good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn exact(&Increments { expected, told, counted }: &Increments) -> bool {
    let good = counted == told && told == expected;
    let is = if good { "is exact" } else { "is wrong" };
    screen::check(good, format_args!("the counter {is}: {counted}, applied {told}, expected {expected}"));
    good
}

fn refused(late: &LateWrite) -> bool {
    let LateWrite { worker, token, newer_token, refused, stopped_for } = late;
    let was = if *refused { "refused" } else { "applied" };
    let stopped_for = Seconds(*stopped_for);
    screen::check(
        *refused,
        format_args!(
            "the late write was {was}: {worker}, stopped for {stopped_for}, token {token} after {newer_token}"
        ),
    );
    *refused
}

fn taken_over(takeover: &Takeover) -> bool {
    let Takeover { from, to, after } = takeover;
    let (after, killed, token, old_token) = (Seconds(*after), from.worker, to.token, from.token);
    let lease = match takeover.after_lease_end() {
        Some(later) => format!("{} after the end of its lease", Seconds(later)),
        None => "before the end of its lease".to_owned(),
    };
    let good = takeover.after_lease_end().is_some() && token > old_token;
    screen::check(
        good,
        format_args!(
            "the lock of {killed} was taken over {after} after the kill, {lease}, token {token} after {old_token}"
        ),
    );
    good
}

fn requests(ledger: &Ledger, about: About, name: &str) -> String {
    let requests: Vec<_> = ledger.requests(about).collect();
    let total: u64 = requests.iter().map(|(_, count)| count).sum();
    let each: Vec<_> = requests.iter().map(|(operation, count)| format!("{count} {operation}")).collect();
    format!("{total} requests for {name}: {}", each.join(", "))
}
