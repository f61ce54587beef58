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
    OneHolder: "the guards of at most one grant are valid at a time", "P2";
    OneWork: "two works of one key are never polled at the same instant", "P2";
    WorkEndsWithLease: "no work is polled after the lease of its guard", "P2";
    WorkIsNotCutShort: "a guarded work is dropped only when the lock is lost or its lease is over", "P3";
    NotHeldByOurselves: "a call does not report another holder while the row has its own grant", "P3";
    TakesWhatItMay: "a call does not report held or lost because of a row that it may acquire", "P3";
    NotLostWhileOurs: "a call does not report lost while the row has its grant", "P3";
    OwnRowOnly: "a renewal or release does not change the row of another grant", "P2";
    ExpiredStaysExpired: "an expired guard stays expired until it is renewed", "P2";
    NoDelayedRelease: "a release does not end a version that was requested later", "P2";
    LeaseNeverShrinks: "a renewal does not shorten the lease or move its end back", "P2";
    NoGrantAfterRefusal: "no grant is applied for a call that ended definitively", "P5";
    NoGhostAfterRelease: "a late grant is not applied over a release that was requested after it", "P3";
    CancelledIsOurs: "a cancelled transaction is reported only if the lock was still held", "P5";
    GivenBack: "an acquire that fails releases what it acquired", "P3";
    ReleasedIsFree: "released is reported only if the grant does not hold the lock", "P5";
    UnknownHasACause: "unknown or unavailable is reported only after a fault", "P5";
    OnceUnknown: "a call reports that nothing was applied only if that is so", "P5";
    UnreadableIsLeft: "a row that is not a lock record is never taken over", "P2";
    FrozenIsNobodys: "a frozen lock is granted to nobody but its holder", "frozen locks";
    FreezeStays: "nothing but a freeze or a thaw changes whether a lock is frozen", "frozen locks";
    FreezesInOrder: "no freeze or thaw is applied after a later one", "frozen locks";
    RunEnds: "every call ends", "every call";
    NoPanic: "nothing panics", "every call";
    GuardMatchesRow: "every guard belongs to a grant that was applied, with its token", "P1";
    InTurn: "a grant passes nobody in line before it was left to them", "P8";
    ComesInTurn: "who is shown a free lock in its turn asks for it next", "P8";
    LineEnds: "a line that nobody came for does not outlive the next grant that ends it", "P8";
    TicketsInOrder: "counters of tickets never fall, and only tickets that were given are served", "P8";
    TakenOver: "a dead holder is replaced within its bound", "P4";
    ReturnsInTime: "a call returns by its budget plus one request timeout", "P4";
    CommittedOnce: "a transaction is applied once, and never after it was reported as not applied", "P5";
    CommittedIsSo: "the reported outcome of a transaction is correct", "P5";
    Whole: "a set is granted whole, with one token", "sets";
    OnePlacePerCall: "a call gets one place, of those that it asked for", "semaphores";
    NoFalseFull: "full is reported only if each place was held during the call", "semaphores";
    OnceIsOnce: "work with a stored result is not started again, and its result stays", "idempotent work";
    DataIsKept: "the payload on the row is the one that was written last", "every request";
    AttributesOfTheGrant: "a row has the additional attributes of its grant, and no others", "every request";
    RowOutlivesItsLease: "a row is kept until its lease has been over for the retention", "every request";
    WellFormed: "no request is invalid whatever is on the row", "every request";
    SameSeedSameRun: "the same seed runs the same", "the simulation itself";
    SdkAgrees: "the real SDK and a DynamoDB engine give the same run", "the simulation itself";
}
