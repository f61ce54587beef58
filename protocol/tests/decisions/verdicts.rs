//! Who may take a row, and when: each verdict of `acquire/verdict.rs`.

use crate::Case;
use crate::acquiring::{has_observed, of, options, resumes, says, with, with_queueing, with_reclaim, with_ticket};
use crate::row::{Row, Wrote};
use crate::script::{BEGIN, Says};
use Says::{Applied, Is, NoRow, Refused, RefusedWithoutRow};
use lambda_lock_protocol::{
    AcquireOptions, Attribute, AttributesChange, ClockBounds, DataChange, Queueing, Reclaim, Settings,
};

/// One row, to which the first write of a caller without time to wait is refused. Each verdict of `acquire/verdict.rs` is here.
pub(crate) fn cases() -> Vec<Case> {
    let same_owner = || with_reclaim(Reclaim::SameOwner);
    let out_of_turn = || with_queueing(Queueing::Ignored);
    let mine = || Row::held().owner("me");
    let peer = || Row::by(Wrote::Peer);
    let no_skew = || Settings { clock_bounds: ClockBounds::default().with_max_clock_skew(None), ..Settings::default() };
    let with_attributes = || AcquireOptions {
        attributes: AttributesChange::Replace(vec![("color".to_owned(), Attribute::Text("red".to_owned()))]),
        ..options()
    };
    let with_data =
        || AcquireOptions { data: DataChange::Set(vec![1]), workflow: Some("arn:1".to_owned()), ..options() };
    vec![
        // The row was not seen.
        of("nobody has it", options(), says([Applied])),
        of("a caller that does not look at the line", out_of_turn(), says([Applied])),
        with("a caller that does not use its wall clock", no_skew(), options(), says([Applied])),
        of("a wall clock that is not trusted", options(), says([Applied]).distrusts_the_wall_clock()),
        of("a saved lock", resumes(), says([Applied])),
        of("a ticket of an earlier call", with_ticket(6), says([Is(Row::free().line(9, 5)), Applied])),
        of(
            "a ticket of a caller that does not look at the line",
            AcquireOptions { queueing: Queueing::Ignored, ..with_ticket(5) },
            says([Applied]),
        ),
        of("a clock that writes later times", options(), says([Applied]).writes_later()),
        of("with data, for a workflow", with_data(), says([Refused(Row::held().dead()), Applied])),
        of("with other attributes than the row may have", with_attributes(), says([Applied])),
        // It is held.
        of("held", options(), says([Refused(Row::held())])),
        of("held by the same owner", options(), says([Refused(mine())])),
        of("held by the same owner, who reclaims it", same_owner(), says([Refused(mine()), Applied])),
        of("held by another owner, and reclaimed by the same one", same_owner(), says([Refused(Row::held())])),
        of(
            "held by a peer of the same name, and reclaimed",
            same_owner(),
            says([Refused(Row::by(Wrote::Peer).owner("me"))]),
        ),
        of("held by a peer, whose end means nothing", options(), says([Refused(peer().dead())])),
        of("held by a peer, whose tickets mean nothing", options(), says([Refused(peer().line(9, 5))])),
        of(
            "held, with attributes",
            options(),
            says([Refused(Row::held().text("attributeNames", "size").number("size", 5))]),
        ),
        of(
            "held, where others wait, and reclaimed by its owner",
            same_owner(),
            says([Refused(mine().line(9, 5)), Applied]),
        ),
        of("held by a later copy of the saved lock", resumes(), says([Refused(Row::by(Wrote::Saved(50))), Applied])),
        of("held by a later grant of the owner who has saved it", resumes(), says([Refused(mine()), Applied])),
        of("held by another than who has saved it", resumes(), says([Refused(Row::held())])),
        of("free since another than who has saved it", resumes(), says([Refused(Row::free())])),
        of("a saved lock whose row is gone", resumes(), says([RefusedWithoutRow, NoRow])),
        of("a saved lock that was released", resumes(), says([Refused(Row::by(Wrote::Saved(0)).released()), Applied])),
        of(
            "a saved lock that was released, and left to a line",
            resumes(),
            says([Refused(Row::by(Wrote::Saved(0)).released().line(9, 5)), Applied]),
        ),
        of(
            "a saved lock that its owner has released under a later grant",
            resumes(),
            says([Refused(mine().released().line(9, 5)), Applied]),
        ),
        // Its holder is dead.
        of("dead by the wall clock", options(), says([Refused(Row::held().dead()), Applied])),
        of(
            "dead by a wall clock that is not trusted",
            options(),
            says([Refused(Row::held().dead())]).distrusts_the_wall_clock(),
        ),
        with(
            "dead by the wall clock, which this caller does not use",
            no_skew(),
            options(),
            says([Refused(Row::held().dead())]),
        ),
        of(
            "ended 2 s ago, which clocks may differ by",
            options(),
            says([Refused(Row::held().number("leaseEndsAt", BEGIN - 1_995))]),
        ),
        of(
            "ended more than 2 s ago",
            options(),
            says([Refused(Row::held().number("leaseEndsAt", BEGIN - 1_996)), Applied]),
        ),
        of(
            "dead by observation",
            has_observed(&Row::held(), 21_000),
            says([Refused(Row::held()), Applied]).distrusts_the_wall_clock(),
        ),
        of(
            "dead by observation, though not by the wall clock",
            has_observed(&Row::held(), 21_000),
            says([Refused(Row::held()), Applied]),
        ),
        of("dead by observation, of a peer", has_observed(&peer(), 21_000), says([Refused(peer()), Applied])),
        of(
            "dead, and then renewed",
            options(),
            says([Refused(Row::held().dead()), Refused(Row::by(Wrote::Theirs(50)))]),
        ),
        of(
            "held by a peer, whose line means nothing",
            has_observed(&peer(), 21_000),
            says([Refused(peer().line(9, 5)), Applied]),
        ),
        of(
            "observed for a lease, without the drift of clocks",
            has_observed(&Row::held(), 20_999),
            says([Refused(Row::held())]).distrusts_the_wall_clock(),
        ),
        of(
            "observed, and its lease is longer by now",
            has_observed(&Row::held(), 41_999),
            says([Refused(Row::held().text("leaseDuration", "40000"))]).distrusts_the_wall_clock(),
        ),
        of(
            "observed for its lease, which is longer by now",
            has_observed(&Row::held(), 42_000),
            says([Refused(Row::held().text("leaseDuration", "40000")), Applied]).distrusts_the_wall_clock(),
        ),
        of(
            "held by a peer, by a response that took longer than its lease",
            options(),
            says([Refused(peer().text("leaseDuration", "2000"))]).takes(5_000),
        ),
        of(
            "observed, and renewed since",
            has_observed(&Row::held(), 60_000),
            says([Refused(Row::by(Wrote::Theirs(9_000)))]).distrusts_the_wall_clock(),
        ),
        of(
            "dead, while others wait",
            options(),
            says([Refused(Row::held().number("leaseEndsAt", BEGIN - 3_000).line(9, 5))]),
        ),
        of(
            "dead for long, while others wait",
            options(),
            says([Refused(Row::held().number("leaseEndsAt", 1_000).line(9, 5)), Applied]),
        ),
        of(
            "dead for as long as it is left to a line",
            options(),
            says([Refused(Row::held().number("leaseEndsAt", BEGIN - 5_496).line(9, 5)), Applied]),
        ),
        of(
            "dead for almost as long as it is left to a line",
            options(),
            says([Refused(Row::held().number("leaseEndsAt", BEGIN - 5_495).line(9, 5))]),
        ),
        of(
            "dead by observation, while others wait",
            has_observed(&Row::held(), 60_000),
            says([Refused(Row::held().line(9, 5))]).distrusts_the_wall_clock(),
        ),
        of(
            "dead for long, and thawed for almost as long as it is left to a line",
            options(),
            says([Refused(Row::held().dead().line(9, 5).number("freezeChangedAt", BEGIN - 5_495))]),
        ),
        of(
            "dead for long, and thawed for as long as it is left to a line",
            options(),
            says([Refused(Row::held().dead().line(9, 5).number("freezeChangedAt", BEGIN - 5_496)), Applied]),
        ),
        of("dead, and the turn of this ticket", with_ticket(6), says([Is(Row::held().dead().line(9, 5)), Applied])),
        of(
            "dead, and the turn of one ahead",
            with_ticket(7),
            says([Is(Row::held().number("leaseEndsAt", BEGIN - 5_495).line(9, 5))]),
        ),
        of(
            "dead for longer than it is left to the one ahead",
            with_ticket(7),
            says([Is(Row::held().number("leaseEndsAt", BEGIN - 5_496).line(9, 5)), Applied]),
        ),
        of("dead, and this ticket was passed", with_ticket(5), says([Is(Row::held().dead().line(9, 6)), Applied])),
        of("dead, and nobody is in line any more", options(), says([Refused(Row::held().dead().line(9, 9)), Applied])),
        of(
            "dead, while others wait, out of turn",
            out_of_turn(),
            says([Refused(Row::held().dead().line(9, 5)), Applied]),
        ),
        // It is free.
        of("free", options(), says([Refused(Row::free()), Applied])),
        of("free, out of turn", out_of_turn(), says([Refused(Row::free()), Applied])),
        of(
            "free, by a clock that is ahead",
            options(),
            says([Refused(Row::free().number("leaseEndsAt", BEGIN + 500)), Applied]),
        ),
        of(
            "free from this millisecond on",
            options(),
            says([Refused(Row::free().number("leaseEndsAt", BEGIN + 5)), Applied]),
        ),
        of(
            "free from the next millisecond on",
            options(),
            says([Refused(Row::free().number("leaseEndsAt", BEGIN + 6)), Applied]),
        ),
        of(
            "free from the next millisecond on, by a clock that writes later times",
            options(),
            says([Refused(Row::free().number("leaseEndsAt", BEGIN + 6)), Applied]).writes_later(),
        ),
        of(
            "free, of a peer, by a clock that writes later times",
            options(),
            says([Refused(peer().released()), Applied]).writes_later(),
        ),
        of("free, without an end", options(), says([Refused(Row::free().without("leaseEndsAt")), Applied])),
        of("free, by the owner that reclaims it", same_owner(), says([Refused(mine().released()), Applied])),
        of(
            "free, with attributes, by the owner that reclaims it",
            same_owner(),
            says([Refused(mine().released().text("attributeNames", "size")), Applied]),
        ),
        of(
            "free, by the owner that reclaims it, while others wait",
            same_owner(),
            says([Refused(mine().released().line(9, 5))]),
        ),
        of(
            "free, of a peer without a token",
            options(),
            says([Refused(peer().released().without("fencingToken")), Applied]),
        ),
        of("free, of a peer", options(), says([Refused(Row::by(Wrote::Peer).released()), Applied])),
        of(
            "free, of a peer with a large token",
            options(),
            says([Refused(Row::by(Wrote::Peer).released().token(BEGIN + 900)), Applied]),
        ),
        of(
            "free, with attributes of an earlier grant",
            options(),
            says([Refused(Row::free().text("attributeNames", "size")), Applied]),
        ),
        of(
            "free, with other attributes than this grant's",
            with_attributes(),
            says([Refused(Row::free().text("attributeNames", "size")), Applied]),
        ),
        of(
            "free, with the attributes of this grant",
            with_attributes(),
            says([Refused(Row::free().text("attributeNames", "color")), Applied]),
        ),
        of(
            "free, and the attributes stay",
            AcquireOptions { attributes: AttributesChange::Keep, ..options() },
            says([Refused(Row::free().text("attributeNames", "size")), Applied]),
        ),
        of("free, while others wait", options(), says([Refused(Row::free().line(9, 5))])),
        of(
            "free for long, while others wait",
            options(),
            says([Refused(Row::free().number("leaseEndsAt", 1_000).line(9, 5)), Applied]),
        ),
        of(
            "free for long, and thawed a moment ago, while others wait",
            options(),
            says([Refused(
                Row::free().number("leaseEndsAt", 1_000).number("freezeChangedAt", BEGIN - 1_000).line(9, 5),
            )]),
        ),
        of(
            "free and thawed for long, while others wait",
            options(),
            says([
                Refused(Row::free().number("freezeChangedAt", BEGIN - 60_000).number("leaseEndsAt", 1_000).line(9, 5)),
                Applied,
            ]),
        ),
        of(
            "free for long, while others wait, of whom one has given up",
            options(),
            says([Refused(Row::free().number("leaseEndsAt", 1_000).line(9, 5).left(&[4, 7])), Applied]),
        ),
        of("free, while others wait, out of turn", out_of_turn(), says([Refused(Row::free().line(9, 5)), Applied])),
        of("free, and the turn of this ticket", with_ticket(6), says([Is(Row::free().line(9, 5)), Applied])),
        of("free, and the turn of one ahead", with_ticket(7), says([Is(Row::free().line(9, 5))])),
        of("free, and this ticket was passed", with_ticket(5), says([Is(Row::free().line(9, 6)), Applied])),
        of(
            "free for long, and the turn of one ahead of a ticket that was brought",
            with_ticket(7),
            says([Is(Row::free().number("leaseEndsAt", 1_000).line(9, 5)), Applied]),
        ),
        of(
            "free, and the turn of one ahead, who sleeps",
            with_ticket(7),
            says([Is(Row::free().line(9, 5).number("lastSleeper", 6))]),
        ),
        of("free, and the ticket is of another line", with_ticket(10), says([Is(Row::free().line(9, 9)), Applied])),
        of(
            "free, and all in line have given up",
            options(),
            says([Refused(Row::free().line(9, 5).left(&[6, 7, 8, 9])), Applied]),
        ),
        of(
            "free, and all in line have given up, but another comes",
            options(),
            says([
                Refused(Row::free().line(9, 5).left(&[6, 7, 8, 9])),
                Refused(Row::free().line(10, 5).left(&[6, 7, 8, 9])),
            ]),
        ),
        of(
            "free, and all ahead have given up, and another behind",
            with_ticket(8),
            says([Is(Row::free().line(9, 5).left(&[6, 7, 9])), Applied]),
        ),
        of(
            "of a dead holder, and all in line have given up",
            options(),
            says([Refused(Row::held().dead().line(9, 5).left(&[6, 7, 8, 9])), Applied]),
        ),
        of("free, and the line is empty", options(), says([Refused(Row::free().line(9, 9)), Applied])),
        // It is frozen.
        of("frozen and free", options(), says([Refused(Row::free().frozen())])),
        of("frozen and held", options(), says([Refused(Row::held().frozen())])),
        of("frozen, of a dead holder", options(), says([Refused(Row::held().dead().frozen())])),
        of(
            "frozen and held by the same owner, who reclaims it",
            same_owner(),
            says([Refused(mine().frozen()), Applied]),
        ),
        of(
            "frozen and released by the same owner, who reclaims it",
            same_owner(),
            says([Refused(mine().released().frozen())]),
        ),
        of("frozen, of the saved grant", resumes(), says([Refused(Row::by(Wrote::Saved(0)).frozen()), Applied])),
        of(
            "frozen, of the saved grant, which was released",
            resumes(),
            says([Refused(Row::by(Wrote::Saved(0)).released().frozen())]),
        ),
        of("frozen, of another owner than reclaims it", same_owner(), says([Refused(Row::held().frozen())])),
        of("frozen, and the turn of this ticket", with_ticket(6), says([Is(Row::free().line(9, 5).frozen())])),
        // It is no lock record.
        of("a row without a lease", options(), says([Refused(Row::held().text("leaseDuration", "soon"))])),
        of("a row with a token that nothing can follow", options(), says([Refused(Row::held().token(u64::MAX))])),
        of(
            "a row with the TTL attribute of other clients",
            options(),
            says([Refused(Row::free().text("ttlAttribute", "purgeAt"))]),
        ),
    ]
}
