//! Outcomes of idempotent work: which one is stored.

use crate::Case;
use crate::acquiring::says;
use crate::committing::{failing, kept_for, newer, refused, run, settling, work};
use crate::holding::{holding, own};
use crate::row::{Row, Wrote};
use crate::script::Says;
use Says::{Applied, Invalid, NoResponse, NoRow, Refused, RefusedWithoutRow, Throttled};

pub(crate) fn cases() -> Vec<Case> {
    let alone = |name, script| run(name, settling(true), vec![work()], script);
    let fails = |name, script| run(name, failing(), vec![work()], script);
    let with_writes = |name, script| run(name, settling(false), vec![work()], script);
    let settled = || Row::by(Wrote::Settled(1));
    let by_another = || Row::held().work(60_000).settled("done");
    vec![
        alone("an outcome", says([Applied])),
        alone("an outcome whose clock writes later times", says([Applied]).writes_later()),
        run("an outcome that is not kept", settling(true), vec![holding()], says([Applied])),
        alone("an outcome that is refused by another grant", says([Refused(Row::held().work(60_000))])),
        alone("an outcome that is refused by another outcome", says([Refused(by_another())])),
        alone("an outcome whose row is gone", says([RefusedWithoutRow, NoRow])),
        alone("an outcome that is refused by a copy of this holder", says([Refused(own(90).work(60_000)), Applied])),
        alone("an outcome without a response", says([NoResponse, Applied])),
        alone("an outcome without a response, which was stored", says([NoResponse, Refused(settled())])),
        alone(
            "an outcome of which an earlier attempt was stored by a late copy",
            says([Refused(own(90).work(60_000)), Refused(settled())]),
        ),
        alone("an outcome without a response, and then another outcome", says([NoResponse, Refused(by_another())])),
        fails("a failure", says([Applied])),
        fails("a failure without a response, which was stored", says([NoResponse, Refused(settled())])),
        fails(
            "a failure without a response, which an operator has reset since",
            says([NoResponse, Refused(Row::by(Wrote::Attempt(1)).owner("me").released().work(60_000))]),
        ),
        fails(
            "a failure without a response, and another attempt, for which it may have been reset",
            says([NoResponse, Refused(Row::held().work(60_000))]),
        ),
        fails(
            "a failure without a response, and a row that shows that it was not stored",
            says([NoResponse, Refused(own(0).work(60_000)), Applied]),
        ),
        fails("a failure that is refused by another attempt", says([Refused(Row::held().work(60_000))])),
        run(
            "an outcome that is kept for longer than requests are repeated",
            settling(true),
            vec![kept_for(3_600)],
            says([NoResponse, Refused(Row::held().work(60_000))]).takes(240_000),
        ),
        run(
            "an outcome by a clock that is behind the newest stamp",
            settling(true),
            vec![newer(9_000)],
            says([Applied]),
        ),
        alone("an outcome that was refused for now, and stored by a late copy", says([Throttled, Refused(settled())])),
        alone(
            "an outcome without a response, and then another grant",
            says([NoResponse, Refused(Row::held().work(60_000))]),
        ),
        alone(
            "an outcome that may have been replaced",
            says([NoResponse, Refused(Row::held().work(60_000))]).takes(30_000),
        ),
        alone(
            "an outcome that cannot have been replaced yet",
            says([NoResponse, Refused(Row::held().work(60_000))]).takes(29_000),
        ),
        alone(
            "an outcome whose row is older",
            says([NoResponse, Refused(own(90).work(60_000)), Applied]).takes(30_000),
        ),
        alone("an outcome that is too large", says([Invalid])),
        alone("an outcome without a response until the time is over", says([NoResponse, NoResponse]).time(20)),
        with_writes("an outcome with writes", says([Applied])),
        with_writes(
            "an outcome with writes, without a response, which was stored",
            says([NoResponse, refused(settled())]),
        ),
        with_writes(
            "an outcome with writes that was refused for now, and stored by a late copy",
            says([Throttled, refused(settled())]),
        ),
        with_writes("an outcome with writes that is refused by another outcome", says([refused(by_another())])),
        with_writes(
            "an outcome with writes, whose transaction DynamoDB still recognises",
            says([NoResponse, refused(Row::held().work(60_000))]).takes(30_000),
        ),
    ]
}
