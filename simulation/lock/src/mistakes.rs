//! Known mistakes, to be switched on one at a time: a simulation that does not notice them proves nothing.
//!
//! Most are edits of the source, in `build/mistakes.rs` of this package. Those that only change what a request asks of
//! DynamoDB are in `requests.rs`.

use std::cell::Cell;

macro_rules! mistakes {
    ($($(#[$what:meta])* $name:ident)*) => {
        /// A mistake.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Mistake {
            $($(#[$what])* $name,)*
        }

        /// All of them.
        pub const ALL: &[Mistake] = &[$(Mistake::$name,)*];
    };
}

mistakes! {
    // What a request says.

    /// A grant has the token of the grant before it.
    TokenNotBumped
    /// The token of a row that is new or a peer's does not start from the clock.
    TokenNotFromTheClock
    /// A Claim also takes released rows of the Java and the Go client, whose tokens may be stale.
    ClaimOfPeersRows
    /// A delayed Claim is applied after a release that is newer than it.
    ClaimIgnoresWhenReleased
    /// A takeover does not ask whether the row still has the version that was seen.
    TakeOfAnyVersion
    /// A takeover leaves the mark of an earlier release on the row, so that others take the lock for free.
    TakeKeepsReleased
    /// A takeover of a peer's row counts on from its token, and ignores the clock.
    PeersRowWithoutMaximum
    /// A renewal asks for the version that it saw last, although a renewal whose answer was lost has replaced it.
    RenewOnExactVersion
    /// A delayed renewal is applied over a newer one.
    RenewWithoutUpperBound
    /// A renewal does not ask for the token of its grant.
    RenewWithoutToken
    /// A renewal brings the end of the lease forward.
    RenewShortens
    /// A release ends whatever grant is on the row.
    ReleaseUnconditional
    /// A release ends a later grant of the same owner too.
    ReleaseOnOwnerOnly
    /// A delayed release ends a lease that was renewed after it was sent.
    ReleaseOfUnseenVersions
    /// Versions of a grant are counted, and two copies of a lock write the same ones.
    CountersInsteadOfStamps

    // What an answer means.

    /// An acquire takes its own grant, whose answer was lost, for somebody else's.
    NoRecognition
    /// A grant that is recognised late lasts a whole lease from then on.
    RecognisedCountsFromPoll
    /// An acquire of unknown outcome does not release what it may have got.
    NoCleanup
    /// An acquire of unknown outcome says that somebody else holds the lock.
    HeldAfterUnknown
    /// A renewal that is refused twice by its own earlier writes says that the lock is lost.
    RenewGivesUpAfterTwoRefusals
    /// A renewal of unknown outcome says that the lock is lost.
    RenewUnknownIsLost
    /// A release of unknown outcome says that the lock is free.
    ReleaseUnknownIsReleased

    // Clocks.

    /// A lease counts from its answer instead of from before its request.
    LeaseCountsFromReceipt
    /// A grant that was written by a clock that was behind is handed out as it is.
    GrantOfAClockBehind
    /// A renewal that was written by a clock that was behind is relied on.
    RenewalOfAClockBehind
    /// A guard never runs out.
    HolderIgnoresItsEnd
    /// A guard that ran out says "mine" again when a clock is set back.
    ExpiredGuardComesBack
    /// A holder does not see time in which the monotonic clock stood still.
    MonotonicClockOnly
    /// A holder does not see time by which the wall clock was set back.
    WallClockOnly
    /// The clock that a lease counts from is read after the one that is written on the row.
    ClocksReadAfterNow
    /// Clocks are taken to run at the same rate.
    NoDriftMargin
    /// Wall clocks are taken to agree.
    NoSkewMargin
    /// A contender counts time that passed on one of its clocks only.
    ContenderUsesLargerClock
    /// A contender counts time from before it saw the version that it watches.
    SpanBeginsBeforeAnswer
    /// An observation that a caller carries counts for another version too.
    ObservationOfAnotherVersion
    /// An observation that a caller carries counts from when the version was written.
    UnvouchedTimeCounts

    // Transactions.

    /// A commit of unknown outcome is sent again as a new transaction.
    CommitSentAnew
    /// A delayed commit is applied over a newer version of its grant.
    CommitWithoutUpperBound
    /// A fence lets every grant through.
    FenceWithoutGrant

    // Idempotent work.

    /// A result is stored although the work is another caller's by now.
    SettleUnconditional
    /// A work that has a result is done again.
    SettledIsFree
}

thread_local! {
    /// Of this thread alone, so that tests do not disturb each other.
    static CURRENT: Cell<Option<Mistake>> = const { Cell::new(None) };
}

/// Makes this mistake, and no other one, on this thread from now on.
pub fn set(mistake: Option<Mistake>) {
    CURRENT.set(mistake);
}

pub(crate) fn current() -> Option<Mistake> {
    CURRENT.get()
}

pub(crate) fn on(mistake: Mistake) -> bool {
    CURRENT.get() == Some(mistake)
}
