//! Contestants in turn, and what their rounds say: median and spread, ratios round by round, flatness.
//!
//! Promises upward: within a run every contestant meets the same minutes of the machine; no mean that one bad round can pull
//! away; a ratio compares two contestants within one round, so that a slow minute hits both.
//! Asks from below: finite numbers.

/// Rounds in which contestants take turns: A B C A B C.
///
/// # Example
/// ```
/// use terrace_models::rounds::Rounds;
/// let mut order = Vec::new();
/// let by = Rounds { warm_up: 1, ..Rounds::new(2) }.by_contestant(&mut ["A", "B"], |name, round| {
///     order.push((*name, round));
///     Ok::<_, ()>(*name)
/// });
/// assert_eq!(order, [("A", 0), ("B", 0), ("A", 0), ("B", 0), ("A", 1), ("B", 1)]);
/// assert_eq!(by, Ok(vec![vec!["A"; 2], vec!["B"; 2]]));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rounds {
    /// Rounds before the others, whose results are dropped.
    pub warm_up: usize,
    /// Rounds whose results are kept.
    pub measured: usize,
    /// Neighbours in the list that are compared: each round begins with another one of them. 1: the list's order.
    pub group: usize,
}

impl Rounds {
    /// So many rounds, without a warm-up, in the list's order.
    pub const fn new(measured: usize) -> Self {
        Self { warm_up: 0, measured, group: 1 }
    }

    /// Round from 0, whether its results are kept, and contestant.
    fn turns(self, contestants: usize) -> impl Iterator<Item = (usize, bool, usize)> {
        let rounds = (0..self.warm_up).map(|_| (0, false)).chain((0..self.measured).map(|round| (round, true)));
        rounds.flat_map(move |(round, kept)| {
            (0..contestants).map(move |at| {
                let first = at - at % self.group;
                let group = self.group.min(contestants - first);
                (round, kept, first + (at - first + round) % group)
            })
        })
    }

    /// Runs all; a contestant that fails takes no further part. Results and failures, in the order in which they came.
    pub fn run<C, T, E>(
        self,
        contestants: &mut [C],
        mut turn: impl FnMut(&mut C, usize) -> Result<T, E>,
    ) -> (Vec<T>, Vec<E>) {
        let (mut results, mut failures, mut out) = (Vec::new(), Vec::new(), vec![false; contestants.len()]);
        for (round, kept, at) in self.turns(contestants.len()) {
            if out[at] {
                continue;
            }
            match turn(&mut contestants[at], round) {
                Ok(result) => results.extend(kept.then_some(result)),
                Err(failure) => {
                    out[at] = true;
                    failures.push(failure);
                }
            }
        }
        (results, failures)
    }

    /// The results of each contestant, round by round.
    ///
    /// # Errors
    /// The first failure; nothing runs after it.
    pub fn by_contestant<C, T, E>(
        self,
        contestants: &mut [C],
        mut turn: impl FnMut(&mut C, usize) -> Result<T, E>,
    ) -> Result<Vec<Vec<T>>, E> {
        let mut results: Vec<Vec<T>> = contestants.iter().map(|_| Vec::new()).collect();
        for (round, kept, at) in self.turns(contestants.len()) {
            let result = turn(&mut contestants[at], round)?;
            results[at].extend(kept.then_some(result));
        }
        Ok(results)
    }
}

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
/// use terrace_models::rounds::spread;
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
    fn a_contestant_that_fails_is_out_and_neighbours_change_places() {
        let rounds = Rounds { group: 2, ..Rounds::new(3) };
        let turn = |name: &mut char, round| if (*name, round) == ('c', 1) { Err(*name) } else { Ok((*name, round)) };
        let (results, failures) = rounds.run(&mut ['a', 'b', 'c'], turn);
        let expected = [('a', 0), ('b', 0), ('c', 0), ('b', 1), ('a', 1), ('a', 2), ('b', 2)];
        assert_eq!((results.as_slice(), failures.as_slice()), (&expected[..], &['c'][..]));
        assert_eq!(rounds.by_contestant(&mut ['a', 'c'], turn), Err('c'));
    }

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
