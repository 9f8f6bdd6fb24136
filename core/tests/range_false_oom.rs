//! False out-of-memory: exact policies never fail when something fits, nor resize falsely, over many random operations.
//!
//! In CI a million operations; the full run, recorded in `docs/benchmarks.md`:
//!
//! ```text
//! TERRACE_FALSE_OOM_OPS=100000000 cargo test -p terrace-core --release --test range_false_oom -- --nocapture
//! ```
//!
//! The operations are divided among best, first, worst and good fit (by its exact search). The model has the gaps by
//! address and by size, and decides before each request whether one fits; the allocator must agree, and a block must be in a
//! gap. Memory is nearly full, so that about a third of all requests fail, many of them by a granule.
#![cfg(not(loom))]

use fastrand::Rng;
use std::collections::{BTreeMap, BTreeSet};
use terrace_core::{
    Allocator, BestFit, Block, Branch, Cause, FirstFit, GoodFit, Index, Owner, Range, Request, Slot, WorstFit,
};

/// Bytes of a granule.
const GRANULE: u64 = 64;
/// Operations on one range before the next is made, with other sizes: 2^14, a hundred times as many as blocks are live.
const ROUND: u64 = 1 << 14;
/// Slots: more blocks than ever fit at once.
const SLOTS: usize = 4096;

/// All gaps, twice: length by start, and (length, start). Granules.
#[derive(Default)]
struct Gaps {
    by_start: BTreeMap<u64, u64>,
    by_size: BTreeSet<(u64, u64)>,
}

impl Gaps {
    fn insert(&mut self, start: u64, len: u64) {
        if len > 0 {
            self.by_start.insert(start, len);
            self.by_size.insert((len, start));
        }
    }

    fn remove(&mut self, start: u64) -> Option<u64> {
        let len = self.by_start.remove(&start)?;
        self.by_size.remove(&(len, start));
        Some(len)
    }

    /// Whether `size` granules fit somewhere at an alignment in granules. Gaps of `size + align - 1` surely do.
    fn fits(&self, size: u64, align: u64) -> bool {
        let sure = size + align - 1;
        self.by_size.range((sure, 0)..).next().is_some()
            || self
                .by_size
                .range((size, 0)..(sure, 0))
                .any(|&(len, start)| start.next_multiple_of(align) + size <= start + len)
    }

    /// Allocates `[start, start + size)`, which must be free.
    fn take(&mut self, start: u64, size: u64) {
        let gap = self.by_start.range(..=start).next_back().map(|(gap, len)| (*gap, *len));
        let (gap, len) = gap.filter(|(gap, len)| start + size <= gap + len).expect("a block lies in a gap");
        self.remove(gap);
        self.insert(gap, start - gap);
        self.insert(start + size, gap + len - start - size);
    }

    /// Frees `[start, start + size)`; `low` and `high` are the ends of its region.
    fn give(&mut self, mut start: u64, mut size: u64, (low, high): (u64, u64)) {
        let before = self.by_start.range(low..start).next_back().map(|(gap, len)| (*gap, *len));
        if let Some((gap, len)) = before.filter(|(gap, len)| gap + len == start) {
            self.remove(gap);
            (start, size) = (gap, size + len);
        }
        if start + size < high {
            size += self.remove(start + size).unwrap_or(0);
        }
        self.insert(start, size);
    }
}

/// The two regions of every range here, in granules: they touch, and must not merge.
const REGIONS: [(u64, u64); 2] = [(5, 3005), (3005, 4096)];

fn region(start: u64) -> (u64, u64) {
    if start < REGIONS[0].1 { REGIONS[0] } else { REGIONS[1] }
}

struct Round<I> {
    range: Range<Vec<Slot>, I>,
    gaps: Gaps,
    live: Vec<Block>,
    random: Rng,
    /// Largest request of this round in granules.
    largest: u64,
    refused: u64,
}

impl<I: Index> Round<I> {
    fn new(index: I, seed: u64) -> Self {
        let mut range = Range::new(vec![Slot::EMPTY; SLOTS], GRANULE, index).expect("valid");
        let mut gaps = Gaps::default();
        for (start, end) in REGIONS {
            range.add_region(start * GRANULE, (end - start) * GRANULE).expect("room");
            gaps.insert(start, end - start);
        }
        let mut random = Rng::with_seed(seed);
        let largest = 8 << random.u64(0..7);
        Self { range, gaps, live: Vec::new(), random, largest, refused: 0 }
    }

    fn step(&mut self) {
        match self.random.u64(0..16) {
            0..=8 => self.allocate(),
            9 => self.resize(),
            _ if self.live.is_empty() => {}
            _ => {
                let at = self.random.usize(0..self.live.len());
                let block = self.live.swap_remove(at);
                self.range.free(block, Owner(0)).expect("live");
                let (start, size) = granules(&block);
                self.gaps.give(start, size, region(start));
            }
        }
    }

    fn allocate(&mut self) {
        let size = 1 + self.random.u64(0..self.largest);
        let align = if self.random.u64(0..3) == 0 { 1 << self.random.u64(0..8) } else { 1 };
        let fits = self.gaps.fits(size, align);
        let request = Request::new(size * GRANULE - self.random.u64(0..GRANULE)).align(align * GRANULE);
        match self.range.allocate_exact(request) {
            Ok(block) => {
                let (start, got) = granules(&block);
                assert_eq!((got, start % align), (size, 0), "{block:?} for {request:?}");
                self.gaps.take(start, size);
                self.live.push(block);
            }
            Err(error) => {
                assert!(!fits, "false out-of-memory: {request:?}: {error}");
                assert_eq!(error.cause, Cause::OutOfMemory);
                self.refused += 1;
            }
        }
    }

    fn resize(&mut self) {
        if self.live.is_empty() {
            return;
        }
        let at = self.random.usize(0..self.live.len());
        let (start, old) = granules(&self.live[at]);
        let size = 1 + self.random.u64(0..self.largest);
        let (_, high) = region(start);
        let room =
            old + if start + old < high { self.gaps.by_start.get(&(start + old)).copied().unwrap_or(0) } else { 0 };
        match self.range.resize(self.live[at], size * GRANULE) {
            Ok(block) => {
                assert_eq!(granules(&block), (start, size));
                self.gaps.give(start, old, region(start));
                self.gaps.take(start, size);
                self.live[at] = block;
            }
            Err(error) => assert!(size > room, "a false refusal: {old} to {size} with room for {room}: {error}"),
        }
    }
}

fn granules(block: &Block) -> (u64, u64) {
    (block.address / GRANULE, block.bytes / GRANULE)
}

/// Runs `ops` operations; returns the number of requests that failed, and had to.
fn run<I: Index>(ops: u64, make: impl Fn() -> I) -> u64 {
    let mut refused = 0;
    for seed in 0..ops.div_ceil(ROUND) {
        let mut round = Round::new(make(), seed);
        (seed * ROUND..ops.min((seed + 1) * ROUND)).for_each(|_| round.step());
        round.range.check().expect("every invariant holds");
        refused += round.refused;
    }
    refused
}

#[test]
fn exact_policies_have_no_false_out_of_memory() {
    let given = std::env::var("TERRACE_FALSE_OOM_OPS").ok();
    let ops: u64 = given.map_or(1_000_000, |text| text.parse().expect("TERRACE_FALSE_OOM_OPS is a number"));
    let each = ops.div_ceil(4);
    let branches = || vec![Branch::EMPTY; SLOTS];
    let refused = [
        ("best fit", run(each, || BestFit::new(branches()))),
        ("first fit", run(each, || FirstFit::new(branches()))),
        ("worst fit", run(each, || WorstFit::new(branches()))),
        ("good fit, exact", run(each, GoodFit::new)),
    ];
    for (name, refused) in refused {
        println!("{name}: {each} operations, {refused} refused, 0 of them falsely");
        assert!(refused > each / 20, "{name}: memory was kept nearly full, or the run shows nothing");
    }
}
