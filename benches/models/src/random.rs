//! Random numbers that are the same on every machine and in every year.
//!
//! Promises upward: a sequence is a function of its seed.
//! Asks from below: nothing. SplitMix64 (Steele, Lea and Flood, 2014): one addition and a mix of 64 bits.

/// A generator of random numbers. Not for secrets.
///
/// # Example
/// ```
/// use terrace_models::Random;
/// let (mut a, mut b) = (Random::new(7), Random::new(7));
/// assert_eq!(a.next(), b.next());
/// assert!(a.below(10) < 10);
/// ```
#[derive(Clone, Debug)]
pub struct Random {
    state: u64,
}

impl Random {
    /// The sequence of a seed.
    pub const fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    /// 64 random bits.
    #[allow(clippy::should_implement_trait, reason = "an endless sequence: an iterator's `Option` says nothing")]
    pub const fn next(&mut self) -> u64 {
        // 2^64 / golden ratio, made odd: the step that visits all 64-bit values most evenly.
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.state ^ (self.state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `bound`; 0 when the bound is 0. The bias is below bound / 2^64.
    pub const fn below(&mut self, bound: u64) -> u64 {
        ((self.next() as u128 * bound as u128) >> 64) as u64
    }

    /// True once in `n` times.
    pub const fn once_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    /// A size from 1 to `most` (at least 1) bytes: all magnitudes are equally likely.
    pub const fn size(&mut self, most: u64) -> u64 {
        let most = if most == 0 { 1 } else { most };
        let magnitude = self.below(most.ilog2() as u64 + 1);
        let size = (1u64 << magnitude) + self.below(1 << magnitude);
        if size > most { most } else { size }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sequence_of_seed_0_is_the_published_one() {
        let mut random = Random::new(0);
        assert_eq!([random.next(), random.next()], [0xe220_a839_7b1d_cdaf, 0x6e78_9e6a_a1b9_65f4]);
    }

    #[test]
    fn sizes_reach_both_ends_and_stay_inside() {
        let mut random = Random::new(1);
        let sizes: Vec<u64> = (0..10_000).map(|_| random.size(1000)).collect();
        assert!(sizes.iter().all(|size| (1..=1000).contains(size)));
        assert!(sizes.contains(&1) && sizes.contains(&1000));
        assert_eq!(random.size(0), 1);
    }
}
