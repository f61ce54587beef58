//! Carries out what a decision asks for, step by step, within the caller's time.

use super::Engine;
use super::deadline::Limits;
use super::error::BoxError;
use super::extra::{Extra, Nothing};
use super::transport::Response;
use crate::mutants::{self, Mutant};
use crate::protocol::{Action, Answer, Machine, Moment, Request, Step, Tick};
use aws_smithy_async::future::timeout::Timeout;
use std::future::Future;
use std::time::Duration;
use tracing::{Instrument, Span};

/// Even when the caller's time is over, one last request may take this long: the one that gives
/// back what an acquire of unknown outcome may have got.
const LAST_REQUEST: Duration = Duration::from_millis(250);

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
    engine: &Engine,
    limits: &Limits,
    machine: M,
    span: &Span,
) -> impl Future<Output = Driven<M::Verdict>> {
    drive_with(engine, limits, machine, span, &Nothing)
}

/// The same for a decision that also asks for requests of this kind.
pub(crate) async fn drive_with<M: Machine>(
    engine: &Engine,
    limits: &Limits,
    mut machine: M,
    span: &Span,
    extra: &dyn Extra,
) -> Driven<M::Verdict> {
    let mut course = Course::default();
    loop {
        // What is the same for all decisions is outside of this function, which is compiled for each of them.
        let (now, time_left, step) = {
            let random = || engine.clock().random();
            let tick = look(engine, limits, &random);
            (tick.now, tick.time_left, machine.step(&tick))
        };
        match step {
            Step::Done(verdict) => return Driven { verdict, cause: course.end(span) },
            Step::Wait(pause) => {
                course.waited += pause;
                engine.clock().sleep(pause).await;
            }
            Step::Send(request) => {
                let (after, answer) =
                    course.ask(engine, &request, extra, now, time_left).instrument(span.clone()).await;
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
        engine: &Engine,
        request: &Request,
        extra: &dyn Extra,
        now: Moment,
        time_left: Duration,
    ) -> (Moment, Answer) {
        self.requests += 1;
        if let Action::Release { ends, .. } = request.action {
            engine.wall_clock().released(ends);
        }
        let patience = engine.request_timeout().min(time_left.max(LAST_REQUEST));
        let alarm = engine.clock().sleep(patience);
        let response = match Timeout::new(engine.transport().send(request, extra), alarm).await {
            Ok(response) => response,
            Err(_) => no_answer_within(patience),
        };
        let after = engine.clock().now();
        if let Some(server_time) = response.server_time {
            engine.wall_clock().compare(now, after, server_time);
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
fn look<'a>(engine: &Engine, limits: &Limits, random: &'a dyn Fn() -> [u8; 16]) -> Tick<'a> {
    // Both clocks are read before `:now`, so that a pause in between makes a lease look older,
    // never younger.
    let swapped = mutants::on(Mutant::ClocksReadAfterNow).then(|| engine.clock().now());
    let now = engine.clock().now();
    let wall = engine.wall_clock().reading(swapped.unwrap_or_else(|| engine.clock().now()));
    let passed = now.longest_since(limits.started);
    Tick {
        now,
        wall,
        wait_left: limits.wait.saturating_sub(passed),
        time_left: limits.answers.saturating_sub(passed),
        lease: limits.term.lease(engine.rules()),
        latest_end: limits.term.latest_end(wall.written),
        random,
    }
}

fn no_answer_within(patience: Duration) -> Response {
    let cause = format!("no answer within {patience:?}").into();
    Response { answer: Answer::Unknown, server_time: None, cause: Some(cause) }
}
