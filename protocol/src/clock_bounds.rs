//! The bounds on clocks on which the protocol's promises rest.

use super::invalid::Invalid;
use std::time::Duration;

/// The default of the largest difference between two wall clocks.
pub const DEFAULT_SKEW: Duration = Duration::from_secs(2);

/// How far clocks may be off before the promise of exclusion no longer holds.
///
/// Every client of one table should use the same bounds. The holder's guard and the contender's takeover rely on the
/// same values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockBounds {
    drift_permille: u32,
    max_clock_skew: Option<Duration>,
}

impl Default for ClockBounds {
    /// 5 % drift and 2 s of clock skew.
    fn default() -> Self {
        Self { drift_permille: 50, max_clock_skew: Some(DEFAULT_SKEW) }
    }
}

impl ClockBounds {
    /// Sets by how much the *rates* of two clocks may differ, as a fraction between 0 and 1.
    pub fn with_drift(self, drift: f64) -> Result<Self, Invalid> {
        if !(0.0..=1.0).contains(&drift) {
            return Err(Invalid::new(format!(
                "the clock drift must be a fraction from 0.0 to 1.0, such as 0.05; got {drift}"
            )));
        }
        let drift_permille = (drift * 1000.0).ceil() as u32;
        Ok(Self { drift_permille, ..self })
    }

    /// Sets by how much two *wall clocks* may differ. `None` switches takeover by wall clock off.
    pub fn with_max_clock_skew(self, max_clock_skew: Option<Duration>) -> Self {
        Self { max_clock_skew, ..self }
    }

    /// By how much two wall clocks may differ. `None` when the wall clock proves nothing.
    pub fn max_clock_skew(&self) -> Option<Duration> {
        self.max_clock_skew
    }

    /// The same, where others have to be allowed for although the wall clock proves nothing: then it is the default.
    pub(crate) fn allowed_skew(&self) -> Duration {
        self.max_clock_skew().unwrap_or(DEFAULT_SKEW)
    }

    /// How long a contender must see a version unchanged before the holder is dead: `lease × (1 + drift)`.
    pub fn stretched(&self, lease: Duration) -> Duration {
        self.scaled(lease, 1000 + u128::from(self.drift_permille), 1000)
    }

    /// How long a holder relies on its lease: `lease / (1 + drift)`. The Java and Go clients allow for no drift at
    /// all, so the holder allows for it.
    pub fn believed(&self, lease: Duration) -> Duration {
        self.scaled(lease, 1000, 1000 + u128::from(self.drift_permille))
    }

    fn scaled(&self, lease: Duration, numerator: u128, denominator: u128) -> Duration {
        let nanos = lease.as_nanos().saturating_mul(numerator) / denominator;
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_contender_waits_longer_than_the_lease_and_a_holder_relies_on_less() {
        let clock_bounds = ClockBounds::default();
        let lease = Duration::from_secs(21);
        assert_eq!(clock_bounds.stretched(lease), Duration::from_millis(22_050));
        assert_eq!(clock_bounds.believed(lease), Duration::from_secs(20));
    }

    #[test]
    fn a_drift_that_is_no_fraction_is_refused() {
        for drift in [-0.1, 1.5, f64::NAN] {
            assert!(ClockBounds::default().with_drift(drift).is_err(), "{drift}");
        }
    }
}
