//! Known mistakes, to be switched on one at a time: a simulation that does not notice them proves nothing.
//!
//! Without the feature `mutants`, which nothing but the project's own simulation asks for, nothing in here
//! does anything, and nothing of it is left in what is compiled.

use crate::protocol::{Expression, Version};

macro_rules! mutants {
    ($($name:ident)*) => {
        /// One mistake, named after what is wrong then.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        #[allow(missing_docs, dead_code, unreachable_pub, reason = "the names say it; without the feature nobody asks")]
        pub enum Mutant {
            $($name,)*
        }

        /// All of them.
        #[cfg(feature = "mutants")]
        pub const ALL: &[Mutant] = &[$(Mutant::$name,)*];
    };
}

mutants! {
    // What a request says.
    TokenNotBumped
    TokenNotFromTheClock
    ClaimOfPeersRows
    ClaimIgnoresWhenReleased
    TakeOfAnyVersion
    TakeKeepsReleased
    PeersRowWithoutMaximum
    RenewOnExactVersion
    RenewWithoutUpperBound
    RenewWithoutToken
    RenewShortens
    ReleaseUnconditional
    ReleaseOnOwnerOnly
    ReleaseOfUnseenVersions
    CountersInsteadOfStamps
    // What an answer means.
    NoRecognition
    RecognisedCountsFromPoll
    NoCleanup
    HeldAfterUnknown
    RenewGivesUpAfterTwoRefusals
    RenewUnknownIsLost
    ReleaseUnknownIsReleased
    // Clocks.
    LeaseCountsFromReceipt
    HolderIgnoresItsEnd
    ExpiredGuardComesBack
    MonotonicClockOnly
    WallClockOnly
    ClocksReadAfterNow
    NoDriftMargin
    NoSkewMargin
    ContenderUsesLargerClock
    SpanBeginsBeforeAnswer
    ObservationOfAnotherVersion
    UnvouchedTimeCounts
    // Transactions.
    CommitSentAnew
    CommitWithoutUpperBound
    FenceWithoutGrant
    // Idempotent work.
    SettleUnconditional
    SettledIsFree
}

#[cfg(not(feature = "mutants"))]
mod switched_off {
    use super::{Expression, Mutant, Version};

    /// Whether this mistake is made.
    pub(crate) const fn on(_: Mutant) -> bool {
        false
    }

    /// Changes a condition.
    pub(crate) const fn edit(_: &mut String, _: Mutant, _: &str, _: &str) {}

    /// Drops what a changed condition leaves unused.
    pub(crate) const fn drop_unused(_: &mut Expression) {}

    /// Remembers what a request should not depend on.
    pub(crate) const fn note(_: Version) {}

    /// What was remembered last.
    pub(crate) const fn noted() -> Option<Version> {
        None
    }
}

#[cfg(not(feature = "mutants"))]
pub(crate) use switched_off::{drop_unused, edit, note, noted, on};

#[cfg(feature = "mutants")]
pub use switch::set;
#[cfg(feature = "mutants")]
pub(crate) use switch::{drop_unused, edit, note, noted, on};

#[cfg(feature = "mutants")]
mod switch {
    use super::{Expression, Mutant, Version};
    use std::cell::Cell;

    thread_local! {
        /// Of this thread alone, so that tests do not disturb each other.
        static CURRENT: Cell<Option<Mutant>> = const { Cell::new(None) };
        static NOTED: Cell<Option<Version>> = const { Cell::new(None) };
    }

    /// Makes this mistake, and no other one, on this thread from now on.
    pub fn set(mutant: Option<Mutant>) {
        CURRENT.set(mutant);
    }

    pub(crate) fn on(mutant: Mutant) -> bool {
        CURRENT.get() == Some(mutant)
    }

    pub(crate) fn edit(condition: &mut String, mutant: Mutant, right: &str, wrong: &str) {
        if on(mutant) {
            *condition = condition.replace(right, wrong);
        }
    }

    /// DynamoDB refuses values and names that an expression does not use: a mistake must be a request that it takes.
    pub(crate) fn drop_unused(expression: &mut Expression) {
        if CURRENT.get().is_none() {
            return;
        }
        let Expression { update, condition, names, values, .. } = expression;
        let between_words = |c: char| !c.is_ascii_alphanumeric() && !matches!(c, ':' | '#');
        let words: Vec<&str> = update.split(between_words).chain(condition.split(between_words)).collect();
        names.retain(|(name, _)| words.contains(name));
        values.retain(|(name, _)| words.contains(name));
    }

    pub(crate) fn note(version: Version) {
        NOTED.set(Some(version));
    }

    pub(crate) fn noted() -> Option<Version> {
        NOTED.get()
    }
}
