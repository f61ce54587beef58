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
    screen::figure("sent", format_args!("for {} grants: {}", ledger.grants(), requests(ledger, About::Lock)));
    screen::figure("", format_args!("for the counter: {}", requests(ledger, About::Counter)));
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
            "the late write was {was}: {worker}, stopped for {stopped_for}, wrote with token {token} after {newer_token}"
        ),
    );
    *refused
}

fn taken_over(takeover: &Takeover) -> bool {
    let Takeover { from, to, after } = takeover;
    let (killed, next, after) = (from.worker, to.worker, Seconds(*after));
    let what = format!("{next} took over from {killed} {after} after the kill");
    let lease_end = takeover.after_lease_end();
    match lease_end {
        Some(later) => screen::check(true, format_args!("{what}, {} after the end of its lease", Seconds(later))),
        None => screen::check(false, format_args!("{what}, before the end of its lease")),
    }
    lease_end.is_some() && to.token > from.token
}

fn requests(ledger: &Ledger, about: About) -> String {
    let requests: Vec<_> = ledger.requests(about).collect();
    let total: u64 = requests.iter().map(|(_, count)| count).sum();
    let each: Vec<_> = requests.iter().map(|(operation, count)| format!("{count} {operation}")).collect();
    format!("{total} requests ({})", each.join(", "))
}
