//! What the calls that are cut run on: a table, a time that passes when somebody waits for it, and all that
//! can go wrong with one call.

use aws_sdk_dynamodb::types::TransactWriteItem;
use lambda_lock::protocol::{Answer, Instants, Item, LockKey, Record, Request, Schema, Version};
use lambda_lock::simulation::{Network, Reply, Replying};
use lambda_lock::{Clock, LockClient, SharedClock, Sleep};
use lambda_lock_simulation::Rows;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// How many requests a call may send, and how often it may wait, for every place in it to be looked at.
const REQUESTS: usize = 3;
const WAITS: usize = 12;

/// A call is over by then: it has three request timeouts for answers, and again for giving back what it may
/// have got.
const LONGEST: Duration = Duration::from_secs(7);

/// What becomes of one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    LostBefore,
    LostAfter,
}

/// When requests arrive that had not arrived when the call was over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Arrival {
    #[default]
    Never,
    AtOnce,
    /// After its caller has asked again.
    AfterRepetition,
    /// While somebody else has the lock.
    UnderAnother,
    /// When that one has ended it.
    AfterAnother,
}

/// One way in which a call goes wrong.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Fault {
    /// The request with this number, counted from 0.
    pub(crate) request: Option<(usize, Fate)>,
    /// And all after it: nobody answers any more.
    pub(crate) for_good: bool,
    /// The future is dropped when it waits for the time with this number.
    pub(crate) dropped: Option<usize>,
    pub(crate) arrival: Arrival,
}

impl Fault {
    fn is_none(self) -> bool {
        self.request.is_none() && self.dropped.is_none()
    }

    fn fate_of(self, request: usize) -> Option<Fate> {
        let (faulty, fate) = self.request?;
        (request == faulty || self.for_good && request > faulty).then_some(fate)
    }
}

const ARRIVALS: [Arrival; 5] =
    [Arrival::Never, Arrival::AtOnce, Arrival::AfterRepetition, Arrival::UnderAnother, Arrival::AfterAnother];

/// A table, and a time that passes when somebody waits for it.
#[derive(Debug)]
pub(crate) struct World {
    rows: Rows,
    pub(crate) now: Duration,
    random: u128,
    requests: usize,
    fault: Fault,
    /// Requests that were sent and have not arrived, and whether they have writes of the caller's.
    on_their_way: Vec<(Request, bool)>,
    /// And when they will.
    arrival: Arrival,
    /// How often the caller's own write was applied.
    pub(crate) written: usize,
}

impl World {
    fn apply(&mut self, request: &Request, writes: bool) -> Answer {
        let before = self.rows.transactions();
        let answer = self.rows.apply(request);
        self.written += usize::from(writes && self.rows.transactions() > before);
        answer
    }

    fn arrive(&mut self) {
        for (request, writes) in std::mem::take(&mut self.on_their_way) {
            self.apply(&request, writes);
        }
    }

    /// The call that went wrong is over.
    fn call_ends(&mut self) {
        match self.fault.arrival {
            _ if self.fault.is_none() => {}
            Arrival::Never => self.on_their_way.clear(),
            Arrival::AtOnce => self.arrive(),
            later => self.arrival = later,
        }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Shared(Arc<Mutex<World>>);

impl Shared {
    pub(crate) fn new() -> Self {
        let world = World {
            rows: Rows::new(Schema::default()),
            now: Duration::from_secs(1000),
            random: 1,
            requests: 0,
            fault: Fault::default(),
            on_their_way: Vec::new(),
            arrival: Arrival::Never,
            written: 0,
        };
        Self(Arc::new(Mutex::new(world)))
    }

    pub(crate) fn world(&self) -> MutexGuard<'_, World> {
        self.0.lock().unwrap()
    }

    pub(crate) fn locks(&self, owner: &str) -> LockClient {
        let config = aws_sdk_dynamodb::Config::builder()
            .behavior_version(aws_sdk_dynamodb::config::BehaviorVersion::latest())
            .build();
        let nobody = aws_sdk_dynamodb::Client::from_conf(config);
        let clock = SharedClock::new(self.clone());
        LockClient::builder(nobody, "locks").owner(owner).clock(clock).network(self.clone()).build().unwrap()
    }

    /// The next call goes wrong in this way.
    pub(crate) fn fails(&self, fault: Fault) {
        let mut world = self.world();
        (world.requests, world.fault) = (0, fault);
    }

    /// Where this is the time for it, what is still on its way arrives.
    pub(crate) fn arrives(&self, now: Arrival) {
        let mut world = self.world();
        if world.arrival == now {
            world.arrive();
        }
    }

    pub(crate) fn row(&self, key: &str) -> Option<Item> {
        self.world().rows.get(&LockKey::from(key)).cloned()
    }

    /// The grant on the row, with its token, unless it was released.
    pub(crate) fn held(&self) -> Option<(Version, u64)> {
        let record = Record::read(self.row("k")?, &Schema::default()).unwrap();
        if record.released { None } else { Some((record.own_version?, record.token?)) }
    }
}

impl Clock for Shared {
    fn now(&self) -> Instants {
        let now = self.world().now;
        Instants { monotonic: now, wall: Duration::from_secs(1_800_000_000) + now }
    }

    fn sleep(&self, duration: Duration) -> Sleep {
        let until = self.world().now + duration;
        let shared = self.clone();
        let mut waited = false;
        // Time passes only when there is nothing else to do, see `drive`.
        Box::pin(std::future::poll_fn(move |_| {
            let now = shared.world().now;
            if waited && now >= until {
                return Poll::Ready(());
            }
            waited = true;
            Poll::Pending
        }))
    }

    fn random(&self) -> [u8; 16] {
        let mut world = self.world();
        world.random = world.random.wrapping_mul(0x2545_F491_4F6C_DD1D_1234_5678_9ABC_DEF1).wrapping_add(1);
        world.random.to_le_bytes()
    }
}

impl Network for Shared {
    /// Waits once before the request is applied, and once after it.
    fn send<'a>(&'a self, request: Request, writes: &'a [TransactWriteItem]) -> Replying<'a> {
        Box::pin(async move {
            let fate = {
                let mut world = self.world();
                world.requests += 1;
                world.on_their_way.push((request.clone(), !writes.is_empty()));
                world.fault.fate_of(world.requests - 1)
            };
            a_turn().await;
            if fate == Some(Fate::LostBefore) {
                return Reply { answer: Answer::Unknown, server_time: None };
            }
            let answer = {
                // A call sends one request after the other: the last one is this one.
                let mut world = self.world();
                world.on_their_way.pop();
                world.apply(&request, !writes.is_empty())
            };
            a_turn().await;
            let answer = if fate == Some(Fate::LostAfter) { Answer::Unknown } else { answer };
            Reply { answer, server_time: None }
        })
    }
}

/// Is not ready the first time.
async fn a_turn() {
    let mut waited = false;
    std::future::poll_fn(move |_| if std::mem::replace(&mut waited, true) { Poll::Ready(()) } else { Poll::Pending })
        .await;
}

/// Drives a call; `None`: its future was dropped where it waited.
pub(crate) fn drive<T>(shared: &Shared, call: impl Future<Output = T>) -> Option<T> {
    let mut call: Pin<&mut _> = pin!(call);
    let mut context = Context::from_waker(Waker::noop());
    let ends_at_ms = shared.world().now + LONGEST;
    for waits in 0.. {
        if let Poll::Ready(output) = call.as_mut().poll(&mut context) {
            let mut world = shared.world();
            let looked_at = world.requests <= REQUESTS && waits <= WAITS;
            let asked = !world.fault.is_none() && !world.fault.for_good;
            assert!(looked_at || !asked, "{} requests, {waits} waits: not all of them were tried", world.requests);
            world.call_ends();
            return Some(output);
        }
        let mut world = shared.world();
        if world.fault.dropped == Some(waits) {
            world.call_ends();
            return None;
        }
        world.now += Duration::from_millis(20);
        assert!(world.now < ends_at_ms, "the call does not end: {:?}", world.fault);
    }
    None
}

/// Every fault of one call: each of its first requests lost, each place to drop it, and both, or nobody
/// answers any more; and what was lost never arrives, or late.
pub(crate) fn faults() -> impl Iterator<Item = Fault> {
    let numbered = || (0..REQUESTS).flat_map(|number| [(number, Fate::LostBefore), (number, Fate::LostAfter)]);
    let drops = || std::iter::once(None).chain((0..WAITS).map(Some));
    let once = std::iter::once(None).chain(numbered().map(Some));
    let once = once.flat_map(move |request| drops().map(move |dropped| Fault { request, dropped, ..Fault::default() }));
    let for_good = numbered().map(|request| Fault { request: Some(request), for_good: true, ..Fault::default() });
    once.chain(for_good).flat_map(|fault| ARRIVALS.map(|arrival| Fault { arrival, ..fault }))
}
