//! One execution environment: starts a process, delivers invocations, waits for their responses, and
//! freezes the process between two invocations.

use super::invocation::{Invocation, Outcome};
use super::logs::Source;
use super::process::{Leash, Process};
use super::runtime_api::{Accepted, Call, Delivery, Failure, RuntimeApi, To};
use super::{Function, arn, report, snapstart};
use rustix::process::Signal;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::time::{Instant, sleep_until, timeout};
use uuid::Uuid;

/// How long a process may take from its start to its first poll.
const INIT_TIMEOUT: Duration = Duration::from_secs(10);
/// How often to check whether a host that stood still continues.
const LOOK_AGAIN: Duration = Duration::from_millis(20);
/// The largest response that Lambda accepts: 6 MB and 100 bytes.
const MAX_ANSWER_BYTES: usize = 6 * 1024 * 1024 + 100;

/// An environment. It has one process at a time, and stays when a process ends.
#[derive(Debug)]
pub(super) struct Environment {
    pub(super) id: u32,
    /// The tenant of all of its invocations.
    pub(super) tenant: Option<String>,
    pub(super) leash: Arc<Leash>,
    /// Has one permit for each invocation that the process may have in progress.
    pub(super) room: Arc<Semaphore>,
    requests: UnboundedSender<Request>,
}

/// An invocation to deliver.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) request_id: String,
    pub(super) tenant: Option<String>,
    pub(super) payload: String,
    pub(super) caller: oneshot::Sender<Invocation>,
    pub(super) place: Place,
}

/// The room that an invocation occupies until its process has answered it.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) _in_environment: OwnedSemaphorePermit,
    pub(super) _in_function: OwnedSemaphorePermit,
}

/// A process that waits for invocations or works on them.
#[derive(Debug)]
struct Sandbox {
    function: Arc<Function>,
    source: Source,
    process: Process,
    api: RuntimeApi,
    /// The open polls of the process.
    polls: VecDeque<oneshot::Sender<Delivery>>,
    in_progress: Vec<InProgress>,
    /// How long the start took. `None` after the first delivery.
    init: Option<Duration>,
}

/// An invocation from its delivery until its process has answered it. If the process is to be frozen, until it has polled
/// again.
#[derive(Debug)]
struct InProgress {
    invocation: Invocation,
    invocation_id: String,
    delivered: Instant,
    deadline: Instant,
    /// How many bytes the process had written before the delivery.
    log: usize,
    /// Whether its outcome is known.
    settled: bool,
    /// `None` after the caller was told that the deadline has passed.
    caller: Option<oneshot::Sender<Invocation>>,
    place: Place,
}

impl Environment {
    /// Returns the environment, and the future that starts and serves its processes.
    pub(super) fn new(
        function: Arc<Function>,
        tenant: Option<&str>,
        source: Source,
    ) -> (Self, impl Future<Output = ()> + Send + use<>) {
        let (requests, requested) = unbounded_channel();
        let leash = Arc::<Leash>::default();
        let room = Arc::new(Semaphore::new(function.at_once()));
        let (id, tenant) = (source.environment, tenant.map(str::to_owned));
        let environment = Self { id, tenant, leash: leash.clone(), room, requests };
        (environment, live(function, leash, source, requested))
    }

    /// Delivers an invocation as soon as the process polls. The caller has reserved room for it.
    pub(super) fn deliver(&self, request: Request) {
        // Fails only when everything is stopped. The caller notices that.
        let _ = self.requests.send(request);
    }
}

/// Starts a process when an invocation needs one, and serves it until it ends.
async fn live(function: Arc<Function>, leash: Arc<Leash>, source: Source, mut requested: UnboundedReceiver<Request>) {
    let mut waiting = VecDeque::new();
    loop {
        let first = match waiting.pop_front() {
            Some(request) => request,
            None => match requested.recv().await {
                Some(request) => request,
                None => return,
            },
        };
        let mut invocation = Invocation::new(&first.request_id, source.environment);
        match Sandbox::start(&function, &leash, &source, &mut invocation).await {
            Ok(mut sandbox) => {
                waiting.push_front(first);
                sandbox.serve(&mut requested, &mut waiting).await;
            }
            Err(failure) => {
                invocation.cold_start = true;
                invocation.outcome = Outcome::InitFailed(format!("{}: {}", failure.error_type, failure.message));
                say_end(&function, &source, &invocation);
                drop(first.place);
                let _ = first.caller.send(invocation);
            }
        }
    }
}

fn say_end(function: &Function, source: &Source, invocation: &Invocation) {
    for line in report::end(function, invocation) {
        source.say(line);
    }
}

impl Sandbox {
    /// Starts a process, and waits for its first poll.
    async fn start(
        function: &Arc<Function>,
        leash: &Arc<Leash>,
        source: &Source,
        invocation: &mut Invocation,
    ) -> Result<Self, Failure> {
        let entry = |error: anyhow::Error| Failure {
            error_type: "Runtime.InvalidEntrypoint".to_owned(),
            message: format!("RequestId: {} Error: {error:#}", invocation.request_id),
        };
        let api = RuntimeApi::serve(|calls| snapstart::routes(calls, leash.clone())).await.map_err(entry)?;
        let process = Process::start(function, api.address(), leash.clone(), source.clone()).map_err(entry)?;
        let mut sandbox = Self {
            function: function.clone(),
            source: source.clone(),
            process,
            api,
            polls: VecDeque::new(),
            in_progress: Vec::new(),
            init: None,
        };
        match sandbox.init(&invocation.request_id).await {
            Ok(()) => {
                sandbox.init = Some(sandbox.process.started.elapsed());
                Ok(sandbox)
            }
            Err(failure) => {
                invocation.max_rss_kb = sandbox.process.max_rss_kb();
                sandbox.process.kill().await;
                invocation.logs = sandbox.process.logs.since(0);
                Err(failure)
            }
        }
    }

    async fn init(&mut self, request_id: &str) -> Result<(), Failure> {
        let first_poll = async {
            tokio::select! {
                biased;
                said = poll_or_failure(&mut self.api) => said,
                how = self.process.end() => Err(Failure {
                    error_type: "Runtime.ExitError".to_owned(),
                    message: format!("RequestId: {request_id} Error: Runtime exited with error: {how}"),
                }),
            }
        };
        let polled = timeout(INIT_TIMEOUT, first_poll).await.unwrap_or_else(|_| {
            let seconds = INIT_TIMEOUT.as_secs_f64();
            Err(Failure {
                error_type: "Sandbox.Timedout".to_owned(),
                message: format!("RequestId: {request_id} Error: Task timed out after {seconds:.2} seconds"),
            })
        })?;
        self.polls.push_back(polled);
        Ok(())
    }

    /// Serves the process until it ends. Requests that were not delivered stay in `waiting`.
    async fn serve(&mut self, requested: &mut UnboundedReceiver<Request>, waiting: &mut VecDeque<Request>) {
        loop {
            // As after a deployment: the new program answers, and not the old one.
            if !waiting.is_empty() && self.in_progress.is_empty() && self.process.is_outdated() {
                return self.kill().await;
            }
            self.deliver(waiting);
            let next_deadline =
                self.in_progress.iter().filter(|one| one.caller.is_some()).map(|one| one.deadline).min();
            let time_is_up = async {
                match next_deadline {
                    Some(deadline) => sleep_until(deadline).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                call = self.api.call() => self.hear(call),
                how = self.process.end() => return self.ended(&how, None),
                () = time_is_up => {
                    if self.must_be_killed() {
                        return self.kill().await;
                    }
                }
                // Without handles there are no more requests, and this future is dropped.
                Some(request) = requested.recv() => waiting.push_back(request),
            }
        }
    }

    /// Delivers as many requests as there are open polls.
    fn deliver(&mut self, waiting: &mut VecDeque<Request>) {
        // The next process gets what a dead process cannot get.
        while !waiting.is_empty() && self.process.is_alive() {
            let Some(poll) = self.polls.pop_front() else { return };
            let Some(request) = waiting.pop_front() else { return };
            if !self.function.is_managed() {
                self.process.go_on();
            }
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            let delivered = Instant::now();
            let invocation_id = Uuid::new_v4().to_string();
            let delivery = Delivery {
                request_id: request.request_id.clone(),
                invocation_id: invocation_id.clone(),
                deadline_ms: (now + self.function.timeout).as_millis(),
                arn: arn(&self.function.name),
                tenant: request.tenant.clone(),
                payload: request.payload,
            };
            let log = if self.init.is_some() { 0 } else { self.process.logs.written() };
            if let Err(delivery) = poll.send(delivery) {
                waiting.push_front(Request { payload: delivery.payload, ..request });
                continue;
            }
            let mut invocation = Invocation::new(&request.request_id, self.source.environment);
            invocation.init = self.init.take();
            invocation.cold_start = invocation.init.is_some();
            self.in_progress.push(InProgress {
                invocation,
                invocation_id,
                delivered,
                deadline: delivered + self.function.timeout,
                log,
                settled: false,
                caller: Some(request.caller),
                place: request.place,
            });
        }
    }

    fn hear(&mut self, call: Call) {
        match call {
            Call::Next(poll) => self.polled(poll),
            Call::Answered { to, answer, accept } => {
                let (outcome, accepted) = answer_of(&answer);
                let _ = accept.send(self.answered(&to, outcome, accepted));
            }
            Call::Failed { to, failure: Failure { error_type, message }, accept } => {
                let _ = accept.send(self.answered(&to, Outcome::Error { error_type, message }, Accepted::Yes));
            }
            // The initialisation has succeeded before.
            Call::InitFailed(_) => {}
        }
    }

    /// Keeps the poll, or refuses it if the process has too many. Freezes a process that has answered.
    fn polled(&mut self, poll: oneshot::Sender<Delivery>) {
        self.polls.retain(|poll| !poll.is_closed());
        if let Some(answered) = self.in_progress.iter().position(|one| one.settled && one.caller.is_some()) {
            let one = self.in_progress.swap_remove(answered);
            self.process.send(Signal::STOP);
            self.polls.push_back(poll);
            self.end(one, self.process.max_rss_kb());
        } else if self.polls.len() + self.in_progress.len() < self.function.at_once() {
            self.polls.push_back(poll);
        }
    }

    /// Ends an invocation with this outcome, and returns `accepted` if it was in progress.
    fn answered(&mut self, to: &To, outcome: Outcome, accepted: Accepted) -> Accepted {
        let Some(answered) = self.in_progress.iter().position(|one| one.awaits(to)) else {
            return Accepted::UnknownRequest;
        };
        let mut one = self.in_progress.swap_remove(answered);
        if one.caller.is_none() {
            return Accepted::TooLate;
        }
        one.settle(outcome);
        if one.invocation.cold_start {
            one.invocation.first_answer = Some(self.process.started.elapsed());
        }
        if self.function.is_managed() {
            self.end(one, self.process.max_rss_kb());
        } else {
            // The deadline applies until the next poll, even after the response.
            self.in_progress.push(one);
        }
        accepted
    }

    /// Whether the process must be killed because a deadline has passed. If not, tells the callers of such invocations.
    fn must_be_killed(&mut self) -> bool {
        let now = Instant::now();
        let is_overdue = |one: &InProgress| one.caller.is_some() && one.deadline <= now;
        if self.function.kills && self.process.is_excused() {
            self.in_progress.iter_mut().filter(|one| is_overdue(one)).for_each(|one| one.deadline = now + LOOK_AGAIN);
            return false;
        }
        while let Some(overdue) = self.in_progress.iter().position(is_overdue) {
            if let Some(one) = self.in_progress.get_mut(overdue)
                && !one.settled
            {
                one.settle(Outcome::TimedOut);
            }
            if self.function.kills {
                return true;
            }
            let mut late = self.in_progress.swap_remove(overdue);
            self.report(&mut late, self.process.max_rss_kb());
            if let Some(caller) = late.caller.take() {
                let _ = caller.send(late.invocation.clone());
            }
            self.in_progress.push(late);
        }
        false
    }

    async fn kill(&mut self) {
        // It is not known of a process that has ended.
        let max_rss_kb = self.process.max_rss_kb();
        self.process.send(Signal::KILL);
        let how = self.process.end().await;
        self.ended(&how, max_rss_kb);
    }

    /// Ends all invocations in progress, because their process has ended.
    fn ended(&mut self, how: &str, max_rss_kb: Option<u64>) {
        self.process.bury();
        while let Some(mut one) = self.in_progress.pop() {
            if !one.settled {
                one.settle(Outcome::Exited(how.to_owned()));
            }
            self.end(one, max_rss_kb);
        }
    }

    /// Tells the caller the result.
    fn end(&self, mut one: InProgress, max_rss_kb: Option<u64>) {
        self.report(&mut one, max_rss_kb);
        let InProgress { invocation, caller, place, .. } = one;
        // Before the caller is told, because it may invoke the function again.
        drop(place);
        if let Some(caller) = caller {
            let _ = caller.send(invocation);
        }
    }

    /// Completes the result of the invocation, unless the caller was already told.
    fn report(&self, one: &mut InProgress, max_rss_kb: Option<u64>) {
        if one.caller.is_none() {
            return;
        }
        one.invocation.max_rss_kb = max_rss_kb;
        one.invocation.logs = self.process.logs.since(one.log);
        let of_others = self.in_progress.iter().filter(|one| one.caller.is_some()).map(|one| one.log).min();
        self.process.logs.forget(of_others.unwrap_or_else(|| self.process.logs.written()));
        say_end(&self.function, &self.source, &one.invocation);
    }
}

impl InProgress {
    /// Whether this response belongs to it.
    fn awaits(&self, to: &To) -> bool {
        let has_answered = self.settled && self.caller.is_some();
        let is_meant = to.invocation_id.as_ref().is_none_or(|id| *id == self.invocation_id);
        !has_answered && is_meant && to.request_id == self.invocation.request_id
    }

    fn settle(&mut self, outcome: Outcome) {
        self.invocation.outcome = outcome;
        self.invocation.duration = self.delivered.elapsed();
        self.settled = true;
    }
}

/// Waits for a poll. Responses are refused, because no invocation is in progress.
async fn poll_or_failure(api: &mut RuntimeApi) -> Result<oneshot::Sender<Delivery>, Failure> {
    loop {
        match api.call().await {
            Call::Next(poll) => return Ok(poll),
            Call::InitFailed(failure) => return Err(failure),
            Call::Answered { accept, .. } | Call::Failed { accept, .. } => drop(accept.send(Accepted::UnknownRequest)),
        }
    }
}

/// The outcome that a response means, and what the process is told about it.
fn answer_of(answer: &[u8]) -> (Outcome, Accepted) {
    if answer.len() <= MAX_ANSWER_BYTES {
        return (Outcome::Answer(String::from_utf8_lossy(answer).into_owned()), Accepted::Yes);
    }
    let too_large = Outcome::Error {
        error_type: "Function.ResponseSizeTooLarge".to_owned(),
        message: format!("Response payload size exceeded maximum allowed payload size ({MAX_ANSWER_BYTES} bytes)."),
    };
    (too_large, Accepted::TooLarge)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_response_of_more_than_six_megabytes_is_an_error_of_the_function_and_the_process_is_told_so() {
        let (outcome, told) = answer_of(&vec![b'a'; MAX_ANSWER_BYTES]);
        assert!(matches!(outcome, Outcome::Answer(_)), "{outcome:?}");
        assert_eq!(told, Accepted::Yes);

        let (outcome, told) = answer_of(&vec![b'a'; MAX_ANSWER_BYTES + 1]);
        assert!(matches!(&outcome, Outcome::Error { error_type, .. } if error_type == "Function.ResponseSizeTooLarge"));
        assert_eq!(told.response().status(), 413);
    }
}
