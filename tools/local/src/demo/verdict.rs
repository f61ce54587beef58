//! Checks whether the promises were kept. This is the end of the demo, and decides its exit code.

use super::Options;
use super::functions::{CleanUp, Deadline, SecondOwner};
use super::gateway::Measured;
use super::ledger::Ledger;
use super::message::About;
use super::orders::{Crash, Delivered};
use super::screen::{self, Seconds};
use super::several::{Called, Moved};
use super::story::{LateWrite, Takeover};
use std::process::ExitCode;

/// The number of increments, from three sources.
#[derive(Debug)]
pub(crate) struct Increments {
    /// The increments that workers were ordered to make.
    pub(crate) expected: u64,
    /// The increments that were applied, as the workers report.
    pub(crate) told: u64,
    /// The value of the counter.
    pub(crate) counted: u64,
}

/// Returns the expected number of increments. It is every round of the contention, then one of each
/// worker except the killed one, and one more of each of them in the last part. The worker whose
/// late write is refused starts again, so it also counts there.
pub(crate) fn expected_increments(options: &Options) -> u64 {
    let survivors = options.workers - 1;
    options.workers * options.rounds + survivors + survivors
}

/// The results of all parts.
#[derive(Debug)]
pub(crate) struct Verdict {
    pub(crate) increments: Increments,
    pub(crate) takeover: Takeover,
    pub(crate) late_write: LateWrite,
    pub(crate) second_owner: SecondOwner,
    pub(crate) clean_up: CleanUp,
    pub(crate) deadline: Deadline,
    pub(crate) crash: Crash,
    pub(crate) delivered: Delivered,
    pub(crate) moved: Moved,
    pub(crate) called: Called,
}

impl Verdict {
    /// Prints the verdict.
    pub(crate) fn pronounce(&self, ledger: &Ledger) -> ExitCode {
        anstream::println!();
        let good = [
            exact(&self.increments),
            refused(&self.late_write),
            taken_over(&self.takeover),
            told(&self.second_owner),
            cleaned_up(&self.clean_up),
            succeeded(&self.deadline),
            charged_once(&self.crash),
            delivered(&self.delivered),
            moved(&self.moved),
            called(&self.called),
        ];
        let grants = ledger.grants();
        screen::figure("sent", format_args!("{}; {grants} grants", requests(ledger, About::Lock, "the lock")));
        screen::figure("", requests(ledger, About::Counter, "the counter"));
        let good = good.iter().all(|good| *good);
        screen::verdict(good);
        if good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }
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

fn told(second: &SecondOwner) -> bool {
    let SecondOwner { acquired, holder, is_first } = second;
    let good = !acquired && *is_first;
    let was = if good { format!("got the response that {holder} holds it") } else { "got another response".to_owned() };
    screen::check(good, format_args!("the second owner {was}"));
    good
}

fn cleaned_up(&CleanUp { released, lease_left, token, next_token }: &CleanUp) -> bool {
    let good = released == 1 && next_token.is_some_and(|next| next > token);
    let was = if good { "was released" } else { "was not released" };
    let left = Seconds(lease_left);
    screen::check(
        good,
        format_args!("the lock of the execution that was aborted {was}, {left} before its lease ended"),
    );
    good
}

fn succeeded(deadline: &Deadline) -> bool {
    let Deadline { killed_after, was_killed, token, next_token, taken_over_after, lease_was_over } = deadline;
    let good = *was_killed && *lease_was_over && next_token > token;
    let (killed_after, taken_over_after) = (Seconds(*killed_after), Seconds(*taken_over_after));
    let lease = if *lease_was_over { "after" } else { "before" };
    screen::check(
        good,
        format_args!(
            "the lock of the function killed at its deadline, after {killed_after}, was taken over \
             {taken_over_after} later, {lease} the end of its lease, token {next_token} after {token}"
        ),
    );
    good
}

fn charged_once(crash: &Crash) -> bool {
    let Crash { asked, charged, crashed, is_replayed } = crash;
    let good = *crashed && *is_replayed && *asked == 2 && *charged == 1;
    let times = if *charged == 1 { "once".to_owned() } else { format!("{charged} times") };
    screen::check(
        good,
        format_args!("the order of the function that crashed was charged {times}: the gateway got {asked} requests"),
    );
    good
}

fn delivered(queue: &Delivered) -> bool {
    let Delivered { sent, charged, messages, batches, dead_letters } = queue;
    let good = charged == sent && *dead_letters == 1;
    screen::check(
        good,
        format_args!(
            "{charged} of {sent} orders in the queue were charged, each once, in {messages} deliveries and {batches} \
             batches; dead letters: {dead_letters} (the message that is not an order)"
        ),
    );
    good
}

fn moved(moved: &Moved) -> bool {
    let Moved { transfers, is_replayed, sum, expected, killed } = moved;
    let good = sum == expected && *is_replayed && *killed > 0;
    let is = if sum == expected { "is exact" } else { "is wrong" };
    screen::check(
        good,
        format_args!(
            "the sum of the accounts {is} after {transfers} transfers: {sum}, expected {expected}; killed: {killed}"
        ),
    );
    good
}

fn called(called: &Called) -> bool {
    let Called { measured: Measured { limit, calls, most, too_many, .. }, killed } = called;
    let good = *too_many == 0 && most <= limit && *killed > 0;
    let were = if good { "were" } else { "were not" };
    screen::check(
        good,
        format_args!("at most {limit} calls {were} inside of the gateway at once: {calls} calls; killed: {killed}"),
    );
    good
}

fn requests(ledger: &Ledger, about: About, name: &str) -> String {
    let requests: Vec<_> = ledger.requests(about).collect();
    let total: u64 = requests.iter().map(|(_, count)| count).sum();
    let each: Vec<_> = requests.iter().map(|(operation, count)| format!("{count} {operation}")).collect();
    format!("{total} requests for {name}: {}", each.join(", "))
}
