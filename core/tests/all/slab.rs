//! The slab beside a set of indices.

use proptest::prelude::*;
use std::collections::BTreeSet;
use terrace_core::FreeError;
use terrace_core::pool::Slab;

#[derive(Clone, Debug)]
enum Step {
    Take { from_hint: bool, most: u32 },
    Release(u32),
    AllFree(u32, u32),
    ReleaseAll,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (any::<bool>(), 0u32..90).prop_map(|(from_hint, most)| Step::Take { from_hint, most }),
        8 => (0u32..220).prop_map(Step::Release),
        4 => (0u32..220, 0u32..300).prop_map(|(first, end)| Step::AllFree(first, end)),
        1 => Just(Step::ReleaseAll),
    ]
}

proptest! {
    #[test]
    fn it_knows_which_blocks_are_free(blocks in 0u32..200, steps in proptest::collection::vec(step(), 0..80)) {
        let mut words = vec![0; Slab::words(blocks)];
        let mut free: BTreeSet<u32> = BTreeSet::new();
        // The word below which nothing is free.
        let mut hint = 0;
        for step in steps {
            let mut slab = Slab::new(&mut words, blocks);
            match step {
                Step::Take { from_hint, most } => {
                    let mut taken = Vec::new();
                    let (count, next) = slab.take(if from_hint { hint } else { 0 }, most, |block| taken.push(block));
                    let expected: Vec<u32> = free.iter().copied().take(most as usize).collect();
                    expected.iter().for_each(|block| { free.remove(block); });
                    prop_assert_eq!(count as usize, taken.len());
                    prop_assert_eq!(taken, expected);
                    prop_assert!(free.iter().all(|&block| block / 64 >= next), "nothing is free below the hint");
                    hint = next;
                }
                Step::Release(block) => {
                    let address = u64::from(block);
                    let expected = match (block < blocks, free.contains(&block)) {
                        (false, _) => Err(FreeError::Foreign { address }),
                        (true, true) => Err(FreeError::Stale { address }),
                        (true, false) => Ok(()),
                    };
                    prop_assert_eq!(slab.release(block), expected);
                    if expected.is_ok() {
                        free.insert(block);
                        hint = hint.min(block / 64);
                    }
                }
                Step::AllFree(first, end) => {
                    let expected = (first..end.min(blocks)).all(|block| free.contains(&block));
                    prop_assert_eq!(slab.all_free(first, end), expected);
                }
                Step::ReleaseAll => {
                    slab.release_all();
                    free = (0..blocks).collect();
                    hint = 0;
                }
            }
            prop_assert_eq!(slab.free() as usize, free.len());
            prop_assert!(slab.check().is_ok());
        }
    }
}

#[test]
fn a_bit_past_the_last_block_is_found_out() {
    let mut words = [1 << 10];
    assert!(Slab::new(&mut words, 10).check().is_err());
    assert!(Slab::new(&mut words, 11).check().is_ok());
}

#[test]
fn too_few_words_make_a_smaller_slab() {
    let mut words = [0; 1];
    let mut slab = Slab::new(&mut words, 1000);
    slab.release_all();
    assert_eq!(slab.free(), 64);
    assert!(slab.release(64).is_err());
}
