//! The scenarios that are made, not recorded.
//!
//! Promises upward: functions of their arguments; the seeds are fixed.
//! Asks from below: [`Random`].

use super::{Scenario, Step};
use crate::{MIB, Random};

/// Blocks of a batch.
const BATCH: u32 = 100;
/// Most blocks live in `large`: 16 of 544 MiB on average are 8.5 GiB, which fits every device of today's data centres.
const LARGE_LIVE: usize = 16;
/// Sizes of `large` are multiples of this: a tensor's rows are.
const LARGE_STEP: u64 = 4096;
/// Blocks live in `mixed`. At 19 MiB on average they hold 19 GiB.
const MIXED_LIVE: u32 = 1000;
/// Sizes of `mixed` are from 2^9 to 2^28 bytes.
const MIXED_LOG2: (u32, u32) = (9, 28);

impl Scenario {
    /// Blocks of 1 MiB, 100 at a time, freed last to first, so many rounds.
    pub fn same(rounds: u32) -> Self {
        let round = || {
            let all = (0..BATCH).map(|slot| Step::Allocate { slot, bytes: MIB, stream: 0 });
            all.chain((0..BATCH).rev().map(|slot| Step::Free { slot }))
        };
        Self::new("same", (0..rounds).flat_map(|_| round()))
    }

    /// 64 MiB to 1 GiB, all sizes alike, so many random steps: half of them allocate while fewer than 16 blocks are live.
    pub fn large(steps: u32) -> Self {
        let mut random = Random::new(2);
        let (mut live, mut empty) = (Vec::new(), (0..LARGE_LIVE as u32).rev().collect::<Vec<_>>());
        Self::new(
            "large",
            (0..steps).filter_map(|_| {
                let frees = !live.is_empty() && (live.len() == LARGE_LIVE || random.below(2) == 0);
                if frees {
                    let slot = live.swap_remove(random.below(live.len() as u64) as usize);
                    empty.push(slot);
                    return Some(Step::Free { slot });
                }
                let slot = empty.pop()?;
                live.push(slot);
                let bytes = 64 * MIB + random.below(960 * MIB / LARGE_STEP + 1) * LARGE_STEP;
                Some(Step::Allocate { slot, bytes, stream: 0 })
            }),
        )
    }

    /// 512 B to 256 MiB, all magnitudes alike: 1000 live, then so many steps that replace one, chosen at random.
    pub fn mixed(steps: u32) -> Self {
        let mut random = Random::new(5);
        let fill: Vec<Step> = (0..MIXED_LIVE).map(|slot| mixed(&mut random, slot)).collect();
        let replace = (0..steps).flat_map(|_| {
            let slot = random.below(MIXED_LIVE.into()) as u32;
            [Step::Free { slot }, mixed(&mut random, slot)]
        });
        Self::new("mixed", fill.into_iter().chain(replace))
    }
}

/// A block whose size is 2 to a power that is uniform in the interval, up to the straight line between two powers of two (no
/// floating point: the same on every machine).
fn mixed(random: &mut Random, slot: u32) -> Step {
    let (least, most) = MIXED_LOG2;
    let floor = 1 << (u64::from(least) + random.below(u64::from(most - least)));
    Step::Allocate { slot, bytes: floor + random.below(floor + 1), stream: 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sizes(scenario: &Scenario) -> Vec<u64> {
        let size = |step: &Step| if let Step::Allocate { bytes, .. } = step { Some(*bytes) } else { None };
        scenario.steps.iter().filter_map(size).collect()
    }

    #[test]
    fn same_is_100_of_1_mib_a_round_last_to_first() {
        let same = Scenario::same(3);
        assert_eq!((same.steps.len(), same.peak, same.slots), (600, 100 * MIB, 100));
        assert_eq!(
            same.steps[99..102],
            [Step::Allocate { slot: 99, bytes: MIB, stream: 0 }, Step::Free { slot: 99 }, Step::Free { slot: 98 },]
        );
    }

    #[test]
    fn sizes_are_what_the_names_say() {
        let large = Scenario::large(1000);
        assert_eq!(large.steps.len(), 1000);
        assert!(sizes(&large).iter().all(|size| (64 * MIB..=1024 * MIB).contains(size)));
        let mixed = Scenario::mixed(100_000);
        assert_eq!(mixed.steps.len(), 201_000);
        let sizes = sizes(&mixed);
        assert!(sizes.iter().all(|size| (512..=256 * MIB).contains(size)));
        // One magnitude of 19 is as likely as another: about 5300 of 101,000 each.
        let small = sizes.iter().filter(|size| **size < 1024).count();
        assert!((4500..6100).contains(&small), "{small}");
    }

    #[test]
    fn what_is_random_is_the_same_every_time() {
        assert_eq!(Scenario::large(1000), Scenario::large(1000));
        assert_eq!(Scenario::mixed(1000), Scenario::mixed(1000));
    }
}
