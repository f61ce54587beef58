//! Acquires of one of several places.

use crate::Case;
use crate::acquiring::{has_observed, held, options, says, with_reclaim};
use crate::row::{Row, Wrote};
use crate::script::{BEGIN, Says, Script};
use Says::{Applied, Are, Denied, Invalid, Is, NoResponse, NoRow, Refused, Throttled};
use lambda_lock_protocol::{AcquireOptions, AcquiredPlace, Places, Reclaim, Settings, WantedPlace, acquire_one_of};

/// One of several places.
pub(crate) fn cases() -> Vec<Case> {
    let with = |name, options: AcquireOptions, wanted: WantedPlace, script: Script| {
        let settings = Settings::default();
        script.run(
            name,
            async |port| acquire_one_of(port, &settings, options, wanted).await,
            |end, _| match end {
                Ok(AcquiredPlace::Granted { place, holding, .. }) => {
                    format!("granted place {place} with token {}", holding.token)
                }
                Ok(AcquiredPlace::Full(holders)) => {
                    let by: Vec<String> =
                        holders.iter().map(|(place, seen)| format!("{place}: {}", held(seen))).collect();
                    format!("full, {}", by.join("; "))
                }
                Err(failed) => format!("{:?} of {:?}", failed.failure, failed.of),
            },
        )
    };
    let wanted =
        |count, first| WantedPlace { places: Places { name: "gate".into(), count }, first, observations: Vec::new() };
    let of = |name, options, script| with(name, options, wanted(3, Some(1)), script);
    let observed = |place| WantedPlace {
        observations: vec![(place, has_observed(&Row::held(), 21_000).observation.unwrap())],
        ..wanted(3, Some(1))
    };
    let all = |rows: [Row; 3]| Are(rows.map(Some).to_vec());
    let held = Row::held;
    let one_free = || all([held(), Row::free(), held()]);
    let held_of = |places| Are(vec![Some(Row::held()); places]);
    let almost_dead = || held().number("leaseEndsAt", BEGIN - 1_988);
    let broken = || held().text("leaseDuration", "soon");
    vec![
        of("a place that nobody has", options(), says([Applied])),
        with("a place, and none comes first", options(), wanted(3, None), says([Applied])),
        with("a place that comes first no more", options(), wanted(3, Some(3)), says([Applied])),
        with(
            "the second of two places",
            options(),
            wanted(2, Some(0)),
            says([Refused(held()), Are(vec![Some(held()), Some(Row::free())]), Applied]),
        ),
        with(
            "more places than a look shows",
            options(),
            wanted(9, Some(1)),
            says([Refused(held()), held_of(5), held_of(9)]),
        ),
        with(
            "a place of which another's holder was observed to be dead",
            options(),
            observed(2),
            says([Refused(held()), all([held(), held(), held()]), Applied]).distrusts_the_wall_clock(),
        ),
        with(
            "a first place whose holder was observed to be dead",
            options(),
            observed(1),
            says([Refused(held()), Applied]).distrusts_the_wall_clock(),
        ),
        of(
            "a place that another call of the same owner takes first",
            with_reclaim(Reclaim::SameOwner),
            says([NoRow, Refused(held().owner("me")), all([held(), held().owner("me"), held()]), Applied]),
        ),
        of(
            "a place that is invalid, and was released since it was granted",
            options(),
            says([Invalid, Is(Row::by(Wrote::Attempt(1)).released()), all([Row::free(), held(), held()]), Applied]),
        ),
        of(
            "a place without a response until the time is over, whose release has none",
            options(),
            says([NoResponse, NoResponse, NoResponse, Applied, NoResponse]).time(40),
        ),
        of(
            "a place that another takes first",
            options(),
            says([
                Refused(held()),
                all([held(), Row::free(), held()]),
                Refused(held()),
                all([held(), held(), Row::free()]),
                Applied,
            ]),
        ),
        of(
            "places that others take first until the time is over",
            options(),
            says([
                Refused(held()),
                all([held(), Row::free(), held()]),
                Refused(held()),
                all([Row::free(), held(), held()]),
            ])
            .time(20),
        ),
        of("a place that is denied", options(), says([Denied])),
        of("places that cannot be read", options(), says([Refused(held()), Denied])),
        of(
            "a place of which another one is free",
            options(),
            says([Refused(held()), all([held(), held(), Row::free()]), Applied]),
        ),
        of(
            "a place of which another one's holder is dead",
            options(),
            says([Refused(held()), all([held().dead(), held(), held()]), Applied]),
        ),
        of("all places are held", options(), says([Refused(held()), all([held(), held(), held()])])),
        of(
            "all places are held or frozen",
            options(),
            says([Refused(held()), all([held(), Row::free().frozen(), held()])]),
        ),
        of(
            "all places are held until one is released",
            options(),
            says([Refused(held()), all([held(), held(), held()]), all([Row::free(), held(), held()]), Applied])
                .waits(5_000),
        ),
        of(
            "all places are held until one's holder is dead",
            options(),
            says([
                Refused(held()),
                all([held(), almost_dead(), held()]),
                all([held(), almost_dead(), held()]),
                Applied,
            ])
            .waits(5_000),
        ),
        of(
            "all places are held, after others were faster",
            options(),
            says([
                Refused(held()),
                one_free(),
                Refused(held()),
                all([held(), held(), held()]),
                one_free(),
                Refused(held()),
                one_free(),
                Applied,
            ])
            .waits(5_000),
        ),
        of(
            "all places are held until the time is over",
            options(),
            says([Refused(held()), all([held(), held(), held()]), all([held(), held(), held()])]).waits(30),
        ),
        of("no place is a lock record", options(), says([Refused(broken()), all([broken(), broken(), broken()])])),
        of(
            "a place of the same owner",
            with_reclaim(Reclaim::SameOwner),
            says([all([held(), held(), held().owner("me")]), Applied]),
        ),
        of(
            "a place of the same owner, who has released it",
            with_reclaim(Reclaim::SameOwner),
            says([all([held(), held(), held().owner("me").released()]), Applied]),
        ),
        of(
            "a place without a response until the time is over",
            options(),
            says([NoResponse, NoResponse, NoResponse, Applied, Applied]).time(40),
        ),
        of(
            "a place without a response, and the row shows this attempt",
            options(),
            says([NoResponse, Is(Row::by(Wrote::Attempt(1)).owner("me").token(8))]),
        ),
        of("a place without a response, and there is no row", options(), says([NoResponse, NoRow, Applied])),
        of(
            "a place without a response, and the others are held",
            options(),
            says([NoResponse, Is(held()), Applied, all([held(), held(), held()]), Applied]),
        ),
        of(
            "a place without a response, whose release is throttled",
            options(),
            says([
                NoResponse,
                Is(held()),
                Applied,
                all([Row::free(), held(), held()]),
                Applied,
                Throttled,
                NoResponse,
                Throttled,
            ]),
        ),
        of(
            "a free place, and one that the same owner has released",
            with_reclaim(Reclaim::SameOwner),
            says([all([held().owner("me").released(), Row::free(), held()]), Applied]),
        ),
        of(
            "a place of the same owner that another has by now",
            with_reclaim(Reclaim::SameOwner),
            says([all([held(), held(), held().owner("me")]), Refused(held())]),
        ),
        of(
            "no place is of the same owner",
            with_reclaim(Reclaim::SameOwner),
            says([all([held(), held(), Row::free()]), Applied]),
        ),
        of(
            "a place without a response, and then another one",
            options(),
            says([NoResponse, Is(held()), Applied, all([Row::free(), held(), held()]), Applied, Applied]),
        ),
        of(
            "a place that is no lock record, and the others held",
            options(),
            says([Refused(held()), all([held(), held().text("leaseDuration", "soon"), held()])]),
        ),
        of(
            "a place whose row is no lock record",
            options(),
            says([
                Refused(held().text("leaseDuration", "soon")),
                all([held(), held().text("leaseDuration", "soon"), Row::free()]),
                Applied,
            ]),
        ),
    ]
}
