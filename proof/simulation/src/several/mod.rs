//! Sets of several keys and semaphores under faults: the decisions of the crate over a table whose transactions take
//! time. It is a world of its own, with the protocol alone and without guards, so that it is small.
//!
//! A transaction is decided at one instant and reaches its rows one after the other. Meanwhile other writes of these rows
//! meet a conflict. A refused one holds the rows that it found free for a moment, and reports a part of its reasons.

mod callers;
mod ledger;
mod port;
mod table;
mod world;

use crate::counts::Counts;
use crate::ledger::Invariant;
use crate::run::Run;
use callers::Me;
use ledger::Ledger;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::task::{Context, Waker};
use world::{Event, Role, World};

/// The seeds of this world begin here.
pub(crate) const FIRST_SEED: u64 = 1 << 48;

/// One seed of the main world in this many brings one of this world.
pub(crate) const ONE_IN: u64 = 8;

/// A run that does not end must fail instead of hang.
const MAX_EVENTS: u64 = 400_000;

type Task = Pin<Box<dyn Future<Output = ()>>>;

/// Runs one seed of this world.
pub(crate) fn run(seed: u64, trace: bool) -> Run {
    let world = World::new(seed, trace);
    let gone = catch_unwind(AssertUnwindSafe(|| go(&world)));
    let mut state = world.state();
    if gone.is_err() {
        state.ledger.violate(Invariant::NoPanic, "a call panicked".to_owned());
    }
    let Ledger { violation, counts, .. } = std::mem::take(&mut state.ledger);
    Run {
        seed,
        hash: state.hash,
        counts: Counts { runs_with_sets: 1, ..counts },
        violation,
        trace: std::mem::take(&mut state.trace),
    }
}

fn go(world: &World) {
    let mut tasks: Vec<Option<Task>> = Vec::new();
    let mut last = [Role::LastSet, Role::LastPlace].into_iter();
    for happened in 0.. {
        let mut state = world.state();
        if state.ledger.violation.is_some() {
            return;
        }
        if happened > MAX_EVENTS {
            state.ledger.violate(Invariant::RunEnds, format!("the run has not ended after {happened} events"));
            return;
        }
        let Some(event) = state.next() else {
            // Nothing is in flight any more. Without faults everything can be had within its bound.
            state.calm = true;
            let Some(role) = last.next() else { return state.ledger.ends() };
            let now = state.now;
            state.at(now, Event::Spawn(role));
            continue;
        };
        match event {
            Event::Spawn(role) => {
                let id = state.spawn();
                drop(state);
                tasks.push(Some(Box::pin(Me::new(world, id).live(role))));
                poll(&mut tasks, id);
            }
            Event::Wake(id) => {
                drop(state);
                poll(&mut tasks, id);
            }
            other => state.happens(other),
        }
    }
}

fn poll(tasks: &mut [Option<Task>], id: usize) {
    let Some(Some(task)) = tasks.get_mut(id) else { return };
    if task.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready() {
        tasks[id] = None;
    }
}
