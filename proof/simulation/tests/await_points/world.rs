//! The world of the calls that are cut: a table, a clock that advances when a call waits, and the faults of one call.

use aws_sdk_dynamodb::types::TransactWriteItem;
use lambda_lock::simulation::{Network, Received, Replying};
use lambda_lock::{Clock, LockClient, Sleep};
use lambda_lock_protocol::{
    Fault as NoReply, Instants, Item, LockKey, Record, Reply, Request, RowRead, Schema, Transacted, Version, Written,
};
use lambda_lock_simulation::{Answer, Rows};
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// The number of requests that a call may send, and of waits that it may have, so that every place in it is tested.
const REQUESTS: usize = 3;
const WAITS: usize = 12;

/// A call must have ended by then: three request timeouts for responses, and three more to release what it may have
/// acquired.
const LONGEST: Duration = Duration::from_secs(7);

/// What happens to one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    LostBefore,
    LostAfter,
}

/// When requests arrive that did not arrive during the call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Arrival {
    #[default]
    Never,
    AtOnce,
    /// After the caller has repeated the call.
    AfterRepetition,
    /// While another caller has the lock.
    UnderAnother,
    /// After that caller has released it.
    AfterAnother,
}

/// A request of a call.
#[derive(Clone, Debug)]
enum Asked {
    /// And whether it contains writes of the caller's.
    Write(Request, bool),
    Read(LockKey),
}

/// The fault of one call.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Fault {
    /// What happens to the request with this number, counted from 0.
    pub(crate) request: Option<(usize, Fate)>,
    /// The same happens to all later requests: no response arrives any more.
    pub(crate) for_good: bool,
    /// The future is dropped at the wait with this number.
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

/// A table, and a clock that advances when a call waits.
#[derive(Debug)]
pub(crate) struct World {
    rows: Rows,
    pub(crate) now: Duration,
    random: u128,
    requests: usize,
    fault: Fault,
    /// Requests that were sent and have not arrived.
    on_their_way: Vec<Asked>,
    /// When they will arrive.
    arrival: Arrival,
    /// How often the caller's own write was applied.
    pub(crate) written: usize,
}

impl World {
    fn apply(&mut self, asked: &Asked) -> Answer {
        let (request, writes) = match asked {
            Asked::Write(request, writes) => (request, *writes),
            Asked::Read(key) => return Answer::Found(self.rows.get(key).cloned()),
        };
        let before = self.rows.transactions();
        let answer = self.rows.apply(request);
        self.written += usize::from(writes && self.rows.transactions() > before);
        answer
    }

    fn arrive(&mut self) {
        for asked in std::mem::take(&mut self.on_their_way) {
            self.apply(&asked);
        }
    }

    /// The call with the fault has ended.
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
        let clock = Arc::new(self.clone());
        LockClient::builder(nobody, "locks").owner(owner).clock(clock).network(self.clone()).build().unwrap()
    }

    /// The next call gets this fault.
    pub(crate) fn fails(&self, fault: Fault) {
        let mut world = self.world();
        (world.requests, world.fault) = (0, fault);
    }

    /// Delivers the requests in flight if this is the time for it.
    pub(crate) fn arrives(&self, now: Arrival) {
        let mut world = self.world();
        if world.arrival == now {
            world.arrive();
        }
    }

    pub(crate) fn row(&self, key: &str) -> Option<Item> {
        self.world().rows.get(&LockKey::from(key)).cloned()
    }

    /// The version and the token of the grant on the row, unless it was released.
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
        // Time advances only when there is nothing else to do, see `drive`.
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
    fn write(&self, request: Request) -> Replying<'_, Written> {
        Box::pin(self.received(Asked::Write(request, false), Answer::written))
    }

    fn transact<'a>(&'a self, mut requests: Vec<Request>, writes: &'a [TransactWriteItem]) -> Replying<'a, Transacted> {
        assert_eq!(requests.len(), 1, "each call here is about one lock");
        Box::pin(self.received(Asked::Write(requests.remove(0), !writes.is_empty()), Answer::transacted))
    }

    fn read(&self, key: LockKey) -> Replying<'_, Option<Item>> {
        Box::pin(self.received(Asked::Read(key), Answer::read))
    }

    fn read_all(&self, _: Vec<LockKey>) -> Replying<'_, Vec<RowRead>> {
        unreachable!("each call here is about one lock")
    }
}

impl Shared {
    /// Waits once before the request is applied, and once after it.
    async fn received<T>(&self, asked: Asked, reply: impl FnOnce(Answer) -> Reply<T>) -> Received<T> {
        let fate = {
            let mut world = self.world();
            world.requests += 1;
            world.on_their_way.push(asked.clone());
            world.fault.fate_of(world.requests - 1)
        };
        a_turn().await;
        if fate == Some(Fate::LostBefore) {
            return Received { reply: Err(NoReply::Unknown), server_time: None };
        }
        let answer = {
            // A call sends its requests one after the other, so the last request is this one.
            let mut world = self.world();
            world.on_their_way.pop();
            world.apply(&asked)
        };
        a_turn().await;
        let reply = if fate == Some(Fate::LostAfter) { Err(NoReply::Unknown) } else { reply(answer) };
        Received { reply, server_time: None }
    }
}

/// Is pending the first time.
async fn a_turn() {
    let mut waited = false;
    std::future::poll_fn(move |_| if std::mem::replace(&mut waited, true) { Poll::Ready(()) } else { Poll::Pending })
        .await;
}

/// Drives a call. `None`: its future was dropped while it waited.
pub(crate) fn drive<T>(shared: &Shared, call: impl Future<Output = T>) -> Option<T> {
    let mut call: Pin<&mut _> = pin!(call);
    let mut context = Context::from_waker(Waker::noop());
    let ends_at_ms = shared.world().now + LONGEST;
    for waits in 0.. {
        if let Poll::Ready(output) = call.as_mut().poll(&mut context) {
            let mut world = shared.world();
            let looked_at = world.requests <= REQUESTS && waits <= WAITS;
            let asked = !world.fault.is_none() && !world.fault.for_good;
            assert!(
                looked_at || !asked,
                "{} requests, {waits} waits: a place in the call was not tested",
                world.requests
            );
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

/// Every fault of one call. Each of its first requests is lost; the call is dropped at each wait; both happen together;
/// or no response arrives any more. Lost requests never arrive, or arrive late.
pub(crate) fn faults() -> impl Iterator<Item = Fault> {
    let numbered = || (0..REQUESTS).flat_map(|number| [(number, Fate::LostBefore), (number, Fate::LostAfter)]);
    let drops = || std::iter::once(None).chain((0..WAITS).map(Some));
    let once = std::iter::once(None).chain(numbered().map(Some));
    let once = once.flat_map(move |request| drops().map(move |dropped| Fault { request, dropped, ..Fault::default() }));
    let for_good = numbered().map(|request| Fault { request: Some(request), for_good: true, ..Fault::default() });
    once.chain(for_good).flat_map(|fault| ARRIVALS.map(|arrival| Fault { arrival, ..fault }))
}
