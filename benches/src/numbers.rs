//! From samples to what is shown: median and spread, ratios round by round, flatness.
//!
//! Promises upward: no mean that one bad round can pull away; a ratio compares two subjects within one round, so
//! that a slow minute of the machine hits both.
//! Asks from below: finite numbers.

/// Median, least and greatest of some samples.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    /// The middle one; of an even number the mean of the middle two.
    pub median: f64,
    /// The least.
    pub min: f64,
    /// The greatest.
    pub max: f64,
}

/// The spread of samples; `None` when there are none.
///
/// ```
/// use terrace_benches::numbers::spread;
/// let all = spread(&[3.0, 1.0, 9.0, 2.0]).unwrap();
/// assert_eq!((all.min, all.median, all.max), (1.0, 2.5, 9.0));
/// ```
pub fn spread(samples: &[f64]) -> Option<Spread> {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    let (min, max) = (*sorted.first()?, *sorted.last()?);
    let middle = sorted.len() / 2;
    let median = if sorted.len() % 2 == 1 { sorted[middle] } else { (sorted[middle - 1] + sorted[middle]) / 2.0 };
    Some(Spread { median, min, max })
}

/// `of[i] / to[i]` for the rounds that both have.
pub fn ratios(of: &[f64], to: &[f64]) -> Vec<f64> {
    of.iter().zip(to).map(|(of, to)| of / to).collect()
}

/// (greatest - least) / least: 0 for a flat line. `None` without samples or when the least is not above 0.
pub fn flatness(values: &[f64]) -> Option<f64> {
    spread(values).filter(|all| all.min > 0.0).map(|all| (all.max - all.min) / all.min)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spread_of_none_one_odd_and_even() {
        assert_eq!(spread(&[]), None);
        assert_eq!(spread(&[4.0]), Some(Spread { median: 4.0, min: 4.0, max: 4.0 }));
        assert_eq!(spread(&[5.0, 1.0, 100.0]), Some(Spread { median: 5.0, min: 1.0, max: 100.0 }));
        assert_eq!(spread(&[4.0, 2.0]).map(|all| all.median), Some(3.0));
    }

    #[test]
    fn ratios_are_taken_within_rounds() {
        // The machine was half as fast in the second round: the ratio is the same.
        assert_eq!(ratios(&[30.0, 60.0], &[10.0, 20.0]), [3.0, 3.0]);
        assert_eq!(ratios(&[30.0, 60.0], &[10.0]), [3.0]);
    }

    #[test]
    fn flatness_is_the_growth_over_the_least() {
        assert_eq!(flatness(&[100.0, 110.0, 105.0]), Some(0.1));
        assert_eq!(flatness(&[7.0]), Some(0.0));
        assert_eq!(flatness(&[]), None);
        assert_eq!(flatness(&[0.0, 1.0]), None);
    }
}
