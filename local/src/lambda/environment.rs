//! One execution environment: starts a process, delivers an invocation, awaits its answer, freezes it.

use super::invocation::{Invocation, Outcome};
use super::logs::Source;
use super::process::{Leash, Process};
use super::runtime_api::{Accepted, Call, Delivery, Failure, RuntimeApi};
use super::{Function, arn, snapstart};
use rustix::process::Signal;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tokio::sync::{OwnedMutexGuard, oneshot};
use tokio::time::{Sleep, sleep, timeout};

/// How long a process may take from its start to its first poll.
const INIT_TIMEOUT: Duration = Duration::from_secs(10);
/// How often it is looked whether a host that stood still goes on.
const LOOK_AGAIN: Duration = Duration::from_millis(20);
/// The largest answer, as Lambda counts it: 6 MB and 100 bytes.
const LARGEST_ANSWER: usize = 6 * 1024 * 1024 + 100;

/// A place for one process, which outlives the processes in it.
#[derive(Debug)]
pub(super) struct Environment {
    pub(super) id: u32,
    pub(super) leash: Arc<Leash>,
    /// Locked as long as an invocation is under way.
    pub(super) sandbox: Arc<tokio::sync::Mutex<Option<Sandbox>>>,
    pub(super) source: Source,
}

/// A process that waits for an invocation, or works on one.
#[derive(Debug)]
pub(super) struct Sandbox {
    process: Process,
    api: RuntimeApi,
    /// Its poll, as long as it is frozen.
    poll: Option<oneshot::Sender<Delivery>>,
}

impl Environment {
    pub(super) fn new(id: u32, source: Source) -> Self {
        Self { id, leash: Arc::default(), sandbox: Arc::default(), source }
    }

    /// Runs one invocation in this environment, whose sandbox the caller has locked.
    pub(super) async fn invoke(
        &self,
        mut sandbox: OwnedMutexGuard<Option<Sandbox>>,
        function: &Function,
        request_id: String,
        payload: String,
    ) -> Invocation {
        if sandbox.as_mut().is_some_and(|warm| !warm.process.is_alive()) {
            *sandbox = None;
        }
        let mut invocation = Invocation {
            request_id,
            outcome: Outcome::TimedOut,
            logs: String::new(),
            environment: self.id,
            cold_start: sandbox.is_none(),
            duration: Duration::ZERO,
            init: None,
            first_answer: None,
            max_rss_kb: None,
        };
        let active = match sandbox.as_mut() {
            Some(warm) => warm,
            None => match Sandbox::start(function, self, &mut invocation).await {
                Ok(cold) => sandbox.insert(cold),
                Err(failure) => {
                    invocation.outcome = Outcome::InitFailed(format!("{}: {}", failure.error_type, failure.message));
                    return invocation;
                }
            },
        };
        if !active.invoke(function, &mut invocation, payload).await {
            *sandbox = None;
        }
        invocation
    }
}

impl Sandbox {
    /// Starts a process, and waits for its first poll.
    async fn start(
        function: &Function,
        environment: &Environment,
        invocation: &mut Invocation,
    ) -> Result<Self, Failure> {
        let entry = |error: anyhow::Error| Failure {
            error_type: "Runtime.InvalidEntrypoint".to_owned(),
            message: format!("RequestId: {} Error: {error:#}", invocation.request_id),
        };
        let (leash, source) = (environment.leash.clone(), environment.source.clone());
        let api = RuntimeApi::serve(|calls| snapstart::routes(calls, leash.clone())).await.map_err(entry)?;
        let process = Process::start(function, api.address(), leash, source).map_err(entry)?;
        let mut sandbox = Self { process, api, poll: None };
        match sandbox.init(&invocation.request_id).await {
            Ok(()) => {
                invocation.init = Some(sandbox.process.started.elapsed());
                Ok(sandbox)
            }
            Err(failure) => {
                invocation.max_rss_kb = sandbox.process.max_rss_kb();
                sandbox.process.kill().await;
                invocation.logs = sandbox.process.logs.take();
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
        self.poll = Some(polled);
        Ok(())
    }

    /// Whether the process can be used again.
    async fn invoke(&mut self, function: &Function, invocation: &mut Invocation, payload: String) -> bool {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let delivery = Delivery {
            request_id: invocation.request_id.clone(),
            deadline_ms: (now + function.timeout).as_millis(),
            arn: arn(&function.name),
            payload,
        };
        let delivered = Instant::now();
        let mut deadline = Box::pin(sleep(function.timeout));
        self.process.go_on();
        if let Some(poll) = self.poll.take() {
            // If it has died meanwhile, that is what is waited for next.
            let _ = poll.send(delivery);
        }
        invocation.outcome = self.outcome(&invocation.request_id, deadline.as_mut()).await;
        invocation.duration = delivered.elapsed();
        let answered = matches!(invocation.outcome, Outcome::Answer(_) | Outcome::Error { .. });
        if answered && invocation.cold_start {
            invocation.first_answer = Some(self.process.started.elapsed());
        }
        let polled = answered && self.polls_again(deadline).await;
        invocation.max_rss_kb = self.process.max_rss_kb();
        if polled {
            self.process.send(Signal::STOP);
        } else {
            self.process.kill().await;
        }
        invocation.logs = self.process.logs.take();
        polled
    }

    async fn outcome(&mut self, request_id: &str, mut deadline: Pin<&mut Sleep>) -> Outcome {
        loop {
            tokio::select! {
                biased;
                call = self.api.call() => {
                    if let Some(outcome) = heard(call, request_id) {
                        return outcome;
                    }
                }
                how = self.process.end() => return Outcome::Exited(how),
                () = deadline.as_mut() => {
                    if !self.process.is_excused() {
                        return Outcome::TimedOut;
                    }
                    deadline.as_mut().reset(tokio::time::Instant::now() + LOOK_AGAIN);
                }
            }
        }
    }

    /// The deadline counts until the process polls again, whatever it has answered.
    async fn polls_again(&mut self, mut deadline: Pin<Box<Sleep>>) -> bool {
        tokio::select! {
            biased;
            said = poll_or_failure(&mut self.api) => self.poll = said.ok(),
            _ = self.process.end() => {}
            () = deadline.as_mut() => {}
        }
        self.poll.is_some()
    }
}

/// Waits for a poll. Answers are to no invocation that is under way.
async fn poll_or_failure(api: &mut RuntimeApi) -> Result<oneshot::Sender<Delivery>, Failure> {
    loop {
        match api.call().await {
            Call::Next(poll) => return Ok(poll),
            Call::InitFailed(failure) => return Err(failure),
            Call::Answered { accept, .. } | Call::Failed { accept, .. } => drop(accept.send(Accepted::UnknownRequest)),
        }
    }
}

/// What a call means for the invocation that is under way.
fn heard(call: Call, request_id: &str) -> Option<Outcome> {
    match call {
        Call::Answered { request_id: to, answer, accept } if to == request_id => {
            let _ = accept.send(Accepted::Yes);
            Some(answer_of(&answer))
        }
        Call::Failed { request_id: to, failure, accept } if to == request_id => {
            let _ = accept.send(Accepted::Yes);
            Some(Outcome::Error { error_type: failure.error_type, message: failure.message })
        }
        Call::Answered { accept, .. } | Call::Failed { accept, .. } => {
            let _ = accept.send(Accepted::UnknownRequest);
            None
        }
        // Polls in between are refused, and it is too late for an init error.
        Call::Next(_) | Call::InitFailed(_) => None,
    }
}

fn answer_of(answer: &[u8]) -> Outcome {
    if answer.len() <= LARGEST_ANSWER {
        return Outcome::Answer(String::from_utf8_lossy(answer).into_owned());
    }
    Outcome::Error {
        error_type: "Function.ResponseSizeTooLarge".to_owned(),
        message: format!("Response payload size exceeded maximum allowed payload size ({LARGEST_ANSWER} bytes)."),
    }
}
