//! How a process reads its clocks, sends and waits.

use super::world::{Event, Nanos, World, nanos};
use lambda_lock_protocol::{
    Answer, Fault, Instants, Item, LockKey, Now, Port, Reply, Request, RowRead, Sent, Transacted, WallClock, Written,
};
use std::future::poll_fn;
use std::task::Poll;
use std::time::Duration;

/// How long a call waits for one response.
const TIMEOUT: Duration = Duration::from_millis(60);
/// One last request waits this long, whatever time is left.
const LAST: Duration = Duration::from_millis(15);

/// The port of a process. Each call sets its time.
#[derive(Clone)]
pub(super) struct Wire {
    pub(super) world: World,
    pub(super) id: usize,
    pub(super) started: Instants,
    pub(super) wait: Duration,
    pub(super) time: Duration,
    pub(super) lease: Duration,
    /// The number of the caller's own writes that go with a transaction.
    pub(super) commit: Option<usize>,
}

impl Wire {
    pub(super) fn begin(&mut self, wait: Duration, time: Duration) {
        self.started = self.world.state().clocks(self.id);
        (self.wait, self.time) = (wait, time.max(wait));
    }

    async fn answer_to(&mut self, sent: Sent, number: Option<usize>) -> (Instants, Answer) {
        let (slot, until) = {
            let mut state = self.world.state();
            let passed = state.clocks(self.id).longest_since(self.started);
            let patience = TIMEOUT.min(self.time.saturating_sub(passed).max(LAST));
            let until: Nanos = state.now + nanos(patience);
            let slot = state.send(self.id, sent, number);
            state.at(until, Event::Wake(self.id));
            (slot, until)
        };
        poll_fn(|_| {
            let mut state = self.world.state();
            let after = state.clocks(self.id);
            if let Some(answer) = state.slots[slot].answer.take() {
                return Poll::Ready((after, answer));
            }
            if state.now >= until { Poll::Ready((after, Answer::Fault(Fault::Unknown))) } else { Poll::Pending }
        })
        .await
    }

    pub(super) async fn nap(&self, duration: Duration) {
        let until = {
            let mut state = self.world.state();
            let until = state.now + nanos(duration);
            state.wake(self.id, until);
            until
        };
        poll_fn(|_| if self.world.state().now >= until { Poll::Ready(()) } else { Poll::Pending }).await;
    }
}

impl Port for Wire {
    fn now(&mut self) -> Now {
        let state = self.world.state();
        let instants = state.clocks(self.id);
        let passed = instants.longest_since(self.started);
        let millis = u64::try_from(instants.wall.as_millis()).unwrap_or_default();
        let trusted = state.plan.by_wall_clock;
        Now {
            instants,
            wall: WallClock { millis, written: millis, latest: millis, trusted },
            wait_left: self.wait.saturating_sub(passed),
            time_left: self.time.saturating_sub(passed),
            lease: self.lease,
            latest_end: None,
            server: None,
        }
    }

    fn random(&mut self) -> [u8; 16] {
        self.world.state().rng.u128(..).to_le_bytes()
    }

    async fn write(&mut self, _: &Now, request: Request) -> (Instants, Reply<Written>) {
        let (after, answer) = self.answer_to(Sent::Write(request), None).await;
        (after, answer.written())
    }

    async fn transact(&mut self, _: &Now, requests: Vec<Request>) -> (Instants, Reply<Transacted>) {
        let number = self.commit;
        let (after, answer) = self.answer_to(Sent::Transaction(requests), number).await;
        (after, answer.transacted())
    }

    async fn read(&mut self, _: &Now, key: LockKey) -> (Instants, Reply<Option<Item>>) {
        let (after, answer) = self.answer_to(Sent::Read(key), None).await;
        (after, answer.read())
    }

    async fn read_all(&mut self, _: &Now, keys: Vec<LockKey>) -> (Instants, Reply<Vec<RowRead>>) {
        let (after, answer) = self.answer_to(Sent::ReadAll(keys), None).await;
        (after, answer.read_all())
    }

    async fn sleep(&mut self, _: &Now, pause: Duration) {
        self.nap(pause).await;
    }
}
