//! Buckets, with and without spill, and buckets that grow from a source, beside a list of what is live.
//!
//! The model of buckets is exact: it knows how many blocks each has, so it says of each request whether it must be
//! served and from which block size.
// sanitizer: none
// seeded-env: pool_loses_record
// seeded-env: pool_stray_write
// seeded-env: pool_source_overlaps
#![no_main]
#![forbid(unsafe_code)]

use arbitrary::Arbitrary;
use libfuzzer_sys::fuzz_target;
use std::collections::HashSet;
use terrace_core::pool::{BlockRecord, BucketArena, Buckets, SegmentRecord, SizeClasses};
use terrace_core::sync::{AtomicUsize, Ordering};
use terrace_core::{Allocator, Block, Cause, FreeError, Owner, Request};
use terrace_fuzz::{FaultySource, Forgetful, bug};

#[derive(Arbitrary, Debug)]
struct Input {
    kind: u8,
    steps: Vec<Step>,
}

#[derive(Arbitrary, Debug)]
enum Step {
    /// Bytes, log2 of the alignment.
    Allocate(u16, u8),
    Free(u8),
    FreeDead(u8),
    FreeForged(u8, u8),
    Resize(u8, u16),
    Trim,
}

/// Blocks of 16, 20, 24, 28, 32, .. bytes (four steps to the octave), in this many each.
const COUNTS: [u32; 12] = [3, 1, 2, 1, 4, 1, 70, 1, 2, 2, 1, 1];

/// Live blocks with what was asked, and names that are dead.
#[derive(Default)]
struct Model {
    live: Vec<(Block, u64)>,
    dead: Vec<Block>,
    tickets: HashSet<u64>,
}

impl Model {
    fn add(&mut self, block: Block, bytes: u64, align: u64) {
        assert!(block.bytes >= bytes && block.address % align == 0, "{block:?} for {bytes} at {align}");
        for (other, _) in &self.live {
            let apart = block.address + block.bytes <= other.address || other.address + other.bytes <= block.address;
            assert!(apart, "{block:?} overlaps {other:?}");
        }
        assert!(self.tickets.insert(block.ticket), "a ticket is never used twice");
        self.live.push((block, bytes));
    }

    fn pick(&self, at: u8) -> Option<usize> {
        usize::from(at).checked_rem(self.live.len())
    }

    fn step(&mut self, allocator: &mut dyn Allocator, step: &Step) {
        match *step {
            Step::Allocate(..) | Step::Trim => {}
            Step::Free(at) => {
                let Some(at) = self.pick(at) else { return };
                let (block, _) = self.live.swap_remove(at);
                allocator.free(block, Owner(0)).expect("live");
                self.dead.push(block);
            }
            Step::FreeDead(at) => {
                let Some(at) = usize::from(at).checked_rem(self.dead.len()) else { return };
                let stale = Err(FreeError::Stale { address: self.dead[at].address });
                assert_eq!(allocator.free(self.dead[at], Owner(0)), stale, "a double free is refused");
            }
            Step::FreeForged(at, how) => {
                let Some(at) = self.pick(at) else { return };
                let block = self.live[at].0;
                let forged = match how % 3 {
                    0 => Block { slot: block.slot.wrapping_add(1 + u32::from(how)), ..block },
                    1 => Block { ticket: block.ticket.wrapping_add(1 << 40), ..block },
                    _ => Block { slot: u32::MAX, ticket: u64::from(how), ..block },
                };
                allocator.free(forged, Owner(0)).expect_err("a forged name is refused");
            }
            Step::Resize(at, bytes) => {
                let Some(at) = self.pick(at) else { return };
                let (old, bytes) = (self.live[at].0, u64::from(bytes));
                // Within the block's own size, and never to nothing.
                let fits = (1..=old.bytes).contains(&bytes);
                let resized = allocator.resize(old, bytes);
                assert_eq!(resized.is_ok(), fits, "{old:?} to {bytes}");
                let Ok(new) = resized else { return };
                assert_eq!((new.address, new.bytes), (old.address, old.bytes));
                self.live.swap_remove(at);
                self.dead.push(old);
                self.add(new, bytes, 1);
            }
        }
    }

    fn compare(&self, allocator: &dyn Allocator) {
        allocator.check().expect("every invariant holds");
        let stats = allocator.stats();
        let in_use: u64 = self.live.iter().map(|(block, _)| block.bytes).sum();
        assert_eq!((stats.in_use, stats.live_blocks), (in_use, self.live.len() as u64));
        assert_eq!(stats.allocations - stats.frees, stats.live_blocks);
        assert!(stats.in_use <= stats.reserved && stats.reserved <= stats.peak_reserved);
    }

    /// Frees all; nothing is left.
    fn finish(&mut self, allocator: &mut dyn Allocator) {
        while let Some((block, _)) = self.live.pop() {
            allocator.free(block, Owner(0)).expect("live");
        }
        allocator.trim();
        self.compare(allocator);
    }
}

/// Sizes of the buckets, found the slow way.
fn sizes(steps: SizeClasses) -> Vec<u64> {
    (0..COUNTS.len() as u32).filter_map(|class| steps.size(class)).collect()
}

fn buckets(steps: &[Step], spill: bool) {
    let words: Vec<AtomicUsize> = (0..Buckets::words(&COUNTS)).map(|_| AtomicUsize::new(0)).collect();
    let table = SizeClasses::new(16, 4).expect("valid");
    let sizes = sizes(table);
    let buckets = Buckets::new(table, COUNTS, 1 << 20, &words).expect("enough words");
    let mut buckets = if spill { buckets.with_spill() } else { buckets };
    let mut model = Model::default();
    for (n, step) in steps.iter().enumerate() {
        if let Step::Allocate(bytes, bits) = *step {
            let (bytes, align) = (u64::from(bytes) % 160, 1 << (bits % 7));
            let fits = |size: &&u64| **size >= bytes && **size % align == 0;
            let room = |size: &u64| {
                let class = sizes.iter().position(|other| other == size).expect("one of them");
                model.live.iter().filter(|(block, _)| block.bytes == *size).count() < COUNTS[class] as usize
            };
            let mut able = sizes.iter().filter(fits);
            let expected = if spill { able.find(|size| room(size)) } else { able.next().filter(|size| room(size)) };
            match buckets.allocate(Request::new(bytes).align(align)) {
                Ok(block) => {
                    assert_eq!(Some(&block.bytes), expected, "{bytes} at {align}");
                    model.add(block, bytes, align);
                }
                Err(error) if bytes == 0 => assert_eq!(error.cause, Cause::BadRequest),
                Err(error) => assert_eq!(expected, None, "{bytes} at {align}: {error}"),
            }
        }
        model.step(&mut buckets, step);
        if bug("pool_stray_write") && n == 20 {
            // A bit of the first bucket's map, which the caller lent and must leave alone.
            words[0].fetch_xor(2, Ordering::Relaxed);
        }
        model.compare(&buckets);
    }
    model.finish(&mut buckets);
}

fn growing(steps: &[Step]) {
    let source = FaultySource::new(64 << 10, "pool_source_overlaps");
    let blocks = Forgetful::new(60, "pool_loses_record", BlockRecord::default);
    let segments = Forgetful::new(12, "", SegmentRecord::default);
    let mut arena = BucketArena::new(source, SizeClasses::new(16, 4).expect("valid"), 4096, blocks, segments);
    let mut model = Model::default();
    for step in steps {
        match *step {
            Step::Allocate(bytes, bits) => {
                let (bytes, align) = (u64::from(bytes) % 12_000, 1 << (bits % 13));
                if let Ok(block) = arena.allocate(Request::new(bytes).align(align)) {
                    model.add(block, bytes, align);
                }
            }
            Step::Trim => {
                let before = arena.stats().reserved;
                assert_eq!(arena.trim(), before - arena.stats().reserved);
            }
            _ => model.step(&mut arena, step),
        }
        model.compare(&arena);
    }
    model.finish(&mut arena);
    assert_eq!(arena.stats().reserved, 0, "everything went back");
}

fuzz_target!(|input: Input| {
    let steps = &input.steps[..input.steps.len().min(200)];
    match input.kind % 3 {
        0 => buckets(steps, false),
        1 => buckets(steps, true),
        _ => growing(steps),
    }
});
