//! Metadata: how much of a pool the records of a range cost, measured.

use terrace_core::{Allocator, BestFit, Block, Branch, GoodFit, Index, Owner, Range, Request, Slot};

/// A pool of 100 MB at a granule of 64 bytes.
const POOL: u64 = 100_000_000 / GRANULE * GRANULE;
const GRANULE: u64 = 64;
/// Mean block: 4 KiB. Sizes are spread evenly over (0, 8 KiB].
const MEAN: u64 = 4096;

/// Fills a pool of 100 MB with blocks of 4 KiB on average, frees and refills a tenth of it many times, and measures.
///
/// `kept` are the bytes that the index keeps for a slot.
fn share<I: Index>(index: impl Fn(usize) -> I, kept: usize) -> f64 {
    let slots = (POOL / MEAN) as usize * 5 / 4;
    let mut range = Range::new(vec![Slot::EMPTY; slots], GRANULE, index(slots)).expect("valid");
    range.add_region(0, POOL).expect("room");
    let mut random = fastrand::Rng::with_seed(1);
    let mut live: Vec<Block> = Vec::new();
    for _ in 0..10 {
        while let Ok(block) = range.allocate(Request::new(random.u64(1..=2 * MEAN))) {
            live.push(block);
        }
        for _ in 0..live.len() / 10 {
            let block = live.swap_remove(random.usize(..live.len()));
            range.free(block, Owner(0)).expect("live");
        }
    }
    let stats = range.stats();
    let mean = stats.in_use / stats.live_blocks;
    assert!((3500..=4500).contains(&mean), "the mean block is about 4 KiB, not {mean}");
    assert!(stats.in_use > POOL / 5 * 4, "the pool is full");
    println!("{} bytes of metadata, {:.3} % of {POOL}", stats.metadata, stats.metadata_share() * 100.0);
    // Each block costs a slot and what the index keeps for it, at least, and the index itself: the number is real.
    let least = stats.live_blocks * (size_of::<Slot>() + kept) as u64 + size_of::<I>() as u64;
    assert!(stats.metadata >= least, "{} bytes, at least {least}", stats.metadata);
    assert_eq!(stats.metadata_share(), stats.metadata as f64 / stats.reserved as f64);
    stats.metadata_share()
}

#[test]
fn metadata_of_good_fit_is_below_one_percent() {
    let share = share(|_| GoodFit::new(), 0);
    assert!(share < 0.01, "{share}");
}

#[test]
fn metadata_of_best_fit_is_below_one_percent() {
    let share = share(|slots| BestFit::new(vec![Branch::EMPTY; slots]), size_of::<Branch>());
    assert!(share < 0.01, "{share}");
}

/// Metadata is the index, and 32 bytes for the region and each block of the peak: records are reused.
#[test]
fn metadata_is_the_index_and_the_records_that_were_used() {
    let mut range = Range::new(vec![Slot::EMPTY; 10], GRANULE, GoodFit::new()).expect("valid");
    range.add_region(0, POOL).expect("room");
    for _ in 0..3 {
        let blocks = [(); 3].map(|()| range.allocate(Request::new(100)).expect("room"));
        let records = 4 * size_of::<Slot>() as u64;
        assert_eq!(range.stats().metadata, size_of::<GoodFit>() as u64 + records);
        assert_eq!(range.slots_left(), 6);
        blocks.into_iter().for_each(|block| range.free(block, Owner(0)).expect("live"));
        assert_eq!(range.slots_left(), 9);
    }
}
