//! Our callers wait in line for a lock that a peer takes in between. The peer does not know the line.

use crate::fleet::{Fleet, LONG, granted};
use lambda_lock::{Budget, Lock};
use lambda_lock_interop::{Language, Peer, Why};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};
use tokio::task::JoinHandle;

/// How long it takes at most until the next of ours has a lock that is free: a slot, a pause, and delays of a busy machine.
const SOON: Duration = Duration::from_secs(30);
/// How often the peer tries to come first.
const ROUNDS: usize = 10;

/// The callers that say they have the lock.
#[derive(Clone, Default)]
struct Inside(Arc<AtomicU32>);

impl Inside {
    fn enter(&self) {
        assert_eq!(self.0.fetch_add(1, Ordering::SeqCst), 0, "two callers at once");
    }

    fn leave(&self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

async fn last_ticket(fleet: &Fleet, key: &str) -> Option<String> {
    fleet.attribute(key, "lastTicket").await
}

/// Waits until the row shows this as the last ticket that was given.
async fn until_given(fleet: &Fleet, key: &str, ticket: &str) {
    let began = Instant::now();
    while last_ticket(fleet, key).await.as_deref() != Some(ticket) {
        assert!(began.elapsed() < SOON, "ticket {ticket} was not given: {:?}", fleet.row(key).await);
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Starts one of ours that waits in line.
fn waits(fleet: &Fleet, owner: &str, key: &str, inside: &Inside) -> JoinHandle<Lock> {
    let (locks, key, inside) = (fleet.locks(owner), key.to_owned(), inside.clone());
    tokio::spawn(async move {
        let budget = Budget::lasting(Duration::from_secs(60)).reserve(Duration::from_secs(1));
        let lock = locks.acquire(key).within(&budget).lease(LONG).in_turn().await.unwrap();
        inside.enter();
        lock
    })
}

/// Two of ours wait in line, and the peer takes the lock as soon as it is free. Returns those of ours, unless one was faster.
async fn passed_by(peer: &mut Peer, fleet: &Fleet, key: &str, inside: &Inside) -> Option<[JoinHandle<Lock>; 2]> {
    let lock = granted(&fleet.locks("first"), key, LONG).await;
    inside.enter();
    let second = waits(fleet, "second", key, inside);
    until_given(fleet, key, "1").await;
    let third = waits(fleet, "third", key, inside);
    until_given(fleet, key, "2").await;
    // Behind a holder of this age, those in line look four times a second.
    tokio::time::sleep(Duration::from_secs(1)).await;

    inside.leave();
    lock.release().await.unwrap();
    match peer.try_acquire(key).await.unwrap() {
        Ok(_) if !second.is_finished() && !third.is_finished() => {
            inside.enter();
            Some([second, third])
        }
        Ok(_) => panic!("the peer has the lock, and so has one of ours"),
        Err(refusal) => {
            assert_eq!(refusal.why, Why::Held, "{refusal}");
            for waiter in [second, third] {
                let lock = waiter.await.unwrap();
                inside.leave();
                lock.release().await.unwrap();
            }
            None
        }
    }
}

pub(crate) async fn two_in_line_whom_a_peer_passes_get_the_lock_one_after_the_other(fleet: Fleet) {
    let mut peer = fleet.peer("theirs", LONG).await;
    // The first request of a process takes long.
    peer.try_acquire("another").await.unwrap().unwrap();
    let inside = Inside::default();
    let mut passed = None;
    for round in 0..ROUNDS {
        let key = format!("k{round}");
        if let Some(waiters) = passed_by(&mut peer, &fleet, &key, &inside).await {
            passed = Some((key, waiters));
            break;
        }
    }
    let (key, [mut second, mut third]) = passed.expect("one of ours was always faster than the peer");

    // Under the peer's version nobody takes a ticket. Java has dropped the numbers, and Go has copied them.
    let copied = (fleet.language == Language::Go).then(|| "2".to_owned());
    tokio::time::sleep(Duration::from_millis(1500)).await;
    assert_eq!(last_ticket(&fleet, &key).await, copied);
    assert!(!second.is_finished() && !third.is_finished(), "one of ours has the peer's lock");
    inside.leave();
    peer.release(&key, false).await.unwrap().unwrap();

    let released = Instant::now();
    let (lock, other) = tokio::select! {
        lock = &mut second => (lock.unwrap(), third),
        lock = &mut third => (lock.unwrap(), second),
    };
    assert!(released.elapsed() < SOON, "{:?}", released.elapsed());
    // The ticket from before is void after Java, so the other one takes the first of a new line.
    let next = if fleet.language == Language::Java { "1" } else { "2" };
    until_given(&fleet, &key, next).await;
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!(last_ticket(&fleet, &key).await.as_deref(), Some(next));
    assert!(!other.is_finished(), "two of ours have the lock");
    inside.leave();
    lock.release().await.unwrap();

    let released = Instant::now();
    let lock = other.await.unwrap();
    assert!(released.elapsed() < SOON, "{:?}", released.elapsed());
    let served: u64 = fleet.attribute(&key, "servedTicket").await.unwrap().parse().unwrap();
    assert!(served >= 1 && served <= next.parse().unwrap(), "{served} was served");
    lock.release().await.unwrap();
}

pub(crate) async fn a_line_counts_in_our_row_and_not_in_one_that_a_peer_wrote(fleet: Fleet) {
    let mut peer = fleet.peer("theirs", LONG).await;
    let ours = fleet.locks("ours");
    let lock = granted(&ours, "k", LONG).await;
    // Takes a ticket, and is gone.
    let gone = waits(&fleet, "other", "k", &Inside::default());
    until_given(&fleet, "k", "1").await;
    gone.abort();
    lock.release().await.unwrap();
    let tried = ours.acquire("k").lease(LONG).try_once().await.unwrap();
    assert_eq!(tried.refused().expect("the lock is left to those in line").waiting, 1);

    peer.try_acquire("k").await.unwrap().unwrap();
    assert_eq!(last_ticket(&fleet, "k").await.is_some(), fleet.language == Language::Go);
    assert_eq!(ours.operator().peek("k").await.unwrap().unwrap().waiting, 0);
    peer.release("k", false).await.unwrap().unwrap();
    granted(&ours, "k", LONG).await.release().await.unwrap();
}
