//! How a process reaches the table and how it waits: the crate's network and clock on simulated time.

use crate::ledger::{CallId, ProcessId};
use crate::table::{Answer, Mark, Typed, Write};
use crate::world::World;
use aws_sdk_dynamodb::types::TransactWriteItem;
use lambda_lock::simulation::{Network, Received, Replying};
use lambda_lock::{Clock, Sleep};
use lambda_lock_protocol::{Fault, Instants, Item, LockKey, Reply, Request, RowRead, Transacted, Written};
use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, SystemTime};

/// What happens to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    Arrives,
    Throttled,
    /// Rejected with the code of this index in [`REJECTIONS`].
    Rejected(usize),
    /// Answered by something between the client and DynamoDB.
    Stranger,
    RequestLost,
    AnswerLost,
    SaysFailure,
}

/// The error code for a request that is refused for now. Every other write is refused because another Region of a
/// global table writes the row. No random number decides this, so each seed keeps its run.
pub(crate) fn throttling(slot: usize, write: bool) -> &'static str {
    if write && slot % 2 == 1 { "ReplicatedWriteConflictException" } else { "ThrottlingException" }
}

/// Error codes that do not justify a retry, or that are unknown.
pub(crate) const REJECTIONS: [&str; 4] =
    ["ExpiredTokenException", "UnrecognizedClientException", "AccessDeniedException", "BrandNewException"];

/// What a sender receives.
#[derive(Clone, Debug)]
pub(crate) enum Outcome {
    Answer(Answer),
    /// The connection broke.
    Reset,
    /// A response of something between the client and DynamoDB.
    Stranger,
    /// Where the real SDK is used.
    Http(u16, String),
}

/// A request that was sent, and its response.
#[derive(Debug)]
pub(crate) struct Slot {
    pub(crate) process: ProcessId,
    pub(crate) call: CallId,
    pub(crate) outcome: Option<Outcome>,
    /// When a peer began to prepare it.
    pub(crate) begun: u64,
    /// When it arrived, by the server's clock.
    pub(crate) arrived: Option<SystemTime>,
    /// Whether the response that was sent says that it was applied, and whether it says that it was refused.
    pub(crate) means: Option<(bool, bool)>,
    /// The row that the response shows to an acquire, if there is one.
    pub(crate) shows: Option<Option<Mark>>,
    /// Whether the lock's own condition held, if it was evaluated for a transaction.
    pub(crate) owned: Option<bool>,
    /// It was a transaction that was cancelled for another reason than a lost lock.
    pub(crate) cancelled: bool,
    /// A response had shown its sender that the row is no lock record.
    pub(crate) against_unreadable: bool,
    /// Its sender knows that it was refused.
    pub(crate) refused: bool,
    /// Its sender knows that it was applied.
    pub(crate) heard: bool,
    /// Nobody waits for it any more.
    pub(crate) dropped: bool,
}

impl Slot {
    pub(crate) fn new(process: ProcessId, call: CallId) -> Self {
        Self {
            process,
            call,
            begun: 0,
            means: None,
            shows: None,
            owned: None,
            cancelled: false,
            against_unreadable: false,
            outcome: None,
            arrived: None,
            refused: false,
            heard: false,
            dropped: false,
        }
    }
}

/// The network of the process that runs now. Two processes may share a client.
#[derive(Debug)]
pub(crate) struct Wire {
    pub(crate) world: World,
}

impl Network for Wire {
    fn write(&self, request: Request) -> Replying<'_, Written> {
        Box::pin(self.sent(&request, &[]).received(Answer::written))
    }

    fn transact<'a>(&'a self, requests: Vec<Request>, writes: &'a [TransactWriteItem]) -> Replying<'a, Transacted> {
        Box::pin(self.sent(&requests[0], writes).received(Answer::transacted))
    }

    fn read(&self, key: LockKey) -> Replying<'_, Option<Item>> {
        Box::pin(self.typed(Typed::read(key)).received(Answer::read))
    }

    fn read_all(&self, _: Vec<LockKey>) -> Replying<'_, Vec<RowRead>> {
        Box::pin(async { Received { reply: Err(Fault::Unknown), server_time: None } })
    }
}

impl Wire {
    fn sent(&self, request: &Request, writes: &[TransactWriteItem]) -> Pending {
        let request = Typed::of(request, Write::all(writes), &self.world.state().schema);
        self.typed(request)
    }

    fn typed(&self, request: Typed) -> Pending {
        let mut state = self.world.state();
        let process = state.running;
        let slot = state.send(process, request, None);
        Pending::new(&self.world, slot)
    }
}

/// The future of a response.
pub(crate) struct Pending {
    world: World,
    slot: usize,
}

impl Pending {
    pub(crate) fn new(world: &World, slot: usize) -> Self {
        Self { world: world.clone(), slot }
    }

    /// The response as the client receives it.
    async fn received<T>(self, reply: impl FnOnce(Answer) -> Reply<T>) -> Received<T> {
        let (answer, server_time) = self.await;
        Received { reply: reply(answer), server_time }
    }

    /// The response, and the server's clock when it arrived.
    pub(crate) async fn outcome(self) -> (Option<Outcome>, SystemTime) {
        poll_fn(|_| {
            let mut state = self.world.state();
            let slot = &mut state.slots[self.slot];
            slot.arrived.map_or(Poll::Pending, |arrived| Poll::Ready((slot.outcome.take(), arrived)))
        })
        .await
    }
}

impl Future for Pending {
    type Output = (Answer, Option<SystemTime>);

    fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Self::Output> {
        let mut state = self.world.state();
        let slot = &mut state.slots[self.slot];
        let Some(arrived) = slot.arrived else { return Poll::Pending };
        Poll::Ready(match slot.outcome.take() {
            Some(Outcome::Answer(answer)) => (answer, Some(arrived)),
            // The date of something in between says nothing about DynamoDB's clock.
            Some(Outcome::Reset | Outcome::Stranger | Outcome::Http(..)) | None => {
                (Answer::Fault(Fault::Unknown), None)
            }
        })
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        self.world.state().slots[self.slot].dropped = true;
    }
}

/// The clocks of the process that runs now.
#[derive(Debug)]
pub(crate) struct ProcessClock {
    pub(crate) world: World,
}

impl Clock for ProcessClock {
    fn now(&self) -> Instants {
        let mut state = self.world.state();
        let process = state.running;
        state.read_clocks(process)
    }

    fn sleep(&self, duration: Duration) -> Sleep {
        let process = self.world.state().running;
        Box::pin(Nap::new(&self.world, process, duration))
    }

    fn random(&self) -> [u8; 16] {
        self.world.state().rng.u128(..).to_le_bytes()
    }
}

/// A timer on a process's monotonic clock.
pub(crate) struct Nap {
    world: World,
    process: ProcessId,
    timer: usize,
    until: u64,
    scheduled: u64,
}

impl Nap {
    pub(crate) fn new(world: &World, process: ProcessId, duration: Duration) -> Self {
        let (timer, until, scheduled) = world.state().timer(process, duration);
        Self { world: world.clone(), process, timer, until, scheduled }
    }
}

impl Future for Nap {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<()> {
        let polled = self.world.state().poll_timer(self.process, self.timer, self.until, self.scheduled);
        match polled {
            Ok(()) => Poll::Ready(()),
            Err(scheduled) => {
                self.scheduled = scheduled;
                Poll::Pending
            }
        }
    }
}

impl Drop for Nap {
    fn drop(&mut self) {
        self.world.state().drop_timer(self.timer);
    }
}
