//! The crate's decisions, each together with what it borrows: a resource can borrow from nobody.

#![allow(unsafe_code, reason = "inside of self_cell's macro")]

use lambda_lock::protocol::{
    AcquireVerdict, Acquisition, Answer, Holding, Machine, Moment, PeekVerdict, Peeking, ReleaseVerdict, Releasing,
    RenewVerdict, Renewal, Settings, Step, Tick,
};
use self_cell::{MutBorrow, self_cell};
use std::rc::Rc;

/// What a renewal borrows.
pub(crate) struct Renewed {
    settings: Rc<Settings>,
    holding: MutBorrow<Holding>,
}

impl Renewed {
    pub(crate) fn new(settings: Rc<Settings>, holding: Holding) -> Self {
        Self { settings, holding: MutBorrow::new(holding) }
    }

    pub(crate) fn settings(&self) -> &Settings {
        &self.settings
    }

    pub(crate) fn holding(&self) -> &MutBorrow<Holding> {
        &self.holding
    }
}

self_cell!(
    pub(crate) struct OwnedAcquisition {
        owner: Rc<Settings>,
        #[covariant]
        dependent: Acquisition,
    }
);

self_cell!(
    pub(crate) struct OwnedRenewal {
        owner: Renewed,
        #[not_covariant]
        dependent: Renewal,
    }
);

self_cell!(
    pub(crate) struct OwnedReleasing {
        owner: Rc<Settings>,
        #[covariant]
        dependent: Releasing,
    }
);

self_cell!(
    pub(crate) struct OwnedPeeking {
        owner: Rc<Settings>,
        #[covariant]
        dependent: Peeking,
    }
);

/// One of the four.
pub(crate) enum AnyMachine {
    Acquisition(OwnedAcquisition),
    Renewal(OwnedRenewal),
    Releasing(OwnedReleasing),
    Peeking(OwnedPeeking),
}

/// How one of the four ended.
pub(crate) enum AnyVerdict {
    Acquire(AcquireVerdict),
    Renew(RenewVerdict),
    Release(ReleaseVerdict),
    Peek(PeekVerdict),
}

impl AnyMachine {
    pub(crate) fn step(&mut self, tick: &Tick<'_>) -> Step<AnyVerdict> {
        match self {
            AnyMachine::Acquisition(cell) => {
                cell.with_dependent_mut(|_, machine| map(machine.step(tick), AnyVerdict::Acquire))
            }
            AnyMachine::Renewal(cell) => {
                cell.with_dependent_mut(|_, machine| map(machine.step(tick), AnyVerdict::Renew))
            }
            AnyMachine::Releasing(cell) => {
                cell.with_dependent_mut(|_, machine| map(machine.step(tick), AnyVerdict::Release))
            }
            AnyMachine::Peeking(cell) => {
                cell.with_dependent_mut(|_, machine| map(machine.step(tick), AnyVerdict::Peek))
            }
        }
    }

    pub(crate) fn answered(&mut self, after: Moment, answer: Answer) {
        match self {
            AnyMachine::Acquisition(cell) => cell.with_dependent_mut(|_, machine| machine.answered(after, answer)),
            AnyMachine::Renewal(cell) => cell.with_dependent_mut(|_, machine| machine.answered(after, answer)),
            AnyMachine::Releasing(cell) => cell.with_dependent_mut(|_, machine| machine.answered(after, answer)),
            AnyMachine::Peeking(cell) => cell.with_dependent_mut(|_, machine| machine.answered(after, answer)),
        }
    }

    /// The hold as a renewal left it.
    pub(crate) fn into_renewed(self) -> Option<Holding> {
        match self {
            AnyMachine::Renewal(cell) => Some(cell.into_owner().holding.into_inner()),
            _ => None,
        }
    }
}

fn map<V>(step: Step<V>, verdict: impl FnOnce(V) -> AnyVerdict) -> Step<AnyVerdict> {
    match step {
        Step::Send(request) => Step::Send(request),
        Step::Wait(pause) => Step::Wait(pause),
        Step::Done(reached) => Step::Done(verdict(reached)),
    }
}
