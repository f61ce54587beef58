//! Acquires that wait behind a holder, and in line.

use crate::Case;
use crate::row::{Row, Wrote};
use crate::script::{BEGIN, Says};
use Says::{Applied, AppliedTo, AppliedWithoutRow, Is, NoResponse, NoRow, Refused, Throttled};
use lambda_lock_protocol::{AcquireOptions, Queueing};

use crate::acquiring::{has_lost, has_observed, of, options, resumes, says, with_queueing, with_ticket};

/// So many looks show this row.
fn looks(number: usize, row: Row) -> impl Iterator<Item = Says> {
    std::iter::repeat_n(Is(row), number)
}

/// Behind a holder.
pub(crate) fn cases() -> Vec<Case> {
    let dead = || Row::held().dead();
    // It has been dead for a second.
    let dies = || Row::held().number("leaseEndsAt", BEGIN - 3_000);
    let released = || Row::free().number("leaseEndsAt", BEGIN + 20);
    let out_of_turn = || with_queueing(Queueing::Ignored);
    let at_once = || with_queueing(Queueing::AtOnce);
    // It is dead in 6 ms, when the first response comes.
    let almost_dead = || Row::held().number("leaseEndsAt", BEGIN - 1_990).line(9, 5);
    // It has just begun.
    let new = || Row::held().number("leaseEndsAt", BEGIN + 20_000);
    let of_token = |token| new().token(token);
    let free_in_line = || Row::free().line(9, 5);
    let with_size = || new().text("attributeNames", "size");
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
            "takes a ticket behind a holder that two looks have shown",
            options(),
            says([Refused(new()), Is(new()), AppliedTo(new().line(1, 0)), Is(released().line(1, 0)), Applied])
                .waits(5_000),
        ),
        of(
            "takes no ticket at the first look behind a holder that an earlier call has seen",
            has_observed(&new(), 0),
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
            says([Refused(new().line(6, 5)), Is(released().line(6, 5)), Applied]).waits(5_000),
        ),
        of(
            "a ticket without a response makes no outcome unknown",
            at_once(),
            says([Refused(new()), NoResponse, Is(new())]).waits(5_000).time(12),
        ),
        of(
            "the first in line, behind a holder with attributes",
            at_once(),
            says([Refused(with_size()), AppliedTo(with_size().line(6, 5)), Is(released().line(6, 5)), Applied])
                .waits(5_000),
        ),
        of(
            "takes a ticket after a second, however short the turns are",
            options(),
            says(
                (0..9)
                    .map(|turn| of_token(7 + turn))
                    .map(Is)
                    .chain([AppliedTo(of_token(16).line(1, 0)), Is(released().line(1, 0)), Applied])
                    .enumerate()
                    .map(|(number, says)| match says {
                        Is(row) if number == 0 => Refused(row),
                        says => says,
                    }),
            )
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
            says([Is(free_in_line().frozen())].into_iter().chain(looks(12, free_in_line())).chain([Applied]))
                .waits(5_000),
        ),
        of(
            "takes no ticket when the time is over",
            at_once(),
            says([Refused(Row::free()), Refused(new())]).waits(5_000).time(10),
        ),
        of("takes no ticket for so short a wait", at_once(), says([Refused(new()), Is(new())]).waits(29)),
        of(
            "takes no ticket with less than a second left",
            at_once(),
            says([Refused(new()), Is(new()), Is(released()), Applied]).waits(1_004),
        ),
        of(
            "takes a ticket with a second left",
            at_once(),
            says([Refused(new()), AppliedTo(new().line(1, 0)), Is(released().line(1, 0)), Applied]).waits(1_005),
        ),
        of(
            "behind the one ahead, once the holder is dead",
            with_ticket(7),
            says([Is(almost_dead())].into_iter().chain(looks(12, almost_dead())).chain([Applied])).waits(5_000),
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
            "the first in line, behind a holder who stays",
            at_once(),
            says(
                [Refused(new()), AppliedTo(new().line(6, 5))]
                    .into_iter()
                    .chain(looks(10, new().line(6, 5)))
                    .chain([Is(released().line(6, 5)), Applied]),
            )
            .waits(5_000),
        ),
        of(
            "behind others in line, who are granted the lock",
            at_once(),
            says([
                Refused(new()),
                AppliedTo(new().line(9, 5)),
                Is(new().line(9, 5)),
                Is(new().token(8).line(9, 6)),
                Is(new().token(9).line(9, 7)),
                Is(new().token(10).line(9, 8)),
                Is(released().line(9, 8)),
                Applied,
            ])
            .waits(5_000),
        ),
        of(
            "behind one in line, who does not come",
            at_once(),
            says(
                [Refused(new()), AppliedTo(new().line(7, 5))]
                    .into_iter()
                    .chain(looks(12, released().line(7, 5)))
                    .chain([Applied]),
            )
            .waits(5_000),
        ),
        of(
            "behind one in line, though nobody has come for long by the wall clock",
            at_once(),
            says(
                [Refused(new()), AppliedTo(new().line(7, 5))]
                    .into_iter()
                    .chain(looks(12, released().number("leaseEndsAt", 1_000).line(7, 5)))
                    .chain([Applied]),
            )
            .waits(5_000),
        ),
        of(
            "behind one in line, with a ticket of its own for the one of an earlier call, though nobody has come for long",
            with_ticket(4),
            says(
                [Is(new().line(6, 5)), AppliedTo(new().line(7, 5))]
                    .into_iter()
                    .chain(looks(12, released().number("leaseEndsAt", 1_000).line(7, 5)))
                    .chain([Applied]),
            )
            .waits(5_000),
        ),
        of(
            "behind one in line, who does not come, while others out of turn have the lock",
            at_once(),
            says(
                [Refused(new()), AppliedTo(new().line(7, 5))]
                    .into_iter()
                    .chain((8..12).flat_map(|token| {
                        [Is(released().token(token).line(7, 5)), Is(new().token(token + 1).line(7, 5))]
                    }))
                    .chain(looks(2, released().token(12).line(7, 5)))
                    .chain([Applied]),
            )
            .waits(5_000),
        ),
        of(
            "behind two in line, who do not come, after others out of turn had the lock six times between its calls",
            has_lost(5, "another version"),
            says([Is(Row::free().token(8).line(8, 5)), Applied]),
        ),
        of(
            "behind two in line, who do not come, after others out of turn had the lock four times between its calls",
            has_lost(3, "another version"),
            says([Is(Row::free().token(8).line(8, 5))]),
        ),
        of(
            "behind two in line, who do not come, after others out of turn had the lock five times before it was left to them",
            has_lost(5, &Row::free().token(8).version(&[])),
            says([Is(Row::free().token(8).line(8, 5))]),
        ),
        of(
            "behind two in line, who do not come, after others out of turn had the lock in a line that is over",
            has_lost(5, "another version"),
            says(
                [Is(new()), AppliedTo(new().line(8, 5))]
                    .into_iter()
                    .chain(looks(10, released().line(8, 5)))
                    .chain([Applied]),
            )
            .waits(8_000),
        ),
        of(
            "behind two in line, one of whom has come since others out of turn had the lock six times",
            has_lost(5, "another version"),
            says([Is(Row::free().token(8).line(8, 6))]),
        ),
        of(
            "behind one in line, who does not come, after another has come for whom others had the lock",
            at_once(),
            says(
                [Refused(new().line(7, 5)), AppliedTo(new().line(8, 5))]
                    .into_iter()
                    .chain((8..12).flat_map(|token| {
                        [Is(released().token(token).line(8, 5)), Is(new().token(token + 1).line(8, 5))]
                    }))
                    .chain([Is(new().token(13).line(8, 6))])
                    .chain(looks(7, released().token(13).line(8, 6)))
                    .chain([Applied]),
            )
            .waits(8_000),
        ),
        of(
            "behind one in line, who does not come, while others out of turn have the lock and die",
            at_once(),
            says(
                [Refused(new()), AppliedTo(new().line(7, 5))]
                    .into_iter()
                    .chain((8..12).flat_map(|token| {
                        [Is(Row::held().dead().token(token).line(7, 5)), Is(new().token(token + 1).line(7, 5))]
                    }))
                    .chain(looks(1, Row::held().dead().token(12).line(7, 5)))
                    .chain([Applied]),
            )
            .waits(5_000),
        ),
        of(
            "behind two in line, who do not come, after others were faster when nobody was in line",
            at_once(),
            says(
                (7..11)
                    .map(|token| Refused(released().token(token).line(5, 5)))
                    .chain([Refused(new().token(11).line(7, 5)), AppliedTo(new().token(11).line(8, 5))])
                    .chain(looks(10, released().token(11).line(8, 5)))
                    .chain([Applied]),
            )
            .waits(8_000),
        ),
        of(
            "behind one in line, who does not come, after others had the lock that was frozen and thawed",
            at_once(),
            says(
                [Refused(new()), AppliedTo(new().line(7, 5))]
                    .into_iter()
                    .chain((8..12).flat_map(|token| {
                        [Is(released().token(token).line(7, 5).frozen()), Is(new().token(token + 1).line(7, 5))]
                    }))
                    .chain(looks(7, released().token(12).line(7, 5)))
                    .chain([Applied]),
            )
            .waits(8_000),
        ),
        of(
            "behind four in line, none of whom comes",
            at_once(),
            says(
                [Refused(new()), AppliedTo(new().line(10, 5))]
                    .into_iter()
                    .chain(looks(5, released().line(10, 5)))
                    .chain([Applied]),
            )
            .waits(9_000),
        ),
        of(
            "behind three in line, none of whom comes",
            at_once(),
            says(
                [Refused(new()), AppliedTo(new().line(9, 5))]
                    .into_iter()
                    .chain(looks(11, released().line(9, 5)))
                    .chain([Applied]),
            )
            .waits(9_000),
        ),
        of(
            "behind one in line, who does not come for the lock of a dead holder",
            at_once(),
            says(
                [Refused(dies().line(6, 5)), AppliedTo(dies().line(7, 5))]
                    .into_iter()
                    .chain(looks(12, dies().line(7, 5)))
                    .chain([Applied]),
            )
            .waits(5_000),
        ),
        of(
            "behind one in line, who does not come, while the lock is frozen and thawed between two looks",
            at_once(),
            says(
                [Refused(new()), AppliedTo(new().line(7, 5))]
                    .into_iter()
                    .chain(looks(3, released().line(7, 5)))
                    .chain(looks(10, released().line(7, 5).number("freezeChangedAt", BEGIN)))
                    .chain([Applied]),
            )
            .waits(5_000),
        ),
        of(
            "behind one in line, who does not come, while the free lock is frozen and thawed again and again",
            at_once(),
            says(
                [Refused(new()), AppliedTo(new().line(7, 5))]
                    .into_iter()
                    .chain((0..3).flat_map(|_| [Is(released().line(7, 5)), Is(released().line(7, 5).frozen())]))
                    .chain(looks(8, released().line(7, 5)))
                    .chain([Applied]),
            )
            .waits(8_000),
        ),
        of(
            "in line, while a peer had the lock",
            at_once(),
            says([
                Refused(new()),
                AppliedTo(new().line(7, 5)),
                Is(Row::by(Wrote::Peer)),
                Is(new().token(9).line(7, 6)),
                Is(released().token(9).line(7, 6)),
                Applied,
            ])
            .waits(5_000),
        ),
        of(
            "behind one in line, who does not come for a free lock",
            with_queueing(Queueing::BehindSlowHolders),
            says(
                [Refused(released().line(6, 5)), Is(released().line(6, 5)), AppliedTo(released().line(7, 5))]
                    .into_iter()
                    .chain(looks(12, released().line(7, 5)))
                    .chain([Applied]),
            )
            .waits(5_000),
        ),
        of(
            "behind one in line, who does not come after a thaw, of a dead holder",
            at_once(),
            says(
                [Refused(new()), AppliedTo(new().line(7, 5))]
                    .into_iter()
                    .chain(looks(3, dead().line(7, 5).frozen()))
                    .chain(looks(9, dead().line(7, 5).number("freezeChangedAt", BEGIN)))
                    .chain([Applied]),
            )
            .waits(8_000),
        ),
        of(
            "behind others in line, who have given up",
            at_once(),
            says([
                Refused(new()),
                AppliedTo(new().line(9, 5).left(&[6, 8])),
                Is(released().line(9, 5).left(&[6, 7, 8])),
                Applied,
            ])
            .waits(5_000),
        ),
    ]
}

/// So many looks does a caller with one ahead need in little more than a second.
const LOOKS: usize = 9;

/// Callers in line whose time is over.
pub(crate) fn leaving() -> Vec<Case> {
    let at_once = || with_queueing(Queueing::AtOnce);
    let held = || Row::held().number("leaseEndsAt", BEGIN + 20_000);
    let in_line = |left: Option<u64>| {
        let row = held().line(7, 5);
        left.map_or(row.clone(), |left| row.left(&[left]))
    };
    let waits = |looks: &[Row], says_then: Vec<Says>| {
        let looks = looks.iter().cloned().map(Is);
        says([Refused(held()), AppliedTo(in_line(None))].into_iter().chain(looks).chain(says_then)).waits(1_200)
    };
    let looks = |last: Row| [vec![in_line(None); LOOKS], vec![last]].concat();
    vec![
        of("gives up its place in line", at_once(), waits(&looks(in_line(None)), vec![Applied])),
        of("gives up its place beside another", at_once(), waits(&looks(in_line(Some(6))), vec![Applied])),
        of(
            "gives up its place, where the list has no room",
            at_once(),
            waits(&looks(in_line(None)), vec![Refused(in_line(Some(6)))]),
        ),
        of("gives up its place, and is throttled", at_once(), waits(&looks(in_line(None)), vec![Throttled])),
        of("gives up its place, and has no response", at_once(), waits(&looks(in_line(None)), vec![NoResponse])),
        of(
            "gives up its place, and was passed meanwhile",
            at_once(),
            waits(&looks(in_line(None)), vec![Refused(held().line(8, 8))]),
        ),
        of("was passed, and has nothing to give up", at_once(), waits(&looks(held().line(8, 8)), vec![])),
        of(
            "keeps its place between its calls",
            with_queueing(Queueing::BetweenCalls),
            waits(&looks(in_line(None)), vec![]),
        ),
    ]
}
