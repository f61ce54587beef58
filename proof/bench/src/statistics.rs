//! Medians, and the confidence interval of their ratio.

use std::time::Duration;

const RESAMPLES: usize = 2_000;

/// The time of one pair in the batches of both sides.
#[derive(Debug, Default)]
pub(crate) struct Comparison {
    batches: Vec<(Duration, Duration)>,
}

impl Comparison {
    pub(crate) fn add(&mut self, ours: Duration, by_hand: Duration) {
        self.batches.push((ours, by_hand));
    }

    pub(crate) fn ours(&self) -> Duration {
        median(self.batches.iter().map(|batch| batch.0).collect())
    }

    pub(crate) fn by_hand(&self) -> Duration {
        median(self.batches.iter().map(|batch| batch.1).collect())
    }

    /// The ratio of the medians.
    pub(crate) fn ratio(&self) -> f64 {
        self.ours().as_secs_f64() / self.by_hand().as_secs_f64()
    }

    /// The 95 % interval of the ratio. Batches that ran next to each other are drawn together.
    pub(crate) fn interval(&self) -> (f64, f64) {
        interval(&self.batches, |drawn| Self { batches: drawn.to_vec() }.ratio())
    }
}

/// The 95 % interval of a figure of these samples. They are drawn with replacement from a fixed seed.
pub(crate) fn interval<T: Copy>(samples: &[T], figure: impl Fn(&[T]) -> f64) -> (f64, f64) {
    let mut random = fastrand::Rng::with_seed(1);
    let mut figures: Vec<f64> = (0..RESAMPLES)
        .map(|_| {
            let drawn: Vec<T> = samples.iter().map(|_| samples[random.usize(..samples.len())]).collect();
            figure(&drawn)
        })
        .collect();
    figures.sort_by(f64::total_cmp);
    (figures[RESAMPLES / 40], figures[RESAMPLES - 1 - RESAMPLES / 40])
}

fn median(mut durations: Vec<Duration>) -> Duration {
    durations.sort_unstable();
    let middle = durations.len() / 2;
    if durations.len().is_multiple_of(2) { (durations[middle - 1] + durations[middle]) / 2 } else { durations[middle] }
}

/// The value below which this fraction of the sorted values lies. NaN without values.
pub(crate) fn quantile(sorted: &[f64], fraction: f64) -> f64 {
    let Some(last) = sorted.len().checked_sub(1) else { return f64::NAN };
    let place = last as f64 * fraction;
    let (below, above) = (sorted[place.floor() as usize], sorted[place.ceil() as usize]);
    below + (above - below) * place.fract()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn comparison(batches: &[(u64, u64)]) -> Comparison {
        let micros = |(ours, by_hand): &(u64, u64)| (Duration::from_micros(*ours), Duration::from_micros(*by_hand));
        Comparison { batches: batches.iter().map(micros).collect() }
    }

    #[test]
    fn one_slow_batch_does_not_change_the_ratio() {
        let calm = comparison(&[(110, 100); 51]);
        let mut disturbed = vec![(110, 100); 50];
        disturbed.push((9_000, 100));
        assert_eq!(calm.ratio(), 1.1);
        assert_eq!(comparison(&disturbed).ratio(), 1.1);
        assert_eq!(comparison(&disturbed).interval(), (1.1, 1.1));
    }

    #[test]
    fn the_interval_is_as_wide_as_the_batches_differ() {
        let (low, high) = comparison(&[(90, 100), (100, 100), (110, 100), (105, 100), (95, 100)]).interval();
        assert!(low < 1.0 && 1.0 < high, "{low} {high}");
    }

    #[test]
    fn quantiles_lie_between_their_neighbours() {
        let figures = [1.0, 2.0, 3.0, 10.0];
        assert_eq!([0.0, 0.5, 1.0].map(|fraction| quantile(&figures, fraction)), [1.0, 2.5, 10.0]);
        assert!(quantile(&[], 0.5).is_nan());
    }
}
