//! The least size that is safe to recommend, where a larger one may fail.
//!
//! Promises upward: the answer is the first size of the grid from which on every size of the grid fits, up to a quarter
//! above it; each of these sizes was tried.
//! Asks from below: whether one size fits.
//!
//! Whether a run fits into an arena is not monotone in the arena's size: blocks of the larger arena lie elsewhere, and a
//! request may find no room. A bisection would end at some edge between two sizes; the next larger size may fail.

/// The grid has 2^8 sizes for each power of two: neighbours are at most 0.4 % apart.
const GRID_BITS: u32 = 8;
/// The least step of the grid: the largest granule.
const LEAST_STEP: u64 = 16;
/// The part of a size up to which the sizes above it must fit too: a quarter. A larger margin costs more replays; a smaller
/// one is exceeded when a size is rounded up to whole kilobytes or to what a linker script leaves.
const MARGIN: u64 = 4;

/// The least size that fits, and how far it was tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Least {
    /// The size in bytes.
    pub bytes: u64,
    /// The first size that fits: less than `bytes` where a size between them does not.
    pub first: u64,
    /// The largest size that was tried; it and all sizes of the grid from `bytes` on fit.
    pub tried_to: u64,
}

/// The step of the grid at a size.
fn step(size: u64) -> u64 {
    (1 << size.max(1).ilog2().saturating_sub(GRID_BITS)).max(LEAST_STEP)
}

/// The first size of the grid at or above a size.
pub fn grid(size: u64) -> u64 {
    size.next_multiple_of(step(size))
}

/// The size of the grid after a size of the grid.
pub fn after(size: u64) -> u64 {
    size + step(size)
}

/// The largest size to try for an answer.
pub fn end_of_margin(size: u64) -> u64 {
    grid(size + size / MARGIN)
}

/// Finds the least size from `low` to `max`; `None` when there is none.
///
/// `fits` is also told the first size of those that fitted without a gap so far. Where `max` is within the margin, the
/// margin ends at `max`.
pub fn least<E>(
    low: u64,
    max: u64,
    mut fits: impl FnMut(u64, Option<u64>) -> Result<bool, E>,
) -> Result<Option<Least>, E> {
    let (mut size, mut answer, mut first, mut tried_to) = (grid(low), None, None, 0);
    while size <= answer.map_or(max, end_of_margin).min(max) {
        if fits(size, answer)? {
            answer = answer.or(Some(size));
            first = first.or(answer);
        } else {
            answer = None;
        }
        tried_to = size;
        size = after(size);
    }
    Ok(answer.zip(first).map(|(bytes, first)| Least { bytes, first, tried_to }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find(low: u64, max: u64, fits: impl Fn(u64) -> bool) -> Option<Least> {
        least::<()>(low, max, |size, _| Ok(fits(size))).unwrap()
    }

    #[test]
    fn the_grid_has_steps_of_16_then_256_sizes_for_each_power_of_two() {
        assert_eq!([grid(0), grid(1), grid(16), grid(4097)], [0, 16, 16, 4112]);
        assert_eq!([after(16), after(8176), after(8192), after(16384 - 32)], [32, 8192, 8224, 16384]);
        let sizes =
            |from, to| std::iter::successors(Some(from), |&size| Some(after(size))).take_while(|&s| s < to).count();
        assert_eq!([sizes(1 << 13, 1 << 14), sizes(1 << 30, 1 << 31)], [256, 256]);
        assert!([1, 100, 5000, 100_001, 1 << 40].into_iter().all(|size| grid(grid(size)) == grid(size)));
    }

    #[test]
    fn a_size_above_which_one_fails_is_no_answer() {
        // Fits from 1600 on, but for 1792, which is within a quarter of 1600; 1808 is the first after the hole.
        let found = find(100, 1 << 20, |size| size >= 1600 && size != 1792).unwrap();
        assert_eq!(found, Least { bytes: 1808, first: 1600, tried_to: 2272 });
    }

    #[test]
    fn the_margin_is_a_quarter() {
        assert_eq!(find(0, 1 << 20, |size| size >= 1600 && size != 2000).unwrap().bytes, 2016);
        let found = find(0, 1 << 20, |size| size >= 1600 && size != 2016).unwrap();
        assert_eq!(found, Least { bytes: 1600, first: 1600, tried_to: 2000 });
    }

    #[test]
    fn no_size_above_the_most_is_tried() {
        assert_eq!(find(0, 1800, |size| size >= 1600), Some(Least { bytes: 1600, first: 1600, tried_to: 1792 }));
        assert_eq!(find(0, 1800, |size| size > 1800), None);
        assert_eq!(find(2000, 1800, |_| true), None);
    }

    #[test]
    fn an_error_ends_the_search() {
        assert_eq!(least(0, 100, |size, _| if size < 48 { Ok(false) } else { Err(size) }), Err(48));
    }
}
