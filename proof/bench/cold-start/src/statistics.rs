//! Medians, and the confidence interval of their ratio.

const RESAMPLES: usize = 2_000;

/// A figure of two functions, by round.
#[derive(Debug)]
pub(crate) struct Comparison {
    rounds: Vec<(f64, f64)>,
    /// So many rounds in a row used the same copies of the binaries.
    rounds_per_copy: usize,
}

impl Comparison {
    pub(crate) fn of(rounds: impl IntoIterator<Item = (f64, f64)>, rounds_per_copy: usize) -> Self {
        Self { rounds: rounds.into_iter().collect(), rounds_per_copy }
    }

    pub(crate) fn ours(&self) -> f64 {
        median(self.rounds.iter().map(|round| round.0).collect())
    }

    pub(crate) fn theirs(&self) -> f64 {
        median(self.rounds.iter().map(|round| round.1).collect())
    }

    /// The ratio of the medians.
    pub(crate) fn ratio(&self) -> f64 {
        self.ours() / self.theirs()
    }

    /// The 95 % interval of the ratio. All rounds of one copy are drawn together, with replacement, from a fixed seed, because
    /// a copy makes all its starts faster or slower.
    pub(crate) fn interval(&self) -> (f64, f64) {
        let mut random = fastrand::Rng::with_seed(1);
        let copies: Vec<_> = self.rounds.chunks(self.rounds_per_copy).collect();
        let mut ratios: Vec<f64> = (0..RESAMPLES)
            .map(|_| {
                let drawn = copies.iter().flat_map(|_| copies[random.usize(..copies.len())]).copied();
                Self::of(drawn, self.rounds_per_copy).ratio()
            })
            .collect();
        ratios.sort_by(f64::total_cmp);
        (ratios[RESAMPLES / 40], ratios[RESAMPLES - 1 - RESAMPLES / 40])
    }
}

fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    let middle = figures.len() / 2;
    if figures.len().is_multiple_of(2) { (figures[middle - 1] + figures[middle]) / 2.0 } else { figures[middle] }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_slow_round_does_not_change_the_ratio() {
        let mut rounds = vec![(110.0, 100.0); 50];
        rounds.push((9_000.0, 100.0));
        let comparison = Comparison::of(rounds, 1);
        assert_eq!((comparison.ours(), comparison.theirs()), (110.0, 100.0));
        assert_eq!(comparison.interval(), (1.1, 1.1));
    }

    #[test]
    fn the_interval_is_as_wide_as_the_rounds_differ() {
        let rounds = [(90.0, 100.0), (100.0, 100.0), (110.0, 100.0), (105.0, 100.0), (95.0, 100.0)];
        let (low, high) = Comparison::of(rounds, 1).interval();
        assert!(low < 1.0 && 1.0 < high, "{low} {high}");
    }

    #[test]
    fn rounds_of_one_copy_are_no_evidence_of_their_own() {
        let rounds =
            |slow: fn(usize) -> bool| (0..100).map(move |round| (if slow(round) { 110.0 } else { 100.0 }, 100.0));
        // One copy of four is slow.
        assert_eq!(Comparison::of(rounds(|round| round < 25), 25).interval(), (1.0, 1.1));
        // As many rounds that were slow each by itself leave no doubt about the median.
        assert_eq!(Comparison::of(rounds(|round| round % 4 == 0), 1).interval(), (1.0, 1.0));
    }
}
