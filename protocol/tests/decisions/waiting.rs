//! Acquires that wait behind a holder, and in line.

use crate::Case;
use crate::row::{Row, Wrote};
use crate::script::{BEGIN, Says};
use Says::{Applied, AppliedTo, AppliedWithoutRow, Is, NoResponse, NoRow, Refused, Throttled};
use lambda_lock_protocol::{AcquireOptions, Queueing};

use crate::acquiring::{of, options, resumes, says, with_queueing, with_ticket};
/// Behind a holder.
pub(crate) fn cases() -> Vec<Case> {
    let released = || Row::free().number("leaseEndsAt", BEGIN + 20);
    let out_of_turn = || with_queueing(Queueing::Ignored);
    let at_once = || with_queueing(Queueing::AtOnce);
    // It is dead in 6 ms, when the first response comes.
    let almost_dead = || Row::held().number("leaseEndsAt", BEGIN - 1_990).line(9, 5);
    // It has just begun.
    let new = || Row::held().number("leaseEndsAt", BEGIN + 20_000);
    let of_owner =
        |owner, token, granted| new().owner(owner).token(token).number("leaseEndsAt", BEGIN + 20_000 + granted);
    let free_in_line = || Row::free().regular().line(9, 5);
    let with_size = || new().regular().text("attributeNames", "size");
    vec![
        of(
            "waits for a release",
            out_of_turn(),
            says([Refused(Row::held()), Is(Row::held()), Is(released()), Applied]).waits(5_000),
        ),
        of(
            "waits until its time is over",
            out_of_turn(),
            says([Refused(Row::held()), Is(Row::held()), Is(Row::held())]).waits(60),
        ),
        of(
            "waits until the holder is dead, and takes it without a look",
            out_of_turn(),
            says([Refused(Row::held().number("leaseEndsAt", BEGIN - 1_990)), Applied]).waits(5_000),
        ),
        of(
            "waits until the holder is dead, and is throttled until the time is over",
            out_of_turn(),
            says([Refused(Row::held().number("leaseEndsAt", BEGIN - 1_990)), Throttled]).waits(5_000).time(60),
        ),
        of("waits for a row that is deleted", out_of_turn(), says([Refused(Row::held()), NoRow, Applied]).waits(5_000)),
        of(
            "waits for a frozen lock",
            out_of_turn(),
            says([Refused(Row::free().frozen()), Is(Row::free()), Applied]).waits(5_000),
        ),
        of(
            "takes no ticket of a lock that is frozen and free",
            at_once(),
            says([Refused(Row::free().frozen()), Is(Row::free().frozen()), Is(Row::free()), Applied]).waits(5_000),
        ),
        of(
            "takes a ticket at once",
            at_once(),
            says([Refused(new()), AppliedTo(new().line(1, 0)), Is(released().line(1, 0)), Applied]).waits(5_000),
        ),
        of(
            "takes a ticket behind a slow holder",
            options(),
            says([Refused(Row::held()), AppliedTo(Row::held().line(1, 0)), Is(released().line(1, 0)), Applied])
                .waits(5_000),
        ),
        of(
            "takes a ticket behind a holder that two looks have found",
            options(),
            says([Refused(new()), Is(new()), AppliedTo(new().line(1, 0)), Is(released().line(1, 0)), Applied])
                .waits(5_000),
        ),
        of(
            "sleeps between its calls",
            with_queueing(Queueing::BetweenCalls),
            says([Refused(Row::held()), AppliedTo(Row::held().line(3, 0))]),
        ),
        of(
            "a ticket whose response is lost",
            at_once(),
            says([Refused(new()), NoResponse, Is(released()), Applied]).waits(5_000),
        ),
        of(
            "no response, and then a holder who stays",
            out_of_turn(),
            says([NoResponse, Is(Row::held()), Is(Row::held()), Is(Row::held()), Applied]).waits(60),
        ),
        of(
            "waits, after others were faster",
            out_of_turn(),
            says([Refused(Row::free()), Refused(Row::held()), Is(Row::free()), Refused(Row::free()), Applied])
                .waits(5_000),
        ),
        of(
            "waits, and reads are throttled until the time is over",
            out_of_turn(),
            says([Refused(Row::held()), Throttled]).waits(5_000).time(50),
        ),
        of(
            "waits, and reads have no response until the time is over",
            out_of_turn(),
            says([Refused(Row::held()), NoResponse]).waits(5_000).time(50),
        ),
        of(
            "waits, while reads are throttled and have no response",
            out_of_turn(),
            says([Refused(Row::held()), Throttled, NoResponse, Is(released()), Applied]).waits(5_000),
        ),
        of(
            "waits, and the row becomes another than a lock record",
            out_of_turn(),
            says([Refused(Row::held()), Is(Row::held().text("leaseDuration", "soon"))]).waits(5_000),
        ),
        of(
            "waits for a saved lock that is frozen, and is lost",
            resumes(),
            says([Refused(Row::by(Wrote::Saved(0)).released().frozen()), Is(Row::free())]).waits(5_000),
        ),
        of(
            "waits out of turn with a ticket",
            AcquireOptions { queueing: Queueing::Ignored, ..with_ticket(6) },
            says([Refused(new().regular().line(6, 5)), Is(released().regular().line(6, 5)), Applied]).waits(5_000),
        ),
        of(
            "a ticket without a response makes no outcome unknown",
            at_once(),
            says([Refused(new()), NoResponse, Is(new()), Is(new())]).waits(35),
        ),
        of(
            "the first in line, behind a holder with attributes",
            at_once(),
            says([Refused(with_size()), AppliedTo(with_size().line(6, 5)), Is(released().line(6, 5)), Applied])
                .waits(5_000),
        ),
        of(
            "waits among many",
            out_of_turn(),
            says([
                Refused(of_owner("a", 7, 0)),
                Is(of_owner("b", 8, 30)),
                Is(of_owner("c", 9, 80)),
                Is(of_owner("d", 10, 150)),
                Is(released()),
                Applied,
            ])
            .waits(5_000),
        ),
        of(
            "waits for half a millisecond",
            out_of_turn(),
            says([Refused(new()), Is(new()), Is(new()), Is(new())]).waits(160),
        ),
        of(
            "waits by a wall clock that is set forward",
            out_of_turn(),
            says([Refused(Row::by(Wrote::Peer)), Is(Row::by(Wrote::Peer))]).waits(30).jumps(60_000),
        ),
        of(
            "behind the one ahead, once the lock is thawed",
            with_ticket(7),
            says([Refused(free_in_line().frozen()), Is(free_in_line()), Is(free_in_line()), Applied]).waits(5_000),
        ),
        of(
            "takes no ticket when the time is over",
            at_once(),
            says([Refused(Row::free()), Refused(new())]).waits(5_000).time(10),
        ),
        of("takes no ticket for so short a wait", at_once(), says([Refused(new()), Is(new())]).waits(29)),
        of(
            "behind the one ahead, once the holder is dead",
            with_ticket(7),
            says([Refused(almost_dead()), Is(almost_dead()), Applied]).waits(5_000),
        ),
        of(
            "takes no ticket of a peer's row",
            at_once(),
            says([Refused(Row::by(Wrote::Peer)), Is(Row::by(Wrote::Peer).released()), Applied]).waits(5_000),
        ),
        of(
            "takes a ticket, and the response shows no row",
            at_once(),
            says([Refused(new()), AppliedWithoutRow, Is(released()), Applied]).waits(5_000),
        ),
        of(
            "a ticket of a row that is deleted",
            at_once(),
            says([Refused(new()), AppliedTo(new().line(1, 0)), NoRow, Applied]).waits(5_000),
        ),
        of(
            "a ticket that was passed",
            at_once(),
            says([Refused(new()), AppliedTo(new().line(1, 0)), Is(released().line(2, 2)), Applied]).waits(5_000),
        ),
        of(
            "the first in line, behind holders of regular times",
            at_once(),
            says([Refused(new().regular()), AppliedTo(new().regular().line(6, 5)), Applied]).waits(5_000),
        ),
        of(
            "the first in line, behind a late holder",
            at_once(),
            says([
                Refused(new().regular()),
                AppliedTo(new().regular().line(6, 5)),
                Refused(new().regular().line(6, 5)),
                Applied,
            ])
            .waits(5_000),
        ),
        of(
            "behind others in line",
            at_once(),
            says([
                Refused(new().regular()),
                AppliedTo(new().regular().line(7, 5)),
                Is(released().regular().line(7, 5)),
                Is(released().regular().line(7, 5)),
                Applied,
            ])
            .waits(5_000),
        ),
    ]
}
