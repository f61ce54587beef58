//! Carries out what a decision asks for, step by step, within the caller's time.

use crate::budget::Budget;
use crate::client::LockClient;
use crate::error::BoxError;
use crate::extra::{Extra, Nothing};
use crate::protocol::{Action, Answer, LONGEST_LEASE, Machine, Moment, Request, Rules, Step, Tick};
use crate::transport::Response;
use aws_smithy_async::future::timeout::Timeout;
use std::future::Future;
use std::time::Duration;
use tracing::{Instrument, Span};

/// Even when the caller's time is over, one last request may take this long: the one that gives
/// back what an acquire of unknown outcome may have got.
const LAST_REQUEST: Duration = Duration::from_millis(250);

/// No lease is written that is shorter.
const SHORTEST_LEASE: Duration = Duration::from_millis(1);

/// The caller's time, counted from a start.
#[derive(Debug)]
pub(crate) struct Limits {
    pub(crate) started: Moment,
    /// For somebody else's lock.
    pub(crate) wait: Duration,
    /// For answers, faults included.
    pub(crate) answers: Duration,
    pub(crate) term: Term,
}

/// Which lease to ask for.
#[derive(Clone, Debug)]
pub(crate) enum Term {
    /// Always this one.
    Fixed(Duration),
    /// What covers the rest of this budget.
    Covering(Budget),
    /// This one, but not beyond the end of the budget.
    Within(Duration, Budget),
}

impl Term {
    pub(crate) fn lease(&self, rules: &Rules) -> Duration {
        match self {
            Term::Fixed(lease) | Term::Within(lease, _) => *lease,
            // A budget may last longer than any lease: renewals go on from there.
            // A budget that ran out since the call began must not write a lease of zero, which nobody reads.
            Term::Covering(budget) => budget.lease(rules).unwrap_or_default().clamp(SHORTEST_LEASE, LONGEST_LEASE),
        }
    }

    fn latest_end(&self, now_millis: u64) -> Option<u64> {
        let Term::Within(_, budget) = self else { return None };
        let cover = u64::try_from(budget.to_cover()?.as_millis()).unwrap_or(u64::MAX);
        Some(now_millis.saturating_add(cover))
    }
}

/// How a decision ended.
#[derive(Debug)]
pub(crate) struct Driven<V> {
    pub(crate) verdict: V,
    /// What the SDK said last that was no success.
    pub(crate) cause: Option<BoxError>,
}

/// Carries a decision out that only reads and updates. The span is entered for each request, and told of their
/// number and of the time that was waited. (Not `async`, which would keep the decision twice.)
pub(crate) fn drive<M: Machine>(
    client: &LockClient,
    limits: &Limits,
    machine: M,
    span: &Span,
) -> impl Future<Output = Driven<M::Verdict>> {
    drive_with(client, limits, machine, span, &Nothing)
}

/// The same for a decision that also asks for requests of this kind.
pub(crate) async fn drive_with<M: Machine>(
    client: &LockClient,
    limits: &Limits,
    mut machine: M,
    span: &Span,
    extra: &dyn Extra,
) -> Driven<M::Verdict> {
    let mut course = Course::default();
    loop {
        // What is the same for all decisions is outside of this function, which is compiled for each of them.
        let (now, time_left, step) = {
            let random = || client.clock().random();
            let tick = look(client, limits, &random);
            (tick.now, tick.time_left, machine.step(&tick))
        };
        match step {
            Step::Done(verdict) => return Driven { verdict, cause: course.end(span) },
            Step::Wait(pause) => {
                course.waited += pause;
                client.clock().sleep(pause).await;
            }
            Step::Send(request) => {
                let (after, answer) =
                    course.ask(client, &request, extra, now, time_left).instrument(span.clone()).await;
                machine.answered(after, answer);
            }
        }
    }
}

/// What carrying a decision out has taken so far.
#[derive(Debug, Default)]
struct Course {
    cause: Option<BoxError>,
    requests: u32,
    waited: Duration,
}

impl Course {
    /// Sends a request, waits as long for it as may be, and lets its answer correct the wall clock; also when it came.
    async fn ask(
        &mut self,
        client: &LockClient,
        request: &Request,
        extra: &dyn Extra,
        now: Moment,
        time_left: Duration,
    ) -> (Moment, Answer) {
        self.requests += 1;
        if let Action::Release { ends, .. } = request.action {
            client.wall_clock().released(ends);
        }
        let patience = client.request_timeout().min(time_left.max(LAST_REQUEST));
        let alarm = client.clock().sleep(patience);
        let response = match Timeout::new(client.transport().send(request, extra), alarm).await {
            Ok(response) => response,
            Err(_) => no_answer_within(patience),
        };
        let after = client.clock().now();
        if let Some(server_time) = response.server_time {
            client.wall_clock().compare(now, after, server_time);
        }
        // An answer that explains nothing does not hide the failure before it.
        self.cause = response.cause.or(self.cause.take());
        (after, response.answer)
    }

    fn end(self, span: &Span) -> Option<BoxError> {
        span.record("attempts", self.requests).record("waited_ms", self.waited.as_millis() as u64);
        self.cause
    }
}

/// Reads the clocks, and what is left of the caller's time.
fn look<'a>(client: &LockClient, limits: &Limits, random: &'a dyn Fn() -> [u8; 16]) -> Tick<'a> {
    // Both clocks are read before `:now`, so that a pause in between makes a lease look older,
    // never younger.
    let now = client.clock().now();
    let wall = client.wall_clock().reading(client.clock().now());
    let passed = now.longest_since(limits.started);
    Tick {
        now,
        wall,
        wait_left: limits.wait.saturating_sub(passed),
        time_left: limits.answers.saturating_sub(passed),
        lease: limits.term.lease(client.rules()),
        latest_end: limits.term.latest_end(wall.written),
        random,
    }
}

fn no_answer_within(patience: Duration) -> Response {
    let cause = format!("no answer within {patience:?}").into();
    Response { answer: Answer::Unknown, server_time: None, cause: Some(cause) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::Lease;

    /// Found by the simulation: a process that was paused before its first request wrote a lease of zero,
    /// and could not renew it.
    #[test]
    fn a_budget_that_ran_out_on_the_way_still_gives_a_lease_that_can_be_renewed() {
        let spent = Term::Covering(Budget::until(std::time::SystemTime::UNIX_EPOCH).grace(Duration::ZERO));
        assert!(Lease::check(spent.lease(&Rules::default())).is_ok());
    }
}
