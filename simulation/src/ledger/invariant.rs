//! Every invariant with its name and its promise.

use std::fmt;

/// A broken promise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The invariant that was broken.
    pub invariant: Invariant,
    /// What was seen.
    pub what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.invariant.name(), self.what)
    }
}

macro_rules! invariants {
    ($($name:ident: $text:literal, $promise:literal;)*) => {
        /// What must hold, whatever happens.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Invariant {
            $(
                #[doc = $text]
                $name,
            )*
        }

        impl Invariant {
            /// The invariant in words.
            pub fn name(self) -> &'static str {
                match self { $(Invariant::$name => $text,)* }
            }

            /// The promise that the invariant is part of.
            pub fn promise(self) -> &'static str {
                match self { $(Invariant::$name => $promise,)* }
            }
        }
    };
}

invariants! {
    TokenGrows: "a grant's token is larger than every earlier one's", "P1";
    EffectsInOrder: "a fenced resource never applies an older grant's effect after a newer one's", "P1";
    OneHolder: "at most one grant's guards say mine", "P2";
    OneWork: "no two works are polled under one key at one instant", "P2";
    WorkEndsWithLease: "no work is polled after the lease of its guard", "P2";
    WorkIsNotCutShort: "a guarded work is dropped only when the lock is lost or its lease is over", "P3";
    NotHeldByOurselves: "never held by another when the row carries our grant", "P3";
    TakesWhatItMay: "never held or lost because of a row that the call itself would take", "P3";
    NotLostWhileOurs: "never lost while the row is ours", "P3";
    OwnRowOnly: "renew and release change no other grant's row", "P2";
    ExpiredStaysExpired: "a guard that ran out stays so until it is renewed", "P2";
    NoDelayedRelease: "a release ends no version that was asked for after it", "P2";
    LeaseNeverShrinks: "a renewal shortens neither the lease nor its end", "P2";
    NoGrantAfterRefusal: "no grant is applied for a call that ended definitively", "P5";
    NoGhostAfterRelease: "no grant is applied late over a release that was asked for after it", "P3";
    CancelledIsOurs: "that the lock was still ours is said of a cancelled transaction only if it was", "P5";
    GivenBack: "an acquire that was given up gives back what it got", "P3";
    ReleasedIsFree: "released is said only of a lock that is not held by the grant", "P5";
    UnknownHasACause: "unknown or unavailable is said only after something went wrong", "P5";
    OnceUnknown: "that nothing was applied is said only if nothing was", "P5";
    UnreadableIsLeft: "a row that is not a lock record is never taken over", "P2";
    RunEnds: "every call comes to an end", "every call";
    NoPanic: "nothing panics", "every call";
    GuardMatchesRow: "a guard stands for a grant that was applied, with its token", "P1";
    TakenOver: "a dead holder is replaced within its bound", "P4";
    ReturnsInTime: "a call returns by its budget plus one request timeout", "P4";
    CommittedOnce: "a transaction is applied once, and not after it was said not to be", "P5";
    CommittedIsSo: "what is said of a transaction is so", "P5";
    OnceIsOnce: "a work whose result is stored is not begun again, and its result stays", "idempotent work";
    DataIsKept: "the payload on the row is what was left there last", "every request";
    RowOutlivesItsLease: "a row is kept until its lease has been over for the retention", "every request";
    WellFormed: "no request is one that DynamoDB refuses whatever is on the row", "every request";
    SameSeedSameRun: "the same seed runs the same", "the simulation itself";
    SdkAgrees: "the real SDK and a DynamoDB engine give the same run", "the simulation itself";
}
