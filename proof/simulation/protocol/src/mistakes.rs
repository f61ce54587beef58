//! Known mistakes. One at a time can be switched on. A simulation that does not notice them proves nothing.
//!
//! Most are edits of the source, see `build/mistakes.rs` of this package. Mistakes that only change the expression of a
//! request are in `requests.rs`, and those of the client in the copy of lambda-lock.

use std::cell::Cell;

macro_rules! mistakes {
    ($($(#[$what:meta])* $name:ident)*) => {
        /// A mistake.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Mistake {
            $($(#[$what])* $name,)*
        }

        /// All mistakes.
        pub const ALL: &[Mistake] = &[$(Mistake::$name,)*];
    };
}

mistakes! {
    // Requests.

    /// A grant has the token of the grant before it.
    TokenNotBumped
    /// For a new row or the row of a peer, the token does not start from the clock.
    TokenNotFromTheClock
    /// A Claim also acquires released rows of the Java and the Go client, whose tokens may be stale.
    ClaimOfPeersRows
    /// A delayed Claim is applied after a release that is newer than it.
    ClaimIgnoresWhenReleased
    /// A Take does not require that the row still has the version that was seen.
    TakeOfAnyVersion
    /// A takeover leaves the mark of an earlier release on the row, so that others can acquire the lock at once.
    TakeKeepsReleased
    /// A Claim leaves the additional attributes of an earlier grant on the row.
    ClaimLeavesAttributes
    /// A takeover of a peer's row adds 1 to its token and ignores the clock.
    PeersRowWithoutMaximum
    /// A renewal requires the version that it saw last, although an earlier renewal whose response was lost has
    /// replaced it.
    RenewOnExactVersion
    /// A delayed renewal is applied over a newer one.
    RenewWithoutUpperBound
    /// A renewal does not require the token of its grant.
    RenewWithoutToken
    /// A renewal moves the end of the lease to an earlier time.
    RenewShortens
    /// A release ends any grant that is on the row.
    ReleaseUnconditional
    /// A release also ends a later grant of the same owner.
    ReleaseOnOwnerOnly
    /// A delayed release ends a lease that was renewed after it was sent.
    ReleaseOfUnseenVersions
    /// A break ends the lock whatever its version is.
    BreakOfAnyVersion
    /// A Claim is granted a frozen lock.
    ClaimIgnoresFreeze
    /// A takeover of a version that was seen is granted a frozen lock.
    TakeIgnoresFreeze
    /// A delayed freeze or thaw is applied after a newer one.
    FreezeOutOfOrder
    /// A thaw of a lock that is not frozen writes nothing, so that a freeze without a response can still be applied.
    ThawWritesNothing
    /// The holder of a frozen lock cannot reclaim it.
    FrozenFromItsHolder
    /// Stamps are counted instead of taken from the clock, so two copies of a lock write the same versions.
    CountersInsteadOfStamps
    /// A stamp is the time alone, so two copies of a lock write the same versions when their clocks agree or are behind.
    StampsWithoutRandom

    // Responses.

    /// An acquire does not recognise its own grant after the response was lost.
    NoRecognition
    /// A grant that is recognised late gets a whole lease from then on.
    RecognisedCountsFromPoll
    /// An acquire of unknown outcome does not release what it may have acquired.
    NoCleanup
    /// An acquire of unknown outcome reports that somebody else holds the lock.
    HeldAfterUnknown
    /// A renewal that is refused twice because of its own earlier writes reports that the lock is lost.
    RenewGivesUpAfterTwoRefusals
    /// A renewal of unknown outcome reports that the lock is lost.
    RenewUnknownIsLost
    /// A release of unknown outcome reports that the lock is free.
    ReleaseUnknownIsReleased

    // Clocks.

    /// A lease counts from its response instead of from before its request.
    LeaseCountsFromReceipt
    /// A grant that was written by a clock that was behind is handed out as it is.
    GrantOfAClockBehind
    /// A renewal that was written by a clock that was behind is relied on.
    RenewalOfAClockBehind
    /// A guard never expires.
    HolderIgnoresItsEnd
    /// A guard that has expired is valid again when a clock is set back.
    ExpiredGuardComesBack
    /// A holder ignores the time in which its monotonic clock stood still.
    MonotonicClockOnly
    /// A holder ignores the time by which its wall clock was set back.
    WallClockOnly
    /// The clock that a lease counts from is read after the clock that is written to the row.
    ClocksReadAfterNow
    /// Clock drift is ignored: all clocks are assumed to run at the same rate.
    NoDriftMargin
    /// Clock skew is ignored: all wall clocks are assumed to show the same time.
    NoSkewMargin
    /// A contender counts time that passed on only one of its clocks.
    ContenderUsesLargerClock
    /// A contender counts time from before it saw the version that it observes.
    SpanBeginsBeforeAnswer
    /// An observation that a caller carries also counts for another version.
    ObservationOfAnotherVersion
    /// An observation that a caller carries counts from when the version was written.
    UnvouchedTimeCounts

    // Transactions.

    /// A commit of unknown outcome is sent again as a new transaction.
    CommitSentAnew
    /// A delayed commit is applied over a newer version of the same grant.
    CommitWithoutUpperBound
    /// A fence accepts every grant.
    FenceWithoutGrant

    // Waiting in line.

    /// A Claim takes a free lock from those who wait in line for it.
    ClaimIgnoresLine
    /// A Claim takes over from a dead holder although others wait in line.
    DeadHolderIgnoresLine
    /// Who asks once is refused for as long as there is a line, even if nobody is in it any more.
    NoDesertedClause
    /// A turn that was lost to somebody who is not in line still counts when somebody in line has come since.
    LostTurnsKept
    /// A lock is deserted as soon as its release is older than the difference of the clocks.
    DesertedTooSoon
    /// A caller without a ticket takes over from a dead holder although a line was opened since it looked.
    TakeoverIgnoresLine
    /// A caller without a ticket takes a lock that a look showed to be free, although others wait in line.
    NewcomerPasses
    /// A caller keeps its ticket although the counters began again.
    LostCountersKept
    /// A ticket is given of a lock that is free, and its caller waits as behind a holder.
    JoinOnFreeRowSleeps
    /// The first in line does not take a free lock, but waits for somebody to hand it over.
    HeadWaitsForHandOver
    /// A caller whose ticket was passed waits as if others were ahead of it.
    OverdueWaits
    /// A grant by ticket does not count the ticket as served.
    GrantServesNoTicket
    /// A ticket that was passed is counted as served once more.
    ServedGoesBack
    /// Those in line pass the ones ahead of them at once.
    SkipAtOnce
    /// A free lock is left to those ahead for half a second, which is too short for one that sleeps.
    GraceTooShort
    /// The time for which a lock was held counts as time for which it was free.
    SkipCountsHeldTime
    /// A caller that finds a dead holder counts the time before its look as time for which it has left the lock to those ahead, also
    /// that of a freeze.
    TimeBeforeLookCounts
    /// The time for which a released lock was frozen counts as time in which nobody came for it.
    FrozenCountsAsDeserted
    /// A caller that has taken a ticket counts the time for which it had seen the lock free before.
    TimeBeforeTicketCounts
    /// A lock is deserted by a clock that is ahead, although others are in line.
    DesertedIgnoresSkew
    /// Who takes a lock that nobody in line came for leaves their tickets open.
    DesertedTakeServesNobody
    /// A caller that does not look at the line ends it with its grant.
    OutOfTurnEndsLine
    /// A request for a ticket that had no response makes the outcome of an acquire unknown.
    LostTicketIsUnknown
    /// Who gives up says so of all ahead of it too.
    LeavesForAllAhead
    /// A caller that sleeps between its calls gives its ticket up at the end of each.
    SleeperLeaves
    /// A holder that reclaims its own lock leaves it to those in line.
    ReclaimInLine

    // Idempotent work.

    /// A result is stored although another caller does the work by now.
    SettleUnconditional
    /// A work that has a result is done again.
    SettledIsFree

    // Several keys and places.

    /// A set writes a token that need not be larger than those on its rows.
    SetWithoutTokenClause
    /// The token of a set follows from the clock alone, so that a row whose token is ahead is never acquired.
    SetTokenFromClockAlone
    /// One key of a set is written without a condition.
    SetKeyWithoutCondition
    /// A set that is recognised after a lost response gets a whole lease from then on.
    SetCountsFromRecognition
    /// A look that does not show the grant of a set counts as proof that it was not applied.
    SetSettledByLook
    /// A commit under several locks writes only the first of them.
    CommitOfFirstLock
    /// A commit that met a conflict is sent again as a new transaction.
    CommitSentAnewAfterConflict
    /// A semaphore is reported as full after the first refusal.
    FullAfterFirstRefusal
    /// A retried task does not look for its own place.
    PlaceWithoutLook
}

/// Only the exhaustive model notices these: they are too rare for seeds.
pub const ONLY_FOR_THE_MODEL: &[Mistake] = &[Mistake::SetSettledByLook];

thread_local! {
    /// For this thread only, so that tests do not influence each other.
    static CURRENT: Cell<Option<Mistake>> = const { Cell::new(None) };
}

/// Switches this mistake on for this thread, and all others off.
pub fn set(mistake: Option<Mistake>) {
    CURRENT.set(mistake);
}

pub(crate) fn current() -> Option<Mistake> {
    CURRENT.get()
}

/// Whether this mistake is switched on.
pub fn on(mistake: Mistake) -> bool {
    CURRENT.get() == Some(mistake)
}
