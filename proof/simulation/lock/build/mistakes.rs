//! The known mistakes that are made in the client. The other ones are in the copy of the decisions, which also describes
//! each of them.

use lambda_lock_copy::Edit;

pub(crate) const EDITS: &[Edit] = &[
    Edit {
        name: "ExpiredGuardComesBack",
        file: "lock/validity.rs",
        find: "
            if remaining.is_zero() {
                *standing = Standing::Expired;
        ",
        put: "
            if remaining.is_zero() && !MISTAKEN {
                *standing = Standing::Expired;
        ",
    },
    Edit {
        name: "ClocksReadAfterNow",
        file: "engine/port.rs",
        find: "
            let instants = self.engine.clock.now();
            let wall = self.engine.wall_clock.reading(self.engine.clock.now());
        ",
        put: "
            let (first, second) = (self.engine.clock.now(), self.engine.clock.now());
            let (instants, second) = if MISTAKEN { (second, first) } else { (first, second) };
            let wall = self.engine.wall_clock.reading(second);
        ",
    },
];
