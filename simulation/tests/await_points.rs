//! Every call, cut at every point where it waits: its future dropped there, as by a crash or a
//! cancellation, and each of its requests lost before or after it was applied.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a helper of a test may stop it")]

use aws_sdk_dynamodb::types::{AttributeValue, Put, TransactWriteItem};
use lambda_lock::protocol::{Answer, LockKey, Moment, Request, Schema, Version};
use lambda_lock::simulation::{Network, Reply, Replying};
use lambda_lock::{
    Clock, CommitOutcome, Error, ErrorKind, Lock, LockClient, ReleaseOutcome, SharedClock, Sleep, TryAcquired,
};
use lambda_lock_simulation::Rows;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

const LEASE: Duration = Duration::from_secs(10);

/// What becomes of one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    LostBefore,
    LostAfter,
}

/// One way in which a call goes wrong.
#[derive(Clone, Copy, Debug, Default)]
struct Fault {
    /// The request with this number, counted from 0.
    request: Option<(usize, Fate)>,
    /// The future is dropped when it waits for the time with this number.
    dropped: Option<usize>,
}

/// A table, and a time that passes when somebody waits for it.
#[derive(Debug)]
struct World {
    rows: Rows,
    now: Duration,
    random: u128,
    requests: usize,
    fault: Fault,
    /// How often the caller's own write was applied.
    written: usize,
}

#[derive(Clone, Debug)]
struct Shared(Arc<Mutex<World>>);

impl Shared {
    fn new() -> Self {
        let rows = Rows::new(Schema::default());
        let now = Duration::from_secs(1000);
        let world = World { rows, now, random: 1, requests: 0, fault: Fault::default(), written: 0 };
        Self(Arc::new(Mutex::new(world)))
    }

    fn world(&self) -> MutexGuard<'_, World> {
        self.0.lock().unwrap()
    }

    fn locks(&self, owner: &str) -> LockClient {
        let config = aws_sdk_dynamodb::Config::builder()
            .behavior_version(aws_sdk_dynamodb::config::BehaviorVersion::latest())
            .build();
        let nobody = aws_sdk_dynamodb::Client::from_conf(config);
        let clock = SharedClock::new(self.clone());
        LockClient::builder(nobody, "locks").owner(owner).clock(clock).network(self.clone()).build().unwrap()
    }

    fn fails(&self, fault: Fault) {
        let mut world = self.world();
        (world.requests, world.fault) = (0, fault);
    }

    /// The grant on the row, with its token, unless it was released.
    fn held(&self) -> Option<(Version, u64)> {
        let world = self.world();
        let row = world.rows.get(&LockKey::from("k"))?.clone();
        let record = lambda_lock::protocol::Record::read(row, &Schema::default()).unwrap();
        if record.released { None } else { Some((record.own_version?, record.token?)) }
    }
}

impl Clock for Shared {
    fn now(&self) -> Moment {
        let now = self.world().now;
        Moment { monotonic: now, wall: Duration::from_secs(1_800_000_000) + now }
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
                let number = world.requests - 1;
                world.fault.request.filter(|(faulty, _)| *faulty == number).map(|(_, fate)| fate)
            };
            once().await;
            if fate == Some(Fate::LostBefore) {
                return Reply { answer: Answer::Unknown, server_time: None };
            }
            let answer = {
                let mut world = self.world();
                let before = world.rows.transactions();
                let answer = world.rows.apply(&request);
                let applied = world.rows.transactions() > before;
                world.written += usize::from(applied && !writes.is_empty());
                answer
            };
            once().await;
            let answer = if fate == Some(Fate::LostAfter) { Answer::Unknown } else { answer };
            Reply { answer, server_time: None }
        })
    }
}

/// Is not ready the first time.
async fn once() {
    let mut waited = false;
    std::future::poll_fn(move |_| if std::mem::replace(&mut waited, true) { Poll::Ready(()) } else { Poll::Pending })
        .await;
}

/// Drives a call; `None`: its future was dropped where it waited.
fn drive<T>(shared: &Shared, call: impl Future<Output = T>) -> Option<T> {
    let mut call: Pin<&mut _> = pin!(call);
    let mut context = Context::from_waker(Waker::noop());
    for waits in 0..200 {
        if let Poll::Ready(output) = call.as_mut().poll(&mut context) {
            return Some(output);
        }
        if shared.world().fault.dropped == Some(waits) {
            return None;
        }
        shared.world().now += Duration::from_millis(20);
    }
    panic!("the call does not end");
}

/// Every fault of one call: each of its first requests, each place to drop it, and both.
fn faults() -> Vec<Fault> {
    let mut requests: Vec<_> = vec![None];
    requests.extend((0..3).flat_map(|number| [Some((number, Fate::LostBefore)), Some((number, Fate::LostAfter))]));
    let drops = || std::iter::once(None).chain((0..12).map(Some));
    requests.iter().flat_map(|request| drops().map(|dropped| Fault { request: *request, dropped })).collect()
}

fn acquired(shared: &Shared, owner: &str) -> Lock {
    drive(shared, async { shared.locks(owner).try_acquire("k").lease(LEASE).await })
        .unwrap()
        .unwrap()
        .granted()
        .unwrap()
}

fn write() -> TransactWriteItem {
    let put = Put::builder().table_name("work").item("key", AttributeValue::S("k".to_owned())).build().unwrap();
    TransactWriteItem::builder().put(put).build()
}

/// What must hold after any fault, whatever became of the call.
fn consistent(shared: &Shared, guard: Option<&Lock>, tokens: u64, what: &str) {
    shared.fails(Fault::default());
    if let Some(guard) = guard.filter(|guard| !guard.remaining().is_zero()) {
        let (version, token) = shared.held().unwrap_or_else(|| panic!("{what}: a guard says mine, the row says free"));
        assert_eq!(token, guard.fencing_token(), "{what}");
        assert_eq!(Version::parse(guard.token().version()).unwrap().grant, version.grant, "{what}");
        let other = drive(shared, async { shared.locks("other").try_acquire("k").lease(LEASE).await });
        assert!(matches!(other, Some(Ok(TryAcquired::Held(_)))), "{what}: {other:?}");
    }
    // Whatever was left behind ends like any dead holder.
    shared.world().now += LEASE * 3;
    let next = acquired(shared, "next");
    assert!(next.fencing_token() > tokens, "{what}: {} after {tokens}", next.fencing_token());
    assert!(guard.is_none_or(|guard| guard.remaining().is_zero()), "{what}");
    drive(shared, next.release().into_future());
}

#[test]
fn an_acquire_cut_anywhere_leaves_no_more_than_a_dead_holder() {
    // Free, released before, and a holder of ours that died.
    for (prepared, name) in [(0, "no row"), (1, "released"), (2, "dead")] {
        for fault in faults() {
            let shared = Shared::new();
            let mut tokens = 0;
            if prepared > 0 {
                let earlier = acquired(&shared, "earlier");
                tokens = earlier.fencing_token();
                match prepared {
                    1 => drop(drive(&shared, earlier.release().into_future())),
                    _ => shared.world().now += LEASE * 2,
                }
            }
            let what = format!("{name}, {fault:?}");
            shared.fails(fault);
            let locks = shared.locks("me");
            let answer = drive(&shared, async { locks.try_acquire("k").lease(LEASE).await });
            let guard = match answer {
                None => None,
                Some(Ok(TryAcquired::Granted(lock))) => Some(lock),
                // One lost message is made up for.
                other => panic!("{what}: {other:?}"),
            };
            assert!(guard.as_ref().is_none_or(|guard| guard.fencing_token() > tokens), "{what}");
            let tokens = guard.as_ref().map_or(tokens, Lock::fencing_token);
            consistent(&shared, guard.as_ref(), tokens, &what);
        }
    }
}

#[test]
fn a_renewal_cut_anywhere_leaves_a_guard_that_says_no_more_than_the_row() {
    for fault in faults() {
        let shared = Shared::new();
        let mut lock = acquired(&shared, "me");
        shared.world().now += LEASE / 3;
        let before = lock.remaining();
        shared.fails(fault);
        let renewed = drive(&shared, async { lock.checkpoint().await });
        let what = format!("{fault:?}: {renewed:?}");
        match &renewed {
            Some(Ok(())) => assert!(lock.remaining() > before, "{what}"),
            Some(Err(_)) => panic!("{what}: one lost message is made up for"),
            None => assert!(lock.remaining() <= before, "{what}: nobody learnt that it was renewed"),
        }
        // It goes on all the same.
        shared.fails(Fault::default());
        drive(&shared, async { lock.checkpoint().await }).unwrap().unwrap();
        consistent(&shared, Some(&lock), lock.fencing_token(), &what);
    }
}

#[test]
fn a_release_cut_anywhere_is_repeated_from_its_token_or_ends_with_the_lease() {
    for fault in faults() {
        let shared = Shared::new();
        let lock = acquired(&shared, "me");
        let (token, fencing) = (lock.token(), lock.fencing_token());
        shared.fails(fault);
        let released = drive(&shared, lock.release().into_future());
        let what = format!("{fault:?}: {released:?}");
        match &released {
            Some(Ok(outcome)) => {
                assert_eq!(*outcome, ReleaseOutcome::Released, "{what}");
                assert!(shared.held().is_none(), "{what}");
            }
            Some(Err(_)) => panic!("{what}: one lost message is made up for"),
            None => {}
        }
        shared.fails(Fault::default());
        let again = drive(&shared, shared.locks("me").release(token).into_future()).unwrap().unwrap();
        assert_eq!(again, ReleaseOutcome::Released, "{what}");
        assert!(shared.held().is_none(), "{what}");
        consistent(&shared, None, fencing, &what);
    }
}

#[test]
fn a_commit_cut_anywhere_is_applied_once_or_not_at_all_and_says_so() {
    for fault in faults() {
        let shared = Shared::new();
        let mut lock = acquired(&shared, "me");
        shared.fails(fault);
        let committed = drive(&shared, lock.commit([write()]).into_future());
        let what = format!("{fault:?}: {committed:?}");
        let written = shared.world().written;
        shared.fails(Fault::default());
        match committed {
            Some(Ok(())) => assert_eq!(written, 1, "{what}"),
            Some(Err(_)) => panic!("{what}: one lost message is made up for"),
            None => match drive(&shared, async { lock.settle_commit().await }).unwrap() {
                Ok(CommitOutcome::Applied) => assert_eq!(written, 1, "{what}"),
                Ok(CommitOutcome::NotApplied) => assert_eq!(written, 0, "{what}"),
                // It was dropped before there was anything to settle.
                Err(error) => assert!(written == 0 && is_invalid(&error), "{what}: {error}"),
            },
        }
        assert_eq!(shared.world().written, written, "{what}: applied afterwards");
        consistent(&shared, Some(&lock), lock.fencing_token(), &what);
    }
}

#[test]
fn a_commit_and_release_cut_anywhere_is_applied_once_or_not_at_all() {
    for fault in faults() {
        let shared = Shared::new();
        let lock = acquired(&shared, "me");
        let fencing = lock.fencing_token();
        shared.fails(fault);
        let committed = drive(&shared, lock.commit_and_release([write()]).into_future());
        let what = format!("{fault:?}: {committed:?}");
        let written = shared.world().written;
        match committed {
            Some(Ok(())) => assert!(written == 1 && shared.held().is_none(), "{what}"),
            Some(Err(_)) => panic!("{what}: one lost message is made up for"),
            None => assert!(written <= 1, "{what}"),
        }
        consistent(&shared, None, fencing, &what);
    }
}

#[test]
fn a_resume_and_a_reclaim_cut_anywhere_leave_the_token_good() {
    for reclaims in [false, true] {
        for fault in faults() {
            let shared = Shared::new();
            let token = acquired(&shared, "me").into_token();
            let fencing = token.fencing_token();
            let locks = shared.locks("next state");
            let go_on = async |token| match reclaims {
                true => locks.reclaim(token).lease(LEASE).await,
                false => locks.resume(token).await,
            };
            shared.fails(fault);
            let taken = drive(&shared, go_on(token.clone()));
            let what = format!("reclaims: {reclaims}, {fault:?}: {taken:?}");
            let guard = match taken {
                Some(Ok(lock)) => lock,
                Some(Err(_)) => panic!("{what}: one lost message is made up for"),
                None => {
                    shared.fails(Fault::default());
                    match drive(&shared, go_on(token)).unwrap() {
                        Ok(lock) => lock,
                        // The reclaim that was cut was applied, and given back or not: the lock is the owner's.
                        Err(error) => panic!("{what}: then {error}"),
                    }
                }
            };
            assert!(guard.fencing_token() > fencing || !reclaims, "{what}");
            consistent(&shared, Some(&guard), guard.fencing_token(), &what);
        }
    }
}

fn is_invalid(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::InvalidRequest)
}
