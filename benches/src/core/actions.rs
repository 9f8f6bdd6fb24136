//! The list of actions: what every subject is asked, made before anything is timed.
//!
//! Promises upward: the same seed, live count and length give the same list; every action is valid: a victim is
//! always live, a size always between [`SMALLEST`] and [`LARGEST`].
//! Asks from below: a random generator whose sequence is pinned by `Cargo.lock`.
//!
//! An action is a *pair*: free a random live block, allocate one of a new size in its place. So the number of live
//! blocks never changes, and any part of the list can be run after any other.

use fastrand::Rng;

/// Smallest request in bytes.
pub const SMALLEST: u32 = 64;
/// Largest request in bytes: 1 MiB.
pub const LARGEST: u32 = 1 << 20;
/// Octaves between them: log2(2^20 / 2^6).
const OCTAVES: f64 = 14.0;
/// Mean request in bytes, rounded up: (2^20 - 2^6) / ln(2^20 / 2^6) = 1,048,512 / 9.704 for a log-uniform law.
pub const MEAN: u64 = 108_050;

/// One step: free the block at `victim`, then allocate `bytes` and keep it there. 8 bytes, read in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pair {
    /// Which of the live blocks, below the number of them.
    pub victim: u32,
    /// Bytes of the new block.
    pub bytes: u32,
}

/// What fills an allocator, and what is done to it then.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Actions {
    /// Sizes of the first blocks, in bytes; as many as there are live blocks.
    pub fill: Vec<u32>,
    /// Pairs, in order.
    pub pairs: Vec<Pair>,
}

impl Actions {
    /// The list for a seed: `live` blocks to begin with, then `pairs` pairs. `live` is at least 1.
    pub fn new(seed: u64, live: u32, pairs: usize) -> Self {
        let mut random = Rng::with_seed(seed);
        let fill = (0..live).map(|_| size(&mut random)).collect();
        let pair = |random: &mut Rng| Pair { victim: random.u32(0..live.max(1)), bytes: size(random) };
        let pairs = (0..pairs).map(|_| pair(&mut random)).collect();
        Self { fill, pairs }
    }
}

/// A size whose logarithm is uniform.
fn size(random: &mut Rng) -> u32 {
    let bytes = f64::from(SMALLEST) * (OCTAVES * random.f64()).exp2();
    (bytes as u32).clamp(SMALLEST, LARGEST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_list() {
        let list = Actions::new(7, 100, 5000);
        assert_eq!(list, Actions::new(7, 100, 5000));
        assert_ne!(list, Actions::new(8, 100, 5000));
        assert_eq!(list.pairs[..1000], Actions::new(7, 100, 1000).pairs, "a shorter list is a prefix");
    }

    #[test]
    fn every_action_is_valid() {
        for live in [1, 2, 100, 10_000] {
            let list = Actions::new(1, live, 20_000);
            assert_eq!(list.fill.len(), live as usize);
            assert!(list.fill.iter().all(|bytes| (SMALLEST..=LARGEST).contains(bytes)));
            let valid = |pair: &Pair| pair.victim < live && (SMALLEST..=LARGEST).contains(&pair.bytes);
            assert!(list.pairs.iter().all(valid));
        }
    }

    #[test]
    fn sizes_are_log_uniform_with_the_stated_mean() {
        let list = Actions::new(3, 1, 200_000);
        let octave = |pair: &Pair| (pair.bytes.min(LARGEST - 1) / SMALLEST).ilog2() as usize;
        let mut counts = [0u32; 14];
        list.pairs.iter().for_each(|pair| counts[octave(pair)] += 1);
        // 200,000 / 14 = 14,286 with a standard deviation of 115: five of them.
        assert!(counts.iter().all(|count| (13_700..14_900).contains(count)), "{counts:?}");
        let mean = list.pairs.iter().map(|pair| u64::from(pair.bytes)).sum::<u64>() / 200_000;
        // Standard deviation of a size: 200 KB; of the mean of 200,000: 450.
        assert!(mean.abs_diff(MEAN) < 2500, "{mean}");
    }

    #[test]
    fn every_block_is_a_victim_about_as_often() {
        let mut counts = [0u32; 100];
        Actions::new(5, 100, 100_000).pairs.iter().for_each(|pair| counts[pair.victim as usize] += 1);
        // 1000 each, standard deviation 31: six of them.
        assert!(counts.iter().all(|count| (810..1190).contains(count)), "{counts:?}");
    }
}
