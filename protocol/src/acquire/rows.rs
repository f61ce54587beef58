//! What a call knows of the rows that it wants.

use crate::instants::Instants;
use crate::observation::{HolderWatch, Observation};
use crate::record::{InvalidRecord, Record};

/// What a call knows of a row.
#[derive(Debug)]
pub(super) enum Row {
    Unseen,
    /// There is none.
    Missing,
    Watched(HolderWatch),
    /// It is no lock record.
    Invalid(InvalidRecord),
}

impl Row {
    pub(super) fn watch(&self) -> Option<&HolderWatch> {
        match self {
            Row::Watched(watch) => Some(watch),
            Row::Unseen | Row::Missing | Row::Invalid(_) => None,
        }
    }

    /// Notes what a response showed. Goes on with what was observed of the same version before, or with the observation that the
    /// caller brought.
    pub(super) fn see(&mut self, record: Record, after: Instants, carried: Option<&Observation>) {
        *self = Row::Watched(HolderWatch::on(record, after, self.watch(), carried));
    }
}
