//! PyTorch's policy against values worked out apart from this model: sizes, scenarios, one long random run.

use crate::common;

use common::{MIB, PythonRandom, expandable};
use terrace_core::{Allocator, Block, Cause, NoFence, Owner, Request};
use terrace_models::pytorch::segment_bytes;
use terrace_models::{BadOption, Growing, PyTorch, PyTorchOptions, Segments};

/// Request, rounded size, segment, block handed out.
const GOLDEN: [(u64, u64, u64, u64); 12] = [
    (1, 512, 2 * MIB, 512),
    (513, 1024, 2 * MIB, 1024),
    (MIB, MIB, 2 * MIB, MIB),
    (MIB + 1, 1_049_088, 20 * MIB, 1_049_088),
    (5 * MIB, 5 * MIB, 20 * MIB, 5 * MIB),
    (10 * MIB - 1, 10 * MIB, 10 * MIB, 10 * MIB),
    (10 * MIB, 10 * MIB, 10 * MIB, 10 * MIB),
    (10 * MIB + 1, 10_486_272, 12 * MIB, 10_486_272),
    (11 * MIB, 11 * MIB, 12 * MIB, 12 * MIB),
    (11 * MIB + 1, 11_534_848, 12 * MIB, 12 * MIB),
    (19 * MIB, 19 * MIB, 20 * MIB, 20 * MIB),
    (20 * MIB + 1, 20_972_032, 22 * MIB, 20_972_032),
];

fn options() -> PyTorchOptions {
    PyTorchOptions::default()
}

fn alloc(pool: &mut impl Allocator, bytes: u64) -> Block {
    pool.allocate(Request::new(bytes)).unwrap_or_else(|error| panic!("{error}"))
}

fn free_all(pool: &mut impl Allocator, blocks: impl IntoIterator<Item = Block>) {
    for block in blocks {
        pool.free(block, Owner(0)).unwrap_or_else(|error| panic!("{error}"));
    }
}

#[test]
fn golden_sizes() {
    for (request, rounded, segment, block) in GOLDEN {
        assert_eq!(options().round(request), rounded, "rounded size of {request}");
        assert_eq!(segment_bytes(rounded), segment, "segment for {request}");
        let mut pool = PyTorch::new(Segments::new(0));
        let given = alloc(&mut pool, request);
        let stats = pool.stats();
        assert_eq!((given.bytes, stats.reserved, stats.in_use), (block, segment, block), "block for {request}");
        assert_eq!(stats.largest_free, segment - block, "rest of the segment of {request}");
        pool.check().unwrap();
    }
}

#[test]
fn power_of_two_divisions() {
    let cases = [(1200, 4, 1536), (2049, 4, 2560), (MIB + 1, 8, 1_179_648), (3 * MIB + 1, 4, 3_670_016)];
    for (request, divisions, rounded) in cases {
        let options = PyTorchOptions { power2_divisions: divisions, ..options() };
        assert_eq!(options.round(request), rounded, "{request} in {divisions} steps");
        let mut pool = PyTorch::with(Segments::new(0), NoFence, options).unwrap();
        assert_eq!(alloc(&mut pool, request).bytes, rounded);
    }
    let one = PyTorchOptions { power2_divisions: 1, ..options() };
    assert_eq!(one.round(2049), 2560, "one division is ignored: plain rounding to 512");
    let four = PyTorchOptions { power2_divisions: 4, ..options() };
    assert_eq!(four.round(4096), 4096, "powers of two stay");
    assert_eq!(four.round(2048), 2048, "512 * 4 is still rounded plainly");
}

#[test]
fn bad_options_are_refused() {
    let refuse = |options: PyTorchOptions| -> BadOption {
        PyTorch::with(Segments::new(0), NoFence, options).expect_err("refused")
    };
    assert!(refuse(PyTorchOptions { max_split_size: 20 * MIB - 1, ..options() }).to_string().contains("20 MiB"));
    assert!(refuse(PyTorchOptions { gc_threshold: 1.0, ..options() }).0.contains("gc_threshold"));
    assert!(refuse(PyTorchOptions { gc_threshold: f64::NAN, ..options() }).0.contains("gc_threshold"));
    assert!(refuse(PyTorchOptions { fraction: Some(0.0), ..options() }).0.contains("fraction"));
    assert!(refuse(PyTorchOptions { power2_divisions: 3, ..options() }).0.contains("power of two"));
    assert!(refuse(PyTorchOptions { expandable: true, ..options() }).0.contains("growing source"));
}

/// S1: four segments are released for one that is larger.
#[test]
fn last_resort_releases_whole_segments() {
    let mut pool = PyTorch::new(Segments::new(64 * MIB));
    let blocks: Vec<Block> = (0..4).map(|_| alloc(&mut pool, 15 * MIB)).collect();
    assert_eq!((pool.stats().reserved, pool.stats().misses), (64 * MIB, 4));
    free_all(&mut pool, blocks);
    assert_eq!(pool.stats().reserved, 64 * MIB, "a free never calls the device");
    alloc(&mut pool, 40 * MIB);
    let stats = pool.stats();
    assert_eq!((pool.retries(), stats.reserved, stats.returns), (1, 40 * MIB, 4));
    assert_eq!(stats.source_calls, 5 + 4, "five segments taken, four given back");
    pool.check().unwrap();
}

/// Eighteen blocks of 3 MiB, every second one freed.
fn checkered(pool: &mut impl Allocator) {
    let blocks: Vec<Block> = (0..18).map(|_| alloc(pool, 3 * MIB)).collect();
    free_all(pool, blocks.into_iter().skip(1).step_by(2));
}

/// S2 on whole segments: 33 MiB are free, and 7 MiB are not to be had.
#[test]
fn whole_segments_fragment() {
    let mut pool = PyTorch::new(Segments::new(64 * MIB));
    checkered(&mut pool);
    assert_eq!((pool.stats().reserved, pool.stats().requested), (60 * MIB, 27 * MIB));
    let error = pool.allocate(Request::new(7 * MIB)).unwrap_err();
    assert_eq!((error.cause, error.asked), (Cause::OutOfMemory, 7 * MIB));
    assert_eq!(error.largest_free, 5 * MIB, "the last block of a segment joins its 2 MiB tail");
    assert_eq!((pool.stats().reserved, pool.stats().failed, pool.retries()), (60 * MIB, 1, 1));
    pool.check().unwrap();
}

/// S2 on an expandable segment: the same requests fit, since the last hole joins the tail.
#[test]
fn expandable_segments_fragment_less() {
    let mut pool = expandable(64 * MIB);
    checkered(&mut pool);
    assert_eq!(pool.stats().largest_free, 9 * MIB);
    alloc(&mut pool, 7 * MIB);
    let stats = pool.stats();
    assert_eq!((stats.reserved, stats.failed, pool.retries()), (60 * MIB, 0, 0));
    assert_eq!((stats.source_calls, stats.handles), (3, 3), "three maps of one page of 20 MiB each");
    pool.check().unwrap();
}

/// R1: 200,000 random steps under 8 GiB; all five published numbers.
#[test]
fn long_random_run() {
    let mut random = PythonRandom::new(1);
    let mut pool = PyTorch::new(Segments::new(8 << 30));
    let mut live: Vec<Block> = Vec::new();
    let mut peak_requested = 0;
    for _ in 0..200_000 {
        if !live.is_empty() && random.random() < 0.5 {
            let block = live.remove(random.randrange(live.len()));
            pool.free(block, Owner(0)).unwrap();
        } else if let Ok(block) = pool.allocate(Request::new(random.size(9.0, 27.0))) {
            live.push(block);
            peak_requested = peak_requested.max(pool.stats().requested);
        }
    }
    let stats = pool.stats();
    assert_eq!(peak_requested, 4_078_037_623);
    assert_eq!(stats.peak_in_use, 4_095_576_576);
    assert_eq!(stats.peak_reserved, 5_121_245_184);
    assert_eq!((stats.source_calls, stats.failed), (65, 0));
    pool.check().unwrap();
}

#[test]
fn python_random_is_pythons() {
    // python3 -c "import random; r = random.Random(1); print(r.random(), r.randrange(1000), r.random())"
    let mut random = PythonRandom::new(1);
    assert_eq!(random.random(), 0.134_364_244_112_401_22);
    assert_eq!(random.randrange(1000), 867);
    assert_eq!(random.random(), 0.802_265_061_168_183_5);
}

#[test]
fn best_fit_takes_the_smallest_then_the_lowest() {
    let mut pool = PyTorch::new(Segments::new(0));
    let blocks: Vec<Block> = [4096, 512, 2048, 512, 2048, 512].map(|bytes| alloc(&mut pool, bytes)).to_vec();
    free_all(&mut pool, [blocks[0], blocks[4], blocks[2]]);
    assert_eq!(alloc(&mut pool, 1536).address, blocks[2].address, "2048 before 4096, the lower of two");
    assert_eq!(alloc(&mut pool, 2048).address, blocks[4].address);
    pool.check().unwrap();
}

#[test]
fn streams_do_not_share() {
    let mut pool = PyTorch::new(Segments::new(0));
    let block = alloc(&mut pool, 2 * MIB);
    free_all(&mut pool, [block]);
    let other = pool.allocate(Request::new(2 * MIB).owner(Owner(1))).unwrap();
    assert_ne!(other.region, block.region);
    assert_eq!(pool.stats().misses, 2);
    assert_eq!(alloc(&mut pool, 2 * MIB).address, block.address, "the first stream finds it again");
}

#[test]
fn oversize_blocks_are_not_split_and_released_first() {
    let limits = PyTorchOptions { max_split_size: 32 * MIB, ..options() };
    let mut pool = PyTorch::with(Segments::new(128 * MIB), NoFence, limits).unwrap();
    let big = alloc(&mut pool, 60 * MIB);
    let mid = alloc(&mut pool, 40 * MIB);
    free_all(&mut pool, [big, mid]);
    // 10 MiB may be split, so it takes neither of the two.
    let small = alloc(&mut pool, 10 * MIB);
    assert_eq!((small.bytes, pool.stats().reserved), (10 * MIB, 110 * MIB));
    // 39 MiB may not be split: 40 MiB wastes little enough, and is handed out whole.
    let fit = alloc(&mut pool, 39 * MIB);
    assert_eq!((fit.address, fit.bytes), (mid.address, 40 * MIB));
    // 33 MiB would waste 27 MiB in the 60 MiB block, more than 20: that block is released for it, without a retry.
    let next = alloc(&mut pool, 33 * MIB);
    assert_eq!((next.bytes, pool.stats().returns, pool.retries()), (34 * MIB, 1, 0));
    pool.check().unwrap();
}

#[test]
fn several_oversize_blocks_are_released_for_a_larger_one() {
    let limits = PyTorchOptions { max_split_size: 20 * MIB, ..options() };
    let mut pool = PyTorch::with(Segments::new(128 * MIB), NoFence, limits).unwrap();
    let blocks = [30, 40, 50].map(|mib| alloc(&mut pool, mib * MIB));
    free_all(&mut pool, blocks);
    alloc(&mut pool, 80 * MIB);
    assert_eq!((pool.stats().returns, pool.stats().reserved, pool.retries()), (2, 110 * MIB, 0));
    pool.check().unwrap();
}

#[test]
fn oversize_blocks_that_are_not_enough_leave_it_to_the_last_resort() {
    let limits = PyTorchOptions { max_split_size: 20 * MIB, ..options() };
    let mut pool = PyTorch::with(Segments::new(128 * MIB), NoFence, limits).unwrap();
    let [free, _live] = [30, 40].map(|mib| alloc(&mut pool, mib * MIB));
    free_all(&mut pool, [free]);
    // 58 MiB are not reserved; with the 30 released, 80 fit. 30 alone are fewer than 80, so that is a retry.
    alloc(&mut pool, 80 * MIB);
    assert_eq!((pool.stats().returns, pool.retries()), (1, 1));
}

#[test]
fn garbage_collection_releases_the_old() {
    let gc = PyTorchOptions { gc_threshold: 0.5, fraction: Some(1.0), ..options() };
    let mut pool = PyTorch::with(Segments::new(100 * MIB), NoFence, gc).unwrap();
    let [old, young, third] = [20, 22, 24].map(|mib| alloc(&mut pool, mib * MIB));
    free_all(&mut pool, [old]);
    let again = alloc(&mut pool, 26 * MIB);
    assert_eq!(pool.stats().returns, 1, "66 MiB are above half of 100; the old segment covers the excess of 16");
    free_all(&mut pool, [young, third, again]);
    pool.check().unwrap();
    assert_eq!(pool.retries(), 0);
}

#[test]
fn fraction_limits_the_pool() {
    let half = PyTorchOptions { fraction: Some(0.5), ..options() };
    let mut pool = PyTorch::with(Segments::new(100 * MIB), NoFence, half).unwrap();
    let first = alloc(&mut pool, 40 * MIB);
    assert_eq!(pool.allocate(Request::new(12 * MIB)).unwrap_err().cause, Cause::OutOfMemory);
    free_all(&mut pool, [first]);
    assert_eq!(alloc(&mut pool, 50 * MIB).bytes, 50 * MIB, "what was cached is released for it");
}

#[test]
fn expandable_pages_go_back_whole() {
    let mut pool = expandable(0);
    let blocks: Vec<Block> = (0..12).map(|_| alloc(&mut pool, 5 * MIB)).collect();
    assert_eq!(pool.stats().reserved, 60 * MIB);
    // Blocks 3..=7 cover [15, 40) MiB: one whole 20 MiB page, [20, 40).
    free_all(&mut pool, blocks[3..8].to_vec());
    assert_eq!(pool.trim(), 20 * MIB);
    pool.check().unwrap();
    assert_eq!(pool.stats().largest_free, 5 * MIB, "what lies beside the page stays free");
    let refill = alloc(&mut pool, 25 * MIB);
    assert_eq!(refill.address, blocks[3].address, "the gap is mapped again before the tail");
    free_all(&mut pool, blocks[..3].iter().chain(&blocks[8..]).copied().chain([refill]).collect::<Vec<_>>());
    pool.trim();
    assert_eq!(pool.stats().reserved, 0);
    assert!(pool.source().outstanding().is_empty(), "an empty reservation is given back");
    pool.check().unwrap();
}

#[test]
fn expandable_prefers_blocks_away_from_the_tail() {
    let mut pool = expandable(0);
    let first = alloc(&mut pool, 6 * MIB);
    let _wall = alloc(&mut pool, 9 * MIB);
    // Free now: the 5 MiB tail, which can grow without end, and these 6 MiB, which cannot.
    free_all(&mut pool, [first]);
    assert_eq!(alloc(&mut pool, 4 * MIB).address, first.address);
    pool.check().unwrap();
}

#[test]
fn classic_policy_is_the_same_on_both_sources() {
    let mut fixed = PyTorch::new(Segments::new(64 * MIB));
    let mut growing = PyTorch::new(Growing::new(64 * MIB));
    checkered(&mut fixed);
    checkered(&mut growing);
    assert_eq!(fixed.stats().source_calls, growing.stats().source_calls);
    assert_eq!(fixed.stats().peak_reserved, growing.stats().peak_reserved);
}
